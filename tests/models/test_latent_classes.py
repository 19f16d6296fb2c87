"""Mixtures of columns of categories: what is asked by, predicted, and said of their cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf import diagnostics
from jaxmf.plot.plots import Plots

SETTINGS = {"num_warmup": 20, "num_samples": 20, "num_chains": 1, "progress": False}
random = np.random.default_rng(0)
CLASS = random.integers(0, 2, 60)
CODES = np.stack([np.where(random.random(60) < 0.9, CLASS, 2) for _ in range(5)], axis=1)
TRUTH = pd.DataFrame(
    {**{f"q{j}": CODES[:, j] for j in range(4)}, "yes": CODES[:, 4] > 0, "size": 8.0 * CLASS}
).astype(float)
TRUTH.index = [f"person {i}" for i in range(60)]
TABLE = TRUTH.mask(np.random.default_rng(1).random(TRUTH.shape) < 0.1)
QUESTIONS = list(TRUTH)[:4]
MIXED = mf.MixedColumns([mf.DirichletMultinomial()] * 4 + [mf.BetaBinary(), None])


@pytest.fixture(scope="module")
def post():
    return mf.sample(mf.MixtureOfGaussians(2, family=MIXED), TABLE, **SETTINGS)


@pytest.fixture(scope="module")
def classes():
    model = mf.MixtureOfGaussians(2, family=mf.DirichletMultinomial())
    return mf.sample(model, TABLE[QUESTIONS], **SETTINGS)


def test_a_family_of_categories_is_that_of_every_column(classes):
    """Latent class analysis by the obvious call; how many categories there are is in the data."""
    assert classes.model.family == mf.IndependentColumns(mf.DirichletMultinomial(3))
    assert mf.DPMixture(family=mf.BetaBinary()).family == mf.IndependentColumns(mf.BetaBinary())
    found = classes.groups().labels
    agree = np.mean(found == CLASS)
    assert max(agree, 1 - agree) > 0.9
    sizes = [getattr(one, "size", None) for one in MIXED.families]
    assert sizes[:5] == [None] * 4 + [2]


@pytest.mark.slow
def test_columns_have_as_many_categories_as_there_are_in_each(post):
    assert [one and one.size for one in post.model.family.families] == [3, 3, 3, 3, 2, None]
    model = mf.MixtureOfGaussians(2, family=mf.DirichletMultinomial())
    rows = mf.Dense(TRUTH[["q0", "yes"]].to_numpy())
    assert [one.size for one in model.matched(rows).family.families] == [3, 2]
    assert mf.MixtureOfGaussians(2).matched(rows) == mf.MixtureOfGaussians(2)


@pytest.mark.parametrize(
    ("change", "family", "match"),
    [
        (1, mf.DirichletMultinomial(), "no cell .* is 0: codes begin at 0.* pass answer - 1"),
        (1, mf.DirichletMultinomial(3), "3 at .* has 0 to 2: codes begin at 0"),
        (-1, mf.DirichletMultinomial(), "-1 at .* no code of a category.* pandas: make it NaN"),
        (0.5, mf.DirichletMultinomial(), r"[.]5 at .* is no code of a category, which are 0, 1"),
        (0, mf.GammaPoisson(), r"takes one number a row. IndependentColumns\(GammaPoisson"),
    ],
)
def test_codes_that_are_none_are_refused(change, family, match):
    with pytest.raises(ValueError, match=match):
        mf.sample(mf.MixtureOfGaussians(2, family=family), TRUTH[QUESTIONS] + change, **SETTINGS)


@pytest.mark.slow
def test_the_prediction_of_a_category_is_the_most_probable_one(post):
    found = post.predict(num_draws=50)
    is_category = np.isin(found.column_names, QUESTIONS)
    np.testing.assert_array_equal(found.is_category, is_category)
    assert set(found.mean[is_category]) <= {0.0, 1.0, 2.0}
    assert np.isnan(found.sd[is_category]).all()
    assert np.isnan(found.quantiles[:, is_category]).all()
    assert np.isfinite(found.sd[~is_category]).all()
    assert set(np.unique(found.draws[:, is_category])) <= {0.0, 1.0, 2.0}
    chances = post.probabilities()  # the missing cells of columns that have a set of values
    assert list(chances.columns) == [c for c in found.column_names if c != "size"]
    asked = np.isin(chances.columns, QUESTIONS)
    best = chances.levels[np.argmax(chances.values[asked], axis=1)]
    np.testing.assert_array_equal(best, found.mean[is_category])


@pytest.mark.slow
def test_groups_of_more_cells_than_rows_are_drawn_by_rows(classes):
    """As many groups are drawn as there are rows, not as many as there are cells."""
    where = np.divmod(np.arange(240), 4)
    draw = {name: values[0, 0] for name, values in classes.draws.items()}
    args = jax.random.key(0), draw, classes.data, *map(jnp.asarray, where)
    work = str(jax.make_jaxpr(classes.model.draw_cells)(*args))
    assert "60,4]" in work.replace(" ", "")
    assert "240,4]" not in work.replace(" ", "")
    found = classes.predict(mf.Positions(*where), num_draws=2000)
    known = classes.probabilities(mf.Positions(*where))
    shares = np.stack([(found.draws == level).mean(axis=0) for level in known.levels], axis=1)
    assert np.abs(shares - known.values).max() < 0.06
    assert np.abs(shares - known.values).mean() < 0.012


@pytest.mark.slow
def test_cells_of_new_rows_have_probabilities(post):
    """Those of rows of the data by themselves, given the other cells: as a new row has."""
    new = TRUTH.iloc[:5].rename(index=lambda name: f"new {name}")
    cells = (["new person 0", "new person 1"], ["q0", "yes"])
    found = post.probabilities(cells, new_rows=new)
    assert list(found.rows) == cells[0]
    np.testing.assert_allclose(found.values.sum(axis=1), 1, rtol=1e-4)
    predicted = post.predict(cells, new_rows=new)
    assert predicted.mean[0] == found.levels[np.argmax(found.values[0])]
    np.testing.assert_allclose(predicted.mean[1], found.values[1, 1], rtol=1e-4)
    blank = new.iloc[:1] * np.nan
    only = post.probabilities((cells[0][:1], ["q0"]), new_rows=blank.assign(q1=2.0))
    assert np.abs(only.values - found.values[:1]).max() > 0.1  # of a row of which little is known
    with pytest.raises(ValueError, match="column 'size' has no finite set"):
        post.probabilities((["new person 0"], ["size"]), new_rows=new)
    with pytest.raises(ValueError, match="unknown: takes"):
        post.probabilities(cells, new_rows=new, unknown="prior")


@pytest.mark.exhaustive
def test_new_users_have_probabilities_of_their_ratings():
    rows, columns = np.divmod(np.arange(40), 5)
    data = mf.Entries(rows, columns, 1.0 + (rows + columns) % 5, (8, 5))
    post = mf.sample(mf.URP(2), data, **SETTINGS)
    new = mf.Entries([0, 0], [0, 1], [5.0, 4.0], (1, 5))
    found = post.probabilities(([0, 0], [2, 3]), new_rows=new)
    assert found.values.shape == (2, 5)
    mean = found.values @ found.levels
    np.testing.assert_allclose(mean, post.predict(([0, 0], [2, 3]), new_rows=new).mean, rtol=1e-4)


@pytest.mark.slow
def test_errors_count_wrong_categories_apart(post, classes):
    error = diagnostics.held_out_error(post, TRUTH)
    hidden = TABLE[QUESTIONS].isna().to_numpy().sum()
    assert error.num_categories == hidden
    assert error.num_real == error.num_cells - hidden
    assert np.isfinite(error.rmse)
    assert error.accuracy > error.common_accuracy
    assert f"of {hidden} categories right" in repr(error)
    alone = diagnostics.held_out_error(classes, TRUTH[QUESTIONS])
    assert alone.num_real == 0
    assert np.isnan(alone.rmse)
    assert repr(alone).startswith("held-out cells: ")


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_a_wrong_category_is_one_error_where_models_are_compared(classes):
    normal = mf.sample(
        mf.MixtureOfGaussians(2, family=mf.IndependentColumns()), TABLE[QUESTIONS], **SETTINGS
    )
    compared = mf.compare(
        {"classes": classes, "normal": normal},
        held_out=TRUTH[QUESTIONS],
        criterion="squared_error",
        progress=False,
    )
    # right or wrong, of means of codes as well
    assert set(np.unique(np.abs(compared.differences["normal"]))) <= {0.0, 1.0}


@pytest.mark.exhaustive
def test_the_report_says_how_many_categories_were_right(classes, tmp_path):
    page = tmp_path / "report.html"
    classes.report(page, truth=TRUTH[QUESTIONS])
    text = page.read_text()
    assert "categories right" in text
    assert "Root mean square error" not in text
    with pytest.raises(ValueError, match="all cells are of categories, see calibration"):
        Plots(classes).held_out(TRUTH[QUESTIONS])


def test_the_calibration_of_categories_is_of_their_probabilities(classes):
    axes = classes.plot.calibration().axes[0]
    assert axes.get_xlabel() == "predicted probability of a category"
    assert axes.get_ylabel() == "share of cells with that category, training cells"
