"""BPMF from the outside: what it finds, predicts, refuses and keeps."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data import CellFeatures, Features

NUM_ROWS, NUM_COLUMNS = 40, 30
RUN = {"num_warmup": 60, "num_samples": 60, "num_chains": 1, "seed": 0, "progress": False}


def planted(seed=0, noise=0.3):
    """Ratings of a third of the cells, two factors and biases; all of them, and their ids."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=(NUM_ROWS, 2)) @ generator.normal(size=(2, NUM_COLUMNS))
    truth += 3 + generator.normal(size=(NUM_ROWS, 1)) + generator.normal(size=NUM_COLUMNS)
    values = truth + noise * generator.normal(size=truth.shape)
    seen = generator.random(truth.shape) < 0.4
    rows, columns = np.nonzero(seen)
    names = [f"u{i}" for i in range(NUM_ROWS)], [f"i{j}" for j in range(NUM_COLUMNS)]
    return truth, values, seen, mf.Entries(rows, columns, values[seen], truth.shape, *names)


@pytest.fixture(scope="module")
def fitted():
    truth, values, seen, data = planted()
    return truth, values, seen, mf.sample(mf.BPMF(2), data, **RUN)


def test_a_planted_matrix_is_found(fitted):
    truth, values, seen, post = fitted
    found = post.predict(quantiles=(0.05, 0.95))
    error = found.mean - truth[~seen]
    assert np.sqrt(np.mean(error**2)) < 0.35
    assert 0.25 < post.draws["noise_scale"].mean() < 0.4
    inside = (values[~seen] > found.quantiles[0]) & (values[~seen] < found.quantiles[1])
    assert 0.84 < inside.mean() < 0.96
    assert found.row_names[0].startswith("u")


def test_the_best_columns_are_those_with_the_largest_means(fitted):
    _, _, seen, post = fitted
    best = post.recommend(["u3", "u0"], n=4)
    assert best.rows.tolist() == [3, 0]
    assert not seen[best.rows[:, None], best.columns].any()
    unseen = np.flatnonzero(~seen[3])
    means = post.predict(mf.Positions(np.full(unseen.size, 3), unseen)).mean
    np.testing.assert_array_equal(best.columns[0], unseen[np.argsort(-means)[:4]])
    np.testing.assert_allclose(best.scores.mean[0], np.sort(means)[::-1][:4], rtol=1e-5)
    assert set(best.table()) == {"row", "rank", "column", "mean", "sd"}
    assert post.recommend("u3", n=40, include_known=True).columns.shape == (1, NUM_COLUMNS)
    with pytest.raises(ValueError, match="ranks ratings by their mean"):
        post.recommend("u3", by="probability")


@pytest.mark.slow
def test_rows_and_columns_never_seen_are_folded_in(fitted):
    """A copy of a row with half of its cells is predicted nearly as that row; columns likewise."""
    truth, values, seen, post = fitted
    columns = np.flatnonzero(seen[5])
    copy = mf.Entries(np.zeros_like(columns), columns, values[5, columns], (1, NUM_COLUMNS))
    found = post.predict(new_rows=copy)
    assert np.sqrt(np.mean((found.mean - truth[5, found.columns]) ** 2)) < 0.6
    nothing_known = np.sqrt(np.mean((truth[:, columns[1:]].mean() - truth[5]) ** 2))
    assert nothing_known > 0.8
    rows = np.flatnonzero(seen[:, 7])
    cells = np.zeros_like(rows)
    copy = mf.Entries(rows, cells, values[rows, 7], (NUM_ROWS, 1), None, ["new"])
    found = post.predict(new_columns=copy)
    assert set(found.column_names) == {"new"}
    assert np.sqrt(np.mean((found.mean - truth[found.rows, 7]) ** 2)) < 0.6
    assert post.transform(copy_of_rows(values, seen)).shape == (2, 2)


def copy_of_rows(values, seen):
    rows, columns = np.nonzero(seen[:2])
    return mf.Entries(rows, columns, values[rows, columns], (2, NUM_COLUMNS))


def test_answers_are_the_same_after_save_and_load(fitted, tmp_path):
    *_, post = fitted
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict().mean, post.predict().mean)
    np.testing.assert_array_equal(again.recommend(n=3).columns, post.recommend(n=3).columns)
    assert again.extend(num_samples=2).num_draws == 62


