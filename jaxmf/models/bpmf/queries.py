"""What a draw of BPMF says: cells, and rows not seen in training.

Questions about new rows are asked of a model whose `row_features` are those of the new rows, see
`BPMF.for_new_rows`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxmf.data import Entries
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.groups import class_of_rows
from jaxmf.models.bpmf.state import Observed, SidePrior
from jaxmf.models.bpmf.updates import linked, row_means, row_precisions
from jaxmf.samplers.factors.coefficients import Coefficients
from jaxmf.samplers.factors.layout import RowPriors, in_chunks
from jaxmf.samplers.factors.rows import draw_rows, log_evidences
from jaxmf.samplers.factors.vectors import Known, cell_means, design, split
from jaxmf.types import Array, Key, PyTree

Draw = dict[str, Array]
# Of latent values and vectors of new rows, from their prior on; cells that are not normal only.
_NUM_SWEEPS = 20


def noise_of(model: BPMFSpec, draw: Draw) -> PyTree:
    """The noise of a draw, as the likelihood has it in a state."""
    if model.is_normal:
        return jnp.asarray(draw["noise_scale"]) ** 2
    return jnp.asarray(draw.get("thresholds", jnp.zeros(0)))


def likelihood_of(model: BPMFSpec, draw: Draw) -> PyTree:
    """The likelihood of a cell at the noise of a draw."""
    return model.cell_noise().at_noise(noise_of(model, draw))


def means_of_cells(
    model: BPMFSpec, draw: Draw, data: Observed, rows: Array, columns: Array
) -> Array:
    """Means of cells given a draw, in units of columns: (M,) float."""
    u, v = jnp.asarray(draw["u"]), jnp.asarray(draw["v"])
    features = jnp.zeros((rows.shape[0], 0), u.dtype)
    if model.cell_features is not None:
        features = model.cell_features.take(rows, columns).astype(u.dtype)
    known = model.known(u.shape[0], v.shape[0], features)
    means = cell_means(u, v, known, rows, columns, num_factors=model.num_factors)
    return _in_units(model, means, data)


def _in_units(model: BPMFSpec, means: Array, data: Observed) -> Array:
    return means * model.unit(data).astype(means.dtype) + model.centre(data).astype(means.dtype)


def cell_moments(
    model: BPMFSpec, draw: Draw, data: Observed, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Predictive mean and variance of cells given a draw, each (M,)."""
    means = means_of_cells(model, draw, data, rows, columns)
    return _moments(model, draw, means, columns)


def _moments(
    model: BPMFSpec, draw: Draw, means: Array, columns: Array | slice = slice(None)
) -> tuple[Array, Array]:
    """Mean and variance of cells in the units of the data, given means in those of columns."""
    mean, variance = likelihood_of(model, draw).moments(means)
    if model.column_noise:
        variance = variance * jnp.asarray(draw["noise_factors"])[columns] ** 2
    if not model.has_column_units:
        return mean, variance
    return model.in_data_units(mean, variance, columns)


def expected_values(model: BPMFSpec, draw: Draw, data: Observed, rows: Array) -> Array:
    """Expected values (R, M) of all cells of some rows, without features of cells."""
    v = jnp.asarray(draw["v"])
    known = _known(model, jnp.asarray(draw["u"]).shape[0], v, 0)
    known = known._replace(rows=known.rows[rows])
    means = _all_means(model, jnp.asarray(draw["u"])[rows], v, known)
    return _moments(model, draw, _in_units(model, means, data))[0]


def group_means(model: BPMFSpec, draw: Draw, data: Observed) -> Array:
    """Expected values (K, M) of all columns for a row at the mean of each group of rows.

    What columns make of features of rows is left out: a group has none.
    """
    mean, v = _group_means(draw), jnp.asarray(draw["v"])
    known = _known(model, jnp.asarray(draw["u"]).shape[0], v, 0)
    known = known._replace(rows=jnp.zeros((mean.shape[0], known.rows.shape[1]), v.dtype))
    means = _in_units(model, _all_means(model, mean, v, known), data)
    return _moments(model, draw, means)[0]


def _group_means(draw: Draw) -> Array:
    """Prior means (G, D) of the vectors of the groups."""
    core, others = jnp.asarray(draw["row_mean"]), _coefficients(draw).mean
    return jnp.concatenate([core, jnp.broadcast_to(others, (len(core), *others.shape))], axis=1)


def _coefficients(draw: Draw) -> Coefficients:
    """The prior of the coefficients in a draw, which lacks it where there are none."""
    nothing = jnp.zeros((0,), jnp.asarray(draw["row_mean"]).dtype)
    found = (draw.get(f"row_coefficient_{name}", nothing) for name in Coefficients._fields)
    return Coefficients(*map(jnp.asarray, found))


def _known(model: BPMFSpec, num_rows: int, v: Array, num_cells: int) -> Known:
    """Features of rows and columns; those of cells are left out, as zeros."""
    known = model.known(num_rows, v.shape[0], jnp.zeros((num_cells, 0), v.dtype))
    width = v.shape[1] - model.num_factors - int(model.bias) - known.rows.shape[1]
    return known._replace(cells=jnp.zeros((num_cells, width), v.dtype))


def _all_means(model: BPMFSpec, u: Array, v: Array, known: Known) -> Array:
    """Means (R, M) of all cells of rows; the vectors of the columns are read as they are."""
    row_parts = split(u, model.num_factors, known.columns.shape[1], known.cells.shape[1])
    left = jnp.concatenate([row_parts.latent, jnp.ones_like(row_parts.bias), known.rows], axis=1)
    rest = jnp.sum(row_parts.bias, axis=1, keepdims=True) + row_parts.others @ known.columns.T
    return left @ v[:, : left.shape[1]].T + rest


