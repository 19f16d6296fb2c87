"""Sums and differences of many cells in single precision: what keeps their digits.

A float32 has 24 bits, so the log density of 10^7 cells is known to a nat, and a sum of 10^7 terms
that are added one after another to less. Here sums carry what rounding took from them, and changes
of a log density are computed as such, not as differences of two values.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.types import Array, PyTree

MOST = 80.0  # the exponential of which is a float32


class Sum(NamedTuple):
    """A pytree of sums, and how far each lies above what was added to it."""

    total: PyTree
    excess: PyTree


def start(zeros: PyTree) -> Sum:
    """Empty sums of these shapes."""
    return Sum(zeros, zeros)


def add(sums: Sum, terms: PyTree) -> Sum:
    """The sums with one more term each (Kahan's summation)."""
    corrected = jax.tree.map(jnp.subtract, terms, sums.excess)
    total = jax.tree.map(jnp.add, sums.total, corrected)
    risen = jax.tree.map(jnp.subtract, total, sums.total)
    return Sum(total, jax.tree.map(jnp.subtract, risen, corrected))


def log_ratio(new: Array, old: Array) -> Array:
    """log(new / old) of positive numbers, to its own rounding where they are close.

    Finite where `new` has become zero: what is multiplied by it there is far from every mode.
    """
    change = (new - old) / old
    is_near = jnp.abs(change) < 0.5
    least = jnp.finfo(jnp.result_type(change)).tiny
    far = jnp.log(jnp.maximum(new / old, least))
    return jnp.where(is_near, jnp.log1p(jnp.where(is_near, change, 0)), far)


def expm1(exponent: Array) -> Array:
    """exp(exponent) - 1, finite: a product with zero is zero, however large the exponent."""
    return jnp.expm1(jnp.minimum(exponent, MOST))


def normal_change(count: Array | int, squares: Array, old: Array, new: Array) -> Array:
    """log density of normal residuals with the scale `new`, less that with the scale `old`.

    Args: squares () float, their sum of squares; old, new () float, positive.
    """
    by = log_ratio(new, old)
    return -count * by - 0.5 * squares / old**2 * expm1(-2 * by)
