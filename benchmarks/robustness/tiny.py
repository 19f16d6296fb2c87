"""Tiny runs of every model by every method, cut into chunks of one step: for crashes and kills."""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jaxmf as mf
from benchmarks.robustness.saved import posterior_contents
from jaxmf import engine, registry
from jaxmf.engine import run as run_engine

ROOT = Path(__file__).parents[2]
STEPS: dict[str, Any] = {
    "sample": lambda n: {"num_warmup": 1, "num_samples": n, "num_chains": 2},
    "particle_filter": lambda n: {"num_particles": 8},
    "variational": lambda n: {"num_epochs": n},
}
CASES = tuple(
    f"{entry.name}/{method}"
    for entry in registry.ENTRIES
    for method in entry.methods
    # functions of the user cannot be written into a checkpoint's identity
    if not entry.has_functions
)
QUICK_CASES = ("linear-gaussian-ibp/sample", "noisy-or-ibp/particle_filter", "lda/sample")
# of all the facts of a run, its time alone may differ
NOT_COMPARED = ("seconds",)


def fit(
    case: str,
    *,
    num_steps: int = 2,
    chunk_seconds: float | None = 1e-9,
    **settings: Any,
) -> dict[str, bytes]:
    """Everything that a tiny run of a model by a method says, as bytes by name.

    Args:
        case: model and method, as in `CASES`.
        num_steps: draws of each chain, or epochs.
        chunk_seconds: of the engine; None for what it has by default.
        **settings: of the verb, such as checkpoint and resume.
    """
    name, method = case.split("/")
    model, data = registry.get(name).example()
    chosen = {"seed": 3, "progress": False} | STEPS[method](num_steps) | settings
    patched = (
        run_engine if chunk_seconds is None else partial(run_engine, chunk_seconds=chunk_seconds)
    )
    before, engine.run = engine.run, patched
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few draws are warned of
            posterior = mf.fit(model, data, method=method, **chosen)
    finally:
        engine.run = before
    contents = posterior_contents(posterior)
    return {name: value for name, value in contents.items() if name not in NOT_COMPARED}


def environment(**variables: str) -> dict[str, str]:
    """Of a child process: this tree, and compiled programs kept between children."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    kept = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"} if cache else {}
    return os.environ | {"PYTHONPATH": str(ROOT)} | kept | variables


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """Names of what differs between two runs."""
    return [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
