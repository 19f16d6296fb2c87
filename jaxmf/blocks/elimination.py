"""Exact joint draws of a few variables from a product of factors, one variable after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from jaxmf._kernels.tables import choose
from jaxmf.types import Array


class Factor(NamedTuple):
    """A table over some variables."""

    names: tuple[str, ...]  # of the variables, one an axis
    values: Array  # not negative


def draw(
    names: Sequence[str],
    factors: Sequence[Factor],
    uniforms: Sequence[Array],
    num_lanes: Sequence[int],
) -> list[Array]:
    """A joint draw with probability proportional to the product of the factors.

    Variables are summed out from the last to the first, each from the product of the factors that
    name it (which is the junction tree's message where they form a chain, such as the path of a
    pachinko allocation), and then drawn from the first to the last.

    Args:
        names: the variables; each stands in some factor.
        factors: tables whose names follow the order of `names`.
        uniforms: one for each variable, () in [0, 1).
        num_lanes: one for each variable, see `choose`.
    Returns:
        The values, () int32 each.

    Source: Porteous (2010), section 5.3.1.
    """
    tables = _tables(names, factors, _product, jnp.sum)
    chosen: dict[str, Array] = {}
    steps = zip(names, tables, uniforms, num_lanes, strict=True)
    for name, table, uniform, lanes in steps:
        weights = table.values
        for before in table.names[:-1]:
            weights = lax.dynamic_index_in_dim(weights, chosen[before], 0, keepdims=False)
        chosen[name] = choose(weights, uniform, num_lanes=lanes)
    return [chosen[name] for name in names]


def _tables(
    names: Sequence[str],
    factors: Sequence[Factor],
    product_of: Callable[[Sequence[str], Sequence[Factor]], Factor],
    total: Callable[..., Array],
) -> list[Factor]:
    """For each variable the product that it is drawn from, those after it summed out."""
    waiting, tables = list(factors), []
    for name in reversed(names):
        with_name = [factor for factor in waiting if name in factor.names]
        waiting = [factor for factor in waiting if name not in factor.names]
        product = product_of(names, with_name)
        tables.append(product)
        if len(product.names) > 1:
            waiting.append(Factor(product.names[:-1], total(product.values, axis=-1)))
    return tables[::-1]


def _product(names: Sequence[str], factors: Sequence[Factor]) -> Factor:
    """The product over the union of the factors' variables, in the order of `names`."""
    together = tuple(name for name in names if any(name in f.names for f in factors))
    product = None
    for factor in factors:
        axes = [axis for axis, name in enumerate(together) if name not in factor.names]
        values = jnp.expand_dims(factor.values, axes)
        product = values if product is None else product * values
    assert product is not None
    shape = [
        max(v for f in factors for n, v in zip(f.names, f.values.shape, strict=True) if n == name)
        for name in together
    ]
    return Factor(together, jnp.broadcast_to(product, shape))


# --- many tokens at once --------------------------------------------------------------------------

_PIECE = 16  # weights that a draw sums at once


def draw_all(names: Sequence[str], factors: Sequence[Factor], uniforms: Array) -> list[Array]:
    """As `draw`, for many tokens at once and in logarithms.

    Args: factors: log tables (B or 1, ...) whose names follow the order of `names`; uniforms (B, n)
    float in [0, 1), one for each variable.
    Returns the values, (B,) int32 each.
    """
    tables = _tables(names, factors, _log_product, logsumexp)
    chosen: dict[str, Array] = {}
    num_tokens = uniforms.shape[0]
    for position, (name, table) in enumerate(zip(names, tables, strict=True)):
        weights = jnp.broadcast_to(table.values, (num_tokens, *table.values.shape[1:]))
        for before in table.names[:-1]:
            index = chosen[before].reshape(-1, *[1] * (weights.ndim - 1))
            weights = jnp.take_along_axis(weights, index, axis=1)[:, 0]
        chosen[name] = choose_all(weights, uniforms[:, position])
    return [chosen[name] for name in names]


def choose_all(log_weights: Array, uniforms: Array) -> Array:
    """Draws an index in each row with probability proportional to exp(log weight).

    Args: log_weights (B, K) float, -inf for no weight, at least one finite in a row; uniforms (B,)
    float in [0, 1).
    Returns (B,) int32, indices of positive weight.
    """
    num_rows, size = log_weights.shape
    height = -(-size // _PIECE)
    weights = jnp.exp(log_weights - jnp.max(log_weights, axis=1, keepdims=True))
    weights = jnp.pad(weights, ((0, 0), (0, height * _PIECE - size)))
    weights = weights.reshape(num_rows, height, _PIECE)
    # a piece of the row first, then an index in it: a third of the time of one long running sum
    sums = jnp.sum(weights, axis=2)
    running = jnp.cumsum(sums, axis=1)
    goal = uniforms * running[:, -1]
    piece = _passed(sums, running, goal)
    before = jnp.take_along_axis(running, jnp.maximum(piece - 1, 0)[:, None], axis=1)[:, 0]
    inside = weights[jnp.arange(num_rows), piece]
    running = jnp.stack(list(itertools.accumulate(inside.T)), axis=1)
    index = _passed(inside, running, goal - jnp.where(piece > 0, before, 0))
    return piece * _PIECE + index


def _passed(weights: Array, running: Array, goal: Array) -> Array:
    """The first index in each row at which the running sum passes the goal: (B,) int32.

    Rounding may let the sum end short of it; then it is the last index of positive weight.
    """
    index = jnp.sum(running <= goal[:, None], axis=1, dtype=jnp.int32)
    last = weights.shape[1] - 1 - jnp.argmax((weights > 0)[:, ::-1], axis=1)
    return jnp.minimum(index, last.astype(jnp.int32))


def _log_product(names: Sequence[str], factors: Sequence[Factor]) -> Factor:
    """The product over the union of the factors' variables, in the order of `names`."""
    together = tuple(name for name in names if any(name in f.names for f in factors))
    total: Any = 0
    for factor in factors:
        axes = [1 + index for index, name in enumerate(together) if name not in factor.names]
        total = total + jnp.expand_dims(factor.values, axes)
    return Factor(together, total)
