"""The plaid model, W diagonal: its likelihood against the dense Gaussian, its sweep exactly."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

from jaxmf import BinaryMF, Gaussian
from jaxmf.data import Dense
from jaxmf.likelihoods import bilinear, plaid
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.plaid import PlaidRow, collapsed_plaid_sweep, log_density
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.samplers.bilinear.weights import NormalTerms
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.testing import check_means
from tests.support.bilinear_oracle import (
    draw_missing,
    finite_side,
    log_likelihood,
    plaid_cell_distributions,
)
from tests.support.oracles import all_matrices

SCALES = {"noise_scale": 0.6, "weight_scale": 1.3}
X = np.array([[1.1, -0.3, 0.8], [0.7, 0.6, -0.4], [-0.2, 0.9, 1.2]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, False]])
MEAN = np.array([0.4, -0.7])
DISTRIBUTION = {"distribution": plaid_cell_distributions, **SCALES}
PRIOR = BetaBernoulli(1.2, 1.4, 2)


def scales():
    return {name: jnp.asarray(value) for name, value in SCALES.items()}


def prior_of(weight_mean):
    one = jnp.ones(())
    return WeightPrior(
        mean=jnp.asarray(weight_mean), scale=jnp.asarray(1.3), shape=one, rate=one, diagonal=True
    )


@pytest.mark.parametrize("weight_mean", [0.0, np.array([0.3, -0.8, 0.5, 1.0])], ids=["zero", "own"])
def test_likelihood_and_weights_are_those_of_the_dense_gaussian(weight_mean):
    rng = np.random.default_rng(3)
    u, v, x = rng.random((6, 4)) < 0.5, rng.random((5, 4)) < 0.5, rng.normal(size=(6, 5))
    u[:, 3], v[:, 2] = False, v[:, 1]  # a free layer; two that depend on each other
    u[:, 2] = u[:, 1]
    with jax.enable_x64(True):
        settings = {**scales(), "weight_mean": jnp.asarray(weight_mean)}
        arrays = jnp.asarray(u), jnp.asarray(v), jnp.asarray(x)
        exact = log_likelihood(u, v, x, weight_mean=weight_mean, **DISTRIBUTION)
        found = bilinear.log_marginal(*arrays, **settings, spectrum_fn=plaid.spectrum)
        np.testing.assert_allclose(found, exact, rtol=1e-10)
        terms = NormalTerms(precision=jnp.full(x.shape, 0.6**-2), linear=jnp.asarray(x) * 0.6**-2)
        distribution = weight_moves.weight_conditional(
            *arrays[:2], terms, weight_prior=prior_of(weight_mean)
        )
        design = np.einsum("ik,jk->ijk", u, v).reshape(30, 4).astype(float)
        spread = np.linalg.inv(design.T @ design + (0.6 / 1.3) ** 2 * np.eye(4))
        centre = np.broadcast_to(weight_mean, (4,))
        mean = centre + spread @ design.T @ (x.reshape(-1) - design @ centre)
        np.testing.assert_allclose(distribution.mean, np.diag(mean), rtol=0, atol=1e-10)
        keys = jax.random.split(jax.random.key(0), 20_000)
        drawn = jax.jit(jax.vmap(lambda key: weight_moves.sample_weights(key, distribution)))(keys)
        drawn = np.diagonal(drawn, axis1=1, axis2=2)
        centred = drawn - mean
        check_means(
            {"mean": drawn, "products": centred[:, :, None] * centred[:, None, :]},
            {"mean": mean, "products": 0.36 * spread},
            title="weights drawn",
        )


def test_predictions_are_those_of_the_dense_gaussian_given_the_observed_cells():
    rng = np.random.default_rng(4)
    u, v = rng.random((3, 2)) < 0.6, rng.random((3, 2)) < 0.6
    u[0], v[2] = True, True
    mean, covariance = plaid_cell_distributions(u, v, weight_mean=0.4, **SCALES)
    seen = np.flatnonzero(OBSERVED)
    gain = covariance[:, seen] @ np.linalg.inv(covariance[seen[:, None], seen])
    expected = mean + gain @ (X.reshape(-1)[seen] - mean[seen])
    variance = np.diag(covariance - gain @ covariance[seen])
    missing = np.argwhere(~OBSERVED)
    indices = missing @ [3, 1]
    one = jnp.ones(())
    draw = {"z": jnp.asarray(u), "v": jnp.asarray(v), "row_alpha": one, **scales()}
    model = BinaryMF(
        row_prior=PRIOR,
        column_prior=PRIOR,
        likelihood=Gaussian(SCALES["noise_scale"]),
        weight_scale=SCALES["weight_scale"],
        weight_mean=0.4,
        diagonal=True,
    )
    data = Dense(np.where(OBSERVED, X, np.nan))
    found = model.predict_cells(draw, data, *jnp.asarray(missing).T)
    np.testing.assert_allclose(found[0], expected[indices], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], variance[indices], rtol=1e-4)


def test_the_conditional_of_every_bit_is_exact():
    """Against the dense form, also of a row with missing cells; so pi P = pi for any order."""
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
        log_joint = side.log_prior + log_likelihood(
            side.z, v, X, observed=observed, weight_mean=MEAN, **DISTRIBUTION
        )
        other = states.copy()
        other[:, row, slot] ^= True
        change = (
            log_joint[other.reshape(-1, 6) @ powers] - log_joint[states.reshape(-1, 6) @ powers]
        )
        np.testing.assert_allclose(found[:, row, slot], 1 / (1 + np.exp(-change)), atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_sweeps_of_both_sides_against_enumeration():
    num_chains, num_steps = 2_000, 600
    side = finite_side(3, 2, alpha=1.2, concentration=1.4)
    settings = {"weight_mean": MEAN, **DISTRIBUTION}
    log_joint = side.log_prior[:, None] + side.log_prior
    log_joint = log_joint + np.array(
        [log_likelihood(u, side.z, X, observed=OBSERVED, **settings) for u in side.z]
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
            kinds = {"prior": prior, "weight_mean": jnp.asarray(MEAN), "num_proposals": 1}
            kinds |= scales()
            u, x = collapsed_plaid_sweep(first, u, v, x, observed, **kinds)
            v, x = collapsed_plaid_sweep(second, v, u, x.T, observed.T, **kinds)
            return u, v, x.T

        def step(index, carry):
            u, v, x, total = carry
            u, v, x = sweep(jax.random.fold_in(key, index), u, v, x)
            return u, v, x, total + jnp.concatenate([u, v, u[:1] & v[:1]]).astype(float)

        start = (u, v, x, jnp.zeros((7, 2)))
        return jax.lax.fori_loop(0, num_steps, step, start)[-1] / num_steps

    x = jnp.asarray(
        draw_missing(rng, u, v, X, observed=OBSERVED, **settings), jnp.result_type(float)
    )
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


@pytest.mark.exhaustive
@pytest.mark.slow
def test_chains_with_the_weights_summed_out_and_kept_agree():
    """Larger than enumeration can do, with priors on both scales; chains of the two in pairs."""
    num_chains, num_burn_in, num_steps = 800, 100, 200
    prior = BetaBernoulli(2.0, 1.0, 3)
    model = BinaryMF(
        row_prior=prior,
        column_prior=prior,
        diagonal=True,
        row_bias=True,
        fixed_column_features=np.array([[1], [1], [0], [1]]),
        weight_mean=0.5,
        likelihood=Gaussian(dist.LogNormal(-0.3, 0.3)),
        weight_scale=dist.LogNormal(0.0, 0.3),
    )
    rng = np.random.default_rng(6)
    u, v = rng.random((6, 3)) < 0.5, rng.random((4, 3)) < 0.5
    x = (u * np.array([1.5, -1.0, 2.0])) @ v.T + 0.7 * rng.normal(size=(6, 4))
    x[0, 1] = x[3, 3] = np.nan
    data = Dense(x)

    def averages(weights):
        algorithm = model.sampler(weights=weights)

        def measures(state):
            shared, together = (
                bits.astype(float) @ bits.T.astype(float) for bits in (state.u, state.v)
            )
            scales = jnp.stack([state.noise_scale, state.weight_scale])
            return {
                "rows": shared[jnp.triu_indices(6)],
                "columns": together[jnp.triu_indices(4)],
                "scales": jnp.log(scales),
            }

        def one_chain(key):
            def step(index, carry):
                state, total = carry
                step_key = jax.random.fold_in(key, index)
                state, _ = algorithm.step(step_key, state, data, jnp.ones(()))
                counted = jnp.where(index >= num_burn_in, 1 / num_steps, 0)
                total = jax.tree.map(lambda sums, new: sums + counted * new, total, measures(state))
                return state, total

            state = algorithm.init(jax.random.fold_in(key, num_burn_in + num_steps), data)
            start = (state, jax.tree.map(jnp.zeros_like, measures(state)))
            return jax.lax.fori_loop(0, num_burn_in + num_steps, step, start)[1]

        keys = jax.random.split(jax.random.key(8), num_chains)
        return jax.device_get(jax.jit(jax.vmap(one_chain))(keys))

    differences = jax.tree.map(np.subtract, averages("collapsed"), averages("explicit"))
    nothing = jax.tree.map(lambda array: np.zeros(array.shape[1:]), differences)
    print(check_means(differences, nothing, title="summed out less kept", max_standard_error=0.02))


def test_a_process_is_refused():
    ones = jnp.ones((2, 1), bool)
    with pytest.raises(ValueError, match="BetaBernoulli"):
        collapsed_plaid_sweep(
            jax.random.key(0), ones, ones, jnp.ones((2, 2)), None, prior=IndianBuffet(1.0), **SCALES
        )
