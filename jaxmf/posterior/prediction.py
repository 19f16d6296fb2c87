"""Predictions of cells: mixtures over posterior draws, in bounded memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import Answer, positions_of_ids
from jaxmf.data import Container, MatrixContainer
from jaxmf.data.names import encode
from jaxmf.engine.executables import jit_quickly
from jaxmf.model import (
    DrawsCells,
    DrawsNewRows,
    HasPointwiseLikelihood,
    Model,
    NarrowsDraws,
    Pair,
    PredictsCells,
    ScoresCellsOfNewRows,
    ScoresFurtherRows,
    TakesNewRows,
)
from jaxmf.posterior import draw_blocks, filled_sizes
from jaxmf.posterior.cell_distributions import (
    CELL_DISTRIBUTIONS,
    CellDistribution,
    cell_distribution,
)
from jaxmf.programs import LOWEST_LEVEL, jit
from jaxmf.types import Array, Draw, Key, PyTree

_FEW_VALUES = 2**22  # in all draws, up to which compiling takes longer than running
_DRAWS_SIZE = 2**26  # numbers of predictive draws on the host
_DRAWS_AT_ONCE = 16  # of the cells given one draw


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Prediction(Answer):
    """Predictions of M cells.

    The predictive distribution of a cell is a mixture over posterior draws: the mean is the mean of
    the draws' conditional means, the variance the mean of their variances plus the variance of
    their means. Quantiles are those of `draws`, one or more conditional draws for each posterior
    draw.

    Args:
        rows: (M,) int.
        columns: (M,) int.
        mean: (M,) float; in columns of categories the most probable category.
        sd: (M,) float, noise included; NaN for categories, which have no order.
        quantiles: (Q, M) float, NaN for categories.
        levels: (Q,) the levels of the quantiles.
        draws: (S, M) float, equally weighted; categories in columns of categories.
        row_names: (M,) ids of the rows, or None.
        column_names: (M,) ids of the columns, or None.
        shape: rows and columns of the matrix whose cells these are; None where that is not known.
        is_category: (M,) bool, which cells are of columns of categories; None where none is.
    """

    rows: np.ndarray
    columns: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    levels: tuple[float, ...]
    draws: np.ndarray
    row_names: np.ndarray | None = None
    column_names: np.ndarray | None = None
    shape: tuple[int, int] | None = None
    is_category: np.ndarray | None = None

    _axes: ClassVar = {"mean sd": "cell", "quantiles": "level cell", "draws": "draw cell"}

    def coordinates(self) -> dict[str, object]:
        table = self.table()
        ids = {name: ("cell", table[name]) for name in ("row", "column")}
        return {"level": list(self.levels), **ids}

    def __len__(self) -> int:
        return int(self.rows.size)

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a cell; ids where the data had any."""
        columns = {
            "row": self.rows if self.row_names is None else self.row_names,
            "column": self.columns if self.column_names is None else self.column_names,
            "mean": self.mean,
            "sd": self.sd,
        }
        quantiles = zip(self.levels, self.quantiles, strict=True)
        return columns | {f"{100 * level:g}%": values for level, values in quantiles}

    def to_array(self, shape: tuple[int, int]) -> np.ndarray:
        """The means in a matrix of a shape, NaN where nothing was predicted."""
        matrix = np.full(shape, np.nan)
        matrix[self.rows, self.columns] = self.mean
        return matrix

    def _annotations(self, adata: object) -> list[tuple[str, str, np.ndarray]]:
        """A layer for each of means, sds and quantiles."""
        sizes = (None, None) if self.shape is None else self.shape
        rows, num_rows = _positions_in(adata, "obs", self.rows, self.row_names, sizes[0])
        columns, num_columns = _positions_in(
            adata, "var", self.columns, self.column_names, sizes[1]
        )
        table, layers = self.table(), []
        for name in list(table)[2:]:  # after those that say which cell it is
            layer = np.full((num_rows, num_columns), np.nan)
            layer[rows, columns] = table[name]
            layers.append(("layers", name, layer))
        return layers

    def footer(self) -> str:
        hidden = super().footer()
        num_draws = len(self.draws)
        cells = f"{len(self):,} cell{'s' * (len(self) != 1)}"
        head = f"Prediction of {cells}, quantiles of {num_draws:,} predictive draws"
        return f"{head}: these {hidden}" if hidden else head


