"""Questions about few cells take what draws know of these alone, and answer as all draws would."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import draw_blocks, filled_sizes, prediction, recommendations

NUM_ROWS, NUM_COLUMNS = 40, 30
GENERATOR = np.random.default_rng(0)
ROWS, COLUMNS = np.nonzero(GENERATOR.random((NUM_ROWS, NUM_COLUMNS)) < 0.3)
STARS = GENERATOR.integers(1, 6, ROWS.size).astype(float)
SHAPE = NUM_ROWS, NUM_COLUMNS
NAMES = [f"u{i}" for i in range(NUM_ROWS)], [f"i{j}" for j in range(NUM_COLUMNS)]
IDS = {"row_names": NAMES[0], "column_names": NAMES[1]}
EVERYWHERE = tuple(part.ravel() for part in np.indices(SHAPE))
DAYS = GENERATOR.normal(size=(NUM_ROWS * NUM_COLUMNS, 1))
ONE_COLUMN = mf.Entries([0, 1], [0, 0], [5.0, 1.0], (NUM_ROWS, 1), NAMES[0], ["new"])
USERS = mf.Features(GENERATOR.normal(size=(NUM_ROWS, 3)))
ITEMS = mf.Features.from_columns({"kind": [f"k{j % 7}" for j in range(NUM_COLUMNS)]})
MODELS = {
    "plain": mf.BPMF(1),
    "features": mf.BPMF(2, row_features=USERS, column_features=ITEMS),
    "grades": mf.BPMF(2, bias=False, column_features=ITEMS, likelihood=mf.Ordinal((1, 2, 3, 4, 5))),
    "features of cells": mf.BPMF(2, cell_features=mf.CellFeatures(*EVERYWHERE, DAYS, SHAPE, **IDS)),
}


RUN = {"num_warmup": 2, "num_samples": 7, "num_chains": 1, "progress": False}


@pytest.fixture(scope="module", params=MODELS)
def post(request):
    return mf.sample(MODELS[request.param], mf.Entries(ROWS, COLUMNS, STARS, SHAPE, *NAMES), **RUN)


def answers(post):
    few = post.predict(mf.Positions([3, 3, 7], [0, 29, 5]))
    best = post.recommend(["u5", "u39", "u5"], n=4)
    unknown = post.predict((["u41", "u2"], ["i3", "i31"]), unknown="prior")
    column = post.predict(new_columns=ONE_COLUMN, seed=1)
    found = [few.mean, few.sd, few.quantiles, best.columns, best.scores.mean, best.scores.sd]
    return [*found, unknown.mean, unknown.sd, column.mean]


@pytest.mark.tiers(slow=["grades"], exhaustive=["features", "features of cells"])
def test_few_cells_are_answered_as_by_whole_draws(post, monkeypatch):
    narrow = answers(post)
    monkeypatch.setattr(prediction, "narrowed", lambda model, data, *whole: (model, *whole))
    for few, whole in zip(narrow, answers(post), strict=True):
        np.testing.assert_allclose(few, whole, rtol=2e-5, atol=1e-6)


@pytest.mark.tiers(exhaustive=["plain"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "grades"])
def test_new_rows_are_answered_as_without_the_rows_that_fill_up_their_number(name, monkeypatch):
    # by the programs of those above
    post = mf.sample(MODELS[name], mf.Entries(ROWS, COLUMNS, STARS, SHAPE), **RUN)
    new = mf.Entries([0, 0, 1], [3, 9, 4], [5.0, 1.0, 4.0], (2, NUM_COLUMNS))
    more = mf.Entries([0, 0, 1, 1], [3, 9, 4, 5], [5.0, 1.0, 4.0, 2.0], (2, NUM_COLUMNS))
    sizes = [len(filled_sizes.filled_rows(post.model, each).values) for each in (new, more)]
    assert sizes == [16, 16]
    for count in (20, 23):
        where = np.divmod(np.arange(count), 10)
        many = mf.Entries(*where, np.ones(count), (3, NUM_COLUMNS))
        sizes.append(len(filled_sizes.filled_rows(post.model, many).values))
    assert sizes[2] == sizes[3] >= 23
    filled = post.predict(new_rows=new)
    monkeypatch.setattr(filled_sizes, "filled_rows", lambda model, rows: rows)
    whole = post.predict(new_rows=new)
    # latent grades are drawn by other random numbers
    tolerance = {"rtol": 2e-5} if name == "plain" else {"atol": 0.1}
    np.testing.assert_allclose(filled.mean, whole.mean, **tolerance)
    np.testing.assert_allclose(filled.sd, whole.sd, **tolerance)


@pytest.mark.slow
def test_new_baskets_of_any_size_are_answered_by_one_program():
    ones = mf.SparseBinary(ROWS, COLUMNS, SHAPE)
    post = mf.variational(mf.SparseBinaryMF(2), ones, num_epochs=2, progress=False)
    program, found = recommendations._score_new_rows.__wrapped__, []
    num_programs = program._cache_size()
    for size in (1, 2, 7, 14):
        new = mf.SparseBinary([0] * size, np.arange(size), (1, NUM_COLUMNS))
        found.append(post.recommend(new_rows=new, n=NUM_COLUMNS, include_known=True))
    assert program._cache_size() == num_programs + 1
    # as together, where a row of another size fills up
    together = mf.SparseBinary([0, 1, 1], [0, 0, 1], (2, NUM_COLUMNS))
    both = post.recommend(new_rows=together, n=NUM_COLUMNS, include_known=True)
    for row in range(2):
        np.testing.assert_allclose(both.scores.mean[row], found[row].scores.mean[0], rtol=1e-4)
    assert both.rows.tolist() == [0, 1]
    gaps = mf.SparseBinary([0], [1], (1, NUM_COLUMNS), missing_rows=[0], missing_columns=[2])
    assert filled_sizes.filled_rows(post.model, gaps) is gaps


@pytest.mark.slow
def test_cells_of_mixtures_are_drawn_by_few_programs(monkeypatch):
    x = GENERATOR.normal(size=(12, 4))
    run = {"num_warmup": 1, "num_samples": 3, "num_chains": 1, "progress": False}
    model = mf.MixtureOfGaussians(2, family=mf.IndependentColumns())
    post = mf.sample(model, x, **run)
    shapes, program = set(), prediction._sampled_cells

    def watched(*arguments):
        shapes.add(arguments[-1].shape)
        return program(*arguments)

    monkeypatch.setattr(prediction, "_sampled_cells", watched)
    few = post.predict(mf.Positions([3] * 5, [0, 1, 2, 3, 0]))
    more = post.predict(mf.Positions([3] * 14, [0, 1, 2, 3, 0, *[1] * 9]))
    assert shapes == {(16,)}
    assert more.draws.shape == (1000, 14)
    np.testing.assert_array_equal(few.draws, more.draws[:, :5])


@pytest.mark.parametrize("num_cells", [1, 3, 64, 65, 1000, 6000, 60_000])
def test_few_sizes_stand_for_all(num_cells):
    size = filled_sizes.few_sizes(num_cells)
    assert num_cells <= size <= max(64, 1.125 * num_cells)
    assert len({filled_sizes.few_sizes(n) for n in range(num_cells, 2 * num_cells)}) <= 10


def test_programs_of_few_cells_see_no_other_rows(monkeypatch):
    post = mf.sample(mf.BPMF(1), mf.Entries(ROWS, COLUMNS, STARS, SHAPE), **RUN)
    seen = []
    blocks = draw_blocks.blocks_of_draws

    def watched(draws, size):
        seen.append({name: values.shape[1:] for name, values in draws.items()})
        return blocks(draws, size)

    monkeypatch.setattr(draw_blocks, "blocks_of_draws", watched)
    post.predict(([3, 9, 9], [1, 1, 2]))
    post.recommend([4], n=3)
    rows_and_columns = [(shapes["u"][0], shapes["v"][0]) for shapes in seen]
    assert rows_and_columns == [(2, 2), (1, NUM_COLUMNS), (1, 4)]


def test_moments_of_a_mixture_over_blocks_are_those_of_all_draws():
    means = (1000 + GENERATOR.normal(size=(9, 4))).astype(np.float32)
    variances = GENERATOR.random((9, 4))
    weights = np.array([0, 0, 0, 1, 2, 3, 4, 0, 5]) / 15
    blocks = ((slice(i, i + 3), means[i : i + 3], variances[i : i + 3]) for i in (0, 3, 6))
    found = prediction.gather(blocks, weights, num_cells=4, num_draws=0, seed=0)
    mean = weights @ means.astype(float)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(
        found.variance, weights @ (variances + (means - mean) ** 2), rtol=1e-10
    )


def test_draws_without_weight_have_no_say_in_moments_whatever_they_are():
    means, variances = np.array([[1.0], [np.nan], [3.0]]), np.array([[1.0], [np.inf], [1.0]])
    blocks = [(slice(0, 3), means, variances)]
    found = prediction.gather(blocks, np.array([0.5, 0, 0.5]), num_cells=1, num_draws=0, seed=0)
    assert (found.mean, found.variance) == (2, 2)
