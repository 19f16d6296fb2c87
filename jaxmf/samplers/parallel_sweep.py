"""A sweep of a linear-Gaussian feature model that keeps Y and samples all rows at once.

For accelerators: every step works on all rows, nothing runs through the rows sequentially. Rows may
be spread over the axis "data" of a mesh: devices then exchange Z'Z, Z'X and the counts of columns,
once for each slot that is visited.

Rows are independent given Y only if the probabilities of the features are drawn too, and a sweep
that could empty a column without being able to make one would leave no Indian buffet process
invariant. So: draw Y and the probabilities; draw the bits of all rows together, refusing for each
column a change that would empty it; then draw the singletons of every row, the features that no
other row has, anew. The last is possible
for all rows at once: given the shared features the numbers of features that only one row has are
independent Poisson variables, each times the likelihood of its row, their rows of Y summed out.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmf import row_shards
from jaxmf._kernels.special import loggamma
from jaxmf.likelihoods import gaussian
from jaxmf.samplers import feature_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowDraws, Scales
from jaxmf.samplers.parallel_bits import (
    flip_bits_of_all_rows,
    hand_out,
    prior_of_rows,
    spread_draws,
)
from jaxmf.types import Array, Key


def parallel_sweep(
    key: Key,
    z: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    scales: Scales,
    num_fixed: int = 0,
) -> tuple[Array, Array, Array]:
    """One pass over all rows at once; p(Z, missing cells | observed cells, scales) stays invariant.

    Args, Returns: as `collapsed_sweep`, but how many more slots were needed at least.
    """
    gram, cross = gaussian.gram_statistics(z, x)
    y = draw_features(jax.random.fold_in(key, 0), gram, cross, scales)
    row_key = jax.random.fold_in(key, 1)
    num_columns = None if observed is None else x.shape[1]
    draws = spread_draws(row_key, z, num_columns, x.dtype)
    counts = row_shards.column_counts(z, x.dtype)
    log_odds = draw_log_odds(
        jax.random.fold_in(key, 2), prior, counts, jnp.asarray(z.shape[0], x.dtype)
    )
    z = draw_all_bits(
        log_odds, draws, z, x, observed, y, prior=prior, scales=scales, num_fixed=num_fixed
    )
    return _draw_singletons(
        draws, z, x, observed, y, prior=prior, scales=scales, num_fixed=num_fixed
    )


def draw_features(key: Key, gram: Array, cross: Array, scales: Scales) -> Array:
    """Y (K, D) given Z and X, from Z'Z and Z'X: N(mu, noise variance * M) a column.

    By a Cholesky decomposition, which takes half the time of eigenvectors (64 features, a CPU); by
    these where features repeat each other next to no noise, of which the other makes NaN.
    """
    penalised = gram + scales.ratio * jnp.eye(gram.shape[0], dtype=gram.dtype)
    factor = jnp.linalg.cholesky(penalised)
    normals = jax.random.normal(key, cross.shape, cross.dtype)
    solve = jax.scipy.linalg.solve_triangular
    half = solve(factor, cross, lower=True) + scales.noise * normals
    return gaussian.anew_unless(
        gaussian.pivots_have_digits(factor, penalised),
        lambda no: gaussian.draw_features(jnp.where(no, 0, gram), cross, normals, *scales),
        solve(factor, half, lower=True, trans=1),
    )


def draw_log_odds(key: Key, prior: FeaturePrior, counts: Array, num_rows: Array) -> Array:
    """Log odds (K,) of the probabilities of the features, given their columns."""
    first, second = prior.probability_parameters(counts, num_rows)

    def one(slot: Array, shapes: Array) -> Array:
        return jax.vmap(loggamma)(jax.random.split(jax.random.fold_in(key, slot)), shapes)

    # both in one call, which is compiled once
    drawn = jax.vmap(one)(jnp.arange(counts.shape[0]), jnp.stack([first, second], axis=1))
    return (drawn[:, 0] - drawn[:, 1]).astype(counts.dtype)


def _slopes(z: Array, x: Array, observed: Array | None, y: Array) -> tuple[Array, Array]:
    """Y (x - z Y) of every row (N, K), and Y Y' over its observed cells, (K, K) or (N, K, K)."""
    error = x - z.astype(x.dtype) @ y
    if observed is None:
        return error @ y.T, y @ y.T
    seen = observed.astype(x.dtype)
    return (error * seen) @ y.T, jnp.einsum("nd,kd,ld->nkl", seen, y, y)


