"""Columns in different units: models scale them inside, and answer in those of the data."""

import warnings
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.column_units import ColumnUnits
from jaxmf.data import units
from jaxmf.models.binary_mf import annealed
from jaxmf.models.linear_gaussian import annealed as linear_annealed
from jaxmf.models.linear_gaussian import particle as particles
from jaxmf.models.linear_gaussian import proposals
from jaxmf.models.linear_gaussian.particle import GaussianFilterPlan
from jaxmf.models.linear_gaussian.state import HYPERPARAMETERS, LinearGaussianState
from jaxmf.posterior import data_alarms, leave_one_out
from tests.posterior.test_leave_one_out import posterior, repeated

SCALE = np.array([2.0, 500.0, 0.01, 1.0], np.float32)
OFFSET = np.array([1.0, -300.0, 0.2, 0.0], np.float32)
FIXED = {
    "row_prior": mf.BetaBernoulli(1.0, 1.0, 3),
    "column_prior": mf.BetaBernoulli(1.0, 1.0, 2),
    "likelihood": mf.Gaussian(0.5),
    "weight_scale": 1.0,
}
PLAIN = mf.BinaryMF(**FIXED)
SCALED = mf.BinaryMF(**FIXED, offset=OFFSET, column_unit=SCALE)


@cache
def drawn(*, scaled: bool):
    """A state and data, by one program: operations compile one by one."""
    model = SCALED if scaled else PLAIN
    return jax.jit(lambda key: model.simulate(key, 9, 4))(jax.random.key(3))


@cache
def simulated(*, missing: bool):
    """A state, cells of unit scale, and the same cells in the units of columns."""
    state, data = drawn(scaled=False)
    values = np.array(data.values)
    if missing:
        values[0, 1] = np.nan
    return state, mf.Dense.from_array(values), mf.Dense.from_array(values * SCALE + OFFSET)


def draw_of(state):
    names = ("v", "noise_scale", "weight_scale", "row_alpha", "weights")
    return {"z": state.u} | {name: getattr(state, name) for name in names}


