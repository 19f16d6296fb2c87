"""The estimators as a user meets them: fits, answers, refusals, pipelines, grid searches."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("sklearn")

import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import jaxmf as mf
from jaxmf import IndependentColumns
from jaxmf import sklearn as estimators
from jaxmf.sklearn.base import check_ratings, hide_cells, to_ones

FEW = {"num_warmup": 2, "num_samples": 2, "random_state": 0}
COUNTS = np.array([[3, 1, 0, 0], [2, 2, 0, 1], [0, 0, 1, 3], [0, 1, 2, 2]])
PAIRS = [["ann", 1], ["ann", 2], ["bob", 1], ["bob", 3], ["cy", 2], ["cy", 3]]
RATINGS = [5.0, 1.0, 4.0, 2.0, 1.5, 2.5]


# --- what needs no fit ---------------------------------------------------------------------------


def test_values_above_the_threshold_are_ones_and_missing_ones_stay():
    values = np.array([[0.5, -1.0], [np.nan, 3.0]])
    np.testing.assert_array_equal(to_ones(values, 0.0), [[1, 0], [np.nan, 1]])
    np.testing.assert_array_equal(to_ones(values, 1.0), [[0, 0], [np.nan, 1]])
    with pytest.raises(ValueError, match=r"X: 0\.5 is neither 0 nor 1"):
        to_ones(values, None)


def test_a_tenth_of_the_observed_cells_is_hidden():
    values = np.arange(40.0).reshape(8, 5)
    values[0] = np.nan
    hidden, (rows, columns) = hide_cells(values, 3)
    assert rows.size == 4  # of 35
    assert np.isnan(hidden[rows, columns]).all()
    assert not np.isnan(values[rows, columns]).any()
    assert np.isnan(hidden).sum() == 5 + 4
    with pytest.raises(ValueError, match="X: has 1 observed cells"):
        hide_cells(np.array([[1.0, np.nan]]), 0)


@pytest.mark.parametrize(
    ("estimator", "X", "message"),
    [
        (estimators.TopicModel(2), [[1.5, 0.0], [1.0, 2.0]], r"X: 1\.5 at row 0, column 0"),
        (estimators.TopicModel(2), [[0, 0], [0, 0]], "X: all counts are 0"),
        (estimators.TopicModel(2), [[-1, 0], [0, 1]], "Negative values"),
        (estimators.TopicModel(0), COUNTS, "n_components must be"),
        (estimators.NoisyOrTransformer(binarize=None), COUNTS, "X: 3 is neither 0 nor 1"),
        (estimators.SparseBinaryRecommender(), np.zeros((3, 2)), "X: has no ones"),
        (estimators.SparseBinaryRecommender(likelihood="poisson"), COUNTS, "likelihood must be"),
        (estimators.BiclusterMF(0), COUNTS, "n_row_features must be"),
        (estimators.BiclusterMF(likelihood="bernoulli"), COUNTS, "X: "),
        (estimators.MixtureClusterer(0), COUNTS, "n_clusters must be"),
        (estimators.MixtureClusterer(), [[1.0, np.nan], [2.0, 3.0]], "NaN.*family=jaxmf.Indep"),
    ],
)
def test_wrong_data_and_settings_are_refused_by_the_names_of_the_user(estimator, X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        estimator.fit(X)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([["ann", 1, 2]], [1.0], "X: has 3 columns"),
        ([["ann", 1], ["bob"]], [1.0, 2.0], "X: row 1 has 1 entries"),
        (["ann", "bob"], [1.0, 2.0], "X: row 0 is 'ann'; a row of X is a pair"),
        (np.zeros((0, 2)), [], "X: has 0 rows"),
        ([["ann", 1], [None, 2]], [1.0, 2.0], "X: the id at row 1, column 0 is missing"),
        ([["ann", 1], ["bob", 1], ["ann", 1]], [1, 2, 3], "X: rows 0 and 2 are both"),
        ([["ann", 1], ["bob", 1]], [1.0, np.nan], "NaN"),
        ([["ann", 1], ["bob", 1]], [1.0], "inconsistent numbers of samples"),
        ([["ann", 1], ["bob", 1]], None, "requires y"),
    ],
)
def test_wrong_ratings_are_refused_by_the_names_of_the_user(X, y, message):
    with pytest.raises(ValueError, match=message):
        estimators.RatingRecommender(2).fit(X, y)
    with pytest.raises(ValueError, match="unknown"):
        estimators.RatingRecommender(unknown="drop").fit(PAIRS, RATINGS)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ({"user": ["ann"], "item": [1]}, TypeError, "X: is a dict; pass a table"),
        (["ab", "cd"], ValueError, "X: row 0 is 'ab'; a row of X is a pair"),
        ([("ann", 1), 2], ValueError, "X: row 1 is 2; a row of X is a pair"),
    ],
)
def test_pairs_that_are_none_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        estimators.RatingRecommender().fit(X, [1.0, 2.0])


def test_pairs_are_read_by_row_of_tables_of_other_libraries():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"user": ["ann", "bob", "eve"], "item": [1, 2, 3]})
    found = estimators.RatingRecommender()._ids(frame, reset=True)
    assert found == (["ann", "bob", "eve"], [1, 2, 3])


def test_a_one_that_is_stored_twice_is_read_as_the_sum():
    X = scipy.sparse.csr_array(([0.6, 0.6, 1.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    ones = estimators.SparseBinaryRecommender(binarize=1.0)._read(X, reset=True)
    np.testing.assert_array_equal(ones.toarray(), [[1, 0], [0, 0]])


def test_ratings_of_one_column_are_taken_and_others_refused():
    assert check_ratings([[1], [2]]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="1d array"):
        check_ratings(np.ones((2, 2)))


NAMES = [name for name in vars(estimators) if name[0].isupper()]


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_kept_by_clones(name):
    estimator = getattr(estimators, name)(random_state=3)
    assert clone(estimator).get_params() == estimator.get_params()


MODELS = {
    "BiclusterMF": (mf.BinaryMF,),
    "FactorImputer": (mf.BPMF,),
    "LinearGaussianIBPTransformer": (mf.LinearGaussianIBP,),
    "MixtureClusterer": (mf.DPMixture, mf.MixtureOfGaussians),
    "NoisyOrTransformer": (mf.NoisyOrIBP,),
    "RatingRecommender": (mf.BPMF,),
    "SparseBinaryRecommender": (mf.SparseBinaryMF,),
    "TopicModel": (mf.HDPLDA, mf.LDA),
}


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_the_model(name):
    params = getattr(estimators, name)().get_params()
    params = {{"n_components": "num_factors"}.get(key, key): each for key, each in params.items()}
    for model in MODELS[name]:
        for field in dataclasses.fields(model):
            # None of an estimator is for the default of the model
            if params.get(field.name) is not None and field.name != "likelihood":
                assert params[field.name] == field.default, field.name


def test_factors_are_of_a_stated_likelihood_and_their_number_comes_first(monkeypatch):
    imputer = estimators.FactorImputer(3, likelihood=mf.Ordinal((1, 2, 3)))
    monkeypatch.setattr(imputer, "_sample", lambda model, data: model)
    assert imputer.fit(np.ones((2, 2))).posterior_ == mf.BPMF(3, likelihood=mf.Ordinal((1, 2, 3)))


# --- one fit each: the examples of the docstrings are the fast ones -----------------------------


@pytest.mark.exhaustive
def test_topics_of_counts():
    model = estimators.TopicModel(2, **FEW).fit(COUNTS)
    assert model.components_.shape == (2, 4)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-5)
    shares = model.transform(COUNTS)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    # without words: the prior, which is the same for all topics
    np.testing.assert_allclose(model.transform(np.zeros((1, 4), int)), [[0.5, 0.5]], atol=1e-6)
    assert model.perplexity(COUNTS) == pytest.approx(np.exp(-model.score(COUNTS)))
    assert list(model.get_feature_names_out()) == ["topicmodel0", "topicmodel1"]
    with pytest.raises(ValueError, match="no document has two words"):
        model.score([[1, 0, 0, 0]])


@pytest.mark.slow
def test_ratings_by_users_and_items():
    model = estimators.RatingRecommender(2, **FEW).fit(PAIRS, RATINGS)
    mean, sd = model.predict([["ann", 3], ["eve", 1]], return_std=True)
    assert mean.shape == sd.shape == (2,)
    assert (sd > 0).all()
    assert 1.0 < mean[1] < 5.0  # of a user never seen
    best = model.recommend(["ann"], n=2).to_pandas()
    assert best["column"].tolist() == [3]  # the other two are rated
    np.testing.assert_array_equal(
        model.predict(np.array(PAIRS, object)), model.predict([tuple(pair) for pair in PAIRS])
    )
    strict = model.set_params(unknown="error")
    with pytest.raises(ValueError, match="X: user 'eve' at row 1 was not in the fit"):
        strict.predict([["ann", 3], ["eve", 1]])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PAIRS, columns=["user", "item"])
    np.testing.assert_array_equal(
        clone(model).fit(frame, RATINGS).predict(frame), model.predict(PAIRS)
    )


@pytest.mark.exhaustive
def test_a_search_over_ratings_answers_for_users_that_a_fold_lacks():
    model = make_pipeline(FunctionTransformer(), estimators.RatingRecommender(1, **FEW))
    search = GridSearchCV(model, {"ratingrecommender__n_components": [0, 1]}, cv=2)
    search.fit(np.array(PAIRS, object), RATINGS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.exhaustive
def test_clusters_of_a_mixture_and_of_as_many_as_the_data_need():
    from sklearn.datasets import load_iris
    from sklearn.metrics import adjusted_rand_score

    flowers, species = load_iris(return_X_y=True)
    model = estimators.MixtureClusterer(num_warmup=50, num_samples=20, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
    labels = pipeline.fit_predict(flowers)
    assert adjusted_rand_score(labels, species) > 0.5
    scaled = StandardScaler().fit_transform(flowers)
    assert model.means_.shape == (model.n_clusters_, 4)
    assert np.mean(model.predict(scaled) == labels) > 0.9
    probabilities = model.predict_proba(scaled)
    assert probabilities.shape == (150, model.n_clusters_)
    assert probabilities.sum(axis=1).max() <= 1 + 1e-5
    # far away nothing but a new cluster is probable, and the density is low
    far = np.full((1, 4), 30.0)
    with pytest.warns(UserWarning, match="Is it a slip, or in another unit"):
        assert model.predict_proba(far).sum() < 0.5
    assert model.score(far) < model.score(scaled) - 10


@pytest.mark.slow
def test_recommendations_of_baskets():
    block = np.kron(np.eye(2), np.ones((10, 5)))
    block[0, 1] = block[12, 7] = 0
    model = estimators.SparseBinaryRecommender(2, num_epochs=20, random_state=0)
    search = GridSearchCV(model, {"n_components": [1, 2]}, cv=2).fit(block)
    best = search.best_estimator_
    assert best.score(block) > 0.5  # a rank of 2 is 0.63, among the 5 or 6 left by chance 0.45
    assert best.recommend(block[[0, 12]], n=1).columns.ravel().tolist() == [1, 7]
    scipy_sparse = pytest.importorskip("scipy.sparse")
    sparse = scipy_sparse.csr_array(block)
    np.testing.assert_allclose(best.transform(sparse), best.transform(block), atol=1e-6)
    assert best.transform(np.zeros((2, 10))).shape == (2, best.n_components_)
    with pytest.raises(ValueError, match="binarize is -1"):
        best.set_params(binarize=-1.0).transform(sparse)
    with pytest.raises(ValueError, match="no row has two ones"):
        best.set_params(binarize=0.0).score(np.eye(10))


@pytest.mark.exhaustive
def test_biclusters_of_rows_and_columns():
    # one block: two could be said in several ways
    values = 0.1 * np.random.default_rng(0).normal(size=(12, 8))
    values[:4, :3] += 5.0
    values[1, 1] = np.nan
    model = estimators.BiclusterMF(
        1, 1, sweep="whole_rows", num_warmup=60, num_samples=10, random_state=0
    ).fit(values)
    rows, columns = model.biclusters_
    assert rows.shape == (1, 12)
    assert columns.shape == (1, 8)
    assert [each.tolist() for each in model.get_indices(0)] == [[0, 1, 2, 3], [0, 1, 2]]
    assert model.get_submatrix(0, np.nan_to_num(values)).shape == (4, 3)
    assert model.weights_[0] > 4
    assert 0 < model.weight_sd_[0] < 1
    # the background is half a unit from the mean of the data, which is the offset
    assert -1 < model.score(values) < 0


@pytest.mark.exhaustive
def test_clusters_of_rows_with_missing_cells():
    random = np.random.default_rng(5)
    kinds = np.arange(40) % 2
    X = np.where(kinds[:, None], 6.0, 0.0) + random.normal(size=(40, 3))
    X[:, 1:][random.random((40, 2)) < 0.2] = np.nan
    settings = {"num_warmup": 20, "num_samples": 20, "random_state": 0}
    clusterer = estimators.MixtureClusterer(2, family=IndependentColumns(), **settings).fit(X)
    assert np.mean(clusterer.labels_ == kinds) in (0, 1)
    assert np.isfinite(clusterer.score_samples(X)).all()
    np.testing.assert_allclose(clusterer.predict_proba(X[:5]).sum(axis=1), 1, rtol=1e-4)
    assert clusterer.__sklearn_tags__().input_tags.allow_nan
    complete = estimators.MixtureClusterer(2, **settings)
    assert not complete.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        complete.fit(X)


@pytest.mark.exhaustive
def test_missing_cells_are_filled_by_factors_and_the_others_stay():
    rng = np.random.default_rng(0)
    truth = np.outer(rng.normal(size=40), rng.normal(size=8)) + np.arange(8)
    hidden = rng.random(truth.shape) < 0.15
    X = np.where(hidden, np.nan, truth + 0.05 * rng.normal(size=truth.shape))
    imputer = estimators.FactorImputer(
        n_components=1, num_warmup=60, num_samples=40, random_state=0
    )
    filled = imputer.fit_transform(X)
    np.testing.assert_array_equal(filled[~hidden], X[~hidden])
    means = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
    errors = [np.square(each - truth)[hidden].mean() for each in (filled, means)]
    assert errors[0] < errors[1] / 4
    assert imputer.score(X) > -errors[1] / 4
    np.testing.assert_array_equal(imputer.transform(truth), truth)  # nothing to fill


@pytest.mark.exhaustive
def test_factors_are_searched_in_a_table_with_ids():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    values = np.where(rng.random((24, 4)) < 0.1, np.nan, rng.normal(size=(24, 4)))
    table = pandas.DataFrame(values, [f"P-{n}" for n in range(24)], list("abcd"))
    search = GridSearchCV(estimators.FactorImputer(**FEW), {"n_components": [0, 1]}, cv=2)
    assert np.isfinite(search.fit(table).cv_results_["mean_test_score"]).all()
    pipeline = make_pipeline(
        estimators.FactorImputer(n_components=1, **FEW), StandardScaler(), LogisticRegression()
    )
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2)
    search.fit(table, np.arange(24) % 2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
