"""Levels of columns and rows: `BinaryMF` takes them out inside, and answers in the data's units."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf

LEVELS = np.random.default_rng(5).lognormal(2.0, 1.0, 12).astype(np.float32)
ROWS = np.random.default_rng(6).normal(0.0, 30.0, 14).astype(np.float32)
SETTINGS = {
    "row_prior": mf.BetaBernoulli(1.0, 1.0, 3),
    "column_prior": mf.BetaBernoulli(1.0, 1.0, 2),
    "likelihood": mf.Gaussian(0.5),
    "weight_scale": 1.0,
}
PLAIN = mf.BinaryMF(**SETTINGS)
MOVED = mf.BinaryMF(**SETTINGS, offset=LEVELS, row_offset=ROWS)


@cache
def drawn(*, moved: bool):
    """A state and data, by one program: operations compile one by one."""
    model = MOVED if moved else PLAIN
    return jax.jit(lambda key: model.simulate(key, 14, 12))(jax.random.key(3))


@cache
def simulated():
    """A state, cells without levels, and the same with those of rows and columns; one missing."""
    state, data = drawn(moved=False)
    values = np.array(data.values)
    values[0, 1] = np.nan
    return state, *(mf.Dense.from_array(values + more) for more in (0, LEVELS + ROWS[:, None]))


def draw_of(state):
    names = ("v", "noise_scale", "weight_scale", "row_alpha", "row_concentration", "weights")
    return {"z": state.u} | {name: getattr(state, name) for name in names}


def with_levels(*, rows: bool, columns: bool) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(20, 15))
    x = x + columns * np.random.default_rng(1).lognormal(1.0, 1.0, 15)
    x = x + rows * np.random.default_rng(2).normal(0, 5, (20, 1))
    x[3, 4] = np.nan
    return x


@pytest.mark.slow
def test_the_density_is_that_of_the_cells_about_their_levels():
    state, plain, moved = simulated()

    @jax.jit
    def densities(state, *data):
        return [
            (model.log_joint(state, each), model.log_likelihood(state, each))
            for model, each in zip((PLAIN, MOVED), data, strict=True)
        ]

    expected, found = densities(state, plain, moved)
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.exhaustive
def test_answers_have_the_levels_and_new_rows_those_of_their_own():
    state, plain, moved = simulated()
    draw, rows, columns = draw_of(state), jnp.array([0, 2, 13]), jnp.array([1, 0, 11])

    @jax.jit
    def answers(draw, *data):
        return [
            model.predict_cells(draw, each, rows, columns)
            for model, each in zip((PLAIN, MOVED), data, strict=True)
        ]

    (mean, variance), (other, other_variance) = answers(draw, plain, moved)
    np.testing.assert_allclose(other, mean + LEVELS[columns] + ROWS[rows], atol=1e-3)
    np.testing.assert_allclose(other_variance, variance, rtol=1e-3)
    # as many new rows as there are, in another order, with other levels and few cells
    new = np.asarray(plain.to_array())[::-1] + LEVELS
    new[2, 3:] = np.nan
    shift = np.linspace(-40, 90, 14)[:, None].astype(np.float32)
    levels = np.nanmedian(new - LEVELS, axis=1)[:, None]
    further, about = (mf.Dense.from_array(each) for each in (new + shift, new - LEVELS - levels))
    key = jax.random.key(0)

    @jax.jit
    def of_new_rows(key, draw, *pairs):
        return [
            (model.predict_rows(key, draw, *pair), model.transform_rows(key, draw, *pair))
            for model, pair in zip((PLAIN, MOVED), pairs, strict=True)
        ]

    about, further = of_new_rows(key, draw, (plain, about), (moved, further))
    ((mean, variance), same), (found, probabilities) = about, further
    np.testing.assert_allclose(found[0], mean + LEVELS + levels + shift, atol=2e-3)
    np.testing.assert_allclose(found[1], variance, rtol=1e-3)
    np.testing.assert_allclose(probabilities, same, atol=2e-3)
    (_, with_all), (_, other) = drawn(moved=True), drawn(moved=False)
    np.testing.assert_allclose(with_all.values, other.values + LEVELS + ROWS[:, None], atol=1e-3)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_levels_that_spread_are_taken_out_by_default_and_said(rows, columns):
    x = with_levels(rows=rows, columns=columns)
    data = mf.Dense.from_array(x)
    model = mf.BinaryMF().matched(data)
    centre = np.nanmedian(x, axis=0) if columns else np.nanmean(x)
    np.testing.assert_allclose(model.offset, centre, rtol=1e-5)
    if rows:
        centres = np.nanmedian(x - centre, axis=1)
        np.testing.assert_allclose(model.row_offset, centres, rtol=1e-4, atol=1e-5)
    else:
        assert model.row_offset is None
    notes = model.notes(data)
    assert len(notes) == rows + columns
    for word, is_there in (("column", columns), ("row", rows)):
        assert any(f"the median of their {word}" in note for note in notes) == is_there
    assert model.likelihood.noise_scale.high < 4  # about the levels
    again = model.matched(data)
    np.testing.assert_array_equal(again.offset, model.offset)
    for stated in ({"offset": 0.0}, {"weight_scale": 1.0}, {"column_unit": 1.0}, {"row_offset": 0}):
        left = mf.BinaryMF(**stated).matched(data)
        assert np.ndim(left.offset) == np.ndim(left.row_offset) == 0


def test_features_without_levels_are_left_where_they_are():
    generator = np.random.default_rng(0)
    for _ in range(20):
        u, v = generator.random((60, 3)) < 0.33, generator.random((40, 3)) < 0.33
        x = u @ generator.normal(size=(3, 3)) @ v.T + 0.5 * generator.normal(size=(60, 40))
        model = mf.BinaryMF().matched(mf.Dense.from_array(x))
        assert np.ndim(model.offset) == 0
        assert model.row_offset is None


def test_offsets_of_rows_that_do_not_fit_are_refused():
    data = mf.Dense.from_array(with_levels(rows=False, columns=False))
    with pytest.raises(ValueError, match="row_offset has 2 numbers, data has 20 rows"):
        mf.BinaryMF(row_offset=[1.0, 2.0]).matched(data)
    with pytest.raises(ValueError, match=r"row_offset is given, but .*Bernoulli\(\) has none"):
        mf.BinaryMF(likelihood=mf.Bernoulli(), row_offset=1.0)
    with pytest.raises(ValueError, match="row_offset must be finite"):
        mf.BinaryMF(row_offset=[1.0, np.inf])