def draw_all_bits(
    log_odds: Array,
    draws: RowDraws,
    z: Array,
    x: Array,
    observed: Array | None,
    y: Array,
    *,
    prior: FeaturePrior,
    scales: Scales,
    num_fixed: int,
) -> Array:
    """The bits of all rows given Y, each row in its own order, no column left empty.

    `log_odds` (K,) are those of the probabilities of the features, from `draw_log_odds`.
    """
    slope, curvature = _slopes(z, x, observed, y)
    one = jnp.ones((), x.dtype)
    by_row = None if observed is None else 0

    def propose(
        k: Array, on: Array, sign: Array, slope: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        def log_odds_of_row(on: Array, sign: Array, slope: Array, column: Array, k: Array) -> Array:
            change = -2 * sign * slope[k] + column[k]
            return feature_rows.bit_log_odds(
                on, (jnp.zeros_like(change), change), (one, one), one, scales.noise_variance,
                log_odds[k],
            )  # fmt: skip

        column = jax.vmap(lambda matrix, k: matrix[k], in_axes=(by_row, 0))(curvature, k)
        odds = jax.vmap(log_odds_of_row)(on, sign, slope, column, k)
        return odds, lambda flip: slope - jnp.where(flip, sign, 0)[:, None] * column

    return flip_bits_of_all_rows(draws, z, slope, propose=propose, prior=prior, num_fixed=num_fixed)


def _draw_singletons(
    draws: RowDraws,
    z: Array,
    x: Array,
    observed: Array | None,
    y: Array,
    *,
    prior: FeaturePrior,
    scales: Scales,
    num_fixed: int,
) -> tuple[Array, Array, Array]:
    """The singletons and missing cells of every row, given Y of the features that rows share."""
    num_rows, num_slots = z.shape
    counts = row_shards.column_counts(z, x.dtype)
    conditional = prior_of_rows(prior, counts, num_rows, num_fixed=num_fixed)
    shared = z & ~conditional.free
    fitted = shared.astype(x.dtype) @ y
    error = x - fitted if observed is None else jnp.where(observed, x - fitted, 0)

    def draw_count(
        uniform: Array, squared_error: Array, num_observed: Array
    ) -> tuple[Array, Array]:
        log_weights, cut_off = feature_rows.new_feature_log_weights(
            squared_error,
            jnp.zeros((), x.dtype),
            num_observed,
            rate=conditional.rate,
            ratio=scales.ratio,
            noise_variance=scales.noise_variance,
            num_candidates=num_slots + 1,
        )
        return feature_rows.draw_index(uniform, log_weights), cut_off

    num_observed = (
        jnp.full((num_rows,), x.shape[1], x.dtype)
        if observed is None
        else jnp.sum(observed, axis=1, dtype=x.dtype)
    )
    num_new, cut_off = jax.vmap(draw_count)(draws.num_new, jnp.sum(error**2, axis=1), num_observed)
    bits, claim = hand_out(~conditional.free, num_new)
    z = shared | bits
    if observed is not None and draws.cells is not None:
        deviation = scales.noise * jnp.sqrt(1 + num_new / scales.ratio)
        x = jnp.where(observed, x, fitted + deviation[:, None] * draws.cells)
    return z, x, jnp.maximum(claim.shortage, jnp.any(cut_off))
