"""Accelerators: on a GPU what is right there and how fast; without one, what a sweep would start.

On a machine whose default device is a GPU: log densities against double precision, the same bits
twice, moments beside those of the CPU of the machine, and the time of a sweep. Elsewhere nothing is
measured. Launches and bytes are then counted: in programs compiled ahead of time for an H100 where
the plugin of JAX for CUDA is installed (``pip install "jax[cuda12]"``, no GPU needed), else in the
traced programs alone, whose operations the compiler would still join.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.accelerator import checks, counted
from benchmarks.accelerator.problems import PROBLEMS
from benchmarks.harness import Row

CASES: dict[str, Callable[[bool], list[Row]]] = {
    **{f"accelerator/right/{name}": check for name, check in checks.CHECKS.items()},
    **{f"accelerator/time/{name}": partial(checks.time_of, name) for name in PROBLEMS},
    **{f"accelerator/counts/{name}": partial(counted.measure, name) for name in PROBLEMS},
}
QUICK = tuple(CASES)
