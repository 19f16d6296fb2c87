"""The weights W of X ~ f(U W V') given U and V.

- Gaussian cells, nothing missing: the eigendecompositions of `likelihoods/bilinear.py`.
- Gaussian with missing cells, logistic, diagonal W: the normal distribution of the weights given
  normal terms exp(linear eta - precision eta^2 / 2) of the observed cells, from the matrix A'OmegaA
  over pairs of features; Omega destroys the Kronecker form. Where the pairs are many, the rows of W
  are drawn one at a time. For the logistic likelihood the precisions are
  Polya-Gamma variables (Polson, Scott & Windle 2013).
- Poisson: every count is split among the base rate and the pairs (k, l) by a multinomial draw; then
  W_kl ~ Gamma(shape + counts of the pair, rate + observed cells of the pair).

Source: Meeds, Ghahramani, Neal & Roweis (2006), section 3.1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxmf import row_shards, slots
from jaxmf._kernels.linalg import after
from jaxmf._kernels.special import binomial
from jaxmf.likelihoods import bilinear
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.likelihoods.gaussian import (
    anew_unless,
    piece_start,
    pivots_have_digits,
    spectrum_of_gram,
)
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.samplers.polya_gamma import mean_polya_gamma, polya_gamma
from jaxmf.types import Array, Key

_ROWS_A_PIECE = 2048
# What must be left of a pivot, in machine epsilons: answers then have an error of a hundredth.
_FEWEST_OF_PIVOT = 128.0
MOST_PAIRS = 400  # up to this many pairs of features a draw of all of W is cheap


def draw_weights(
    key: Key,
    u: Array,
    v: Array,
    weights: Array,
    x: Array,
    observed: Array | None,
    *,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    row_exists: Array,
    column_exists: Array,
    jointly: bool = False,
    expected: bool = False,
) -> Array:
    """W (K, L) given U, V and the observed cells of X.

    Args:
      u: (I, K) bool.
      v: (J, L) bool.
      weights: (K, L) float, as they are; the logistic and Poisson draws start from them.
      x: (I, J) float.
      observed: (I, J) bool, or None when nothing is missing.
      row_exists, column_exists: (K,) and (L,) bool, the slots that are features.
      jointly: draw all of W at once rather than row by row, where it depends on normal terms of
        the cells. It must not change when slots are added, or a step repeated with more of them
        would make other choices.
    Returns:
      (K, L) float, zero where there is no weight.
    """
    there = weight_prior.there(row_exists, column_exists)
    if isinstance(likelihood, Poisson):
        drawn = _draw_positive(key, u, v, weights, x, observed, likelihood, weight_prior)
    elif isinstance(likelihood, Gaussian) and observed is None and not weight_prior.diagonal:
        drawn = bilinear.draw_weights(
            key,
            u,
            v,
            x,
            noise_scale=likelihood.noise_scale,
            weight_scale=weight_prior.scale,
            weight_mean=weight_prior.mean,
        )
    else:
        terms = normal_terms(
            None if expected else jax.random.fold_in(key, 0),
            u,
            v,
            weights,
            x,
            observed,
            likelihood=likelihood,
        )
        weights_key = jax.random.fold_in(key, 1)
        if jointly or weight_prior.diagonal:
            conditional = weight_conditional(u, v, terms, weight_prior=weight_prior)
            drawn = sample_weights(weights_key, conditional)
        else:
            drawn = _draw_by_rows(weights_key, u, v, weights, terms, weight_prior)
    return jnp.where(there, drawn, 0)


class NormalTerms(NamedTuple):
    """A term exp(linear eta - precision eta^2 / 2) of each cell, both (I, J) float."""

    precision: Array
    linear: Array


def normal_terms(
    key: Key | None,
    u: Array,
    v: Array,
    weights: Array,
    x: Array,
    observed: Array | None,
    *,
    likelihood: Likelihood,
) -> NormalTerms:
    """The normal terms of the cells, zero where a cell is missing.

    Those of the logistic likelihood depend on Polya-Gamma variables, drawn here given the weights;
    without a key they are their means.
    """
    if isinstance(likelihood, Gaussian):
        precision = jnp.full(x.shape, likelihood.noise_scale**-2, x.dtype)
        linear = precision * x
    else:
        eta = u.astype(x.dtype) @ weights @ v.T.astype(x.dtype)
        precision = mean_polya_gamma(eta) if key is None else polya_gamma(key, eta)
        linear = x - 0.5
    if observed is not None:
        precision = jnp.where(observed, precision, 0)
        linear = jnp.where(observed, linear, 0)
    return NormalTerms(precision=precision, linear=linear)


class WeightConditional(NamedTuple):
    """The normal distribution of W given normal terms of the cells."""

    mean: Array  # (K, L) float
    # (K L, K L) float, lower Cholesky factor of the precision matrix of W, row by row; for a
    # diagonal W (K, K), that of its diagonal
    factor: Array


def weight_conditional(
    u: Array, v: Array, terms: NormalTerms, *, weight_prior: WeightPrior
) -> WeightConditional:
    """The distribution of W given U (I, K), V (J, L) and normal terms of the cells.

    vec W ~ N(P^-1 (A' linear + phi w0), P^-1), P = A' diag(precision) A + phi I, A = U (x) V,
    phi = 1 / weight_scale^2. Free slots are columns of zeros and keep the prior.
    """
    u_float, v_float = u.astype(terms.linear.dtype), v.astype(terms.linear.dtype)
    phi = weight_prior.scale**-2
    data_side = u_float.T @ terms.linear @ v_float
    gram = _weighted_gram(u_float, v_float, terms.precision, diagonal=weight_prior.diagonal)
    prior_mean = jnp.broadcast_to(jnp.asarray(weight_prior.mean, gram.dtype), data_side.shape)
    if weight_prior.diagonal:
        data_side, prior_mean = jnp.diagonal(data_side), jnp.diagonal(prior_mean)
    data_side, prior_mean = data_side.ravel(), prior_mean.ravel()
    precision = gram + phi * jnp.eye(gram.shape[0], dtype=gram.dtype)
    factor = jnp.linalg.cholesky(precision)
    mean, factor = anew_unless(
        pivots_have_digits(factor, precision, fewest=_FEWEST_OF_PIVOT),
        lambda no: _conditional_of_any_prior(jnp.where(no, 0, gram), data_side, prior_mean, phi),
        (cho_solve((factor, True), data_side + phi * prior_mean), factor),
    )
    matrix = jnp.diag(mean) if weight_prior.diagonal else mean.reshape(u.shape[1], v.shape[1])
    return WeightConditional(mean=matrix, factor=factor)


def _conditional_of_any_prior(
    gram: Array, data_side: Array, prior_mean: Array, phi: Array
) -> tuple[Array, Array]:
    """Mean (P,) and factor of the precision matrix (P, P), by the eigenvectors of A' Omega A.

    Where features depend on each other it has zeros among its eigenvalues, and beside them phi may
    be less than the rounding of the largest one: a Cholesky decomposition then has no digits, or is
    not finite. Here the zeros stand out, and keep the prior.
    """
    eigenvalues, vectors, inverse = spectrum_of_gram(gram)
    is_above = inverse > 0
    precision = jnp.where(is_above, eigenvalues, 0) + phi
    gap = jnp.where(is_above, vectors.T @ (data_side - gram @ prior_mean), 0)
    root = jnp.linalg.qr(jnp.sqrt(precision)[:, None] * vectors.T, mode="r")
    return prior_mean + vectors @ (gap / precision), root.T


def _weighted_gram(u: Array, v: Array, precision: Array, *, diagonal: bool) -> Array:
    """A' diag(precision) A over pairs of features, by pieces of rows: O(I J L^2 + I K^2 L^2)."""
    num_slots = u.shape[1]
    v_pairs = (v[:, :, None] * v[:, None, :]).reshape(v.shape[0], -1)
    shape = (num_slots**2,) if diagonal else (num_slots**2, v.shape[1] ** 2)

    def sum_over(u: Array, precision: Array, v_pairs: Array) -> Array:
        num_rows = u.shape[0]
        size = min(_ROWS_A_PIECE, num_rows)

        def add_piece(piece: Array, total: Array) -> Array:
            start, first = piece_start(piece, size, num_rows)
            fresh = start + jnp.arange(size) >= first
            some = jax.lax.dynamic_slice_in_dim(u, start, size) * fresh[:, None]
            seen = jax.lax.dynamic_slice_in_dim(precision, start, size) @ v_pairs
            u_pairs = (some[:, :, None] * some[:, None, :]).reshape(size, -1)
            return total + (jnp.sum(u_pairs * seen, axis=0) if diagonal else u_pairs.T @ seen)

        return jax.lax.fori_loop(0, -(-num_rows // size), add_piece, jnp.zeros(shape, u.dtype))

    total = row_shards.sum_over_rows(sum_over, (u, precision), v_pairs)
    if diagonal:
        return total.reshape(num_slots, num_slots)
    pairs = total.reshape(num_slots, num_slots, v.shape[1], v.shape[1])
    return pairs.transpose(0, 2, 1, 3).reshape(num_slots * v.shape[1], -1)


def sample_weights(key: Key, conditional: WeightConditional) -> Array:
    """W (K, L) from its conditional distribution."""
    num_rows, num_columns = conditional.mean.shape
    noise = after(
        slots.normals(key, num_rows, num_columns, conditional.mean.dtype), conditional.mean
    )
    solve = jax.scipy.linalg.solve_triangular
    if conditional.factor.shape[0] < conditional.mean.size:  # diagonal
        return conditional.mean + jnp.diag(
            solve(conditional.factor, jnp.diagonal(noise), lower=True, trans=1)
        )
    return conditional.mean + solve(conditional.factor, noise.ravel(), lower=True, trans=1).reshape(
        noise.shape
    )


def _draw_by_rows(
    key: Key, u: Array, v: Array, weights: Array, terms: NormalTerms, weight_prior: WeightPrior
) -> Array:
    """The rows of W one after another, in a fresh random order: O(I J K + K (J L^2 + L^3))."""
    dtype = terms.linear.dtype
    u_float, v_float = u.astype(dtype), v.astype(dtype)
    num_slots, num_columns = weights.shape
    phi = weight_prior.scale**-2
    prior_side = phi * jnp.broadcast_to(weight_prior.mean, weights.shape)
    noise = slots.normals(jax.random.fold_in(key, 0), num_slots, num_columns, dtype)
    order = jnp.argsort(jax.random.uniform(jax.random.fold_in(key, 1), (num_slots,), dtype))
    seen = u_float.T @ terms.precision  # (K, J): the precision that reaches each row of W
    solve = jax.scipy.linalg.solve_triangular

    def visit(column: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        weights, residual = carry
        k = order[column]
        gram = (v_float * seen[k][:, None]).T @ v_float + phi * jnp.eye(num_columns, dtype=dtype)
        factor = jnp.linalg.cholesky(gram)
        contribution = v_float @ weights[k]
        right_side = (u_float[:, k] @ residual + seen[k] * contribution) @ v_float + prior_side[k]
        half = solve(factor, right_side, lower=True) + noise[k]
        new = solve(factor, half, lower=True, trans=1)
        change = u_float[:, k, None] * (v_float @ (new - weights[k]))
        return weights.at[k].set(new), residual - terms.precision * change

    residual = terms.linear - terms.precision * (u_float @ weights @ v_float.T)
    return jax.lax.fori_loop(0, num_slots, visit, (weights, residual))[0]


def _draw_positive(
    key: Key,
    u: Array,
    v: Array,
    weights: Array,
    x: Array,
    observed: Array | None,
    likelihood: Poisson,
    weight_prior: WeightPrior,
) -> Array:
    """Gamma weights of Poisson counts, by splitting the counts (streams 0 and 1 of the key)."""
    u_float, v_float = u.astype(x.dtype), v.astype(x.dtype)
    counts = _split_counts(key, u_float, v_float, weights, x, observed, likelihood.base_rate)
    seen = v_float if observed is None else observed.astype(x.dtype) @ v_float
    exposure = (
        jnp.outer(jnp.sum(u_float, axis=0), jnp.sum(v_float, axis=0))
        if observed is None
        else u_float.T @ seen
    )
    return WeightPrior.positive_gammas(
        jax.random.fold_in(key, 2), weight_prior.shape + counts, weight_prior.rate + exposure
    )


def _split_counts(
    key: Key,
    u: Array,
    v: Array,
    weights: Array,
    x: Array,
    observed: Array | None,
    base_rate: Array,
) -> Array:
    """Counts (K, L) of the pairs of features, the base rate's share left out.

    x_ij is split among the base rate and the features k of its row with means u_ik (W V')_kj, by
    one binomial draw a feature; the totals over rows are then split among l.
    """
    left = x if observed is None else jnp.where(observed, x, 0)
    basis = weights @ v.T
    rate = base_rate + u @ basis

    def split_rows(k: Array, _: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        left, rate, totals = carry
        contribution = u[:, k, None] * basis[k]
        share = jnp.clip(contribution / jnp.maximum(rate, jnp.finfo(x.dtype).tiny), 0, 1)
        drawn = binomial(jax.random.fold_in(jax.random.fold_in(key, 0), k), left, share)
        # what is left has at least the base rate, whatever rounding says
        return (
            left - drawn,
            jnp.maximum(rate - contribution, base_rate),
            totals.at[k].set(drawn.sum(0)),
        )

    start = (left, rate, jnp.zeros_like(basis))
    order = jnp.arange(u.shape[1], dtype=x.dtype)
    totals = slots.visit(split_rows, start, order=order, allowed=jnp.any(u, axis=0))[2]

    contribution = weights.T[:, :, None] * v.T[:, None, :]
    # sums from the first feature up to each: the share of the first one there is exactly one
    upto = jnp.cumsum(contribution, axis=0)

    def split_columns(column: Array, _: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        left, counts = carry
        share = contribution[column] / jnp.where(upto[column] > 0, upto[column], 1)
        keys = jax.vmap(
            lambda k: jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 1), column), k)
        )(jnp.arange(u.shape[1]))
        drawn = jax.vmap(binomial)(keys, left, jnp.clip(share, 0, 1))
        return left - drawn, counts.at[:, column].set(drawn.sum(1))

    nothing = jnp.zeros_like(weights)
    from_last = -jnp.arange(v.shape[1], dtype=x.dtype)
    in_use = jnp.any(v, axis=0)
    return slots.visit(split_columns, (totals, nothing), order=from_last, allowed=in_use)[1]
