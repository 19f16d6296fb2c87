"""Products of matrices in full float32, whatever the device.

Unless it is asked for more, JAX multiplies matrices on accelerators in TF32 or bfloat16, with 10
or 7 bits of mantissa in place of 23. So programs of this library are compiled by `jit`, and what
runs outside of programs is decorated with `full_products`. Both set the precision where products
are traced, and nothing of the process. On a CPU products are full in any case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def full_products(fn: Callable[P, R]) -> Callable[P, R]:
    """Returns `fn` with products of matrices in the full precision of their dtype.

    What the caller has set for the process (`jax_default_matmul_precision`) is not looked at.
    """

    @functools.wraps(fn)
    def full(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return fn(*args, **kwargs)

    return full


def jit(fn: Callable[..., object] | None = None, **options: Any) -> Any:
    """`jax.jit` of `fn` with full products; call it once a function, each has a cache of its own.

    Args:
      fn: a function; without one, a decorator is returned.
      **options: of `jax.jit`.
    """
    if fn is None:
        return functools.partial(jit, **options)
    return jax.jit(full_products(fn), **options)
