"""Groups of rows of a mixture: how large they are, where they lie, who is in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from jaxmf.answers import Answer, Lines, long_table
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasGroups, HasRowGroups, HasSideGroups, lacks
from jaxmf.posterior.draws import Draws
from jaxmf.programs import jit_method
from jaxmf.types import Names

_MOST_COLUMNS = 6  # in what is printed
_MOST_VALUES = 3  # of a column of categories
_NO_ROWS = (
    'which group each row is in is not in the draws: sample again with keep="assignments". '
    "post.transform(rows) has the probability of each group"
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RowGroups(Answer):
    """The groups of one draw with rows, the largest first.

    Standard deviations are those given the partition of that draw. How sure the partition is,
    `Posterior.cooccurrence` and `Posterior.num_groups` say.

    Args:
        counts: (G,) int, rows of each group.
        weights: (G,) float, expected probability that a further row is of the group; what is
            missing to one is that of a new group.
        weight_sd: (G,) float, its standard deviation; NaN under a flexible prior.
        mean: (G, D) float, expected mean of each column.
        mean_sd: (G, D) float, its standard deviation.
        sd: (G, D) float, of rows around the mean of their group.
        columns: D ids, or positions.
        slots: (G,) int, labels of the groups in the draw.
        chain: which chain the draw is of.
        draw: which draw of it.
        group_of_rows: (N,) int, 0 for the largest group; None without `keep="assignments"`.
        row_names: N ids, or None.
        levels: by the position of a column of more categories than 0 and 1: these, (V,).
        level_probabilities: likewise their expected probabilities in each group, (G, V) float; in
            the table each value is a line, ``column = value``, whose mean is its probability.
    """

    counts: np.ndarray
    weights: np.ndarray
    weight_sd: np.ndarray
    mean: np.ndarray
    mean_sd: np.ndarray
    sd: np.ndarray
    columns: np.ndarray
    slots: np.ndarray
    chain: int
    draw: int
    group_of_rows: np.ndarray | None = None
    row_names: Names | None = None
    levels: Mapping[int, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    level_probabilities: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict)

    _axes: ClassVar = {
        "counts weights weight_sd": "group",
        "mean mean_sd sd": "group column",
        "group_of_rows": "row",
    }

    def coordinates(self) -> dict[str, object]:
        if self.group_of_rows is None:
            return {"column": self.columns}
        rows = ids_or_positions(self.row_names, self.group_of_rows.size)
        return {"column": self.columns, "row": rows}

    @property
    def labels(self) -> np.ndarray:
        """(N,) int: the group of every row of the data, 0 for the largest.

        Raises ValueError: the run did not keep assignments.
        """
        if self.group_of_rows is None:
            raise ValueError(f"labels: {_NO_ROWS}")
        return self.group_of_rows

    def members(self) -> list[list[object]]:
        """The rows of every group: ids, or positions.

        Raises ValueError: the run did not keep assignments.
        """
        if self.group_of_rows is None:
            raise ValueError(f"members: {_NO_ROWS}")
        names = ids_or_positions(self.row_names, self.group_of_rows.size)
        names = np.asarray(names, dtype=object)
        return [names[self.group_of_rows == group].tolist() for group in range(self.counts.size)]

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each group and column of the data."""
        by_group = {"group": np.arange(len(self.mean)), "rows": self.counts}
        by_group |= {"weight": self.weights, "weight sd": self.weight_sd}
        columns, found = [], []
        for position, column in enumerate(self.columns):
            pieces = (self.mean[:, position], self.mean_sd[:, position], self.sd[:, position])
            if position not in self.levels:
                columns.append(column)
                found.append(pieces)
                continue
            _, mean_sd, sd = pieces
            # what the mean has of the variance of a value is the same of every function of it
            share = mean_sd**2 / np.maximum(mean_sd**2 + sd**2, np.finfo(float).tiny)
            probabilities = self.level_probabilities[position].T.astype(float)
            for value, p in zip(self.levels[position], probabilities, strict=True):
                variance = p * (1 - p)
                columns.append(f"{column} = {value:g}")
                found.append((p, np.sqrt(variance * share), np.sqrt(variance * (1 - share))))
        labels = np.array(columns, object) if self.levels else self.columns
        table = dict(zip(("mean", "mean sd", "sd"), np.stack(found, axis=2), strict=True))
        return long_table(by_group, {"column": labels}, table)

    def _shown(self, group: int, position: int) -> str:
        """The mean of a column in a group with its error, or its most probable values."""
        if position not in self.levels:
            return _with_error(self.mean[group, position], self.mean_sd[group, position])
        probabilities = self.level_probabilities[position][group]
        most = np.argsort(-probabilities, kind="stable")[:_MOST_VALUES]
        return ", ".join(f"{self.levels[position][v]:g}: {probabilities[v]:.0%}" for v in most)

    def lines(self) -> Lines:
        """A line for each group: rows, weight; of a few columns mean ± sd, or likely values."""
        shown = [str(column) for column in self.columns[:_MOST_COLUMNS]]
        more = ["..."] if self.columns.size > _MOST_COLUMNS else []
        table = [("group", "rows", "weight", *shown, *more)]
        for group, count in enumerate(self.counts):
            weight = _with_error(self.weights[group], self.weight_sd[group])
            means = [self._shown(group, position) for position in range(len(shown))]
            table.append((str(group), str(int(count)), weight, *means, *more))
        return table


