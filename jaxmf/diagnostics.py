"""How well a run went, from quantities that do not depend on the labels of features.

Features have no names: feature 3 of one draw may be feature 7 of the next, and a mean over draws
of either means nothing. So everything here is a function of scalars such as the log joint, of the
number of features, of entries of ZZ' (how many features two rows share), or of predictions.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from jaxmf.answers import Answer, Lines, as_text
from jaxmf.column_units import units_of
from jaxmf.data import Dense, Entries
from jaxmf.data.convert import complete_matrix, matched_cells
from jaxmf.data.names import Positions
from jaxmf.types import PyTree

if TYPE_CHECKING:
    import pandas as pd

CHAIN_COLUMNS = ("mean", "sd", "5 %", "95 %", "R-hat", "ESS")
WEIGHTED_COLUMNS = ("mean", "sd", "5 %", "95 %")


class Summary(Answer):
    """A small table of values with a name to each row; prints well, also in a notebook.

    Args:
        names: one for each row.
        columns: one for each column.
        values: (rows, columns) float.
        caption: a line below the table.
    Attributes:
        notes: sentences below that, such as why the run should not be trusted.
    Example:
        >>> table = Summary(["alpha"], ["mean", "sd"], np.array([[1.25, 0.5]]))
        >>> float(table["alpha", "mean"])
        1.25
    """

    _axes: ClassVar = {"values": "quantity statistic"}
    _labels: ClassVar = {"quantity": "names", "statistic": "columns"}

    def __init__(
        self, names: Sequence[str], columns: Sequence[str], values: np.ndarray, caption: str = ""
    ) -> None:
        self.names = list(names)
        self.columns = list(columns)
        self.values = np.asarray(values, dtype=float).reshape(len(self.names), len(self.columns))
        self.caption = caption
        self.notes: tuple[str, ...] = ()

    def __getitem__(self, index: str | tuple[str, str]) -> PyTree:
        """`table["alpha"]` is a dict of the row, `table["alpha", "mean"]` one number."""
        name, column = index if isinstance(index, tuple) else (index, None)
        if name not in self.names:
            raise KeyError(f"{name!r} is no row of this table; there are: {', '.join(self.names)}")
        row = self.values[self.names.index(name)]
        if column is None:
            return dict(zip(self.columns, row.tolist(), strict=True))
        if column not in self.columns:
            raise KeyError(f"{column!r} is no column; there are: {', '.join(self.columns)}")
        return row[self.columns.index(column)]

    def cells(self) -> list[list[str]]:
        """The values as they are shown, row by row."""
        return [
            [_show(value, column) for value, column in zip(row, self.columns, strict=True)]
            for row in self.values
        ]

    def table(self) -> dict[str, np.ndarray]:
        """The columns by name, without the names of the rows."""
        return dict(zip(self.columns, self.values.T, strict=True))

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas DataFrame, the names of the rows as its index."""
        return super().to_pandas().set_axis(self.names)

    def __repr__(self) -> str:
        body = zip(self.names, self.cells(), strict=True)
        shown = [as_text([("", *self.columns), *((name, *cells) for name, cells in body)])]
        shown += [self.caption] if self.caption else []
        for note in self.notes:
            shown.append(textwrap.fill(f"Warning: {note}.", 88, subsequent_indent="  "))
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>"
            for name, row in zip(self.names, self.cells(), strict=True)
        )
        caption = f"<p>{html.escape(self.caption)}</p>" if self.caption else ""
        for note in self.notes:
            caption += f'<p class="jaxmf-warning"><b>Warning:</b> {html.escape(note)}.</p>'
        table = f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody>"
        return f'<table class="jaxmf-summary">{table}</table>{caption}'


def _show(value: float, column: str) -> str:
    if np.isnan(value):
        return "–"
    if column == "ESS":
        return f"{value:.0f}"
    if column == "R-hat":
        return f"{value:.3f}" if value < 10 else "> 10"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e9):
        return f"{value:.2e}"
    return f"{value:.{max(0, min(4, 3 - int(np.floor(np.log10(max(abs(value), 1e-12))))))}f}"