def known(seed=1, coefficient=1.5):
    """Ratings that features say nearly everything about."""
    generator = np.random.default_rng(seed)
    ages, lengths = generator.normal(size=NUM_ROWS), generator.normal(size=NUM_COLUMNS)
    truth = coefficient * np.outer(ages, lengths) + 2 * ages[:, None] + lengths
    rows, columns = np.divmod(
        generator.choice(truth.size, truth.size // 3, replace=False), NUM_COLUMNS
    )
    ids = [f"u{i}" for i in range(NUM_ROWS)], [f"i{j}" for j in range(NUM_COLUMNS)]
    values = truth[rows, columns] + 0.2 * generator.normal(size=rows.size)
    data = mf.Entries(rows, columns, values, truth.shape, *ids)
    users = Features(ages[::-1, None], ids[0][::-1], columns=["age"])
    items = Features(lengths[:, None], ids[1], columns=["length"])
    return truth, data, users, items


@pytest.mark.slow
def test_a_row_never_seen_is_predicted_from_its_features(tmp_path):
    _, data, users, items = known()
    model = mf.BPMF(1, row_features=users, column_features=items)
    post = mf.sample(model, data, **RUN)
    new = Features([[1.0], [-2.0]], ["x", "y"], columns=["age"])
    lengths = items.to_array()[:, 0]
    expected = 1.5 * np.outer([1.0, -2.0], lengths) + 2 * np.array([[1.0], [-2.0]]) + lengths
    found = post.predict(row_features=new)
    assert np.sqrt(np.mean((found.to_array((2, NUM_COLUMNS)) - expected) ** 2)) < 0.7
    assert set(found.row_names) == {"x", "y"}
    # broken twin: without features the same rows are predicted by the mean alone
    blind = np.sqrt(np.mean((expected - np.asarray(data.values).mean()) ** 2))
    assert blind > 2
    films = Features([[0.5]], ["new"], columns=["length"])
    found = post.predict(column_features=films)
    ages = users.match(data.row_names).to_array()[:, 0]
    assert np.sqrt(np.mean((found.mean - (0.75 * ages + 2 * ages + 0.5)) ** 2)) < 0.7
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run").predict(row_features=new)
    np.testing.assert_array_equal(again.mean, post.predict(row_features=new).mean)
    with pytest.raises(ValueError, match=r"have no column .age., which those in training have"):
        post.predict(row_features=Features(np.ones((2, 3))))


def test_new_rows_without_features_have_the_parts_of_those_in_training():
    # eight parts of eleven columns have coefficients in the columns' vectors, one of 88 has none
    table = {
        f"f{part}": [f"l{level % 11}" for level in range(part, part + 12)] for part in range(8)
    }
    for is_sparse in (False, True):
        features = Features.from_columns(table, sparse=is_sparse)
        model = mf.BPMF(num_factors=1, row_features=features)
        new = model.for_new_rows(None, 2)
        assert new.column_width() == model.column_width() == 2 + 88
        assert new.row_features.parts == features.parts
        assert new.known(2, 9, np.zeros((0, 0), np.float32)).rows.shape == (2, 88)


@pytest.mark.slow
def test_features_of_no_width_are_no_features():
    """Bit for bit."""
    data = planted()[-1]
    settings = RUN | {"num_warmup": 5, "num_samples": 5}
    plain = mf.sample(mf.BPMF(2), data, **settings)
    none = Features.none(NUM_ROWS), Features.none(NUM_COLUMNS)
    empty = mf.sample(mf.BPMF(2, *none), data, **settings)
    for name, values in plain.draws.items():
        np.testing.assert_array_equal(values, empty.draws[name], err_msg=name)


@pytest.mark.exhaustive
def test_zero_features_leave_the_distribution_of_the_others_alone():
    """The prior of a part of a normal-inverse-Wishart vector is one: degrees less the rest."""
    data = planted()[-1]
    zeros = Features(np.zeros((NUM_ROWS, 2)), data.row_names)
    prior = mf.NormalInverseWishart(degrees=8.0)
    wider = mf.NormalInverseWishart(degrees=10.0)
    plain = mf.BPMF(2, column_prior=prior, link=False)
    widened = mf.BPMF(2, row_features=zeros, column_prior=wider, link=False)
    settings = RUN | {"num_warmup": 100, "num_samples": 300}
    first, second = (mf.sample(model, data, **settings).predict() for model in (plain, widened))
    assert np.sqrt(np.mean((first.mean - second.mean) ** 2)) < 0.08
    assert abs(np.mean(first.sd) / np.mean(second.sd) - 1) < 0.05


@pytest.mark.exhaustive
def test_features_of_cells_may_be_absent():
    generator = np.random.default_rng(2)
    _, values, seen, data = planted(noise=0.1)
    days = generator.normal(size=values.shape)
    shifted = mf.Entries(
        data.rows, data.columns, np.asarray(data.values) + 2 * days[seen], data.shape
    )
    everywhere = np.indices(values.shape).reshape(2, -1)
    cells = CellFeatures(*everywhere, days.reshape(-1, 1), data.shape)
    post = mf.sample(mf.BPMF(2, cell_features=cells), shifted, **RUN)
    error = post.predict().mean - (values + 2 * days)[~seen]
    assert np.sqrt(np.mean(error**2)) < 0.7
    without = dataclasses.replace(
        post,
        model=dataclasses.replace(
            post.model, cell_features=CellFeatures([0], [0], [[0.0]], data.shape)
        ),
    )
    error = without.predict().mean - values[~seen]
    assert np.sqrt(np.mean(error**2)) < 0.7


@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(mf.Probit(), marks=pytest.mark.exhaustive),
        pytest.param(mf.Ordinal((1, 2, 3, 4, 5)), marks=pytest.mark.exhaustive),
    ],
)
def test_ratings_of_few_values_have_probabilities(likelihood):
    truth, values, seen, _ = planted()
    levels = likelihood.levels
    if len(levels) == 2:
        # of two fifths of such cells factors say little more than biases, which get .72 right
        seen = np.random.default_rng(1).random(truth.shape) < 0.8
    rows, columns = np.nonzero(seen)
    cut = np.quantile(values, np.linspace(0, 1, len(levels) + 1)[1:-1])
    stars = np.asarray(levels)[np.searchsorted(cut, values)]
    data = mf.Entries(rows, columns, stars[seen], truth.shape)
    post = mf.sample(mf.BPMF(2, likelihood=likelihood), data, **RUN)
    cells = np.nonzero(~seen)
    found = post.probabilities(cells)
    assert found.shape == (cells[0].size, len(levels))
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-4)
    best = np.asarray(levels)[found.argmax(axis=1)]
    assert (best == stars[~seen]).mean() > (0.8 if len(levels) == 2 else 0.5)
    columns = np.flatnonzero(seen[5])
    copy = mf.Entries(np.zeros_like(columns), columns, stars[5, columns], (1, NUM_COLUMNS))
    found = post.predict(new_rows=copy)
    assert np.corrcoef(found.mean, truth[5, found.columns])[0, 1] > 0.7
    assert post.recommend(mf.Positions([0]), n=3).columns.shape == (1, 3)
    with pytest.raises(ValueError, match=r"needs (one of the levels|0 or 1)"):
        mf.sample(mf.BPMF(2, likelihood=likelihood), planted()[-1], **RUN)


