"""The annealed start: where it begins, that it rises, and that it is over in time."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.models.feature_model import chain
from jaxmf.samplers.annealing import (
    ANNEALED_START,
    annealed_factor,
    bounded_dispersion,
    features_begin,
    hold_while_annealed,
    leading_direction,
    noise_while_annealed,
    released_as_annealing_ends,
    repeats_left_out,
    start_that_shows,
)
from tests import FAST_COMPILE, LONG_RUNS


def test_factor_rises_geometrically_from_a_fifth_to_exactly_one():
    progress = jnp.linspace(0, 1, 41)
    factor = np.asarray(annealed_factor(progress))
    rising = np.asarray(progress) < 0.75
    np.testing.assert_allclose(factor[0], 0.2, rtol=1e-6)
    ratios = factor[1:][rising[1:]] / factor[:-1][: rising[1:].sum()]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
    assert ratios[0] > 1
    # anything else than one would sample from another posterior
    assert (factor[~rising] == 1).all()
    assert factor.dtype == progress.dtype


def test_scale_is_held_until_the_factor_is_one():
    progress = jnp.linspace(0, 1, 41)
    scale = np.asarray(hold_while_annealed(progress, jnp.asarray(1.0), jnp.asarray(2.0)))
    np.testing.assert_array_equal(scale, np.where(np.asarray(annealed_factor(progress)) < 1, 1, 2))


def test_the_dispersion_of_counts_is_bounded_while_features_begin():
    """A tenth is the most, or what the data show; free where its prior does not reach that."""
    free, shown = jnp.array([2.0, 0.05, 2.0, 0.3]), jnp.array([0.0, 0.0, 0.7, 0.7])
    bounded = bounded_dispersion(dist.Exponential(1.0), free, shown=shown)
    np.testing.assert_allclose(bounded, [0.1, 0.05, 0.7, 0.3], rtol=1e-6)
    above = bounded_dispersion(dist.Uniform(0.5, 3.0), free, shown=shown)
    np.testing.assert_allclose(above, [2.0, 0.05, 0.7, 0.3], rtol=1e-6)
    progress = jnp.array([0.0, 0.75, 0.89, 0.9, 1.0])
    assert features_begin(progress).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_dispersion_is_seen_in_counts_of_one_mean_and_not_in_those_of_features(is_missing):
    rng = np.random.default_rng(0)
    observed = rng.random((60, 20)) < 0.8 if is_missing else None
    dispersion = jax.jit(chain.dispersion_beside_directions)
    for rates, least, most in (
        (20.0 * np.ones((60, 20)), 0.4, 1.4),
        (0.3 + (rng.random((60, 3)) < 0.4) @ rng.gamma(2.0, 3.0, (3, 20)), 0.0, 0.2),
    ):
        spread = 1.0 if least else 0.1
        x = rng.poisson(rates * rng.gamma(1 / spread, spread, rates.shape)).astype(np.float32)
        if observed is not None:
            x[~observed] = 1e6
        found = dispersion(mf.Dense(jnp.asarray(x), observed))
        assert least <= found <= most


@pytest.mark.tiers(exhaustive=["likelihood0-0.1"])
@pytest.mark.parametrize(
    ("likelihood", "seen"),
    [(mf.NegativeBinomial(dist.Exponential(1.0), 0.3), 0.1), (mf.NegativeBinomial(2.0, 0.3), None)],
)
def test_steps_of_an_annealed_chain_see_the_bounded_dispersion(likelihood, seen, monkeypatch):
    """A number of the user's stays, and so does the dispersion without annealing."""
    prior = dist.Gamma(1.0, 1.0).expand([3]).to_event(1)
    model = mf.FeatureModel(likelihood=likelihood, feature_prior=prior)
    data = mf.Dense(jnp.ones((4, 3)))
    state = model.sampler().init(jax.random.key(0), data)
    found = []

    def update(plan, model, key, state, *_):
        found.append(state.hyperparameters.get("dispersion"))
        raise ZeroDivisionError

    monkeypatch.setattr(chain, "_update_features", update)
    for anneal in (True, False):
        step = model.sampler(anneal=anneal).step
        with pytest.raises(ZeroDivisionError):
            step(jax.random.key(1), state, data, jnp.asarray(0.5))
    free = state.hyperparameters.get("dispersion")
    np.testing.assert_array_equal(found, [free if seen is None else jnp.float32(seen), free])