def summarise_chains(quantities: Mapping[str, ArrayLike]) -> Summary:
    """Mean, sd, 5 %, 95 %, R-hat and effective sample size of scalar quantities.

    R-hat is the rank-normalised one of Vehtari et al. (2021), the larger of that of the values and
    that of their distances from the median, which finds chains that differ in spread alone; ESS is
    their bulk effective sample size. Both look at the halves of chains, and are missing where a
    quantity does not vary, or where there are fewer than four draws a chain.

    Args:
        quantities: name -> (chains, draws).
    Returns:
        A table with one row a quantity.
    """
    from numpyro.diagnostics import effective_sample_size, gelman_rubin

    rows = []
    for values in quantities.values():
        x = np.asarray(values, dtype=float)
        values = [x.mean(), x.std(), *np.quantile(x, (0.05, 0.95))]
        rhat = size = np.nan
        if x.shape[1] >= 4 and bool(np.isfinite(x).all()) and np.ptp(x) > 0:
            half = x.shape[1] // 2
            halves = np.concatenate([x[:, :half], x[:, -half:]])
            bulk, spread = _normal_scores(halves), _normal_scores(abs(halves - np.median(halves)))
            with np.errstate(all="ignore"):
                rhat = float(np.fmax(gelman_rubin(bulk), gelman_rubin(spread)))
                size = float(effective_sample_size(bulk))
        rows.append([*values, rhat, size])
    shape = np.shape(next(iter(quantities.values()))) if quantities else (0, 0)
    caption = f"{_count(shape[0], 'chain')} of {_count(shape[1], 'draw')}"
    return Summary(list(quantities), CHAIN_COLUMNS, np.array(rows), caption)


