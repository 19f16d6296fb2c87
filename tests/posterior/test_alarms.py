"""Every alarm has a run that raises it and one that does not."""

import dataclasses
import html
import re
import signal
import warnings

import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.posterior import (
    alarms,
    count_alarms,
    data_alarms,
    run_alarms,
    structure_alarms,
)
from jaxmf.posterior.alarms import RunWarning
from jaxmf.posterior.records import Evidence, Meta
from jaxmf.results import Posterior
from tests.support.alarms import kinds

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))


def chains(rng=RNG, *, shape=(4, 500), correlation=0.5):
    """Autocorrelated standard normal chains that have converged."""
    noise = rng.normal(size=shape)
    x = np.empty(shape)
    x[:, 0] = noise[:, 0]
    for step in range(1, shape[1]):
        x[:, step] = correlation * x[:, step - 1] + np.sqrt(1 - correlation**2) * noise[:, step]
    return x


def posterior(model=None, data=X, *, method="sample", run=None, evidence=None, **draws):
    model = mf.LinearGaussianIBP() if model is None else model
    run = {"num_warmup": 500, "num_samples": 500} if run is None else run
    meta = Meta(method, 0, run, {}, {}, "CPU", 1.0, 1.0, True, {})
    container = mf.Dense.from_array(data) if isinstance(data, np.ndarray) else data
    weights = np.zeros((2, 250)) if method == "particle_filter" else None
    draws = {name: np.asarray(x) for name, x in draws.items()}
    return Posterior(model, container, draws, meta, particle_log_weights=weights, evidence=evidence)


