"""The log likelihood of every observed cell, or word, given every draw.

What leave-one-out needs of draw s is p(x_m | draw s, all other cells): draws weighted by its
inverse are draws given the other cells alone (Gelfand 1996). Where cells are independent given a
draw that is the likelihood of the cell. Where parameters are summed out, the cell is first taken
out of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.answers import Answer, Lines
from jaxmf.blocks.kept_counts import num_groups
from jaxmf.data import Container
from jaxmf.model import CompletesDocuments, HasGroups, HasNetwork, HasRowLikelihood, PredictsCells
from jaxmf.posterior import categories, leave_one_out, left_out_tokens, named_cells
from jaxmf.posterior.cells import check_draws
from jaxmf.posterior.draws import Draws
from jaxmf.programs import jit
from jaxmf.types import Array

_MOST_VALUES = 2**27
_BLOCK = 2**22  # numbers of one draw while tokens are left out

Arrays = dict[str, np.ndarray]

_CONDITIONS = {
    "independent": "the draw",
    "summed out": "the draw and all other cells",
    "tokens": "the draw and all other tokens",
    "rows": "the draw and all other rows",
}


_WITHOUT_CELLS = {
    "token": "words and no cells",
    "row": "a likelihood of whole rows and none of cells",
}


class Units(NamedTuple):
    """Units of a pointwise likelihood: cells, tokens, or whole rows."""

    kind: str  # "cell", "token" or "row"
    # what the likelihood of one is conditional on: "independent" (the draw), "summed out" (the draw
    # and all other cells), "tokens" or "rows" (the draw and all others)
    dependence: str
    # rows, columns: (T,) int; of tokens the first two columns that they hang on, such as the
    # document and the word; of rows zeros instead of columns
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray  # (T,) float, or int of tokens; of rows zeros
    is_discrete: bool  # whether it has a probability, and not a density

    @property
    def is_of_cells(self) -> bool:
        """Whether a row and a column have one of them at most."""
        index = self.rows.astype(np.int64) * (int(self.columns.max()) + 1) + self.columns
        return bool(np.unique(index).size == index.size)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood(Answer):
    """The log likelihood of M observed cells, tokens or rows given every draw.

    Args:
        values: (chains, draws, M) float.
        rows: (M,) int positions; of words the document.
        columns: (M,) int positions; of words the word, of whole rows zeros.
        row_names: (M,) ids, or None where the data has none.
        column_names: (M,) ids, or None.
        conditional_on: "the draw", or "the draw and all other cells", "tokens" or "rows".
        is_discrete: whether these are logs of probabilities, and not of densities.
        weights: (chains, draws) probabilities of the draws, which sum to one.
    """

    values: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    row_names: np.ndarray | None
    column_names: np.ndarray | None
    conditional_on: str
    is_discrete: bool
    weights: np.ndarray

    @property
    def is_factor(self) -> bool:
        """Whether the sum over cells is the log likelihood of the data given the draw."""
        return self.conditional_on == _CONDITIONS["independent"]

    _axes: ClassVar = {"values": "chain draw cell"}

    def coordinates(self) -> dict[str, object]:
        return {name: ("cell", ids) for name, ids in self._ids().items()}

    def _ids(self) -> dict[str, np.ndarray]:
        """Rows and columns of the cells, by id where there are ids."""
        rows = {"row": self.rows if self.row_names is None else self.row_names}
        if self.conditional_on == _CONDITIONS["rows"]:
            return rows
        return rows | {"column": self.columns if self.column_names is None else self.column_names}

    def table(self) -> dict[str, np.ndarray]:
        """One line a cell: its row and column, mean and sd of its log likelihood over draws.

        Both are weighted where draws are.
        """
        mean = self._mean(self.values)
        sd = np.sqrt(self._mean((self.values - mean) ** 2))
        return {**self._ids(), "mean": mean, "sd": sd}

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over draws, (M,)."""
        is_used = self.weights > 0  # a draw without weight may say that a cell is impossible
        mean: np.ndarray = np.average(values[is_used], axis=0, weights=self.weights[is_used])
        return mean

    def lines(self) -> Lines:
        return [()]  # a table of all cells is asked for by `table`

    def footer(self) -> str:
        chains, draws, count = self.values.shape
        named = {_CONDITIONS["tokens"]: "word", _CONDITIONS["rows"]: "row"}
        unit = named.get(self.conditional_on, "cell")
        mean = float(self._mean(self.values).mean())
        return (
            f"Log likelihood of {count:,} {unit}s given {self.conditional_on}, in {chains} x "
            f"{draws:,} draws; mean of a {unit} {mean:.4g}"
        )


