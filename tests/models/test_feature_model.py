"""The general filter against exact sums: three likelihoods, four priors; bad input; queries."""

import itertools
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, gammaln, logsumexp, roots_genlaguerre

import jaxmf as mf
from jaxmf.data import Dense
from jaxmf.models.feature_model import FeatureModel
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import explicit_rows
from jaxmf.samplers.resampling import multinomial, optimal, systematic
from jaxmf.testing import check_means, enumerate_features
from tests import LONG_RUNS
from tests.support.chain_runs import paths, run_filter
from tests.support.oracles import (
    all_matrices,
    log_likelihood,
    log_prior_of_classes,
    posterior_of_classes,
    posterior_of_matrices,
)

MOST_SHOWN = 4
GAUSSIAN = np.array([[1.1, -0.4], [0.8, 0.3], [-0.3, 0.5]])
BINARY = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
COUNTS = np.array([[3.0, 0.0], [1.0, 2.0]])
MISSING = np.array([[False, True, False], [False, False, False], [True, False, False]])
SCALES = {"noise_scale": 0.8, "feature_scale": 0.7}
ALPHA = 0.5


# --- three likelihoods, and what is exact about them ----------------------------------------------


def gaussian_model(prior, num_columns=2):
    return FeatureModel(
        feature_prior=dist.Normal(0.0, SCALES["feature_scale"]).expand([num_columns]).to_event(1),
        likelihood=mf.Gaussian(SCALES["noise_scale"]),
        prior=prior,
    )


def noisy_or_model(prior, num_columns=3, efficacy=0.6, leak=0.2, probability=0.4):
    return FeatureModel(
        feature_prior=dist.Bernoulli(probability).expand([num_columns]).to_event(1),
        likelihood=mf.NoisyOr(efficacy, leak),
        prior=prior,
    )


def noisy_or_log_likelihood(z, x, observed, *, efficacy=0.6, leak=0.2, probability=0.4):
    """log p(X | Z) (C,), rows of Y summed over column by column: 2^K settings."""
    settings = np.array(list(itertools.product([0, 1], repeat=z.shape[2])), float)
    log_prior = settings @ np.full(z.shape[2], np.log(probability / (1 - probability)))
    log_prior += z.shape[2] * np.log1p(-probability)
    active = z.astype(float) @ settings.T  # (C, N, 2^K)
    log_off = np.log1p(-leak) + active * np.log1p(-efficacy)
    total = 0.0
    for column in range(x.shape[1]):
        log_cells = np.where(x[:, column, None] > 0, np.log(-np.expm1(log_off)), log_off)
        log_cells = np.where(observed[:, column, None], log_cells, 0)
        total = total + logsumexp(log_cells.sum(axis=1) + log_prior, axis=1)
    return total


def custom_log_likelihood(x, z, y):
    """As a user writes it: a Poisson row, as a scalar."""
    return jnp.sum(dist.Poisson(0.4 + z @ y).log_prob(x))


def poisson_model(prior):
    return FeatureModel(
        custom_log_likelihood, dist.Exponential(1.5).expand([2]).to_event(1), prior=prior
    )


def gamma_nodes(count, decay, rate=1.5):
    """Nodes g and weights w with sum w f(g) = E[exp(-decay g) f(g)], g ~ Gamma(count, rate)."""
    if count == 0:
        return np.zeros(1), np.ones(1)
    nodes, weights = roots_genlaguerre(12, count - 1)
    share = (rate / (rate + decay)) ** count
    return nodes / (rate + decay), share * weights / np.exp(gammaln(count))


def poisson_log_likelihood(counts, x, base=0.4):
    """log p(X | Z) of two rows, from the numbers of features of history 11, 10 and 01.

    Features with one history add up to a Gamma variable; what remains is polynomial in it.
    """
    total = []
    for both, first, second in counts:
        shared, shared_weights = gamma_nodes(both, 2.0)
        by_row = []
        for num_singletons, row in ((first, 0), (second, 1)):
            singletons, singleton_weights = gamma_nodes(num_singletons, 1.0)
            rate = base + shared[:, None, None] + singletons[:, None]
            cells = rate ** x[row] * np.exp(-base) / np.exp(gammaln(x[row] + 1))
            by_row.append(np.einsum("o,sod->sd", singleton_weights, cells))
        total.append(np.log(shared_weights @ (by_row[0] * by_row[1])).sum())
    return np.array(total)