def ratings(values):
    rows, columns = np.divmod(np.arange(len(values)), 20)
    return mf.Entries(rows, columns, np.asarray(values), (-(-len(values) // 20), 20))


def test_a_check_that_fails_costs_no_draws(monkeypatch):
    def poor_prediction(post):
        raise TypeError("shapes differ")
        yield

    checks = (poor_prediction, run_alarms.interrupted)
    monkeypatch.setattr(alarms, "_CHECKS", checks)
    post = posterior(log_joint=chains())
    post = dataclasses.replace(post, meta=dataclasses.replace(post.meta, complete=False))
    with pytest.warns(
        RuntimeWarning, match=r"\(poor prediction\) failed.*TypeError: shapes differ"
    ):
        assert kinds(post) == ["interrupted", "not checked"]
    assert "TypeError: shapes differ" in str(post)


def test_a_run_that_converged_raises_none():
    post = posterior(
        log_joint=chains(),
        num_features=RNG.integers(2, 5, (4, 500)),
        noise_scale=0.9 + 0.01 * chains(),
    )
    assert post.alarms() == ()
    assert "Warning" not in str(post)


@pytest.mark.slow
def test_at_most_two_of_a_hundred_calibrated_runs_raise_a_false_alarm():
    rng = np.random.default_rng(1)
    names = ("log_joint", "alpha", "feature_scale")
    runs = [posterior(**{name: chains(rng) for name in names}) for _ in range(300)]
    assert np.mean([bool(run.alarms()) for run in runs]) <= 0.02


@pytest.mark.parametrize(
    ("kind", "says", "case"),
    [
        ("R-hat", "num_features.*num_warmup=1000", {"num_features": [[13] * 500, [15] * 500]}),
        ("R-hat", "R-hat of alpha is", {"alpha": chains() + np.arange(4)[:, None]}),
        ("drift", "rises", {"log_joint": np.linspace(0, 100, 500) + chains()}),
        ("noise", "larger than the sd", {"noise_scale": 1.5 * X.std() + 0.01 * chains()}),
        ("units", "sd of column 1 .*divide each", {"noise_scale": 3.0 + 0.01 * chains()}),
        ("no features", "No draw has any features", {"num_features": np.zeros((2, 50))}),
        ("no features", "Chain 1 has no features", {"num_features": [[2, 3] * 25, [0, 0] * 25]}),
        ("one group", "All draws .*num_topic is 1", {"num_topic": np.ones((2, 50))}),
        ("one group", "60% of the draws", {"num_topic": [[1, 2, 1, 3, 1] * 10] * 2}),
    ],
)
def test_what_is_wrong_is_said(kind, says, case):
    post = posterior(data=X * [9.0, 1.0, 9.0, 9.0] if kind == "units" else X, **case)
    assert kind in kinds(post)
    found = " ".join(str(alarm) for alarm in post.alarms())
    assert re.search(says, found), found
    assert "Warning: " in str(post)
    assert "jaxmf-warning" in post._repr_html_()


@pytest.mark.parametrize(
    ("samples", "thin", "proposed"), [(50, 10, 100), (20, 5, 100), (20, 1, 500), (500, 1, 1000)]
)
def test_advice_for_thinned_runs_counts_steps(samples, thin, proposed):
    """Twice the draws, or those of 500 steps: thinned draws are few because they are large."""
    run = {"num_warmup": 500, "num_samples": samples, "thin": thin}
    post = posterior(run=run, num_features=[[13] * samples, [15] * samples])
    assert f"num_samples={proposed} " in str(post.alarms()[0]) + " "


@pytest.mark.parametrize(
    ("most", "options", "says"),
    [
        (16, {"start": "search"}, True),
        (15, {"start": "search"}, False),
        (16, {"start": "search", "capacity": 32}, False),
        (16, {}, False),
    ],
)
def test_a_search_that_ran_out_of_slots_is_said(most, options, says):
    finite = mf.BetaBernoulli(4.0, 1.0, 16)  # as many as its slots is no fault there
    model = mf.BinaryMF(column_prior=finite, likelihood=mf.Bernoulli())
    counts = np.repeat(RNG.integers(14, most + 1, (4, 250)), 2, axis=1)
    counts[:, -1] = most
    post = posterior(
        model, (X > 0).astype(float), num_features=counts, num_column_features=counts + 16 - most
    )
    post.meta.options.update(options)
    found = [alarm for alarm in post.alarms() if alarm.kind == "search out of slots"]
    assert bool(found) == says
    assert not says or str(found[0]).endswith("Set capacity=32")


@pytest.mark.parametrize(("num_columns", "says"), [(30, "principal components"), (3, "longer")])
def test_one_group_of_rows_with_very_many_columns_asks_for_fewer(num_columns, says):
    data = mf.Dense(np.random.default_rng(0).normal(size=(40, num_columns)))
    post = posterior(mf.DPMixture(), data, num_group=np.ones((2, 50)))
    assert says in str(post.alarms()[0])


@pytest.mark.parametrize(("counts", "says"), [([8, 0, 0], True), ([5, 0, 3], False)])
def test_all_rows_in_one_of_a_given_number_of_groups_is_said(counts, says):
    group_counts = np.broadcast_to(np.array(counts), (2, 50, 1, 3))
    post = posterior(mf.MixtureOfGaussians(3), mf.Dense(X), group_counts=group_counts)
    assert ("One of the 3 groups has all rows" in str(post)) is says


@pytest.mark.parametrize("model", [mf.DPMixture(), mf.MixtureOfGaussians(2)])
def test_columns_that_say_nothing_more_are_named_for_groups_with_covariances(model):
    """Each holds the rows together: N H nats, whatever its scale."""
    values = np.random.default_rng(0).normal(size=(60, 4)) * [1e-3, 1.0, 1e3, 1.0] + [1, 0, 1e4, 9]
    kept = mf.Dense(values, column_names=list("abcd"))
    assert kinds(posterior(model, kept, log_joint=chains())) == []
    more = np.column_stack(
        [values, np.full(60, 7.0), 2.54 * values[:, 2] + 3, values[:, :2].sum(1)]
    )
    data = mf.Dense(more, column_names=[*"abcd", "ward", "inch", "total"])
    (alarm,) = posterior(model, data, log_joint=chains()).alarms()
    assert "'ward', 'inch', 'total'" in str(alarm)
    assert kinds(posterior(mf.LinearGaussianIBP(), data, log_joint=chains())) == []
    few = mf.Dense(more[:6], column_names=data.column_names)
    assert "'ward'. Each" in str(posterior(model, few, log_joint=chains()).alarms()[0])


@pytest.mark.parametrize("as_entries", [False, True])
def test_codes_of_missing_cells_are_seen_in_their_column_whatever_the_units_of_others(as_entries):
    values = np.random.default_rng(0).normal(10.0, 1.0, (50, 4)) * [1e-3, 1.0, 1e5, 1.0]
    values[[3, 5, 8], 1], values[[2, 4], 2] = -999, -999
    values[:, 3] = np.arange(50) - 9.0  # -9 is a number among others
    data = mf.Dense(values, column_names=["iron", "zinc", "cells", "change"])
    data = mf.Entries.from_array(data.to_array()) if as_entries else data
    model = mf.BPMF(2) if as_entries else mf.DPMixture()
    (alarm,) = posterior(model, data, log_joint=chains()).alarms()
    name = "1" if as_entries else "'zinc'"
    assert f"3 cells of column {name} are -999, and no other is below" in str(alarm)
    assert "likewise of 1 more column." in str(alarm)


@pytest.mark.parametrize("codes", [(99,), (98, 99), (-88, -99), (998, 999)])
def test_codes_among_answers_are_seen_one_beside_the_other_and_are_no_grades(codes):
    values = RNG.integers(1, 8, (60, 3)).astype(float)
    for start, code in enumerate(codes):
        values[start : 12 : len(codes), 1] = code
    post = posterior(mf.BPMF(2), mf.Entries.from_array(values), log_joint=chains())
    found = {alarm.kind: str(alarm) for alarm in post.alarms()}
    sentences = [str(alarm) for alarm in post.alarms() if alarm.kind == "codes"]
    assert len(sentences) == len(codes)
    for code in codes:
        assert any(f"cells of column 1 are {code}, and no other is" in each for each in sentences)
    assert "mf.Ordinal(levels=(1, 2, 3, 4, 5, 6, 7))" in found["support"]


@pytest.mark.parametrize(
    ("others", "is_code"),
    [([1, 2, 3, 4], True), ([1, 2], True), ([1, 2, 4], False), ([0, 1], False)],
)
def test_nines_are_codes_among_answers_to_four_and_no_grades_or_counts(others, is_code):
    answers = np.resize(others, 60).astype(float)
    answers[::12] = 9
    ages = np.arange(60.0) + 18
    data = mf.Dense(np.column_stack([ages, answers]), column_names=["age", "trust"])
    sentences = [str(a) for a in posterior(data=data, log_joint=chains()).alarms()]
    found = [each for each in sentences if "5 cells of column 'trust' are 9, and" in each]
    assert len(found) == is_code
    grades = mf.Dense(np.column_stack([np.arange(60) % 9 + 1.0, answers]))
    assert "codes" not in kinds(posterior(data=grades, log_joint=chains()))


@pytest.mark.parametrize(
    "column",
    [
        [0, 1, 0, 9, 9, 0, 99, 99],  # counts
        [96, 97, 99, 98, 99, 99, 97, 96],  # per cent
        [996, 997, 999, 999, 998, 996, 998, 997],
        [12, 99, 80, 99, 99, 60, 41, 7],
        [500, 999, 999, 700, 1400, 600, 900, 800],
        [0.1, 0.2, -999, 0.3, 0.4, 0.2, 0.3, 0.1],  # once
        [-99, -99, -99, -99, 5, 5, 5, 5],
    ],
)
def test_numbers_that_may_be_numbers_are_no_codes(column):
    data = mf.Dense(np.column_stack([column, RNG.normal(size=8)]))
    assert kinds(posterior(data=data, log_joint=chains())) == []


@pytest.mark.parametrize(
    ("num_words", "concentration", "says"),
    [(10, 0.01, True), (50, 0.01, False), (10, dist.Gamma(1.0, 10.0), False)],
)
def test_advice_for_topics_of_short_documents_names_the_concentration_of_words(
    num_words, concentration, says
):
    data = mf.Tokens.from_counts(np.full((5, 5), num_words // 5))
    model = mf.HDPLDA(word_concentration=concentration)
    post = posterior(model, data, num_topic=[[13] * 500, [15] * 500])
    assert kinds(post) == ["R-hat"]
    assert ("word_concentration=dist.Gamma(1, 10)" in str(post)) is says


@pytest.mark.parametrize(
    ("model", "says"), [(mf.DPMixture(), True), (mf.MixtureOfGaussians(3), False)]
)
def test_advice_for_groups_of_a_process_names_moves_that_split_and_merge(model, says):
    post = posterior(model, mf.Dense(X), num_topic=[[3] * 500, [5] * 500])
    assert kinds(post) == ["R-hat"]
    assert ("split_merge=5" in str(post)) is says


@pytest.mark.parametrize(
    ("model", "rows", "apart", "says"),
    [
        (mf.NoisyOrIBP(), 30, 2, True),
        (mf.NoisyOrIBP(), 30, 0.2, False),  # slow chains, not those of several modes
        (mf.NoisyOrIBP(), 600, 2, False),  # the cost outweighs the gain
        (mf.LinearGaussianIBP(), 30, 2, True),
        (mf.BPMF(2), 30, 2, False),
    ],
)
def test_advice_for_chains_in_several_modes_of_few_data_names_replicas(model, rows, apart, says):
    generator = np.random.default_rng(4)
    data = mf.Dense((generator.random((rows, 4)) < 0.5).astype(np.float32))
    drawn = chains(generator, shape=(2, 500)) + apart * np.array([[0], [5]])
    post = posterior(model, data, log_joint=drawn)
    [found] = (str(alarm) for alarm in post.alarms() if alarm.kind == "R-hat")
    assert ("temper=6" in found) is says


@pytest.mark.parametrize("is_binary", [False, True])
def test_advice_for_features_that_cut_a_plane_names_real_factors(is_binary):
    random = np.random.default_rng(0)
    scores = random.normal(size=(60, 2))
    if is_binary:
        scores = random.random((60, 6)) < 0.4
    x = scores @ random.normal(size=(scores.shape[1], 25)) + 0.5 * random.normal(size=(60, 25))
    draws = {"num_features": np.full((2, 4), 7), "noise_scale": np.full((2, 4), 0.55)}
    post = posterior(mf.LinearGaussianIBP().matched(mf.Dense.from_array(x)), x, **draws)
    assert ("2 real factors" in run_alarms._real_factors(post)) == (not is_binary)
    assert bool(run_alarms._real_factors(post)) == (not is_binary)


def test_replicas_are_not_advised_where_a_run_refuses_them():
    """Replicas share the noise of columns."""
    model = mf.LinearGaussianIBP(column_noise=True)
    post = posterior(model, log_joint=chains() + 2 * np.arange(4)[:, None])
    with pytest.raises(ValueError, match="temper"):
        mf.sample(model, X, temper=6, num_samples=1, progress=False)
    assert "temper" not in str(post.alarms())


@pytest.mark.parametrize(
    ("strange", "says"),
    [
        ([99], "1 of 2,001 ratings lie outside 1 to 5, where all others are: 99."),
        ([0, 55, 99], "3 of 2,003 ratings lie outside 1 to 5, where all others are: 0, 55, 99."),
        ([], None),
        ([6], None),
        ([0, 6, 7], None),
    ],
)
def test_ratings_far_outside_the_scale_of_all_others_are_named(strange, says):
    stars = np.resize([1.0, 2.0, 3.0, 4.0, 5.0], 2000)
    post = posterior(mf.BPMF(2), ratings([*stars, *strange]), log_joint=chains())
    found = [str(alarm) for alarm in post.alarms()]
    assert ("outside" in kinds(post)) is (says is not None)
    assert ("support" in kinds(post)) is (says is None)
    assert says is None or any(says in sentence for sentence in found)


@pytest.mark.parametrize(("strange", "is_named"), [(45, True), (5.5, False), (8, False)])
def test_one_rating_far_outside_is_named_in_a_small_table_too(strange, is_named):
    values = [*np.resize(np.arange(2.0, 11) / 2, 80), strange]
    post = posterior(mf.BPMF(2), ratings(values), log_joint=chains())
    assert ("outside" in kinds(post)) == is_named


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: generator.negative_binomial(1, 0.4, 3000),
        lambda generator: generator.geometric(0.5, 50_000),
        lambda generator: np.minimum(generator.zipf(3, 20_000), 1000),
        lambda generator: generator.normal(size=1500).round(5),  # a few numbers occur twice
        lambda generator: np.append(
            np.resize([0, 9.99, 19.99], 3000), generator.lognormal(4, size=400)
        ),
    ],
    ids=["negative binomial", "geometric", "zipf", "rounded", "prices"],
)
def test_tails_of_counts_and_of_measurements_are_not_outside_a_scale(draw):
    for seed in range(5):
        values = draw(np.random.default_rng(seed)).astype(float)
        assert "outside" not in kinds(posterior(mf.BPMF(2), ratings(values), log_joint=chains()))


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        (RNG.integers(1, 6, 200), "(1, 2, 3, 4, 5)"),
        (RNG.integers(1, 6, 200) / 2, "(0.5, 1, 1.5, 2, 2.5)"),
        (RNG.integers(1, 6, 200) + 0.25, None),
        (2 * RNG.integers(0, 2, 200) - 1, "(-1, 1)"),
        (np.resize(np.arange(2, 11), 400), "(2, 3, 4, 5, 6, 7, 8, 9, 10)"),
        (RNG.integers(0, 1000, 200), None),
    ],
    ids=["stars", "half stars", "fractions", "thumbs", "up to ten", "counts"],
)
def test_gaussian_noise_on_grades_names_ordinal(values, levels):
    post = posterior(mf.BPMF(2), ratings(values.astype(float)), log_joint=chains())
    assert ("support" in kinds(post)) is (levels is not None)
    if levels is not None:
        assert f"mf.Ordinal(levels={levels})" in str(post.alarms()[-1])
        assert levels != "(-1, 1)" or "The ratings are -1 and 1, and" in str(post.alarms()[-1])


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (RNG.integers(0, 2, 200), "mf.Probit() keeps to it"),
        (np.clip(RNG.normal(6, 2, 2000).round() + RNG.choice([0, 0.5], 2000), 1, 10), "9.5, 10)"),
        (np.clip(5 * RNG.normal(13, 4, 2000).round(), 0, 100), "95, 100)) keeps to it"),
        (np.clip(RNG.normal(62, 20, 2000).round(), 0, 100), "to it: np.clip(x, 0, 100)"),
        (np.clip(RNG.normal(0.6, 0.3, 2000).round(2), 0, 1), "np.clip(x, 0, 1)"),
        (RNG.normal(62, 8, 2000).round(), None),
        (RNG.negative_binomial(2, 0.05, 2000), None),
        (RNG.poisson(9, 2000), None),
        (RNG.normal(60, 9, 20_000).round().clip(30), None),
        (np.minimum(RNG.lognormal(3, 1, 2000).round(2), 90), None),
    ],
    ids=["0/1", "halves to 10", "fives", "per cent", "shares", "measures", "counts", "poisson",
         "censored below", "prices"],
)  # fmt: skip
def test_scales_of_two_values_and_of_many_are_told_from_counts_and_measures(values, remedy):
    post = posterior(mf.BPMF(2), ratings(values.astype(float)), log_joint=chains())
    found = [alarm.sentence for alarm in post.alarms() if alarm.kind == "support"]
    assert len(found) == (remedy is not None)
    assert remedy is None or remedy in found[0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: generator.normal(170, 8, 150).round(),
        lambda generator: generator.normal(15, 6, 200).round(1),
        lambda generator: generator.normal(1000, 1, 80),
        lambda generator: generator.poisson(20, 150),
    ],
    ids=["heights", "temperatures", "pressures", "counts"],
)
def test_few_measurements_are_no_scale(draw):
    for seed in range(20):
        values = draw(np.random.default_rng(seed)).astype(float)
        assert "support" not in kinds(posterior(mf.BPMF(2), ratings(values), log_joint=chains()))


