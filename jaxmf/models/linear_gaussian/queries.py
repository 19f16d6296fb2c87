"""What a draw of the linear-Gaussian model says: features, cells, rows not seen in training.

A draw is the dictionary that a chain records. Missing cells of the training data are left out of
every formula, not imputed: the columns of Y are independent given Z, and a column is informed by
the rows that are observed in it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.data import Dense
from jaxmf.likelihoods import gaussian
from jaxmf.model import Pair
from jaxmf.samplers import new_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowPrior, Scales, row_prior
from jaxmf.samplers.new_rows import NewRow
from jaxmf.types import Array, Key


class FeaturePosterior(NamedTuple):
    """Y given a draw and the observed cells."""

    mean: Array  # (K, D) float
    # (D, K, K) float, covariance of each column over the noise variance; (1, K, K) where nothing is
    # missing and all columns have the same
    spread: Array


def feature_posterior(z: Array, data: Dense, scales: Scales) -> FeaturePosterior:
    """The Gaussian posterior of Y given Z (N, K) and the observed cells."""
    if data.observed is None:
        gram, cross = gaussian.gram_statistics(z, data.values)
        spread, mean = gaussian.row_posterior(gram, cross, scales.ratio)
        return FeaturePosterior(mean=mean, spread=spread[None])
    z_float = z.astype(data.values.dtype)

    def column(x: Array, seen: Array) -> tuple[Array, Array]:
        z_seen = z_float * seen[:, None]
        cross = (z_seen.T @ x)[:, None]
        spread, mean = gaussian.row_posterior(z_seen.T @ z_seen, cross, scales.ratio)
        return mean[:, 0], spread

    mean, spread = jax.lax.map(
        lambda pair: column(*pair), (data.values.T, data.observed.T), batch_size=64
    )
    return FeaturePosterior(mean=mean.T, spread=spread)


def features(posterior: FeaturePosterior, scales: Scales) -> Pair:
    """Mean and standard deviation of Y, each (K, D)."""
    variances = jnp.diagonal(posterior.spread, axis1=1, axis2=2).T
    return posterior.mean, jnp.broadcast_to(
        scales.noise * jnp.sqrt(variances), posterior.mean.shape
    )


def cells(
    posterior: FeaturePosterior, z: Array, rows: Array, columns: Array, scales: Scales
) -> tuple[Array, Array]:
    """Predictive mean and variance of the cells (rows[m], columns[m]), noise included: (M,)."""
    z_float = z[rows].astype(posterior.mean.dtype)
    mean = jnp.sum(z_float * posterior.mean[:, columns].T, axis=1)
    if posterior.spread.shape[0] == 1:
        inflation = jnp.einsum("mk,kl,ml->m", z_float, posterior.spread[0], z_float)
    else:
        inflation = jnp.einsum("mk,mkl,ml->m", z_float, posterior.spread[columns], z_float)
    return mean, scales.noise_variance * (1 + inflation)


def draw_new_row(
    key: Key,
    posterior: FeaturePosterior,
    conditional: RowPrior,
    x: Array,
    seen: Array | None,
    scales: Scales,
    *,
    always_on: Array,
) -> NewRow:
    """The features of a further row x (D,) given a draw; its own new features are summed out.

    Args: conditional: prior of the row, as one more customer; x (D,) float; seen (D,) bool, or None
    when all cells are observed; always_on (K,) bool, the bias slot.
    """

    def log_weights(z: Array) -> Array:
        return _new_row_log_weights(z, posterior, conditional, x, seen, scales)

    return new_rows.draw_new_row(key, log_weights, conditional, always_on=always_on)


def _new_row_log_weights(
    z: Array,
    posterior: FeaturePosterior,
    conditional: RowPrior,
    x: Array,
    seen: Array | None,
    scales: Scales,
) -> Array:
    """Log weights (J,) of a setting z (K,) bool together with 0 ... J - 1 new features."""
    z_float = z.astype(x.dtype)
    inflation = jnp.einsum("k,dkl,l->d", z_float, posterior.spread, z_float)
    counts = jnp.arange(new_rows.MOST_NEW_FEATURES, dtype=x.dtype)
    squared_error = (x - z_float @ posterior.mean) ** 2
    weight = jnp.ones_like(x) if seen is None else seen.astype(x.dtype)
    log_likelihood = gaussian.log_normal_row(
        squared_error, 1 + inflation + counts[:, None] / scales.ratio, 1.0, scales.noise_variance
    )
    return new_rows.log_prior_of_settings(z, conditional) + log_likelihood @ weight


def draw_new_rows(
    key: Key,
    posterior: FeaturePosterior,
    prior: FeaturePrior,
    z: Array,
    scales: Scales,
    new_data: Dense,
    *,
    num_fixed: int,
) -> NewRow:
    """`draw_new_row` for every row of `new_data`, each as the customer after the N of Z (N, K)."""
    counts = jnp.sum(z, axis=0, dtype=new_data.values.dtype)
    conditional = row_prior(prior, counts, z.shape[0] + 1, num_fixed=num_fixed)
    always_on = jnp.arange(z.shape[1]) < num_fixed
    return new_rows.over_rows(
        lambda row_key, row: draw_new_row(
            row_key, posterior, conditional, row[0], row[1], scales, always_on=always_on
        ),
        key,
        (new_data.values, new_data.observed),
    )


def new_row_moments(
    posterior: FeaturePosterior, rows: NewRow, scales: Scales
) -> tuple[Array, Array]:
    """Predictive mean and variance of all cells of drawn new rows, each (N_new, D)."""
    z_float = rows.z.astype(posterior.mean.dtype)
    inflation = jnp.einsum("nk,dkl,nl->nd", z_float, posterior.spread, z_float)
    inflation = inflation + rows.num_new[:, None] / scales.ratio
    mean = z_float @ posterior.mean
    return mean, jnp.broadcast_to(scales.noise_variance * (1 + inflation), mean.shape)
