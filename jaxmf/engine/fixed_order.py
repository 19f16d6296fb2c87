"""Arguments of programs in an order that is the same in every process.

NumPyro flattens a distribution in the order of a set of names, which changes from process to
process; so would the arguments of a compiled program, and the cache of compiled programs on disk
would not know it again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import jax

from jaxmf.types import PyTree

if TYPE_CHECKING:
    import numpyro.distributions as dist


@jax.tree_util.register_pytree_node_class
class _Sorted:
    """A distribution, its arrays sorted by the names of its fields."""

    def __init__(self, kind: type[dist.Distribution], arrays: tuple[PyTree, ...], rest: object):
        self.kind, self.arrays, self.rest = kind, arrays, rest

    @classmethod
    def of(cls, distribution: dist.Distribution) -> _Sorted:
        arrays, rest = distribution.tree_flatten()
        order = _sorted_indices(type(distribution))
        return cls(type(distribution), tuple(in_fixed_order(arrays[i]) for i in order), rest)

    def restore(self) -> dist.Distribution:
        order = _sorted_indices(self.kind)
        by_index = dict(zip(order, self.arrays, strict=True))
        arrays = tuple(restored(by_index[i]) for i in range(len(order)))
        return self.kind.tree_unflatten(self.rest, arrays)

    def tree_flatten(self) -> tuple[tuple[PyTree, ...], tuple[PyTree, ...]]:
        return self.arrays, (self.kind, self.rest)

    @classmethod
    def tree_unflatten(cls, kept: tuple[PyTree, ...], arrays: tuple[PyTree, ...]) -> _Sorted:
        return cls(kept[0], arrays, kept[1])


@jax.tree_util.register_pytree_node_class
class _Flat:
    """A tree as its leaves, distributions among them sorted; a model would refuse these."""

    def __init__(self, leaves: tuple[PyTree, ...], structure: object):
        self.leaves, self.structure = leaves, structure

    def tree_flatten(self) -> tuple[tuple[PyTree, ...], PyTree]:
        return self.leaves, self.structure

    @classmethod
    def tree_unflatten(cls, structure: object, leaves: tuple[PyTree, ...]) -> _Flat:
        return cls(tuple(leaves), structure)


def in_fixed_order(tree: PyTree) -> PyTree:
    """The tree with the arrays of its distributions sorted by name."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_sortable)
    if not any(_is_sortable(leaf) for leaf in leaves):
        return tree
    return _Flat(
        tuple(_Sorted.of(leaf) if _is_sortable(leaf) else leaf for leaf in leaves), structure
    )


def restored(tree: PyTree) -> PyTree:
    """The tree from one of `in_fixed_order`."""
    if not isinstance(tree, _Flat):
        return tree
    leaves = (leaf.restore() if isinstance(leaf, _Sorted) else leaf for leaf in tree.leaves)
    return jax.tree.unflatten(tree.structure, leaves)


def _sorted_indices(kind: type[dist.Distribution]) -> list[int]:
    names = kind.gather_pytree_data_fields()
    return sorted(range(len(names)), key=names.__getitem__)


def _is_sortable(leaf: object) -> TypeGuard[dist.Distribution]:
    """Whether it is a distribution; one that flattens in a way of its own stays as it is."""
    # half a second to import, of no use to who only reads data
    loaded = sys.modules.get("numpyro.distributions")
    if loaded is None or not isinstance(leaf, loaded.Distribution):
        return False
    return len(leaf.tree_flatten()[0]) == len(type(leaf).gather_pytree_data_fields())