def test_noise_is_compared_with_columns_that_have_cells_and_vary():
    # a column that is constant, one of four cells, and one within what chance makes of its sd
    x = RNG.normal(size=(30, 4))
    x[:, 0], x[4:, 1], x[:, 2] = 7.0, np.nan, 0.75 * x[:, 2] / x[:, 2].std()
    assert "units" not in kinds(posterior(data=x, noise_scale=1.0 + 0.001 * chains()))


def test_a_column_of_ratings_nearly_all_alike_is_in_no_other_unit():
    """Its sd is below the noise of the others; of measurements that is said."""
    random = np.random.default_rng(0)
    values = random.integers(1, 6, 1_200).astype(float)
    is_alike = np.arange(1_200) % 20 == 3
    values[is_alike] = np.where(random.random(60) < 0.05, 2.0, 1.0)
    noise = 0.9 + 0.01 * chains()
    assert "units" not in kinds(posterior(mf.BPMF(2), ratings(values), noise_scale=noise))
    finer = values + 1e-3 * random.normal(size=1_200)
    assert "units" in kinds(posterior(mf.BPMF(2), ratings(finer), noise_scale=noise))


def test_a_matrix_of_equal_cells_is_said_to_be_one():
    post = posterior(data=np.full((8, 3), 7.0), num_features=np.zeros((2, 50)))
    assert "All observed cells are equal" in str(post.alarms()[0])


