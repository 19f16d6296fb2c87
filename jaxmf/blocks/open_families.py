"""Families that leave settings open: taken from the tokens before a run, and what is said of it."""

from __future__ import annotations

import jax
import numpy as np

from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.family import Family
from jaxmf.programs import jit
from jaxmf.types import Array


def known_families(network: Wiring, data: Tokens) -> dict[str, Family]:
    """The families of blocks that leave settings open, with these taken from the tokens.

    Raises:
        ValueError: values so large or small that their squares leave the range of floats.
    """
    values = {name: data.values[name] for name in network.observed if name in data.values}
    names = [name for name in values if network.distributions[name].is_of_data]
    if not names:
        return {}

    def families(values: dict[str, Array]) -> dict[str, Family]:
        known = network.known_from(_tokens(values))
        return {name: known.distributions[name] for name in names}

    try:
        found: dict[str, Family] = jax.tree.map(_plain, jit(families)(values))
    except ValueError as error:  # of a setting that is no number any more
        sizes = ", ".join(f"{name} up to {np.abs(values[name]).max():.3g}" for name in names)
        raise ValueError(
            f"data: what families leave open ({', '.join(names)}) does not follow from the values "
            f"({sizes}): {error}. Multiply the column by a power of ten, so that squares of its "
            "values stay in the range of floats, or state all settings of the family"
        ) from None
    return found


def notes_of_families(network: Wiring, data: Tokens) -> tuple[str, ...]:
    """For `Model.notes`: which settings of families are those that the tokens suggest."""
    values = {name: data.values[name] for name in network.observed if name in data.values}
    families = {name: network.distributions[name] for name in values}
    if not values:
        return ()

    def suggested(values: dict[str, Array]) -> dict[str, dict[str, object]]:
        groups = network.groups_of_values(_tokens(values))
        found = {
            name: family.settings_from(values[name], num_groups=groups[name])
            for name, family in families.items()
        }
        # numbers are the same for all values
        return {
            name: {key: value for key, value in each.items() if not isinstance(value, float)}
            for name, each in found.items()
        }

    notes = []
    for name, settings in jax.tree.map(_plain, jit(suggested)(values)).items():
        family = families[name]
        taken = [key for key, found in settings.items() if _are_equal(getattr(family, key), found)]
        if taken:
            notes.append(
                f"{name}: {', '.join(taken)} of its family follow from its values, as they were "
                f"left open: {family!r}"
            )
    return tuple(notes)


def _tokens(values: dict[str, Array]) -> Tokens:
    return bare(Tokens, columns={}, sizes={}, values=values, names={})


def _are_equal(one: object, other: object) -> bool:
    leaves = [jax.tree.leaves(each) for each in (one, other)]
    are_as_many = 0 < len(leaves[0]) == len(leaves[1])
    return are_as_many and all(map(np.array_equal, *leaves))


def _plain(leaf: Array) -> Array | float:
    """A number as Python's, the shortest that is this one; other arrays stay."""
    return leaf if leaf.ndim else float(str(np.asarray(leaf)[()]))
