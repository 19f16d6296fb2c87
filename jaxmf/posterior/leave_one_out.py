"""Whether a run predicts its cells better than row and column means would: without hiding any.

A few hundred observed cells are each predicted from all the others. The draws of a run know the
cell, so they are weighted by 1 / p(x | draw, other cells), which turns them into draws given the
other cells alone (importance sampling, Pareto-smoothed; Gelfand 1996, Vehtari et al. 2017). A cell
whose weights are unreliable is left out, and where many are nothing is said. The comparison is
with the row and column means, or the frequency of a column's ones, of the other cells too.

No data are hidden and no random number of the run is used: its draws are what they were.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxmf.answers import Answer
from jaxmf.blocks import Network
from jaxmf.column_units import noise_of_columns, units_of
from jaxmf.data import Container, Dense, Entries, MatrixContainer
from jaxmf.data.far_cells import observed_cells
from jaxmf.model import (
    HasCategories,
    HasGroups,
    HasNetwork,
    HasPointwiseLikelihood,
    Model,
    PredictsCells,
)
from jaxmf.posterior import categories, left_out_tokens, pareto, prediction
from jaxmf.posterior.cell_distributions import CELL_DISTRIBUTIONS, cell_distribution
from jaxmf.posterior.draws import Draws, once

_NUM_CELLS = 256
# More tokens are evaluated where the difference is not clear from these:
_CLEAR_ERRORS = 3.0  # standard errors of a difference that is clear
_MOST_TOKENS = 1_024
_MORE_PRODUCTS = 2**14  # of tokens by combinations of groups
FEWEST_CELLS = 40
FEWEST_DRAWS = 100
_MOST_DRAWS = 400
_SHARE_OF_DRAWS = 2  # one in this many is used where there are more than a hundred
_LEAST_RELIABLE = 0.5
_LEAST_REMAINDER = 1e-4  # of 1 - leverage, so that floats have digits left
_FEWEST_GROUPS = 20
_MOST_ENTRIES = 2**25  # in the draws that are used
_LATENT = ("z", "u")  # what draws must keep for predictions; large factors are kept on request

Cells = tuple[np.ndarray, np.ndarray]


class _LeftOutLosses(NamedTuple):
    unit: str
    model: np.ndarray
    baseline: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


class LeftOutLosses(Answer, _LeftOutLosses):
    """Losses of cells that were each predicted from the others.

    Args:
        unit: of the losses: "squared error", of columns with units of their own in these, "log
            score" of cells that are 0 or 1, or "log score of a token".
        model: (M,) loss of the posterior's predictions.
        baseline: (M,) loss of row and column means, of column frequencies, or of the frequencies of
            the values of all tokens.
        rows: (M,) ids, or positions where the data have none; of tokens in a column that their
            groups hang on, such as the document.
        columns: (M,) ids or positions; of tokens in the other such column, or the values.
    """

    _axes: ClassVar = {"model baseline": "cell"}

    def coordinates(self) -> dict[str, object]:
        return {"row": ("cell", self.rows), "column": ("cell", self.columns)}

    def table(self) -> dict[str, np.ndarray]:
        """One line for each cell."""
        losses = {"model": self.model, "baseline": self.baseline}
        return {"row": self.rows, "column": self.columns, **losses}

    def footer(self) -> str:
        mean = f"{self.excess:+.4g} ± {self.standard_error:.2g}"
        said = f"{self.unit}, less is better; mean of the model less the baseline {mean}"
        return "; ".join(filter(None, [super().footer(), said]))

    @property
    def excess(self) -> float:
        """Mean loss of the model above that of the baseline."""
        return float(np.mean(self.model - self.baseline))

    @property
    def standard_error(self) -> float:
        """Standard error of `excess`: the largest with cells, rows or columns as units.

        Rows and columns count where there are twenty of them.
        """
        return standard_error_of_mean(self.model - self.baseline, self.rows, self.columns)


def standard_error_of_mean(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """Standard error of the mean over M cells: the largest with cells, rows or columns as units.

    Rows and columns count where there are twenty of them.

    Args:
        values: (M,) float; M at least 2.
        rows, columns: (M,) int.
    """
    residual = values - values.mean()
    size = residual.size
    errors = [np.sqrt(np.sum(residual**2) / (size * (size - 1)))]
    for groups in (rows, columns):
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], residual)
        if sums.size >= _FEWEST_GROUPS:
            factor = sums.size / (sums.size - 1)
            errors.append(np.sqrt(factor * np.sum(sums**2)) / size)
    return float(max(errors))


class Conditionals(NamedTuple):
    """Moments and log densities of M cells given S draws, (S, M) float each."""

    mean: np.ndarray  # of a cell given a draw and all other cells
    log_density: np.ndarray  # of the observed value, likewise
    # of the observed value as that of a second cell at the same position, given a draw and all
    # cells; the same where cells are independent given a draw
    log_replicate: np.ndarray


@once
def compare(posterior: Draws) -> LeftOutLosses | None:
    """What `left_out_losses` says, by positions; None where that says why there is nothing."""
    if isinstance(posterior.model, HasGroups) and isinstance(posterior.model, HasNetwork):
        return _compare_tokens(posterior)
    if not _is_answered(posterior):
        return None
    known = known_cells(posterior.data)
    if known is None or known[2].size < FEWEST_CELLS:
        return None
    rows, columns, values = known
    chosen = np.random.default_rng(0).permutation(values.size)[:_NUM_CELLS]
    cells, x = (rows[chosen], columns[chosen]), values[chosen]
    total = posterior.num_chains * posterior.num_draws
    used = np.linspace(0, total - 1, _num_used(posterior)).astype(int)  # at even distances
    chain, draw = np.divmod(used, posterior.num_draws)
    draws = {name: each[chain, draw] for name, each in posterior.draws.items()}
    means, log_densities, _ = conditionals(posterior.model, posterior.data, draws, cells, x)
    weights, is_reliable = _weights_without(log_densities)
    is_reliable &= np.isfinite(means).all(axis=0)
    if is_reliable.mean() < _LEAST_RELIABLE:
        return None
    if cell_distribution(posterior.model) is CELL_DISTRIBUTIONS["bernoulli"]:
        unit = "log score"
        model = -np.log(np.sum(weights * np.exp(log_densities), axis=0))
        frequency = column_frequencies(columns, values, chosen)
        baseline = -np.log(np.where(x == 1, frequency, 1 - frequency))
    else:
        unit = "squared error"
        size = units_of(posterior.model, columns)
        model = (x - np.sum(weights * means, axis=0)) ** 2 / size[chosen] ** 2
        values = values / size
        baseline = (values[chosen] - row_and_column_means(rows, columns, values, chosen)) ** 2
    kept = [part[is_reliable] for part in (model, baseline, *cells)]
    return LeftOutLosses(unit, *kept)


def _compare_tokens(posterior: Draws) -> LeftOutLosses | None:
    """Ratings beside row and column means, other tokens beside the frequencies of their values."""
    total = posterior.num_chains * posterior.num_draws
    network, data = posterior.model.over(posterior.data)
    name = left_out_tokens.observed_block(network)
    is_sampled = posterior.meta.method == "sample" and total >= FEWEST_DRAWS
    if name is None or not is_sampled or f"{name}_cells" not in posterior.draws:
        return None
    everything = {label: np.asarray(column) for label, column in data.columns.items()}
    if everything[name].size < FEWEST_CELLS:
        return None
    order = np.random.default_rng(0).permutation(everything[name].size)
    losses = _losses_of_tokens(posterior, network, name, everything, order[:_NUM_CELLS])
    if losses is None or abs(losses.excess) > _CLEAR_ERRORS * losses.standard_error:
        return losses
    num_groups = left_out_tokens.num_combinations(network, posterior.reference_draw())
    others = order[_NUM_CELLS : min(_MOST_TOKENS, _MORE_PRODUCTS // num_groups)]
    more = None
    if others.size:
        more = _losses_of_tokens(posterior, network, name, everything, others)
    if more is None:
        return losses
    both = zip(losses[1:], more[1:], strict=True)
    return LeftOutLosses(losses.unit, *(np.concatenate(pair) for pair in both))


def _losses_of_tokens(
    posterior: Draws,
    network: Network,
    name: str,
    everything: dict[str, np.ndarray],
    chosen: np.ndarray,
) -> LeftOutLosses | None:
    total = posterior.num_chains * posterior.num_draws
    columns = {label: column[chosen] for label, column in everything.items()}
    levels = posterior.model.values if isinstance(posterior.model, HasCategories) else None
    num_values = 1 if levels is None else len(levels)
    if not left_out_tokens.is_small(network, posterior.reference_draw(), chosen.size, num_values):
        return None
    log_probabilities, probabilities = [], []
    for position in np.linspace(0, total - 1, FEWEST_DRAWS).astype(int):
        draw = posterior.draw_at(*divmod(int(position), posterior.num_draws))
        left_out = left_out_tokens.leave_out(
            network, draw, name, columns, all_values=levels is not None
        )
        log_probabilities.append(left_out.log_probability)
        probabilities.append(left_out.probabilities)
    scores = np.array(log_probabilities)
    weights, is_reliable = _weights_without(scores)
    if is_reliable.mean() < _LEAST_RELIABLE:
        return None
    groups = two_groups(network, columns, name)
    if levels is None:
        unit = "log score of a token"
        model = -np.log(np.sum(weights * np.exp(scores), axis=0))
        counts = np.bincount(everything[name])  # less the token, one half added to each value
        num_others = everything[name].size - 1 + 0.5 * np.count_nonzero(counts)
        baseline = -np.log((counts[columns[name]] - 0.5) / num_others)
    else:
        unit, x = "squared error", np.asarray(levels)[everything[name]]
        means = np.einsum("sm,smv,v->m", weights, np.array(probabilities), np.asarray(levels))
        model = (x[chosen] - means) ** 2
        rows, others = two_groups(network, everything, name)
        baseline = (x[chosen] - row_and_column_means(rows, others, x, chosen)) ** 2
    kept = [part[is_reliable] for part in (model, baseline, *groups)]
    return LeftOutLosses(unit, *kept)


def _weights_without(log_densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of draws (S, M) given all but each cell, and whether they are reliable (M,)."""
    weights, shapes = pareto.smoothed_weights(-log_densities)
    is_finite = np.isfinite(log_densities).all(axis=0)
    return weights, (shapes < pareto.largest_shape(len(weights))) & is_finite