def expectations(z, log_joint):
    """Evidence, and means over the posterior."""
    log_evidence = logsumexp(log_joint)
    weights = np.exp(log_joint - log_evidence)
    num_features = z.any(axis=1).sum(axis=1)
    z = z.astype(float)
    upper = np.triu_indices(z.shape[1])
    return log_evidence, {
        "evidence": 1.0,
        "num_features": np.array([weights[num_features == k].sum() for k in range(MOST_SHOWN)]),
        "cooccurrence": np.einsum("c,cnk,cmk->nm", weights, z, z)[upper],
    }


def gaussian_exact(concentration=1.0, num_features=None):
    settings = {"alpha": ALPHA, "concentration": concentration, **SCALES}
    if num_features is None:
        posterior = posterior_of_classes(GAUSSIAN, max_features=9, **settings)
    else:
        posterior = posterior_of_matrices(GAUSSIAN, num_features=num_features, **settings)
    with np.errstate(divide="ignore"):
        return expectations(posterior.z, np.log(posterior.probability) + posterior.log_evidence)


def noisy_or_exact(concentration=1.0, missing=False):
    classes = enumerate_features(3, 7)
    observed = ~MISSING if missing else np.ones_like(MISSING)
    log_joint = log_prior_of_classes(classes, alpha=ALPHA, concentration=concentration)
    return expectations(classes.z, log_joint + noisy_or_log_likelihood(classes.z, BINARY, observed))


def poisson_exact():
    classes = enumerate_features(2, 12)
    assert classes.histories.tolist() == [[True, True], [True, False], [False, True]]
    log_joint = log_prior_of_classes(classes, alpha=ALPHA)
    return expectations(classes.z, log_joint + poisson_log_likelihood(classes.counts, COUNTS))


# --- evidence and posterior means of many filters -------------------------------------------------


def check(model, data, exact, *, num_particles, num_runs=10_000, most_error, **options):
    """Evidence over exact evidence, and that ratio times posterior means: unbiased run by run."""
    log_evidence, means = exact
    algorithm = model.filter(num_particles=num_particles, **{"capacity": 12} | options)
    upper = jnp.triu_indices(data.num_rows)

    def one(key):
        cloud, (draws, overflow) = run_filter(algorithm, data, key, data.num_rows)
        z = paths(draws, cloud, data.num_rows).astype(cloud.log_weights.dtype)
        ratio = jnp.exp(cloud.log_evidence - log_evidence)
        weights = ratio * jax.nn.softmax(cloud.log_weights)
        num_features = jnp.sum(jnp.any(z > 0, axis=1), axis=1)
        return {
            "evidence": ratio,
            "num_features": weights @ (num_features[:, None] == jnp.arange(MOST_SHOWN)),
            "cooccurrence": jnp.einsum("p,pik,pjk->ij", weights, z, z)[upper],
        }, jnp.any(overflow)

    keys = jax.random.split(jax.random.key(7), num_runs)
    many = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500), compiler_options=LONG_RUNS)
    samples, overflow = many(keys)
    assert not np.any(overflow), "the test needs a larger capacity"
    report = check_means(samples, means, max_standard_error=most_error)
    print(report)


def dense(values, missing=None):
    values = values if missing is None else np.where(missing, np.nan, values)
    return Dense(values.astype(jnp.result_type(float)))


