"""What a draw of binary matrix factorisation says: basis images, cells, rows not seen in training.

A draw is the dictionary that a chain records. With Gaussian cells W is summed out of every answer
given U, V and the observed cells, whether the chain kept it or not; missing cells are left out of
the formulas, not imputed. With other cells the weights of the draw are used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxmf._kernels.linalg import after
from jaxmf._kernels.special import accepts, loggamma, poisson
from jaxmf.data import Dense
from jaxmf.likelihoods import bilinear
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.models.binary_mf.state import Hyperparameters
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.types import Array, Draw, Key, PyTree

_CELLS_A_PIECE = 4096
_NUM_SWEEPS = 40
_NUM_STARTS = 64


def at_draw(model: BinaryMFSpec, draw: Draw) -> tuple[Likelihood, WeightPrior]:
    """The likelihood of a cell and the prior of W at the hyperparameters of a draw."""
    one = jnp.ones((), jnp.asarray(draw["row_alpha"]).dtype)
    hyperparameters = Hyperparameters(
        *(jnp.asarray(draw.get(name, one)) for name in Hyperparameters._fields)
    )
    return model.likelihood_at(hyperparameters), model.weight_prior(hyperparameters)


def eigen_conditional(
    model: BinaryMFSpec, draw: Draw, data: Dense
) -> bilinear.CollapsedWeightConditional:
    """The distribution of W given complete Gaussian data, in Kronecker form."""
    return bilinear.weight_conditional(
        draw["z"],
        draw["v"],
        data.values,
        noise_scale=draw["noise_scale"],
        weight_scale=draw["weight_scale"],
        weight_mean=model.weight_mean,
    )


def observed_conditional(
    model: BinaryMFSpec, draw: Draw, data: Dense
) -> weight_moves.WeightConditional:
    """The distribution of W given the observed Gaussian cells alone."""
    likelihood, prior = at_draw(model, draw)
    u, v = draw["z"], draw["v"]
    terms = weight_moves.normal_terms(
        jax.random.key(0),  # Gaussian cells draw nothing
        u,
        v,
        jnp.zeros((u.shape[1], v.shape[1]), data.values.dtype),
        data.values,
        data.observed,
        likelihood=likelihood,
    )
    return weight_moves.weight_conditional(u, v, terms, weight_prior=prior)


def is_whole(model: BinaryMFSpec, data: Dense) -> bool:
    """Whether the distribution of W has Kronecker form."""
    return data.observed is None and not model.diagonal


def expected_weights(model: BinaryMFSpec, draw: Draw, data: Dense) -> Array:
    """W (K, L): its mean given U, V and X where it is summed out, otherwise the draw's."""
    if not isinstance(model.likelihood, Gaussian):
        return draw["weights"]
    conditional = eigen_conditional if is_whole(model, data) else observed_conditional
    return conditional(model, draw, data).mean


def basis(model: BinaryMFSpec, draw: Draw, data: Dense) -> tuple[Array, Array]:
    """Mean and standard deviation of W V' given U, V and X, each (K, J)."""
    v = draw["v"].astype(data.values.dtype)
    if not isinstance(model.likelihood, Gaussian):
        mean = draw["weights"] @ v.T
        return mean, jnp.zeros_like(mean)
    if is_whole(model, data):
        conditional = eigen_conditional(model, draw, data)
        spread = 1 / conditional.precisions
        squares = (v @ conditional.column_vectors) ** 2
        variance = draw["noise_scale"] ** 2 * conditional.row_vectors**2 @ spread @ squares.T
        return conditional.mean @ v.T, jnp.sqrt(variance)
    mean, factor = observed_conditional(model, draw, data)
    num_rows, num_columns = mean.shape
    identity = jnp.eye(factor.shape[0], dtype=v.dtype)
    covariance = jax.scipy.linalg.cho_solve((after(factor, mean), True), identity)
    if model.diagonal:
        return mean @ v.T, jnp.sqrt(jnp.diagonal(covariance)[:, None]) * v.T
    blocks = covariance.reshape(num_rows, num_columns, num_rows, num_columns)
    diagonal_blocks = jnp.diagonal(blocks, axis1=0, axis2=2)  # (L, L, K)
    variance = jnp.einsum("jl,lmk,jm->kj", v, diagonal_blocks, v)
    return mean @ v.T, jnp.sqrt(jnp.maximum(variance, 0))