def two_labels(network: Network, name: str | None) -> tuple[str, str]:
    """The first column that an indicator hangs on, and the second or the observed block."""
    parents = dict.fromkeys(by for one in network.indicators for by in network.blocks[one].by)
    block = network.blocks[str(name)]
    labels = [*parents, *(by for by in block.by if by in network.columns), str(name)]
    return labels[0], labels[min(1, len(labels) - 1)]


def two_groups(network: Network, columns: dict[str, np.ndarray], name: str) -> Cells:
    """The columns of tokens by which errors are taken together."""
    first, second = two_labels(network, name)
    return columns[first], columns[second]


def _is_answered(posterior: Draws) -> bool:
    model = posterior.model
    return (
        posterior.meta.method == "sample"
        and model.predicts_its_rows
        and model.cells_given_draw is not None
        and isinstance(model, PredictsCells)
        and any(name in posterior.draws for name in _LATENT)
        and _num_used(posterior) >= FEWEST_DRAWS
    )


def known_cells(data: Container) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Rows, columns and values of the observed cells, (T,) each; None for other data."""
    if not isinstance(data, Dense | Entries):
        return None
    rows, columns, values = observed_cells(data)
    return rows, columns, values.astype(float)


def _num_used(posterior: Draws) -> int:
    """How many draws are used: half of them, 100 to 400, fewer where they are large."""
    total = posterior.num_chains * posterior.num_draws
    size = sum(int(np.prod(values.shape[2:])) for values in posterior.draws.values())
    num_used = int(np.clip(total // _SHARE_OF_DRAWS, FEWEST_DRAWS, _MOST_DRAWS))
    return min(total, num_used, _MOST_ENTRIES // max(size, 1))


def conditionals(
    model: Model, data: MatrixContainer, draws: dict[str, np.ndarray], cells: Cells, x: np.ndarray
) -> Conditionals:
    """Cells given a draw and all other cells.

    Args: model: whose `cells_given_draw` is not None; draws: name -> (S, ...); cells: rows and
    columns, (M,) int each; x (M,) float, their values.
    """
    moments = list(prediction.predict_cells(model, data, draws, *cells, once=True))
    mean = np.concatenate([block[1] for block in moments]).astype(float)
    variance = np.concatenate([block[2] for block in moments]).astype(float)
    if categories.has_categories(model):
        log_density = _log_probabilities(model, data, draws, cells, x)
        return Conditionals(mean, log_density, log_density)
    if isinstance(model, HasPointwiseLikelihood):
        blocks = prediction.log_densities(model, data, draws, cells, x)
        log_density = np.concatenate([block for _, block in blocks])
        return Conditionals(mean, log_density, log_density)
    # cells that are not finite are left out by those who ask
    with np.errstate(divide="ignore", invalid="ignore"):
        replicate = np.asarray(cell_distribution(model).log_density(x, mean, variance), float)
    if model.cells_given_draw == "independent":
        return Conditionals(mean, replicate, replicate)
    noise_variance = noise_of_columns(model, draws, cells[1]) ** 2
    return Conditionals(*without_cell(x, mean, variance, noise_variance), replicate)


def without_cell(
    x: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise_variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log density of a normal cell that the parameters, summed out, do not know.

    A replicate of the cell has variance noise (1 + h), h being the leverage of the cell; without it
    the residual is 1 / (1 - h) times as large and the variance noise / (1 - h).

    Args: x (M,) the cells; mean, variance (S, M) of replicates given all cells; noise_variance (S,
    1) or (S, M).
    """
    remainder = np.maximum(2 - variance / noise_variance, _LEAST_REMAINDER)
    residual = (x - mean) / remainder
    spread = noise_variance / remainder
    return x - residual, -0.5 * (np.log(2 * np.pi * spread) + residual**2 / spread)


