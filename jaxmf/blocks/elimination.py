"""Exact joint draws of a few variables from a product of factors, one variable after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxmf.tables import choose


class Factor(NamedTuple):
    """A table over some variables.

    Attributes:
        names: of the variables, one an axis.
        values: not negative.
    """

    names: tuple[str, ...]
    values: Array


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
    waiting, tables = list(factors), []
    for name in reversed(names):
        with_name = [factor for factor in waiting if name in factor.names]
        waiting = [factor for factor in waiting if name not in factor.names]
        product = _product(names, with_name)
        tables.append(product)
        if len(product.names) > 1:
            waiting.append(Factor(product.names[:-1], jnp.sum(product.values, axis=-1)))
    chosen: dict[str, Array] = {}
    steps = zip(names, reversed(tables), uniforms, num_lanes, strict=True)
    for name, table, uniform, lanes in steps:
        weights = table.values
        for before in table.names[:-1]:
            weights = lax.dynamic_index_in_dim(weights, chosen[before], 0, keepdims=False)
        chosen[name] = choose(weights, uniform, num_lanes=lanes)
    return [chosen[name] for name in names]


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