def _prior_of_new(draw: Draw, num_rows: int) -> SidePrior:
    """The prior of the vectors of new rows, all in the first group."""
    moments = NormalParameters(jnp.asarray(draw["row_mean"]), jnp.asarray(draw["row_factor"]))
    nothing = jnp.zeros((0, moments.mean.shape[1]), moments.mean.dtype)
    return SidePrior(
        moments=moments,
        groups=jnp.zeros((num_rows,), jnp.int32),
        link=jnp.asarray(draw.get("row_link", nothing)),
        link_precision=jnp.ones((0,), moments.mean.dtype),  # nothing is drawn of it
        coefficients=_coefficients(draw),
    )


def fold_in(
    model: BPMFSpec, key: Key, draw: Draw, data: Observed, new_data: Entries, *, spread: float = 1.0
) -> Array:
    """Vectors (N', D) of new rows given their cells and the columns' vectors.

    One exact draw where cells are normal, of the group of a mixture first; else twenty sweeps over
    latent values and vectors. `spread` multiplies the last draw's deviation: at 0 it is the mean.
    """
    v = jnp.asarray(draw["v"])
    prior = _prior_of_new(draw, new_data.num_rows)
    inverses = row_precisions(model, prior)
    known = _known(model, new_data.num_rows, v, new_data.num_entries)
    meets = design(v, known, model.num_factors)
    cells = new_data.rows, new_data.columns
    chunks = in_chunks(*cells, new_data.shape, inverses.shape[1])
    noise, unit = noise_of(model, draw), model.unit(data)
    values = model.standardised(new_data.values, new_data.columns, data).astype(v.dtype)
    if model.column_noise:
        factors = jnp.asarray(draw["noise_factors"])
        meets, values = meets.over(factors, cells[1]), values / factors[cells[1]]
    shifts, log_shares = linked(model, prior), _log_shares(model, draw, new_data.num_rows)
    if shifts.ndim:
        shifts = jnp.pad(shifts, ((0, 0), (0, inverses.shape[1] - shifts.shape[1])))

    def sweep(index: Array, u: Array) -> Array:
        normals_key, latent_key, group_key = jax.random.split(jax.random.fold_in(key, index), 3)
        targets, precision = values, jnp.ones((), v.dtype)
        if model.is_normal:
            precision = (unit**2 / noise).astype(v.dtype)
        else:
            eta = cell_means(u, v, known, *cells, num_factors=model.num_factors)
            targets = model.cell_noise().latent(latent_key, noise, values, eta)
        seen: dict[str, Any] = {"chunks": chunks, "precision": precision}
        padded = jnp.concatenate([targets, jnp.zeros((1,), v.dtype)])
        row_prior = prior
        if model.row_mixture() is not None:
            log_weights = log_evidences(
                meets, padded, means=_group_means(draw), precisions=inverses, shifts=shifts, **seen
            )
            log_weights += log_shares
            drawn = jax.random.categorical(group_key, log_weights, axis=-1)
            row_prior = prior._replace(groups=drawn.astype(jnp.int32))
        scale = jnp.where(index == last, spread, 1.0)
        normals = scale * jax.random.normal(normals_key, u.shape, u.dtype)
        priors = RowPriors(row_means(model, row_prior), row_prior.groups, inverses)
        return draw_rows(normals, u, meets, padded, priors=priors, **seen)[0]

    last = 0 if model.is_normal else _NUM_SWEEPS - 1
    return jax.lax.fori_loop(0, last + 1, sweep, row_means(model, prior))


def _log_shares(model: BPMFSpec, draw: Draw, num_rows: int) -> Array:
    """Log probabilities of the groups of new rows before their cells are seen: (N', K), or (K,)."""
    if model.row_mixture() is None:
        return jnp.zeros((1,))
    log_weights = jnp.log(jnp.asarray(draw["row_group_weights"]))
    return log_weights[class_of_rows(model, num_rows)[0]] if log_weights.ndim > 1 else log_weights


def row_moments(
    model: BPMFSpec, key: Key, draw: Draw, data: Observed, new_data: Entries
) -> tuple[Array, Array]:
    """Predictive mean and variance, each (N', M), of the cells of rows not seen in training.

    Their vectors are drawn given their observed cells and the columns' vectors, so that a mixture
    over draws is the predictive distribution.
    """
    u = fold_in(model, key, draw, data, new_data)
    known = _known(model, new_data.num_rows, jnp.asarray(draw["v"]), 0)
    means = _all_means(model, u, jnp.asarray(draw["v"]), known)
    return _moments(model, draw, _in_units(model, means, data))


def new_cell_probabilities(
    model: BPMFSpec,
    key: Key,
    draw: Draw,
    data: Observed,
    new_data: Entries,
    rows: Array,
    columns: Array,
) -> Array:
    """Probability of every value of cells of new rows: (M, V) float."""
    u, v = fold_in(model, key, draw, data, new_data), jnp.asarray(draw["v"])
    known = _known(model, new_data.num_rows, v, rows.shape[0])
    means = cell_means(u, v, known, rows, columns, num_factors=model.num_factors)
    return likelihood_of(model, draw).probabilities(means)


def latent_factors(
    model: BPMFSpec, key: Key, draw: Draw, data: Observed, new_data: Entries
) -> Array:
    """Latent factors (N', K) of new rows given a draw: means where cells are normal."""
    u = fold_in(model, key, draw, data, new_data, spread=0.0)
    return u[:, : model.num_factors]
