"""Biclusters: features of rows and of columns whose weight is beyond its uncertainty."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, shortened
from jaxmf.arguments import check_number, check_seed
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasBiclusters, lacks
from jaxmf.posterior.certain_features import MIN_OVERLAP
from jaxmf.posterior.draws import Draws
from jaxmf.programs import jit_method

if TYPE_CHECKING:
    import pandas as pd

_MOST_SHOWN = 4  # ids of a bicluster's rows, or columns, in what is printed


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Biclusters(Answer):
    """The biclusters of one draw, the surest first: the largest weight in standard deviations.

    Args:
        row_features: (B,) int, position of the row feature in the order of `Posterior.features`.
        column_features: (B,) int, position of the column feature, the most frequent first.
        weights: (B,) float, mean of the weight given the features of the draw; a Gaussian cell of
            the bicluster is so much larger, in the unit of the data, or in that of its column where
            the model scales columns.
        weight_sd: (B,) float, its standard deviation.
        found: (B,) float, in how many of all draws both of its features are: half or more of the
            rows (columns) that a feature of the draw and this one have are in both.
        rows: (B, I) bool, whether the row has the row feature.
        columns: (B, J) bool, whether the column has the column feature.
        row_probabilities: (B, I) float, how probable that is over all draws; see
            `Posterior.biclusters`.
        column_probabilities: (B, J) float, likewise.
        row_names: I ids, or positions.
        column_names: J ids, or positions.
        chain: which chain the draw is of.
        draw: which draw of it.
    """

    row_features: np.ndarray
    column_features: np.ndarray
    weights: np.ndarray
    weight_sd: np.ndarray
    found: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    row_probabilities: np.ndarray
    column_probabilities: np.ndarray
    row_names: np.ndarray
    column_names: np.ndarray
    chain: int
    draw: int

    _axes: ClassVar = {
        "row_features column_features weights weight_sd found": "bicluster",
        "rows row_probabilities": "bicluster row",
        "columns column_probabilities": "bicluster column",
    }
    _labels: ClassVar = {"row": "row_names", "column": "column_names"}

    def __len__(self) -> int:
        return self.weights.size

    def ids(self, bicluster: int, side: str = "row") -> list[object]:
        """The ids of the rows, or columns, of a bicluster, the most probable first.

        Args:
            bicluster: its position, 0 for the surest.
            side: "row" or "column".
        Raises:
            ValueError: another side.
        """
        if side not in ("row", "column"):
            raise ValueError(f"side must be 'row' or 'column', got {side!r}")
        is_row = side == "row"
        bits = (self.rows if is_row else self.columns)[bicluster]
        probabilities = (self.row_probabilities if is_row else self.column_probabilities)[bicluster]
        members = np.flatnonzero(bits)
        order = members[np.argsort(-probabilities[members], kind="stable")]
        return (self.row_names if is_row else self.column_names)[order].tolist()

    def table(self) -> dict[str, np.ndarray | list[list[object]]]:
        """Columns of a table with one line a bicluster; ids are lists."""
        indices = range(len(self))
        return {
            "bicluster": np.arange(len(self)),
            "row feature": self.row_features,
            "column feature": self.column_features,
            "weight": self.weights,
            "weight sd": self.weight_sd,
            "found": self.found,
            "num rows": self.rows.sum(axis=1),
            "num columns": self.columns.sum(axis=1),
            "rows": [self.ids(index, "row") for index in indices],
            "columns": [self.ids(index, "column") for index in indices],
        }

    def members(self) -> pd.DataFrame:
        """One line for each row and each column of a bicluster, with its probability."""
        columns: dict[str, list[object]] = {
            name: [] for name in ("bicluster", "side", "id", "probability")
        }
        for side, bits, probabilities, names in (
            ("row", self.rows, self.row_probabilities, self.row_names),
            ("column", self.columns, self.column_probabilities, self.column_names),
        ):
            bicluster, member = np.nonzero(bits)
            columns["bicluster"] += bicluster.tolist()
            columns["side"] += [side] * bicluster.size
            columns["id"] += names[member].tolist()
            columns["probability"] += probabilities[bicluster, member].tolist()
        frame = data_frame("members", columns)
        return frame.sort_values("bicluster", kind="stable", ignore_index=True)

    def lines(self) -> Lines:
        """A heading, and a line for each: weight, share of draws, counts, most probable members."""
        heading = ("bicluster", "weight", "found", "rows", "columns", "rows are", "columns are")
        table: Lines = [heading]
        for index in range(len(self)):
            sides = [self.ids(index, side) for side in ("row", "column")]
            table.append(
                (
                    str(index),
                    f"{self.weights[index]:.3g} ± {self.weight_sd[index]:.2g}",
                    f"{self.found[index]:.0%}",
                    *(str(len(ids)) for ids in sides),
                    *(shortened(ids, _MOST_SHOWN) for ids in sides),
                )
            )
        return table

    def footer(self) -> str:
        if not len(self):
            return "no bicluster whose weight is beyond its uncertainty"
        return "found: in how many of all draws; weights are given the features of one draw"


def biclusters(posterior: Draws, *, num_sd: float = 2.0, seed: int = 0) -> Biclusters:
    """Rows and columns that belong together: blocks whose weight is beyond its uncertainty.

    A bicluster is a row feature and a column feature of the reference draw (highest log joint)
    whose weight is more than `num_sd` standard deviations from zero. Biases are left out.
    Labels differ between draws: of another draw's features the one whose rows overlap most with
    those of a feature is taken to be the same, if they share half of the rows that either has. The
    probability that a row belongs to a feature is the share of draws in which it has that feature;
    `found` says in how many draws both features, of rows and of columns, exist.

    Args:
        num_sd: how many standard deviations, given the features, a weight is away from zero; 0
            or more.
        seed: of the draws that these are estimated from where cells are not Gaussian.
    Returns:
        The surest bicluster first: its rows and columns with their probabilities, mean and sd
        of its weight, and in how many draws it is found. It prints itself; `.to_pandas()` is a
        table with one line a bicluster, `.members()` one with a line for each of its rows and
        columns.
    Raises:
        ValueError: the model has no weights between features of rows and of columns.
    """
    check_number("num_sd", num_sd, least=0)
    check_seed("seed", seed)
    if not isinstance(posterior.model, HasBiclusters):
        raise lacks(posterior.model, HasBiclusters, "biclusters")
    reference, data = posterior.reference_draw(), posterior.data
    found = _weight_moments(posterior.model, jax.random.key(seed), reference, data)
    weights, sd = (np.asarray(each) for each in found)
    row_slots, column_slots = (np.asarray(by_frequency(reference[name])) for name in ("z", "v"))
    num_row_biases, num_column_biases = posterior.model.num_bias_features()
    row_matches = _matches(posterior, "z", row_slots, num_row_biases)
    column_matches = _matches(posterior, "v", column_slots, num_column_biases)
    means, sds = weights[np.ix_(row_slots, column_slots)], sd[np.ix_(row_slots, column_slots)]
    is_feature = (row_slots >= num_row_biases)[:, None] & (column_slots >= num_column_biases)
    # of a diagonal W there is nothing beside the diagonal, and no uncertainty either
    kept = np.nonzero(is_feature & (np.abs(means) > num_sd * sds) & (sds > 0))
    order = np.argsort(-np.abs(means[kept]) / sds[kept], kind="stable")
    rows, columns = kept[0][order], kept[1][order]
    chain, draw = posterior.reference()
    return Biclusters(
        row_features=rows,
        column_features=columns,
        weights=means[rows, columns],
        weight_sd=sds[rows, columns],
        found=np.einsum(
            "s,sb,sb->b",
            row_matches.weights,
            row_matches.is_found[:, rows],
            column_matches.is_found[:, columns],
        ),
        rows=reference["z"].T[row_slots[rows]],
        columns=reference["v"].T[column_slots[columns]],
        row_probabilities=row_matches.probabilities[rows],
        column_probabilities=column_matches.probabilities[columns],
        row_names=ids_or_positions(data.row_names, data.num_rows),
        column_names=ids_or_positions(data.column_names, data.num_columns),
        chain=chain,
        draw=draw,
    )


def by_frequency(bits: np.ndarray) -> np.ndarray:
    """Slots in use, the most frequent first, as `Posterior.features` has them."""
    counts = bits.sum(axis=0)
    used = np.flatnonzero(counts)
    return used[np.argsort(-counts[used], kind="stable")]


class _Matches(NamedTuple):
    """Agreement of all draws with K features of one of them.

    (K, N) how probable it is that a row, or column, has a feature, (S, K) bool whether a draw has
    one like it, and (S,) weights of the draws.
    """

    probabilities: np.ndarray
    is_found: np.ndarray
    weights: np.ndarray


def _matches(posterior: Draws, name: str, slots: np.ndarray, num_biases: int) -> _Matches:
    """For each of some features of the reference draw the one of each draw that is most like it.

    Features are alike by the share of rows that both have among those that one of them has. A draw
    in which this is below `MIN_OVERLAP` for all features counts as one without the feature. Biases,
    which every row has, are like none.
    """
    draws, weights = posterior.flat_draws()
    reference = posterior.reference_draw()[name].T[slots].astype(float)
    probabilities = np.zeros(reference.shape)
    is_found = np.zeros((weights.size, slots.size), bool)
    for draw, (bits, weight) in enumerate(zip(draws[name], weights, strict=True)):
        others = bits[:, num_biases:].astype(float)
        both = reference @ others
        either = reference.sum(axis=1)[:, None] + others.sum(axis=0) - both
        if both.size == 0:
            continue
        overlap = both / np.maximum(either, 1)
        is_found[draw] = overlap.max(axis=1) >= MIN_OVERLAP
        best = np.argmax(overlap, axis=1)
        probabilities += weight * others.T[best] * is_found[draw][:, None]
    return _Matches(probabilities, is_found, weights)


_weight_moments = jit_method(HasBiclusters.weight_moments)