@pytest.mark.exhaustive
def test_gaussian_features_have_the_evidence_of_the_linear_gaussian_model():
    model = gaussian_model(IndianBuffet(ALPHA, 1.7))
    check(model, dense(GAUSSIAN), gaussian_exact(1.7), num_particles=40, most_error=0.004)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_gaussian_features_in_the_finite_model():
    model = gaussian_model(BetaBernoulli(ALPHA, 1.3, 3))
    check(
        model, dense(GAUSSIAN), gaussian_exact(1.3, 3), num_particles=40, most_error=0.004,
        rejuvenate_every=2,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_noisy_or_with_missing_cells():
    check(
        noisy_or_model(IndianBuffet(ALPHA)), dense(BINARY, MISSING), noisy_or_exact(missing=True),
        num_particles=40, most_error=0.01, resample_fn=multinomial, ess_threshold=1.0,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_a_custom_poisson_likelihood():
    check(
        poisson_model(IndianBuffet(ALPHA)), dense(COUNTS), poisson_exact(),
        num_particles=40, most_error=0.005,
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_poisson_likelihood_rejuvenated():
    check(
        poisson_model(IndianBuffet(ALPHA)), dense(COUNTS), poisson_exact(),
        num_particles=30, most_error=0.01, rejuvenate_every=1, num_runs=4_000,
    )  # fmt: skip


@partial(jax.tree_util.register_dataclass, data_fields=["chances"], meta_fields=["num_features"])
@dataclass(frozen=True)
class KnownChances:
    """A custom prior: feature k with probability `chances[k]`, in every row."""

    chances: jax.Array
    num_features: int

    def exists(self, counts):
        return jnp.arange(counts.shape[0]) < self.num_features

    def log_odds(self, counts_without_row, num_rows):
        return jnp.log(self.chances) - jnp.log1p(-self.chances)

    def new_rate(self, num_rows):
        return jnp.zeros(())


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_custom_prior():
    chances = np.array([0.6, 0.25])
    z = all_matrices(3, 2)
    log_prior = (z * np.log(chances) + ~z * np.log1p(-chances)).sum(axis=(1, 2))
    exact = expectations(z, log_prior + log_likelihood(z, GAUSSIAN, **SCALES))
    model = gaussian_model(KnownChances(jnp.asarray(chances), 2))
    check(model, dense(GAUSSIAN), exact, num_particles=40, most_error=0.004, rejuvenate_every=3)


@pytest.mark.exhaustive
def test_new_features_that_are_always_accepted_are_caught(monkeypatch):
    """Broken twin of the rejuvenation: features of one row alone drawn from their prior."""

    right = explicit_rows.update_bits_and_new

    def twin(key, model, state, x, observed, conditional):
        flat = FeatureModel(lambda x, z, y: 0.0 * x, model.feature_prior, prior=model.prior)
        state, overflow = right(key, model, state, x, observed, conditional)
        still = conditional._replace(movable=jnp.zeros_like(conditional.movable))
        state, more = right(jax.random.fold_in(key, 9), flat, state, x, observed, still)
        return state, overflow | more

    monkeypatch.setattr(explicit_rows, "update_bits_and_new", twin)
    with pytest.raises(AssertionError, match="expected"):
        check(
            poisson_model(IndianBuffet(ALPHA)), dense(COUNTS), poisson_exact(),
            num_particles=30, most_error=None, num_runs=4_000, rejuvenate_every=1,
        )  # fmt: skip


# --- through the public verbs ---------------------------------------------------------------------


def rows_of(num_rows=12, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.random((num_rows, 2)) < 0.5
    return z @ np.array([[4.0, 0.0, 4.0], [0.0, 3.0, 3.0]]) + 0.5 * rng.normal(size=(num_rows, 3))


@pytest.fixture(scope="module")
def gaussian_post():
    """By a likelihood of the library, one cell missing."""
    values = rows_of()
    values[2, 1] = np.nan
    model = gaussian_model(IndianBuffet(1.0), 3)
    return mf.particle_filter(model, values, num_particles=100, seed=1, progress=False)


@pytest.fixture(scope="module")
def poisson_post():
    """By a custom function."""
    model = poisson_model(IndianBuffet(ALPHA))
    return mf.particle_filter(model, COUNTS, num_particles=20, progress=False)


def test_draws_and_predictions(gaussian_post):
    post = gaussian_post
    capacity = post.draws["z"].shape[-1]
    assert post.draws["z"].shape == (1, 100, 12, capacity)
    assert post.draws["y"].shape == (1, 100, capacity, 3)
    assert np.isfinite(post.draws["log_joint"]).all()
    assert np.isfinite(post.log_evidence)
    prediction = post.predict()
    assert prediction.mean.shape == (1,)
    assert prediction.sd[0] >= 0.79
    new = rows_of(5, seed=2)
    found = post.transform(new)
    assert found.shape == (5, len(post.features().counts))
    assert ((found >= 0) & (found <= 1)).all()
    assert "log_joint" in str(post.summary())


@pytest.mark.exhaustive
def test_more_rows(gaussian_post):
    new = rows_of(5, seed=2)
    assert gaussian_post.predict(new_rows=new).mean.shape == (15,)
    longer = gaussian_post.extend(new, progress=False)
    assert longer.draws["z"].shape[2] == 17
    again = mf.particle_filter(
        gaussian_post.model, np.concatenate([gaussian_post.data.to_array(), new]),
        num_particles=100, seed=1, progress=False,
    )  # fmt: skip
    assert longer.log_evidence == pytest.approx(again.log_evidence, rel=1e-5)


def test_saved_and_read_again(gaussian_post, tmp_path):
    again = mf.load(gaussian_post.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.draws["y"], gaussian_post.draws["y"])
    assert type(again.model.prior) is IndianBuffet
    assert again.model.feature_prior.event_shape == (3,)
    assert again.model.likelihood == mf.Gaussian(SCALES["noise_scale"])
    assert "Gaussian(noise_scale=0.8)" in again.facts()["model"]


def test_custom_functions_cannot_be_saved(poisson_post, tmp_path):
    with pytest.raises(TypeError, match=r"log_likelihood.*custom_log_likelihood"):
        poisson_post.save(tmp_path / "run")
    with pytest.raises(TypeError, match="log_likelihood"):
        mf.particle_filter(
            poisson_post.model, COUNTS, num_particles=20, progress=False, checkpoint=tmp_path / "c"
        )


def test_predictions_need_moments(poisson_post):
    with pytest.raises(ValueError, match="moments"):
        poisson_post.predict(([0], [1]))
    assert poisson_post.transform(COUNTS).shape[0] == 2


def test_log_joint_of_a_draw():
    model = gaussian_model(IndianBuffet(ALPHA, 1.3))
    z = np.array([[True, False], [True, True], [False, True]])
    y = np.array([[0.5, -1.0], [0.3, 0.2]])
    draw = {
        "z": jnp.asarray(np.pad(z, ((0, 0), (0, 2)))),
        "y": jnp.asarray(np.pad(y, ((0, 2), (0, 0))), float),
    }
    ones = z.sum(axis=0)
    expected = 2 * np.log(ALPHA * 1.3) + betaln(ones, 3 - ones + 1.3).sum()
    expected -= ALPHA * sum(1.3 / (1.3 + row) for row in range(3))
    for values, mean, scale in ((y, 0, SCALES["feature_scale"]), (GAUSSIAN, z @ y, 0.8)):
        expected += (
            -0.5 * ((values - mean) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))
        ).sum()
    found = jax.jit(model.log_joint)(draw, dense(GAUSSIAN))
    assert float(found) == pytest.approx(expected, rel=1e-5)


# --- bad input ------------------------------------------------------------------------------------

NORMAL = dist.Normal(0.0, 1.0).expand([2]).to_event(1)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("gaussian", NORMAL), TypeError, "log_likelihood must be a function"),
        ((custom_log_likelihood, 1.0), TypeError, "feature_prior must be a numpyro distribution"),
        ((custom_log_likelihood, dist.Normal), TypeError, "feature_prior must be a numpyro"),
        (
            (custom_log_likelihood, dist.Normal(jnp.zeros(2), 1.0)),
            ValueError,
            r"feature_prior.*to_event\(1\)",
        ),
    ],
)
def test_bad_parts(arguments, error, words):
    with pytest.raises(error, match=words):
        FeatureModel(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prior": 1.0}, TypeError, "prior must be an object"),
        ({"prior": IndianBuffet}, TypeError, "prior must be an object"),
        ({"moments": 3}, TypeError, "moments must be a function"),
        ({"cell_distribution": "gamma"}, ValueError, "cell_distribution must be one of"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        FeatureModel(custom_log_likelihood, NORMAL, **options)


def returns(function):
    return FeatureModel(function, NORMAL, prior=IndianBuffet(1.0))


@pytest.mark.parametrize(
    ("function", "values", "words"),
    [
        (
            lambda x, z, y: z @ y @ jnp.ones((2, 3)),
            GAUSSIAN,
            r"log_likelihood returned shape \(3,\)",
        ),
        (lambda x, z, y: jnp.sum(x), dense(GAUSSIAN, MISSING[:, :2]), "cells are missing"),
        (lambda x, z, y: jnp.log(x), -np.abs(GAUSSIAN), "log_likelihood returned nan for row 0"),
        (lambda x, z, y: jnp.where(z.any(), jnp.nan, 0.0) + 0 * x, GAUSSIAN, "1 features drawn"),
        (lambda x, z, y: x * jnp.inf, np.abs(GAUSSIAN), "log_likelihood returned inf"),
        (lambda x, z, y: jnp.full(2, -jnp.inf), GAUSSIAN, "log_likelihood returned -inf for every"),
        (lambda x, z: x, GAUSSIAN, "log_likelihood cannot be called"),
        (lambda x, z, y: x @ y.T, GAUSSIAN, "log_likelihood returned shape"),
    ],
)
def test_bad_likelihoods(function, values, words):
    with pytest.raises(ValueError, match=words):
        mf.particle_filter(returns(function), values, num_particles=4, progress=False)


def test_a_likelihood_of_whole_numbers():
    with pytest.raises(TypeError, match="log_likelihood must return floats"):
        mf.particle_filter(returns(lambda x, z, y: 1), GAUSSIAN, num_particles=4, progress=False)


def test_what_a_filter_of_any_features_cannot_do():
    model = poisson_model(IndianBuffet(1.0))
    with pytest.raises(ValueError, match="optimal"):
        model.filter(resample_fn=optimal)
    with pytest.raises(ValueError, match="capacity"):
        model.filter(capacity=0)
    assert model.filter(resample_fn=systematic, capacity=4) is not None
    with pytest.raises(ValueError, match="has no method 'variational'"):
        mf.variational(model, COUNTS)
