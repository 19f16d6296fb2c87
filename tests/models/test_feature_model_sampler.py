"""The Markov chain of `FeatureModel`: joint distributions, enumeration, broken twins, refusals."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.tree_util import Partial

import jaxmf as mf
from jaxmf.data import Dense
from jaxmf.models.feature_model import FeatureModel
from jaxmf.models.feature_model.feature_model_spec import bind
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import explicit_rows, feature_values
from jaxmf.testing import check_means, check_prior
from tests import FAST_COMPILE, LONG_RUNS
from tests.models.test_feature_model import (
    GAUSSIAN,
    SCALES,
    KnownChances,
    dense,
    gaussian_exact,
    gaussian_model,
    noisy_or_exact,
    noisy_or_model,
)
from tests.support.joint_checks import check_setup

NUM_ROWS, NUM_COLUMNS = 3, 2
OBSERVED = jnp.array([[True, True], [False, True], [True, False]])
ALPHA = dist.Gamma(10.0, 15.0)
CAPACITY = 16


# --- models, each another way of moving Y ---------------------------------------------------------


def normal_features(feature_scale):
    return dist.Normal(0.0, feature_scale).expand([NUM_COLUMNS]).to_event(1)


def by_columns(prior=None):
    """Normal rows of Y, moved by columns; both scales and alpha learned."""
    return FeatureModel(
        likelihood=mf.Gaussian(dist.LogNormal(-0.5, 0.3)),
        feature_prior=normal_features,
        prior=IndianBuffet(ALPHA, 1.4) if prior is None else prior,
        parameters={"feature_scale": dist.Uniform(0.5, 1.5)},
    )


def product(x, z, y, slope):
    """A cell depends on Y in all columns."""
    score = slope * jnp.where(z[:, None], y, 0).sum(axis=0)
    return dist.Normal(score - score[::-1] ** 2, 0.7).log_prob(x)


def product_row(key, z, y, slope):
    score = slope * jnp.where(z[:, None], y, 0).sum(axis=0)
    return score - score[::-1] ** 2 + 0.7 * jax.random.normal(key, score.shape)


def mixed_columns():
    """Dependent rows of Y, moved entry by entry and along lines; a slope of any sign learned."""
    return FeatureModel(
        product,
        dist.MultivariateNormal(jnp.zeros(2), jnp.array([[0.5, 0.2], [0.2, 0.4]])),
        prior=IndianBuffet(0.7),
        sample_row=product_row,
        parameters={"slope": dist.Normal(0.5, 0.4)},
    )


def causes():
    """Zeros and ones in Y, moved by columns; the leak learned."""
    return FeatureModel(
        likelihood=mf.NoisyOr(0.7, dist.Beta(2.0, 8.0)),
        feature_prior=dist.Bernoulli(0.4).expand([NUM_COLUMNS]).to_event(1),
        prior=IndianBuffet(0.7, dist.Gamma(8.0, 6.0)),
    )


def counts():
    """Positive rows of Y of a finite model; moved by columns."""
    return FeatureModel(
        likelihood=mf.Poisson(0.4),
        feature_prior=dist.Gamma(2.0, 1.5).expand([NUM_COLUMNS]).to_event(1),
        prior=BetaBernoulli(ALPHA, 1.3, 3),
    )


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: FeatureModel

    def sample_prior(self, key):
        return self.model.simulate_like(key, Dense(jnp.zeros((NUM_ROWS, NUM_COLUMNS))))[0]

    def simulate(self, key, state):
        """Missing cells hold the value that they would have; it must not be used."""
        draw = {"z": state.z, "y": state.y, **state.hyperparameters}
        return Dense(self.model.simulate_data(key, draw), OBSERVED)

    def statistics(self, state, data):
        z, y = state.z.astype(float), state.y.astype(float)
        x = data.values if data.observed is None else jnp.where(data.observed, data.values, 0)
        shared, eta = z @ z.T, z @ y
        exists = self.model.exists(jnp.sum(z, axis=0))
        found = {
            "number of features": jnp.sum(jnp.any(state.z, axis=0)),
            "number of bits": jnp.sum(z).astype(int),
            "shared 0, 1": shared[0, 1].astype(int),
            "features of one row": jnp.sum(jnp.sum(z, axis=0) == 1),
            "sum of entries": jnp.sum(jnp.where(exists[:, None], y, 0)),
            "squares of entries": jnp.sum(jnp.where(exists[:, None], y**2, 0)),
            "cell": eta[0, 0],
            "missing cell": eta[1, 0],
            "cells times data": jnp.sum(eta * x),
            "squared cells times data": jnp.sum(eta**2 * x),
            "shared times products": shared[0, 2] * (x @ x.T)[0, 2],
        }
        for name, prior in self.model.hyperparameters.items():
            if hasattr(prior, "log_prob"):
                value = state.hyperparameters[name]
                found[name] = value
                found[f"{name} times bits"] = value * jnp.sum(z)
                found[f"{name} times squares"] = value * jnp.sum(x**2)
                found[f"{name} times cells"] = value * jnp.sum(eta * x)
        return found

    def check(self, kernel=None, *, key, **options):
        kernel = step_of(self.model) if kernel is None else kernel
        return check_setup(self, kernel, key=jax.random.key(key), **options)


def step_of(model, **options):
    step = model.sampler(num_value_moves=1, **options).step
    return lambda key, state, data: step(key, state, data, jnp.asarray(1.0))


def test_more_moves_of_values_make_no_larger_program():
    model, data = by_columns(), Dense(jnp.zeros((NUM_ROWS, NUM_COLUMNS)))

    def num_equations(num_value_moves):
        sampler = model.sampler(num_value_moves=num_value_moves)
        state = jax.eval_shape(sampler.init, jax.random.key(0), data)
        return str(jax.make_jaxpr(sampler.step)(jax.random.key(0), state, data, 1.0)).count("= ")

    assert num_equations(5) == num_equations(2)


@pytest.mark.parametrize("sweep", ["whole_rows", None, 3])
def test_an_unknown_sweep_is_refused_with_those_there_are(sweep):
    with pytest.raises(ValueError, match="sweep must be one of 'auto', 'bits', 'particle_gibbs'"):
        causes().sampler(sweep=sweep)


# --- joint distributions --------------------------------------------------------------------------


@pytest.mark.tiers(exhaustive=["by_columns", "causes", "counts"])
@pytest.mark.slow
@pytest.mark.parametrize("make", [by_columns, mixed_columns, causes, counts])
def test_the_whole_step(make):
    Setup(make()).check(key=42, num_replicates=4_096, num_steps=6, compiler_options=LONG_RUNS)


@pytest.mark.slow
def test_the_whole_step_with_rows_drawn_together():
    model = causes()
    kernel = step_of(model, sweep="particle_gibbs")
    Setup(model).check(kernel, key=46, num_replicates=1_024, num_steps=3)


@pytest.mark.exhaustive
def test_flips_of_single_entries():
    """Zeros and ones of which nothing is known about columns."""

    def cell(z, y, leak):
        return dist.Bernoulli(1 - (1 - leak) * 0.3 ** (z.astype(float) @ y))

    model = FeatureModel(
        lambda x, z, y, leak: cell(z, y, leak).log_prob(x),
        dist.Bernoulli(0.4).expand([NUM_COLUMNS]).to_event(1),
        prior=IndianBuffet(0.7, dist.Gamma(8.0, 6.0)),
        sample_row=lambda key, z, y, leak: cell(z, y, leak).sample(key),
        parameters={"leak": dist.Beta(2.0, 8.0)},
    )
    assert not model.columns_are_separate
    Setup(model).check(key=43, num_steps=6)


@pytest.mark.tiers(exhaustive=["by_columns"])
@pytest.mark.slow
@pytest.mark.parametrize("make", [by_columns, counts])
def test_the_prior_comes_back_with_the_likelihood_off(make):
    """No cell is observed: features and hyperparameters follow their prior."""
    setup = Setup(make())
    seen = Dense(jnp.zeros((NUM_ROWS, NUM_COLUMNS)), OBSERVED)
    nothing = jnp.zeros((NUM_ROWS, NUM_COLUMNS), bool)
    check_prior(
        step_of(setup.model),
        sample_prior=setup.sample_prior,
        data=jax.tree.unflatten(jax.tree.structure(seen), [seen.values + 1, nothing]),
        statistics=setup.statistics,
        key=jax.random.key(44),
        compiler_options=FAST_COMPILE,
        num_steps=8,
    )


# --- enumeration ----------------------------------------------------------------------------------


def averages(model, data, *, num_chains, num_steps, measure, warm_up=60):
    """Averages (C, ...) over the last steps of chains that start at the prior."""
    algorithm = model.sampler(capacity=CAPACITY, anneal=False)

    def one(key):
        state = algorithm.init(jax.random.fold_in(key, 2**30), data)

        def step(carry, index):
            state, total, overflow = carry
            step_key = jax.random.fold_in(key, index)
            state, info = algorithm.step(step_key, state, data, jnp.ones(()))
            here = measure(state)
            kept = (index >= warm_up) / (num_steps - warm_up)
            total = jax.tree.map(lambda sum_, value: sum_ + kept * value, total, here)
            return (state, total, overflow | info.overflow["features"]), None

        start = (state, jax.tree.map(jnp.zeros_like, measure(state)), jnp.zeros((), bool))
        (_, total, overflow), _ = jax.lax.scan(step, start, jnp.arange(num_steps))
        return total, overflow

    keys = jax.random.split(jax.random.key(5), num_chains)
    found, overflow = jax.jit(jax.vmap(one), compiler_options=LONG_RUNS)(keys)
    assert not np.any(overflow), "the test needs a larger capacity"
    return found


def features_and_cooccurrence(state):
    z = state.z.astype(jnp.result_type(float))
    num_features = jnp.sum(jnp.any(state.z, axis=0))
    return {
        "num_features": (num_features == jnp.arange(4)).astype(z.dtype),
        "cooccurrence": (z @ z.T)[jnp.triu_indices(z.shape[0])],
    }


def without_evidence(exact):
    return {name: value for name, value in exact[1].items() if name != "evidence"}


@pytest.mark.tiers(exhaustive=["1.3-3"])
@pytest.mark.exhaustive
@pytest.mark.parametrize(("concentration", "num_features"), [(1.7, None), (1.3, 3)])
def test_gaussian_features_have_the_posterior_of_the_linear_gaussian_model(
    concentration, num_features
):
    """The collapsed posterior, enumerated: Y is summed out there and sampled here."""
    prior = IndianBuffet(0.5, concentration)
    if num_features is not None:
        prior = BetaBernoulli(0.5, concentration, num_features)
    found = averages(
        gaussian_model(prior), dense(GAUSSIAN), num_chains=2_000, num_steps=160,
        measure=features_and_cooccurrence,
    )  # fmt: skip
    exact = without_evidence(gaussian_exact(concentration, num_features))
    check_means(found, exact, max_standard_error=0.006)


@pytest.mark.slow
def test_noisy_or_features_with_missing_cells_have_the_exact_posterior():
    from tests.models.test_feature_model import BINARY, MISSING

    found = averages(
        noisy_or_model(IndianBuffet(0.5)), dense(BINARY, MISSING), num_chains=2_000, num_steps=160,
        measure=features_and_cooccurrence,
    )  # fmt: skip
    check_means(found, without_evidence(noisy_or_exact(missing=True)), max_standard_error=0.006)


# --- broken twins ---------------------------------------------------------------------------------


# what sees a plain fault, and what the others need
FEWER = {"num_replicates": 1_024, "num_steps": 6}
MANY = {"num_replicates": 4_096, "compiler_options": LONG_RUNS}


def must_fail(setup, **options):
    with pytest.raises(AssertionError, match="FAILED"):
        setup.check(key=45, **FEWER | options)


@pytest.mark.slow
def test_a_birth_that_takes_the_best_candidate_for_an_ordinary_one_is_caught(monkeypatch):
    """The likelihood of the chosen candidate in place of the mean over all of them."""
    monkeypatch.setattr(explicit_rows, "logsumexp", lambda x: jnp.max(x) + jnp.log(len(x)))
    must_fail(Setup(causes()))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_birth_that_forgets_how_many_features_may_die_is_caught(monkeypatch):
    right = explicit_rows.birth_or_death

    def twin(key, model, state, x, observed, conditional):
        wrong = conditional._replace(rate=conditional.rate * (1 + jnp.sum(state.z)))
        return right(key, model, state, x, observed, wrong)

    monkeypatch.setattr(explicit_rows, "birth_or_death", twin)
    must_fail(Setup(causes()), **MANY)


@pytest.mark.exhaustive
def test_slices_are_right_without_draws_of_whole_rows_and_wrong_without_the_jacobian(monkeypatch):
    # whole rows from the prior would mend most of what slices do to features of few rows
    monkeypatch.setattr(explicit_rows, "replace_features", lambda key, model, z, y, *others: y)
    Setup(counts()).check(key=45, num_replicates=4_096, num_steps=6)
    right = feature_values._slice_columns

    def twin(entries, values):
        flat = lambda y: values.by_column(y) - jnp.log(y).sum(axis=0)  # noqa: E731
        return right(entries, values._replace(by_column=flat))

    monkeypatch.setattr(feature_values, "_slice_columns", twin)
    must_fail(Setup(counts()))


@pytest.mark.exhaustive
def test_a_parameter_that_forgets_the_prior_of_the_features_is_caught(monkeypatch):
    """The scale of the features given the data alone."""

    def twin(self, z, y, data):
        rows = jax.vmap(self.row_log_likelihood, in_axes=(0, 0, 0, None))
        return jnp.sum(rows(data.values, data.observed, z, y))

    monkeypatch.setattr(FeatureModel, "log_conditional", twin)
    must_fail(Setup(by_columns()), **MANY)


# --- hyperparameters, by name ---------------------------------------------------------------------


def test_arguments_are_bound_wherever_they_stand():
    values = {"scale": 2.0, "shift": 3.0}

    def first(scale, shift, x):
        return scale * x + shift

    def last(x, shift, *, scale=0.0):
        return scale * x + shift

    def split(scale, x, shift):
        return scale * x + shift

    for function in (first, last, split):
        assert bind(Partial(function), values)(5.0) == 13.0
    assert bind(Partial(first, 1.0), values)(5.0) == 8.0
    assert bind(Partial(lambda x: x), values)(5.0) == 5.0


def normal_cells(x, z, y, noise_scale):
    return dist.Normal(z.astype(float) @ y, noise_scale).log_prob(x)


def test_a_fixed_parameter_is_the_number_bound_to_the_function():
    model = FeatureModel(
        normal_cells,
        normal_features,
        prior=IndianBuffet(0.5),
        moments=lambda z, y, noise_scale: (z @ y, jnp.full(2, noise_scale**2)),
        parameters=SCALES,
    )
    draw = {"z": jnp.array([[True], [False], [True]]), "y": jnp.array([[0.5, -1.0]])}
    plain = gaussian_model(IndianBuffet(0.5))

    @jax.jit
    def answers(draw, data):
        cells = jnp.arange(2), jnp.arange(2)
        return [
            (each.log_joint(draw, data), *each.predict_cells(draw, data, *cells))
            for each in (model, plain)
        ]

    for found, expected in zip(*answers(draw, dense(GAUSSIAN)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


NORMAL = dist.Normal(0.0, 1.0).expand([2]).to_event(1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"parameters": 3.0}, TypeError, "parameters must be a dict"),
        ({"parameters": {"scale": 1.0}}, ValueError, "'scale' is an argument of none of"),
        (
            {"parameters": {"noise_scale": "wide"}},
            TypeError,
            r"parameters\['noise_scale'\] must be",
        ),
        ({"parameters": {"noise_scale": np.nan}}, ValueError, r"\['noise_scale'\] must be finite"),
        ({"parameters": {"noise_scale": dist.Poisson(1.0)}}, ValueError, "must be continuous"),
        ({"columns_independent": 1}, TypeError, "columns_independent"),
    ],
)
def test_bad_parameters(options, error, words):
    with pytest.raises(error, match=words):
        FeatureModel(normal_cells, NORMAL, **options)


def test_a_name_of_a_draw_is_no_parameter():
    with pytest.raises(ValueError, match="the name 'y' is taken in draws"):
        FeatureModel(normal_cells, NORMAL, parameters={"y": 1.0})


def test_a_prior_that_cannot_be_made_of_the_parameters():
    with pytest.raises(TypeError, match="feature_prior must be a numpyro distribution, or a func"):
        FeatureModel(normal_cells, normal_features)


def test_columns_that_are_not_independent_are_refused_before_a_run():
    model = dataclasses.replace(mixed_columns(), columns_independent=True)
    with pytest.raises(ValueError, match=r"columns_independent: log_likelihood of cell \(0, "):
        mf.sample(model, GAUSSIAN, progress=False)


def test_a_prior_of_features_without_a_density_is_filtered_and_not_sampled():
    model = gaussian_model(KnownChances(jnp.asarray([0.6, 0.25]), 2))
    with pytest.raises(TypeError, match="KnownChances, has no method log_prob"):
        mf.sample(model, GAUSSIAN, progress=False)


@pytest.mark.parametrize(
    ("make", "prior", "name"),
    [
        (by_columns, IndianBuffet(1.0), "noise_scale"),
        (gaussian_model, IndianBuffet(ALPHA), "alpha"),
    ],
)
def test_a_filter_takes_numbers(make, prior, name):
    model = make(prior)
    with pytest.raises(ValueError, match=f"{name} has a prior, but mf.particle_filter takes"):
        mf.particle_filter(model, GAUSSIAN, num_particles=4, progress=False)


# --- through the public verbs ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def posterior():
    """Two features of ten rows, a cell missing; the noise and alpha learned."""
    rng = np.random.default_rng(0)
    z = np.tile(np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]]), (2, 1))
    values = z @ np.array([[3.0, 0, 3, 0], [0, -2, 0, -2]]) + 0.3 * rng.normal(size=(10, 4))
    values[2, 1] = np.nan
    model = FeatureModel(
        likelihood=mf.Gaussian(dist.LogUniform(0.05, 5.0)),
        feature_prior=dist.Normal(0.0, 2.0).expand([4]).to_event(1),
        prior=IndianBuffet(dist.Gamma(1.0, 1.0)),
    )
    return mf.sample(
        model, values, num_warmup=200, num_samples=200, num_chains=2, seed=3, progress=False
    )


@pytest.mark.slow
def test_a_chain_finds_features_scale_and_a_missing_cell(posterior):
    """Of both chains: each comes to the two features by itself."""
    num_features = np.asarray(posterior.draws["num_features"]).reshape(2, -1)
    np.testing.assert_array_equal(np.median(num_features, axis=1), 2)
    scale = np.median(np.asarray(posterior.draws["noise_scale"]).reshape(2, -1), axis=1)
    assert np.all((scale > 0.15) & (scale < 0.45)), "the noise of the data has the scale 0.3"
    assert -2.6 < posterior.predict().mean[0] < -1.4  # -2 with noise
    assert "noise_scale" in str(posterior.summary())
    new = posterior.predict(new_rows=np.array([[3.0, 0.0, 3.0, np.nan], [0.0, -2.0, 0.0, -2.0]]))
    assert len(new.mean) > 0
    assert np.isfinite(new.mean).all()


@pytest.mark.slow
def test_a_chain_with_learned_parameters_is_saved_and_read_again(posterior, tmp_path):
    again = mf.load(posterior.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.draws["noise_scale"], posterior.draws["noise_scale"])
    assert repr(again.model) == repr(posterior.model)
    assert type(again.model.likelihood.noise_scale) is dist.LogUniform
