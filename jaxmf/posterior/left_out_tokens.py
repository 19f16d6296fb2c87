"""Tokens of a network, each predicted from all the others: words of documents, ratings.

A draw keeps the counts of groups, with the token in them; in which group it is, is not kept. So the
probability of each group for the token is found given the counts without it, these counts being
those of the draw less that probability: a fixed point, as of collapsed variational inference of
order zero (Asuncion, Welling, Smyth & Teh 2009, section 2.4). Where the groups of a token are clear
that is its exact removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxmf.blocks import Network
from jaxmf.blocks.kept_counts import counts_at, counts_by_part, is_table, num_groups
from jaxmf.blocks.prediction import hyperparameters_of
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.priors.hdp import HDP
from jaxmf.priors.partition_prior import is_kind
from jaxmf.priors.partitions import Dirichlet

_NUM_ROUNDS = 8
_MOST_PRODUCTS = 2**24  # numbers of one draw: tokens by combinations of groups by values

Draw = Mapping[str, Any]


def fixed_hyperparameters(network: Network, draws: Draw) -> dict[str, np.ndarray]:
    """Hyperparameters that draws lack, as the model has them, so that they are found once."""
    found: dict[str, np.ndarray] = {}
    for name in network.blocks:
        known = {label: value for label, value in draws.items() if label.startswith(f"{name}_")}
        for label, value in hyperparameters_of(network, known, name).items():
            if f"{name}_{label}" not in draws:
                found[f"{name}_{label}"] = np.asarray(value)
    return found


class LeftOut(NamedTuple):
    """Tokens given a draw and all other tokens."""

    log_probability: np.ndarray  # (M,) of the value that the token has
    probabilities: np.ndarray | None  # (M, V) of all values, where asked for; else None
    # (M,) of the same value for one more token with these columns, given the draw and all tokens
    log_replicate: np.ndarray


def observed_block(network: Network) -> str | None:
    """The one observed block whose tokens can be left out; None if the network is of another form.

    That is of categories, by indicators with a `Dirichlet` or `HDP` prior that hang on columns.
    """
    if len(network.observed) != 1 or network.tables:
        return None
    (name,) = network.observed
    block = network.blocks[name]
    parents = [network.blocks[parent] for parent in block.by if parent in network.indicators]
    is_answered = is_kind(block.distribution, DirichletMultinomial) and block.rho is None
    is_answered &= len(parents) == len(network.indicators) > 0
    for parent in parents:
        is_answered &= is_kind(parent.distribution, Dirichlet, HDP)
        is_answered &= parent.rho is None and not parent.per
        is_answered &= not any(above in network.blocks for above in parent.by)
    return name if is_answered else None


def is_small(network: Network, draw: Draw, num_tokens: int, num_values: int) -> bool:
    """Whether this many tokens of a draw can be left out at once."""
    return num_tokens * num_combinations(network, draw) * num_values <= _MOST_PRODUCTS


def num_combinations(network: Network, draw: Draw) -> int:
    """How many combinations of groups a token may have in a draw."""
    return int(np.prod([num_groups(draw, name) for name in network.indicators]))


def leave_out(
    network: Network,
    draw: Draw,
    name: str,
    columns: Mapping[str, np.ndarray],
    *,
    all_values: bool,
    data: Tokens | None = None,
) -> LeftOut:
    """The probabilities of tokens given a draw and all other tokens.

    Args: name: of the observed block, see `observed_block`; columns: of M tokens, their values
    among them: (M,) int each; all_values: whether to return the probabilities of all values; data:
    all tokens, where draws have the groups of tokens in place of counts.
    """
    block, values = network.blocks[name], columns[name]
    latent = [parent for parent in block.by if parent in network.indicators]
    zeros = np.zeros(values.size, int)
    index = tuple(slice(None) if p in latent else columns[p] for p in block.by)
    cells, totals = np.asarray(draw[f"{name}_cells"]), np.asarray(draw[f"{name}_totals"])
    value_counts = cells[(values, *index)].astype(float)  # (M, K_1, ..., K_L)
    totals = totals[None][(zeros, *index)].astype(float)
    pseudo_counts = value_concentrations(network, draw, name, cells.shape[0])
    pseudo_of_value = pseudo_counts[values].reshape(-1, *[1] * len(latent))
    sides = [
        _Side(network, draw, parent, (columns, data), axis, len(latent))
        for axis, parent in enumerate(latent)
    ]
    chance = _chances(sides, value_counts, totals, pseudo_of_value, pseudo_counts.sum())
    weights = _product([side.without(chance) for side in sides])
    remaining = totals - chance + pseudo_counts.sum()
    density = (value_counts - chance + pseudo_of_value) / remaining
    axes = tuple(range(1, 1 + len(latent)))
    log_probability = np.log(np.sum(weights * density, axis=axes))
    density = (value_counts + pseudo_of_value) / (totals + pseudo_counts.sum())
    log_replicate = np.log(np.sum(_product([side.whole() for side in sides]) * density, axis=axes))
    if not all_values:
        return LeftOut(log_probability, None, log_replicate)
    table = np.moveaxis(cells, 0, -1)[None][(zeros, *index)] + pseudo_counts
    at_value = np.arange(cells.shape[0]) == values.reshape(-1, *[1] * (len(latent) + 1))
    table = (table - chance[..., None] * at_value) / remaining[..., None]
    probabilities = np.sum(weights[..., None] * table, axis=axes)
    return LeftOut(log_probability, probabilities, log_replicate)


def _chances(
    sides: list[_Side],
    value_counts: np.ndarray,
    totals: np.ndarray,
    pseudo_of_value: np.ndarray,
    pseudo_total: float,
) -> np.ndarray:
    """The fixed point: probabilities of the groups that a token may be in, (M, K_1, ..., K_L).

    A draw counts the token, so it may be in a group only where all counts of it are positive. These
    are few, and half of the tokens of a text have one, so the rounds are over them alone.
    """
    is_possible = value_counts > 0
    for side in sides:
        is_possible = is_possible & (side.counts > 0)
    result = is_possible.astype(float)
    # a token that may be in one group is in it
    is_open = is_possible & (result.sum(axis=tuple(range(1, result.ndim)), keepdims=True) > 1)
    token, *groups = np.nonzero(is_open)
    num_tokens = len(value_counts)
    value = value_counts[is_open] + pseudo_of_value.ravel()[token]
    total = np.broadcast_to(totals, value_counts.shape)[is_open] + pseudo_total
    index = [token * counts.shape[axis] + groups[axis - 1] for axis, counts in _by_axis(sides)]
    counts = [
        side.counts.ravel()[at] + side.pseudo.ravel()[groups[axis - 1]]
        for at, side, (axis, _) in zip(index, sides, _by_axis(sides), strict=True)
    ]

    def normalised(weights: np.ndarray) -> np.ndarray:
        sums = np.bincount(token, weights, num_tokens)
        return weights / np.maximum(sums, 1e-300)[token]

    chance = normalised(np.ones(token.size))
    for _ in range(_NUM_ROUNDS):
        weights = (value - chance) / (total - chance)
        for at, count in zip(index, counts, strict=True):
            share = chance if len(sides) == 1 else np.bincount(at, chance)[at]
            weights *= np.maximum(count - share, 0)
        chance = normalised(weights)
    result[is_open] = chance
    return result


def _by_axis(sides: list[_Side]) -> list[tuple[int, np.ndarray]]:
    """The axis of each indicator's groups, and its counts."""
    return [(axis, side.counts) for axis, side in enumerate(sides, 1)]


