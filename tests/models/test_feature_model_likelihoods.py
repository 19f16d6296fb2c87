"""`FeatureModel` with a likelihood object instead of functions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.extend.core import jaxprs_in_params
from scipy import stats

import jaxmf as mf
from jaxmf.posterior import pointwise
from jaxmf.posterior.records import Meta
from jaxmf.samplers import feature_layout
from jaxmf.samplers.feature_values import draw_rows
from jaxmf.testing import check_means
from tests.models.test_feature_model_sampler import FEWER, NUM_COLUMNS, Setup

NORMAL = dist.Normal(0.0, 1.0).expand([NUM_COLUMNS]).to_event(1)
GAMMA = dist.Gamma(2.0, 1.5).expand([NUM_COLUMNS]).to_event(1)
CAUSES = dist.Bernoulli(0.4).expand([NUM_COLUMNS]).to_event(1)
FINITE = mf.BetaBernoulli(1.2, 1.3, 3)

OBJECTS = {
    "gaussian": (mf.Gaussian(dist.LogNormal(-0.5, 0.3)), NORMAL),
    "student t": (mf.StudentT(12.0, dist.LogNormal(-0.5, 0.3)), NORMAL),
    "bernoulli": (mf.Bernoulli(), NORMAL),
    "probit": (mf.Probit(), NORMAL),
    "ordinal": (mf.Ordinal((1, 2, 3), thresholds=(-0.5, 0.8)), NORMAL),
    "noisy or": (mf.NoisyOr(dist.Beta(6.0, 3.0), 0.1), CAUSES),
    "poisson": (mf.Poisson(dist.Gamma(6.0, 15.0)), GAMMA),
    "negative binomial": (mf.NegativeBinomial(dist.Gamma(8.0, 20.0), 0.4), GAMMA),
}


def model_of(name, prior=FINITE):
    likelihood, feature_prior = OBJECTS[name]
    return mf.FeatureModel(likelihood=likelihood, feature_prior=feature_prior, prior=prior)


# They differ in the density of a cell, which test_cell_likelihoods.py holds, and in what is learned
# beside the features: a step with one that learns its scale is slow, of others run every week.
@pytest.mark.tiers(
    slow=["gaussian"],
    exhaustive=[
        "bernoulli",
        "negative binomial",
        "noisy or",
        "ordinal",
        "poisson",
        "probit",
        "student t",
    ],
)
@pytest.mark.parametrize("name", OBJECTS)
def test_the_whole_step_with_a_likelihood_object(name):
    Setup(model_of(name)).check(key=47, num_replicates=4_096, num_steps=6)


def with_level():
    """A row of all rows, and columns in units of their own."""
    unit, offset = np.array([3.0, 0.2, 1.0])[:NUM_COLUMNS], np.arange(NUM_COLUMNS) - 1.0
    prior = mf.IndianBuffet(dist.Gamma(8.0, 10.0))
    return dataclasses.replace(
        model_of("gaussian", prior), bias=True, offset=offset, column_unit=unit
    )


@pytest.mark.exhaustive
def test_the_whole_step_with_a_level_of_all_rows_in_units_of_columns():
    Setup(with_level()).check(key=49, num_replicates=4_096, num_steps=6)


def without_units(self, x, eta, columns=slice(None)):
    return self.likelihood.log_density(x - self.offset_at(columns), eta)


@pytest.mark.exhaustive
@pytest.mark.parametrize("forgotten", ["units", "level"])
def test_units_or_a_level_that_the_sampler_does_not_see_are_caught(forgotten, monkeypatch):
    if forgotten == "units":
        monkeypatch.setattr(mf.FeatureModel, "log_densities_at", without_units)
    else:
        right = feature_layout.row_prior
        monkeypatch.setattr(
            feature_layout, "row_prior", lambda *given, num_fixed: right(*given, num_fixed=0)
        )
    with pytest.raises(AssertionError, match="FAILED"):
        Setup(with_level()).check(key=49, **FEWER)


@pytest.mark.exhaustive
def test_a_degree_of_freedom_that_the_sampler_does_not_see_is_caught(monkeypatch):
    heavy = mf.StudentT(2.5, 0.7)
    monkeypatch.setattr(mf.StudentT, "log_density", lambda self, x, eta: -0.5 * (x - eta) ** 2)
    setup = Setup(mf.FeatureModel(likelihood=heavy, feature_prior=NORMAL, prior=FINITE))
    with pytest.raises(AssertionError, match="FAILED"):
        setup.check(key=48, num_replicates=4_096, num_steps=6)


# the distribution of a cell given its predictor, as a user writes it
CELLS = {
    "gaussian": (mf.Gaussian(0.5), lambda eta: dist.Normal(eta, 0.5), NORMAL),
    "noisy or": (mf.NoisyOr(0.7, 0.1), lambda eta: dist.Bernoulli(1 - 0.9 * 0.3**eta), CAUSES),
    "poisson": (mf.Poisson(0.4), lambda eta: dist.Poisson(0.4 + eta), GAMMA),
}


@pytest.mark.tiers(exhaustive=["noisy or", "poisson"])
@pytest.mark.parametrize("name", CELLS)
def test_an_object_says_what_three_functions_say(name):
    likelihood, cells, feature_prior = CELLS[name]
    by_object = mf.FeatureModel(likelihood=likelihood, feature_prior=feature_prior)
    by_function = mf.FeatureModel(
        lambda x, z, y: cells(z.astype(float) @ y).log_prob(x),
        feature_prior,
        moments=lambda z, y: (cells(z.astype(float) @ y).mean, cells(z.astype(float) @ y).variance),
    )
    assert by_object.columns_are_separate
    assert not by_function.columns_are_separate
    draw, data = jax.jit(lambda key: by_object.simulate(key, 4, capacity=6))(jax.random.key(0))
    hidden = mf.Dense(data.values, jnp.arange(8).reshape(4, 2) % 3 > 0)

    @jax.jit
    def answers(model):
        index = jnp.array([0, 1])
        moments = model.predict_cells(draw, data, index, index)
        values = data.values[:2].diagonal()
        log_density = model.cell_log_density(draw, data, index, index, values)
        return model.log_joint(draw, hidden), model.log_joint(draw, data), moments, log_density

    for one, other in zip(
        *map(jax.tree.leaves, map(answers, (by_object, by_function))), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_learned_likelihood_from_data_to_predictions(tmp_path):
    values = np.random.default_rng(0).normal(size=(8, 3))
    values[2, 1] = np.nan
    model = mf.FeatureModel(
        likelihood=mf.StudentT(1.0, dist.HalfNormal(1.0)),  # without a variance
        feature_prior=dist.Normal(0.0, 1.0).expand([3]).to_event(1),
    )
    options = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}
    post = mf.sample(model, values, **options)
    assert len(np.unique(post.draws["noise_scale"])) > 1
    assert "noise_scale" in post.quantities()
    assert "degrees_of_freedom" not in post.quantities()
    assert np.isfinite(post.predict().mean).all()
    assert np.isfinite(post.predict().quantiles).all()
    assert np.isfinite(post.predict(new_rows=values).quantiles).all()
    again = mf.load(post.save(tmp_path / "run"))
    assert repr(again.model) == repr(model)
    np.testing.assert_array_equal(again.predict().mean, post.predict().mean)


# 30 rows, of which half have the one feature
META = Meta("sample", 0, {}, {}, {}, "CPU", 1.0, 1.0, True, {})
HALVES = {"z": jnp.arange(30)[:, None] % 2 == 0, "y": jnp.array([[4.0, 1.0]])}


def posterior_of(model, num_draws=400):
    """A posterior of the same draw again and again, for which predictions are known."""
    cells = np.ones((30, 2))
    cells[:2, 1] = np.nan
    draws = {name: np.asarray(values)[None, None] for name, values in HALVES.items()}
    draws = {name: np.repeat(values, num_draws, axis=1) for name, values in draws.items()}
    return mf.Posterior(model, mf.Dense.from_array(cells), draws, META)


def functions_of(likelihood):
    """A model by functions, of which the last draws a row, and moments that say little."""

    def moments(z, y):
        return likelihood.moments(z.astype(y.dtype) @ y)

    return {
        "log_likelihood": lambda x, z, y: likelihood.log_density(x, z.astype(y.dtype) @ y),
        "moments": moments,
        "sample_row": lambda key, z, y: likelihood.sample(key, z.astype(y.dtype) @ y),
    }


SKEWED = {
    "negative binomial": (mf.NegativeBinomial(2.0, 0.5), GAMMA),
    "student t": (mf.StudentT(1.5, 0.5), NORMAL),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("by_functions", [False, True])
@pytest.mark.parametrize("name", SKEWED)
def test_intervals_are_those_of_the_likelihood(name, by_functions):
    likelihood, feature_prior = SKEWED[name]
    parts = functions_of(likelihood) if by_functions else {"likelihood": likelihood}
    post = posterior_of(mf.FeatureModel(feature_prior=feature_prior, **parts))
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    found = post.predict(quantiles=levels, num_draws=20_000).quantiles
    known = likelihood.sample(jax.random.key(3), jnp.tile(jnp.array([1.0, 0.0]), (20_000, 1)))
    for row, column in ((0, 0), (1, 1)):
        right = np.quantile(known[:, column], levels)
        # counts are exact or next to it, and 20,000 draws know a quantile to a hundredth or so
        tolerance = 1.01 if name == "negative binomial" else 0.08 + 0.08 * np.abs(right)
        assert (np.abs(found[:, row] - right) < tolerance).all(), (row, found[:, row], right)
    if name == "negative binomial":
        shares = (found[:, 1] == found[:, 1].round()).mean()
        assert shares > 0.5
        new = post.predict(new_rows=np.array([[9.0, np.nan], [np.nan, 0.0]])).draws
        assert (new == new.round()).all()
        assert (new >= 0).all()


BY_MOMENTS = {
    "normal": (stats.norm(0.4, 0.24**0.5).logpdf, 0.24),
    "bernoulli": (stats.bernoulli(0.4).logpmf, 0.24),
    "poisson": (stats.poisson(0.4).logpmf, 0.4),
}


@pytest.mark.tiers(exhaustive=["bernoulli"])
@pytest.mark.parametrize("name", BY_MOMENTS)
def test_functions_of_whole_rows_leave_cells_to_their_moments(name):
    log_density, variance = BY_MOMENTS[name]
    model = mf.FeatureModel(
        lambda x, z, y: -jnp.sum(x),
        NORMAL,
        moments=lambda z, y: (jnp.full(2, 0.4), jnp.full(2, 0.24)),
        cell_distribution=name,
    )
    data, where = mf.Dense(jnp.ones((30, 2))), jnp.zeros(4_000, int)
    values = jnp.array([0.0, 1.0, 0.5])
    found = model.cell_log_density(HALVES, data, where[:3], where[:3], values)
    np.testing.assert_allclose(found, log_density(np.array([0, 1, 0.5])), rtol=1e-5)
    drawn = model.draw_cells(jax.random.key(5), HALVES, data, where, where)
    assert abs(drawn.mean() - 0.4) < 4.5 * (variance / 4_000) ** 0.5
    assert abs(drawn.var() / variance - 1) < 0.2
    assert name == "normal" or np.array_equal(drawn, np.round(drawn))


def largest_array(function, *arguments):
    """Numbers in the largest array that a program makes, its loops' bodies too."""

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (variable.aval.size for variable in equation.outvars)
            for inner in jaxprs_in_params(equation.params):
                yield from sizes(inner)

    return max(sizes(jax.make_jaxpr(function)(*arguments).jaxpr))


