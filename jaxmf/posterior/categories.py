"""Predictions of cells whose values come from a finite set: the whole distribution of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxmf.data import Container, MatrixContainer
from jaxmf.model import HasCategories, Model, TakesNewRowsOfCategories, lacks
from jaxmf.posterior import draw_blocks, filled_sizes, prediction
from jaxmf.posterior.prediction import CellMixture
from jaxmf.programs import jit
from jaxmf.types import Array, Draw, Key, PyTree

_DRAWS_SIZE = 2**24
_SUMMED_DRAWS = 64


def has_categories(model: Model) -> bool:
    """Whether a model gives the probability of every value of a cell."""
    return isinstance(model, HasCategories) and model.values is not None


@jit
def _probabilities(
    model: HasCategories[Container], draws: Draw, data: Container, rows: Array, columns: Array
) -> Array:
    return jax.vmap(lambda draw: model.cell_probabilities(draw, data, rows, columns))(draws)


@jit
def _new_row_probabilities(
    model: TakesNewRowsOfCategories[Container],
    keys: Array,
    draws: Draw,
    data: Container,
    new: Container,
    rows: Array,
    columns: Array,
) -> Array:
    def one(key: Key, draw: Draw) -> Array:
        return model.new_cell_probabilities(key, draw, data, new, rows, columns)

    return jax.lax.map(lambda both: one(*both), (keys, draws))


def probabilities(
    model: Any,
    data: Container,
    draws: dict[str, np.ndarray],
    weights: np.ndarray,
    cells: tuple[np.ndarray, np.ndarray],
    new_data: MatrixContainer | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The probability of every value of M cells, averaged over draws: (M, V) float.

    Args:
        draws: name -> (S, ...).
        weights: (S,), summing to one.
        new_data: the rows that the cells lie in, where these are not those of the training data.
        seed: of the groups of new rows; draw s uses fold_in(key, s).
    Raises:
        ValueError: new rows, and the model has no `new_cell_probabilities`.
    """
    if new_data is not None and not isinstance(model, TakesNewRowsOfCategories):
        raise lacks(model, TakesNewRowsOfCategories, "new_rows")
    if new_data is not None:
        total = np.zeros((cells[0].size, len(model.values)))
        for where, per_draw in probabilities_of_draws(model, data, draws, cells, new_data, seed):
            total += np.tensordot(weights[where], per_draw, axes=1)
        return total
    model, draws, rows, columns = prediction.narrowed(model, data, draws, *cells)
    rows, columns = filled_sizes.filled_cells(rows, columns)

    def program(block: Draw, block_weights: np.ndarray) -> Array:
        return _summed(model, block, block_weights, data, rows, columns)

    # one draw at a time is on the device, so that blocks may be of this many whatever their size
    size = -(-draw_blocks.BLOCK_SIZE // _SUMMED_DRAWS)
    return draw_blocks.weighted_sum(program, draws, weights, size)[: cells[0].size]


@jit
def _summed(
    model: HasCategories[Container],
    draws: Draw,
    weights: Array,
    data: Container,
    rows: Array,
    columns: Array,
) -> Array:
    return draw_blocks.sum_over_block(
        lambda draw: model.cell_probabilities(draw, data, rows, columns), draws, weights
    )


def probabilities_of_draws(
    model: Model,
    data: Container,
    draws: dict[str, np.ndarray],
    cells: tuple[np.ndarray, np.ndarray],
    new_data: Container | None = None,
    seed: int = 0,
) -> Iterator[tuple[slice, np.ndarray]]:
    """The probability of every value of M cells for every draw, block by block: (B, M, V) float."""
    rows, columns = cells
    if new_data is None:
        model, draws, rows, columns = prediction.narrowed(model, data, draws, rows, columns)
    else:
        new_data = filled_sizes.filled_rows(model, new_data)

    def evaluate(block: object, indices: np.ndarray) -> PyTree:
        if new_data is None:
            return _probabilities(model, block, data, rows, columns)
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(indices)
        return _new_row_probabilities(model, keys, block, data, new_data, rows, columns)

    size = draw_blocks.kept_size(draws) + 64 * rows.size
    yield from draw_blocks.over_draws(evaluate, draws, size)


def mixture(
    probabilities: np.ndarray, values: np.ndarray, *, num_draws: int | None, seed: int
) -> CellMixture:
    """Moments and draws of cells with these distributions.

    Args:
        probabilities: (M, V) float.
        values: (V,) float.
        num_draws: how many draws of each cell; by default 1,000, fewer when the cells are many.
    """
    num_cells = probabilities.shape[0]
    if num_draws is None:
        num_draws = int(np.clip(_DRAWS_SIZE // max(1, num_cells), 100, 1_000))
    mean = probabilities @ values
    variance = np.sum(probabilities * (values - mean[:, None]) ** 2, axis=1)
    ends = np.cumsum(probabilities, axis=1)
    generator = np.random.default_rng([seed, 1])
    draws = np.empty((num_draws, num_cells), np.float32)
    for index in range(num_draws):
        uniforms = generator.random(num_cells) * ends[:, -1]
        chosen = np.minimum((ends <= uniforms[:, None]).sum(axis=1), values.size - 1)
        draws[index] = values[chosen]
    return CellMixture(mean=mean, variance=variance, draws=draws)


def quantiles(
    probabilities: np.ndarray, values: np.ndarray, levels: tuple[float, ...]
) -> np.ndarray:
    """The smallest value whose probability up to it reaches each level: (Q, M)."""
    ends = np.cumsum(probabilities, axis=1)
    indices = [(ends < level * ends[:, -1:]).sum(axis=1) for level in levels]
    return values[np.minimum(np.array(indices), values.size - 1)]


def log_density(probabilities: np.ndarray, values: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """log p of observed values (M,); -inf where one is none of the values."""
    # the nearest one: what was kept in 32 bits may lie on either side of its value
    above = np.searchsorted(values, observed).clip(0, values.size - 1)
    below = np.maximum(above - 1, 0)
    is_below = np.abs(values[below] - observed) < np.abs(values[above] - observed)
    indices = np.where(is_below, below, above)
    inside = np.isclose(values[indices], observed)
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities[np.arange(observed.size), indices])
    return np.where(inside, logs, -np.inf)
