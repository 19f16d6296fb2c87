"""The blocks that have to do with some indicators, and what part each has in a sweep over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes
from jaxmf.blocks.counts import statistics_of
from jaxmf.blocks.wiring import BlockParts, Wiring
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.types import Array, PyTree


class Role(NamedTuple):
    """One block in the sweep over some indicators."""

    name: str  # of the block
    distribution: Any  # the family or prior of the block
    parts: BlockParts  # of the block
    over: tuple[str, ...]  # its parents among the indicators that are drawn
    is_drawn: bool  # whether it is one of them itself

    @property
    def is_indicator(self) -> bool:
        """Whether it is latent."""
        return isinstance(self.distribution, PartitionPrior)


def involved(network: Wiring, names: Collection[str]) -> tuple[str, ...]:
    """Some indicators and what they partition, parents first."""
    below = {child for name in names for child in network.children(name)}
    return tuple(name for name in network.order if name in {*names, *below})


def roles_of(
    network: Wiring,
    names: tuple[str, ...],
    sizes: Mapping[str, int],
    *,
    ready: Collection[str] | None = None,
) -> tuple[Role, ...]:
    """The roles of the blocks that have to do with some indicators.

    Args:
        ready: the variables that have values, or are drawn; blocks that are not among them, or hang
            on others, are left out. None for all.
    """
    found = []
    for name in involved(network, names):
        block = network.blocks[name]
        if ready is not None and not {name, *block.by} <= {*ready}:
            continue
        over = tuple(chosen for chosen in names if chosen in block.by)
        parts = network.parts(name, sizes)
        found.append(Role(name, block.distribution, parts, over, name in names))
    return tuple(found)


class Below(NamedTuple):
    """The observed blocks that an indicator partitions, as a loop over tokens works on them."""

    name: str  # of the indicator
    num_groups: int  # K, how many values it has
    roles: tuple[Role, ...]  # those of the blocks

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a token must have: the blocks' values, and those of their other parents."""
        needed = {parent for role in self.roles for parent in role.parts.by} - {self.name}
        return tuple(sorted(needed | {role.name for role in self.roles}))

    def moved(
        self,
        cache: Mapping[str, PyTree],
        token: Mapping[str, Array],
        look_up: Mapping[str, Array],
        *,
        group: Array,
        amount: object,
    ) -> dict[str, PyTree]:
        """A token into the parts of a group (amount 1), or out of them (-1)."""
        after = dict(cache)
        for name, distribution, parts, *_ in self.roles:
            part = parts.of({**token, self.name: group}, look_up.get(name))
            after[name] = distribution.move(after[name], part, token[name], amount)
        return after

    def log_predicted(
        self,
        cache: Mapping[str, PyTree],
        token: Mapping[str, Array],
        look_up: Mapping[str, Array],
    ) -> Array:
        """Log probabilities of a token's values in every group: (K,) float."""
        total = jnp.zeros((self.num_groups,), jnp.result_type(float))
        for name, distribution, parts, *_ in self.roles:
            lanes = parts.lanes(token, self.name, look_up.get(name))
            result = distribution.predictive(cache[name], lanes, token[name])
            total += result if distribution.is_log else jnp.log(result)
        return total

    def likely(
        self,
        cache: Mapping[str, PyTree],
        token: Mapping[str, Array],
        look_up: Mapping[str, Array],
    ) -> Array:
        """Probabilities of a token's values in every group up to one factor: (K,) float."""
        if len(self.roles) > 1 or any(role.distribution.is_log for role in self.roles):
            logs = self.log_predicted(cache, token, look_up)
            return jnp.exp(logs - jnp.max(logs))
        ((name, distribution, parts, *_),) = self.roles
        lanes = parts.lanes(token, self.name, look_up.get(name))
        return distribution.predictive(cache[name], lanes, token[name])

    # --- tokens that are predicted one after the other without being moved ---

    def no_tokens(self) -> dict[str, tuple[Array, Array]] | None:
        """For `predicted_after`, before any token; None where a family does not know it.

        Returns by block, of every combination of the other parents: how often a value has come (V,
        P) float, and how many have (P,).
        """
        if not all(hasattr(role.distribution, "predictive_after") for role in self.roles):
            return None
        if any(role.parts.table is not None for role in self.roles):
            return None  # which tokens share a part depends on the group
        dtype = jnp.result_type(float)
        joined = {}
        for role in self.roles:
            num_others = role.parts.num_parts // self.num_groups
            shape = (role.distribution.size, num_others)
            joined[role.name] = jnp.zeros(shape, dtype), jnp.zeros((num_others,), dtype)
        return joined

    def with_token(
        self, joined: Mapping[str, PyTree], token: Mapping[str, Array], amount: int
    ) -> dict[str, tuple[Array, Array]]:
        """With one token more (amount 1), or less (-1)."""
        after = {}
        for name, _, parts, *_ in self.roles:
            others = parts.without(self.name).flat(token)
            same, before = joined[name]
            same = tables.add_entry(same, token[name], others, amount)
            after[name] = same, tables.add(before, others, amount)
        return after

    def predicted_after(
        self,
        cache: Mapping[str, PyTree],
        token: Mapping[str, Array],
        joined: Mapping[str, PyTree],
        *,
        leaves: Array | None = None,
    ) -> list[Array]:
        """Probabilities of its values where some tokens and this one have joined every group.

        (K,) float for each block. The token itself does not count.

        Args: leaves: () int32, a group that had them all, which they leave instead: of it alone,
        (1,) float.
        """
        factors = []
        for name, distribution, parts, *_ in self.roles:
            others = parts.without(self.name).flat(token)
            same = tables.entry(joined[name][0], token[name], others)
            before = tables.row(joined[name][1], others)
            if leaves is None:
                lanes, same, before = parts.lanes(token, self.name, None), same - 1, before - 1
            else:
                lanes = tables.Lanes(parts.flat({**token, self.name: leaves}), 1, 1)
                same, before = -same, -before
            factors.append(
                distribution.predictive_after(
                    cache[name], lanes, token[name], same=same, before=before
                )
            )
        return factors


