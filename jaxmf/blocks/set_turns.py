"""How the tokens of batches are drawn given what batches share: decided when a sweep is traced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxmf._kernels import tables
from jaxmf.blocks.roles import Role
from jaxmf.blocks.wiring import Wiring
from jaxmf.devices import default_platform
from jaxmf.likelihoods.families.categories import BetaBinary, DirichletMultinomial
from jaxmf.priors.partition_prior import is_kind
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import Array

_MOST_AT_ONCE = 2  # indicators whose combinations are all weighed; more are summed out in turn
_MOST_TABLES = 4  # a product of more probabilities may be too small for a float


class SetTurns(NamedTuple):
    """How a set of indicators is drawn, decided when the sweep is traced."""

    names: tuple[str, ...]  # the indicators, parents first
    sizes: tuple[int, ...]  # the number of groups of each
    column: str  # of the tokens, whose levels are the batches
    num_batches: int  # G
    roles: tuple[Role, ...]  # of the blocks
    collapsed: tuple[str, ...]  # the indicators whose probabilities in a batch are summed out
    is_first: bool  # whether tokens join one after the other, as where a chain starts
    in_kernel: bool  # whether an accelerator draws them by `token_draw.py`

    @property
    def drawn(self) -> list[Role]:
        """The roles of the indicators that are drawn."""
        by_name = {role.name: role for role in self.roles}
        return [by_name[name] for name in self.names]

    @property
    def others(self) -> tuple[Role, ...]:
        """The roles of the blocks whose parameters all batches share."""
        return tuple(role for role in self.roles if role.name not in self.collapsed)


class Read(NamedTuple):
    """Inputs of the draw of every token."""

    # block -> of indicators that are drawn (P, K); of others (V, P), so that the parts of a value
    # stand side by side
    probabilities: dict[str, Array]
    hyperparameters: dict[str, dict[str, Array]]  # collapsed indicator -> its hyperparameters
    look_up: dict[str, Array]  # block -> parts of combinations of values
    # growing indicator -> (K,) float, the uniforms of the holders of its groups
    smallest: dict[str, Array]


class AllTokens(NamedTuple):
    """All tokens."""

    order: Array  # (T,) int32, those of a batch side by side; so are the rest on a CPU
    columns: dict[str, Array]  # the variables that are needed, (T,) each
    # growing indicator -> (T,) float, the uniforms that decide who holds a group
    marks: dict[str, Array]
    uniforms: Array  # for the draws, (T, n) float; (T,) on accelerators


def turns_of(
    network: Wiring,
    names: tuple[str, ...],
    roles: tuple[Role, ...],
    slots: Mapping[str, int],
    *,
    is_first: bool = False,
    in_kernel: bool = False,
) -> SetTurns | None:
    """How the indicators are drawn batch by batch; None where they cannot be.

    The first one is partitioned by one column alone, what hangs on them has a finite set of values,
    and on an accelerator there are two of them at most.
    """
    drawn = [role for role in roles if role.is_drawn]
    columns = [name for name in drawn[0].parts.by if name not in network.blocks]
    if len(columns) != 1:
        return None
    collapsed = tuple(role.name for role in drawn if _is_collapsed(role, columns[0], names))
    others = [role for role in roles if role.name not in collapsed]
    are_tables = all(
        role.is_indicator or is_kind(role.distribution, DirichletMultinomial, BetaBinary)
        for role in others
    )
    if drawn[0].name not in collapsed or not are_tables or len(others) > _MOST_TABLES:
        return None
    if default_platform() != "cpu" and len(names) > _MOST_AT_ONCE:
        return None
    sizes = tuple(slots[name] for name in names)
    num_batches = drawn[0].parts.num_parts
    return SetTurns(names, sizes, columns[0], num_batches, roles, collapsed, is_first, in_kernel)


def padded(turns: SetTurns) -> SetTurns:
    """With values of the last indicator that have no weight, so that there are whole vectors.

    The same turns where it grows, a block has a function of its parents, or its probabilities are
    summed out and its prior is not a Dirichlet: others do not know such values. On accelerators
    too, which mask what is missing.
    """
    last, size = turns.names[-1], turns.sizes[-1]
    width, prior = tables.padded(size), turns.drawn[-1].distribution
    is_fixed = prior.grows or (last in turns.collapsed and not is_kind(prior, Dirichlet))
    if default_platform() != "cpu" or width == size or is_fixed:
        return turns
    if any(role.parts.table is not None for role in turns.roles):
        return turns

    def wider(role: Role) -> Role:
        parts = role.parts
        sizes = [width if n == last else s for n, s in zip(parts.by, parts.sizes, strict=True)]
        num_parts = int(np.prod(sizes, dtype=np.int64))
        return role._replace(parts=parts._replace(sizes=tuple(sizes), num_parts=num_parts))

    roles = tuple(wider(role) for role in turns.roles)
    return turns._replace(sizes=(*turns.sizes[:-1], width), roles=roles)


def _is_collapsed(role: Role, column: str, names: tuple[str, ...]) -> bool:
    by = {*role.parts.by}
    is_alone = column in by and by <= {column, *names} and role.parts.table is None
    return is_alone and role.distribution.labels_shared
