"""Features that the draws of all chains agree on: clusters of features by the rows that have them.

Labels of features mean nothing across draws. So the features of each draw are matched one to one
with clusters of features: the assignment with the largest sum of overlaps (Kuhn 1955, the Hungarian
method), where a pair below `MIN_OVERLAP` is no match and the feature starts a cluster of its own.
The overlap of a feature and a cluster is that of their rows, sum of min(z, p) over sum of max(z, p)
with p how often features of the cluster have the row: the Jaccard index where p is 0 or 1. Where
every column has a level, a feature of the other rows with the opposite values is the same feature
beside another level: it is turned round if the rows without it overlap more. The
clusters of a first pass through the draws, which starts with the reference draw, are the start of a
second one, so that the order of the draws matters little.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, shortened
from jaxmf.arguments import check_number
from jaxmf.column_units import units_of
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasFeatures, lacks
from jaxmf.posterior import tables
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.quantities import feature_bits, may_turn
from jaxmf.posterior.records import largest_columns

if TYPE_CHECKING:
    import pandas as pd

MIN_OVERLAP = 0.5
"""Least overlap of the rows of a feature with those of the cluster that it belongs to."""

_MOST_CLUSTERS = 500
_IDS_SHOWN = 4


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CertainFeatures(Answer):
    """Clusters of features across draws and chains, the most probable first.

    Args:
        probabilities: (F,) float, of how many draws have the feature.
        by_chain: (C, F) float, the same for the draws of each chain.
        row_probabilities: (F, N) float, how probable it is that a row has the feature where a draw
            has it.
        mean: (F, D) float, what the feature looks like, averaged over these draws.
        sd: (F, D) float, its standard deviation, within and between draws.
        num_others: features of a draw, on average, that are in none of these clusters.
        num_single: how many of them have one row alone.
        num_draws: how many draws were compared.
        row_names: N ids, or positions.
        column_names: D ids, or positions.
        column_units: (D,) units of the columns, in which these are compared; 1 where all have one.
    """

    probabilities: np.ndarray
    by_chain: np.ndarray
    row_probabilities: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    num_others: float
    num_single: float
    num_draws: int
    row_names: np.ndarray
    column_names: np.ndarray
    column_units: np.ndarray

    _axes: ClassVar = {
        "probabilities": "feature",
        "by_chain": "chain feature",
        "row_probabilities": "feature row",
        "mean sd": "feature column",
        "column_units": "column",
    }
    _labels: ClassVar = {"row": "row_names", "column": "column_names"}

    def __len__(self) -> int:
        return self.probabilities.size

    def rows(self, feature: int) -> list[object]:
        """Ids of the rows that more probably have a feature than not, the most probable first."""
        probabilities = self.row_probabilities[feature]
        order = np.argsort(-probabilities, kind="stable")
        return self.row_names[order[probabilities[order] > 0.5]].tolist()

    def table(self) -> dict[str, np.ndarray | list[list[object]]]:
        """Columns of a table with one line a feature; ids are lists."""
        return {
            "feature": np.arange(len(self)),
            "probability": self.probabilities,
            "num chains": (self.by_chain > 0.5).sum(axis=0),
            "num rows": self.row_probabilities.sum(axis=1),
            "rows": [self.rows(feature) for feature in range(len(self))],
        }

    def members(self) -> pd.DataFrame:
        """How probably each row has each feature: a pandas DataFrame (rows, features)."""
        frame = data_frame("members", self.row_probabilities.T, index=self.row_names)
        return frame.rename_axis(index="row")

    def values(self) -> pd.DataFrame:
        """Mean and sd of the features: a pandas DataFrame with a line a column."""
        names = [f"{kind} {feature}" for feature in range(len(self)) for kind in ("mean", "sd")]
        values = np.stack([self.mean, self.sd], axis=1).reshape(len(names), -1)
        frame = data_frame("values", values.T, index=self.column_names, columns=names)
        return frame.rename_axis(index="column")

    def lines(self) -> Lines:
        heading = ("feature", "probability", "chains", "rows", "rows are", "largest in")
        lines: Lines = [heading]
        for feature, expected in enumerate(self.row_probabilities.sum(axis=1)):
            shown = shortened(self.rows(feature), _IDS_SHOWN)
            num_chains = int((self.by_chain[:, feature] > 0.5).sum())
            chains = f"{num_chains} of {len(self.by_chain)}"
            probability = f"{self.probabilities[feature]:.2f}"
            cells = (str(feature), probability, chains, f"{expected:.1f}", shown)
            lines.append(
                (*cells, largest_columns(self.mean[feature], self.column_names, self.column_units))
            )
        return lines

    def footer(self) -> str:
        return (
            f"{len(self)} features in {self.num_draws} draws of {len(self.by_chain)} chains; a "
            f"draw has {self.num_others:.1f} others, {self.num_single:.1f} of them of one row"
        )


class _Matched(NamedTuple):
    """Clusters (F, N), and for each draw (S, F) the feature slot, -1 for none, turned or not."""

    clusters: np.ndarray
    slots: np.ndarray
    is_turned: np.ndarray


def certain_features(posterior: Draws, min_probability: float = 0.5) -> CertainFeatures:
    """The features that draws of all chains agree on, with their rows and what they look like.

    Features of at most 100 draws, evenly spread over the chains, are matched by the rows that
    have them: a feature belongs to a cluster where their rows overlap by half or more (Jaccard
    index). So one answer speaks of all chains, where `features` is of one draw. Where the model
    has a level for every column (`bias`), a feature of the other rows with the opposite values
    counts as the same.

    Args:
        min_probability: the share of draws that must have a feature for it to be listed.
    Returns:
        Probabilities of features, over all draws and by chain; of every row to have each; mean
        and sd of what they look like; how many others a draw has, and how many of those are of
        one row alone. It prints itself; `to_pandas`, `members` and `values` are tables.
    Raises:
        ValueError: the model has no features, or min_probability is not between 0 and 1.
    """
    check_number("min_probability", min_probability, above=0)
    if min_probability > 1:
        raise ValueError(f"min_probability must be at most 1, got {min_probability}")
    if not isinstance(posterior.model, HasFeatures):
        raise lacks(posterior.model, HasFeatures, "certain_features")
    bits = feature_bits(posterior)
    chains, draws, weights = posterior.spread_draws()
    sets = [bits[chain, draw].T.astype(float) for chain, draw in zip(chains, draws, strict=True)]
    reference = bits[posterior.reference()].T.astype(float)
    turns = may_turn(posterior)
    first = _pass(sets, weights, reference[reference.any(axis=1)], grows=True, turns=turns)
    found = (first.slots >= 0).T @ weights
    kept = np.argsort(-found, kind="stable")[: max(int(np.sum(found >= min_probability / 2)), 1)]
    matched = _pass(sets, weights, first.clusters[kept], grows=False, turns=turns)
    is_found = matched.slots >= 0
    probabilities = is_found.T @ weights
    order = np.argsort(-probabilities, kind="stable")
    order = order[probabilities[order] >= min_probability]
    slots = matched.slots[:, order]
    others, single = _others(sets, weights, slots)
    num_biases = posterior.draws["z"].shape[-1] - bits.shape[-1]  # which stand first
    slots = np.where(slots >= 0, slots + num_biases, -1)
    signs = np.where(matched.is_turned[:, order], -1.0, 1.0)
    mean, sd = _moments(posterior, (chains, draws), weights, slots, signs)
    data = posterior.data
    return CertainFeatures(
        probabilities=probabilities[order],
        by_chain=_by_chain(is_found[:, order], chains, weights, posterior.num_chains),
        row_probabilities=matched.clusters[order],
        mean=mean,
        sd=sd,
        num_others=others,
        num_single=single,
        num_draws=chains.size,
        row_names=ids_or_positions(data.row_names, data.num_rows),
        column_names=tables.column_ids(data, mean.shape[1]),
        column_units=units_of(posterior.model, np.arange(mean.shape[1])),
    )


def _pass(
    sets: list[np.ndarray],
    weights: np.ndarray,
    clusters: np.ndarray,
    *,
    grows: bool,
    turns: bool,
) -> _Matched:
    """The features of all draws in clusters; new clusters for those that fit none where it grows.

    Args: sets: of each draw (K, N) float, which rows have which feature; weights (S,) float;
    clusters (F, N) float, at the start; grows: whether there may be more; turns: whether features
    may be turned round.
    """
    from scipy.optimize import linear_sum_assignment

    num_rows = sets[0].shape[1]
    known = np.zeros((_MOST_CLUSTERS, num_rows))
    num_clusters = min(len(clusters), _MOST_CLUSTERS)
    known[:num_clusters] = clusters[:num_clusters]
    slots = np.full((len(sets), _MOST_CLUSTERS), -1)
    is_turned = np.zeros(slots.shape, bool)
    for draw, features in enumerate(sets):
        used = np.flatnonzero(features.any(axis=1))
        overlap = _overlap(features[used], known[:num_clusters])
        turned = np.zeros(overlap.shape, bool)
        if turns:
            turned_overlap = _overlap(1 - features[used], known[:num_clusters])
            turned = turned_overlap > overlap
            overlap = np.maximum(overlap, turned_overlap)
        feature, cluster = linear_sum_assignment(overlap, maximize=True)
        fits = overlap[feature, cluster] >= MIN_OVERLAP
        slots[draw, cluster[fits]] = used[feature[fits]]
        is_turned[draw, cluster[fits]] = turned[feature[fits], cluster[fits]]
        if grows:
            rest = np.setdiff1d(np.arange(used.size), feature[fits])[
                : _MOST_CLUSTERS - num_clusters
            ]
            new = num_clusters + np.arange(rest.size)
            known[new], slots[draw, new] = features[used[rest]], used[rest]
            num_clusters += rest.size
    slots, is_turned = slots[:, :num_clusters], is_turned[:, :num_clusters]
    total, weight = np.zeros((num_clusters, num_rows)), np.zeros(num_clusters)
    for features, found, turned, share in zip(sets, slots, is_turned, weights, strict=True):
        here = np.flatnonzero(found >= 0)
        total[here] += share * np.abs(features[found[here]] - turned[here, None])
        weight[here] += share
    means = np.where(weight[:, None] > 0, total / np.maximum(weight, 1e-300)[:, None], 0)
    return _Matched(means, slots, is_turned)


def _overlap(features: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Of the rows of features (K, N) and of clusters (F, N): (K, F)."""
    both = features @ clusters.T
    either = features.sum(axis=1)[:, None] + clusters.sum(axis=1) - both
    return both / np.maximum(either, 1e-12)


