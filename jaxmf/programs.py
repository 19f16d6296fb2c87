"""How programs of this library are traced: by settings of their own, whatever the caller's are.

Unless it is asked for more, JAX multiplies matrices on accelerators in TF32 or bfloat16, with 10
or 7 bits of mantissa in place of 23. So programs of this library are compiled by `jit`, and what
runs outside of programs is decorated with `full_products`. On a CPU products are full in any case.

A process may refuse that a vector meets a matrix (`jax_numpy_rank_promotion`) or an integer a float
(`jax_numpy_dtype_promotion`), to find slips in its own code. Here both are meant, as in numpy.

Settings are those of the trace, and none of the process is set.

A fork of a process that has used JAX lacks the threads that JAX started there: in it every program,
new or compiled already, may wait for ever. So programs of this library are refused in it when
they are called, and whatever else is compiled there when JAX says that it was traced.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

# compiled in a third of the time, for what is small and run once
LOWEST_LEVEL = {"xla_backend_optimization_level": 0}

# the process that JAX was first used in
_FIRST: list[int] = []

P = ParamSpec("P")
R = TypeVar("R")


def full_products(fn: Callable[P, R]) -> Callable[P, R]:
    """Returns `fn` with products of matrices in the full precision of their dtype.

    What the caller has set for the process (`jax_default_matmul_precision`, and what shapes and
    dtypes may meet) is not looked at.
    """

    @functools.wraps(fn)
    def full(*args: P.args, **kwargs: P.kwargs) -> R:
        with (
            jax.default_matmul_precision("highest"),
            jax.numpy_rank_promotion("allow"),
            jax.numpy_dtype_promotion("standard"),
        ):
            return fn(*args, **kwargs)

    return full


def jit(fn: Callable[..., object] | None = None, **options: Any) -> Any:
    """`jax.jit` of `fn` with full products; call it once a function, each has a cache of its own.

    Args:
      fn: a function; without one, a decorator is returned.
      **options: of `jax.jit`.
    Returns:
      A function that raises RuntimeError in a fork; ``lower`` and ``trace`` are those of `jax.jit`.
    """
    if fn is None:
        return functools.partial(jit, **options)
    compiled = jax.jit(full_products(fn), **options)

    @functools.wraps(compiled)
    def program(*args: object, **kwargs: object) -> object:
        refuse_in_fork()
        return compiled(*args, **kwargs)

    program.__dict__.update(lower=compiled.lower, trace=compiled.trace)
    return program


def jit_method(method: Callable[..., object], **options: object) -> Any:
    """`jit` of a method of a protocol, called with a model and what the method takes."""

    @functools.wraps(method)
    def on_model(model: object, *args: object, **kwargs: object) -> object:
        return getattr(model, method.__name__)(*args, **kwargs)

    return jit(on_model, **options)


def refuse_in_fork() -> None:
    """Refuses what would wait for ever for threads that a fork does not have.

    Raises RuntimeError: in a fork of a process that has run or loaded something.
    """
    if not _FIRST:
        _FIRST.append(os.getpid())
    if _FIRST[0] != os.getpid():
        raise RuntimeError(
            "this process is a fork of one that has run or loaded something, and lacks the "
            "threads that JAX started there: runs and their answers would wait for ever. "
            'Start processes by multiprocessing.get_context("spawn"), or fork before anything '
            "is run or loaded"
        )


def _at_event(event: str, duration_secs: float, **kwargs: str | int) -> None:
    del event, duration_secs, kwargs
    if _FIRST:
        refuse_in_fork()


# What runs outside of programs of this library is compiled one operation at a time, and JAX says so
# when it was traced or lowered, before it is compiled. Nothing is refused before this library has
# run something.
jax.monitoring.register_event_duration_secs_listener(_at_event)