def _log_probabilities(
    model: Any, data: MatrixContainer, draws: dict[str, np.ndarray], cells: Cells, x: np.ndarray
) -> np.ndarray:
    """Log probabilities (S, M) of the values of cells that have few."""
    levels = np.asarray(model.values, float)
    index = np.argmin(np.abs(levels[:, None] - x), axis=0)
    blocks = categories.probabilities_of_draws(model, data, draws, cells)
    chosen = [block[:, np.arange(x.size), index] for _, block in blocks]
    return np.log(np.maximum(np.concatenate(chosen).astype(float), np.finfo(float).tiny))


def column_frequencies(columns: np.ndarray, values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Frequency of ones among the other cells of the column of each chosen cell, one half added.

    Args: columns, values (T,) all observed cells; chosen (M,) positions of some of them.
    """
    ones, sizes = np.bincount(columns, values), np.bincount(columns)
    chosen_columns = columns[chosen]
    return (ones[chosen_columns] - values[chosen] + 0.5) / sizes[chosen_columns]


def row_and_column_means(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, chosen: np.ndarray
) -> np.ndarray:
    """Level, column effect and row effect of each chosen cell from all the others: (M,) float.

    Column means of what is left by the level, then row means of what is left by those, shrunk by
    the ratio of the variances within and between (the best linear prediction of random effects).

    Args: rows, columns, values (T,) all observed cells; chosen (M,) positions of some of them.
    """
    level = (values.sum() - values[chosen]) / (values.size - 1)
    residual = values - values.mean()
    by_column = _Effects(columns, residual)
    column_effect = by_column.without(columns[chosen], residual[chosen])
    residual = residual - by_column.whole()[columns]
    row_effect = _Effects(rows, residual).without(rows[chosen], residual[chosen])
    return level + column_effect + row_effect


class _Effects:
    """Shrunken means of the groups of some residuals."""

    def __init__(self, groups: np.ndarray, residual: np.ndarray) -> None:
        self.sums, self.sizes = np.bincount(groups, residual), np.bincount(groups)
        sizes, total = self.sizes[self.sizes > 0], residual.size
        means = self.sums[self.sizes > 0] / sizes
        num_groups = sizes.size
        within = max(float(residual @ residual - sizes @ means**2), 0.0)
        within /= max(total - num_groups, 1)
        scale = total - np.sum(sizes.astype(float) ** 2) / total
        centred = means - residual.mean()
        between = (sizes @ centred**2 - (num_groups - 1) * within) / max(scale, 1e-300)
        self.shrinkage = within / between if between > 0 else np.inf

    def whole(self) -> np.ndarray:
        """Effects of all groups."""
        return self.sums / np.maximum(self.sizes + self.shrinkage, 1e-300)

    def without(self, groups: np.ndarray, residual: np.ndarray) -> np.ndarray:
        """Effects of groups (M,) from all but one residual of each."""
        sizes = self.sizes[groups] - 1 + self.shrinkage
        return (self.sums[groups] - residual) / np.maximum(sizes, 1e-300)