@pytest.mark.slow
def test_cells_by_functions_of_rows_take_little_memory():
    num_rows, num_columns = 400, 3_000
    parts = functions_of(mf.Gaussian(0.5))
    wide = dist.Normal(0.0, 1.0).expand([num_columns]).to_event(1)
    model = mf.FeatureModel(feature_prior=wide, **parts)
    draw = {"z": jnp.ones((num_rows, 1), bool), "y": jnp.ones((1, num_columns))}
    x = mf.Dense(jnp.ones((num_rows, num_columns)))
    few = jnp.arange(300), jnp.arange(300)
    key, most = jax.random.key(7), num_rows * num_columns // 2
    assert largest_array(lambda: model.draw_cells(key, draw, x, *few)) < most
    values = jnp.linspace(0, 1, 300)
    assert largest_array(lambda: model.cell_log_density(draw, x, *few, values)) < most
    many = jnp.tile(few[0], 10), jnp.arange(3_000)
    assert largest_array(lambda: model.predict_cells(draw, x, *many)) <= num_rows * num_columns
    # the same numbers as of whole rows
    found = jax.jit(model.draw_cells)(key, draw, x, *few)
    rows = jax.jit(model.simulate_data)(key, draw)
    np.testing.assert_allclose(found, np.asarray(rows)[few], rtol=1e-6)
    scores = jax.jit(model.cell_log_density)(draw, x, *few, values)
    np.testing.assert_allclose(scores, stats.norm(1, 0.5).logpdf(values), rtol=1e-4)
    for each in zip(jax.jit(model.predict_cells)(draw, x, *many), (1, 0.25), strict=True):
        np.testing.assert_allclose(*each, rtol=1e-6)


