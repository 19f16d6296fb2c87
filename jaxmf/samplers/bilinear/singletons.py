"""Singletons, the features that only one row has, and their weights, given the shared features.

Gaussian cells: the number of singletons of each row from its exact sum, the new rows of W summed
out, in place of equation 8; other cells: numbers and weights proposed from the prior, accepted row
by row.

Source: Meeds, Ghahramani, Neal & Roweis (2006), section 3.2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf import slots
from jaxmf._kernels.linalg import after
from jaxmf._kernels.special import accepts, poisson
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear.side import BilinearSide
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.samplers.feature_layout import FeaturePrior, RowPrior, Scales, draws_of_rows
from jaxmf.samplers.parallel_bits import hand_out, prior_of_rows
from jaxmf.types import Array, Key


def draw_singletons(
    key: Key,
    side: BilinearSide,
    *,
    prior: FeaturePrior,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    column_exists: Array,
    num_fixed: int = 0,
) -> tuple[Array, Array, Array]:
    """The singletons of every row and their rows of W, given the features that rows share.

    Given the shared features, the numbers of features that only one row has are independent
    Poisson variables, each times the likelihood of its row. Gaussian cells: the number is drawn
    from its exact sum with the new rows of W summed out, then these. Otherwise number and weights
    are proposed from the prior, as a set, and accepted by the likelihood ratio (equation 8).

    Returns u, weights, and () int32: how many more slots were needed at least.
    """
    counts = jnp.sum(side.u, axis=0, dtype=side.x.dtype)
    conditional = prior_of_rows(prior, counts, side.u.shape[0], num_fixed=num_fixed)
    options: dict[str, Any] = {"weight_prior": weight_prior, "column_exists": column_exists}
    if isinstance(likelihood, Gaussian):
        u, weights, shortage = _draw_singletons_exactly(
            key, side, conditional, likelihood=likelihood, **options
        )
    else:
        u, weights, shortage = _propose_singletons(
            key, side, conditional, likelihood=likelihood, **options
        )
    gone = conditional.free & ~jnp.any(u, axis=0)
    return u, slots.release(weights, gone, axis=0), shortage


def _propose_singletons(
    key: Key,
    side: BilinearSide,
    conditional: RowPrior,
    *,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    column_exists: Array,
) -> tuple[Array, Array, Array]:
    """Singletons proposed from the prior in slots that nobody uses, accepted row by row."""
    u, v, weights, x, observed = side
    free = conditional.free
    rows = jnp.arange(u.shape[0])
    row_keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
    num_new = jax.vmap(lambda key: poisson(jax.random.fold_in(key, 0), conditional.rate))(row_keys)
    uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (), x.dtype))(
        row_keys
    )
    bits, claim = hand_out(~free | jnp.any(u, axis=0), num_new)
    new_key = jax.random.fold_in(key, u.shape[0])
    drawn = weight_prior.sample(new_key, *weights.shape)
    drawn = jnp.where(claim.claimed[:, None] & column_exists, drawn, 0)
    shared = u & ~free
    proposed = shared | bits
    proposed_weights = jnp.where(claim.claimed[:, None], drawn, weights)
    v_float = v.T.astype(x.dtype)
    eta = proposed.astype(x.dtype) @ (proposed_weights @ v_float)
    gain = likelihood.log_kernel_of_rows(x, eta, observed)
    gain = gain - likelihood.log_kernel_of_rows(x, u.astype(x.dtype) @ side.basis, observed)
    accepted = accepts(uniform, gain)
    return jnp.where(accepted[:, None], proposed, u), proposed_weights, claim.shortage


class _SingletonFit(NamedTuple):
    """Residuals of each row given its shared features, projected by V."""

    cross: Array  # (I, L) float, V'e over the observed cells
    # (I, L) float, or (L,) where nothing is missing, eigenvalues of V'V over the observed cells
    values: Array
    vectors: Array  # (I, L, L) or (L, L) float
    squares: Array  # (I,) float, |e|^2
    num_observed: Array  # (I,) float


def _singleton_fit(side: BilinearSide, shared: Array) -> _SingletonFit:
    _, v, _, x, observed = side
    v_float = v.astype(x.dtype)
    error = x - shared.astype(x.dtype) @ side.basis
    if observed is None:
        grams = v_float.T @ v_float
        num_observed = jnp.full(x.shape[:1], x.shape[1], x.dtype)
    else:
        error = jnp.where(observed, error, 0)
        pairs = (v_float[:, :, None] * v_float[:, None, :]).reshape(v.shape[0], -1)
        grams = (observed.astype(x.dtype) @ pairs).reshape(-1, v.shape[1], v.shape[1])
        num_observed = jnp.sum(observed, axis=1, dtype=x.dtype)
    # after the weights: one decomposition at a time
    values, vectors = jnp.linalg.eigh(after(grams, side.weights))
    return _SingletonFit(
        cross=error @ v_float,
        values=jnp.maximum(values, 0),
        vectors=vectors,
        squares=jnp.sum(error**2, axis=1),
        num_observed=num_observed,
    )


def _draw_singletons_exactly(
    key: Key,
    side: BilinearSide,
    conditional: RowPrior,
    *,
    likelihood: Gaussian,
    weight_prior: WeightPrior,
    column_exists: Array,
) -> tuple[Array, Array, Array]:
    """The numbers of singletons from their sums; then the sum of their weights, then these.

    Given their number n, the singletons of a row add V s to it, s ~ N(n w0, n scale^2 I): its
    covariance is noise^2 I + n scale^2 V V'. Given s the n rows of W are exchangeable normals
    with that sum.
    """
    u, _, weights, x, _ = side
    dtype = x.dtype
    free = conditional.free
    shared = u & ~free
    fit = _singleton_fit(side, shared)
    by_row = None if side.observed is None else 0
    axes: Any = (0, by_row, by_row, 0, 0)
    mean = jnp.where(column_exists, weight_prior.mean, 0).astype(dtype)
    draws = draws_of_rows(
        jax.random.fold_in(key, 0), jnp.arange(u.shape[0]), u.shape[1], None, dtype
    )
    scales = Scales(noise=likelihood.noise_scale, feature=weight_prior.scale)
    log_weights, cut_off = jax.vmap(
        lambda fit: _count_log_weights(fit, mean, conditional.rate, scales, u.shape[1] + 1),
        in_axes=(_SingletonFit(*axes),),
    )(fit)
    num_new = jax.vmap(feature_rows.draw_index)(draws.num_new, log_weights)
    bits, claim = hand_out(~free, num_new)

    row_normals = slots.normals(jax.random.fold_in(key, 1), u.shape[0], fit.cross.shape[1], dtype)
    sums = jax.vmap(
        lambda fit, count, normal: _draw_sum(fit, count, normal, mean, scales),
        in_axes=(_SingletonFit(*axes), 0, 0),
    )(fit, num_new.astype(dtype), row_normals)
    slot_normals = weight_prior.scale * slots.normals(
        jax.random.fold_in(key, 2), u.shape[1], weights.shape[1], dtype
    )
    bits_float = bits.astype(dtype)
    share = (sums - bits_float @ slot_normals) / jnp.maximum(num_new, 1)[:, None]
    drawn = slot_normals + bits_float.T @ share
    drawn = jnp.where(claim.claimed[:, None] & column_exists, drawn, 0)
    weights = jnp.where(free[:, None], drawn, weights)
    return shared | bits, weights, jnp.maximum(claim.shortage, jnp.any(cut_off))


def _count_log_weights(
    fit: _SingletonFit, mean: Array, rate: Array, scales: Scales, num_candidates: int
) -> tuple[Array, Array]:
    """Log weights of n = 0, 1, ... singletons of a row, and whether the sum was cut off.

    n adds n V w0 to the mean of the row; along the eigenvector l of V'V, whose eigenvalue is t,
    its variance is noise^2 (1 + n t / r), in all other directions noise^2.
    """
    num_new = jnp.arange(num_candidates, dtype=mean.dtype)[:, None]
    turned_cross, turned_mean = fit.vectors.T @ fit.cross, fit.vectors.T @ mean
    seen = fit.values > jnp.finfo(mean.dtype).eps * 64 * jnp.maximum(jnp.max(fit.values), 1)
    safe = jnp.where(seen, fit.values, 1)
    along = jnp.where(seen, (turned_cross - num_new * fit.values * turned_mean) ** 2 / safe, 0)
    across = fit.squares - jnp.sum(along[0])
    inflation = 1 + num_new * fit.values / scales.ratio
    constant = -0.5 * (
        fit.num_observed * jnp.log(2 * jnp.pi * scales.noise_variance)
        + across / scales.noise_variance
    )
    terms = jnp.log(inflation) + along / (inflation * scales.noise_variance)
    log_poisson, log_tail = feature_rows.log_poisson_terms(
        jnp.asarray(rate, mean.dtype), num_candidates
    )
    log_weights = log_poisson + constant - 0.5 * jnp.sum(terms, axis=1)
    # beyond the last candidate each direction is at most its best over larger inflations; with a
    # mean that grows along, the squares are at best nothing
    last = 1 + num_candidates * fit.values / scales.ratio
    still = jnp.all(mean == 0)
    squares = jnp.where(still, along[0] / scales.noise_variance, 0)
    best = jnp.maximum(last, squares)
    log_beyond = log_tail + constant - 0.5 * jnp.sum(jnp.log(best) + squares / best)
    return log_weights, feature_rows.cut_off(
        log_beyond, logsumexp(log_weights), rate, num_candidates
    )


def _draw_sum(
    fit: _SingletonFit, num_new: Array, normal: Array, mean: Array, scales: Scales
) -> Array:
    """The sum (L,) of the rows of W of `num_new` singletons of a row, given the row.

    The square root of its covariance is symmetric, so that the capacity does not enter.
    """
    num_new = jnp.maximum(num_new, 1)
    precision = fit.values / scales.noise_variance + 1 / (num_new * scales.feature**2)
    right_side = fit.cross / scales.noise_variance + mean / scales.feature**2
    turned = (fit.vectors.T @ right_side) / precision + (fit.vectors.T @ normal) / jnp.sqrt(
        precision
    )
    return fit.vectors @ turned