@pytest.mark.parametrize(("error", "raises"), [(0.3, False), (np.nan, True)])
def test_an_evidence_without_a_credible_error_is_not_given_one(error, raises):
    draws = {"num_features": RNG.integers(2, 5, (2, 250))}
    post = posterior(method="particle_filter", evidence=Evidence(-2040.0, error), **draws)
    assert ("evidence" in kinds(post)) is raises
    assert ("without an error that can be trusted" in str(post)) is raises
    if raises:  # all answers are meant, and what is not set already is advised
        (text,) = [str(alarm) for alarm in post.alarms() if alarm.kind == "evidence"]
        assert "All other answers of this filter are then surer" in text
        assert "Try mf.sample, or num_particles=2500 and num_runs=5" in text
        assert "effective" not in text
        sizes = np.full((2, 30), 200.0)
        sizes[1, 17] = 1.34
        object.__setattr__(post, "trace", {"effective_sample_size": sizes})
        (alarm,) = run_alarms.unknown_evidence(post)
        assert "the fewest carry the weight at row 17, an effective 1.3 of 250. All" in str(alarm)


@pytest.mark.slow
def test_one_run_of_a_filter_has_no_error_of_its_evidence():
    """What a run says of itself is about the modes that it found."""
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0, offset=0.0)
    posts = [
        mf.particle_filter(model, X[:4], num_particles=50, num_runs=runs, progress=False)
        for runs in (1, 2)
    ]
    assert [bool(np.isfinite(post.log_evidence_error)) for post in posts] == [False, True]
    sizes = posts[1].trace["effective_sample_size"]
    assert sizes.shape == (2, 4)
    assert ((sizes >= 1) & (sizes < 50)).all(), "of weights before the particles are chosen"
    assert "without an error that can be trusted (num_runs=5 compares runs)" in str(posts[0])
    assert [kinds(post) for post in posts] == [[], []]