def cell_moments(
    model: BinaryMFSpec, draw: Draw, data: Dense, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Predictive mean and variance of the cells (rows[m], columns[m]): (M,) each."""
    likelihood, _ = at_draw(model, draw)
    u, v = draw["z"][rows].astype(data.values.dtype), draw["v"][columns].astype(data.values.dtype)
    if not isinstance(model.likelihood, Gaussian):
        eta = jnp.sum((u @ draw["weights"]) * v, axis=1)
        return likelihood.moments(eta)
    if is_whole(model, data):
        return bilinear.cell_moments(
            eigen_conditional(model, draw, data), u, v, draw["noise_scale"]
        )
    conditional = observed_conditional(model, draw, data)

    def moments(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        u, v = pair
        products = u * v if model.diagonal else jnp.outer(u, v).ravel()
        half = jax.scipy.linalg.solve_triangular(conditional.factor, products, lower=True)
        # the mean in here too: solves that wait for it do not run beside it, see `solve_both`
        return (u @ conditional.mean) @ v, jnp.sum(half**2)

    size = min(_CELLS_A_PIECE, rows.shape[0])
    mean, variance = jax.lax.map(moments, (u, v), batch_size=size)
    return mean, draw["noise_scale"] ** 2 + variance


def draw_weights(model: BinaryMFSpec, key: Key, draw: Draw, data: Dense) -> Array:
    """W (K, L) of a draw: its own, or one given U, V and the observed cells."""
    if not isinstance(model.likelihood, Gaussian):
        return draw["weights"]
    if is_whole(model, data):
        conditional = eigen_conditional(model, draw, data)
        return bilinear.sample_weights(key, conditional, draw["noise_scale"])
    drawn = weight_moves.sample_weights(key, observed_conditional(model, draw, data))
    return jnp.diag(jnp.diagonal(drawn)) if model.diagonal else drawn


class NewRows(NamedTuple):
    """Rows that were not in training."""

    probabilities: Array  # (M, K) float, that the row has each feature
    eta: Array  # (M, J) float, their entries of U W V' in a draw of their features


class _Chain(NamedTuple):
    u: Array
    singletons: Array
    eta: Array
    log_likelihood: Array
    total: Array


def new_rows(model: BinaryMFSpec, key: Key, draw: Draw, data: Dense, new_data: Dense) -> NewRows:
    """The features of further rows given a draw, each as the customer after those of U.

    40 sweeps over the bits of all new rows and the features of their own, weights of the latter
    included; probabilities are averaged over the second half. They start where `_start` says. The
    bias is on; given features of new rows are not known and follow their frequency in training.

    Args: new_data (M, J).
    """
    likelihood, weight_prior = at_draw(model, draw)
    x, observed = new_data.values, new_data.observed
    weights = draw_weights(model, jax.random.fold_in(key, 0), draw, data)
    v = draw["v"].astype(x.dtype)
    image = weights @ v.T
    log_odds, movable, rate = _new_row_prior(model, draw, x.dtype)
    row_keys = jax.vmap(lambda row: jax.random.fold_in(jax.random.fold_in(key, 1), row))(
        jnp.arange(x.shape[0])
    )
    bias = jnp.arange(image.shape[0]) < int(model.row_bias)
    start = _start(draw["z"], bias, image, x, observed, likelihood)

    def sweep(index: Array, chain: PyTree) -> PyTree:
        keys = jax.vmap(lambda key: jax.random.fold_in(key, index))(row_keys)
        chain, probabilities = _sweep_bits(
            keys, chain, image, x, observed, likelihood, log_odds, movable
        )
        if isinstance(model.row_prior, IndianBuffet):
            chain = _replace_singletons(keys, chain, v, x, observed, likelihood, weight_prior, rate)
        kept = jnp.where(index >= _NUM_SWEEPS // 2, probabilities, 0)
        return chain._replace(total=chain.total + kept)

    eta = start.astype(x.dtype) @ image
    chain = _Chain(
        u=start,
        singletons=jnp.zeros((x.shape[0], v.shape[1]), x.dtype),
        eta=eta,
        log_likelihood=likelihood.log_kernel_of_rows(x, eta, observed),
        total=jnp.zeros(start.shape, x.dtype),
    )
    chain = jax.lax.fori_loop(0, _NUM_SWEEPS, sweep, chain)
    return NewRows(
        probabilities=chain.total / (_NUM_SWEEPS - _NUM_SWEEPS // 2),
        eta=chain.u.astype(x.dtype) @ image + chain.singletons @ v.T,
    )


def _start(
    u: Array,
    bias: Array,
    image: Array,
    x: Array,
    observed: Array | None,
    likelihood: Likelihood,
) -> Array:
    """Features (M, K) bool of the training row that fits each new row best, or the bias alone.

    Single bits do not get from one combination of features to another where what lies between
    them fits badly, and combinations that rows have are among those of the rows in training: at
    most `_NUM_STARTS` of them are tried, evenly spread.
    """
    chosen = np.unique(np.linspace(0, u.shape[0] - 1, min(_NUM_STARTS, u.shape[0])).astype(int))
    candidates = jnp.concatenate([bias[None], u[chosen]])

    def log_likelihoods(bits: Array) -> Array:
        eta = jnp.broadcast_to(bits.astype(x.dtype) @ image, x.shape)
        return likelihood.log_kernel_of_rows(x, eta, observed)

    return candidates[jnp.argmax(jax.lax.map(log_likelihoods, candidates), axis=0)]


def _new_row_prior(model: BinaryMFSpec, draw: Draw, dtype: DTypeLike) -> tuple[Array, Array, Array]:
    """Prior log odds (K,) and whether each bit of a new row may move (K,); rate of new features."""
    num_fixed = model.num_fixed_rows()
    num_rows = draw["z"].shape[0]
    alpha, concentration = jnp.asarray(draw["row_alpha"]), jnp.asarray(draw["row_concentration"])
    prior = replace(model.row_prior, alpha=alpha, concentration=concentration)
    counts = jnp.sum(draw["z"], axis=0, dtype=dtype)
    conditional = row_prior(prior, counts, num_rows + 1, num_fixed=num_fixed)
    slot = jnp.arange(counts.shape[0])
    is_fixed = (slot >= int(model.row_bias)) & (slot < num_fixed)
    fixed_odds = jnp.log(counts + 0.5) - jnp.log(num_rows - counts + 0.5)
    return (
        jnp.where(is_fixed, fixed_odds, conditional.log_odds),
        conditional.movable | is_fixed,
        conditional.rate,
    )


def _sweep_bits(
    keys: Array,
    chain: _Chain,
    image: Array,
    x: Array,
    observed: Array | None,
    likelihood: Likelihood,
    log_odds: Array,
    movable: Array,
) -> tuple[_Chain, Array]:
    """Every bit of every new row, each row in its own random order, and their probabilities."""

    def uniforms(stream: int) -> Array:
        return jax.vmap(
            lambda key: jax.random.uniform(
                jax.random.fold_in(key, stream), (image.shape[0],), x.dtype
            )
        )(keys)

    order = jnp.argsort(jnp.where(movable, uniforms(0), jnp.inf), axis=1)
    bits = uniforms(1)
    slot = jnp.arange(image.shape[0])

    def visit(index: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        u, eta, log_likelihood, probabilities = carry
        k = order[:, index]
        here = slot == k[:, None]
        sign = jnp.where(jnp.any(u & here, axis=1), -1, 1).astype(x.dtype)
        proposed = eta + sign[:, None] * image[k]
        proposed_likelihood = likelihood.log_kernel_of_rows(x, proposed, observed)
        odds = log_odds[k] + sign * (proposed_likelihood - log_likelihood)
        probability = jax.nn.sigmoid(odds)
        on = jnp.take_along_axis(bits, k[:, None], axis=1)[:, 0] < probability
        flip = on != (sign < 0)
        return (
            u ^ (here & flip[:, None]),
            jnp.where(flip[:, None], proposed, eta),
            jnp.where(flip, proposed_likelihood, log_likelihood),
            jnp.where(here, probability[:, None], probabilities),
        )

    start = (chain.u, chain.eta, chain.log_likelihood, chain.u.astype(x.dtype))
    num_visits = jnp.sum(movable, dtype=jnp.int32)
    u, eta, log_likelihood, probabilities = jax.lax.fori_loop(0, num_visits, visit, start)
    return chain._replace(u=u, eta=eta, log_likelihood=log_likelihood), probabilities


def _replace_singletons(
    keys: Array,
    chain: _Chain,
    v: Array,
    x: Array,
    observed: Array | None,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    rate: Array,
) -> _Chain:
    """The sum of the weights of each row's own features, proposed from its prior."""

    def propose(key: Key) -> PyTree:
        num_singletons = poisson(jax.random.fold_in(key, 2), rate).astype(x.dtype)
        sum_key = jax.random.fold_in(key, 3)
        if weight_prior.positive:
            shape = jnp.broadcast_to(
                jnp.maximum(num_singletons, 1) * weight_prior.shape, v.shape[1:]
            )
            keys = jax.random.split(sum_key, shape.shape[0])
            total = jnp.exp(jax.vmap(loggamma)(keys, shape)) / weight_prior.rate
        else:
            normal = jax.random.normal(sum_key, v.shape[1:], x.dtype)
            total = (
                num_singletons * weight_prior.mean
                + jnp.sqrt(num_singletons) * weight_prior.scale * normal
            )
        uniform = jax.random.uniform(jax.random.fold_in(key, 4), (), x.dtype)
        return jnp.where(num_singletons > 0, total, 0), uniform

    singletons, uniforms = jax.vmap(propose)(keys)
    eta = chain.eta + (singletons - chain.singletons) @ v.T
    log_likelihood = likelihood.log_kernel_of_rows(x, eta, observed)
    accepted = accepts(uniforms, log_likelihood - chain.log_likelihood)
    return chain._replace(
        singletons=jnp.where(accepted[:, None], singletons, chain.singletons),
        eta=jnp.where(accepted[:, None], eta, chain.eta),
        log_likelihood=jnp.where(accepted, log_likelihood, chain.log_likelihood),
    )
