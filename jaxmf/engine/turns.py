"""How many programs may run at the same time without waiting for one another for ever.

On CPU a batch of factorisations is shared out to the threads of XLA's pool, and the thread that
asked for it waits. That thread may be one of the pool: with two threads and two such programs, both
may wait for a free thread, and there is none (seen with jaxlib 0.10). With one thread the batch is
not shared out. So of the programs that factorise in batches fewer run at once than the pool has
threads, in the whole process; other programs are not held up. Each device of a mesh may hold two
threads at once, one that waits for a batch and one that waits for what other devices send, so a
program on a mesh is refused where the pool has no thread beside these.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

import jax

from jaxmf.types import PyTree

FACTORISATIONS = (
    "cholesky",
    "eig",
    "eigh",
    "geqp3",
    "geqrf",
    "householder_product",
    "lu",
    "ormqr",
    "qr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
)


class Turns:
    """Lets in at most `num_turns` at a time; None for any number."""

    def __init__(self, num_turns: int | None):
        self.num_turns = num_turns
        self._free = None if num_turns is None else threading.Semaphore(num_turns)

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Waits for a turn."""
        if self._free is None:
            yield
            return
        with self._free:
            yield


def num_pool_threads() -> int:
    """Threads of XLA's pool on CPU: PJRT_NPROC, else NPROC, else cores; at least one a device."""
    set_by_user = (os.environ.get(name, "") for name in ("PJRT_NPROC", "NPROC"))
    stated = (int(value) for value in set_by_user if value.isdigit() and int(value) > 0)
    return max(next(stated, num_cores()), jax.local_device_count("cpu"))


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_turns(pool: int) -> int | None:
    """Programs with batches of factorisations that may run at once beside `pool` threads.

    Example:
        >>> num_turns(1), num_turns(2), num_turns(8)
        (None, 1, 7)
    """
    return None if pool == 1 else pool - 1


def threads_for(num_devices: int) -> int:
    """Threads with which devices of a CPU that factorise in batches never wait for ever.

    Example:
        >>> threads_for(8), threads_for(1)
        (17, 2)
    """
    return 2 if num_devices == 1 else 2 * num_devices + 1  # one alone waits for no other


_TURNS: list[Turns] = []
_LOCK = threading.Lock()


def batched_factorisations() -> Turns:
    """The turns of all programs of this process that factorise in batches."""
    with _LOCK:
        if not _TURNS:
            on_cpu = jax.default_backend() == "cpu"
            _TURNS.append(Turns(num_turns(num_pool_threads()) if on_cpu else None))
        return _TURNS[0]


def batches_of(jaxpr: Any) -> frozenset[int]:
    """How many matrices the factorisations of a program take at once, where it is more than one.

    Args: jaxpr: `jax.extend.core.Jaxpr` of the program, or a closed one.
    """
    found: set[int] = set()
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name in FACTORISATIONS:
            found.update(math.prod(variable.aval.shape[:-2]) for variable in equation.invars)
        for inner in _inner(equation.params):
            found |= batches_of(inner)
    return frozenset(found - {0, 1})


def _inner(value: object) -> Iterator[PyTree]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _inner(part)
    elif hasattr(getattr(value, "jaxpr", value), "eqns"):
        yield value
