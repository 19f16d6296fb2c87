"""SparseBinaryMF end to end: fits, what they answer, what is refused."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jaxmf as mf
from jaxmf import cli, settings
from jaxmf.data import read_ones
from jaxmf.posterior import ranking
from jaxmf.variational import Normal, batches, partial_newton, progress, state
from jaxmf.variational.parameters import half
from jaxmf.variational.sums import shared_moments, side_sums
from jaxmf.variational.zeros import All

NUM_ROWS, NUM_COLUMNS, FACTORS = 150, 60, 3
MODEL = mf.SparseBinaryMF(num_factors=FACTORS, zeros=mf.SharedSample(30), offsets="rows_columns")
GAUSSIAN = mf.SparseBinaryMF(
    num_factors=FACTORS, likelihood=mf.Gaussian(), column_variance=None, offset_variance=None
)


def fit(model, data, **options):
    return mf.variational(model, data, **({"progress": False, "num_epochs": 20} | options))


@pytest.fixture(scope="module")
def simulated():
    """Parameters, their data with ids, and the ones that were taken away: two a row."""
    parameters, data = MODEL.simulate(jax.random.key(1), NUM_ROWS, NUM_COLUMNS, bias=-2.0)
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    hidden = np.zeros(rows.size, bool)
    generator = np.random.default_rng(0)
    for row in np.flatnonzero(np.bincount(rows, minlength=NUM_ROWS) >= 5):
        hidden[generator.choice(np.flatnonzero(rows == row), 2, replace=False)] = True
    kept = mf.SparseBinary(
        rows[~hidden],
        columns[~hidden],
        data.shape,
        row_names=[f"u{row}" for row in range(NUM_ROWS)],
        column_names=[f"i{column}" for column in range(NUM_COLUMNS)],
    )
    return parameters, kept, (rows[hidden], columns[hidden])


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit(MODEL, simulated[1], num_epochs=40, num_validation=60, patience=5)


def precision_at_one(posterior, hidden):
    best = posterior.recommend(n=1).columns[:, 0]
    pairs = set(zip(*(part.tolist() for part in hidden), strict=True))
    rows = np.unique(hidden[0])
    return np.mean([(row, best[row]) in pairs for row in rows.tolist()])


def test_a_fit_finds_what_is_hidden(simulated, fitted):
    _, data, hidden = simulated
    popularity = np.bincount(np.asarray(data.columns), minlength=NUM_COLUMNS)
    unknown = data.to_scipy().toarray() == 0
    by_popularity = np.argmax(popularity * unknown, axis=1)
    pairs = set(zip(*(part.tolist() for part in hidden), strict=True))
    rows = np.unique(hidden[0]).tolist()
    baseline = np.mean([(row, by_popularity[row]) in pairs for row in rows])
    assert precision_at_one(fitted, hidden) > 1.5 * baseline > 0
    # scores go with the truth, offsets and bias included
    draw, truth = fitted.reference_draw(), simulated[0]
    found = draw["row_mean"] @ draw["column_mean"].T
    wanted = np.asarray(truth.rows.mean @ truth.columns.mean.T)
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.6
    assert np.corrcoef(draw["column_offset"], truth.column_offset.mean)[0, 1] > 0.6
    # Broken twin: factors of other rows go with nothing.
    assert abs(np.corrcoef(found[::-1].ravel(), wanted.ravel())[0, 1]) < 0.3


def test_held_out_cells_are_predicted_better_than_by_their_share(simulated, fitted):
    _, data, hidden = simulated
    share = data.num_ones / (NUM_ROWS * NUM_COLUMNS)
    zeros = np.argwhere(data.to_scipy().toarray() == 0)[::7].T
    cells = tuple(np.concatenate(pair) for pair in zip(hidden, zeros, strict=True))
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
        (draw[f"{side}_mean"][place], draw[f"{side}_variance"][place])
        for side, place in (("row", rows), ("column", columns))
    )
    mean = (a * s).sum(1) + draw["row_offset"][rows] + draw["column_offset"][columns]
    mean += draw["bias"]
    variance = (a**2 * s_var + a_var * s**2 + a_var * s_var).sum(1) + draw["bias_variance"]
    variance += draw["row_offset_variance"][rows] + draw["column_offset_variance"][columns]
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
    scores = fitted.scores(tuple(every))
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
    of_all = fitted.recommend([2], n=NUM_COLUMNS, include_known=True)
    assert (np.sort(of_all.columns[0]) == np.arange(NUM_COLUMNS)).all()
    assert "u2" in repr(found)


def test_rows_not_seen_are_folded_in(simulated, fitted):
    """Rows of the training data given anew have nearly the factors that they have."""
    table = simulated[1].to_scipy().toarray()
    new = mf.SparseBinary.from_array(table[:20], column_names=simulated[1].column_names)
    factors, own = fitted.transform(new), fitted.reference_draw()["row_mean"][:20]
    assert factors.shape == (20, FACTORS)
    assert np.corrcoef(factors.ravel(), own.ravel())[0, 1] > 0.95
    assert np.corrcoef(factors[::-1].ravel(), own.ravel())[0, 1] < 0.5
    predicted = fitted.predict(new_rows=new).mean.reshape(table[:20].shape)
    scores = fitted.scores(tuple(np.indices(table[:20].shape).reshape(2, -1)))
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
    scores = fitted.scores(tuple(np.indices(fitted.data.shape).reshape(2, -1))).mean
    scores = scores.reshape(fitted.data.shape)[rows]
    known = fitted.data.to_scipy().toarray()[rows] == 1
    known[np.arange(60), target] = False
    own = scores[np.arange(60), target][:, None]
    rank = 1 + ((scores > own) & ~known).sum(axis=1)
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
    own = post.reference_draw()["row_mean"][:9]
    assert np.corrcoef(post.transform(new).ravel(), own.ravel())[0, 1] > 0.9


# --- the ascent ----------------------------------------------------------------------------------


def path_in_float64(model, data, **options):
    """The free energy after every epoch, all that can be learned being learned."""
    with jax.enable_x64(True):
        data = mf.SparseBinary(np.asarray(data.rows), np.asarray(data.columns), data.shape)
        model = dataclasses.replace(model, column_mean=None, column_variance=None)
        path = fit(model, data, tolerance=0.0, hold_priors=3, **options).trace["free_energy"][0]
    assert path.dtype == np.float64
    return path


@pytest.mark.parametrize(
    "model",
    [
        dataclasses.replace(MODEL, zeros=mf.Exact()),
        pytest.param(GAUSSIAN, marks=pytest.mark.slow),
    ],
    ids=["sigmoid", "gaussian"],
)
def test_block_updates_never_raise_the_free_energy(simulated, model):
    """Steps longer than to the minimiser included."""
    path = path_in_float64(model, simulated[1], num_epochs=25)
    assert np.diff(path).max() <= 1e-9 * abs(path).max()


@pytest.mark.slow
def test_steps_too_long_are_seen_to_raise_it(simulated):
    """Broken twin: two and a half times the diagonal step."""
    rule = partial_newton(step_size=2.5, max_step_size=2.5, shrink=1.0, growth=1.0)
    options = {"update": "partial_newton", "optimizer": rule}
    path = path_in_float64(GAUSSIAN, simulated[1], num_epochs=8, **options)
    assert np.diff(path).max() > 1


def test_an_interrupted_fit_gives_what_there_is(simulated):
    def interrupt(report):
        if report.step >= 2:
            raise KeyboardInterrupt

    cut = fit(GAUSSIAN, simulated[1], num_epochs=400, tolerance=0.0, progress=interrupt)
    assert not cut.meta.complete
    assert 2 <= cut.draws["num_epochs"][0, 0] < 400
    assert cut.recommend(["u0"], n=3).columns.shape == (1, 3)
    assert "interrupted" in repr(cut)


def test_a_converged_fit_stops(simulated):
    post = fit(GAUSSIAN, simulated[1], num_epochs=400, tolerance=1e-3, patience=2)
    epochs = int(post.draws["num_epochs"][0, 0])
    assert 10 < epochs < 400  # priors are held for ten
    assert (post.trace["free_energy"][0, epochs:] == post.draws["free_energy"]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"update": "partial_newton"},
        {"update": "partial_newton", "power": 0.7, "step_size": 0.4},
        {"update": "gradient", "num_epochs": 250},
        {"update": "gradient", "optimizer": optax.rmsprop(0.02), "num_epochs": 250},
    ],
    ids=["newton", "partial", "adam", "rmsprop"],
)
def test_other_updates_come_to_the_same(simulated, options):
    model = dataclasses.replace(MODEL, zeros=mf.Exact(), offsets="scalar")
    data = simulated[1]
    block = fit(model, data, num_epochs=60)
    other = fit(model, data, **({"num_epochs": 120, "tolerance": 0.0} | options))
    fallen = other.trace["free_energy"][0, 0] - block.draws["free_energy"][0, 0]
    assert other.draws["free_energy"] - block.draws["free_energy"] < 0.2 * fallen


@pytest.mark.slow
@pytest.mark.parametrize(
    "zeros",
    [mf.RowSample(20), mf.RowSample(20, resample=True), mf.SharedSample(20, False)],
    ids=["own", "own-anew", "shared-fixed"],
)
def test_other_samples_find_it_too(simulated, zeros):
    _, data, hidden = simulated
    model = dataclasses.replace(MODEL, zeros=zeros)
    fitted = fit(model, data, start="random")
    scores = fitted.scores(tuple(np.indices(data.shape).reshape(2, -1))).mean.reshape(data.shape)
    unknown = data.to_scipy().toarray() == 0
    unknown[hidden] = False
    others = np.sort(scores[unknown])
    # share of the cells without a one that a hidden one is ahead of, by its own row's scores and,
    # as the broken twin, by those of another row, which know what is popular
    own, of_another = (
        (np.searchsorted(others, part[hidden]) / others.size).mean()
        for part in (scores, scores[::-1])
    )
    assert own > 0.72 > of_another


@pytest.mark.slow
def test_one_batch_of_all_rows_is_a_plain_epoch(simulated):
    """The first step is a whole one."""
    model = dataclasses.replace(MODEL, zeros=mf.Exact())
    with jax.enable_x64(True):
        data = simulated[1]
        data = mf.SparseBinary(np.asarray(data.rows), np.asarray(data.columns), data.shape)
        options = {"num_epochs": 1, "relaxation": 1.0, "start": "random"}
        plain = fit(model, data, **options).reference_draw()
        batch = fit(model, data, batch_size=NUM_ROWS, **options).reference_draw()
        for name, values in plain.items():
            np.testing.assert_allclose(batch[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
        # Broken twin: a plain epoch of longer steps.
        other = fit(model, data, **options | {"relaxation": 1.1}).reference_draw()
        assert np.abs(other["column_mean"] - plain["column_mean"]).max() > 1e-3


@pytest.mark.slow
def test_scaled_sums_of_batches_are_unbiased(simulated):
    """With exact zeros and batches that fill up evenly, their mean is the sum over all rows."""
    table = simulated[1].to_scipy().toarray()
    observed = np.random.default_rng(2).random(table.shape) < 0.9
    with jax.enable_x64(True):
        data = mf.SparseBinary.from_array(table, observed=observed)
        prepared = MODEL.prepare(data, batch_size=50)
        parameters = MODEL.ascent(start="random").init(jax.random.key(0), prepared).parameters

        @jax.jit
        def sums(parameters, layout):
            return side_sums(
                half(parameters, "columns"),
                layout.columns,
                All(),
                likelihood=MODEL.likelihood,
                noise=parameters.noise,
                block=True,
            )

        whole = sums(parameters, prepared.layout)
        total = jax.tree.map(np.zeros_like, whole)
        for place in range(3):
            part = jax.tree.map(lambda leaf, place=place: leaf[place], prepared.batches)
            factors, offset = jax.tree.map(
                lambda leaf, rows=part.rows: leaf[rows], (parameters.rows, parameters.row_offset)
            )
            here = parameters._replace(rows=factors, row_offset=offset)
            found = batches.scaled(sums(here, part.layouts), 3.0)
            total = jax.tree.map(np.add, total, found)
        for name, summed in total._asdict().items():
            np.testing.assert_allclose(summed / 3, getattr(whole, name), rtol=1e-9, err_msg=name)


@pytest.mark.slow
def test_batches_come_to_the_same(simulated):
    _, data, hidden = simulated
    model = dataclasses.replace(MODEL, offsets="scalar")
    plain = fit(model, data, num_epochs=40)
    batch = fit(model, data, num_epochs=60, batch_size=40, tolerance=0.0)
    fallen = plain.trace["free_energy"][0, 0] - plain.draws["free_energy"][0, 0]
    assert batch.draws["free_energy"] - plain.draws["free_energy"] < 0.2 * fallen
    assert precision_at_one(batch, hidden) > 0.1


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "kind", "words"),
    [
        ({"num_factors": 0}, ValueError, "num_factors must be at least 1"),
        ({"num_factors": 2.0}, TypeError, "num_factors must be a whole number"),
        ({"likelihood": "probit"}, TypeError, "likelihood must be one of mf.Gaussian"),
        ({"likelihood": mf.Gaussian(-1.0)}, ValueError, "noise_variance must be finite and pos"),
        ({"zeros": 500}, TypeError, "zeros must be one of mf.Exact"),
        ({"zeros": mf.RowSample}, TypeError, "needs its number of samples"),
        ({"offsets": "rows"}, ValueError, "offsets must be one of none, scalar"),
        ({"row_variance": None, "column_variance": None}, ValueError, "both None"),
        ({"row_variance": -1.0}, ValueError, "row_variance must be finite and positive"),
        ({"row_variance": "big"}, TypeError, "row_variance must be a number"),
        ({"column_mean": np.zeros(7)}, ValueError, "one for each of the 20 factors"),
        ({"column_variance": np.array([1.0] * 19 + [0.0])}, ValueError, r"column_variance\[19\]"),
        ({"bias_variance": None}, TypeError, "bias_variance must be a number"),
    ],
)
def test_settings_that_are_refused(setting, kind, words):
    with pytest.raises(kind, match=words):
        mf.SparseBinaryMF(**setting)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: mf.SharedSample(0), ValueError, "between 1 and"),
        (lambda: mf.SharedSample(2.5), TypeError, "whole number"),
        (lambda: mf.RowSample(5, resample="yes"), TypeError, "resample must be True or False"),
    ],
)
def test_samples_that_are_refused(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.parametrize(
    ("option", "kind", "words"),
    [
        ({"start": "zeros"}, ValueError, "start must be one of svd, random"),
        ({"update": "newton"}, ValueError, "update must be one of block"),
        ({"optimizer": optax.sgd(0.1)}, ValueError, "block updates have none"),
        ({"tolerance": 2.0}, ValueError, "tolerance must lie between"),
        ({"relaxation": 2.0}, ValueError, "relaxation must lie between 0 and 2"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": 9, "update": "gradient"}, ValueError, "batches have block updates"),
        ({"decay": 0.5}, ValueError, "decay must lie above 1/2"),
        ({"patience": 0}, ValueError, "patience must be at least 1"),
        ({"num_epochs": 0}, ValueError, "num_epochs must be at least 1"),
        ({"num_validation": 10_000}, ValueError, "rows have two ones or more"),
        ({"num_chains": 2}, TypeError, "takes no option 'num_chains'"),
    ],
)
def test_options_that_are_refused(simulated, option, kind, words):
    with pytest.raises(kind, match=words):
        fit(MODEL, simulated[1], **option)


@pytest.mark.slow
def test_a_sample_of_more_than_there_is_takes_everything(simulated):
    everything, exact = (
        fit(dataclasses.replace(MODEL, zeros=zeros), simulated[1], num_epochs=3)
        for zeros in (mf.SharedSample(1000, resample=False), mf.Exact())
    )
    for name in ("row_mean", "column_mean", "row_variance"):
        np.testing.assert_allclose(everything.draws[name], exact.draws[name], atol=2e-3)


def test_data_that_are_refused():
    with pytest.raises(ValueError, match="must hold 0 and 1 only"):
        fit(MODEL, np.full((3, 3), 2.0))
    with pytest.raises(TypeError, match="baskets"):
        fit(MODEL, [["milk"], ["bread", "milk"]])


def test_questions_that_are_refused(fitted):
    with pytest.raises(ValueError, match="by must be one of score"):
        fitted.recommend(by="luck")
    with pytest.raises(ValueError, match="n must be a whole number"):
        fitted.recommend(n=0)
    with pytest.raises(ValueError, match="nobody"):
        fitted.recommend(["nobody"])
    with pytest.raises(ValueError, match="does not go on"):
        fitted.extend(num_samples=3)
    with pytest.raises(ValueError, match="no binary features"):
        fitted.cooccurrence()
    with pytest.raises(ValueError, match="no binary features"):
        fitted.features()
    with pytest.raises(ValueError, match="no binary features"):
        fitted.plot.cooccurrence()
    binary = mf.BinaryMF(row_prior=mf.IndianBuffet(1.0), column_prior=mf.IndianBuffet(1.0))
    with pytest.raises(ValueError, match="BinaryMF has no scores"):
        dataclasses.replace(fitted, model=binary).scores(([0], [0]))


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
    model = dataclasses.replace(MODEL, bias_variance=0.25, row_mean=2.0, offset_variance=4.0)
    again, data = model.simulate(jax.random.key(3), 400, 300)
    q = jax.tree.map(np.asarray, again)
    for values, mean, sd in (
        (p.rows.mean, 0, 1),
        (q.rows.mean, 2, 1),
        (q.columns.mean, 0, 1),
        (q.row_offset.mean, 0, 2),
        (q.column_offset.mean, 0, 2),
    ):
        assert abs(values.mean() - mean) < 5 * sd / np.sqrt(values.size)
        assert abs(values.std() / sd - 1) < 5 / np.sqrt(2 * values.size)
    assert q.bias.mean.shape == ()
    assert 0 < abs(q.bias.mean) < 5 * 0.5
    score = q.rows.mean @ q.columns.mean.T + q.row_offset.mean[:, None] + q.column_offset.mean
    probability = 1 / (1 + np.exp(-score - q.bias.mean))
    ones = data.to_scipy().toarray() == 1
    likely = probability > 0.5
    for chosen in (likely, ~likely):
        spread = np.sqrt((probability * (1 - probability))[chosen].sum())
        assert abs(ones[chosen].sum() - probability[chosen].sum()) < 5 * spread
    # Broken twin: other cells.
    spread = np.sqrt((probability * (1 - probability))[likely].sum())
    assert abs(ones[::-1][likely].sum() - probability[likely].sum()) > 5 * spread


def test_settings_may_be_names():
    model = mf.SparseBinaryMF(likelihood="gaussian", zeros="exact", offsets=None)
    assert (model.likelihood, model.zeros, model.offsets) == (mf.Gaussian(), mf.Exact(), "none")


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
        wanted = np.setdiff1d(np.flatnonzero(table[row[line]]), column[line])
        np.testing.assert_array_equal(np.sort(others), wanted)
    assert float(prepared.layout.num_ones) == data.num_ones - 50
    assert float(prepared.layout.num_observed) == NUM_ROWS * NUM_COLUMNS - 50


# --- the command line ----------------------------------------------------------------------------


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


def test_ones_are_read_from_files(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,item\n1,7\n2,7\n1,9\n")
    pairs = read_ones(path)
    assert pairs.shape == (2, 2)
    assert pairs.row_names.tolist() == [1, 2]
    path.write_text("milk,bread\nmilk,,\nbread,beer,milk\n")
    baskets = read_ones(path)
    assert baskets.shape == (3, 3)
    assert baskets.num_ones == 6
    path.write_text("milk,bread\nbeer,milk\n")
    assert read_ones(path, form="baskets").shape == (2, 3)
    path.write_text("0,1,1\n1,0,0\n")
    assert read_ones(path).num_ones == 3
    path.write_text("a,b\nx\n")
    with pytest.raises(ValueError, match="line 2 is"):
        read_ones(path, form="pairs")
    with pytest.raises(ValueError, match="form must be pairs"):
        read_ones(path, form="lists")


@pytest.mark.parametrize(
    ("text", "shape", "columns"),
    [
        ("user,item\na,x\nb,y\n\n", (2, 2), ["x", "y"]),
        ("user,item\n007,x\n7,y\n", (2, 2), ["x", "y"]),
        ("milk,bread\n\njam\n\n\n", (3, 3), ["milk", "bread", "jam"]),
        ("milk,bread,tea\nmilk,jam,tea\n", (2, 4), ["milk", "bread", "tea", "jam"]),
        ("milk,bread,tea\n", (1, 3), ["milk", "bread", "tea"]),
    ],
)
def test_the_form_of_a_file_is_seen(tmp_path, text, shape, columns):
    path = tmp_path / "ones.csv"
    path.write_text(text)
    data = read_ones(path)
    assert data.shape == shape
    assert sorted(data.column_names) == sorted(columns)


def test_an_odd_pair_is_named_by_its_line_in_the_file(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("user,item\na,x\n\nb\n")
    with pytest.raises(ValueError, match=r"line 4 is \['b'\]"):
        read_ones(path, form="pairs")


def test_a_matrix_with_gaps_is_not_taken_for_baskets(tmp_path):
    path = tmp_path / "ones.csv"
    path.write_text("1,0,1\n0,1\n1,1,0\n")
    with pytest.raises(ValueError, match="form="):
        read_ones(path)


def test_a_fit_that_scores_all_alike_ranks_in_the_middle():
    data = mf.SparseBinary([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 3, 4], (3, 9))
    parameters, _ = MODEL.simulate(jax.random.key(0), 3, 9)
    nothing = jax.tree.map(lambda leaf: 0 * leaf, parameters)
    validation = MODEL.prepare(data, num_validation=3, batch_size=None, seed=0).validation
    # eight unknown columns of one score: on average 4.5th
    expected = 1 / np.log2(1 + 4.5)
    np.testing.assert_allclose(progress.validation_score(nothing, validation), expected, rtol=1e-5)


def test_a_fit_of_nothing_but_ones_starts_somewhere():
    rows, columns = np.divmod(np.arange(12), 4)
    post = fit(MODEL, mf.SparseBinary(rows, columns, (3, 4)), num_epochs=3)
    assert np.isfinite(post.draws["free_energy"]).all()


def test_scores_do_not_depend_on_how_cells_are_grouped(fitted, monkeypatch):
    cells = np.arange(21) % NUM_ROWS, np.arange(21) % NUM_COLUMNS
    whole = fitted.scores(cells)
    monkeypatch.setattr(ranking, "_SCORED_CELLS", 8)
    for name in ("mean", "sd", "probability"):
        np.testing.assert_allclose(
            getattr(fitted.scores(cells), name), getattr(whole, name), rtol=1e-5
        )


def test_a_small_uncertainty_of_a_large_score_is_kept():
    one, small = np.ones((1, 1), np.float32), np.full((1, 1), 1e-6, np.float32)
    mine, others = Normal(6 * one, small), Normal(one, 0 * one)
    nothing = np.zeros((), np.float32)
    _, variance = shared_moments(mine, others, Normal(nothing, nothing))
    np.testing.assert_allclose(variance, 1e-6, rtol=1e-5)