def _with_error(value: float, error: float) -> str:
    return f"{value:.3g} ± {error:.2g}" if np.isfinite(error) else f"{value:.3g}"


def groups(posterior: Draws) -> RowGroups:
    """The groups of rows of a mixture in the reference draw (highest log joint).

    Labels mean nothing across draws, so groups are not averaged over draws. `num_groups` has
    the distribution of their number, `cooccurrence` the probability that two rows are in one.

    Returns:
        The largest group first: its rows, its probability, the mean of every column with their
        standard deviations. It prints itself; `.to_pandas()` is the table. After
        ``sample(keep="assignments")`` also `.labels` (N,) and `.members()`.
    Raises:
        ValueError: the model has no groups of rows, or the draws are scalars.
    Example:
        >>> import jaxmf as mf
        >>> x = [[0.0], [0.1], [0.2], [9.0], [9.1]]
        >>> post = mf.sample(mf.MixtureOfGaussians(2), x, num_samples=20, progress=False)
        >>> post.groups().counts.tolist()
        [3, 2]
    """
    if not isinstance(posterior.model, HasRowGroups):
        if isinstance(posterior.model, HasSideGroups):
            raise ValueError(
                "groups: those of this model are of rows and of columns of ratings; ask "
                "preferences(), and num_groups() where their number is learned"
            )
        if isinstance(posterior.model, HasGroups):
            raise ValueError(
                f"groups: are of rows, and those of {type(posterior.model).__name__} of tokens: "
                "top_entries(...) has what is in them, group_probabilities(...) who is in which"
            )
        raise lacks(posterior.model, HasRowGroups, "groups")
    draw, data = posterior.reference_draw(), posterior.data
    if "group_counts" not in draw:
        raise ValueError(
            'groups: the draws have no statistics of groups: sample again without keep="scalars"'
        )
    chain, index = posterior.reference()
    model: Any = posterior.model
    moments = _moments(model, draw, data)
    counts = np.asarray(moments.counts)
    order = _largest_first(counts)
    labels = draw.get("group_of_tokens")
    if labels is not None:
        ranks = np.zeros(counts.size, int)
        ranks[order] = np.arange(order.size)
        labels = ranks[labels]
    names = data.column_names
    return RowGroups(
        **jax.tree.map(lambda leaf: np.asarray(leaf)[order], moments._asdict()),
        levels={column: model.column_values(column) for column in moments.level_probabilities},
        columns=ids_or_positions(names, moments.mean.shape[1]),
        slots=order,
        chain=chain,
        draw=index,
        group_of_rows=labels,
        row_names=data.row_names,
    )


def _largest_first(counts: np.ndarray) -> np.ndarray:
    """Labels of the groups with rows, by their rows (K,)."""
    order = np.argsort(-counts, kind="stable")
    return order[counts[order] > 0]


def in_order(posterior: Draws, shares: np.ndarray) -> np.ndarray:
    """Probabilities of groups in the order of `groups`, and of all others together, if any.

    Args: shares (M, K) float, by the labels of the reference draw.
    Returns (M, G) or (M, G + 1) float.
    """
    slots = _largest_first(np.asarray(posterior.reference_draw()["group_counts"]).reshape(-1))
    others = np.delete(shares, slots, axis=1).sum(axis=1, keepdims=True)
    return np.concatenate([shares[:, slots], others][: 1 + (shares.shape[1] > slots.size)], axis=1)


def probability_of_one_group(posterior: Draws, rows: np.ndarray) -> np.ndarray:
    """How probable it is that two rows are in one group: (R, R) float.

    Args: rows (R,) positions.
    Raises ValueError: the run did not keep assignments.
    """
    if "group_of_tokens" not in posterior.draws:
        posterior.require_draws()
        raise ValueError(f"cooccurrence: {_NO_ROWS}")
    draws, weights = posterior.flat_draws()
    total = np.zeros((rows.size, rows.size))
    for labels, weight in zip(draws["group_of_tokens"][:, rows], weights, strict=True):
        total += weight * (labels[:, None] == labels)
    return total


_moments = jit_method(HasRowGroups.group_moments)
