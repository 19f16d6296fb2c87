"""SparseBinarySeries end to end: its limits, what it finds, what it answers, what is refused."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jaxmf as mf
from jaxmf import cli
from jaxmf.data import read_series
from jaxmf.models.sparse_binary_series import ascent
from jaxmf.variational_bayes import progress
from jaxmf.variational_bayes.paths import Paths

TIMES = np.array([0.0, 1.5, 2.0, 4.5, 7.0, 8.0])
NUM_ROWS, NUM_COLUMNS, FACTORS = 60, 40, 2
MODEL = mf.SparseBinarySeries(
    num_factors=FACTORS,
    zeros=mf.Exact(),
    lengthscale=3.0,
    bias="intercept",
    column_scale=1.0,
)
LEARNING = dataclasses.replace(MODEL, lengthscale=None)


def fit(model, data, **options):
    return mf.variational(model, data, **({"progress": False, "num_epochs": 30} | options))


class Simulated:
    """A series of smooth paths, of which one cell in five was not observed."""

    def __init__(self):
        self.truth, whole = MODEL.simulate(
            jax.random.key(1), NUM_ROWS, NUM_COLUMNS, times=TIMES, intercept=-1.5
        )
        self.tables = np.stack([whole.at(time).to_scipy().toarray() for time in TIMES])
        self.observed = np.random.default_rng(0).random(self.tables.shape) < 0.8
        self.matrices = [
            mf.SparseBinary.from_array(
                table,
                observed=seen,
                row_names=[f"u{row}" for row in range(NUM_ROWS)],
                column_names=[f"i{column}" for column in range(NUM_COLUMNS)],
            )
            for table, seen in zip(self.tables, self.observed, strict=True)
        ]
        self.data = mf.SparseSeries.from_matrices(self.matrices, TIMES)

    def held_out(self, posterior):
        """Log probability of the cells not observed."""
        every = mf.Positions(*np.indices(self.tables[0].shape).reshape(2, -1))
        chances = [posterior.at(time).scores(every).probability for time in TIMES]
        chances = np.reshape(chances, self.tables.shape)
        return np.log(np.where(self.tables == 1, chances, 1 - chances))[~self.observed]


@pytest.fixture(scope="module")
def simulated():
    return Simulated()


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit(LEARNING, simulated.data)


# --- the limits ----------------------------------------------------------------------------------


def state_of(algorithm, prepared):
    return INIT(algorithm, jax.random.key(0), prepared)


def steps_of(algorithm, state, prepared, num_steps=4):
    for epoch in range(num_steps):
        key = jax.random.fold_in(jax.random.key(5), epoch)
        state, _ = STEP(algorithm, key, state, prepared)
    return state


INIT = jax.jit(lambda algorithm, key, data: algorithm.init(key, data))
DRAW = jax.jit(lambda model, state: model.draw_of(state))
STEP = jax.jit(lambda algorithm, key, state, data: algorithm.step(key, state, data, jnp.ones(())))


def paths_at(parameters, num_times, weight_share, precision_share):
    """Paths whose values have the means and variances of rows, given what one time is worth."""
    rows, bias = parameters.rows, parameters.row_bias
    mean = rows.mean if bias is None else jnp.column_stack([rows.mean, bias.mean])
    mean = mean.reshape(-1, num_times, mean.shape[1])
    variance = 0.5  # of every start, before a prior of variance one
    precision = jnp.full_like(mean, (1 / variance - 1) * precision_share)
    return Paths(weight_share * mean, precision)


SMALL = (12, 3, 9)


def small_series(seed=0):
    generator = np.random.default_rng(seed)
    tables = 1 * (generator.random((SMALL[1], SMALL[0], SMALL[2])) < 0.3)
    observed = generator.random(tables.shape) < 0.9
    matrices = [
        mf.SparseBinary.from_array(table, observed=seen)
        for table, seen in zip(tables, observed, strict=True)
    ]
    return mf.SparseSeries.from_matrices(matrices, [0.0, 1.0, 3.0])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [mf.Bernoulli("quadratic"), pytest.param(mf.Gaussian(), marks=pytest.mark.slow)]
)
def test_a_length_scale_of_nothing_is_one_matrix_of_all_rows_and_times(likelihood):
    """Epoch by epoch, biases, learned priors and noise included."""
    with jax.enable_x64(True):
        data = small_series()
        settings = {"zeros": mf.Exact(), "likelihood": likelihood, "bias": "rows_columns"}
        settings |= {"num_factors": 2, "column_scale": None, "column_mean": None}
        one, many = (
            mf.SparseBinaryMF(**settings),
            mf.SparseBinarySeries(**settings, lengthscale=1e-6),
        )
        plan = {"num_epochs": 9, "hold_priors": 1, "start": "random", "tolerance": 0.0}
        prepared = many.prepare(data)
        state = state_of(one.ascent(**plan), prepared._replace(gaps=None))
        of_series = state_of(many.ascent(**plan, update="joint"), prepared)
        start = of_series.parameters._replace(
            paths=paths_at(state.parameters, 3, 1.0, 1.0),
            columns=state.parameters.columns,
        )
        of_series = of_series._replace(parameters=start)
        last = steps_of(one.ascent(**plan), state, prepared._replace(gaps=None))
        found = steps_of(many.ascent(**plan, update="joint"), of_series, prepared)
        draw, expected = DRAW(many, found), DRAW(one, last)
        for name, values in expected.items():
            values = values.reshape(draw[name].shape)
            np.testing.assert_allclose(draw[name], values, rtol=1e-8, atol=1e-9, err_msg=name)
        # Broken twin: a length scale of the gaps' size is another model.
        near = of_series._replace(parameters=start._replace(lengthscale=jnp.asarray(1.0)))
        other = steps_of(many.ascent(**plan, update="joint"), near, prepared)
        assert abs(other.free_energy - last.free_energy) > 1e-2


@pytest.mark.exhaustive
@pytest.mark.parametrize("update", ["joint", "factors"])
def test_an_endless_length_scale_is_one_row_for_all_times(update):
    """T times the same matrix with noise v is that matrix once with noise v / T."""
    with jax.enable_x64(True):
        table = 1 * (np.random.default_rng(3).random((12, 9)) < 0.3)
        num_times, noise = 3, 0.9
        data = mf.SparseSeries.from_matrices([table] * num_times, [0.0, 1.0, 3.0])
        settings = {"num_factors": 1 if update == "factors" else 2, "zeros": mf.Exact()}
        settings["bias"] = "intercept"
        many = mf.SparseBinarySeries(
            **settings, likelihood=mf.Gaussian(math.sqrt(noise)), lengthscale=1e12
        )
        plan = {"num_epochs": 9, "start": "random", "tolerance": 0.0}
        prepared = many.prepare(data)
        of_series = state_of(many.ascent(**plan, update=update), prepared)

        def of_single(single_noise):
            one = mf.SparseBinaryMF(**settings, likelihood=mf.Gaussian(math.sqrt(single_noise)))
            once = one.prepare(mf.SparseBinary.from_array(table))
            state = state_of(one.ascent(**plan), once)
            return state, DRAW(one, steps_of(one.ascent(**plan), state, once))

        state, expected = of_single(noise / num_times)
        rows = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_times, axis=0), state.parameters.rows)
        start = of_series.parameters._replace(
            paths=paths_at(state.parameters._replace(rows=rows), num_times, 1 / 3, 1 / 3),
            columns=state.parameters.columns,
        )
        found = steps_of(
            many.ascent(**plan, update=update), of_series._replace(parameters=start), prepared
        )
        draw = DRAW(many, found)
        for name in ("column_mean", "column_variance", "intercept", "intercept_variance"):
            np.testing.assert_allclose(draw[name], expected[name], rtol=1e-7, err_msg=name)
        for time in range(num_times):
            for name in ("row_mean", "row_variance"):
                np.testing.assert_allclose(draw[name][:, time], expected[name], rtol=1e-7)
        # the log normaliser of the noise: three cells of variance 0.9, one of variance 0.3
        constant = table.size / 2 * (3 * np.log(2 * np.pi * 0.9) - np.log(2 * np.pi * 0.3))
        energy = expected["free_energy"] + constant
        np.testing.assert_allclose(draw["free_energy"], energy, rtol=1e-9)
        # Broken twin: three matrices say more than one.
        _, other = of_single(noise)
        assert np.abs(other["row_variance"] / expected["row_variance"] - 1).min() > 0.1


# --- the ascent ----------------------------------------------------------------------------------


def path_in_float64(update, relaxation=None):
    with jax.enable_x64(True):
        data = small_series(2)
        model = dataclasses.replace(LEARNING, column_scale=None, bias="rows_columns")
        prepared = model.prepare(data)
        algorithm = model.ascent(update=update, tolerance=0.0, hold_priors=2, num_epochs=25)
        if relaxation is not None:
            plan = dataclasses.replace(algorithm.step.args[0].args[0], relaxation=relaxation)
            epoch = Partial(ascent.epoch, plan, model)
            algorithm = algorithm._replace(step=Partial(progress.step, epoch))
        state = state_of(algorithm, prepared)
        path, lengths = [], []
        for epoch in range(25):
            state, _ = STEP(algorithm, jax.random.key(epoch), state, prepared)
            path.append(float(state.free_energy))
            lengths.append(float(state.parameters.lengthscale))
    return np.array(path), np.array(lengths)


@pytest.mark.tiers(slow=["joint"], exhaustive=["factors"])
@pytest.mark.parametrize("update", ["joint", pytest.param("factors", marks=pytest.mark.slow)])
def test_the_free_energy_never_rises(update):
    """Steps longer than to the minimiser, and the search for the length scale, included."""
    path, lengths = path_in_float64(update)
    assert np.diff(path).max() <= 1e-9 * abs(path).max()
    assert np.unique(lengths).size > 3
    # Broken twin: steps that are far too long.
    if update == "joint":
        assert np.diff(path_in_float64(update, relaxation=3.0)[0]).max() > 1


def assert_better(found, other):
    gain = found - other
    assert gain.mean() > 3 * gain.std() / np.sqrt(gain.size)


@pytest.mark.slow
def test_the_length_scale_is_found(simulated, fitted):
    assert 1.5 < fitted.reference_draw()["lengthscale"] < 6
    # Broken twin: times in another order are not as smooth.
    shuffled = mf.SparseSeries.from_matrices(simulated.matrices, TIMES[[3, 0, 5, 1, 4, 2]])
    worse = fit(LEARNING, shuffled)
    assert worse.draws["free_energy"] > fitted.draws["free_energy"] + 10


@pytest.mark.slow
def test_a_series_is_predicted_better_than_rows_that_never_change(simulated, fitted):
    """Cells not observed."""
    static = fit(dataclasses.replace(LEARNING, lengthscale=1e6), simulated.data)
    assert_better(simulated.held_out(fitted), simulated.held_out(static))


@pytest.mark.exhaustive
def test_a_series_is_predicted_better_than_by_one_fit_a_time(simulated, fitted):
    single = mf.SparseBinaryMF(num_factors=FACTORS, zeros=mf.Exact())
    # those of the posterior of one matrix are of the same cells, in the same order
    separate = [
        fit(single, matrix).held_out_log_likelihood(table).log_likelihood
        for matrix, table in zip(simulated.matrices, simulated.tables, strict=True)
    ]
    assert_better(simulated.held_out(fitted), np.concatenate(separate))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_samples_of_zeros_and_both_updates_come_to_the_same(simulated, fitted):
    fallen = fitted.trace["free_energy"][0, 0] - fitted.draws["free_energy"][0, 0]
    for zeros in (mf.SharedSample(20), mf.RowSample(20)):
        model = dataclasses.replace(LEARNING, zeros=zeros)
        other = simulated.held_out(fit(model, simulated.data, num_epochs=60))
        # rows that never change lose twice as much
        assert other.mean() > simulated.held_out(fitted).mean() - 0.02
    factors = fit(LEARNING, simulated.data, update="factors", num_epochs=60)
    assert abs(factors.draws["free_energy"] - fitted.draws["free_energy"]) < 0.02 * fallen


@pytest.mark.exhaustive
def test_cells_of_the_gaussian_and_validation(simulated):
    model = dataclasses.replace(LEARNING, likelihood=mf.Gaussian(), bias="rows_columns")
    post = fit(model, simulated.data, num_validation=60, num_epochs=60, patience=4)
    path = post.trace["validation_score"][0]
    np.testing.assert_allclose(post.draws["validation_score"][0, 0], path.max())
    assert 10 < post.draws["num_epochs"][0, 0] < 60
    kept = post.trace["free_energy"][0, np.argmax(path)]
    assert post.draws["free_energy"][0, 0] == kept
    assert "noise_scale" in post.summary().names


# --- questions -----------------------------------------------------------------------------------


def test_a_time_may_be_any(simulated, fitted):
    draw = fitted.reference_draw()
    rows, columns = np.array([3, 3, 50]), np.array([5, 6, 39])
    cells = mf.Positions(rows, columns)
    for step, time in enumerate(TIMES):
        here = fitted.at(time)
        assert here.data.num_ones == simulated.matrices[step].num_ones
        scores = here.scores(cells)
        mean = np.sum(draw["row_mean"][rows, step] * draw["column_mean"][columns], axis=1)
        np.testing.assert_allclose(scores.mean, mean + draw["intercept"], rtol=2e-3, atol=2e-3)
    # the whole posterior speaks of the last time
    np.testing.assert_allclose(fitted.scores(cells).mean, scores.mean, atol=2e-3)
    # between two times it lies between them, after the last it is less and less sure
    sds = [fitted.at(time).scores(cells).sd for time in (8.0, 8.5, 10.0, 20.0, 500.0)]
    assert (np.diff(sds, axis=0) > -1e-6).all()
    far = fitted.at(500.0).scores(cells)
    np.testing.assert_allclose(far.mean, draw["intercept"], atol=1e-4)
    near, middle = fitted.at(1.5).scores(cells), fitted.at(1.6).scores(cells)
    np.testing.assert_allclose(near.mean, middle.mean, atol=0.2)


@pytest.mark.exhaustive
def test_a_time_left_out_is_predicted_between_its_neighbours(simulated):
    kept = [0, 1, 2, 4, 5]
    data = mf.SparseSeries.from_matrices([simulated.matrices[step] for step in kept], TIMES[kept])
    post = fit(dataclasses.replace(MODEL, lengthscale=3.0), data)
    left_out = np.ones((NUM_ROWS, NUM_COLUMNS), bool)
    values = simulated.tables[3][left_out].astype(float)
    between = post.at(TIMES[3]).held_out_log_likelihood(values, left_out).log_likelihood
    for elsewhere in (post, post.at(100.0)):
        other = elsewhere.held_out_log_likelihood(values, left_out).log_likelihood
        assert_better(between, other)


def test_recommendations_at_a_time(simulated, fitted):
    last = fitted.recommend(["u3", "u7"], n=4)
    known = simulated.data.to_scipy().toarray() == 1
    assert not known[[3, 3, 3, 3], last.columns[0]].any()
    np.testing.assert_array_equal(fitted.at(8.0).recommend(["u3", "u7"], n=4).columns, last.columns)
    early = fitted.at(0.0).recommend(n=NUM_COLUMNS)
    assert (
        (early.columns >= 0).sum(1) == NUM_COLUMNS - simulated.matrices[0].to_scipy().sum(1)
    ).all()
    # where nothing was observed nothing is known
    ahead = fitted.at(9.0).recommend(["u3"], n=NUM_COLUMNS)
    assert (np.sort(ahead.columns[0]) == np.arange(NUM_COLUMNS)).all()


@pytest.mark.slow
def test_rows_not_seen_are_folded_in(simulated, fitted):
    some = [mf.SparseBinary.from_array(table[:15]) for table in simulated.tables]
    new = mf.SparseSeries.from_matrices(some, TIMES)
    found, fitted_rows = fitted.transform(new), fitted.reference_draw()["row_mean"][:15, -1]
    assert found.shape == (15, FACTORS)
    assert np.corrcoef(found.ravel(), fitted_rows.ravel())[0, 1] > 0.95
    assert abs(np.corrcoef(found[::-1].ravel(), fitted_rows.ravel())[0, 1]) < 0.6
    predicted = fitted.predict(new_rows=new).mean.reshape(15, NUM_COLUMNS)
    cells = mf.Positions(*np.indices((15, NUM_COLUMNS)).reshape(2, -1))
    trained = fitted.predict(cells).mean.reshape(15, NUM_COLUMNS)
    assert np.corrcoef(predicted.ravel(), trained.ravel())[0, 1] > 0.95
    # at other times, fewer of them
    fewer = mf.SparseSeries.from_matrices(some[-2:], TIMES[-2:])
    assert np.corrcoef(fitted.transform(fewer).ravel(), fitted_rows.ravel())[0, 1] > 0.7


def test_a_fit_is_kept(fitted, tmp_path):
    for name, post in (("series", fitted), ("ahead", fitted.at(9.0))):
        post.save(tmp_path / name)
        again = mf.load(tmp_path / name)
        assert again.model == post.model
        np.testing.assert_array_equal(again.recommend(n=2).columns, post.recommend(n=2).columns)
        np.testing.assert_array_equal(again.data.times, post.data.times)
        assert again.data.row_names.tolist() == post.data.row_names.tolist()
    series = mf.load(tmp_path / "series")
    np.testing.assert_array_equal(
        series.at(3.3).recommend(n=2).columns, fitted.at(3.3).recommend(n=2).columns
    )
    assert "lengthscale" in series.summary().names
    assert "SparseBinarySeries on 60 x " in repr(series)


def test_simulated_paths_have_the_prior_s_correlation():
    model = dataclasses.replace(MODEL, bias="rows_columns", row_scale=math.sqrt(2.0))
    truth, data = model.simulate(jax.random.key(3), 1500, 3, times=[0.0, 1.0, 6.0])
    paths = np.asarray(truth.rows.mean).reshape(1500, 3, FACTORS)
    assert paths.var() == pytest.approx(2, rel=0.1)
    scaled = np.sqrt(3) * np.array([1.0, 6.0]) / 3.0
    for index, expected in zip((1, 2), (1 + scaled) * np.exp(-scaled), strict=True):
        found = np.corrcoef(paths[:, 0].ravel(), paths[:, index].ravel())[0, 1]
        assert found == pytest.approx(expected, abs=5 / np.sqrt(3000))
    score = truth.rows.mean @ truth.columns.mean.T + truth.row_bias.mean[:, None]
    score = score + truth.column_bias.mean + truth.intercept.mean
    probability = np.asarray(1 / (1 + np.exp(-score)))
    ones = data.stacked().to_scipy().toarray() == 1
    spread = np.sqrt((probability * (1 - probability)).sum())
    assert abs(ones.sum() - probability.sum()) < 5 * spread
    likely = probability > 0.5
    assert abs(ones[likely].sum() - probability[likely].sum()) < 5 * spread
    # Broken twin: other lines.
    assert abs(ones[::-1][likely].sum() - probability[likely].sum()) > 5 * spread


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "kind", "words"),
    [
        ({"lengthscale": 0.0}, ValueError, "lengthscale must be finite and positive"),
        ({"lengthscale": "long"}, TypeError, "lengthscale must be a number"),
        ({"kernel": "matern"}, ValueError, "kernel must be one of 'squared_exponential'"),
        ({"row_scale": None}, ValueError, "row_scale is None, but"),
        ({"row_mean": np.zeros(7)}, ValueError, "one for each of the 20 factors"),
        ({"bias": "rows"}, ValueError, "bias must be one of 'none', 'intercept'"),
        ({"num_factors": 0}, ValueError, "num_factors must be at least 1"),
    ],
)
def test_settings_that_are_refused(setting, kind, words):
    with pytest.raises(kind, match=words):
        mf.SparseBinarySeries(**setting)


@pytest.mark.parametrize(
    ("option", "kind", "words"),
    [
        ({"update": "block"}, ValueError, "update must be one of 'joint', 'factors'"),
        ({"relaxation": 2.0}, ValueError, "relaxation must be finite, above 0, below 2"),
        ({"batch_size": 3}, TypeError, "takes no option 'batch_size'"),
        ({"analytic": True, "num_epochs": None}, ValueError, "has no solution in closed form"),
        ({"num_validation": 10_000}, ValueError, "rows have two ones or more"),
    ],
)
def test_options_that_are_refused(option, kind, words):
    with pytest.raises(kind, match=words):
        fit(MODEL, small_series(), **option)


def test_questions_that_are_refused(fitted):
    with pytest.raises(ValueError, match="of one time already"):
        fitted.at(3.0).at(4.0)
    with pytest.raises(ValueError, match="time must be finite"):
        fitted.at(np.nan)
    with pytest.raises(TypeError, match="time must be a number"):
        fitted.at("last")
    with pytest.raises(ValueError, match="lengthscale is None"):
        LEARNING.simulate(jax.random.key(0), 3, 3, times=[1.0])
    with pytest.raises(TypeError, match="does not say its times"):
        fit(MODEL, np.ones((3, 3)))
    with pytest.raises(TypeError, match="needs SparseSeries"):
        fit(MODEL, mf.SparseBinary([0], [0], (2, 2)))
    with pytest.raises(ValueError, match="has no ones at any time"):
        fit(MODEL, mf.SparseSeries.from_matrices([np.zeros((2, 2))], [1.0]))
    one = mf.SparseBinaryMF(num_factors=1)
    with pytest.raises(ValueError, match="has no times"):
        dataclasses.replace(fitted, model=one).at(1.0)


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_from_a_file_of_triples_to_recommendations_at_a_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAXMF_CACHE", "off")
    model, data = mf.registry.get("sparse-binary-series").example()
    lines = [
        f"b{row},item {column},{data.times[step]}"
        for row, step, column in zip(
            *(np.asarray(part) for part in (data.rows, data.steps, data.columns)), strict=True
        )
    ]
    path = tmp_path / "months.csv"
    path.write_text("\n".join(["who,what,when", *lines]) + "\n")
    read = read_series(path)
    np.testing.assert_array_equal(read.times, data.times)
    assert read.num_ones == data.num_ones
    out = tmp_path / "run"
    words = ["--set", "num_factors=2", "--set", "zeros=SharedSample(4)", "--epochs", "6"]
    assert cli.run(["fit", "sparse-binary-series", str(path), "--out", str(out), *words]) == 0
    assert f"Next: jaxmf recommend {out}" in capsys.readouterr().out
    assert cli.run(["recommend", str(out), "b3", "-n", "2", "--at", "4"]) == 0
    table = capsys.readouterr().out.splitlines()
    direct = mf.load(out).at(4.0).recommend(["b3"], n=2)
    assert table[2].split(",")[2] == direct.column_names[0, 1]
    cells = tmp_path / "cells.csv"
    cells.write_text("row,column\nb3,item 4\n")
    assert cli.run(["predict", str(out), str(cells), "--at", "1.0"]) == 0
    found = float(capsys.readouterr().out.splitlines()[1].split(",")[2])
    expected = mf.load(out).at(1.0).predict((["b3"], ["item 4"])).mean[0]
    assert found == pytest.approx(expected, rel=1e-4)
    assert model.num_factors == direct.columns.shape[1] == 2