def test_constant_ratings_are_taken_as_they_are():
    data = planted()[-1]
    constant = mf.Entries(data.rows, data.columns, np.full(data.num_entries, 2.0), data.shape)
    found = mf.sample(mf.BPMF(2), constant, **RUN).predict()
    assert np.abs(found.mean - 2).max() < 0.2
    assert (found.sd > 0).all()


# of one shape and run alike: one program
FEW_CELLS = np.divmod([0, 3, 5, 6, 10, 12, 17, 19], 4)
FEW = {"num_warmup": 10, "num_samples": 10, "num_chains": 2, "seed": 1, "progress": False}


@pytest.mark.tiers(exhaustive=["23088.5", "3.0"])
@pytest.mark.parametrize("value", [3.0, 23_088.5, -2e9, 5e-7])
def test_one_rating_or_several_alike_are_predicted_at_any_size(value):
    """Their noise started at a variance of 1 whatever the ratings' size: not finite from 1e4 on."""
    data = mf.Entries(*FEW_CELLS, np.full(8, value), (5, 4))
    post = mf.sample(mf.BPMF(2), data, **FEW)
    assert np.isfinite(post.draws["log_joint"]).all()
    found = post.predict()
    assert np.isfinite(found.mean).all()
    assert (np.abs(found.mean - value) < 5 * abs(value)).all()
    assert (found.sd > 0).all()


@pytest.mark.parametrize(("factor", "offset"), [(1e-4, 0.0), (1e6, 0.0), (1.0, 1e5)])
def test_few_ratings_in_any_unit_are_predicted_in_that_unit(factor, offset):
    """Eight ratings times 1e-4 ended without a finite number before cells were standardised."""
    stars = np.array([4.0, 3.0, 5.0, 1.0, 2.0, 4.0, 3.0, 5.0])
    usual, found = (
        mf.sample(mf.BPMF(2), mf.Entries(*FEW_CELLS, values, (5, 4)), **FEW).predict()
        for values in (stars, stars * factor + offset)
    )
    # 32-bit floats about 1e5 are multiples of a hundredth
    tolerance = 0.01 if offset == 0 else 0.1
    np.testing.assert_allclose((found.mean - offset) / factor, usual.mean, atol=tolerance)
    np.testing.assert_allclose(found.sd / factor, usual.sd, rtol=0.1)
    # broken twin: in the units of the standardised cells
    assert np.abs(found.mean - usual.mean).max() > 1