@pytest.mark.exhaustive
@pytest.mark.usefixtures("long_runs")
def test_features_of_counts_are_found_though_a_dispersion_could_stand_for_them():
    """Most default chains: with the dispersion free from the start one was left of three in all."""
    rng = np.random.default_rng(100)
    z, loadings = rng.random((60, 3)) < 0.4, rng.gamma(2.0, 3.0, (3, 20))
    rates = 0.3 + z @ (loadings * (rng.random((3, 20)) < 0.5))
    counts = rng.poisson(rates * rng.gamma(10.0, 0.1, rates.shape)).astype(np.float32)
    model = mf.FeatureModel(likelihood=mf.NegativeBinomial())
    settings = {"num_warmup": 300, "num_samples": 20, "num_chains": 2, "progress": False}
    draws = mf.sample(model, counts, seed=1, **settings).draws
    found = np.median(draws["num_features"], axis=1)
    best = np.argmax(found)
    assert found[best] == 3
    assert found.min() >= 2
    assert np.mean(draws["dispersion"][best]) < 0.2


def test_a_scale_is_let_go_by_steps_as_the_annealing_ends():
    progress = jnp.array([0.0, 0.6, 0.7, 0.7, 0.74, 0.75])
    free = jnp.array([0.1, 0.1, 0.1, 0.9, 3.0, 0.1])
    scale = released_as_annealing_ends(progress, jnp.ones(6), free)
    np.testing.assert_allclose(scale, [1, 1, 0.8, 0.9, 3.0, 0.1], rtol=1e-6)


def test_as_the_annealing_ends_features_that_repeat_others_are_left_out():
    a = np.array([1, 1, 0, 0, 1, 0], bool)
    b = np.array([0, 1, 1, 0, 0, 0], bool)
    every, none = np.ones(6, bool), np.zeros(6, bool)
    z = jnp.asarray(np.stack([every, a, b, none, a, ~a, every, ~b], axis=1))
    during, ending, after = (
        np.asarray(repeats_left_out(jnp.asarray(progress), z, num_fixed=1)).any(axis=0).tolist()
        for progress in (0.6, 0.7, 0.75)
    )
    assert during == after == [True, True, True, False, True, True, True, True]
    assert ending == [True, True, True, False, False, False, False, False]
    # without a level of all rows the others of a feature say something else
    kept = np.asarray(repeats_left_out(jnp.asarray(0.7), z[:, 1:], num_fixed=0)).any(axis=0)
    assert kept.tolist() == [True, True, False, False, True, True, True]


def test_the_bound_of_the_noise_falls_from_its_start_to_a_fifth_as_the_factor_rises():
    progress = jnp.linspace(0, 1, 41)
    factor = np.asarray(annealed_factor(progress))

    def noise(prior, free):
        return np.asarray(
            noise_while_annealed(
                progress, prior, jnp.asarray(free), start=jnp.asarray(2.0), factor=factor
            )
        )

    wide, narrow = dist.LogUniform(1e-3, 10.0), dist.LogUniform(1e-3, 0.1)
    bound = np.where(factor < 1, 0.4 / factor, 0.01)
    np.testing.assert_allclose(noise(wide, 0.01), bound, rtol=1e-6)
    np.testing.assert_array_equal(noise(wide, 3.0), 3.0)
    np.testing.assert_array_equal(noise(narrow, 0.05), np.float32(0.05))  # 0.4 is not its value
    middle = dist.LogUniform(1e-3, 0.5)  # a fifth of the start where it does not reach further up
    assert noise(middle, 0.01)[0] == np.float32(0.4)
    np.testing.assert_array_equal(noise(0.05, 0.05), np.float32(0.05))


@pytest.mark.parametrize("unit", [1.0, 1e15, 1e-15])
def test_the_leading_direction_is_that_of_the_singular_vectors_in_any_unit(unit):
    rng = np.random.default_rng(0)
    x = np.outer(rng.normal(size=30), rng.normal(size=12)) + 0.3 * rng.normal(size=(30, 12))
    left, values, right = np.linalg.svd(x)
    direction = leading_direction(jnp.asarray(unit * x, jnp.float32), None)
    np.testing.assert_allclose(
        direction.noise_scale, unit * values[0] / (30**0.5 + 12**0.5), rtol=1e-3
    )
    for vector, singular in ((direction.rows, left[:, 0]), (direction.columns, right[0])):
        vector = np.asarray(vector, float)
        assert abs(vector @ singular) > 0.999 * np.linalg.norm(vector)


