"""Mean and standard deviation of the weights given the features of a draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf._kernels.linalg import after
from jaxmf.data import Dense
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair
from jaxmf.models.binary_mf import queries
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.types import Array, Draw, Key

_NUM_SWEEPS = 200


def weight_moments(model: BinaryMFSpec, key: Key, draw: Draw, data: Dense) -> Pair:
    """Mean and standard deviation of W given U, V, the hyperparameters and the observed cells.

    In closed form where cells are Gaussian. Others by 200 draws of W from its conditional
    distribution, started at the draw's, of which the last three quarters count.

    Returns (K, L) each; of a diagonal W zero beside the diagonal.
    """
    if not isinstance(model.likelihood, Gaussian):
        return _sampled(model, key, draw, data)
    if queries.is_whole(model, data):
        conditional = queries.eigen_conditional(model, draw, data)
        spread = 1 / conditional.precisions
        variance = conditional.row_vectors**2 @ spread @ (conditional.column_vectors**2).T
        return conditional.mean, draw["noise_scale"] * jnp.sqrt(variance)
    mean, factor = queries.observed_conditional(model, draw, data)
    identity = jnp.eye(factor.shape[0], dtype=mean.dtype)
    inverse = jax.scipy.linalg.solve_triangular(after(factor, mean), identity, lower=True)
    sd = jnp.sqrt(jnp.sum(inverse**2, axis=0))
    return mean, jnp.diag(sd) if model.diagonal else sd.reshape(mean.shape)


def _sampled(model: BinaryMFSpec, key: Key, draw: Draw, data: Dense) -> tuple[Array, Array]:
    likelihood, prior = queries.at_draw(model, draw)
    u, v, start = draw["z"], draw["v"], jnp.asarray(draw["weights"])
    first = _NUM_SWEEPS // 4

    def once(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights, total, squares = carry
        weights = weight_moves.draw_weights(
            jax.random.fold_in(key, index),
            u,
            v,
            weights,
            data.values,
            data.observed,
            likelihood=likelihood,
            weight_prior=prior,
            row_exists=jnp.any(u, axis=0),
            column_exists=jnp.any(v, axis=0),
            jointly=start.size <= weight_moves.MOST_PAIRS,
        )
        # from the start, which is near the mean: squares of large weights would cancel
        deviation = jnp.where(index >= first, weights - start, 0)
        return weights, total + deviation, squares + deviation**2

    nothing = jnp.zeros_like(start)
    _, total, squares = jax.lax.fori_loop(0, _NUM_SWEEPS, once, (start, nothing, nothing))
    mean = total / (_NUM_SWEEPS - first)
    variance = squares / (_NUM_SWEEPS - first) - mean**2
    return start + mean, jnp.sqrt(jnp.maximum(variance, 0))