def _normal_scores(x: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks of all values, equal ones sharing their mean rank."""
    from scipy.special import ndtri

    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ndtri((ranks - 3 / 8) / (x.size + 1 / 4))[which.reshape(x.shape)]


def summarise_weighted(
    quantities: Mapping[str, ArrayLike], log_weights: ArrayLike, *, caption: str = ""
) -> Summary:
    """Weighted mean, sd, 5 % and 95 % of scalar quantities of particles.

    Args:
        quantities: name -> array of the shape of `log_weights`.
        log_weights: unnormalised.
        caption: a line below the table.
    Returns:
        A table with one row a quantity.
    """
    weights = normalise(log_weights).ravel()
    rows = []
    for values in quantities.values():
        x = np.asarray(values, dtype=float).ravel()
        mean = weights @ x
        sd = np.sqrt(weights @ (x - mean) ** 2)
        rows.append([mean, sd, *weighted_quantile(x, weights, (0.05, 0.95))])
    return Summary(list(quantities), WEIGHTED_COLUMNS, np.array(rows), caption)


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def normalise(log_weights: ArrayLike) -> np.ndarray:
    """Weights that sum to one over all axes, from unnormalised log weights.

    Example:
        >>> normalise([0.0, 0.0]).tolist()
        [0.5, 0.5]
    """
    log_weights = np.asarray(log_weights, dtype=float)
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def weights_effective_size(log_weights: ArrayLike) -> float:
    """Effective number of weighted particles, (Σ w)² / Σ w².

    Example:
        >>> weights_effective_size([0.0, 0.0, -1e9])
        2.0
    """
    weights = normalise(log_weights)
    return float(1 / np.sum(weights**2))


def weighted_quantile(values: ArrayLike, weights: ArrayLike, levels: ArrayLike) -> np.ndarray:
    """Quantiles of a weighted sample: the smallest value with that much weight at or below it.

    Args:
        values: (S,).
        weights: (S,), summing to one.
        levels: (Q,) between 0 and 1.
    Returns:
        (Q,) values.
    """
    values, weights = np.asarray(values), np.asarray(weights)
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    indices = np.searchsorted(cumulative, np.asarray(levels) - 1e-12)
    return values[order][np.minimum(indices, values.size - 1)]


def choose_draws(weights: ArrayLike, num_draws: int, seed: int = 0) -> np.ndarray:
    """How often each weighted draw is taken when `num_draws` equally weighted ones are wanted.

    Systematic resampling: draw s with weight w is taken floor or ceiling of num_draws · w times.

    Args:
        weights: (S,), summing to one.
        num_draws: how many to take in all.
        seed: of the one uniform number needed.
    Returns:
        (S,) int64 counts summing to num_draws.
    """
    weights = np.asarray(weights, dtype=float)
    points = (np.arange(num_draws) + np.random.default_rng(seed).random()) / num_draws
    indices = np.searchsorted(np.cumsum(weights) / np.sum(weights), points, side="right")
    return np.bincount(np.minimum(indices, weights.size - 1), minlength=weights.size)


def fewer_draws(weights: ArrayLike, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `num_draws` weighted draws instead of all.

    If more draws have weight, `choose_draws` takes some, and each is weighted by how often.

    Args:
        weights: (S,), summing to one.
        num_draws: how many at most.
    Returns:
        (M,) positions, ascending, and (M,) weights that sum to one.
    """
    weights = np.asarray(weights, dtype=float)
    if np.count_nonzero(weights) > num_draws:
        weights = choose_draws(weights, num_draws).astype(float)
    kept = np.flatnonzero(weights)
    return kept, weights[kept] / weights[kept].sum()


def evenly_spread(size: int, most: int) -> np.ndarray:
    """At most `most` positions among `size` draws or rows, evenly spaced and ascending."""
    return np.unique(np.linspace(0, size - 1, min(most, size)).round().astype(int))


def shared_features(z: ArrayLike, weights: ArrayLike, rows: ArrayLike | None = None) -> np.ndarray:
    """E[ZZ'] over weighted draws: the expected number of features two rows share.

    Args:
        z: (S, N, K) bool.
        weights: (S,), summing to one.
        rows: (R,) int, which rows; all by default.
    Returns:
        (R, R) float.
    """
    z, weights = np.asarray(z), np.asarray(weights, dtype=float)
    rows = np.arange(z.shape[1]) if rows is None else np.asarray(rows)
    total = np.zeros((rows.size, rows.size))
    kept = np.flatnonzero(weights)
    # Draws laid side by side make one matrix product of a bounded size.
    block = max(1, int(2**24 // max(1, rows.size * z.shape[2])))
    for start in range(0, kept.size, block):
        some = kept[start : start + block]
        bits = z[some][:, rows].astype(np.float32)
        scaled = bits * np.sqrt(weights[some]).astype(np.float32)[:, None, None]
        wide = np.moveaxis(scaled, 0, 1).reshape(rows.size, -1)
        total += wide @ wide.T
    return total


def probability_of_sharing(z: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """P(two rows share a feature or more) over weighted draws: (R, R) float.

    Args:
        z: (S, N, K) bool.
        weights: (S,), summing to one.
        rows: (R,) int, which rows.
    """
    total = np.zeros((rows.size, rows.size))
    for index in np.flatnonzero(weights):
        bits = z[index][rows].astype(np.float32)
        total += weights[index] * (bits @ bits.T > 0)
    return total


class _HeldOutScore(NamedTuple):
    log_likelihood: np.ndarray
    mean: float
    standard_error: float
    num_dropped: int = 0


class HeldOutScore(Answer, _HeldOutScore):
    """Scores of predictions for cells whose values are known.

    Args:
        log_likelihood: (M,) log posterior predictive density of each cell.
        mean: their mean.
        standard_error: of that mean, over cells.
        num_dropped: tokens with words that the data lacks, which were left out.
    """

    _axes: ClassVar = {"log_likelihood": "cell"}

    def table(self) -> dict[str, np.ndarray]:
        """One line for each cell, in the order of the cells that were asked for."""
        each = self.log_likelihood
        return {"cell": np.arange(each.size), "log_likelihood": each}

    def lines(self) -> Lines:
        shown = f"{self.log_likelihood.size:,}", f"{self.mean:.4g}", f"{self.standard_error:.2g}"
        return [("cells", "mean log likelihood", "standard error"), shown]

    def footer(self) -> str:
        dropped = f"{self.num_dropped:,} tokens with unknown words were left out"
        return dropped if self.num_dropped else ""


def held_out_score(log_likelihood: ArrayLike) -> HeldOutScore:
    """Gather the log predictive densities of M cells into one score."""
    each = np.asarray(log_likelihood, dtype=float)
    error = each.std(ddof=1) / np.sqrt(each.size) if each.size > 1 else np.nan
    return HeldOutScore(log_likelihood=each, mean=float(each.mean()), standard_error=float(error))


def root_mean_square(difference: ArrayLike) -> float:
    """Square root of the mean square, as errors of predictions are reported.

    Example:
        >>> root_mean_square([3.0, 4.0, 0.0, 0.0])
        2.5
    """
    return float(np.sqrt(np.mean(np.square(np.asarray(difference, dtype=float)))))


class HeldOutError(NamedTuple):
    """How well the missing cells were predicted, where their values are known.

    Args:
        num_cells: how many were scored.
        rmse: root mean square error of the posterior mean; in the units of the columns, where
            columns have different units. Without cells of categories; NaN if there are no others.
        column_mean_rmse: that of the mean of each column's observed cells, the baseline.
        coverage: share of cells inside their 90 % interval, categories apart.
        log_likelihood: mean log posterior predictive density of a cell.
        unit: of the errors, if it is not that of the data: " in units of the columns".
        num_categories: how many of the cells are of columns of categories.
        accuracy: share of these whose most probable category is the true one.
        common_accuracy: that of the most common category of each column's observed cells.
    """

    num_cells: int
    rmse: float
    column_mean_rmse: float
    coverage: float
    log_likelihood: float
    unit: str = ""
    num_categories: int = 0
    accuracy: float = np.nan
    common_accuracy: float = np.nan

    @property
    def num_real(self) -> int:
        """How many of the cells are not of columns of categories."""
        return self.num_cells - self.num_categories

    @property
    def category_words(self) -> str:
        """A clause on how well categories were predicted; empty if there are none."""
        if not self.num_categories:
            return ""
        return (
            f"{self.accuracy:.0%} of {self.num_categories:,} categories right, "
            f"{self.common_accuracy:.0%} by the most common one of the column"
        )

    def __repr__(self) -> str:
        if not self.num_real:
            return f"held-out cells: {self.category_words}"
        return (
            f"held-out error (root mean square over {self.num_real:,} cells{self.unit}): "
            f"{self.rmse:.4g}, column means {self.column_mean_rmse:.4g}; "
            f"{100 * self.coverage:.0f} % inside their 90 % interval"
        ) + (f"; {self.category_words}" if self.num_categories else "")


class PredictsHeldOut(Protocol):
    """The methods of a `Posterior` that `held_out_error` calls."""

    @property
    def model(self) -> object: ...

    @property
    def data(self) -> PyTree: ...

    def predict(self, cells: object, /, *, quantiles: tuple[float, ...]) -> Any: ...

    def held_out_log_likelihood(self, values: object, cells: object) -> HeldOutScore: ...


def held_out_error(posterior: PredictsHeldOut, truth: object) -> HeldOutError:
    """Score the predictions of the cells missing in training against the complete matrix.

    Args:
        posterior: a `jaxmf.Posterior`.
        truth: (N, D) the complete matrix, NaN where nothing is known; or `Entries`, the known
            cells alone. Rows and columns are matched by id where both sides have ids (of
            `Entries` they may be a part).
    Returns:
        Error, baseline, coverage and log likelihood.
    Raises:
        ValueError: another shape, or no cell that is missing in the data is known.
    """
    cells, values = hidden_cells(posterior.data, truth)
    prediction = posterior.predict(cells, quantiles=(0.05, 0.95))
    inside = (values >= prediction.quantiles[0]) & (values <= prediction.quantiles[1])
    means = column_means(posterior.data)[cells.columns]
    units = units_of(posterior.model, cells.columns)
    is_category = prediction.is_category
    if is_category is None:
        is_category = np.zeros(values.size, bool)
    common = _most_common(posterior.data, cells.columns[is_category])
    is_real = ~is_category
    errors = (prediction.mean - values)[is_real], (means - values)[is_real]
    units = units[is_real]
    rmse, column_mean_rmse = (_mean_or_nan(each / units, root_mean_square) for each in errors)
    return HeldOutError(
        num_cells=values.size,
        rmse=rmse,
        column_mean_rmse=column_mean_rmse,
        unit=" in units of the columns" if units.size and np.ptp(units) else "",
        coverage=_mean_or_nan(inside[is_real], np.mean),
        log_likelihood=posterior.held_out_log_likelihood(values, cells).mean,
        num_categories=int(is_category.sum()),
        accuracy=_mean_or_nan((prediction.mean == values)[is_category], np.mean),
        common_accuracy=_mean_or_nan(common == values[is_category], np.mean),
    )


def _mean_or_nan(values: np.ndarray, mean: Callable[[np.ndarray], float]) -> float:
    return float(mean(values)) if values.size else np.nan


def _most_common(data: Dense | Entries, columns: np.ndarray) -> np.ndarray:
    """The most common observed value of each of some columns (M,); NaN where none is observed."""
    if not columns.size:
        return np.zeros(0)
    found = np.full(data.num_columns, np.nan)
    cells, values = observed_cells(data, data.num_rows * data.num_columns)
    for column in np.unique(columns):
        levels, counts = np.unique(values[cells.columns == column], return_counts=True)
        if levels.size:
            found[column] = levels[np.argmax(counts)]
    return found[columns]


def hidden_cells(
    data: PyTree, truth: object, *, argument: str = "truth"
) -> tuple[Positions, np.ndarray]:
    """The cells that are missing in the data and known in the truth, and their values (M,).

    Args:
        data: a container with cells.
        truth: (N, D) the complete matrix, or `Entries`; see `held_out_error`.
        argument: what the user calls it, for the message.
    Raises:
        ValueError: another shape, an id that the data lacks, or none of these cells.
    """
    if isinstance(truth, Entries):
        rows, columns, values = matched_cells(truth, data, argument=argument)
        if isinstance(data, Entries):
            width = data.num_columns
            observed = np.asarray(data.rows, np.int64) * width + np.asarray(data.columns)
            kept = ~np.isin(rows * width + columns, observed)
        else:
            kept = ~np.isfinite(data.to_array())[rows, columns]
        cells, values = Positions(rows[kept], columns[kept]), values[kept]
    else:
        matrix = complete_matrix(truth, data, argument=argument)
        rows, columns = data.missing_cells()
        kept = np.isfinite(matrix[rows, columns])
        cells = Positions(rows[kept], columns[kept])
        values = matrix[cells.rows, cells.columns]
    if not values.size:
        raise ValueError(f"no cell that is missing in the data is known in {argument}")
    return cells, values


def observed_cells(data: Entries | Dense, most: int) -> tuple[Positions, np.ndarray]:
    """Cells of the data, evenly spread where there are more than `most`, and their values (M,).

    Args:
        data: `Entries` or `Dense`.
        most: of these cells.
    """
    if isinstance(data, Entries):
        some = evenly_spread(data.num_entries, most)
        cells = Positions(np.asarray(data.rows)[some], np.asarray(data.columns)[some])
        return cells, np.asarray(data.values, float)[some]
    values = data.to_array()
    known = np.flatnonzero(np.isfinite(values))
    cells = Positions(*np.unravel_index(known[evenly_spread(known.size, most)], values.shape))
    return cells, np.asarray(values[cells.rows, cells.columns], float)


def column_means(data: Dense | Entries) -> np.ndarray:
    """Mean of the observed cells of each column, (D,); of all cells where a column has none."""
    if isinstance(data, Entries):
        columns, observed_values = np.asarray(data.columns), np.asarray(data.values, float)
        counts = np.bincount(columns, minlength=data.num_columns)
        totals = np.bincount(columns, observed_values, minlength=data.num_columns)
        mean = observed_values.mean()
    else:
        values = data.to_array()
        observed = np.isfinite(values)
        counts = observed.sum(axis=0)
        totals = np.where(observed, values, 0).sum(axis=0)
        mean = values[observed].mean()
    return np.where(counts > 0, totals / np.maximum(counts, 1), mean)