def units_of(posterior: Draws) -> Units:
    """The units that the posterior has a likelihood of.

    Raises ValueError: the model, or the run, has none; the message says why and what to do.
    """
    model = posterior.model
    name = type(model).__name__
    posterior.require_draws()
    if posterior.is_variational:
        raise ValueError(
            f"log_likelihood: a {name} by variational has the parameters of a distribution and no "
            "draws; score held-out data instead (held_out_log_likelihood, recommend)"
        )
    if isinstance(model, HasRowLikelihood):
        return _rows(posterior)
    if isinstance(model, HasGroups) and isinstance(model, HasNetwork):
        return _tokens(posterior)
    if model.cells_given_draw is None or not isinstance(model, PredictsCells):
        raise ValueError(
            f"log_likelihood: {name} does not say the likelihood of a cell given a draw "
            "(cells_given_draw is None); score held-out data instead (held_out_log_likelihood)"
        )
    check_draws(posterior)
    known = leave_one_out.known_cells(posterior.data)
    if known is None:
        raise ValueError(f"log_likelihood: the data of this {name} are no matrix of values")
    return Units("cell", posterior.model.cells_given_draw, *known, is_discrete(posterior))


def is_discrete(posterior: Draws) -> bool:
    """Whether cells, or words, have probabilities and not densities."""
    model = posterior.model
    if isinstance(model, CompletesDocuments) or categories.has_categories(model):
        return True
    return bool(posterior.model.has_discrete_cells)


def _tokens(posterior: Draws) -> Units:
    model, name = posterior.model, type(posterior.model).__name__
    network, data = model.over(posterior.data)
    block = left_out_tokens.observed_block(network)
    if block is None or f"{block}_cells" not in posterior.draws:
        raise ValueError(
            f"log_likelihood: {name} has other groups than topics, or groups of users and of "
            "items; its tokens cannot be left out one at a time. Score held-out data instead "
            "(document_completion, held_out_log_likelihood)"
        )
    columns = {label: np.asarray(column) for label, column in data.columns.items()}
    groups = leave_one_out.two_groups(network, columns, block)
    return Units("token", "tokens", *groups, columns[block], is_discrete=True)


def _rows(posterior: Draws) -> Units:
    name = type(posterior.model).__name__
    if "group_of_tokens" not in posterior.draws:
        raise ValueError(
            f"log_likelihood: the draws of this {name} do not say in which group a row is; run it "
            'with keep="assignments"'
        )
    zeros = np.zeros(posterior.data.num_rows, int)
    return Units("row", "rows", np.arange(zeros.size), zeros, zeros, is_discrete(posterior))


def num_combinations(posterior: Draws, units: Units) -> int:
    """How many combinations of groups a draw has for one unit."""
    if units.kind != "token":
        return 1
    network, _ = posterior.model.over(posterior.data)
    draw = posterior.draws
    return int(np.prod([num_groups(draw, name) for name in network.indicators]))


