"""Ones that a fit does not know at first: as if they were zeros, then there; beside popularity."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import jaxmf as mf
from jaxmf.results import Posterior
from jaxmf.variational_bayes import Normal, Parameters, Priors, answers, held_out
from jaxmf.variational_bayes.pieces import lay_out, sum_over_ones
from tests.support.alarms import kinds

NUM_ROWS, NUM_COLUMNS, NUM_GROUPS, HOLD_OUT = 600, 60, 6, 200
MODEL = mf.SparseBinaryMF(num_factors=6)


def baskets(*, from_groups):
    """Three items of a basket by popularity: of one of six groups, or of any."""
    generator = np.random.default_rng(0)
    popularity = generator.permutation(1 / (1 + np.arange(NUM_COLUMNS)) ** 0.7)
    group = np.arange(NUM_COLUMNS) % NUM_GROUPS
    table = np.zeros((NUM_ROWS, NUM_COLUMNS), np.int8)
    for row in range(NUM_ROWS):
        of_group = np.where(group == generator.integers(NUM_GROUPS), 1, 0.02)
        weight = popularity * (of_group if from_groups else 1)
        table[row, generator.choice(NUM_COLUMNS, 3, False, weight / weight.sum())] = 1
    return mf.SparseBinary.from_scipy(sparse.csr_array(table))


def fit(data, **options):
    return mf.variational(MODEL, data, seed=0, progress=False, **options)


@pytest.fixture(scope="module")
def fits():
    """One program for both: their shapes are the same."""
    with pytest.warns(mf.RunWarning, match="no better than popularity"):
        popular = fit(baskets(from_groups=False), hold_out=HOLD_OUT)
    return {"groups": fit(baskets(from_groups=True), hold_out=HOLD_OUT), "popularity": popular}


def test_popularity_is_all_there_is_where_it_is(fits):
    assert "popularity" not in kinds(fits["groups"])
    assert "popularity" in kinds(fits["popularity"])
    draw = fits["groups"].reference_draw()
    assert draw["held_out_score"].shape == (HOLD_OUT,)
    assert draw["held_out_score"].mean() > 1.3 * draw["held_out_popularity"].mean()


def test_the_alarm_is_saved_with_the_fit(fits, tmp_path):
    fits["popularity"].save(tmp_path / "fit")
    loaded = mf.load(tmp_path / "fit")
    assert isinstance(loaded, Posterior)
    assert kinds(loaded) == kinds(fits["popularity"])


def test_a_fit_ends_with_all_of_its_ones(fits):
    """The factors of a row that lost a one come to know it: its score rises once it is back."""
    data = fits["groups"].data
    prepared = MODEL.matched(data).prepare(data, hold_out=HOLD_OUT, seed=0)
    rows, columns = np.asarray(prepared.held_out.row), np.asarray(prepared.held_out.column)
    assert np.unique(rows).size == HOLD_OUT
    assert np.all(data.to_scipy().toarray()[rows, columns] == 1)
    scores = fits["groups"].scores((rows, columns)).mean
    counts = np.bincount(np.asarray(data.columns), minlength=NUM_COLUMNS)
    others = fits["groups"].scores((rows, np.roll(columns, 7))).mean
    same = np.abs(counts[columns] - counts[np.roll(columns, 7)]) < 20
    assert scores[same].mean() > others[same].mean() + 1


def test_ones_left_out_are_counted_by_no_sum_and_are_there_later():
    generator = np.random.default_rng(1)
    dense = (generator.random((30, 25)) < 0.3).astype(float)
    rows, columns = np.nonzero(dense)
    counts = np.bincount(rows, minlength=30)
    index = held_out.choose(counts, num_held_out=12, generator=generator)
    without = dense.copy()
    without[rows[index], columns[index]] = 0
    layout, out = held_out.leave_out(
        lay_out(rows, columns, shape=dense.shape), rows[index], columns[index]
    )
    for is_known, table in ((False, without), (True, dense)):
        shown = held_out.as_known(layout, out, jnp.asarray(is_known))
        assert float(shown.num_ones) == table.sum()
        for side, matrix in ((shown.rows, table), (shown.columns, table.T)):
            others = generator.normal(size=(matrix.shape[1], 2)).astype(np.float32)
            total = sum_over_ones(side.ones, jnp.asarray(others), num_lines=matrix.shape[0])
            np.testing.assert_allclose(total, matrix @ others, atol=1e-5)


def test_ranks_are_among_the_columns_that_a_row_does_not_have():
    """Three rows of four columns, one factor: scores are known, and so are the ranks."""
    data = mf.SparseBinary.from_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]))
    nothing, one = np.zeros(()), np.ones(1)

    def exactly(mean):
        return Normal(np.asarray(mean, float), np.zeros(np.shape(mean)))

    parameters = Parameters(
        rows=exactly([[1.0], [-1.0], [1.0]]),
        columns=exactly([[5.0], [2.0], [1.0], [3.0]]),
        row_bias=None, column_bias=None, intercept=Normal(nothing, nothing),
        priors=Priors(Normal(0 * one, one), Normal(0 * one, one), nothing, nothing, nothing),
        noise=np.ones(()),
    )  # fmt: skip
    unknowing = held_out.Unknowing(parameters, np.array([0, 1]), np.array([1, 0]))
    found = held_out.comparison(unknowing, data)
    # row 0 has column 0: scores 2, 1, 3 of the rest; row 1 has column 2: -5, -2, -3
    np.testing.assert_allclose(found["held_out_score"], 1 / np.log2(1 + np.array([2, 3])))
    # counts without the two: 2, 0, 1, 1
    np.testing.assert_allclose(found["held_out_popularity"], 1 / np.log2(1 + np.array([3, 1])))


def test_ones_are_held_out_by_default_where_two_percent_are_enough():
    assert held_out.default_num_held_out(2_999) == 0
    assert held_out.default_num_held_out(3_000) == 60
    assert held_out.default_num_held_out(10**6) == 500
    generator = np.random.default_rng(2)
    large = mf.SparseBinary.from_array((generator.random((400, 100)) < 0.1).astype(int))
    model = MODEL.matched(large)
    assert model.prepare(large).held_out.row.shape == (large.num_ones // 50,)
    assert model.prepare(large, hold_out=0).held_out is None
    assert model.prepare(large, num_validation=20).held_out is None
    exact = dataclasses.replace(model, zeros=mf.Exact())
    assert exact.prepare(large).held_out is None


def test_gains_that_chance_explains_raise_the_alarm_and_clear_ones_do_not(fits):
    draw = dict(fits["groups"].reference_draw())
    popularity = np.linspace(0.1, 0.9, 100)
    for shift, raised in ((0.2, False), (0.0, True), (-0.2, True)):
        scores = {"held_out_score": popularity + shift + 0.1 * np.cos(np.arange(100))}
        found = answers.alarms(MODEL, draw | scores | {"held_out_popularity": popularity})
        assert [kind for kind, _ in found] == ["popularity"] * raised


def test_ones_cannot_be_held_out_of_everything():
    data = mf.SparseBinary.from_array(np.eye(4, dtype=int))
    with pytest.raises(ValueError, match="hold_out=2: only 0 rows have two ones or more"):
        fit(data, hold_out=2)
    with pytest.raises(ValueError, match="hold_out goes neither with batch_size nor with"):
        fit(data, hold_out=1, num_validation=1)
    with pytest.raises(TypeError, match="hold_out"):
        fit(data, hold_out="few")
    series = mf.SparseSeries.from_matrices([np.ones((3, 4), int)] * 2, times=[0.0, 1.0])
    with pytest.raises(ValueError, match="hold_out: SparseBinarySeries has no comparison"):
        mf.variational(mf.SparseBinarySeries(2), series, hold_out=1)