def test_cells_that_depend_on_missing_ones_are_refused():
    def neighbours(x, z, y):
        return dist.Normal(jnp.roll(x, 1), 1.0).log_prob(x)

    model = mf.FeatureModel(neighbours, NORMAL)
    values = np.arange(1.0, 401.0).reshape(200, 2)
    model.check_data(mf.Dense(values), "data")
    values[150, 0] = np.nan  # beyond the rows that are tried otherwise
    values[10, 1] = np.nan
    with pytest.raises(ValueError, match=r"cell \(10, 0\) of data changes .* missing cells"):
        model.check_data(mf.Dense(values), "data")
    values[10, 1] = 22.0
    with pytest.raises(ValueError, match=r"cell \(150, 1\) of data changes .* missing cells"):
        model.check_data(mf.Dense(values), "data")
    parts = functions_of(mf.Gaussian(0.5))
    mf.FeatureModel(feature_prior=NORMAL, **parts).check_data(mf.Dense(values), "data")


def test_cells_of_units_without_levels_are_refused():
    post = posterior_of(mf.FeatureModel(likelihood=mf.Gaussian(0.5), feature_prior=NORMAL))
    zeros = np.zeros(30, int)
    units = pointwise.Units("row", "rows", np.arange(30), zeros, zeros, is_discrete=False)
    with pytest.raises(ValueError, match="FeatureModel has a likelihood of whole rows"):
        pointwise.chosen_units(post, units, (np.array([0]), np.array([0])))