def evaluate(
    posterior: Draws,
    units: Units,
    draws: Arrays,
    chosen: np.ndarray,
    *,
    after_draw: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihoods (S, M) of some units given draws, and those of replicates of them.

    Args: draws: name -> (S, ...); chosen (M,) positions among the units; after_draw: called after
    each draw of tokens, which take long.
    Returns log p(x | draw, all others), and log p(x | draw, all) of one more unit of the same
    position that happens to have the same value.
    """
    if units.kind == "token":
        return _evaluate_tokens(posterior, units, draws, chosen, after_draw)
    if units.kind == "row":
        answer = _rows_of_draws(posterior.model, posterior.data, draws, jnp.asarray(chosen))
        log_density, log_replicate = (np.asarray(values, float) for values in answer)
        return log_density, log_replicate
    cells = (units.rows[chosen], units.columns[chosen])
    answer = leave_one_out.conditionals(
        posterior.model, posterior.data, draws, cells, units.values[chosen]
    )
    return answer.log_density, answer.log_replicate


@jit
def _rows_of_draws(
    model: HasRowLikelihood[Container], data: Container, draws: Arrays, rows: Array
) -> tuple[Array, Array]:
    return jax.lax.map(lambda draw: model.row_log_density(draw, data, rows), draws)


def _evaluate_tokens(
    posterior: Draws,
    units: Units,
    draws: Arrays,
    chosen: np.ndarray,
    after_draw: Callable[[], None],
) -> tuple[np.ndarray, np.ndarray]:
    network, data = posterior.model.over(posterior.data)
    name = str(left_out_tokens.observed_block(network))
    columns = {label: np.asarray(column)[chosen] for label, column in data.columns.items()}
    # tokens with the same columns have the same answer
    table = np.stack(list(columns.values()))
    _, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    step = max(1, _BLOCK // num_combinations(posterior, units))
    num_draws = len(next(iter(draws.values())))
    log_density, log_replicate = np.empty((2, num_draws, first.size))
    fixed = left_out_tokens.fixed_hyperparameters(network, draws)
    for index in range(num_draws):
        draw = fixed | {label: values[index] for label, values in draws.items()}
        for start in range(0, first.size, step):
            some = slice(start, start + step)
            part = {label: column[first[some]] for label, column in columns.items()}
            answer = left_out_tokens.leave_out(
                network, draw, name, part, all_values=False, data=data
            )
            log_density[index, some] = answer.log_probability
            log_replicate[index, some] = answer.log_replicate
        after_draw()
    inverse = inverse.ravel()
    return log_density[:, inverse], log_replicate[:, inverse]


def log_likelihood(posterior: Draws, cells: object = None) -> LogLikelihood:
    """The log likelihood of every observed cell, or word, given every draw.

    It is conditional on everything that a draw has, including the latent variables of the cell's
    row (its features, factors or groups) and column. These count as parameters, like
    hyperparameters, so that leave-one-out from these values is about a cell of a row whose other
    cells are known, and not about a new row. In `BPMF`, `NoisyOrIBP`, `BinaryMF` of counts and
    `FeatureModel(likelihood=)` cells are independent given a draw, and the values sum to the log
    likelihood of the data. `LinearGaussianIBP` and `BinaryMF` of real values sum weights out of
    their draws: a cell's density is conditional on the draw and all other cells. The same holds for
    words of topics and ratings of groups: the token is taken out of the counts of its groups, of
    which only the probabilities are known (exact where one group is certain). In mixtures of rows
    the values are of whole rows, each taken out of its group exactly; the run needs
    ``keep="assignments"``. Leave-one-out by importance sampling is valid for all of these, WAIC for
    the first kind only.

    Args:
        cells: observed cells, as in `predict`; by default all of them, in the order of the
            data. Of words and of whole rows all, always.
    Returns:
        `values` (chains, draws, M) float, with `rows` and `columns` (M,) int and their ids,
        `row_names` and `column_names`, where the data has ids.
    Raises:
        ValueError: a model whose draws do not determine it (`PAM`, `HFP`), a variational fit, draws
            without factors, missing cells, or more than 2^27 values.
    Example:
        >>> import numpy as np, jaxmf as mf
        >>> X = np.random.default_rng(0).normal(size=(8, 3))
        >>> post = mf.fit(mf.LinearGaussianIBP(alpha=1.0), X, num_warmup=5, num_samples=5)
        >>> post.log_likelihood().values.shape
        (4, 5, 24)
    """
    units = units_of(posterior)
    chosen = chosen_units(posterior, units, cells)
    shape = posterior.num_chains, posterior.num_draws
    total = shape[0] * shape[1] * chosen.size
    if total > _MOST_VALUES:
        raise ValueError(
            f"log_likelihood: {chosen.size:,} {units.kind}s in {shape[0] * shape[1]:,} draws are "
            f"{total:,} numbers, more than {_MOST_VALUES:,}; "
            + ("name some: log_likelihood(cells)" if units.kind == "cell" else "keep fewer draws")
        )
    draws = {name: x.reshape(-1, *x.shape[2:]) for name, x in posterior.draws.items()}
    values = evaluate(posterior, units, draws, chosen)[0].reshape(*shape, chosen.size)
    rows, columns = units.rows[chosen], units.columns[chosen]
    row_names, column_names = names_of_units(posterior, units.kind)
    column_names = None if units.kind == "row" else column_names
    return LogLikelihood(
        values=values,
        rows=rows,
        columns=columns,
        row_names=None if row_names is None else row_names[rows],
        column_names=None if column_names is None else column_names[columns],
        conditional_on=_CONDITIONS[units.dependence],
        is_discrete=units.is_discrete,
        weights=posterior.weights,
    )


def chosen_units(posterior: Draws, units: Units, cells: object) -> np.ndarray:
    """Positions of the units that are asked about: (M,) int.

    Raises ValueError: cells that are missing in the data, or cells of a model of tokens.
    """
    if cells is None:
        return np.arange(units.values.size)
    if units.kind != "cell" and not categories.has_categories(posterior.model):
        name = type(posterior.model).__name__
        raise ValueError(f"cells: {name} has {_WITHOUT_CELLS[units.kind]}; leave it out")
    rows, columns = named_cells.read_cells(cells, posterior.data)
    if rows.size == 0:
        raise ValueError("cells: there are none")
    known = units.rows, units.columns
    chosen, missing = named_cells.positions_among(
        (rows, columns), known, posterior.data.num_columns
    )
    if missing.size:
        first = missing[0]
        raise ValueError(
            f"cells: row {rows[first]}, column {columns[first]} at position {first} is missing in "
            "the data, and has no likelihood; predict and held_out_log_likelihood are of missing "
            "cells"
        )
    return chosen


def names_of_units(posterior: Draws, kind: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Ids of all rows and of all columns, or None."""
    data, model = posterior.data, posterior.model
    if kind == "cell" or hasattr(data, "num_rows"):
        return data.row_names, data.column_names
    network, _ = model.over(data)
    labels = leave_one_out.two_labels(network, left_out_tokens.observed_block(network))
    first, second = (model.names(data, label) for label in labels)
    return first, second
