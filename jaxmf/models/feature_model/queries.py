"""Cells and rows given one draw of a `FeatureModel`: their distributions, and draws from them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.stats import bernoulli, norm, poisson

from jaxmf.data import Dense
from jaxmf.likelihoods.cells.likelihood import sample_counts
from jaxmf.models.feature_model.feature_model_spec import FeatureModelSpec
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.samplers.new_rows import draw_bits, over_rows
from jaxmf.types import Array, Draw, Key

# Numbers that are worked on at once, where a function of whole rows is asked for single cells.
_BLOCK = 2**18

# How a cell with a mean and a variance is scored and drawn, where a function leaves that open.
BY_MOMENTS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "normal": (
        lambda x, mean, variance: norm.logpdf(x, mean, jnp.sqrt(variance)),
        lambda key, mean, variance: (
            mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape, mean.dtype)
        ),
    ),
    "bernoulli": (
        lambda x, mean, variance: jnp.where(
            (x == 0) | (x == 1), bernoulli.logpmf(x, mean), -jnp.inf
        ),
        lambda key, mean, variance: jax.random.bernoulli(key, mean).astype(mean.dtype),
    ),
    "poisson": (
        lambda x, mean, variance: poisson.logpmf(x, mean),
        lambda key, mean, variance: sample_counts(key, mean),
    ),
}


def cell_predictors(model: FeatureModelSpec, draw: Draw, rows: Array, columns: Array) -> Array:
    """Linear predictors of cells, (M,) float."""
    eta = jnp.sum(jnp.where(draw["z"][rows], draw["y"][:, columns].T, 0), axis=1)
    return model.about_offset(eta.astype(jnp.result_type(float)), columns)


def log_density(
    model: FeatureModelSpec, draw: Draw, data: Dense, cells: tuple[Array, Array], values: Array
) -> Array:
    """log p(values[m] | draw) of cells, (M,) float: what the log likelihood itself says of a cell.

    A function that returns one number for a whole row does not say it; its `moments` then do. The
    other cells of a row are as in the data; `check_data` refuses functions for which the missing
    ones matter.

    Args: model: with numbers for its hyperparameters; cells: rows and columns, (M,) each.
    """
    rows, columns = cells
    if model.likelihood is not None:
        eta = cell_predictors(model, draw, rows, columns)
        return model.log_densities_at(values, eta.astype(values.dtype), columns)
    z, y = draw["z"], draw["y"]

    def densities(row: Array, column: Array, value: Array) -> Array:
        x = data.values[row].at[column].set(value.astype(data.values.dtype))
        return model.log_densities(x, z[row], y)

    if jax.eval_shape(densities, rows[0], columns[0], values[0]).ndim:
        return over_cells(
            lambda cell: densities(*cell)[cell[1]], (rows, columns, values), data.values.shape[1]
        )
    moments = model.predict_cells(draw, data, rows, columns)
    return BY_MOMENTS[model.cell_distribution][0](values, *moments)


def over_cells(
    function: Callable[[tuple[Array, ...]], Array], cells: tuple[Array, ...], num_columns: int
) -> Array:
    """A number of every cell, (M,), by a function that goes over its whole row, in small blocks."""
    num_cells = max(1, min(cells[0].shape[0], _BLOCK // num_columns))
    return jax.lax.map(function, cells, batch_size=num_cells)


def draw_cells(
    model: FeatureModelSpec, key: Key, draw: Draw, data: Dense, cells: tuple[Array, Array]
) -> Array:
    """One value of every cell given a draw, (M,) float; arguments as in `log_density`."""
    rows, columns = cells
    if model.likelihood is not None:
        return model.sample_at(key, cell_predictors(model, draw, rows, columns), columns)
    if model.sample_row is not None:
        if rows.shape[0] >= draw["z"].shape[0]:
            return model.simulate_data(key, draw)[rows, columns]
        return over_cells(
            lambda cell: model.simulate_rows(key, draw, cell[0][None])[0, cell[1]],
            (rows, columns),
            data.values.shape[1],
        )
    moments = model.predict_cells(draw, data, rows, columns)
    return BY_MOMENTS[model.cell_distribution][1](key, *moments)


def draw_rows(model: FeatureModelSpec, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
    """One value of every cell of new rows, (N_new, D) float.

    They are drawn given the features, and those given the observed cells: a row whose cells are
    correlated given its features is drawn afresh.
    """
    row_key, cell_key = jax.random.split(key)
    z, _ = new_rows(model, row_key, draw, new_data)
    rows, columns = (index.ravel() for index in jnp.indices(new_data.shape))
    values = draw_cells(model, cell_key, draw | {"z": z}, data, (rows, columns))
    return values.reshape(new_data.shape)


def new_rows(model: FeatureModelSpec, key: Key, draw: Draw, new_data: Dense) -> tuple[Array, Array]:
    """Features drawn for every new row (N_new, K) bool, and their probabilities (N_new, K).

    Features of the row's own are left out: their rows of Y cannot be summed out of a likelihood
    known by its value alone.
    """
    z, y = draw["z"], draw["y"]
    num_fixed = model.first_slot()
    always_on = jnp.arange(z.shape[1]) < num_fixed
    counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
    conditional = row_prior(model.prior, counts, z.shape[0] + 1, num_fixed=num_fixed)

    def new_row(row_key: Key, row: tuple[Array, Array | None]) -> tuple[Array, Array]:
        x, observed = row

        def log_weight(z: Array) -> Array:
            log_prior = jnp.sum(jnp.where(z & conditional.movable, conditional.log_odds, 0))
            return log_prior + model.row_log_likelihood(x, observed, z, y)

        return draw_bits(row_key, log_weight, conditional.movable, always_on=always_on)

    return over_rows(new_row, key, (new_data.values, new_data.observed))
