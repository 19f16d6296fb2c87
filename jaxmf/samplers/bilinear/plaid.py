"""The collapsed sweep of the plaid model: W diagonal and summed out, the rows of U in turn.

X = sum_k w_k u_k v_k' + noise. All rows share the K weights, so a row is a regression on them: with
D = diag(u_i), Lambda = H + r I of the other rows and omega their mean of w, the observed cells of
row i are N(V_o D omega, s_X^2 (I + V_o D Lambda^-1 D V_o')). Everything about the row is in V_o'x
(K) and V_o'V_o (K, K); a bit costs O(K^3).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf.fusion import fused_on_cpu
from jaxmf.likelihoods import plaid
from jaxmf.linalg import eliminate
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.feature_layout import FeaturePrior, row_draws, row_prior
from jaxmf.types import Array, Key


class PlaidRow(NamedTuple):
    """What the other rows say of w, and what a row brings.

    Attributes:
      precision: (K, K) float, Lambda.
      mean: (K,) float, omega.
      gram: (K, K) float, V_o'V_o over the row's observed cells o.
      cross: (K,) float, V_o'x_o.
    """

    precision: Array
    mean: Array
    gram: Array
    cross: Array


def log_density(row: PlaidRow, u: Array, noise_variance: Array) -> Array:
    """log p(observed cells of the row | its features, the other rows), () up to a constant.

    Args:
      row: the row.
      u: (K,) bool, its features.
      noise_variance: () float.
    """
    bits = u.astype(row.mean.dtype)
    weights = bits * row.mean
    fitted = row.gram @ weights
    precision = row.precision + bits[:, None] * row.gram * bits
    log_determinant, left = eliminate(
        precision, bits * (row.cross - fitted), weights @ (fitted - 2 * row.cross)
    )
    return -0.5 * (log_determinant + left / noise_variance)


def _scan_bits(order, threshold, row, u, noise_variance, prior_log_odds, free_to_move):
    slots = jnp.arange(u.shape[0])

    def visit(_, carry):
        waiting, u, left = carry
        k = jnp.argmin(waiting)
        here = slots == k
        density = log_density(row, u ^ here, noise_variance)
        on = jax.lax.dynamic_index_in_dim(u, k, keepdims=False)
        prior = jax.lax.dynamic_index_in_dim(prior_log_odds, k, keepdims=False)
        log_odds = jnp.where(on, -prior, prior) + density - left
        flip = jax.lax.dynamic_index_in_dim(threshold, k, keepdims=False) < log_odds
        return (
            jnp.where(here, jnp.inf, waiting),
            u ^ (here & flip),
            jnp.where(flip, density, left),
        )

    start = (jnp.where(free_to_move, order, jnp.inf), u, log_density(row, u, noise_variance))
    return jax.lax.fori_loop(0, jnp.sum(free_to_move, dtype=jnp.int32), visit, start)[1]


_scan_bits_fused = fused_on_cpu(_scan_bits)


def collapsed_plaid_sweep(
    key: Key,
    u: Array,
    v: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
    num_fixed: int = 0,
) -> tuple[Array, Array]:
    """One pass over the rows of U; p(U, missing cells | V, observed cells, scales) stays invariant.

    The bits of each row are drawn one after another in a fresh random order, its missing cells
    summed out; then w given everything and, given w, the missing cells. For V call it with x.T,
    observed.T, and u and v exchanged.

    Args:
      key: of the step.
      u: (I, K) bool.
      v: (J, K) bool; layer k is the pair of the k-th columns of u and v.
      x: (I, J) float, missing cells imputed.
      observed: (I, J) bool, or None when nothing is missing.
      prior: of U, with a fixed number of features.
      noise_scale: () float, s_X.
      weight_scale: () float, s_W.
      weight_mean: w0, a number or (K,).
      num_fixed: the first so many slots hold given features, which never change.

    Returns:
      u and x.

    Raises:
      ValueError: with the Indian buffet process, under which features would come without the other
        half of their layer.
    """
    if isinstance(prior, IndianBuffet):
        raise ValueError(
            "a diagonal W pairs the features of rows and columns one by one, so their number must "
            "be fixed: use BetaBernoulli"
        )
    num_rows, num_slots = u.shape
    v_float = v.astype(x.dtype)
    v_gram = v_float.T @ v_float
    ratio = jnp.asarray((noise_scale / weight_scale) ** 2, x.dtype)
    centre = jnp.broadcast_to(jnp.asarray(weight_mean, x.dtype), (num_slots,))
    at = jax.lax.dynamic_index_in_dim
    put = jax.lax.dynamic_update_index_in_dim

    def update(index, carry):
        u, x, gram, cross, counts = carry
        row_key = jax.random.fold_in(key, index)
        u_old, x_old = at(u, index, keepdims=False), at(x, index, keepdims=False)
        leaving = u_old.astype(x.dtype)
        x_cross = x_old @ v_float
        gram = gram - leaving[:, None] * v_gram * leaving
        cross, counts = cross - leaving * x_cross, counts - leaving
        precision = gram + ratio * jnp.eye(num_slots, dtype=x.dtype)
        mean = jax.scipy.linalg.solve(precision, cross + ratio * centre, assume_a="pos")
        row = PlaidRow(precision, mean, v_gram, x_cross)
        if observed is not None:
            seen = at(observed, index, keepdims=False)
            part = jnp.where(seen[:, None], v_float, 0)
            row = row._replace(gram=part.T @ v_float, cross=x_old @ part)
        conditional = row_prior(prior, counts, num_rows, num_fixed=num_fixed)
        drawn = row_draws(row_key, num_slots, None, x.dtype)
        u_new = _scan_bits_fused(
            drawn.order,
            logit(drawn.bits),
            row,
            u_old,
            noise_scale**2,
            conditional.log_odds,
            conditional.movable,
        )
        arriving = u_new.astype(x.dtype)
        if observed is not None:
            drawn_x = draw_cells(row_key, row, arriving, v_float, noise_scale)
            x_new = jnp.where(seen, x_old, drawn_x)
            x, x_cross = put(x, x_new, index, 0), x_new @ v_float
        gram = gram + arriving[:, None] * v_gram * arriving
        return put(u, u_new, index, 0), x, gram, cross + arriving * x_cross, counts + arriving

    start = (u, x, *plaid.design_statistics(u, v, x), jnp.sum(u, axis=0, dtype=x.dtype))
    u, x, *_ = jax.lax.fori_loop(0, num_rows, update, start)
    return u, x


def draw_cells(key: Key, row: PlaidRow, u: Array, v: Array, noise_scale: Array) -> Array:
    """Cells (J,) of a row given its observed ones: w given everything, then the cells given w.

    Args:
      key: of the row.
      row: the row.
      u: (K,) float, its features.
      v: (J, K) float.
      noise_scale: () float.
    """
    dtype = row.mean.dtype
    factor = jnp.linalg.cholesky(row.precision + u[:, None] * row.gram * u)
    side = u * (row.cross - row.gram @ (u * row.mean))
    normals = jax.random.normal(jax.random.fold_in(key, 4), u.shape, dtype)
    solve = jax.scipy.linalg.solve_triangular
    half = solve(factor, side, lower=True) + noise_scale * normals
    weights = row.mean + solve(factor, half, lower=True, trans=1)
    noise = jax.random.normal(jax.random.fold_in(key, 5), (v.shape[0],), dtype)
    return v @ (u * weights) + noise_scale * noise