@pytest.mark.tiers(exhaustive=["False"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_density_is_that_of_the_scaled_cells_over_the_scales(missing):
    state, plain, scaled = simulated(missing=missing)
    log_scales = 9 * np.log(SCALE).sum() - missing * np.log(SCALE[1])

    @jax.jit
    def densities(state, plain, scaled):
        return jnp.array(
            [
                [of(model, state, data) for model, data in ((SCALED, scaled), (PLAIN, plain))]
                for of in (
                    mf.BinaryMF.log_joint,
                    mf.BinaryMF.log_likelihood,
                    annealed.log_likelihood,
                )
            ]
        )

    changes = densities(state, plain, scaled) @ np.array([1, -1])
    np.testing.assert_allclose(changes, -log_scales, atol=2e-3)


def test_the_evidence_has_the_scales_at_every_power():
    state, _, scaled = simulated(missing=False)
    state = state._replace(weights=None)

    @jax.jit
    def both(powers, state, data):
        measured = annealed.measure(SCALED, state, data)
        ratios = [annealed.log_ratio(measured, powers[i], powers[i + 1]) for i in range(2)]
        return sum(ratios), SCALED.log_likelihood(state, data)

    np.testing.assert_allclose(*both(jnp.array([0.0, 0.3, 1.0]), state, scaled), rtol=1e-4)


def test_answers_are_in_the_units_of_the_data():
    state, plain, scaled = simulated(missing=False)
    draw, rows, columns = draw_of(state), jnp.array([0, 2, 5, 8]), jnp.array([1, 0, 2, 3])

    @jax.jit
    def answers(draw, *data):
        models = PLAIN, SCALED
        cells = [
            model.predict_cells(draw, each, rows, columns)
            for model, each in zip(models, data, strict=True)
        ]
        return cells, [model.features(draw, each) for model, each in zip(models, data, strict=True)]

    cells, images_of = answers(draw, plain, scaled)
    (mean, variance), (other, other_variance) = cells
    unit = SCALE[columns]
    np.testing.assert_allclose((other - OFFSET[columns]) / unit, mean, atol=1e-3)
    np.testing.assert_allclose(other_variance / unit**2, variance, rtol=1e-3)
    (images, sd), (wide, wide_sd) = images_of
    np.testing.assert_allclose(wide / SCALE, images, atol=1e-3)
    np.testing.assert_allclose(wide_sd / SCALE, sd, rtol=1e-3)
    whole = SCALED.in_data_units(jnp.ones((2, 4)), jnp.ones((2, 4)), slice(None))  # of whole rows
    np.testing.assert_allclose(whole[0][1], SCALE + OFFSET, rtol=1e-5)
    np.testing.assert_allclose(whole[1][1], SCALE**2, rtol=1e-5)
    _, in_units = drawn(scaled=True)
    np.testing.assert_allclose(in_units.values, plain_cells() * SCALE + OFFSET, rtol=1e-4)


def plain_cells() -> np.ndarray:
    return np.asarray(simulated(missing=False)[1].values)


def test_a_cell_given_all_others_is_in_its_unit():
    state, plain, scaled = simulated(missing=False)
    draws = {name: np.asarray(value)[None] for name, value in draw_of(state).items()}
    cells = np.array([0, 3, 4]), np.array([1, 2, 0])
    found = [
        leave_one_out.conditionals(model, data, draws, cells, np.asarray(data.values)[cells])
        for model, data in ((PLAIN, plain), (SCALED, scaled))
    ]
    unit = SCALE[cells[1]]
    np.testing.assert_allclose(found[1].log_density, found[0].log_density - np.log(unit), atol=5e-3)


def test_columns_far_apart_in_scale_are_standardised_by_default():
    x = np.random.default_rng(0).normal(size=(20, 4))
    values = x * [1, 1e3, 0.1, 0] + [5, 1e4, 0, 7]
    values[3, 0] = np.nan
    model = mf.BinaryMF().matched(mf.Dense.from_array(values))
    spread = np.nanstd(values, axis=0)
    spread[3] = 1  # a constant column has no unit
    np.testing.assert_allclose(model.column_unit, spread, rtol=1e-5)
    np.testing.assert_allclose(model.offset, np.nanmean(values, axis=0), rtol=1e-5)
    np.testing.assert_allclose(model.likelihood.noise_scale.high, 2 * 0.75**0.5, rtol=0.01)
    again = model.matched(mf.Dense.from_array(x))
    np.testing.assert_array_equal(again.column_unit, model.column_unit)
    # as they were: columns in one unit, and scales or an offset that the user stated
    alike = mf.Dense.from_array(x * [1, 3, 0.5, 1])
    assert mf.BinaryMF().matched(alike).column_unit is None
    for stated in ({"offset": 0.0}, {"weight_scale": 1.0}, {"column_unit": 1.0}):
        assert np.ndim(mf.BinaryMF(**stated).matched(mf.Dense.from_array(values)).column_unit) == 0
    # with a stated unit a column the open offset is a mean a column, not of all units together
    unit = mf.BinaryMF(column_unit=spread).matched(mf.Dense.from_array(values))
    np.testing.assert_allclose(unit.offset, np.nanmean(values, axis=0), rtol=1e-5)
    short = mf.BinaryMF(column_unit=[1.0, 2.0])
    with pytest.raises(ValueError, match="column_unit has 2 numbers, data has 4 columns"):
        short.matched(alike)
    with pytest.raises(ValueError, match=r"column_unit must be positive .* -1.0 at position 1"):
        mf.BinaryMF(column_unit=[1.0, -1.0])
    with pytest.raises(ValueError, match=r"column_unit is given, but .*Poisson\(\) has none"):
        mf.BinaryMF(likelihood=mf.Poisson(), column_unit=2.0)


def test_noise_in_the_units_of_columns_raises_no_alarm_of_units():
    state, _, scaled = simulated(missing=False)
    draws = repeated(**(draw_of(state) | {"noise_scale": 0.05}))
    is_named = [
        any(each(posterior(model, scaled, **draws)))
        for model in (SCALED, mf.BinaryMF(**FIXED, offset=OFFSET))
        for each in (data_alarms.noise_above_data, data_alarms.unlike_units)
    ]
    assert is_named == [False, False, False, True]


def test_entries_in_different_units_raise_an_alarm_and_ratings_do_not():
    rng = np.random.default_rng(2)
    rows, columns = np.divmod(np.arange(200), 10)
    stars = rng.integers(1, 6, 200).astype(float)
    stars[columns < 4] = 4 + (rng.random(80) < 0.2)  # films that most people like alike
    incomes = np.where(columns == 3, 20_000 * stars, stars)
    few = np.where((columns == 3) & (rows > 3), np.nan, incomes)
    names = np.array([f"film {j}" for j in range(10)])
    kinds = []
    for values in (incomes, stars, few):
        kept = np.isfinite(values)
        cells = rows[kept], columns[kept], values[kept]
        data = mf.Entries(*cells, (20, 10), column_names=names)
        post = posterior(mf.BPMF(2), data, **repeated(noise_scale=0.5))
        kinds.append([alarm.kind for alarm in data_alarms.unlike_units(post)])
    assert kinds == [["units"], [], []]
    # forty patients: the noise of blood cells is ten times the spread of potassium
    values = rng.normal(size=(40, 3)) * [60, 15, 1]
    post = posterior(mf.BPMF(2), mf.Entries.from_array(values), **repeated(noise_scale=10.0))
    (alarm,) = data_alarms.unlike_units(post)
    assert "larger than the sd of column 2" in alarm.sentence
    post = posterior(mf.BPMF(2), mf.Entries.from_array(values), **repeated(noise_scale=2.0))
    assert not any(data_alarms.unlike_units(post))


@pytest.mark.exhaustive
def test_a_run_says_that_it_took_columns_in_standard_deviations(tmp_path):
    post = mf.sample(*in_units("bpmf", POWERS), **RUN)
    (note,) = post.meta.notes
    assert "cells were taken about the mean of their column" in note
    assert note in post.summary().caption
    assert note in post.report(tmp_path / "page.html").read_text()
    post.save(tmp_path / "run")
    assert mf.load(tmp_path / "run").meta == post.meta


def test_units_that_are_given_or_alike_are_not_announced():
    data = simulated(missing=True)[2]
    spread = np.asarray(data.values).std(axis=0)
    assert mf.BinaryMF().matched(data).notes(data)
    assert mf.BinaryMF(column_unit=2 * spread).matched(data).notes(data) == ()
    alike = mf.Dense.from_array(np.asarray(data.values) / spread)
    assert mf.BinaryMF().matched(alike).notes(alike) == ()


def test_columns_of_too_few_cells_to_know_their_unit_by_are_counted():
    values = np.random.default_rng(0).normal(size=(20, 4)) * [1, 1e3, 0.1, 1]
    values[:11, 0], values[:10, 1] = np.nan, np.nan  # nine and ten cells
    for model, data in (
        (mf.BPMF(2), mf.Entries.from_array(values)),
        (mf.LinearGaussianIBP(), mf.Dense.from_array(values)),
    ):
        (note,) = model.matched(data).notes(data)
        assert "; 1 of 4 columns have fewer than 10 cells" in note


# --- the other models of numbers: the same draws, and answers in the units of the data ------------

POWERS = 2.0 ** np.array([-20, 3, 11, 0])  # by these floats are divided exactly
RUN = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}


def in_units(kind, unit, **settings):
    """A model whose columns are in these units, and random cells, three missing, in them."""
    x = np.random.default_rng(5).normal(size=(12, 4)).astype(np.float32)
    x[[0, 3, 7], [1, 2, 0]] = np.nan
    model = mf.BPMF(2, **settings) if kind == "bpmf" else mf.LinearGaussianIBP(**settings)
    values = (x * unit).astype(np.float32)
    if kind != "bpmf":
        return model, mf.Dense.from_array(values)
    rows, columns = np.nonzero(np.isfinite(x))
    return model, mf.Entries(rows, columns, values[rows, columns], x.shape)


def both_in_units(kind, verb, **options):
    """The posteriors of a run in units stated by hand, and of one on the cells divided by these."""
    found = []
    for unit in (POWERS, np.ones(4)):
        model, data = in_units(kind, unit, offset=np.zeros(4), column_unit=unit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mf.RunWarning)
            found.append(verb(model, data, **options))
    return found


def check_answers(wide, plain):
    """Draws of both are the same bit for bit, but for log densities; answers differ by the unit."""
    data, columns = plain.data, np.array([0, 1, 2, 3, 0])
    log_unit = float(plain.model.log_unit(data)) - float(wide.model.log_unit(wide.data))
    is_imputed = isinstance(data, mf.Dense)  # cells that are missing have a density too
    log_all = -12 * np.log(POWERS).sum() if is_imputed else log_unit
    for name, draws in plain.draws.items():
        if name == "log_joint":
            np.testing.assert_allclose(wide.draws[name], draws + log_all, rtol=1e-5)
        else:
            np.testing.assert_array_equal(wide.draws[name], draws)
    cells = [each.predict((np.arange(5), columns)) for each in (wide, plain)]
    new = np.array([[0.5, np.nan, 1.0, -2.0], [np.nan, 0.3, np.nan, 1.0]], np.float32)
    rows = [each.predict(new_rows=new * each.model.column_unit) for each in (wide, plain)]
    for there, here in (cells, rows):
        unit = POWERS[here.columns]
        for name in ("mean", "sd", "quantiles"):
            there_unit = getattr(there, name) / unit
            np.testing.assert_allclose(there_unit, getattr(here, name), rtol=1e-4, atol=1e-5)
    noise = wide.column_noise(), plain.column_noise()
    np.testing.assert_allclose(noise[0].mean, noise[1].mean * POWERS, rtol=1e-6)
    np.testing.assert_allclose(noise[0].bounds / POWERS, noise[1].bounds, rtol=1e-6)
    densities = [each.log_likelihood() for each in (wide, plain)]
    change = densities[0].values - densities[1].values
    np.testing.assert_allclose(change, np.broadcast_to(-np.log(POWERS)[densities[1].columns],
                               change.shape), atol=1e-3)  # fmt: skip


@pytest.mark.slow
def test_a_run_in_units_of_columns_is_the_run_on_the_scaled_matrix():
    wide, plain = both_in_units("linear", mf.sample, **RUN)
    check_answers(wide, plain)
    features = [each.features() for each in (wide, plain)]
    np.testing.assert_allclose(features[0].mean / POWERS, features[1].mean, atol=1e-5)
    np.testing.assert_allclose(features[0].sd / POWERS, features[1].sd, atol=1e-5)
    first = [[line[2].split()[0] for line in each.lines()[1:]] for each in features]
    assert first[0] == first[1]  # the columns in which features are largest, in their units
    tree = wide.to_arviz()
    np.testing.assert_array_equal(tree["constant_data"]["column_unit"], POWERS)


@pytest.mark.exhaustive
def test_a_filter_in_units_of_columns_has_the_evidence_of_the_scaled_matrix():
    wide, plain = both_in_units("linear", mf.particle_filter, num_particles=8, progress=False)
    log_unit = float(plain.model.log_unit(plain.data)) - float(wide.model.log_unit(wide.data))
    np.testing.assert_allclose(wide.log_evidence, plain.log_evidence + log_unit, rtol=1e-4)
    np.testing.assert_array_equal(wide.draws["z"], plain.draws["z"])


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_evidence_of_columns_in_units_has_their_jacobian(monkeypatch, is_broken):
    if is_broken:
        monkeypatch.setattr(ColumnUnits, "log_unit_of_cells", lambda *_, **__: 0.0)
    z = jnp.asarray(np.random.default_rng(2).integers(0, 2, (12, 3)), bool)
    values = dict.fromkeys(HYPERPARAMETERS, jnp.ones(()))
    state = LinearGaussianState(z=z, x=None, **values)

    def log_ratio(model, data):
        measured = linear_annealed.measure(model, state, data)
        return linear_annealed.log_ratio(measured, jnp.array(0.25), jnp.array(1.0))

    def log_weight(model, data):
        plan = GaussianFilterPlan(3, "prior", False, False, 1.0, 0)
        model = replace(model, alpha=1.0, noise_scale=0.5, feature_scale=1.0)
        particle = particles.init(plan, model, jax.random.key(0), data)
        return proposals.propose(plan, model, jax.random.key(1), particle, data, jnp.array(3))[1][0]

    found = [
        jax.jit(lambda *both: (log_ratio(*both), log_weight(*both)))(
            *in_units("linear", unit, offset=np.zeros(4), column_unit=unit)
        )
        for unit in (POWERS, np.ones(4))
    ]
    seen = np.isfinite(np.asarray(in_units("linear", POWERS)[1].to_array()))
    expected = -0.75 * np.sum(seen * np.log(POWERS)), -np.sum(seen[3] * np.log(POWERS))
    for wide, plain, change in zip(*found, expected, strict=True):
        assert is_broken != np.allclose(wide - plain, change, rtol=1e-3)


@pytest.mark.exhaustive
def test_an_annealed_run_in_units_of_columns_has_the_evidence_of_the_scaled_matrix():
    options = {"num_particles": 20, "num_runs": 1, "progress": False}
    wide, plain = both_in_units("linear", mf.smc, **options)
    log_unit = float(plain.model.log_unit(plain.data)) - float(wide.model.log_unit(wide.data))
    np.testing.assert_allclose(wide.log_evidence, plain.log_evidence + log_unit, rtol=1e-3)


@pytest.mark.slow
def test_real_factors_in_units_of_columns_are_those_of_the_scaled_matrix():
    wide, plain = both_in_units("bpmf", mf.sample, **RUN)
    check_answers(wide, plain)
    factors = [each.factors() for each in (wide, plain)]
    np.testing.assert_allclose(factors[0].columns / POWERS[:, None], factors[1].columns, rtol=1e-5)
    np.testing.assert_array_equal(factors[0].sizes, factors[1].sizes)
    assert factors[0].ends(0) == factors[1].ends(0)
    # a new column is in a unit of its own, that of its cells
    column = np.array([1.0, 3.0, 2.5, 7.0], np.float32)
    new = [mf.Entries(np.arange(4), np.zeros(4, int), unit * column, (12, 1)) for unit in (1, 1e4)]
    found = [wide.predict(([5, 9], [0, 0]), new_columns=each) for each in new]
    np.testing.assert_allclose(found[1].mean, 1e4 * found[0].mean, rtol=1e-3)
    np.testing.assert_allclose(found[1].sd, 1e4 * found[0].sd, rtol=1e-3)
    alike = mf.Entries([0, 1], [0, 0], [2.0, 2.0], (12, 1))
    with pytest.raises(ValueError, match="the cells of column 0 do not show"):
        wide.predict(([5], [0]), new_columns=alike)


@pytest.mark.parametrize("kind", ["linear", "bpmf"])
def test_units_are_taken_where_columns_differ_and_nothing_is_stated(kind):
    wide = np.array([1e-6, 30.0, 1e5, 1.0])
    model, data = in_units(kind, wide)
    found = model.matched(data)
    x = np.asarray(in_units("linear", wide)[1].to_array())
    np.testing.assert_allclose(found.column_unit, np.nanstd(x, axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.offset, np.nanmean(x, axis=0), rtol=1e-4)
    assert "standard deviations" in found.notes(data)[0]
    again = found.matched(data)
    np.testing.assert_array_equal(again.column_unit, found.column_unit)
    alike = in_units(kind, np.array([1.0, 5.0, 2.0, 1.0]))[1]
    assert model.matched(alike).column_unit is None
    assert not model.matched(alike).notes(alike)
    stated = {"offset": 0.0}, {"column_unit": 1.0}, {"likelihood": mf.Gaussian(0.5)}
    for settings in stated:
        other = in_units(kind, wide, **settings)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.ndim(other.matched(data).column_unit) == 0
    with pytest.raises(ValueError, match="column_unit has 2 numbers, data has 4 columns"):
        in_units(kind, wide, column_unit=[1.0, 2.0])[0].matched(data)
    with pytest.raises(ValueError, match="column_unit must be positive"):
        in_units(kind, wide, column_unit=[1.0, -1.0])


@pytest.mark.parametrize(
    ("column", "is_different"),
    [
        (lambda random: 0.3 * random.random(40), True),
        (lambda random: 0.1 * (random.random(40) < 0.3), False),  # most cells are 0
        (lambda random: 1 / 3 + 1e-8 * random.normal(size=40), False),  # rounding
        (lambda random: np.where(np.arange(40) < 9, random.random(40), np.nan), False),  # few cells
    ],
)
@pytest.mark.filterwarnings("ignore:data. the values of column 2 are about 0.333 and differ by")
def test_one_column_of_measurements_far_below_the_others_shows_different_units(
    column, is_different
):
    random = np.random.default_rng(0)
    values = random.normal(size=(40, 4)) * [3e4, 2e4, 1, 1e4]
    values[:, 2] = column(random)
    for data in (mf.Dense.from_array(values), mf.Entries.from_array(values)):
        assert (units.different_units(data, units.column_scales(data)) is not None) == is_different


def test_columns_that_show_no_unit_have_one_to_be_safe_with():
    x = np.array([[1.0, 5e3, 7.0, -3e6, 0], [2, 9e3, 7, 0, 0], [3, 8e3, 7, 0, 0]], np.float32)
    rows, columns = np.nonzero(np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]))
    cells = np.full_like(x, np.nan)
    cells[rows, columns] = x[rows, columns]
    with pytest.warns(UserWarning, match="no observed cell"):
        dense = mf.Dense.from_array(cells)
    for data in (dense, mf.Entries(rows, columns, x[rows, columns], x.shape)):
        found = units.different_units(data, units.column_scales(data))
        assert found is not None
        np.testing.assert_allclose(found[1][2:4], [1, 3e6])  # equal cells; one cell
        assert found[1][4] > 1e5  # none: the spread of all others
        np.testing.assert_array_equal(found[0][2:4], [7, -3e6])
