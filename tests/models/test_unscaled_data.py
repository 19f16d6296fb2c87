"""Matrices as people have them: far from zero, in any unit, constant, with no option set."""

import itertools
import warnings
from dataclasses import replace

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf.data import Dense, units
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import log_density
from jaxmf.models.binary_mf.chain import _keep_features
from jaxmf.samplers.annealing import leading_direction

X = np.random.default_rng(0).normal(size=(12, 4))
QUICK = {"num_warmup": 20, "num_samples": 20, "num_chains": 1, "progress": False}
LOCATIONS_AND_UNITS = [(10.0, 1.0), (100.0, 1.0), (1e5, 1.0), (0.0, 1e-8), (-3e8, 1e8)]
FIXED = {"alpha": 1.0, "noise_scale": 0.5, "feature_scale": 1.0}


def with_a_missing_cell(x: np.ndarray) -> np.ndarray:
    x = np.array(x, float)
    x[0, 1] = np.nan
    return x


@pytest.fixture(scope="module")
def plain() -> mf.Posterior:
    return mf.sample(mf.LinearGaussianIBP(), with_a_missing_cell(X), **QUICK)


@pytest.mark.parametrize(("location", "unit"), LOCATIONS_AND_UNITS)
def test_location_and_unit_do_not_change_the_number_of_features(plain, location, unit):
    moved = mf.sample(mf.LinearGaussianIBP(), with_a_missing_cell(location + unit * X), **QUICK)
    assert moved.draws["num_features"].max() <= 12
    assert np.isfinite(moved.draws["log_joint"]).all()
    cell, before = moved.predict(), plain.predict()
    # answers are in the units of the data; rounding may change single draws
    assert abs((cell.mean[0] - location) / unit - before.mean[0]) < 3
    assert 0.2 < cell.sd[0] / unit < 5
    assert 0.2 < moved.draws["noise_scale"].mean() / unit < 2
    if unit == 1 and location <= 100:
        np.testing.assert_array_equal(moved.draws["z"], plain.draws["z"])


@pytest.mark.parametrize("value", [0.0, 100.0, -1e-8])
def test_a_constant_matrix_has_no_features(value):
    posterior = mf.sample(mf.LinearGaussianIBP(), np.full(X.shape, value), **QUICK)
    assert posterior.draws["num_features"].max() <= 4
    assert np.isfinite(posterior.draws["log_joint"]).all()


