"""Groups of rows of a mixture: sizes, means and their errors, members, rows in one group."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior

GENERATOR = np.random.default_rng(0)
X = np.vstack([GENERATOR.normal(size=(9, 2)), 20 + GENERATOR.normal(size=(5, 2))])
LABELS = np.repeat([1, 0], [9, 5])  # the labels of a draw are in no order
OPTIONS = {"num_warmup": 10, "num_samples": 12, "num_chains": 1, "progress": False}


@pytest.fixture(scope="module")
def sampled():
    data = mf.Dense.from_array(
        X, row_names=[f"row {n}" for n in range(14)], column_names=["height", "weight"]
    )
    return mf.sample(mf.DPMixture(), data, **OPTIONS)


def posterior(model, data, **draw):
    """One draw without a chain."""
    meta = Meta("sample", 0, {}, {}, {}, "CPU", 1.0, 1.0, True, {})
    draws = {name: np.asarray(value)[None, None] for name, value in draw.items()}
    return Posterior(model, mf.Dense(data), draws, meta)


def test_groups_of_single_numbers_have_the_moments_of_their_posterior():
    """Normal-inverse-gamma by its closed form; weights of a Dirichlet distribution."""
    family = mf.NormalInverseGamma(location=0.5, weight=2.0, shape=3.0, rate=1.5)
    model, x = mf.MixtureOfGaussians(3, concentration=0.7, family=family), X[:, 0]
    statistics = family.statistics(LABELS, x.astype(np.float32), 3)._asdict()
    draw = {f"x_{name}": leaf for name, leaf in statistics.items()}
    counts = np.bincount(LABELS, minlength=3)
    groups = posterior(model, x[:, None], group_counts=counts, log_joint=0.0, **draw).groups()
    np.testing.assert_array_equal(groups.counts, [9, 5])
    np.testing.assert_array_equal(groups.slots, [1, 0])
    for group, label in enumerate((1, 0)):
        values = x[label == LABELS]
        weight, shape = 2.0 + values.size, 3.0 + values.size / 2
        location = (2.0 * 0.5 + values.sum()) / weight
        squares = np.sum((values - values.mean()) ** 2)
        rate = 1.5 + squares / 2 + values.size * (values.mean() - 0.5) ** 2 / weight
        variance = rate / (shape - 1)
        np.testing.assert_allclose(groups.mean[group], [location], rtol=1e-4)
        np.testing.assert_allclose(groups.sd[group], [variance**0.5], rtol=1e-4)
        np.testing.assert_allclose(groups.mean_sd[group], [(variance / weight) ** 0.5], rtol=1e-4)
        a, total = 0.7 + values.size, 14 + 3 * 0.7
        sd = np.sqrt(a * (total - a) / (total**2 * (total + 1)))
        np.testing.assert_allclose(groups.weights[group], a / total, rtol=1e-5)
        np.testing.assert_allclose(groups.weight_sd[group], sd, rtol=1e-5)


@pytest.mark.slow
def test_groups_have_the_probabilities_of_the_values_of_categories():
    """Dirichlet and Beta by their closed forms, a cell missing."""
    jobs = np.array([0, 0, 0, 2, 2, 1, 0, 0, np.nan, 2, 2, 2, 2, 1])
    smokes = np.arange(14) % 2
    family = mf.MixedColumns([mf.DirichletMultinomial(3, 0.5), mf.BetaBinary(2.0, 3.0)])
    data = mf.Dense.from_array(np.c_[jobs, smokes], column_names=["job", "smokes"])
    post = mf.sample(mf.MixtureOfGaussians(2, family=family), data, **OPTIONS)
    found = post.groups()
    table = found.to_pandas()
    assert table.notna().all(axis=None)
    assert list(table.column[:4]) == ["job = 0", "job = 1", "job = 2", "smokes"]
    for group in range(found.counts.size):
        here = found.labels == group
        counts = np.array([np.sum(jobs[here] == value) for value in range(3)])
        ones = smokes[here].sum()
        a = np.r_[counts + 0.5, ones + 2.0]
        total = np.r_[np.full(3, counts.sum() + 1.5), here.sum() + 5.0]
        lines = table[table.group == group]
        np.testing.assert_allclose(lines["mean"], a / total, rtol=1e-4)
        beta = stats.beta(a, total - a)
        np.testing.assert_allclose(lines["mean sd"], beta.std(), rtol=1e-4)
        within = beta.mean() - beta.moment(2)
        np.testing.assert_allclose(lines["sd"], np.sqrt(within), rtol=1e-4)
        most = int(np.argmax(counts))
        assert f"{most}: {a[most] / total[0]:.0%}" in found.lines()[1 + group][3]


@pytest.mark.slow
def test_rows_have_the_probabilities_of_the_groups_that_are_listed(sampled):
    """And of a further one; where all stated components have rows there is no other."""
    groups, shares = sampled.groups(), sampled.transform(X)
    assert shares.shape == (14, groups.counts.size + 1)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match=r"features: DPMixture has groups .* ask groups\(\)"):
        sampled.features()
    # a chain does not begin with the larger group
    assert not np.array_equal(groups.slots, np.arange(groups.slots.size))
    np.testing.assert_array_equal(shares.argmax(axis=1)[[0, 9]], groups.labels[[0, 9]])
    stated = mf.sample(mf.MixtureOfGaussians(2), X[::-1], **OPTIONS)
    assert stated.transform(X).shape == (14, 2)
    np.testing.assert_array_equal(stated.transform(X[::-1]).argmax(axis=1), stated.groups().labels)


def test_new_rows_are_scored_as_wholes_by_the_predictive_distribution_of_their_groups():
    """Groups of normal-inverse-gamma numbers are Student; a new group has the prior."""
    family = mf.NormalInverseGamma(location=0.5, weight=2.0, shape=3.0, rate=1.5)
    model, x = mf.DPMixture(0.7, family=family), X[:, 0]
    statistics = family.statistics(LABELS, x.astype(np.float32), 3)._asdict()
    draw = {f"x_{name}": leaf for name, leaf in statistics.items()}
    counts = np.bincount(LABELS, minlength=3)
    post = posterior(model, x[:, None], group_counts=counts, log_joint=0.0, **draw)
    new = np.array([[0.3], [19.0], [90.0]])
    total = 0.0
    for label, weight in ((0, 5), (1, 9), (2, 0.7)):
        values = x[label == LABELS]
        size, shape = 2.0 + values.size, 3.0 + values.size / 2
        location = (1.0 + values.sum()) / size
        rate = 1.5 + 0.5 * (np.sum(values**2) + 2.0 * 0.25 - size * location**2)
        scale = np.sqrt(rate / shape * (1 + 1 / size))
        total += weight / 14.7 * stats.t.pdf(new[:, 0], 2 * shape, location, scale)
    score = post.held_out_log_likelihood(new)
    np.testing.assert_allclose(score.log_likelihood, np.log(total), rtol=1e-4)
    with pytest.raises(ValueError, match="values"):
        post.held_out_log_likelihood(np.array([[0.3, 1.0]]))


@pytest.mark.slow
def test_mixtures_are_compared_by_new_rows(sampled):
    new = mf.Dense.from_array(X[:4, ::-1] + 0.1, column_names=["weight", "height"])
    table = mf.compare({"one": sampled, "same": sampled}, held_out=new)
    scores = sampled.held_out_log_likelihood(X[:4] + 0.1).log_likelihood
    assert table["one", "elpd"] == pytest.approx(scores.sum(), rel=1e-4)
    assert "4 held-out rows" in table.caption


def test_a_sampled_mixture_has_a_table_of_its_groups_and_their_members(sampled):
    groups = sampled.groups()
    np.testing.assert_array_equal(groups.counts, [9, 5])
    np.testing.assert_array_equal(groups.labels, np.repeat([0, 1], [9, 5]))
    assert groups.members() == [[f"row {n}" for n in range(9)], [f"row {n}" for n in range(9, 14)]]
    np.testing.assert_allclose(groups.mean[1], X[9:].mean(axis=0), rtol=0.01)
    np.testing.assert_allclose(groups.mean_sd[1], groups.sd[1] / np.sqrt(5.01), rtol=1e-4)
    lines = str(groups).splitlines()
    assert lines[0].split() == ["group", "rows", "weight", "height", "weight"]
    assert lines[1].split()[:2] == ["0", "9"]
    table = groups.table()
    assert table["column"].tolist() == ["height", "weight"] * 2
    assert all(np.shape(column) == (4,) for column in table.values())


def test_rows_of_clear_groups_are_together(sampled):
    together = sampled.cooccurrence()
    assert together.shape == (14, 14)
    np.testing.assert_allclose(np.diagonal(together), 1)
    assert together[:9, 9:].max() < 0.2 < 0.5 < together[:9, :9].min()
    pair = sampled.cooccurrence(["row 0", "row 13"])
    np.testing.assert_allclose(pair, together[np.ix_([0, 13], [0, 13])])


def test_questions_about_single_rows_name_what_the_run_must_keep(sampled):
    without = {n: v for n, v in sampled.draws.items() if n != "group_of_tokens"}
    post = dataclasses.replace(sampled, draws=without)
    groups = post.groups()
    assert groups.counts.tolist() == [9, 5]
    for question in (post.cooccurrence, groups.members, lambda: groups.labels):
        with pytest.raises(ValueError, match='sample again with keep="assignments"'):
            question()
    scalars = {name: v for name, v in without.items() if v.ndim == 2}
    with pytest.raises(ValueError, match='without keep="scalars"'):
        dataclasses.replace(sampled, draws=scalars).groups()


def test_the_group_of_every_row_is_kept_where_rows_are_few():
    """It is what one asks a mixture first; of very many rows it would be most of what is kept."""
    model, few, many = mf.DPMixture(), mf.Dense(X), mf.Dense(np.tile(X, (1_000, 1)))
    assert model.device_options({}, platform="cpu", data=few)["keep"] == "assignments"
    assert "keep" not in model.device_options({"keep": "scalars"}, platform="cpu", data=few)
    assert "keep" not in model.device_options({}, platform="cpu", data=many)


def test_models_without_groups_of_rows_say_so(sampled):
    with pytest.raises(ValueError, match=r"have no entries; see groups\(\)"):
        sampled.top_entries("group")
    post = posterior(mf.LinearGaussianIBP(), X, log_joint=0.0, z=np.zeros((14, 2), bool))
    with pytest.raises(ValueError, match=r"groups: LinearGaussianIBP does not have group_moments"):
        post.groups()


def test_the_report_of_a_mixture_shows_its_groups(sampled, tmp_path):
    path = tmp_path / "report.html"
    sampled.report(path)
    page = path.read_text()
    assert "Groups of rows" in page
    assert "height" in page