@pytest.mark.parametrize(("gain", "raises"), [(-5.0, True), (-3.0, False), (50.0, False)])
def test_a_filter_that_predicts_rows_worse_than_frequencies_of_columns_is_said(gain, raises):
    """Of one run too: the evidence is a prediction of each row from those before it."""
    ones = (np.random.default_rng(0).random((25, 6)) < 0.3).astype(float)
    ones[3, 2] = np.nan
    columns = 0.0  # the next one given those before, one half added to zeros and ones each
    for column in ones.T:
        known = column[~np.isnan(column)]
        earlier = np.concatenate([[0], np.cumsum(known)[:-1]])
        chance = (earlier + 0.5) / (np.arange(known.size) + 1)
        columns += np.log(np.where(known == 1, chance, 1 - chance)).sum()
    post = posterior(
        mf.NoisyOrIBP(), mf.Dense.from_array(ones), method="particle_filter",
        evidence=Evidence(columns + gain, np.nan), num_features=RNG.integers(2, 5, (2, 250)),
    )  # fmt: skip
    found = [str(alarm) for alarm in post.alarms() if alarm.kind == "prediction"]
    assert bool(found) is raises
    if raises:
        assert "Try mf.sample, or rejuvenate_every=10 and num_runs=5" in found[0]


@pytest.mark.exhaustive
def test_runs_of_a_filter_that_one_of_them_dominates_have_no_error():
    data = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 12))
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.1, feature_scale=1.0, offset=0.0)
    with pytest.warns(RunWarning, match="no error that can be trusted"):
        post = mf.particle_filter(model, data, num_particles=10, num_runs=2, progress=False)
    assert np.isnan(post.log_evidence_error)


def test_a_free_energy_that_still_falls_is_said():
    def fitted(path):
        post = posterior(
            method="variational", run={"num_epochs": len(path)}, num_epochs=[[len(path)]]
        )
        object.__setattr__(post, "trace", {"free_energy": np.asarray([path], float)})
        return post

    assert kinds(fitted([100, 80, 60, 40])) == ["free energy"]
    assert kinds(fitted([100, 50, 40.001, 40.0])) == []


@pytest.mark.slow
def test_run_summary_and_report_say_the_same_alarms_which_are_computed_once(monkeypatch, tmp_path):
    checks, calls = alarms._CHECKS, []

    def counted(check):
        return lambda post: calls.append(check) or check(post)

    monkeypatch.setattr(alarms, "_CHECKS", tuple(map(counted, checks)))
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=1.0, feature_scale=1.0)
    with pytest.warns(RunWarning, match=r"noise_scale is fixed at 1, .* sd .*1 more") as caught:
        post = mf.sample(model, 1e-3 * X, num_warmup=0, num_samples=8, num_chains=2, progress=False)
    assert caught[0].filename == __file__
    sentences = [alarm.sentence for alarm in post.alarms()]
    assert str(caught[0].message).startswith(sentences[0])
    assert len(sentences) == 2
    assert list(post.summary().notes) == sentences
    page = html.unescape(post.report(tmp_path / "report.html").read_text())
    assert all(sentence in page for sentence in sentences)
    assert calls == list(checks)


@pytest.mark.tiers(exhaustive=["DPMixture"])
@pytest.mark.parametrize(
    "model",
    [mf.LinearGaussianIBP(alpha=1.0, noise_scale=1.0, feature_scale=1.0), mf.DPMixture()],
    ids=lambda model: type(model).__name__,
)
def test_a_run_interrupted_in_its_warm_up_says_that_it_has_no_draws(model, tmp_path):
    def stop(report):
        signal.raise_signal(signal.SIGINT)

    options = {"num_warmup": 5000, "num_samples": 5, "num_chains": 2, "progress": stop}
    with pytest.warns(RunWarning, match="No draw was kept") as caught:
        post = mf.sample(model, X, checkpoint=tmp_path / "run", **options)
    assert [w.category for w in caught] == [RunWarning]
    assert kinds(post) == ["no draws"]
    assert "No draw was kept" in str(post)
    post.save(tmp_path / "saved")
    loaded = mf.load(tmp_path / "saved")
    assert loaded.num_draws == 0
    questions = [loaded.reconstruction, loaded.reference_draw, loaded.plot.trace]
    questions.append(lambda: loaded.report(tmp_path / "report.html"))
    questions.append(getattr(loaded, "num_features" if "z" in loaded.draws else "num_groups"))
    for question in questions:
        with pytest.raises(ValueError, match=r"No draw was kept: .* from its checkpoint"):
            question()