def test_constant_ratings_are_no_spread_in_64_bits():
    with jax.enable_x64(True):
        data = mf.Entries([0, 1, 2], [0, 0, 0], [0.1, 0.1, 0.1], (3, 1))
        assert np.std(np.asarray(data.values)) > 0  # rounding
        mf.BPMF(num_factors=1).check_data(data, "data")


def test_ratings_whose_squares_are_no_floats_are_refused_with_a_remedy():
    data = mf.Entries([0, 1, 2], [0, 1, 0], [1e-30, 3e-30, 2e-30], (3, 2))
    with pytest.raises(ValueError, match=r"data: .*divide them by"):
        mf.sample(mf.BPMF(2), data, **RUN)


def test_features_in_any_unit_say_the_same():
    """Bit for bit up to rounding: days for years, and a constant added."""
    data = planted()[-1]
    years = np.random.default_rng(3).uniform(20, 60, NUM_ROWS)
    ids = data.row_names
    models = [
        mf.BPMF(2, row_features=Features(values[:, None], ids)).matched(data)
        for values in (years, 365.25 * years + 1e4)
    ]
    first, second = (model.row_features.to_array() for model in models)
    np.testing.assert_allclose(first, second, atol=1e-4)
    assert first.mean() == pytest.approx(0, abs=1e-5)
    assert first.std() == pytest.approx(1, abs=1e-4)
    again = models[1].matched(data).row_features
    np.testing.assert_array_equal(again.to_array(), second)
    new = models[1].for_new_rows(Features([[365.25 * years[0] + 1e4]], ["x"]), 1).row_features
    np.testing.assert_allclose(new.to_array(), first[:1], atol=1e-3)


def test_wide_parts_of_features_have_no_coefficients_unless_asked_for():
    towns = {"town": [f"t{i}" for i in range(NUM_ROWS * 2)]}
    levels = Features.from_columns(towns, categorical=["town"])
    ages = Features(np.arange(2.0 * NUM_ROWS)[:, None], columns=["age"])
    users = Features.from_blocks({"about": ages, "town": levels})
    assert users.parts == (1, 2 * NUM_ROWS)
    assert mf.BPMF(2, users).column_width() == 2 + 1 + 1
    assert mf.BPMF(2, users, coefficients=True).column_width() == 2 + 1 + 1 + 2 * NUM_ROWS
    assert mf.BPMF(2, users, coefficients=False).column_width() == 2 + 1


@pytest.mark.exhaustive
def test_one_rating_in_all_says_little_about_the_rest():
    """Of most rows and columns nothing is known at all."""
    data = mf.Entries([1], [0], [4.0], (3, 2))
    found = mf.sample(mf.BPMF(2), data, **RUN).predict()
    assert len(found) == 5
    assert np.isfinite(found.mean).all()
    assert (found.sd > 0.5).all()