def _positions_in(
    adata: object, side: str, positions: np.ndarray, ids: np.ndarray | None, expected: int | None
) -> tuple[np.ndarray, int]:
    """Positions (M,) of rows or columns in an AnnData, by id if there are ids; and its size.

    Raises ValueError: it lacks one, or is of another size than `expected` and there are no ids.
    """
    size = len(getattr(adata, f"{side}_names"))
    if ids is not None:
        codes, unique = encode(f"adata.{side}_names", ids)
        return positions_of_ids(unique, adata, side)[codes], size
    needed = positions.max(initial=-1) + 1 if expected is None else expected
    if needed > size or expected not in (None, size):
        raise ValueError(
            f"adata.{side}_names: {size} of them, but the cells are of a matrix that has {needed} "
            "without ids. Pass the AnnData that was fitted, or fit it with ids."
        )
    return positions, size


@dataclasses.dataclass(frozen=True)
class CellMixture:
    """Moments and draws of M cells, gathered over weighted posterior draws."""

    mean: np.ndarray
    variance: np.ndarray
    draws: np.ndarray


def gather(
    blocks: Iterator[tuple[slice, np.ndarray, np.ndarray]],
    weights: np.ndarray,
    *,
    num_cells: int,
    num_draws: int | None,
    seed: int,
    distribution: CellDistribution = CELL_DISTRIBUTIONS["normal"],
    model_draws: Callable[[int, int], np.ndarray] | None = None,
) -> CellMixture:
    """Mix the conditional distributions of cells over posterior draws.

    Args:
        blocks: yields (which draws, means (B, M), variances (B, M)).
        weights: (S,), summing to one.
        num_draws: predictive draws kept for each cell; None chooses from the memory there is.
        model_draws: (index of the draw, count) -> (count, M), of models that draw cells.
    Returns:
        The mixture.
    """
    if num_draws is None:
        num_draws = int(np.clip(_DRAWS_SIZE // max(1, num_cells), 100, max(1000, weights.size)))
    counts = diagnostics.choose_draws(weights, num_draws, seed)
    generator = np.random.default_rng([seed, 1])
    mean = np.zeros(num_cells)
    square = np.zeros(num_cells)
    variance = np.zeros(num_cells)
    draws = np.empty((num_draws, num_cells), dtype=np.float32)
    total, filled = 0.0, 0
    for where, means, variances in blocks:
        is_used = weights[where] > 0  # draws without weight may not be finite
        if is_used.any():
            # Chan's update by whole blocks: no difference of large squares.
            block_weights, values = weights[where][is_used], means[is_used]
            weight = block_weights.sum()
            total += weight
            block_mean = block_weights @ values / weight
            square += block_weights @ (values - block_mean) ** 2
            square += weight * (1 - weight / total) * (block_mean - mean) ** 2
            mean += (weight / total) * (block_mean - mean)
            variance += block_weights @ variances[is_used]
        for index in np.flatnonzero(counts[where]):
            count = int(counts[where][index])
            if model_draws is None:
                new = distribution.draw(generator, means[index], variances[index], count)
            else:
                new = model_draws(where.start + int(index), count)
            draws[filled : filled + count] = new
            filled += count
    return CellMixture(mean=mean, variance=variance + square, draws=draws)


def model_draws(
    model: Model,
    data: Container,
    draws: dict[str, np.ndarray],
    cells: tuple[np.ndarray, np.ndarray],
    seed: int,
    new_data: Container | None = None,
) -> Callable[[int, int], np.ndarray] | None:
    """A function that draws cells, for models that have their own; None for others.

    Args: draws: name -> (S, ...); cells: rows and columns, (M,) each; seed: draw number i given
    posterior draw s uses fold_in(fold_in(key(seed), s), i); new_data: the rows that the cells lie
    in, where these are not those of the training data.
    """
    if not isinstance(model, DrawsCells if new_data is None else DrawsNewRows):
        return None
    num_cells = cells[0].size
    rows, columns = (jnp.asarray(index) for index in filled_sizes.filled_cells(*cells))

    def cells_of_draw(index: int, count: int) -> np.ndarray:
        draw = {name: values[index] for name, values in draws.items()}
        key = jax.random.fold_in(jax.random.key(seed), index)
        found = []
        for start in range(0, count, _DRAWS_AT_ONCE):
            stop = min(start + _DRAWS_AT_ONCE, count)
            args = model, key, (start, stop), draw, data, new_data, rows, columns
            found.append(np.asarray(_sampled_cells(*args))[: stop - start])
        return np.concatenate(found)[:, :num_cells]

    return cells_of_draw


@jit_quickly
def _sampled_cells(
    model: PyTree,
    key: Key,
    between: tuple[int, int],
    draw: Draw,
    data: Container,
    new_data: Container | None,
    rows: Array,
    columns: Array,
) -> Array:
    """Draws number start to stop of the cells, (_DRAWS_AT_ONCE, M): one program for any count."""
    start, stop = between

    def one(index: Array) -> Array:
        one_key = jax.random.fold_in(key, index)
        if new_data is None:
            return model.draw_cells(one_key, draw, data, rows, columns)
        return model.draw_rows(one_key, draw, data, new_data)[rows, columns]

    like = jax.eval_shape(one, start)
    empty = jnp.zeros((_DRAWS_AT_ONCE, *like.shape), like.dtype)
    return jax.lax.fori_loop(
        start, stop, lambda index, found: found.at[index - start].set(one(index)), empty
    )


def _moments_of_draws(
    model: PredictsCells[Container], draws: Draw, data: Container, rows: Array, columns: Array
) -> Pair:
    return jax.vmap(lambda draw: model.predict_cells(draw, data, rows, columns))(draws)


_cells_of_draws = jit(_moments_of_draws)
# compiled in two thirds of the time, for what is run once and is small
_few_cells_of_draws = jit(_moments_of_draws, compiler_options=LOWEST_LEVEL)


@jit_quickly
def _rows_of_draws(
    model: TakesNewRows[Container], draws: Draw, keys: Array, data: Container, new_data: Container
) -> PyTree:
    return jax.vmap(lambda key, draw: model.predict_rows(key, draw, data, new_data))(keys, draws)


@jit
def _log_density_of_draws(
    model: Model, draws: Draw, data: Container, rows: Array, columns: Array, values: Array
) -> Array:
    if isinstance(model, HasPointwiseLikelihood):

        def evaluate_draw(draw: Draw) -> Array:
            return model.cell_log_density(draw, data, rows, columns, values)

        return jax.lax.map(evaluate_draw, draws)
    mean, variance = _cells_of_draws(model, draws, data, rows, columns)
    return cell_distribution(model).log_density(values, mean, variance)


def narrowed(
    model: PyTree, data: PyTree, draws: dict[str, np.ndarray], rows: np.ndarray, columns: PyTree
) -> tuple[PyTree, dict[str, np.ndarray], np.ndarray, PyTree]:
    """The parts of model and draws that a few cells (M,), or all cells of a few rows, depend on.

    Args: columns: of the cells; None for all columns.
    Returns the model and draws of the rows and columns asked for, and the positions of the cells
    in them.
    """
    few = 2 * rows.size <= data.num_rows + (0 if columns is None else data.num_columns)
    if not (few and isinstance(model, NarrowsDraws)):
        return model, draws, rows, columns
    chosen, codes = zip(*map(_lines, (rows, columns)), strict=True)
    found = model.narrowed(draws, *chosen)
    return (model, draws, rows, columns) if found is None else (*found, *codes)


def _lines(positions: np.ndarray | None) -> tuple[PyTree, PyTree]:
    """The distinct lines, filled up to a power of two, and where each position is among them."""
    if positions is None:
        return None, None
    lines, codes = np.unique(positions, return_inverse=True)
    size = 1 << max(lines.size - 1, 0).bit_length()
    return np.pad(lines, (0, size - lines.size), mode="edge"), codes


def predict_cells(
    model: Model,
    data: MatrixContainer,
    draws: dict[str, np.ndarray],
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    once: bool = False,
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Conditional mean and variance of cells for every draw, block by block.

    Args:
        draws: name -> (S, ...).
        rows, columns: (M,) int.
        once: whether this is the only such question, so that for few cells a quickly compiled
            program is faster.
    Yields:
        Which draws, their means and variances (B, M).
    """
    whole = draws
    model, draws, rows, columns = narrowed(model, data, draws, rows, columns)
    num_cells = rows.size
    rows, columns = filled_sizes.filled_cells(rows, columns)
    size = draw_blocks.draw_size(draws, data.num_columns if draws is whole else 1, rows.size)
    is_small = size * len(next(iter(draws.values()))) <= _FEW_VALUES
    program = _few_cells_of_draws if once and is_small else _cells_of_draws

    def evaluate(block: object, indices: np.ndarray) -> PyTree:
        return program(model, block, data, jnp.asarray(rows), jnp.asarray(columns))

    for where, (means, variances) in draw_blocks.over_draws(evaluate, draws, size):
        yield where, means[:, :num_cells], variances[:, :num_cells]


def predict_rows(
    model: TakesNewRows[Container],
    data: MatrixContainer,
    draws: dict[str, np.ndarray],
    new_data: MatrixContainer,
    cells: tuple[np.ndarray, np.ndarray],
    key: jax.Array,
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """The same for cells of new rows; draw s uses fold_in(key, s)."""
    new = filled_sizes.filled_rows(model, new_data)

    def evaluate(block: Draw, indices: np.ndarray) -> PyTree:
        keys = jax.vmap(partial(jax.random.fold_in, key))(indices)
        return _rows_of_draws(model, block, keys, data, new)

    size = new_data.num_rows * new_data.num_columns
    for where, (means, variances) in draw_blocks.over_draws(
        evaluate, draws, draw_blocks.draw_size(draws, data.num_columns, size)
    ):
        yield where, means[:, *cells], variances[:, *cells]


def log_densities(
    model: Model,
    data: MatrixContainer,
    draws: dict[str, np.ndarray],
    cells: tuple[np.ndarray, np.ndarray],
    values: np.ndarray,
    new_data: MatrixContainer | None = None,
) -> Iterator[tuple[slice, np.ndarray]]:
    """log p(x | draw) of M cells for every draw, block by block: which draws, (B, M) float.

    Args: new_data: the rows that the cells lie in, where these are not those of the training data.
    """
    rows, columns = (jnp.asarray(index) for index in filled_sizes.filled_cells(*cells))
    known = jnp.asarray(np.pad(values, (0, rows.size - values.size), mode="edge"))

    def evaluate(block: object, indices: np.ndarray) -> PyTree:
        if new_data is not None:
            return _log_density_of_new_cells(model, block, data, new_data, rows, columns, known)
        return _log_density_of_draws(model, block, data, rows, columns, known)

    for where, densities in draw_blocks.over_draws(
        evaluate, draws, draw_blocks.draw_size(draws, data.num_columns, rows.size)
    ):
        yield where, densities[:, : values.size].astype(float)


@jit
def _log_density_of_new_cells(
    model: ScoresCellsOfNewRows[Container],
    draws: Draw,
    data: Container,
    new_data: Container,
    rows: Array,
    columns: Array,
    values: Array,
) -> Array:
    def evaluate_draw(draw: Draw) -> Array:
        return model.new_cell_log_density(draw, data, new_data, rows, columns, values)

    return jax.lax.map(evaluate_draw, draws)


@jit
def _log_density_of_rows(
    model: ScoresFurtherRows[Container], draws: Draw, data: Container, x: Array
) -> Array:
    return jax.lax.map(lambda draw: model.predict_rows_of_draw(draw, data, x)[0], draws)


def log_densities_of_rows(
    model: Model, data: MatrixContainer, draws: dict[str, np.ndarray], x: Array
) -> Iterator[tuple[slice, np.ndarray]]:
    """log p(row | draw) of further rows x (M, D), as `log_densities`."""

    def evaluate(block: object, indices: np.ndarray) -> PyTree:
        return _log_density_of_rows(model, block, data, x)

    for where, densities in draw_blocks.over_draws(
        evaluate, draws, draw_blocks.draw_size(draws, data.num_columns, x.size)
    ):
        yield where, densities.astype(float)


def averaged(
    blocks: Iterator[tuple[slice, np.ndarray]], weights: np.ndarray, size: int
) -> np.ndarray:
    """log Σ_s w_s p(x | draw s) of `size` values, from log densities block by block: (size,)."""
    total = np.full(size, -np.inf)
    for where, densities in blocks:
        with np.errstate(divide="ignore"):
            weighted = np.log(weights[where])[:, None] + densities
        total = np.logaddexp(total, np.logaddexp.reduce(weighted, axis=0))
    return total
