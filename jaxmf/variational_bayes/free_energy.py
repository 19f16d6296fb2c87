"""The free energy C: an upper bound of -log p(X), to be minimised; pure and differentiable.

    C = sum over cells of F(mean, variance) - x kappa mean  +  sum over parameters of KL(Q || prior)

with the parameter of each cell's bound at its optimum; see `likelihood.py`. Differentiable in all
that stands in `Parameters`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf import row_shards
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Array
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.parameters import Half, Normal, Parameters, half
from jaxmf.variational_bayes.pieces import (
    Layout,
    Pieces,
    PieceTable,
    num_lines,
    num_others,
    sum_over_ones,
)
from jaxmf.variational_bayes.sums import (
    gathered_moments,
    gatherer,
    map_lines,
    piece_mask,
    shared_moments,
    take_lines,
)
from jaxmf.variational_bayes.zeros import All, PerLine, Shared, Zeros, weights_of_others


def free_energy(
    parameters: Parameters, data: Layout, *, zeros: Zeros, likelihood: Likelihood
) -> Array:
    """The free energy for a choice of zeros: exact with all of them, else without bias.

    Args:
      parameters: Q and the hyperparameters.
      data: the matrix.
      zeros: which zeros to go through, as seen from the rows.
      likelihood: `Gaussian` or `Bernoulli`.
    Returns:
      () float.
    """
    return expected_cost(
        parameters, data, zeros=zeros, likelihood=likelihood
    ) + divergence_from_prior(parameters)


def divergence_from_prior(parameters: Parameters) -> Array:
    """KL(Q || prior) of all factors, biases and the intercept: () float."""
    return divergence_of_rows(parameters) + divergence_of_others(parameters)


def divergence_of_rows(parameters: Parameters) -> Array:
    """KL(Q || prior) of the rows' factors and bias: () float."""
    p, priors = parameters, parameters.priors
    total = _divergence(p.rows, priors.rows)
    if p.row_bias is not None:
        total += _divergence(p.row_bias, Normal(jnp.zeros_like(priors.intercept), priors.row_bias))
    return row_shards.add_over_devices(total)


def divergence_of_others(parameters: Parameters) -> Array:
    """KL(Q || prior) of all that does not belong to a row: () float."""
    p, priors = parameters, parameters.priors
    total = _divergence(p.columns, priors.columns)
    nothing = jnp.zeros_like(priors.intercept)
    if p.column_bias is not None:
        total += _divergence(p.column_bias, Normal(nothing, priors.column_bias))
    # an intercept of variance zero is held where it is
    held = p.intercept.variance == 0
    intercept = Normal(p.intercept.mean, jnp.where(held, 1.0, p.intercept.variance))
    return total + jnp.where(held, 0.0, _divergence(intercept, Normal(nothing, priors.intercept)))


def _divergence(q: Normal, prior: Normal) -> Array:
    ratio = q.variance / prior.variance
    return 0.5 * jnp.sum((q.mean - prior.mean) ** 2 / prior.variance + ratio - jnp.log(ratio) - 1)


def expected_cost(
    parameters: Parameters, data: Layout, *, zeros: Zeros, likelihood: Likelihood
) -> Array:
    """Sum over the cells of the bound of E[-log p(x)]: () float; as `free_energy`."""
    view, table = half(parameters, "rows"), data.rows
    noise = parameters.noise
    c = weights_of_others(zeros, table, view.factors.mean.dtype)
    slope = likelihood.slope(noise)
    if isinstance(zeros, All) and isinstance(likelihood, Gaussian):
        total = _all_gaussian(view, table, noise)
    elif isinstance(zeros, PerLine):
        total = _per_line(view, zeros, likelihood, noise)
    else:
        total = _shared(view, zeros, c, likelihood, noise)

    gather = gatherer(view.others)

    def gathered(pieces: Pieces, is_one: float) -> Array:
        def one_chunk(chunk: Pieces) -> Array:
            factors = take_lines(view.factors, chunk.line)
            mean, variance = gathered_moments(factors, gather(chunk.indices), view.intercept)
            there, piece_c = piece_mask(chunk, mean.dtype), c[chunk.indices]
            cost = (is_one - piece_c) * likelihood.cost(mean, variance, noise)
            return jnp.sum(there * (cost - (is_one + piece_c) * slope * mean))

        return jnp.sum(jax.lax.map(jax.checkpoint(one_chunk), pieces))

    if isinstance(zeros, All):
        # beside all cells as zeros a one is linear in its score
        ones = sum_over_ones(table.ones, view.others.mean, num_lines=num_lines(table))
        num_ones = data.num_ones / row_shards.num_shares()  # of all devices together
        total -= 2 * slope * (jnp.sum(view.factors.mean * ones) + view.intercept.mean * num_ones)
    else:
        total += gathered(table.ones, 1.0)
    if table.missing is not None and not isinstance(zeros, PerLine):
        total += gathered(table.missing, 0.0)
    return row_shards.add_over_devices(total)


def _shared(
    view: Half, zeros: All | Shared, c: Array, likelihood: Likelihood, noise: Array
) -> Array:
    others, weight = view.others, c
    if isinstance(zeros, Shared):
        others = Normal(others.mean[zeros.indices], others.variance[zeros.indices])
        weight = zeros.weight.astype(c.dtype)
    slope = likelihood.slope(noise)

    def one_block(factors: Normal) -> Array:
        mean, variance = shared_moments(factors, others, view.intercept)
        return (likelihood.cost(mean, variance, noise) + slope * mean) @ weight

    return jnp.sum(map_lines(one_block, view.factors, num_cells=weight.shape[0]))


def _per_line(view: Half, zeros: PerLine, likelihood: Likelihood, noise: Array) -> Array:
    gather = gatherer(view.others)

    def one_block(block: tuple[Normal, PerLine]) -> Array:
        factors, sample = block
        mean, variance = gathered_moments(factors, gather(sample.indices), view.intercept)
        cost = likelihood.cost(mean, variance, noise) + likelihood.slope(noise) * mean
        return jnp.sum(sample.weight.astype(cost.dtype) * cost, axis=1)

    width = view.factors.mean.shape[1]
    lines = (view.factors, zeros)
    return jnp.sum(map_lines(one_block, lines, num_cells=zeros.indices.shape[1] * width))


def _all_gaussian(view: Half, table: PieceTable, noise: Array) -> Array:
    """All cells as if they were -1, in O((N + D) L^2); with m + 1 for m - x nothing cancels."""
    (mean, variance), (other_mean, other_variance) = view.factors, view.others
    dtype = mean.dtype
    num_cells = jnp.asarray(num_lines(table), dtype) * jnp.asarray(num_others(table), dtype)
    intercept = view.intercept.mean + 1
    squares = (
        jnp.sum((mean.T @ mean) * (other_mean.T @ other_mean))
        + 2 * intercept * jnp.sum(mean, axis=0) @ jnp.sum(other_mean, axis=0)
        + num_cells * (intercept**2 + view.intercept.variance)
    )
    spread = jnp.sum(mean**2 + variance, axis=0) @ jnp.sum(other_variance, axis=0)
    spread += jnp.sum(variance, axis=0) @ jnp.sum(other_mean**2, axis=0)
    return 0.5 * ((squares + spread) / noise + num_cells * jnp.log(2 * jnp.pi * noise))