class _Side:
    """The groups of one indicator for some tokens; arrays have an axis for every indicator."""

    def __init__(
        self,
        network: Network,
        draw: Draw,
        name: str,
        tokens: tuple[Mapping[str, np.ndarray], Tokens | None],
        axis: int,
        num_sides: int,
    ) -> None:
        block, (columns, data) = network.blocks[name], tokens
        shape = next(iter(columns.values())).size, num_groups(draw, name)
        if is_table(draw, name):
            counts = draw[f"{name}_counts"][tuple(columns[parent] for parent in block.by)]
        else:
            assert data is not None
            counts = counts_at(network, draw, name, data, columns)
        counts = np.broadcast_to(np.asarray(counts, float), shape)
        hyperparameters = hyperparameters_of(network, draw, name)
        pseudo = np.asarray(hyperparameters["concentration"], float)
        if "weights" in hyperparameters:
            shares = np.array(hyperparameters["weights"], float)
            is_free = np.asarray(counts_by_part(draw, name)).sum(axis=0) == 0
            if is_free.any():
                shares[np.argmax(is_free)] += float(hyperparameters["rest"])
            pseudo = pseudo * shares
        pseudo = np.broadcast_to(pseudo, counts.shape[-1:])
        num_tokens, axes = shape[0], [1] * num_sides
        axes[axis] = shape[1]
        self.counts = counts.reshape(num_tokens, *axes)
        self.pseudo = pseudo.reshape(1, *axes)
        self.others = tuple(1 + other for other in range(num_sides) if other != axis)
        total = counts.sum(axis=-1) - 1 + pseudo.sum()
        self.total = total.reshape(num_tokens, *[1] * num_sides)

    def without(self, chance: np.ndarray) -> np.ndarray:
        """Probabilities of the groups for a token whose groups have the probabilities `chance`."""
        share = chance.sum(axis=self.others, keepdims=True) if self.others else chance
        return np.maximum(self.counts - share + self.pseudo, 0) / self.total

    def whole(self) -> np.ndarray:
        """Probabilities of the groups for one more token."""
        return (self.counts + self.pseudo) / (self.total + 1)


def value_concentrations(network: Network, draw: Draw, name: str, num_values: int) -> np.ndarray:
    """The concentrations of the values of an observed block of categories in a draw: (V,) float."""
    concentration = hyperparameters_of(network, draw, name)["concentration"]
    return np.broadcast_to(np.asarray(concentration, float), (num_values,))


def _product(parts: list[np.ndarray]) -> np.ndarray:
    result = parts[0]
    for part in parts[1:]:
        result = result * part
    return result