def test_the_noise_of_a_filter_is_that_of_its_weights():
    """Particles without weight say nothing: their noise raises no alarm, and hides none."""
    noise = np.where(np.arange(500) < 50, 0.5, 5.0)[None]
    heavy = np.where(np.arange(500) < 50, 0.0, -50.0)[None]
    post = posterior(method="particle_filter", noise_scale=noise)
    few_matter = dataclasses.replace(post, particle_log_weights=heavy)
    assert "noise" not in kinds(few_matter)
    assert "noise" not in kinds(dataclasses.replace(post, particle_log_weights=np.zeros((1, 500))))
    assert "noise" in kinds(dataclasses.replace(post, particle_log_weights=-50 - heavy))


@pytest.mark.parametrize(
    ("share", "bias", "offset", "is_raised"),
    [
        (1.0, False, None, True),
        (0.5, False, None, False),  # a feature as others
        (1.0, True, None, False),
        (1.0, False, 0.0, False),  # what all rows have is then part of them
    ],
)
def test_a_level_that_is_counted_as_a_feature_raises_an_alarm(share, bias, offset, is_raised):
    data = mf.Dense.from_array(X)
    model = mf.LinearGaussianIBP(bias=bias, offset=offset).matched(data)
    z = np.zeros((4, 500, len(X), 3), bool)
    z[..., : round(share * len(X)), 1] = True
    scales = {"noise_scale": 0.9 + 0.01 * chains(), "feature_scale": 1 + 0.01 * chains()}
    post = posterior(model, log_joint=chains(), num_features=np.full((4, 500), 1), z=z, **scales)
    assert ("level" in kinds(post)) is is_raised


@pytest.mark.parametrize(("bias", "offset"), [(False, None), (True, None), (False, 0.0)])
def test_advice_for_features_about_column_means_names_a_row_for_the_level(bias, offset):
    model = mf.LinearGaussianIBP(bias=bias, offset=offset).matched(mf.Dense.from_array(X))
    post = posterior(model, num_features=[[7] * 500, [9] * 500])
    assert kinds(post) == ["R-hat"]
    assert ("or bias=True" in str(post)) is (not bias and offset is None)


@pytest.mark.parametrize(
    ("family", "gaps"),
    [
        (None, 0.0),
        (mf.IndependentColumns(), 0.0),
        (mf.IndependentColumns(), 0.2),  # what a missing cell is stored as does not count
        (mf.MixedColumns([None, None, None, mf.NormalInverseGamma()]), 0.2),
    ],
)
def test_columns_that_no_normal_group_describes_are_named(family, gaps):
    random = np.random.default_rng(0)
    x = np.column_stack(
        [
            random.normal(140, 3, 120),
            1.0 + (random.random(120) < 0.3),
            np.exp(random.normal(1, 1, 120)),
            np.r_[random.normal(100, 5, 114), random.normal(200, 5, 6)],  # a group, not a tail
        ]
    )
    x[random.random(x.shape) < gaps] = np.nan
    data = mf.Dense.from_array(x, column_names=["Na", "diabetic", "CRP", "K"])
    found = list(data_alarms._not_normal_columns(data, family))
    assert [alarm.kind for alarm in found] == ["two values", "long tail"]
    assert "Columns hold two values: 'diabetic'. " in found[0].sentence
    assert "Columns have a long tail: 'CRP'. " in found[1].sentence
    assert "take their logarithms" in found[1].sentence


