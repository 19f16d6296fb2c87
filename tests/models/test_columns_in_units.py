"""Columns in different units: `BinaryMF` scales them inside, and answers in those of the data."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.models.binary_mf import annealed
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


def test_a_run_says_that_it_took_columns_in_standard_deviations(tmp_path):
    values = np.asarray(simulated(missing=True)[2].values) * [1, 1, 1e-3, 1]
    options = {"num_warmup": 2, "num_samples": 4, "num_chains": 1, "progress": False}
    with pytest.warns(mf.RunWarning):
        post = mf.sample(mf.BinaryMF(), values, **options)
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
