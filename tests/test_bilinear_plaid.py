"""The plaid model, W diagonal: its likelihood against the dense Gaussian, its sweep exactly."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from jaxmf.likelihoods import plaid
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.bilinear.plaid import PlaidRow, collapsed_plaid_sweep, log_density
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.testing import check_means
from tests.bilinear_oracle import finite_side
from tests.oracles import all_matrices

SCALES = {"noise_scale": 0.6, "weight_scale": 1.3}
X = np.array([[1.1, -0.3, 0.8], [0.7, 0.6, -0.4], [-0.2, 0.9, 1.2]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, False]])
MEAN = np.array([0.4, -0.7])
PRIOR = BetaBernoulli(1.2, 1.4, 2)


def dense(u, v, *, noise_scale, weight_scale, weight_mean):
    """Mean and covariance of the cells, x.reshape(-1), of u (..., I, K) and v (..., J, K)."""
    u, v = np.asarray(u, float), np.asarray(v, float)
    design = np.einsum("...ik,...jk->...ijk", u, v)
    design = design.reshape(*design.shape[:-3], -1, design.shape[-1])
    covariance = weight_scale**2 * design @ np.swapaxes(design, -1, -2)
    centre = np.broadcast_to(weight_mean, design.shape[-1:])
    return design @ centre, covariance + noise_scale**2 * np.eye(design.shape[-2])


def dense_log_likelihood(u, v, x, *, observed=None, **settings):
    mean, covariance = dense(u, v, **settings)
    seen = np.arange(x.size) if observed is None else np.flatnonzero(observed)
    error, block = x.reshape(-1)[seen] - mean[..., seen], covariance[..., seen[:, None], seen]
    squares = (error * np.linalg.solve(block, error[..., None])[..., 0]).sum(axis=-1)
    return -0.5 * (np.linalg.slogdet(2 * np.pi * block)[1] + squares)


def scales():
    return {name: jnp.asarray(value) for name, value in SCALES.items()}


@pytest.mark.parametrize("weight_mean", [0.0, np.array([0.3, -0.8, 0.5, 1.0])], ids=["zero", "own"])
def test_likelihood_weights_and_cells_are_those_of_the_dense_gaussian(weight_mean):
    rng = np.random.default_rng(3)
    u, v, x = rng.random((6, 4)) < 0.5, rng.random((5, 4)) < 0.5, rng.normal(size=(6, 5))
    u[:, 3], v[:, 2] = False, v[:, 1]  # a free layer; two that depend on each other
    u[:, 2] = u[:, 1]
    with jax.enable_x64(True):
        settings = {**scales(), "weight_mean": jnp.asarray(weight_mean)}
        arrays = jnp.asarray(u), jnp.asarray(v), jnp.asarray(x)
        exact = dense_log_likelihood(u, v, x, weight_mean=weight_mean, **SCALES)
        np.testing.assert_allclose(plaid.log_marginal(*arrays, **settings), exact, rtol=1e-10)
        law = plaid.weight_law(*arrays, **settings)
        design = np.einsum("ik,jk->ijk", u, v).reshape(30, 4).astype(float)
        spread = np.linalg.inv(design.T @ design + (0.6 / 1.3) ** 2 * np.eye(4))
        centre = np.broadcast_to(weight_mean, (4,))
        mean = centre + spread @ design.T @ (x.reshape(-1) - design @ centre)
        np.testing.assert_allclose(law.mean, mean, rtol=0, atol=1e-10)
        u_rows, v_rows = np.repeat(u, 5, axis=0), np.tile(v, (6, 1))
        moments = plaid.cell_moments(law, jnp.asarray(u_rows), jnp.asarray(v_rows), 0.6)
        variance = 0.36 * (1 + np.einsum("mk,kl,ml->m", design, spread, design))
        np.testing.assert_allclose(moments[0], design @ mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(moments[1], variance, rtol=1e-10)
        keys = jax.random.split(jax.random.key(0), 20_000)
        drawn = jax.jit(jax.vmap(lambda key: plaid.draw_weights(key, *arrays, **settings)))(keys)
        centred = np.asarray(drawn) - mean
        check_means(
            {"mean": drawn, "products": centred[:, :, None] * centred[:, None, :]},
            {"mean": mean, "products": 0.36 * spread},
            title="weights drawn",
        )


def test_the_conditional_of_every_bit_is_exact():
    """Against the dense law, also of a row with missing cells; so pi P = pi for any order."""
    states, v = all_matrices(3, 2), np.array([[1, 0], [1, 1], [0, 1]], bool)
    side = finite_side(3, 2, alpha=1.2, concentration=1.4)
    powers = 2 ** np.arange(5, -1, -1)
    with jax.enable_x64(True):

        def of_row(u, row, seen):
            others = jnp.where(jnp.arange(3)[:, None] == row, False, u)
            gram, cross = plaid.design_statistics(others, jnp.asarray(v), jnp.asarray(X))
            precision = gram + (0.6 / 1.3) ** 2 * jnp.eye(2)
            mean = jnp.linalg.solve(precision, cross + (0.6 / 1.3) ** 2 * MEAN)
            part = jnp.where(seen[:, None], v, 0).astype(float)
            here = PlaidRow(precision, mean, part.T @ v, jnp.asarray(X)[row] @ part)
            counts = jnp.sum(others, axis=0, dtype=float)
            log_odds = row_prior(PRIOR, counts, 3, num_fixed=0).log_odds
            density = jax.vmap(lambda bits: log_density(here, bits, jnp.asarray(0.36)))
            flips = u[row] ^ jnp.eye(2, dtype=bool)
            change = density(flips) - density(u[row][None])
            return jax.nn.sigmoid(jnp.where(u[row], -log_odds, log_odds) + change)

        over_rows = jax.vmap(of_row, in_axes=(None, 0, 0))
        over_states = jax.jit(jax.vmap(over_rows, in_axes=(0, None, None)))
        # a row with missing cells, the other rows with none
        seen = np.array([[True, False, True], [True, True, True], [False, False, True]])
        found = np.asarray(over_states(states, jnp.arange(3), jnp.asarray(seen)))
    for row, slot in itertools.product(range(3), range(2)):
        observed = np.ones((3, 3), bool)
        observed[row] = seen[row]
        log_joint = side.log_prior + dense_log_likelihood(
            side.z, v, X, observed=observed, weight_mean=MEAN, **SCALES
        )
        other = states.copy()
        other[:, row, slot] ^= True
        change = (
            log_joint[other.reshape(-1, 6) @ powers] - log_joint[states.reshape(-1, 6) @ powers]
        )
        np.testing.assert_allclose(found[:, row, slot], 1 / (1 + np.exp(-change)), atol=1e-12)


@pytest.mark.slow
def test_sweeps_of_both_sides_against_enumeration():
    num_chains, num_steps = 2_000, 600
    side = finite_side(3, 2, alpha=1.2, concentration=1.4)
    settings = {"weight_mean": MEAN, **SCALES}
    log_joint = side.log_prior[:, None] + side.log_prior
    log_joint = log_joint + np.array(
        [dense_log_likelihood(u, side.z, X, observed=OBSERVED, **settings) for u in side.z]
    )
    probability = np.exp(log_joint - logsumexp(log_joint))
    rng = np.random.default_rng(0)
    flat = rng.choice(probability.size, num_chains, p=probability.reshape(-1))
    rows, columns = np.unravel_index(flat, probability.shape)
    u, v = side.z[rows], side.z[columns]
    observed, prior = jnp.asarray(OBSERVED), PRIOR

    def one_chain(key, u, v, x):
        def sweep(key, u, v, x):
            first, second = jax.random.split(key)
            kinds = {"prior": prior, "weight_mean": jnp.asarray(MEAN), **scales()}
            u, x = collapsed_plaid_sweep(first, u, v, x, observed, **kinds)
            v, x = collapsed_plaid_sweep(second, v, u, x.T, observed.T, **kinds)
            return u, v, x.T

        def step(index, carry):
            u, v, x, total = carry
            u, v, x = sweep(jax.random.fold_in(key, index), u, v, x)
            return u, v, x, total + jnp.concatenate([u, v, u[:1] & v[:1]]).astype(float)

        start = (u, v, x, jnp.zeros((7, 2)))
        return jax.lax.fori_loop(0, num_steps, step, start)[-1] / num_steps

    x = jnp.asarray(draw_missing(rng, u, v, settings), jnp.result_type(float))
    keys = jax.random.split(jax.random.key(1), num_chains)
    found = jax.jit(jax.vmap(one_chain))(keys, u, v, x)
    both = np.einsum("ab,ak,bk->k", probability, side.z[:, 0], side.z[:, 0])
    exact = np.concatenate(
        [
            np.tensordot(probability.sum(axis=1), side.z, axes=1),
            np.tensordot(probability.sum(axis=0), side.z, axes=1),
            both[None],
        ]
    )
    check_means({"bits": found}, {"bits": exact}, max_standard_error=1e-3)


def draw_missing(rng, u, v, settings):
    """X (C, 3, 3) with missing cells drawn given u, v (C, 3, K) and the observed ones."""
    mean, covariance = dense(u, v, **settings)
    seen, missing = np.flatnonzero(OBSERVED), np.flatnonzero(~OBSERVED)
    across = covariance[:, missing[:, None], seen]
    gain = across @ np.linalg.inv(covariance[:, seen[:, None], seen])
    centre = mean[:, missing] + (gain @ (X.reshape(-1)[seen] - mean[:, seen])[..., None])[..., 0]
    spread = covariance[:, missing[:, None], missing] - gain @ across.swapaxes(1, 2)
    normals = rng.standard_normal((len(u), len(missing), 1))
    full = np.broadcast_to(X.reshape(-1), (len(u), X.size)).copy()
    full[:, missing] = centre + (np.linalg.cholesky(spread) @ normals)[..., 0]
    return full.reshape(-1, 3, 3)


def test_a_process_is_refused():
    ones = jnp.ones((2, 1), bool)
    with pytest.raises(ValueError, match="BetaBernoulli"):
        collapsed_plaid_sweep(
            jax.random.key(0), ones, ones, jnp.ones((2, 2)), None, prior=IndianBuffet(1.0), **SCALES
        )