def test_counts_without_their_zeros_are_said():
    """Stored cells of a sparse matrix of counts, and stars with many ones."""
    random = np.random.default_rng(0)
    counts = random.geometric(0.3, (30, 40)) * (random.random((30, 40)) < 0.4)
    rows, columns = np.nonzero(counts)
    cells = mf.Entries(rows, columns, counts[rows, columns].astype(float), counts.shape)
    (alarm,) = data_alarms.outside_support(posterior(mf.BPMF(2), cells, log_joint=chains()))
    assert alarm.kind == "absent cells"
    assert "X.toarray()" in alarm.sentence
    whole = ratings(random.geometric(0.5, 600).astype(float))
    stars = random.choice([1, 2, 3, 4, 5], rows.size, p=[0.3, 0.1, 0.15, 0.2, 0.25])
    rated = mf.Entries(rows, columns, stars.astype(float), counts.shape)
    marks = random.choice([1, 2, 3, 4, 5, 9], rows.size, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    marked = mf.Entries(rows, columns, marks.astype(float), counts.shape)
    for data in (whole, rated, marked):
        assert "absent cells" not in kinds(posterior(mf.BPMF(2), data, log_joint=chains()))


@pytest.mark.parametrize(("shape", "is_heavy"), [(1.0, True), (None, False)])
def test_counts_of_a_heavy_tail_are_said_before_a_run_and_after_it(shape, is_heavy):
    """Cells whose rows' totals differ ten-fold, and cells of Poisson counts alone."""
    random = np.random.default_rng(0)
    means = np.full((200, 12), 8.0)
    if shape is not None:
        totals = np.exp(random.uniform(4, 6.3, (200, 1)))
        means = random.gamma(shape, totals * random.dirichlet(np.full(12, 0.3)) / shape)
    counts = random.poisson(means).astype(float)
    counts[0] = 0
    data = mf.Dense.from_array(counts)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        mf.LinearGaussianIBP().matched(data)
    assert any("counts with a heavy tail" in str(one.message) for one in said) == is_heavy
    post = posterior(mf.LinearGaussianIBP(), data, log_joint=chains(), noise_scale=chains() + 9)
    found = [alarm for alarm in data_alarms.suspect_data(post) if alarm.kind == "long tail"]
    assert ["mf.LDA(K)" in alarm.sentence for alarm in found] == [True] * is_heavy


def test_as_many_topics_as_documents_are_said():
    tokens = mf.Tokens.from_counts(RNG.poisson(3.0, (40, 6)) + 1)
    topics = np.array([[18, 22, 30], [24, 28, 26]])
    draws = {"log_joint": np.zeros((2, 3))}
    said = posterior(mf.HDPLDA(), tokens, num_topic=topics, **draws)
    (alarm,) = count_alarms.topics_of_single_documents(said)
    assert "There are 25 topics of 40 documents" in alarm.sentence
    few = posterior(mf.HDPLDA(), tokens, num_topic=topics // 2, **draws)
    assert not list(count_alarms.topics_of_single_documents(few))


def test_documents_of_one_topic_each_are_not_asked_for_the_topics_of_their_words():
    topic = mf.Block(mf.Dirichlet(2), per="document")
    model = mf.Network(
        topic=topic, word=mf.Block(mf.DirichletMultinomial(6), by="topic", observed=True)
    )
    cells = np.ones((1, 1, 6, 2))
    tokens = mf.Tokens.from_counts(RNG.poisson(3.0, (40, 6)))
    post = posterior(model, tokens, log_joint=np.zeros((1, 1)), word_cells=cells)
    assert not list(count_alarms.counts_that_vary_more(post))


@pytest.mark.parametrize("is_dispersed", [False, True])
def test_counts_that_vary_more_than_topics_explain_are_said(is_dispersed):
    """A tenth of the documents as topics are no alarm where words are drawn one by one."""
    random = np.random.default_rng(0)
    phi, theta = random.dirichlet(np.full(30, 0.3), 3), random.dirichlet(np.full(3, 0.5), 60)
    means = 80 * theta[:, :, None] * phi
    if is_dispersed:
        means = means * random.gamma(2.0, 0.5, (60, 1, 30))
    counts = random.poisson(means)
    draws = {
        "log_joint": np.zeros((1, 1)),
        "num_topic": np.full((1, 1), 12),
        "topic_counts": counts.sum(axis=2)[None, None],
        "word_cells": counts.sum(axis=0).T[None, None],
        "word_totals": counts.sum(axis=(0, 2))[None, None],
        "topic_weights": np.full((1, 1, 3), 0.33),
        "topic_rest": np.full((1, 1), 0.01),
        "topic_concentration": np.full((1, 1), 1.5),
        "word_concentration": np.full((1, 1), 0.3),
    }
    post = posterior(mf.HDPLDA(), mf.Tokens.from_counts(counts.sum(axis=1)), **draws)
    found = list(count_alarms.topics_of_single_documents(post))
    assert ["vary more than these explain" in one.sentence for one in found] == (
        [True] * is_dispersed
    )
    # with most of the documents as topics they are said whatever is left to explain
    draws["num_topic"] = np.full((1, 1), 40)
    (many,) = count_alarms.topics_of_single_documents(posterior(mf.HDPLDA(), post.data, **draws))
    assert "vary more" not in many.sentence.partition(":")[0]


@pytest.mark.parametrize("is_of_totals", [False, True])
def test_groups_that_are_bands_of_totals_are_said(is_of_totals):
    """Two groups of other shares, their totals apart or alike and as wide, or bands of totals."""
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.ones(10), 2)
    kinds_of_rows = random.integers(0, 2, 200)
    totals = np.where(kinds_of_rows == 1, 400.0, 100.0)
    if is_of_totals:
        totals = np.exp(random.uniform(np.log(50), np.log(500), 200))
    wide = totals * np.exp(random.normal(0, 0.5, 200))  # what sequencing depths add
    bands = np.digitize(totals, [90, 160, 280])
    labels = bands if is_of_totals else kinds_of_rows
    model = mf.DPMixture(family=mf.IndependentColumns(mf.GammaPoisson()))
    for means in (totals, totals if is_of_totals else wide):
        counts = random.poisson(means[:, None] * shares[kinds_of_rows]).astype(float)
        draws = {"log_joint": np.zeros((1, 1)), "group_of_tokens": labels[None, None]}
        found = count_alarms.groups_of_totals(posterior(model, counts, **draws))
        assert [alarm.kind for alarm in found] == ["totals"] * is_of_totals


@pytest.mark.parametrize(("size", "says"), [(None, False), (30, False), (1, True)])
def test_counts_that_vary_more_than_words_are_said(size, says):
    """Of one topic: Poisson counts of mean 5, negative binomial ones have 1 + 5/size times that."""
    mean = 5 * np.ones((60, 40))
    counts = RNG.poisson(mean if size is None else mean * RNG.gamma(size, 1 / size, mean.shape))
    draws = {"word_cells": counts.sum(0)[:, None], "topic_by_document": counts.sum(1)[:, None]}
    draws = {name: values[None, None] for name, values in draws.items()}
    post = posterior(mf.LDA(1), mf.Tokens.from_counts(counts), log_joint=[[0.0]], **draws)
    assert np.median(count_alarms._ratios_of_variances(post)) == pytest.approx(
        1 if size is None else 1 + 5 / size, rel=0.2
    )
    assert [each.kind for each in count_alarms.counts_that_vary_more(post)] == [
        "counts vary more"
    ] * says


@pytest.mark.parametrize("family", [None, mf.IndependentColumns(), mf.MixedColumns([None] * 3)])
def test_a_group_of_one_answer_alone_is_said(family):
    """Of the rows of groups 0 and 1 the first column has answers 1 to 5, and 4 and 5 alone."""
    random = np.random.default_rng(0)
    answers, rows = random.integers(1, 6, 120), np.arange(120)
    x = np.column_stack([answers, random.integers(1, 6, 120), random.normal(size=120)])
    data = mf.Dense.from_array(x, column_names=["Q1", "Q2", "age"])
    by_answer = np.where(answers == 5, 1, np.where(answers == 4, 2, 0))
    groups = [by_answer, by_answer, rows % 3]

    def said(model, *labels):
        draws = np.array([labels])
        post = posterior(model, data, group_of_tokens=draws, log_joint=np.zeros(draws.shape[:2]))
        return [each.sentence for each in structure_alarms.groups_of_one_value(post)]

    (sentence,) = said(mf.DPMixture(family=family), *groups)
    assert "few values: 'Q1'. " in sentence
    assert "DirichletMultinomial(V)" in sentence
    # by chance in one draw, few rows, and a family that has probabilities of values
    assert not said(mf.DPMixture(family=family), groups[0], groups[2], groups[2])
    assert not said(mf.DPMixture(family=family), np.where(rows < 9, rows % 3 + 1, 0))
    families = [mf.DirichletMultinomial(6), None, None]
    assert not said(mf.DPMixture(family=mf.MixedColumns(families)), *groups)
    counts = np.column_stack([answers, random.poisson(40, (120, 2))])
    data = mf.Dense.from_array(counts, column_names=["rare", "often", "too"])
    (sentence,) = said(mf.DPMixture(family=family), *groups)
    assert "few values: 'rare'. " in sentence
    assert "IndependentColumns(mf.GammaPoisson())" in sentence


@pytest.mark.parametrize(
    "family",
    [
        mf.IndependentColumns(mf.BetaBinary()),
        mf.MixedColumns([None, mf.BetaBinary()]),
    ],
)
def test_columns_with_a_family_of_their_own_are_not_named(family):
    random = np.random.default_rng(0)
    data = mf.Dense.from_array(np.column_stack([random.normal(size=90), np.arange(90) % 2]))
    assert not list(data_alarms._not_normal_columns(data, family))


def test_normal_groups_raise_no_alarm_of_the_shape_of_columns():
    named = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        num_groups = random.integers(1, 6)
        means = random.normal(size=(num_groups, 4)) * random.choice([1, 3, 10])
        groups = random.choice(num_groups, 100, p=random.dirichlet(np.ones(num_groups)))
        x = means[groups] + random.normal(size=(100, 4)) + random.choice([0, 20, 100])
        named += any(data_alarms._not_normal_columns(mf.Dense.from_array(x), None))
    assert named <= 8  # 2 %


def laboratory():
    """Sodium, and whether a person smokes; some cells are missing."""
    random = np.random.default_rng(4)
    table = np.stack([random.normal(140, 3, 60), random.integers(0, 2, 60)], axis=1)
    table[random.random(table.shape) < 0.1] = np.nan
    return table


def in_words(table, model=None):
    names = [f"p{i}" for i in range(len(table))]
    data = mf.Dense(table, row_names=names, column_names=["Na", "smokes"])
    post = posterior(model, data, log_joint=chains())
    return {alarm.kind: alarm.sentence for alarm in post.alarms()}


def test_a_single_value_that_cannot_be_is_named():
    table = laboratory()
    assert "stray cell" not in in_words(table)
    table[7, 0] = 0
    says = in_words(table)["stray cell"]
    assert "row 'p7' and column 'Na' is 0, and all others of that column lie between 13" in says
    assert "stray cell" in in_words(table, mf.FeatureModel(likelihood=mf.Gaussian()))
    assert "stray cell" not in in_words(table, mf.FeatureModel(likelihood=mf.StudentT()))


@pytest.mark.parametrize(
    ("model", "names_unit"),
    [(mf.FeatureModel(likelihood=mf.StudentT()), True), (mf.NoisyOrIBP(), False)],
)
def test_columns_in_different_units_are_told_the_settings_of_the_model(model, names_unit):
    data = X * [9.0, 1.0, 9.0, 9.0]
    (alarm,) = data_alarms.unlike_units(posterior(model, data, noise_scale=3.0 + 0.01 * chains()))
    assert ("column_unit=" in alarm.sentence) == names_unit
    assert "divide each by its standard deviation" in alarm.sentence


def test_zeros_and_ones_with_gaussian_noise_are_named_where_cells_are_missing():
    table = laboratory()
    assert "Columns of zeros and ones: 'smokes'" in in_words(table)["support"]
    assert "support" not in in_words(np.nan_to_num(table, nan=1.0))
    assert "support" not in in_words(np.where(np.isnan(table), np.nan, table + 0.5))
    ones = np.where(np.isnan(table), np.nan, table > 100)
    assert "support" not in in_words(ones, mf.NoisyOrIBP())


def test_columns_of_few_known_cells_are_named_where_rows_fall_into_groups():
    model = mf.DPMixture(family=mf.IndependentColumns())
    table = laboratory()
    assert "nearly empty" not in in_words(table, model)
    table[3:, 1] = np.nan
    known = int(np.sum(~np.isnan(table[:, 1])))
    says = in_words(table, model)["nearly empty"]
    assert f"'smokes' has {known} known cells in 60 rows" in says


def test_a_stated_number_of_factors_is_named_where_features_are_asked_for():
    post = posterior(mf.BPMF(2), mf.Entries.from_array(X), log_joint=chains())
    with pytest.raises(ValueError, match=r"no number of features: num_factors=2 was stated\. .*mf"):
        post.num_features()