@pytest.mark.slow
def test_levels_have_probabilities_that_are_those_of_the_cells():
    likelihood = mf.Ordinal((1, 2, 3), thresholds=(-0.5, 0.8))
    post = posterior_of(mf.FeatureModel(likelihood=likelihood, feature_prior=NORMAL))
    cells = np.array([0, 1]), np.array([1, 1])
    known = likelihood.probabilities(jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(post.probabilities(cells), known, atol=1e-5)
    predicted = post.predict(cells)
    np.testing.assert_allclose(predicted.mean, known @ jnp.arange(1.0, 4.0), atol=1e-4)
    np.testing.assert_array_equal(predicted.quantiles, [[1, 1], [3, 3]])
    score = post.held_out_log_likelihood(np.array([3.0, 1.0]), cells)
    np.testing.assert_allclose(score.mean, np.log(known[[0, 1], [2, 0]]).mean(), atol=1e-5)
    new = post.predict(new_rows=np.array([[3.0, np.nan], [np.nan, 1.0]]))
    assert np.isin(new.quantiles, (1, 2, 3)).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"likelihood": mf.Poisson(), "feature_prior": dist.Normal},
            TypeError,
            "feature_prior must",
        ),
        ({"likelihood": mf.Ordinal()}, ValueError, "leaves thresholds open"),
        ({"likelihood": "poisson"}, TypeError, "likelihood must be an object such as mf.Poisson"),
        ({"log_likelihood": lambda x, z, y: x}, ValueError, "log_likelihood follows from"),
        ({"moments": lambda z, y: (z, y)}, ValueError, "moments follows from"),
        ({"parameters": {"base_rate": 1.0}}, ValueError, "'base_rate' is one of"),
        ({"likelihood": None}, TypeError, "log_likelihood must be a function"),
    ],
)
def test_what_does_not_go_with_an_object_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        mf.FeatureModel(**{"likelihood": mf.Poisson(), "feature_prior": GAMMA} | options)


