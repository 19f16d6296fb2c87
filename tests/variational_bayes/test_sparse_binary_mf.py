"""SparseBinaryMF: what a fit finds, and what it answers."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import cli, settings
from jaxmf.posterior import ranking
from jaxmf.variational_bayes import Normal, progress, state
from jaxmf.variational_bayes.sums import shared_moments
from tests.support.sparse_binary_setup import (
    FACTORS,
    MODEL,
    NUM_COLUMNS,
    NUM_ROWS,
    fit,
    precision_at_one,
    simulate,
)


@pytest.fixture(scope="module")
def simulated():
    return simulate()


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit(MODEL, simulated[1], num_epochs=40, num_validation=60, patience=5)


def test_a_fit_finds_what_is_hidden(simulated, fitted):
    _, data, hidden = simulated
    popularity = np.bincount(np.asarray(data.columns), minlength=NUM_COLUMNS)
    unknown = data.to_scipy().toarray() == 0
    by_popularity = np.argmax(popularity * unknown, axis=1)
    pairs = set(zip(*(part.tolist() for part in hidden), strict=True))
    rows = np.unique(hidden[0]).tolist()
    baseline = np.mean([(row, by_popularity[row]) in pairs for row in rows])
    assert precision_at_one(fitted, hidden) > 1.5 * baseline > 0
    # scores go with the truth, biases and intercept included
    draw, truth = fitted.reference_draw(), simulated[0]
    found = draw["row_mean"] @ draw["column_mean"].T
    expected = np.asarray(truth.rows.mean @ truth.columns.mean.T)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.6
    assert np.corrcoef(draw["column_bias"], truth.column_bias.mean)[0, 1] > 0.6
    # Broken twin: factors of other rows go with nothing.
    assert abs(np.corrcoef(found[::-1].ravel(), expected.ravel())[0, 1]) < 0.3


def test_held_out_cells_are_predicted_better_than_by_their_share(simulated, fitted):
    _, data, hidden = simulated
    share = data.num_ones / (NUM_ROWS * NUM_COLUMNS)
    zeros = np.argwhere(data.to_scipy().toarray() == 0)[::7].T
    cells = mf.Positions(*(np.concatenate(pair) for pair in zip(hidden, zeros, strict=True)))
    values = np.repeat([1.0, 0.0], [hidden[0].size, zeros.shape[1]])
    score = fitted.held_out_log_likelihood(values, cells)
    constant = np.where(values == 1, np.log(share), np.log1p(-share)).mean()
    assert score.mean > constant + 2 * score.standard_error


def test_scores_and_probabilities(simulated, fitted):
    cells = (np.array(["u3", "u3", "u90"], object), np.array(["i5", "i6", "i59"], object))
    scores = fitted.scores(cells)
    draw = fitted.reference_draw()
    rows, columns = np.array([3, 3, 90]), np.array([5, 6, 59])
    (a, a_var), (s, s_var) = (
        (draw[f"{side}_mean"][index], draw[f"{side}_variance"][index])
        for side, index in (("row", rows), ("column", columns))
    )
    mean = (a * s).sum(1) + draw["row_bias"][rows] + draw["column_bias"][columns]
    mean += draw["intercept"]
    variance = (a**2 * s_var + a_var * s**2 + a_var * s_var).sum(1) + draw["intercept_variance"]
    variance += draw["row_bias_variance"][rows] + draw["column_bias_variance"][columns]
    np.testing.assert_allclose(scores.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores.sd, np.sqrt(variance), rtol=1e-4)
    np.testing.assert_allclose(scores.plain_probability, 1 / (1 + np.exp(-mean)), rtol=1e-4)
    normal = np.random.default_rng(0).standard_normal((200_000, 1))
    drawn = (1 / (1 + np.exp(-(mean + np.sqrt(variance) * normal)))).mean(0)
    np.testing.assert_allclose(scores.probability, drawn, atol=4e-3)
    np.testing.assert_allclose(fitted.predict(cells).mean, scores.probability, rtol=1e-5)
    # doubt draws a probability towards a half
    towards = np.abs(scores.probability - 0.5) < np.abs(scores.plain_probability - 0.5)
    assert towards.all()


def test_recommendations_are_the_best_that_are_not_known(simulated, fitted):
    data = simulated[1]
    known = data.to_scipy().toarray() == 1
    every = np.indices(data.shape).reshape(2, -1)
    scores = fitted.scores(mf.Positions(*every))
    for by, values in (("score", scores.mean), ("probability", scores.probability)):
        table = values.reshape(data.shape)
        found = fitted.recommend(["u7", "u2"], n=4, by=by)
        for line, row in enumerate((7, 2)):
            order = np.argsort(-np.where(known[row], -np.inf, table[row]), kind="stable")[:4]
            np.testing.assert_array_equal(found.columns[line], order)
            assert list(found.column_names[line]) == [f"i{column}" for column in order]
            np.testing.assert_allclose(
                found.scores.mean[line], scores.mean.reshape(data.shape)[row, order], rtol=1e-4
            )
    assert (found.row_names == ["u7", "u2"]).all()
    everything = fitted.recommend(n=NUM_COLUMNS)
    assert ((everything.columns >= 0).sum(axis=1) == (~known).sum(axis=1)).all()
    assert len(everything.table()["row"]) == (~known).sum()
    of_all = fitted.recommend(mf.Positions([2]), n=NUM_COLUMNS, include_known=True)
    assert (np.sort(of_all.columns[0]) == np.arange(NUM_COLUMNS)).all()
    assert "u2" in repr(found)


def test_rows_not_seen_are_folded_in(simulated, fitted):
    """Rows of the training data given anew have nearly the factors that they have."""
    table = simulated[1].to_scipy().toarray()
    new = mf.SparseBinary.from_array(table[:20], column_names=simulated[1].column_names)
    factors, fitted_rows = fitted.transform(new), fitted.reference_draw()["row_mean"][:20]
    assert factors.shape == (20, FACTORS)
    assert np.corrcoef(factors.ravel(), fitted_rows.ravel())[0, 1] > 0.95
    assert np.corrcoef(factors[::-1].ravel(), fitted_rows.ravel())[0, 1] < 0.5
    predicted = fitted.predict(new_rows=new).mean.reshape(table[:20].shape)
    scores = fitted.scores(mf.Positions(*np.indices(table[:20].shape).reshape(2, -1)))
    trained = scores.probability.reshape(table[:20].shape)
    assert np.corrcoef(predicted.ravel(), trained.ravel())[0, 1] > 0.85  # stopped early
    assert abs(np.corrcoef(predicted[::-1].ravel(), trained.ravel())[0, 1]) < 0.5


def test_a_fit_is_kept(fitted, tmp_path):
    fitted.save(tmp_path)
    again = mf.load(tmp_path)
    assert again.model == fitted.model
    for name, values in fitted.draws.items():
        np.testing.assert_array_equal(again.draws[name], values)
    np.testing.assert_array_equal(again.recommend(n=2).columns, fitted.recommend(n=2).columns)
    assert again.data.shape == fitted.data.shape
    assert repr(again.summary()) == repr(fitted.summary())
    assert "strength[0]" in again.summary().names
    assert again.facts()["num_validation"] == "60"


def test_a_report_shows_the_way_down(fitted, tmp_path):
    import matplotlib as mpl

    mpl.use("Agg")
    page = fitted.report(tmp_path / "report.html").read_text()
    epochs = int(fitted.draws["num_epochs"][0, 0])
    assert f"variational with {epochs} epochs" in page
    assert "strength[0]" in page
    assert "R-hat" not in page


def test_validation_stops_and_keeps_the_best(fitted):
    path = fitted.trace["validation_score"][0]
    epochs = int(fitted.draws["num_epochs"][0, 0])
    assert epochs < 40
    assert np.argmax(path[:epochs]) < epochs - 1
    np.testing.assert_allclose(fitted.draws["validation_score"][0, 0], path[:epochs].max())
    # the free energy that is given is of what is kept
    kept = fitted.trace["free_energy"][0, np.argmax(path[:epochs])]
    assert fitted.draws["free_energy"][0, 0] == kept != fitted.trace["free_energy"][0, epochs - 1]
    # what is kept ranks as the score says
    prepared = MODEL.prepare(fitted.data, num_validation=60, seed=0)
    target = np.asarray(prepared.validation.column)
    rows = np.asarray(prepared.validation.row)
    scores = fitted.scores(mf.Positions(*np.indices(fitted.data.shape).reshape(2, -1))).mean
    scores = scores.reshape(fitted.data.shape)[rows]
    known = fitted.data.to_scipy().toarray()[rows] == 1
    known[np.arange(60), target] = False
    target_scores = scores[np.arange(60), target][:, None]
    rank = 1 + ((scores > target_scores) & ~known).sum(axis=1)
    np.testing.assert_allclose(np.mean(1 / np.log2(1 + rank)), path.max(), rtol=1e-3)


@pytest.mark.slow
def test_cells_not_observed_are_predicted(simulated, tmp_path):
    table = simulated[1].to_scipy().toarray()
    generator = np.random.default_rng(4)
    observed = generator.random(table.shape) < 0.8
    data = mf.SparseBinary.from_array(table, observed=observed)
    post = fit(MODEL, data)
    predicted = post.predict()
    gaps = ~observed
    assert len(predicted) == gaps.sum()
    is_one = table[gaps] == 1
    assert predicted.mean[is_one].mean() > 2 * predicted.mean[~is_one].mean()
    # what lies beneath does not matter
    spoiled = mf.SparseBinary.from_array(np.where(observed, table, 1), observed=observed)
    np.testing.assert_array_equal(fit(MODEL, spoiled).predict().mean, predicted.mean)
    post.save(tmp_path)
    assert mf.load(tmp_path).data.num_missing == gaps.sum()
    new = mf.SparseBinary.from_array(table[:9], observed=observed[:9])
    fitted_rows = post.reference_draw()["row_mean"][:9]
    assert np.corrcoef(post.transform(new).ravel(), fitted_rows.ravel())[0, 1] > 0.9


@pytest.mark.slow
def test_a_row_without_ones_is_data():
    """An empty basket, and an item that nobody has."""
    data = mf.SparseBinary([0, 0, 2], [0, 1, 1], (4, 3))
    model = mf.SparseBinaryMF(num_factors=2, zeros=mf.Exact())
    draw = fit(model, data, num_epochs=3).reference_draw()
    assert all(np.isfinite(values).all() for values in draw.values())


def test_simulated_data_are_of_the_model(simulated):
    """Shares of ones where the scores say so, and every part drawn from its own prior."""
    truth, _, _ = simulated
    p = jax.tree.map(np.asarray, truth)
    model = dataclasses.replace(MODEL, intercept_scale=0.5, row_mean=2.0, bias_scale=2.0)
    again, data = model.simulate(jax.random.key(3), 400, 300)
    q = jax.tree.map(np.asarray, again)
    for values, mean, sd in (
        (p.rows.mean, 0, 1),
        (q.rows.mean, 2, 1),
        (q.columns.mean, 0, 1),
        (q.row_bias.mean, 0, 2),
        (q.column_bias.mean, 0, 2),
    ):
        assert abs(values.mean() - mean) < 5 * sd / np.sqrt(values.size)
        assert abs(values.std() / sd - 1) < 5 / np.sqrt(2 * values.size)
    assert q.intercept.mean.shape == ()
    assert 0 < abs(q.intercept.mean) < 5 * 0.5
    score = q.rows.mean @ q.columns.mean.T + q.row_bias.mean[:, None] + q.column_bias.mean
    probability = 1 / (1 + np.exp(-score - q.intercept.mean))
    ones = data.to_scipy().toarray() == 1
    likely = probability > 0.5
    for chosen in (likely, ~likely):
        spread = np.sqrt((probability * (1 - probability))[chosen].sum())
        assert abs(ones[chosen].sum() - probability[chosen].sum()) < 5 * spread
    # Broken twin: other cells.
    spread = np.sqrt((probability * (1 - probability))[likely].sum())
    assert abs(ones[::-1][likely].sum() - probability[likely].sum()) > 5 * spread


def test_settings_may_be_names():
    model = mf.SparseBinaryMF(likelihood="gaussian", zeros="exact", bias=None)
    assert (model.likelihood, model.zeros, model.bias) == (mf.Gaussian(), mf.Exact(), "none")


def test_settings_are_words():
    for text in ("SharedSample(30)", "RowSample(20, resample=True)", "Exact()", "Gaussian(0.5)"):
        value = settings.parse(text)
        assert settings.decode(settings.encode(value)) == value
    assert settings.parse("Gaussian(0.5)") == mf.Gaussian(0.5)


def test_prepared_data_lose_one_of_each_row(simulated):
    data = simulated[1]
    prepared = state.prepare(data, num_validation=50, batch_size=None, seed=3)
    table = data.to_scipy().toarray()
    row, column, known = (np.asarray(part) for part in prepared.validation)
    assert np.unique(row).size == 50
    assert table[row, column].all()
    for line in range(50):
        others = known[line][known[line] < NUM_COLUMNS]
        expected = np.setdiff1d(np.flatnonzero(table[row[line]]), column[line])
        np.testing.assert_array_equal(np.sort(others), expected)
    assert float(prepared.layout.num_ones) == data.num_ones - 50
    assert float(prepared.layout.num_observed) == NUM_ROWS * NUM_COLUMNS - 50


@pytest.mark.slow
def test_a_sample_of_more_than_there_is_takes_everything(simulated):
    everything, exact = (
        fit(dataclasses.replace(MODEL, zeros=zeros), simulated[1], num_epochs=3)
        for zeros in (mf.SharedSample(1000, resample=False), mf.Exact())
    )
    for name in ("row_mean", "column_mean", "row_variance"):
        np.testing.assert_allclose(everything.draws[name], exact.draws[name], atol=2e-3)


def test_a_fit_that_scores_all_alike_ranks_in_the_middle():
    data = mf.SparseBinary([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 3, 4], (3, 9))
    parameters, _ = MODEL.simulate(jax.random.key(0), 3, 9)
    nothing = jax.tree.map(lambda leaf: 0 * leaf, parameters)
    validation = MODEL.prepare(data, num_validation=3, batch_size=None, seed=0).validation
    # eight unknown columns of one score: on average 4.5th
    expected = 1 / np.log2(1 + 4.5)
    np.testing.assert_allclose(progress.validation_score(nothing, validation), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_fit_of_nothing_but_ones_starts_somewhere():
    rows, columns = np.divmod(np.arange(12), 4)
    with pytest.warns(mf.RunWarning, match="No factor is in use"):
        post = fit(MODEL, mf.SparseBinary(rows, columns, (3, 4)), num_epochs=3)
    assert np.isfinite(post.draws["free_energy"]).all()


def test_scores_do_not_depend_on_how_cells_are_grouped(fitted, monkeypatch):
    cells = mf.Positions(np.arange(21) % NUM_ROWS, np.arange(21) % NUM_COLUMNS)
    whole = fitted.scores(cells)
    monkeypatch.setattr(ranking, "_SCORED_CELLS", 8)
    for name in ("mean", "sd", "probability"):
        np.testing.assert_allclose(
            getattr(fitted.scores(cells), name), getattr(whole, name), rtol=1e-5
        )


def test_a_small_uncertainty_of_a_large_score_is_kept():
    one, small = np.ones((1, 1), np.float32), np.full((1, 1), 1e-6, np.float32)
    rows, others = Normal(6 * one, small), Normal(one, 0 * one)
    nothing = np.zeros((), np.float32)
    _, variance = shared_moments(rows, others, Normal(nothing, nothing))
    np.testing.assert_allclose(variance, 1e-6, rtol=1e-5)


@pytest.mark.slow
def test_from_a_file_of_pairs_to_recommendations(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXMF_CACHE", "off")
    model, data = mf.registry.get("sparse-binary").example()
    pairs = zip(np.asarray(data.rows), np.asarray(data.columns), strict=True)
    path = tmp_path / "baskets.csv"
    path.write_text("basket,item\n" + "".join(f"b{row},item {column}\n" for row, column in pairs))
    out = tmp_path / "run"
    words = ["--set", "num_factors=2", "--set", "zeros=SharedSample(5)", "--epochs", "6"]
    assert cli.run(["fit", "sparse-binary", str(path), "--out", str(out), *words]) == 0
    assert f"Next: jaxmf recommend {out}" in capsys.readouterr().out
    assert cli.run(["recommend", str(out), "b3", "-n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,rank,column,probability,score,sd"
    assert len(lines) == 3
    assert lines[1].startswith("b3,1,item ")
    table = tmp_path / "all.csv"
    assert cli.run(["recommend", str(out), "-o", str(table), "--by", "probability"]) == 0
    assert cli.run(["show", str(out)]) == 0
    assert cli.run(["recommend", str(out), "nobody"]) == 2
    assert cli.run(["fit", "sparse-binary", str(path), "--out", str(out), "--chains", "2"]) == 2
    direct = mf.load(out).recommend(["b3"], n=2)
    assert lines[2].split(",")[2] == direct.column_names[0, 1]
    assert model.num_factors == direct.columns.shape[1] == 2
