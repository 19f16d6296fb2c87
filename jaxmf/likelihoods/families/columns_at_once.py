"""Sweeps over rows of many numbers: what a family of single numbers keeps, for all columns at once.

Every leaf that a family keeps of its groups has the columns on the second axis, (G, D, ...), so
that a row of it is what one group has of all columns. A row is taken out, the family's own step is
mapped over its columns, and the row is put back: neither a loop over columns, each turn of which
would copy the tables of thousands of them, nor a scatter, which a fused kernel cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.likelihoods.families.family import Family
from jaxmf.types import Array, PyTree


def begin(family: Family, by_column: tuple[Array, ...]) -> PyTree:
    """Cache of a sweep.

    Args: by_column: the leaves of the family's statistics, (G, D, ...) each.
    """
    num_groups, num_columns = by_column[0].shape[:2]
    template = type(family.empty(1))
    flat = template(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in by_column))

    def in_columns(leaf: Array) -> Array:
        return leaf.reshape(num_groups, num_columns, *leaf.shape[1:])

    return _map_leaves(family, in_columns, family.begin(flat, family.start()))


def move(family: Family, kept: PyTree, group: Array, cells: Array, amounts: PyTree) -> PyTree:
    """Cells (D,) join a group (amount 1), leave it (-1) or are missing (0)."""
    axes, only = _axes(family), jnp.zeros((), jnp.int32)
    rows = _map_leaves(family, lambda leaf: tables.row(leaf, group)[None], kept)
    moved = jax.vmap(family.move, (axes, None, 0, 0), axes)(rows, only, cells, amounts)
    return _map_leaves(family, lambda leaf, new: tables.put(leaf, group, new[0]), kept, moved)


def predictive(family: Family, kept: PyTree, lanes: Lanes, cells: Array) -> Array:
    """log p(cell | cells of the group in its column): (lanes.size, D)."""
    taken = _map_leaves(family, lambda leaf: tables.take(leaf, lanes), kept)
    all_taken = Lanes(jnp.zeros((), jnp.int32), 1, lanes.size)

    def one_column(single: PyTree, cell: Array) -> Array:
        return family.predictive(single, all_taken, cell)

    return jax.vmap(one_column, (_axes(family), 0), 1)(taken, cells)


def predictive_of_cell(
    family: Family, kept: PyTree, num_groups: int, column: Array, cell: Array
) -> Array:
    """log p(cell | cells of the group in its column) of every group: (G,)."""
    single = _map_leaves(family, lambda leaf: leaf[:, column], kept)
    return family.predictive(single, Lanes(jnp.zeros((), jnp.int32), 1, num_groups), cell)


def _axes(family: Family) -> PyTree:
    """Where the columns are in each leaf, None where they share it: what does not grow with G."""

    def kept(num_groups: int) -> PyTree:
        return jax.eval_shape(lambda: family.begin(family.empty(num_groups), family.start()))

    return jax.tree.map(lambda one, two: 1 if one.shape != two.shape else None, kept(1), kept(2))


def _map_leaves(family: Family, function: Callable[..., Array], *kept: PyTree) -> PyTree:
    """A function of each leaf of groups, with those of further trees; the others as given."""
    structure = jax.tree.structure(kept[0])
    axes = structure.flatten_up_to(_axes(family))
    leaves = zip(axes, *map(jax.tree.leaves, kept), strict=True)
    return structure.unflatten(
        [first if axis is None else function(first, *rest) for axis, first, *rest in leaves]
    )