def features_of(num_rows):
    return Features(np.ones((num_rows, 1)))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: mf.BPMF(2.5), TypeError, "whole number"),
        (lambda: mf.BPMF(-1), ValueError, "at least 0, got -1"),
        (lambda: mf.BPMF(0, bias=False), ValueError, "nothing"),
        (lambda: mf.BPMF(2, bias=1), TypeError, "True or False"),
        (lambda: mf.BPMF(2, likelihood="gaussian"), TypeError, "Gaussian()"),
        (lambda: mf.BPMF(2, likelihood=mf.Gaussian(-1.0)), ValueError, "noise_scale"),
        (lambda: mf.BPMF(2, row_prior=1.0), TypeError, "NormalInverseWishart"),
        (lambda: mf.BPMF(2, row_features=np.ones((3, 1))), TypeError, "Features"),
        (lambda: mf.BPMF(2, offset="high"), TypeError, "offset"),
        (lambda: mf.BPMF(2, scale=0.0), ValueError, "scale"),
        (
            lambda: mf.BPMF(2, Features(np.ones((3, 600))), coefficients=True),
            ValueError,
            "coefficients=False",
        ),
        (lambda: mf.sample(mf.BPMF(2, features_of(7)), planted()[-1]), ValueError, "row_features"),
        (
            lambda: mf.sample(mf.BPMF(2, row_prior=mf.NormalInverseWishart(9)), planted()[-1]),
            ValueError,
            "row_prior",
        ),
        (lambda: mf.sample(mf.BPMF(2), planted()[-1], keep_factors=3), TypeError, "keep_factors"),
        (lambda: mf.Entries([0, 0], [1, 1], [1.0, 2.0], (2, 2)), ValueError, "twice|repeat|stand"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_unknown_ids_are_refused(fitted):
    *_, post = fitted
    with pytest.raises(ValueError, match="no row has the id 'u99'"):
        post.predict((["u99"], ["i0"]))
    with pytest.raises(ValueError, match="no row has the id"):
        post.recommend("u99")


@pytest.fixture(scope="module")
def grouped():
    """Two groups of rows that like opposite columns."""
    generator = np.random.default_rng(4)
    likes = np.where(np.arange(NUM_COLUMNS) % 2, 2.0, -2.0)
    side = np.where(np.arange(NUM_ROWS) < 25, 1.0, -1.0)
    truth = np.outer(side, likes)
    rows, columns = np.nonzero(generator.random(truth.shape) < 0.6)
    values = truth[rows, columns] + 0.5 * generator.normal(size=rows.size)
    ids = [f"u{i}" for i in range(NUM_ROWS)], [f"i{j}" for j in range(NUM_COLUMNS)]
    data = mf.Entries(rows, columns, values, truth.shape, *ids)
    model = mf.BPMF(2, mixture=(mf.DirichletProcess(1.0), None), bias=False)
    return side, mf.sample(model, data, capacity=4, **(RUN | {"num_warmup": 150}))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_groups_of_rows_are_found(grouped):
    side, post = grouped
    assert post.meta.capacity["row_groups"] >= 4
    groups = post.draws["row_groups"][0]
    together = (groups[:, :, None] == groups[:, None, :]).mean(axis=0)
    alike = side[:, None] == side
    assert together[alike].mean() > 0.7
    assert together[~alike].mean() < 0.1
    titles = {f"u{i}": f"Film {i}" for i in range(NUM_ROWS)}
    table = post.top_entries("row", n=3, titles=titles)
    assert str(table.entries[0, 0]).startswith("Film")
    assert table.shares[0] > 0.4
    best = post.preferences("row", n=5)
    indices = [int(name[1:]) for name in best.entries[0]]
    assert len({index % 2 for index in indices}) == 1
    with pytest.raises(ValueError, match="one group of columns"):
        post.top_entries("column")


@pytest.mark.exhaustive
def test_new_rows_join_the_group_of_their_cells(grouped):
    _, post = grouped
    few = mf.Entries([0, 0, 0], [1, 3, 4], [2.0, 2.0, -2.0], (1, NUM_COLUMNS))
    found = post.predict(new_rows=few).to_array((1, NUM_COLUMNS))[0]
    assert np.nanmean(found[1::2]) > 1
    assert np.nanmean(found[0::2]) < -1


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"mixture": 1.0}, TypeError, "mixture"),
        ({"mixture": (None, None, None)}, ValueError, "pair"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        mf.BPMF(2, **settings)


@pytest.mark.exhaustive
def test_new_rows_are_predicted_beside_features_of_rows_columns_and_cells():
    generator = np.random.default_rng(0)
    rows, columns = np.nonzero(generator.random((8, 6)) < 0.7)
    ids = {"row_names": [f"u{i}" for i in range(8)], "column_names": [f"i{j}" for j in range(6)]}
    data = mf.Entries(rows, columns, generator.normal(size=len(rows)), (8, 6), **ids)
    users = Features.from_columns({"sex": ["M", "F"] * 4}, ids=ids["row_names"])
    items = Features.from_columns({"kind": ["a", "b", "c"] * 2}, ids=ids["column_names"])
    earlier = Features(generator.normal(size=(len(rows), 3)))
    cells = mf.CellFeatures(rows, columns, earlier, (8, 6), **ids)
    model = mf.BPMF(1, row_features=users, column_features=items, cell_features=cells)
    post = mf.sample(model, data, num_warmup=2, num_samples=2, num_chains=1, progress=False)
    where = mf.Positions([0, 0], [1, 4])
    new = post.predict(where, row_features=users.encode({"sex": ["M"]}))
    assert np.isfinite(new.mean).all()
    unknown = post.predict((["u0", "who"], ["i1", "i4"]), unknown="prior")
    assert np.isfinite(unknown.mean).all()