def test_missing_cells_do_not_hide_a_leading_direction():
    rng = np.random.default_rng(0)
    x = np.outer(rng.normal(size=200), rng.normal(size=80))
    seen = rng.random(x.shape) < 0.5
    whole = leading_direction(jnp.asarray(x, jnp.float32), None)
    half = leading_direction(jnp.asarray(np.where(seen, x, 1e6), jnp.float32), jnp.asarray(seen))
    # half of the signal, seen through noise of half the variance
    assert 0.6 < half.noise_scale / whole.noise_scale < 0.8
    noise = jnp.asarray(np.where(seen, rng.normal(size=x.shape), 0), jnp.float32)
    assert 0.9 < leading_direction(noise, jnp.asarray(seen)).noise_scale < 1.1


def test_annealing_starts_where_the_data_begin_to_show():
    rng = np.random.default_rng(0)
    noise = jnp.asarray(rng.normal(size=(300, 40)), jnp.float32)
    strong = noise + 5 * jnp.outer(noise[:, 0], noise[0])
    one = jnp.asarray(1.0)
    starts = [float(start_that_shows(leading_direction(x, None), one)) for x in (noise, strong)]
    assert starts[0] > 0.9  # nothing but noise: nothing to be gained by more of it
    assert starts[1] == pytest.approx(ANNEALED_START)
    nothing = leading_direction(jnp.zeros((3, 2)), None)
    assert float(start_that_shows(nothing, one)) == 1
    assert np.isfinite(nothing.rows).all()


@pytest.mark.tiers(exhaustive=["11"])
@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 11])
def test_a_few_rows_of_noise_do_not_fill_the_slots(seed):
    # the chains used to need more than 256 slots at about step 150 of the warm-up
    x = np.random.default_rng(seed).normal(size=(12, 4))
    post = mf.sample(mf.LinearGaussianIBP(), x, seed=0, progress=False)
    assert post.draws["num_features"].mean() < 2


@pytest.mark.parametrize(
    "cells",
    [mf.Gaussian(0.7), mf.Bernoulli(), mf.Poisson(0.3)],
    ids=["gaussian", "logistic", "poisson"],
)
def test_annealed_cells_weigh_a_difference_by_the_square_of_the_noise_factor(cells):
    x, one, other = jnp.asarray([1.0, 0.0]), jnp.asarray([0.4, 2.0]), jnp.asarray([1.5, 0.1])

    def gain(cells):
        return np.asarray(cells.log_kernel(x, one) - cells.log_kernel(x, other))

    np.testing.assert_allclose(gain(cells.annealed(5.0)), gain(cells) / 25, rtol=2e-5)
    np.testing.assert_array_equal(gain(cells.annealed(1.0)), gain(cells))