def _moments(
    posterior: Draws,
    where: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    slots: np.ndarray,
    signs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd (F, D) of what clusters look like over the draws that have them.

    Args: slots and signs (S, F): which feature of a draw it is, and -1 where it is turned round.
    """
    total: np.ndarray | None = None
    squares, weight = np.zeros(0), np.zeros(slots.shape[1])
    for chain, draw, share, found, sign in zip(*where, weights, slots, signs, strict=True):
        arrays = posterior.draw_at(chain, draw)
        mean, sd = (
            np.asarray(each, float).reshape(arrays["z"].shape[1], -1)
            for each in tables.features_of(posterior.model, arrays, posterior.data)
        )
        if total is None:
            total = np.zeros((slots.shape[1], mean.shape[1]))
            squares = np.zeros_like(total)
        here = np.flatnonzero(found >= 0)
        total[here] += share * sign[here, None] * mean[found[here]]
        squares[here] += share * (mean[found[here]] ** 2 + sd[found[here]] ** 2)
        weight[here] += share
    assert total is not None
    mean = total / np.maximum(weight, 1e-300)[:, None]
    return mean, np.sqrt(np.maximum(squares / np.maximum(weight, 1e-300)[:, None] - mean**2, 0))


def _others(sets: list[np.ndarray], weights: np.ndarray, slots: np.ndarray) -> tuple[float, float]:
    """How many features of a draw are in no cluster, and how many of them have one row."""
    others = single = 0.0
    for features, found, share in zip(sets, slots, weights, strict=True):
        sizes = np.delete(features.sum(axis=1), found[found >= 0])
        others += share * np.sum(sizes > 0)
        single += share * np.sum(sizes == 1)
    return float(others), float(single)


def _by_chain(
    is_found: np.ndarray, chains: np.ndarray, weights: np.ndarray, num_chains: int
) -> np.ndarray:
    """(C, F) share of the draws of each chain that have a feature; 0 where none was compared."""
    shares = np.zeros((num_chains, is_found.shape[1]))
    for chain in np.unique(chains):
        here = chains == chain
        shares[chain] = is_found[here].T @ weights[here] / max(weights[here].sum(), 1e-300)
    return shares