@pytest.mark.parametrize(
    ("feature_prior", "values", "words"),
    [
        (GAMMA, [[1.0, 2.0], [0.5, 1.0]], "data: 0.5 at row 1, column 0; .*needs counts"),
        (NORMAL, [[1.0, 2.0], [3.0, 1.0]], "feature_prior draws negative numbers"),
        (dist.Gamma(1.0, 1.0).expand([2, 2]).to_event(2), [[1.0, 2.0]], "one number a column"),
    ],
)
def test_data_and_features_that_a_likelihood_cannot_have_are_refused(feature_prior, values, words):
    model = mf.FeatureModel(likelihood=mf.Poisson(0.1), feature_prior=feature_prior)
    with pytest.raises(ValueError, match=words):
        model.check_data(mf.Dense(jnp.asarray(values)), "data")


def test_short_forms_take_the_likelihood_that_they_are_short_for():
    gaussian = mf.LinearGaussianIBP(alpha=1.0, likelihood=mf.Gaussian(0.5))
    assert gaussian == mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5)
    causes = {"alpha": 1.0, "cause_probability": 0.2}
    noisy_or = mf.NoisyOrIBP(likelihood=mf.NoisyOr(efficacy=0.8, leak=0.1), **causes)
    assert noisy_or == mf.NoisyOrIBP(efficacy=0.8, leak=0.1, **causes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mf.LinearGaussianIBP(likelihood=mf.Poisson()), r"use FeatureModel\(likelihood="),
        (lambda: mf.NoisyOrIBP(likelihood="noisy-or"), "must be an mf.NoisyOr object"),
        (
            lambda: mf.LinearGaussianIBP(likelihood=mf.Gaussian(0.5), noise_scale=0.3),
            "noise_scale follows from likelihood",
        ),
    ],
)
def test_short_forms_refuse_another_likelihood_and_one_that_is_there_twice(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_gamma_rows_come_from_their_prior_whatever_the_slots():
    prior = dist.Gamma(jnp.array([0.5, 4.0]), 2.0).to_event(1)
    draw = jax.jit(draw_rows, static_argnums=2)
    few, many = (np.asarray(draw(prior, jax.random.key(2), size)) for size in (3, 4_000))
    np.testing.assert_allclose(few, many[:3], rtol=1e-5)
    check_means(
        {f"{power}, {column}": many[:, column] ** power for power in (1, 2) for column in (0, 1)},
        {"1, 0": 0.25, "1, 1": 2.0, "2, 0": 0.1875, "2, 1": 5.0},
    )


FIVE = dist.Normal(0.0, 1.0).expand([5]).to_event(1)
X = np.random.default_rng(0).standard_t(3, (40, 5))


def one_feature(model):
    """The prior of one number of Y, alike in all columns."""
    return model.feature_prior.base_dist.base_dist


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e5])
@pytest.mark.parametrize("likelihood", [mf.Gaussian(), mf.StudentT()])
def test_what_is_left_open_is_on_the_scale_of_the_data(likelihood, factor):
    """x and a + b x have the same features: priors of features and of noise go with b."""
    level = 3 * factor * np.arange(5)
    once, scaled = (
        mf.FeatureModel(likelihood=likelihood).matched(mf.Dense.from_array(x))
        for x in (X, level + factor * X)
    )
    np.testing.assert_allclose(scaled.offset, level + factor * once.offset, rtol=1e-4, atol=1e-9)
    scales = [one_feature(model).scale for model in (once, scaled)]
    np.testing.assert_allclose(scales[1], np.multiply(scales[0], factor), rtol=1e-5)
    noise = [model.likelihood.noise_scale for model in (once, scaled)]
    np.testing.assert_allclose(noise[1].high, factor * noise[0].high, rtol=1e-5)
    assert noise[0].low < 0.5 < noise[0].high
    assert once.row_shape == (5,)
    assert not scaled.left_open


def test_a_few_far_cells_do_not_set_the_scale_of_heavy_tails():
    x = X.copy()
    x[0, 0] = 1e6
    model = mf.FeatureModel(likelihood=mf.StudentT()).matched(mf.Dense.from_array(x))
    assert one_feature(model).scale < 3
    assert model.likelihood.noise_scale.low < 0.1
    assert model.column_unit is None


