"""Proposals of the weights W of X ~ f(U W V'), for likelihoods to a power.

A logistic or Poisson likelihood to a power below one has none of the auxiliary variables that make
W Gaussian or Gamma given the cells. So the rows of W are moved by random walks of a random width,
from a fiftieth of the prior's scale to all of it (of the logarithm for positive weights), accepted
by the ratio of the densities.
"""

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf._kernels.special import accepts
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.samplers.bilinear.side import BilinearSide
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.types import Array, Key

_LOG_LEAST_WIDTH = -4.0


def propose_weights(
    key: Key,
    side: BilinearSide,
    *,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    row_exists: Array,
    column_exists: Array,
    num_rounds: int,
) -> Array:
    """W (K, L) after some rounds of proposals to each of its rows, given U, V and observed cells.

    Args: row_exists, column_exists (K,) and (L,) bool, the slots that are features.
    """
    there = weight_prior.there(row_exists, column_exists)
    u, x = side.u.astype(side.x.dtype), side.x
    v = side.v.astype(x.dtype)
    num_slots, num_columns = side.weights.shape

    def log_likelihood(eta: Array) -> Array:
        return jnp.sum(likelihood.log_kernel_of_rows(x, eta, side.observed))

    def one_round(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        streams = [jax.random.fold_in(jax.random.fold_in(key, index), one) for one in range(4)]
        order, width, accept = (
            jax.random.uniform(stream, (num_slots,), x.dtype) for stream in streams[:3]
        )
        normals = slots.normals(streams[3], num_slots, num_columns, x.dtype)
        steps = jnp.where(there, normals * jnp.exp(_LOG_LEAST_WIDTH * width)[:, None], 0)

        def move(
            k: Array, here: Array, state: tuple[Array, Array, Array]
        ) -> tuple[Array, Array, Array]:
            weights, eta, before = state
            step = jnp.where(here[:, None], steps, 0)
            if weight_prior.positive:
                proposed = weights * jnp.exp(step)
                log_ratio = jnp.sum(step)  # the Jacobian of a walk of logarithms
            else:
                proposed = weights + weight_prior.scale * step
                log_ratio = jnp.zeros((), x.dtype)
            eta_proposed = eta + u[:, k, None] * (v @ (proposed - weights)[k])
            after = log_likelihood(eta_proposed)
            log_ratio += weight_prior.log_density(proposed, there) + after
            log_ratio -= weight_prior.log_density(weights, there) + before
            accepted = accepts(accept[k], log_ratio)
            return (
                jnp.where(accepted, proposed, weights),
                jnp.where(accepted, eta_proposed, eta),
                jnp.where(accepted, after, before),
            )

        return slots.visit(move, state, order=order, allowed=row_exists)

    eta = u @ side.basis
    start = (side.weights, eta, log_likelihood(eta))
    return jax.lax.fori_loop(0, num_rounds, one_round, start)[0]