@pytest.mark.slow
def test_a_mean_row_carries_any_mean():
    posterior = mf.sample(mf.LinearGaussianIBP(**FIXED, bias=True), X + 1000, **QUICK)
    assert posterior.draws["num_features"].max() <= 24
    features = posterior.features().mean
    assert abs(features[0] - 1000).max() < 10
    assert abs(posterior.reconstruction() - 1000 - X).mean() < 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("anneal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_feature_scale_that_is_small_at_first_does_not_fill_the_slots(anneal):
    # 14 features, column means up to 9; it passed through 1,024 slots or never ended
    scales = {"noise_scale": dist.Gamma(4.0, 8.0), "feature_scale": dist.Gamma(4.0, 4.0)}
    model = mf.LinearGaussianIBP(alpha=dist.Gamma(2.0, 2.0), **scales)
    _, data = model.simulate(jax.random.key(1046), 8, 3)
    options = QUICK | {"num_warmup": 150}
    posterior = mf.sample(model, data, **options, anneal=anneal)
    assert posterior.draws["z"].shape[-1] <= 64
    assert posterior.draws["num_features"].max() <= 40


@pytest.mark.tiers(exhaustive=["0.0"], slow=["100.0"])
@pytest.mark.parametrize("location", [0.0, 100.0])
def test_a_filter_takes_data_far_from_zero(location):
    posterior = mf.particle_filter(
        mf.LinearGaussianIBP(), location + X, num_particles=50, progress=False
    )
    assert posterior.draws["num_features"].max() <= 24
    assert np.isfinite(posterior.log_evidence)


def test_values_beyond_the_range_of_squares_are_refused():
    exponent = 200 if jax.config.jax_enable_x64 else 30
    for sign, action in ((1, "Divide"), (-1, "Multiply")):
        message = f"data: the largest value is .* row 3.*{action} the data by 1e{exponent}"
        with pytest.raises(ValueError, match=message):
            mf.sample(mf.LinearGaussianIBP(), 10.0 ** (sign * exponent) * X, **QUICK)


def test_scales_that_do_not_fit_the_data_are_named():
    with pytest.warns(
        UserWarning, match=r"row .* from zero .*feature_scale is at most 1.*bias=True"
    ):
        mf.LinearGaussianIBP(**FIXED).matched(Dense(X + 10))
    with pytest.raises(ValueError, match=r"may need about 1.* features\. Centre the columns"):
        mf.sample(mf.LinearGaussianIBP(**FIXED), X + 1000, **QUICK)
    with pytest.warns(UserWarning, match="column 2 has standard deviation .* different units"):
        mf.LinearGaussianIBP(offset=0.0).matched(Dense(X * [1, 1, 1e4, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mf.LinearGaussianIBP(**FIXED).matched(Dense(X))
        mf.LinearGaussianIBP(**FIXED, bias=True).matched(Dense(X + 1000))


def test_what_is_left_open_comes_from_the_data_and_is_kept():
    x = X + 3 * np.outer(np.arange(12) < 5, [1, 1, -1, -1])
    data = Dense(with_a_missing_cell(5 + 2 * x))
    model = mf.LinearGaussianIBP().matched(data)
    np.testing.assert_allclose(model.offset, np.nanmean(data.to_array(), axis=0), rtol=1e-6)
    spread = np.sqrt(np.nanmean((data.to_array() - model.offset) ** 2))
    np.testing.assert_allclose(model.noise_scale.high, 2 * spread, rtol=1e-5)
    np.testing.assert_allclose(model.feature_scale.rate, 2 * spread, rtol=1e-5)
    again = model.matched(Dense(X))
    np.testing.assert_array_equal(again.offset, model.offset)
    assert mf.LinearGaussianIBP(**FIXED).matched(Dense(X)).offset == 0
    assert mf.LinearGaussianIBP(offset=0.0).matched(data).offset == 0
    # the level of rows without features has a row of its own where the means are subtracted unasked
    assert model.bias
    assert again.bias
    for settings in ({"feature_scale": 20.0}, {"offset": 0.0}, {"bias": False}):
        assert mf.LinearGaussianIBP(**settings).matched(data).bias is False
    assert mf.LinearGaussianIBP().matched(Dense(X)).bias is False  # nothing but noise
    for unit in (1e-12, 1e12):  # whose fourth powers are no floats of 32 bits
        assert mf.LinearGaussianIBP().matched(Dense(np.asarray(data.values) * unit)).bias
    with pytest.raises(ValueError, match="offset has 3 numbers, data has 4 columns"):
        mf.LinearGaussianIBP(offset=[1.0, 2.0, 3.0]).matched(data)
    with pytest.raises(ValueError, match="offset must be finite, got nan at position 1"):
        mf.LinearGaussianIBP(offset=[1.0, np.nan])
    with pytest.raises(TypeError, match="offset must be a number"):
        mf.LinearGaussianIBP(offset="mean")


def check_offset(plain, moved, offset, shape):
    """Data of two models differ by the offset, and their joint densities do not."""

    @jax.jit
    def both(key):
        state, data = plain.simulate(key, *shape)
        _, other = moved.simulate(key, *shape)
        densities = moved.log_joint(state, other), plain.log_joint(state, data)
        return other.values, data.values, *densities

    values, plain_values, density, plain_density = both(jax.random.key(0))
    np.testing.assert_allclose(values, plain_values + offset, atol=1e-5)
    np.testing.assert_allclose(density, plain_density, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (mf.LinearGaussianIBP, "offset"),
        (mf.BPMF, "column_unit"),
        (mf.BinaryMF, "offset"),
        (mf.BinaryMF, "column_unit"),
    ],
)
def test_a_series_of_one_number_a_column_is_read_by_its_index(model, name):
    """Levels of genes, such as table.mean(), in whatever order; a Series alone is no array."""
    ids = ["HLA-A", "1-Mar", "12", "TP53"]
    series = pd.Series([4.0, 3.0, 2.0, 1.0], ids[::-1])
    cells = (*np.indices(X.shape).reshape(2, -1), X.ravel(), X.shape) if model is mf.BPMF else (X,)
    container = mf.Entries if model is mf.BPMF else Dense
    data, plain = container(*cells, column_names=ids), container(*cells)
    found = getattr(model(**{name: series}).matched(data), name)
    np.testing.assert_array_equal(found, [1, 2, 3, 4])
    np.testing.assert_array_equal(getattr(model(**{name: series}).matched(plain), name), series)
    with pytest.raises(ValueError, match=f"{name}: the index of this Series lacks '12'"):
        model(**{name: series.drop("12")}).matched(data)


def test_known_groups_in_words_are_refused_with_what_makes_features_of_them():
    batches = pd.DataFrame({"batch": ["B1", "B2", "B1"]}, index=["s1", "s2", "s3"])
    with pytest.raises(TypeError, match=r"column 'batch'.*pandas.get_dummies\(table\)"):
        mf.BinaryMF(fixed_row_features=batches)
    assert mf.BinaryMF(fixed_row_features=pd.get_dummies(batches)).num_fixed_rows() == 2


@pytest.mark.slow
def test_simulation_and_joint_density_are_those_of_the_offset():
    offset = np.array([3.0, -1.0, 50.0], np.float32)
    plain, moved = (mf.LinearGaussianIBP(**FIXED, offset=each) for each in (None, offset))
    check_offset(plain, moved, offset, (9, 3))


@pytest.mark.parametrize(
    ("location", "feature_scale", "repeated"), [(1e4, 1e4, False), (3.0, 2.0, True)]
)
def test_sums_of_squares_do_not_cancel(location, feature_scale, repeated):
    generator = np.random.default_rng(1)
    z = generator.random((30, 4)) < 0.5
    z[:, 0] = True
    if repeated:
        z[:, 3] = z[:, 2]  # Z'Z is singular
    signal = z[:, :2] @ generator.normal(size=(2, 5))
    x = np.float32(location + signal + generator.normal(size=(30, 5)))
    bits = z.astype(float)
    covariance = np.eye(30) + feature_scale**2 * bits @ bits.T
    values = np.asarray(x, float)
    log_determinant = np.linalg.slogdet(2 * np.pi * covariance)[1]
    exact = -0.5 * (5 * log_determinant + np.sum(values * np.linalg.solve(covariance, values)))
    single = log_density(
        gaussian.spectrum(z, jax.numpy.asarray(x)), np.float32(1), np.float32(feature_scale)
    )
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=0, atol=0.1)


def test_location_and_scale_are_those_of_the_observed_cells():
    x = with_a_missing_cell(5 + 2 * np.random.default_rng(2).normal(size=(9_000, 3)))
    data = Dense(x)
    values = data.to_array().astype(float)
    means = np.nanmean(values, axis=0)
    np.testing.assert_allclose(units.column_means(data), means, rtol=1e-6)
    np.testing.assert_allclose(units.column_scales(data), np.nanstd(values, axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        units.row_mean_squares(data, means), np.nanmean((values - means) ** 2, axis=1), rtol=1e-5
    )
    expected = np.sqrt(np.nanmean((values - means) ** 2))
    np.testing.assert_allclose(units.scale_about(data, means), expected, rtol=1e-6)
    assert np.asarray(units.centred(data, means).values)[0, 1] == 0
    assert units.scale_about(Dense(np.full((2, 2), 7.0)), 7.0) == 7
    assert units.scale_about(Dense(np.zeros((2, 2)))) == 1


def test_a_constant_column_has_no_spread_in_64_bits():
    x = np.column_stack([np.full(1_000, 0.1), np.linspace(-1.0, 1.0, 1_000)])
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")  # of columns in very different units
        data, constant = Dense(with_a_missing_cell(x)), Dense(x[:, :1])
        assert units.column_scales(data)[0] == 0
        matched = mf.LinearGaussianIBP().matched(data)
        assert matched.offset[0] == 0.1
        assert units.scale_about(constant, units.column_means(constant)) == 0.1
        assert units.scale_about(constant, units.overall_mean(constant)) == 0.1


# every base, location and unit in the first; all of them together in the second
SOME_UNITS = [(0.0, 1e8), (1e3, 1.0), (1e5, 1e-8)]
OTHER_UNITS = sorted({*itertools.product((0.0, 1e3, 1e5), (1e-8, 1.0, 1e8))} - {*SOME_UNITS})


@pytest.mark.tiers(slow=["some"], exhaustive=["others"])
@pytest.mark.parametrize("scales", [SOME_UNITS, OTHER_UNITS], ids=["some", "others"])
def test_fuzzed_matrices_end_with_finite_answers_or_an_error_that_says_why(scales):
    generator = np.random.default_rng(3)
    base = {
        "normal": X,
        "constant columns": X * [1, 0, 1, 0],
        "repeated rows": X[generator.integers(0, 3, 12)],
        "one large cell": X + 1e4 * (np.arange(48).reshape(12, 4) == 7),
        "zeros and ones": 1.0 * (X > 0),
        "one row apart": X + 300 * (np.arange(12) == 5)[:, None],
    }
    for (name, x), (location, unit) in itertools.product(base.items(), scales):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = mf.sample(mf.LinearGaussianIBP(), (location + x) * unit, **QUICK)
        about = f"{name}, {location} and {unit}"
        assert posterior.draws["num_features"].max() <= 48, about
        for values in posterior.draws.values():
            assert np.isfinite(values).all(), about


def blocks(seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    u, v = generator.random((14, 2)) < 0.5, generator.random((6, 2)) < 0.5
    return u @ (2 * generator.normal(size=(2, 2))) @ v.T + 0.3 * generator.normal(size=(14, 6))


@pytest.fixture(scope="module")
def plain_factorisation() -> mf.Posterior:
    return mf.sample(mf.BinaryMF(), with_a_missing_cell(blocks()), **QUICK, weights="explicit")


@pytest.mark.tiers(exhaustive=["0.0-1e-08", "10.0-1.0", "100.0-1.0", "100000.0-1.0"])
@pytest.mark.slow
@pytest.mark.parametrize(("location", "unit"), LOCATIONS_AND_UNITS)
def test_a_factorisation_takes_any_location_and_unit(plain_factorisation, location, unit):
    x, plain = with_a_missing_cell(blocks()), plain_factorisation
    moved = mf.sample(mf.BinaryMF(), location + unit * x, **QUICK, weights="explicit")
    for name in ("num_features", "num_column_features"):
        assert moved.draws[name].max() <= 16
    for values in moved.draws.values():
        assert np.isfinite(values).all()
    assert 0.1 < moved.draws["noise_scale"].mean() / unit < 3
    assert abs((moved.predict().mean[0] - location) / unit - plain.predict().mean[0]) < 4


@pytest.mark.exhaustive
def test_a_factorisation_takes_a_constant_matrix_far_from_zero():
    constant = mf.sample(mf.BinaryMF(), np.full((14, 6), 100.0), **QUICK, weights="explicit")
    assert np.isfinite(constant.draws["log_joint"]).all()


@pytest.mark.slow
def test_a_factorisation_takes_offset_and_scales_from_the_data():
    data = Dense(with_a_missing_cell(50 + 2 * X))
    model = mf.BinaryMF().matched(data)
    values = data.to_array()
    np.testing.assert_allclose(model.offset, np.nanmean(values), rtol=1e-6)
    spread = np.sqrt(np.nanmean((values - model.offset) ** 2))
    np.testing.assert_allclose(model.likelihood.noise_scale.high, 2 * spread, rtol=1e-4)
    np.testing.assert_allclose(model.weight_scale.rate, 2 * spread, rtol=1e-4)
    fixed = mf.BinaryMF(likelihood=mf.Gaussian(0.5), weight_scale=1.0)
    assert fixed.matched(data).offset == 0
    assert fixed.matched(data).likelihood == mf.Gaussian(0.5)
    with pytest.raises(ValueError, match=r"likelihood=Poisson\(\) has none"):
        mf.BinaryMF(likelihood=mf.Poisson(), offset=1.0)
    with pytest.raises(ValueError, match="the largest value is"):
        mf.BinaryMF().matched(Dense(10.0 ** (200 if jax.config.jax_enable_x64 else 30) * X))
    plain, moved = (replace(fixed, offset=each) for each in (None, 7.0))
    check_offset(plain, moved, 7, (5, 3))


@jax.jit
def started(model, data):
    return model.sampler().init(jax.random.key(0), data)


@jax.jit
def simulated(key):
    return mf.BinaryMF().simulate(key, 9, 7)


@pytest.mark.parametrize("value", [8e-6, 404.83, -3e8])
def test_a_factorisation_of_equal_cells_starts_in_their_unit(value):
    # weights and missing cells started at about 1, so that squares of their ratio to the data left
    # the range of 32-bit floats
    data = Dense(with_a_missing_cell(np.full((12, 4), value)))
    model = mf.BinaryMF().matched(data)
    state = started(model, data)
    assert 0.1 < state.weight_scale / abs(value) < 10
    assert 0.1 < state.noise_scale / abs(value) < 2
    imputed = float(state.x[0, 1])
    assert 1e-4 < abs(imputed / value) < 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(12, 4), (2, 1)])
def test_a_factorisation_answers_for_equal_cells(shape):
    options = QUICK | {"num_warmup": 3, "num_samples": 3}
    generator = np.random.default_rng(0)
    for seed in range(8):
        x = np.full(shape, 10.0 ** generator.uniform(-6, 6))
        x[generator.random(shape) < 0.4] = np.nan
        x[0] = np.nanmax(x, initial=1e-6)  # every column has a cell
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few draws, and rows without a cell
            posterior = mf.sample(mf.BinaryMF(), x, seed=seed, **options)
        cells = posterior.predict(([0, 1], [0, 0]))
        assert np.isfinite(posterior.draws["log_joint"]).all()
        assert np.isfinite(cells.mean).all()
        assert np.isfinite(cells.sd).all()


@pytest.mark.slow
def test_a_copy_of_a_factorisation_leaves_open_what_was_left_open():
    data = Dense(with_a_missing_cell(50 + 2 * X))
    copied = replace(mf.BinaryMF(), row_bias=True)
    assert copied.likelihood.noise_scale is None
    assert copied.weight_scale is None
    model, copied = mf.BinaryMF().matched(data), copied.matched(data)
    assert copied.offset == model.offset
    assert copied.likelihood.noise_scale.high == model.likelihood.noise_scale.high
    assert copied.weight_scale.rate == model.weight_scale.rate
    # without data the scales have priors all the same
    state, drawn = simulated(jax.random.key(0))
    assert state.noise_scale != 1
    assert state.weight_scale != state.noise_scale
    wide = dist.LogNormal(0.0, 2.0)
    stated = mf.BinaryMF(likelihood=mf.Gaussian(wide), weight_scale=wide)
    both = jax.jit(lambda *drawn: [one.log_joint(*drawn) for one in (mf.BinaryMF(), stated)])
    open_density, stated_density = both(state, drawn)
    assert open_density == stated_density


@pytest.mark.exhaustive
def test_a_side_keeps_a_feature_while_annealing_lasts_and_not_after():
    model = mf.BinaryMF(row_bias=True)
    state, _ = model.simulate(jax.random.key(0), 9, 7)
    empty = state._replace(u=state.u.at[:, 1:].set(False), v=jax.numpy.zeros_like(state.v))
    key = jax.random.key(1)
    kept = _keep_features(model, key, empty, jax.numpy.asarray(0.5), None)
    assert 0 < np.sum(kept.u[:, 1]) < 9
    assert 0 < np.sum(kept.v[:, 0]) < 7
    assert not np.any(kept.u[:, 2:])
    after = _keep_features(model, key, empty, jax.numpy.asarray(0.75), None)
    np.testing.assert_array_equal(after.u, empty.u)
    np.testing.assert_array_equal(after.v, empty.v)


@pytest.mark.slow
def test_the_feature_that_a_side_keeps_is_one_side_of_the_first_singular_vector():
    rng = np.random.default_rng(0)
    left, right = np.repeat([1.0, -1.0], [4, 5]), np.repeat([1.0, -1.0], [5, 2])
    x = np.outer(left, right) + 0.1 * rng.normal(size=(9, 7))
    model = mf.BinaryMF()
    state, _ = simulated(jax.random.key(0))
    empty = state._replace(u=jax.numpy.zeros_like(state.u), v=jax.numpy.zeros_like(state.v))
    direction = leading_direction(jax.numpy.asarray(x, float), None)
    kept = [
        _keep_features(model, jax.random.key(seed), empty, jax.numpy.asarray(0.5), direction)
        for seed in range(8)
    ]
    sides = {tuple(np.asarray(one.u[:, 0]).tolist()) for one in kept}
    assert sides == {tuple((left > 0).tolist()), tuple((left < 0).tolist())}
    assert {int(one.v[:, 0].sum()) for one in kept} == {2, 5}


def mostly_zeros(seed):
    """(30, 6), three features and noise, of which nine in ten cells were set to 0."""
    generator = np.random.default_rng(seed)
    x = (generator.random((30, 3)) < 0.4) @ generator.normal(size=(3, 6))
    x = x + 0.3 * generator.normal(size=x.shape)
    return np.where(generator.random(x.shape) < 0.9, 0, x).astype(np.float32)


@pytest.mark.parametrize("model", [mf.LinearGaussianIBP(), mf.BinaryMF()], ids=["features", "bmf"])
def test_equal_cells_do_not_pull_the_noise_to_nothing(model):
    def lowest(x):
        data = mf.Dense(x)
        matched = model.matched(data)
        noise = getattr(matched, "noise_scale", None) or matched.likelihood.noise_scale
        return float(noise.low), matched.notes(data)

    x = mostly_zeros(0)
    low, notes = lowest(x)
    np.testing.assert_allclose(low, 0.1 * x.std(), rtol=0.05)
    assert "more than half of the cells are 0" in notes[0]
    missing = np.where(np.random.default_rng(1).random(x.shape) < 0.3, np.nan, x)
    assert len(lowest(missing)[1]) == 1
    for other in (x + np.random.default_rng(1).normal(size=x.shape), np.full((8, 4), 3.0)):
        low, notes = lowest(other)
        assert low < 0.02 * np.sqrt(np.mean(other**2))
        assert notes == ()


def test_a_factorisation_says_where_few_cells_hold_most_of_the_squares():
    def notes(x):
        data = mf.Dense(x)
        return mf.BinaryMF().matched(data).notes(data)

    generator = np.random.default_rng(0)
    zero = generator.random((30, 20)) < 0.9
    spikes = np.where(zero, 0, generator.standard_t(2, zero.shape))
    spikes[0, :3] = np.nan
    assert "one cell in a hundred holds 90% of all squares" in notes(spikes)[-1]
    mild = np.where(zero, 0, generator.normal(size=zero.shape))
    for other in (mild, generator.standard_t(3, (60, 40)), spikes[:4]):
        assert not any("hold" in note for note in notes(other))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 2])
def test_a_factorisation_of_mostly_zeros_keeps_few_features(seed):
    """With noise of a hundredth of the data's sd, features went beyond all slots in both."""
    options = {"start": "data"} if seed == 2 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mf.RunWarning)
        post = mf.sample(
            mf.BinaryMF(),
            mostly_zeros(seed),
            num_warmup=60,
            num_samples=40,
            num_chains=2,
            seed=1,
            **options,
        )
    assert post.draws["num_features"].max() < 40
    assert post.draws["num_column_features"].max() < 40
