"""Models compared by leave-one-out: exact answers, paired errors, and what is refused."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf.posterior import left_out_losses
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior, comparison
from jaxmf.results.comparison import Score, Scored
from tests.posterior import test_left_out_tokens as tokens

NUM_DRAWS = 1_000
SIZE = (15, 24)


@partial(jax.tree_util.register_dataclass, data_fields=["scale"], meta_fields=[])
@dataclass(frozen=True)
class ColumnMeans(mf.Model):
    """m_d ~ N(0, scale^2), x_nd ~ N(m_d, 1): all that is asked of it has a closed form."""

    scale: float = 3.0

    data_type = mf.Dense
    cells_given_draw = "independent"

    def predict_cells(self, draw, data, rows, columns):
        return draw["means"][columns], jnp.ones(columns.shape)

    def posterior(self, x, seed=0):
        """Independent draws from the exact posterior."""
        precision = len(x) + 1 / self.scale**2
        noise = np.random.default_rng(seed).normal(size=(2, NUM_DRAWS // 2, x.shape[1]))
        means = x.sum(axis=0) / precision + noise / np.sqrt(precision)
        return run(self, x, means=means)

    def exact(self, x):
        """Log density of every cell given all the others, (N * D,)."""
        precision = len(x) - 1 + 1 / self.scale**2
        mean, variance = (x.sum(axis=0) - x) / precision, 1 + 1 / precision
        return stats.norm.logpdf(x, mean, np.sqrt(variance)).ravel()


@partial(jax.tree_util.register_dataclass, data_fields=["scale"], meta_fields=[])
@dataclass(frozen=True)
class Coins(ColumnMeans):
    """Zeros and ones, whose probabilities are the means of the columns."""

    cell_distribution = "bernoulli"


def run(model, x, **draws):
    """A posterior with these draws, (chains, draws, ...)."""
    meta = Meta("sample", 0, {"num_warmup": 9}, {}, {}, "CPU", 1.0, 1.0, True, {})
    return Posterior(model, mf.Dense.from_array(np.asarray(x, np.float32)), draws, meta)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=SIZE).astype(np.float32).astype(float)


@pytest.fixture(scope="module")
def posts(x):
    return {"tight": ColumnMeans(0.05).posterior(x), "wide": ColumnMeans(3.0).posterior(x)}


def test_leave_one_out_of_a_conjugate_model_is_the_exact_one(x, posts):
    table = mf.compare(posts)
    for name, scale in (("tight", 0.05), ("wide", 3.0)):
        exact = ColumnMeans(scale).exact(x)
        assert abs(table[name, "elpd"] - exact.sum()) < 1.0
    # the density that knows the cell is off by about a nat for each of the 24 means
    inside = posts["wide"].log_likelihood().values.reshape(NUM_DRAWS, -1)
    knows = np.logaddexp.reduce(inside - np.log(NUM_DRAWS), axis=0)
    assert knows.sum() - ColumnMeans(3.0).exact(x).sum() > 15
    assert 15 < table["wide", "parameters"] < 32
    assert abs(table["tight", "parameters"]) < 2


def features_of(posterior, likelihood):
    """The same draws as those of one feature that all rows have."""
    means = posterior.draws["means"]
    scale = dist.Normal(0.0, 3.0).expand([SIZE[1]]).to_event(1)
    model = mf.FeatureModel(likelihood=likelihood, feature_prior=scale, prior=mf.IndianBuffet(1.0))
    values = posterior.data.to_array()
    return run(model, values, z=np.ones((*means.shape[:2], SIZE[0], 1), bool), y=means[:, :, None])


def test_leave_one_out_of_features_is_exact_where_the_likelihood_is_of_cells(x, posts):
    table = mf.compare({"f": features_of(posts["wide"], mf.Gaussian(1.0)), "m": posts["wide"]})
    assert abs(table["f", "elpd"] - ColumnMeans(3.0).exact(x).sum()) < 1.0
    assert table["f", "elpd"] == pytest.approx(table["m", "elpd"], rel=1e-5)
    heavy = features_of(posts["wide"], mf.StudentT(3.0, 0.8)).log_likelihood()
    each = stats.t.logpdf(x.ravel(), 3.0, np.tile(posts["wide"].draws["means"], 15), 0.8)
    np.testing.assert_allclose(heavy.values, each, rtol=2e-4, atol=2e-5)


def test_cells_of_a_function_are_not_taken_for_independent(posts):
    function = mf.FeatureModel(
        lambda x, z, y: -jnp.sum((x - z @ y) ** 2),
        dist.Normal(0.0, 3.0).expand([SIZE[1]]).to_event(1),
    )
    post = features_of(posts["wide"], mf.Gaussian(1.0))
    with pytest.raises(ValueError, match="FeatureModel does not say the likelihood of a cell"):
        run(function, post.data.to_array(), **post.draws).log_likelihood()


def test_differences_and_their_errors_are_paired_by_cell(posts):
    table = mf.compare(posts)
    assert table.names == ["tight", "wide"]
    difference = table.differences["wide"]
    assert difference.size == SIZE[0] * SIZE[1]
    by_cell = np.sqrt(difference.size) * difference.std(ddof=1)
    residual = (difference - difference.mean()).reshape(SIZE)
    by_column = np.sqrt(24 / 23 * np.sum(residual.sum(axis=0) ** 2))  # 24 columns, only 15 rows
    assert table["wide", "difference"] == pytest.approx(difference.sum())
    assert table["wide", "se of difference"] == pytest.approx(max(by_cell, by_column))
    assert "'wide' (-8.2 ± 5.2 nats) cannot be distinguished from it" in table.conclusion
    assert table.is_reliable
    assert "No check speaks against this" in repr(table)
    assert list(table.to_pandas().index) == ["tight", "wide"]
    assert "<table" in table._repr_html_()


def test_a_model_that_predicts_worse_is_called_so(x):
    """Means near zero where those of the data are not."""
    far = x + np.arange(24) / 4
    table = mf.compare(
        {"near": ColumnMeans(0.1).posterior(far), "far": ColumnMeans().posterior(far)}
    )
    difference, error = (table["near", name] for name in ("difference", "se of difference"))
    assert table.conclusion.startswith(
        f"'far' predicts best: 'near' is worse by {-difference:.1f} nats, "
        f"{-difference / error:.1f} standard errors. No check"
    )
    assert -difference > 2 * error > 0


def test_progress_counts_the_draws_of_all_posteriors(posts):
    reports = []
    mf.compare(posts, progress=reports.append)
    mf.compare(posts, progress=False)
    counts = [(report.step, report.num_steps) for report in reports]
    assert counts == [(1_000, 2_000), (2_000, 2_000)]
    assert [report.note for report in reports] == [repr(name) for name in posts]


def test_a_model_is_not_better_than_itself(x, posts):
    table = mf.compare({"a": posts["wide"], "b": posts["wide"]})
    assert table["b", "difference"] == 0
    assert table["b", "se of difference"] == 0
    assert "'b' (0.0 ± 0.0 nats) cannot be distinguished from it" in table.conclusion
    # nor by more than its own Monte Carlo error than a second run
    again = mf.compare({"a": posts["wide"], "b": ColumnMeans(3.0).posterior(x, seed=1)})
    assert "cannot be distinguished" in again.conclusion


def test_waic_is_that_of_the_log_likelihood(posts):
    flat = posts["wide"].log_likelihood().values.reshape(NUM_DRAWS, -1)
    variance = flat.var(axis=0, ddof=1)
    each = np.logaddexp.reduce(flat - np.log(NUM_DRAWS), axis=0) - variance
    table = mf.compare(posts, criterion="waic")
    assert table["wide", "elpd"] == pytest.approx(each.sum(), rel=1e-6)
    assert table["wide", "parameters"] == pytest.approx(variance.sum(), rel=1e-6)


def weighted(posterior, weights):
    """The same draws with these weights."""
    log_weights = np.log(weights / np.sum(weights)).reshape(posterior.draws["means"].shape[:2])
    return dataclasses.replace(posterior, particle_log_weights=log_weights)


def test_fewer_draws_of_weighted_ones_keep_their_distribution(posts, monkeypatch):
    num_draws = posts["wide"].weights.size
    weights = np.where(np.arange(num_draws) == 7, 1.0, 1 / num_draws)  # half of it is of draw 7
    post = weighted(posts["wide"], weights)
    chains, draws, shares = post.spread_draws()
    flat = np.ravel_multi_index((chains, draws), post.weights.shape)
    assert shares[flat == 7].sum() == pytest.approx(0.5, abs=0.02)
    assert shares.sum() == pytest.approx(1)
    monkeypatch.setattr(comparison, "_MOST_DRAWS", 100)
    index, used = comparison._draws_used(weighted(posts["wide"], np.linspace(1, 3, num_draws)))
    even = np.average(np.arange(num_draws), weights=np.linspace(1, 3, num_draws))
    assert index.size <= 100
    assert np.average(index, weights=used) == pytest.approx(even, abs=num_draws / 100)


def test_means_of_log_likelihoods_are_weighted_as_the_draws(posts):
    post = posts["wide"]
    heavy = weighted(post, np.where(np.arange(post.weights.size) == 3, 1.0, 1e-9))
    found = heavy.log_likelihood()
    expected = found.values.reshape(-1, found.rows.size)[3]
    table = found.to_pandas()
    np.testing.assert_allclose(table["mean"], expected, atol=1e-3)
    assert table["sd"].max() < 0.05
    assert repr(found).endswith(f"mean of a cell {expected.mean():.4g}")
    words = dataclasses.replace(found, conditional_on="the draw and all other tokens")
    assert "360 words given" in repr(words)


def test_waic_with_large_variances_is_not_trusted(x):
    draws = np.random.default_rng(2).normal(size=(1, 100, SIZE[1]))
    posts = {name: run(ColumnMeans(), x, means=scale * draws) for name, scale in TWO_SCALES.items()}
    table = mf.compare(posts, criterion="waic")
    assert not table.is_reliable
    assert "posterior variance above 0.4" in table.conclusion
    assert "'spread', where WAIC is unreliable" in table.conclusion


def test_advice_about_unreliable_words_is_of_documents(x, monkeypatch):
    scored = Scored({"a": Score(np.zeros(200), np.ones(200))}, None, 200, "tokens")
    for words, model in (("data", ColumnMeans(3.0)), ("documents", mf.LDA(2))):
        post = SimpleNamespace(model=model, alarms=tuple, is_weighted=False)
        (worry,) = comparison._worries({"a": post}, scored)
        assert worry.endswith(f"score held_out {words}")


def test_densities_that_are_not_finite_are_counted_and_worry(x):
    each = np.zeros(200)
    scores = {"a": Score(each), "b": Score(np.where(np.arange(200) < 3, -np.inf, 0))}
    scored = Scored(scores, None, 200, "cells")
    post = ColumnMeans(3.0).posterior(x)
    posts = {"a": post, "b": post}
    table = comparison._table(posts, scored, comparison._worries(posts, scored))
    assert "'b' has no finite density at 3 cells" in table.conclusion
    assert not table.is_reliable


TWO_SCALES = {"still": 0.01, "spread": 2.0}


def test_weights_that_cannot_be_relied_on_are_said(x):
    """One row: each cell alone says what its mean is."""
    far = np.random.default_rng(1).normal(scale=20, size=(1, 200))
    posts = {str(scale): ColumnMeans(scale).posterior(far) for scale in (20.0, 30.0)}
    table = mf.compare(posts)
    assert not table.is_reliable
    assert table["20.0", "high k"] > 0.5
    assert (
        "Do not trust this as it stands: importance weights of some cells are" in table.conclusion
    )


@pytest.fixture(scope="module")
def linear_gaussian():
    rng = np.random.default_rng(2)
    z = rng.integers(0, 2, (6, 2)).astype(bool)
    x = (z @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(6, 4))).astype(np.float32)
    fixed = {"noise_scale": 0.5, "feature_scale": 1.0, "alpha": 1.0, "z": z}
    draws = {name: np.broadcast_to(v, (1, 30, *np.shape(v))) for name, v in fixed.items()}
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0, offset=0.0)
    return run(model, x, **draws), z.astype(float), x.astype(float)


def test_a_cell_whose_weights_are_summed_out_is_given_all_others(linear_gaussian):
    post, z, x = linear_gaussian
    found = post.log_likelihood()
    assert (found.conditional_on, found.is_factor) == ("the draw and all other cells", False)
    exact = np.empty(x.shape)
    for row in range(6):
        others = np.arange(6) != row
        precision = z[others].T @ z[others] / 0.25 + np.eye(2)
        mean = z[row] @ np.linalg.solve(precision, z[others].T @ x[others] / 0.25)
        variance = 0.25 + z[row] @ np.linalg.solve(precision, z[row])
        exact[row] = stats.norm.logpdf(x[row], mean, np.sqrt(variance))
    np.testing.assert_allclose(found.values[0, 3], exact.ravel(), rtol=2e-4, atol=2e-4)
    # all draws are the same one, so that leave-one-out is this
    table = mf.compare({"a": post, "b": post})
    np.testing.assert_allclose(table["a", "elpd"], exact.sum(), rtol=1e-4)
    assert "standard errors of fewer than 100 cells are rough" in table.conclusion
    with pytest.raises(ValueError, match="WAIC is of independent ones; use criterion="):
        mf.compare({"a": post, "b": post}, criterion="waic")


def test_cells_are_named_as_in_predictions(linear_gaussian):
    post, _, _ = linear_gaussian
    every = post.log_likelihood()
    some = post.log_likelihood(([5, 0], [1, 3]))
    np.testing.assert_allclose(some.values, every.values[..., [21, 3]], rtol=1e-5)
    assert (some.rows.tolist(), some.columns.tolist()) == ([5, 0], [1, 3])
    missing = dataclasses.replace(post, data=mf.Dense.from_array(np.where(np.eye(6, 4), np.nan, 1)))
    with pytest.raises(ValueError, match="cells: row 1, column 1 at position 1 is missing"):
        missing.log_likelihood(([0, 1], [1, 1]))
    assert "Log likelihood of 2 cells given the draw and all other cells" in repr(some)


@pytest.mark.slow  # arviz takes seconds to import
def test_arviz_computes_the_same(posts):
    pytest.importorskip("arviz_base")
    az = pytest.importorskip("arviz")
    tree = posts["wide"].to_arviz(log_likelihood=True)
    assert tree["log_likelihood"]["x"].dims == ("chain", "draw", "cell")
    np.testing.assert_array_equal(tree["log_likelihood"]["cell_row"][:25], [0] * 24 + [1])
    if hasattr(az, "InferenceData"):  # ArviZ 1.x takes the tree as it is
        tree = az.InferenceData.from_datatree(tree)
    expected = az.loo(tree, pointwise=True, var_name="x")
    table = mf.compare(posts)
    elpd = getattr(expected, "elpd_loo", None)
    elpd = expected.elpd if elpd is None else elpd
    assert table["wide", "elpd"] == pytest.approx(float(elpd), abs=0.05)
    assert "log_likelihood" not in posts["wide"].to_arviz().children


def test_words_of_topics_are_compared():
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 2, 30)
    corpus = tokens.corpus(kinds[:, None] * 10 + rng.integers(0, 10, (30, 8)))
    posts = {
        "by document": tokens.posterior(mf.LDA(2), corpus, {"topic": np.repeat(kinds, 8)}),
        "by chance": tokens.posterior(mf.LDA(2), corpus, {"topic": rng.integers(0, 2, 240)}),
    }
    found = posts["by document"].log_likelihood()
    assert found.values.shape == (1, tokens.NUM_DRAWS, 240)
    assert (found.conditional_on, found.is_discrete) == ("the draw and all other tokens", True)
    np.testing.assert_array_equal(found.rows, np.repeat(np.arange(30), 8))
    table = mf.compare(posts)
    assert table.names == ["by document", "by chance"]
    assert table["by chance", "difference"] < -100
    with pytest.raises(ValueError, match="LDA has words and no cells"):
        posts["by chance"].log_likelihood(([0], [0]))


def test_held_out_cells_are_compared(x, posts):
    hidden = (np.arange(SIZE[0]), np.arange(SIZE[0]))
    holes = x.copy()
    holes[hidden] = np.nan
    data = mf.Dense.from_array(holes.astype(np.float32))
    known = {name: dataclasses.replace(post, data=data) for name, post in posts.items()}
    table = mf.compare(known, held_out=x)
    each = known["wide"].held_out_log_likelihood(x).log_likelihood
    assert table["wide", "elpd"] == pytest.approx(each.sum())
    assert table.columns == ["elpd", "se", "difference", "se of difference"]
    np.testing.assert_array_equal(table.cells_scored[0], hidden[0])


def test_squared_errors_are_paired_and_compare_densities_with_probabilities(x):
    truth = (x > 0).astype(float)
    holes = truth.copy()
    holes[np.arange(12), np.arange(12)] = np.nan
    coins = run(Coins(), holes, means=np.full((1, 30, 24), 0.4))
    real = run(ColumnMeans(), holes, means=np.zeros((1, 30, 24)))
    posts = {"a": coins, "b": real}
    with pytest.raises(ValueError, match='held_out=truth, criterion="squared_error"'):
        mf.compare(posts, held_out=truth)
    with pytest.raises(ValueError, match="pass held_out"):
        mf.compare(posts, criterion="squared_error")
    table = mf.compare(posts, held_out=truth, criterion="squared_error")
    errors = {n: (post.predict().mean - np.diag(truth)[:12]) ** 2 for n, post in posts.items()}
    best, other = table.names
    assert errors[best].mean() < errors[other].mean()
    difference = errors[other] - errors[best]
    np.testing.assert_allclose(table.differences[other], difference, atol=1e-6)
    assert table.columns == ["squared error", "se", "difference", "se of difference"]
    assert table[other, "squared error"] == pytest.approx(errors[other].mean(), rel=1e-5)
    assert table[other, "difference"] == pytest.approx(difference.mean(), rel=1e-4)
    error = difference.std(ddof=1) / np.sqrt(12)
    assert table[other, "se of difference"] == pytest.approx(error, rel=1e-4)
    assert not np.signbit(table[best, "difference"])
    assert "in squared error" in table.conclusion
    assert "nats" not in table.conclusion
    alike = mf.compare({"a": real, "b": real}, held_out=truth, criterion="squared_error")
    assert "'b' (0 ± 0 in squared error) cannot be distinguished" in alike.conclusion


def test_the_same_cells_in_two_containers_are_the_same_data(x, posts):
    rows, columns = (part.ravel() for part in np.indices(SIZE))
    shuffled = np.random.default_rng(4).permutation(rows.size)
    rows, columns = rows[shuffled], columns[shuffled]
    entries = mf.Entries(rows, columns, x[rows, columns].astype(np.float32), SIZE)
    other = dataclasses.replace(posts["wide"], data=entries)
    table = mf.compare({"dense": posts["wide"], "entries": other})
    np.testing.assert_allclose(table.differences["entries"], 0, atol=1e-5)


def test_what_cannot_be_compared_is_said(x, posts):
    one = posts["wide"]
    other = ColumnMeans(3.0).posterior(x + 1)
    ones = run(mf.NoisyOrIBP(), np.eye(4), z=np.ones((1, 30, 4, 1), bool))
    few = dataclasses.replace(one, draws={"means": one.draws["means"][:, :5]})
    names = mf.Dense.from_array(x.astype(np.float32))
    with_ids = [
        dataclasses.replace(names, row_names=np.array(list(ids), object))
        for ids in ("abcdefghijklmno", "bacdefghijklmno")
    ]
    by_ids = [dataclasses.replace(one, data=data) for data in with_ids]
    for asked, error, says in [
        ([one, one], TypeError, "posteriors must be a dict"),
        ({1: one, "b": one}, TypeError, "the name 1 must be a text"),
        ({"a": one, "b": x}, TypeError, r"posteriors\['b'\]"),
        ({"a": one}, ValueError, "there must be two or more, got 1"),
        ({"a": one, "b": other}, ValueError, "'b' is of other data than 'a'"),
        ({"a": one, "b": ones}, ValueError, "'b' is of other data than 'a'"),
        ({"a": one, "b": few}, ValueError, "'b' has 10 draws, and loo needs 25"),
        (dict(zip("ab", by_ids, strict=True)), ValueError, "the rows of 'b' are in another order"),
    ]:
        with pytest.raises(error, match=says):
            mf.compare(asked)
    with pytest.raises(ValueError, match="criterion"):
        mf.compare(posts, criterion="aic")
    zeros = run(mf.NoisyOrIBP(), (x > 0), z=np.ones((1, 30, 15, 1), bool))
    real = run(ColumnMeans(), (x > 0), means=np.zeros((1, 30, 24)))
    with pytest.raises(ValueError, match="'a' have probabilities and those of 'b' densities"):
        mf.compare({"a": zeros, "b": real})


def test_errors_of_a_mean_are_the_largest_by_cells_rows_and_columns():
    """Values that are the same in a row: 25 of them are known, not 250."""
    rows, columns = (part.ravel() for part in np.indices((25, 10)))
    values = np.random.default_rng(5).normal(size=25)[rows]
    error = left_out_losses.standard_error_of_mean(values, rows, columns)
    sums = np.bincount(rows, values) / 10
    assert error == pytest.approx(sums.std(ddof=1) / 5)


def test_a_posterior_without_a_likelihood_of_cells_says_so(x):
    class Other(ColumnMeans):
        cells_given_draw = None

    with pytest.raises(ValueError, match="log_likelihood: Other does not say the likelihood"):
        run(Other(), x, means=np.zeros((1, 30, 24))).log_likelihood()
