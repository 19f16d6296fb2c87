"""Whether a run predicts its cells better than row and column means would: without hiding any.

A few hundred observed cells are each predicted from all the others. The draws of a run know the
cell, so they are weighted by 1 / p(x | draw, other cells), which turns them into draws given the
other cells alone (importance sampling, Pareto-smoothed; Gelfand 1996, Vehtari et al. 2017). A cell
whose weights are unreliable is left out, and where many are nothing is said. The comparison is
with the row and column means, or the frequency of a column's ones, of the other cells too.

No data are hidden and no random number of the run is used: its draws are what they were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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
from jaxmf.posterior.left_out_losses import LeftOutLosses

_NUM_CELLS = 256
# More tokens are evaluated where the difference is not clear from these:
_CLEAR_ERRORS = 3.0  # standard errors of a difference that is clear
_MOST_TOKENS = 1_024
_MORE_PRODUCTS = 2**14  # of tokens by combinations of groups
_FEWEST_CELLS = 40
_FEWEST_DRAWS = 100
_MOST_DRAWS = 400
_SHARE_OF_DRAWS = 2  # one in this many is used where there are more than a hundred
_LEAST_RELIABLE = 0.5
_LEAST_REMAINDER = 1e-4  # of 1 - leverage, so that floats have digits left
_MOST_ENTRIES = 2**25  # in the draws that are used
_LATENT = ("z", "u")  # what draws must keep for predictions; large factors are kept on request
_INSTEAD = (
    "Hide some of the data from a run and score these: held_out_log_likelihood, "
    "document_completion, mf.compare(..., held_out=)"
)
_UNRELIABLE = f"the draws change too much with each of the cells or words. {_INSTEAD}"

Cells = tuple[np.ndarray, np.ndarray]


class Conditionals(NamedTuple):
    """Moments and log densities of M cells given S draws, (S, M) float each."""

    mean: np.ndarray  # of a cell given a draw and all other cells
    log_density: np.ndarray  # of the observed value, likewise
    # of the observed value as that of a second cell at the same position, given a draw and all
    # cells; the same where cells are independent given a draw
    log_replicate: np.ndarray


def compare(posterior: Draws) -> LeftOutLosses | None:
    """Losses by positions; None where `Posterior.leave_one_out` raises."""
    found = losses_or_reason(posterior)
    return None if isinstance(found, str) else found


@once
def losses_or_reason(posterior: Draws) -> LeftOutLosses | str:
    """Losses by positions, or why there are none."""
    total = posterior.num_chains * posterior.num_draws
    if posterior.meta.method != "sample":
        return f"draws of sample are needed, these are of {posterior.meta.method}"
    if total < _FEWEST_DRAWS:
        return f"{_FEWEST_DRAWS} draws or more are needed, this run has {total}"
    if isinstance(posterior.model, HasGroups) and isinstance(posterior.model, HasNetwork):
        return _losses_of_tokens(posterior)
    return _losses_of_cells(posterior)


def _losses_of_cells(posterior: Draws) -> LeftOutLosses | str:
    model = posterior.model
    can_predict = model.predicts_its_rows and isinstance(model, PredictsCells)
    if not can_predict or model.cells_given_draw is None:
        return _no_cells(posterior)
    if not any(name in posterior.draws for name in _LATENT):
        return (
            "the draws were made without features or vectors of rows (keep_factors=False); sample "
            f"again with keep_factors. {_INSTEAD}"
        )
    if (num_used := _num_used(posterior)) < _FEWEST_DRAWS:
        return (
            f"draws of this size are too large: {num_used} would be used, and {_FEWEST_DRAWS} are "
            f"needed. {_INSTEAD}"
        )
    known = known_cells(posterior.data)
    if known is None:
        return _no_cells(posterior)
    rows, columns, values = known
    if values.size < _FEWEST_CELLS:
        return _too_few(values.size)
    chosen = np.random.default_rng(0).permutation(values.size)[:_NUM_CELLS]
    cells, x = (rows[chosen], columns[chosen]), values[chosen]
    total = posterior.num_chains * posterior.num_draws
    used = np.linspace(0, total - 1, num_used).astype(int)  # at even distances
    chain, draw = np.divmod(used, posterior.num_draws)
    draws = {name: each[chain, draw] for name, each in posterior.draws.items()}
    means, log_densities, _ = conditionals(posterior.model, posterior.data, draws, cells, x)
    weights, is_reliable = _weights_without(log_densities)
    is_reliable &= np.isfinite(means).all(axis=0)
    if is_reliable.mean() < _LEAST_RELIABLE:
        return _UNRELIABLE
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


def _losses_of_tokens(posterior: Draws) -> LeftOutLosses | str:
    """Ratings beside row and column means, other tokens beside the frequencies of their values."""
    network, data = posterior.model.over(posterior.data)
    name = left_out_tokens.observed_block(network)
    if name is None:
        return _no_cells(posterior)
    if f"{name}_cells" not in posterior.draws:
        return 'the draws have no counts of groups; sample again with keep="statistics"'
    everything = {label: np.asarray(column) for label, column in data.columns.items()}
    if everything[name].size < _FEWEST_CELLS:
        return _too_few(everything[name].size)
    order = np.random.default_rng(0).permutation(everything[name].size)
    losses = _losses_of_some(posterior, network, name, everything, order[:_NUM_CELLS])
    if isinstance(losses, str) or abs(losses.excess) > _CLEAR_ERRORS * losses.standard_error:
        return losses
    num_groups = left_out_tokens.num_combinations(network, posterior.reference_draw())
    others = order[_NUM_CELLS : min(_MOST_TOKENS, _MORE_PRODUCTS // num_groups)]
    if not others.size:
        return losses
    more = _losses_of_some(posterior, network, name, everything, others)
    if isinstance(more, str):
        return losses
    both = zip(losses[1:], more[1:], strict=True)
    return LeftOutLosses(losses.unit, *(np.concatenate(pair) for pair in both))


def _losses_of_some(
    posterior: Draws,
    network: Network,
    name: str,
    everything: dict[str, np.ndarray],
    chosen: np.ndarray,
) -> LeftOutLosses | str:
    total = posterior.num_chains * posterior.num_draws
    columns = {label: column[chosen] for label, column in everything.items()}
    levels = posterior.model.values if isinstance(posterior.model, HasCategories) else None
    num_values = 1 if levels is None else len(levels)
    if not left_out_tokens.is_small(network, posterior.reference_draw(), chosen.size, num_values):
        return f"there are too many combinations of groups. {_INSTEAD}"
    log_probabilities, probabilities = [], []
    for position in np.linspace(0, total - 1, _FEWEST_DRAWS).astype(int):
        draw = posterior.draw_at(*divmod(int(position), posterior.num_draws))
        left_out = left_out_tokens.leave_out(
            network, draw, name, columns, all_values=levels is not None
        )
        log_probabilities.append(left_out.log_probability)
        probabilities.append(left_out.probabilities)
    scores = np.array(log_probabilities)
    weights, is_reliable = _weights_without(scores)
    if is_reliable.mean() < _LEAST_RELIABLE:
        return _UNRELIABLE
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


def _no_cells(posterior: Draws) -> str:
    name = type(posterior.model).__name__
    return f"this {name} has no cells or words that can be left out one at a time. {_INSTEAD}"


def _too_few(size: int) -> str:
    return f"{_FEWEST_CELLS} cells or words are needed, these data have {size}"


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
    num_used = int(np.clip(total // _SHARE_OF_DRAWS, _FEWEST_DRAWS, _MOST_DRAWS))
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