def below(network: Wiring, name: str, sizes: Mapping[str, int]) -> Below:
    """The blocks that an indicator partitions; all of them are observed."""
    roles = roles_of(network, (name,), sizes)
    return Below(name, sizes[name], tuple(role for role in roles if not role.is_drawn))


def statistics_of_roles(
    roles: Collection[Role], values: Mapping[str, Array], slots: Mapping[str, int]
) -> dict[str, PyTree]:
    """The statistics of blocks by name, given the values of all variables."""
    return {
        r.name: statistics_of(r.name, r.distribution, r.parts, values, slots.get(r.name))
        for r in roles
    }


def look_up_of(roles: Collection[Role]) -> dict[str, Array]:
    """The parts of every combination of values, for blocks that have a function of them."""
    return {r.name: jnp.asarray(r.parts.table) for r in roles if r.parts.table is not None}


def lanes_of(
    role: Role, values: Mapping[str, Array], table: Array | None
) -> tuple[Lanes, tuple[int, ...]]:
    """The parts of a token for all values of the drawn parents, and how many each has."""
    sizes = tuple(role.parts.sizes[role.parts.by.index(name)] for name in role.over)
    if len(role.over) == 1:
        return role.parts.lanes(values, role.over[0], table), sizes
    grids = np.indices(sizes).reshape(len(sizes), -1)
    all_values = dict(values)
    for name, grid in zip(role.over, grids, strict=True):
        all_values[name] = jnp.asarray(grid, jnp.int32)
    parts_of_token = role.parts.of(all_values, table)
    return Lanes(jnp.zeros((), jnp.int32), 1, parts_of_token.shape[0], parts_of_token), sizes