@pytest.mark.parametrize("likelihood", [mf.Gaussian(), mf.StudentT()])
def test_columns_in_different_units_and_rows_with_features_are_seen(likelihood):
    bits = np.random.default_rng(1).random((40, 1)) < 0.5
    x, unit = X + 4 * bits, 10.0 ** np.arange(-2, 3)
    data = mf.Dense.from_array(x * unit)
    model = mf.FeatureModel(likelihood=likelihood).matched(data)
    scaled = mf.FeatureModel(likelihood=likelihood).matched(model.centred(data))
    ratio = model.column_unit / unit
    assert max(ratio) < 2 * min(ratio)
    np.testing.assert_allclose(one_feature(model).scale, one_feature(scaled).scale, rtol=1e-4)
    assert "columns are in different units" in model.notes(data)[0]
    assert model.bias
    noise = mf.Dense.from_array(np.random.default_rng(0).normal(size=(40, 5)))
    assert not mf.FeatureModel(likelihood=likelihood).matched(noise).bias
    assert not mf.FeatureModel(likelihood=likelihood, offset=0).matched(data).bias


OPEN = (mf.Poisson(), mf.NegativeBinomial(), mf.NoisyOr(), mf.Bernoulli(), mf.Probit())


@pytest.mark.parametrize("likelihood", OPEN, ids=lambda each: type(each).__name__)
def test_features_of_discrete_cells_have_a_prior_by_default(likelihood):
    is_count = isinstance(likelihood, mf.Poisson | mf.NegativeBinomial)
    x = np.abs(np.round(30 * X)) if is_count else (X > 0).astype(float)
    model = mf.FeatureModel(likelihood=likelihood)
    with pytest.raises(ValueError, match="is taken from the data, and"):
        model.simulate(jax.random.key(0), 5)
    data = mf.Dense.from_array(x)
    matched = model.matched(data)
    matched.check_data(data, "data")
    if is_count:
        np.testing.assert_allclose(1 / one_feature(matched).rate, x[x > 0].mean(), rtol=1e-6)
        np.testing.assert_allclose(1 / matched.likelihood.base_rate.rate, x.mean(), rtol=1e-6)
    if isinstance(likelihood, mf.NegativeBinomial):
        assert matched.likelihood.dispersion.mean == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("unit", [None, 10.0 ** np.arange(-2, 3)])
def test_an_offset_is_what_a_cell_has_without_features(unit):
    """Densities and predictions of x about an offset are those of x without it, moved."""
    offset = np.array([1.0, -2.0, 0.0, 4.0, 0.5])
    plain = mf.FeatureModel(likelihood=mf.StudentT(4.0, 0.5), feature_prior=FIVE, bias=True)
    moved = dataclasses.replace(plain, offset=offset, column_unit=unit)
    unit = np.ones(5) if unit is None else unit
    draw, data = plain.simulate(jax.random.key(0), 20)
    same, shifted = moved.simulate(jax.random.key(0), 20)
    np.testing.assert_allclose(shifted.values, offset + unit * data.values, rtol=1e-4, atol=1e-4)
    logs = [plain.log_joint(draw, data), moved.log_joint(same, shifted) + 20 * np.log(unit).sum()]
    np.testing.assert_allclose(*logs, rtol=1e-5)
    levels = [model.features(draw, data)[0][0] for model in (plain, moved)]
    np.testing.assert_allclose(offset + unit * levels[0], levels[1], rtol=1e-5)
    rows, columns = np.array([0, 3, 19]), np.array([4, 1, 3])
    offset, unit = offset[columns], unit[columns]
    means, variances = zip(
        *(m.predict_cells(draw, data, rows, columns) for m in (plain, moved)), strict=True
    )
    np.testing.assert_allclose(offset + unit * means[0], means[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(unit**2 * variances[0], variances[1], rtol=1e-4)
    values = np.array([0.3, 1.0, -2.0])
    scores = [
        model.cell_log_density(draw, data, rows, columns, jnp.asarray(given))
        for model, given in ((plain, values), (moved, offset + unit * values))
    ]
    np.testing.assert_allclose(scores[0], scores[1] + np.log(unit), rtol=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "offset", "error"),
    [
        (mf.Poisson(), 1.0, "offset is given, but likelihood=Poisson"),
        (mf.Gaussian(), "1", "offset must be a number"),
        (mf.Gaussian(), [1.0, 2.0], "offset has 2 numbers, data has 5 columns"),
    ],
)
def test_an_offset_that_does_not_fit_is_refused(likelihood, offset, error):
    with pytest.raises((TypeError, ValueError), match=error):
        mf.FeatureModel(likelihood=likelihood, offset=offset).matched(mf.Dense.from_array(X))