@pytest.mark.tiers(exhaustive=["logistic"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood", [mf.Gaussian(), mf.Bernoulli()], ids=["gaussian", "logistic"]
)
def test_a_step_of_a_factorisation_is_annealed_until_three_quarters_of_the_warm_up(likelihood):
    prior = mf.BetaBernoulli(1.0, 1.0, 2)
    model = mf.BinaryMF(row_prior=prior, column_prior=prior, likelihood=likelihood)
    data = mf.Dense(jnp.asarray(np.random.default_rng(0).random((8, 5)) < 0.5, float))
    annealed, plain = (model.sampler(weights="explicit", anneal=on) for on in (True, False))
    state = plain.init(jax.random.key(0), data)

    def bits(sampler, progress):
        many = jax.vmap(sampler.step, in_axes=(0, None, None, None))
        step = jax.jit(many, compiler_options=FAST_COMPILE)
        after, _ = step(jax.random.split(jax.random.key(1), 64), state, data, jnp.asarray(progress))
        return after.u, after.v

    chex.assert_trees_all_equal(bits(annealed, 0.75), bits(plain, 0.75))
    assert not np.array_equal(bits(annealed, 0.0)[0], bits(plain, 0.0)[0])


@pytest.mark.exhaustive
def test_a_long_warm_up_does_not_take_the_noise_for_features():
    """With a lower bound that does not follow the weights, rows got features alone."""
    data = mf.Dense.from_array(mf.datasets.section_4_2(0).x[:60])
    model = mf.LinearGaussianIBP().matched(data)
    sampler = model.sampler(capacity=64)

    def largest(key):
        def step(state, index):
            state, info = sampler.step(jax.random.fold_in(key, index), state, data, index / 1_500)
            return state, (jnp.sum(jnp.any(state.z, axis=0)), info.overflow["features"])

        return jax.lax.scan(step, sampler.init(key, data), jnp.arange(150.0))[1]

    run = jax.jit(jax.vmap(largest), compiler_options=LONG_RUNS)
    counts, overflow = run(jax.random.split(jax.random.key(0), 8))
    assert not overflow.any()
    assert counts.max() < 40


@pytest.mark.exhaustive
def test_an_annealed_start_of_a_small_matrix_stays_within_its_slots():
    """With the weight scale held and alpha free, 21 features of eight columns said what 3 can."""
    rng = np.random.default_rng(0)
    u, v = rng.random((24, 2)) < 0.4, rng.random((8, 2)) < 0.5
    x = u @ (2 * rng.normal(size=(2, 2))) @ v.T + 0.5 * rng.normal(size=(24, 8))
    data = mf.Dense.from_array(x)
    model = mf.BinaryMF().matched(data)
    sampler = model.sampler(capacity=16)

    def chain(key):
        def step(state, index):
            state, info = sampler.step(jax.random.fold_in(key, index), state, data, index / 200)
            return state, (info.overflow, state.v.any(0))

        return jax.lax.scan(step, sampler.init(key, data), jnp.arange(150.0))[1]

    run = jax.jit(jax.vmap(chain), compiler_options=FAST_COMPILE)
    overflow, used = run(jax.random.split(jax.random.key(0), 6))
    assert not any(np.any(each) for each in overflow.values())
    # features move to the first slots, whatever slots they came in
    np.testing.assert_array_equal(used, np.sort(used, axis=-1)[..., ::-1])


def power_and_weight(prior, values, progress):
    """Of a step of a `FeatureModel` with such entries of its features."""
    rows = prior.expand([values.shape[1]]).to_event(1)
    return chain.annealing_at(rows, mf.Dense(values), jnp.asarray(progress))


def test_features_of_any_likelihood_start_weak_and_end_as_they_are():
    values = jnp.full((5, 3), 0.5)
    power, weight = power_and_weight(dist.Normal(), values, 0.0)
    np.testing.assert_allclose([power, weight], [1, ANNEALED_START], rtol=1e-6)
    np.testing.assert_array_equal(power_and_weight(dist.Normal(), values, 0.75), [1, 1])
    # so large a row would need very many weak features
    np.testing.assert_allclose(
        power_and_weight(dist.Normal(), 1e4 * values, 0.0), [ANNEALED_START**2, 1], rtol=1e-6
    )


@pytest.mark.parametrize("prior", [dist.Bernoulli(0.5), dist.Uniform(1.0, 2.0)])
def test_features_that_cannot_be_weak_start_with_a_weak_likelihood(prior):
    power, weight = power_and_weight(prior, jnp.ones((5, 3)), 0.0)
    assert weight is None
    np.testing.assert_allclose(power, ANNEALED_START**2, rtol=1e-6)


def test_an_annealed_likelihood_is_that_of_the_weaker_features_to_the_power():
    model = mf.FeatureModel(
        likelihood=mf.Gaussian(0.5), feature_prior=dist.Normal().expand([3]).to_event(1)
    )
    x, z, y = jnp.array([1.0, 0, 2]), jnp.array([True, True]), jnp.arange(6.0).reshape(2, 3)
    annealed = model.tempered(0.3, jnp.asarray(0.2))
    np.testing.assert_allclose(
        annealed.row_log_likelihood(x, None, z, y),
        0.3 * model.row_log_likelihood(x, None, z, 0.2 * y),
        rtol=1e-5,
    )
    assert annealed.columns_are_separate


@pytest.mark.exhaustive
def test_chains_of_features_of_many_columns_reach_all_four_features():
    """With a weak likelihood they reached one or two: features from the prior seldom fit."""
    rows = dist.Normal(0.0, 1.0).expand([36]).to_event(1)
    model = mf.FeatureModel(likelihood=mf.Gaussian(0.5), feature_prior=rows)
    posterior = mf.sample(
        model, mf.datasets.section_4_2(0).x, capacity=16,
        num_warmup=200, num_samples=20, num_chains=2, seed=0, progress=False,
    )  # fmt: skip
    last = np.asarray(posterior.draws["num_features"]).reshape(2, -1)[:, -1]
    assert np.all((last >= 4) & (last <= 5))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("long_runs")
def test_a_wide_table_of_much_noise_has_its_features_once():
    """Weak weights once gave every row of noise a feature, or every part several equal ones."""
    rng = np.random.default_rng(1)
    z = rng.random((40, 5)) < 0.4
    loadings = 1.2 * rng.normal(size=(5, 500)) * (rng.random((5, 500)) < 0.3)
    x = rng.normal(8, 1, 500) + z @ loadings + rng.normal(size=(40, 500))
    post = mf.sample(mf.LinearGaussianIBP(), x, num_warmup=200, num_samples=20, num_chains=3,
                     progress=False)  # fmt: skip
    assert (post.draws["num_features"] == 5).all(axis=1).sum() >= 2
    np.testing.assert_allclose(post.draws["noise_scale"], 1, atol=0.1)
