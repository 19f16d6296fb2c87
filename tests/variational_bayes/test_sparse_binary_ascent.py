"""The ascent of SparseBinaryMF: its updates, its stops, batches of rows."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jaxmf as mf
from jaxmf.variational_bayes import batch_pass, free_energy, partial_newton
from jaxmf.variational_bayes.parameters import half
from jaxmf.variational_bayes.sums import side_sums
from jaxmf.variational_bayes.zeros import All
from tests.support.sparse_binary_setup import (
    GAUSSIAN,
    MODEL,
    NUM_ROWS,
    fit,
    precision_at_one,
    simulate,
)


@pytest.fixture(scope="module")
def simulated():
    return simulate()


def path_in_float64(model, data, **options):
    """The free energy after every epoch, all that can be learned being learned."""
    with jax.enable_x64(True):
        data = mf.SparseBinary(np.asarray(data.rows), np.asarray(data.columns), data.shape)
        model = dataclasses.replace(model, column_mean=None, column_scale=None)
        path = fit(model, data, tolerance=0.0, hold_priors=3, **options).trace["free_energy"][0]
    assert path.dtype == np.float64
    return path


@pytest.mark.tiers(exhaustive=["sigmoid"])
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


@pytest.mark.exhaustive
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
    model = dataclasses.replace(MODEL, zeros=mf.Exact(), bias="intercept")
    data = simulated[1]
    block = fit(model, data, num_epochs=60)
    other = fit(model, data, **({"num_epochs": 120, "tolerance": 0.0} | options))
    fallen = other.trace["free_energy"][0, 0] - block.draws["free_energy"][0, 0]
    assert other.draws["free_energy"] - block.draws["free_energy"] < 0.2 * fallen


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "zeros",
    [mf.RowSample(20), mf.RowSample(20, resample=True), mf.SharedSample(20, False)],
    ids=["own", "own-anew", "shared-fixed"],
)
def test_other_samples_find_it_too(simulated, zeros):
    _, data, hidden = simulated
    model = dataclasses.replace(MODEL, zeros=zeros)
    fitted = fit(model, data, start="random")
    scores = fitted.scores(mf.Positions(*np.indices(data.shape).reshape(2, -1))).mean.reshape(
        data.shape
    )
    unknown = data.to_scipy().toarray() == 0
    unknown[hidden] = False
    others = np.sort(scores[unknown])
    # share of the cells without a one that a hidden one is ahead of, by its own row's scores and,
    # as the broken twin, by those of another row, which know what is popular
    same_sample, of_another = (
        (np.searchsorted(others, part[hidden]) / others.size).mean()
        for part in (scores, scores[::-1])
    )
    assert same_sample > 0.72 > of_another


@pytest.mark.tiers(exhaustive=["block", "gradient"])
@pytest.mark.slow
@pytest.mark.parametrize("update", ["block", "partial_newton", "gradient"])
def test_one_batch_of_all_rows_is_a_plain_epoch(simulated, update):
    """The first step is a whole one."""
    # held for the quadratic bound alone: over batches the tilted bound takes other steps
    model = dataclasses.replace(MODEL, zeros=mf.Exact(), likelihood=mf.Bernoulli("quadratic"))
    with jax.enable_x64(True):
        data = simulated[1]
        data = mf.SparseBinary(np.asarray(data.rows), np.asarray(data.columns), data.shape)
        options = {"num_epochs": 1, "relaxation": 1.0, "start": "random", "update": update}
        plain = fit(model, data, **options).reference_draw()
        batch = fit(model, data, batch_size=NUM_ROWS, **options).reference_draw()
        for name, values in plain.items():
            np.testing.assert_allclose(batch[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
        # Broken twin: a plain epoch of other steps.
        wrong = {"relaxation": 1.1}
        if update == "partial_newton":
            wrong = {"step_size": 0.6}
        if update == "gradient":
            wrong = {"optimizer": optax.adam(0.03)}
        other = fit(model, data, **options | wrong).reference_draw()
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
        for index in range(3):
            part = jax.tree.map(lambda leaf, index=index: leaf[index], prepared.batches)
            factors, bias = jax.tree.map(
                lambda leaf, rows=part.rows: leaf[rows], (parameters.rows, parameters.row_bias)
            )
            here = parameters._replace(rows=factors, row_bias=bias)
            found = batch_pass.scaled(sums(here, part.layouts), 3.0)
            total = jax.tree.map(np.add, total, found)
        for name, summed in total._asdict().items():
            np.testing.assert_allclose(summed / 3, getattr(whole, name), rtol=1e-9, err_msg=name)


@pytest.mark.slow
def test_the_free_energy_of_batches_is_unbiased(simulated):
    """With exact zeros and batches that fill up evenly, its mean is that of all rows."""
    model = dataclasses.replace(MODEL, zeros=mf.Exact())
    with jax.enable_x64(True):
        data = simulated[1]
        data = mf.SparseBinary(np.asarray(data.rows), np.asarray(data.columns), data.shape)
        prepared = model.prepare(data, batch_size=50)
        init = jax.jit(MODEL.ascent(start="random").init)
        parameters = init(jax.random.key(0), prepared._replace(batches=None)).parameters
        whole, slopes = jax.jit(jax.value_and_grad(free_energy))(
            parameters, prepared.layout, zeros=All(), likelihood=model.likelihood
        )

        @jax.jit
        def of_batch(index, scale):
            batch = jax.tree.map(lambda leaf: leaf[index], prepared.batches)
            rows, bias = jax.tree.map(
                lambda leaf: leaf[batch.rows], (parameters.rows, parameters.row_bias)
            )
            here = parameters._replace(rows=rows, row_bias=bias)
            settings = {"key": jax.random.key(0), "settings": model, "scale": scale}
            return jax.value_and_grad(batch_pass.batch_free_energy)(here, batch, **settings)

        found = [of_batch(index, 3.0) for index in range(3)]
        np.testing.assert_allclose(np.mean([value for value, _ in found]), whole, rtol=1e-12)
        for name in ("mean", "variance"):
            of_columns = np.mean([getattr(slope.columns, name) for _, slope in found], axis=0)
            np.testing.assert_allclose(of_columns, getattr(slopes.columns, name), atol=1e-9)
            rows = np.concatenate([getattr(slope.rows, name) for _, slope in found]) / 3
            order = np.asarray(prepared.batches.rows).ravel()
            np.testing.assert_allclose(rows, getattr(slopes.rows, name)[order], atol=1e-9)
        # Broken twin: another scale.
        assert abs(np.mean([of_batch(index, 2.9)[0] for index in range(3)]) / whole - 1) > 1e-3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"update": "partial_newton", "step_size": 1.0},
        {"update": "gradient", "optimizer": optax.adam(0.05), "num_epochs": 200},
    ],
    ids=["block", "newton", "adam"],
)
def test_batches_come_to_the_same(simulated, options):
    _, data, hidden = simulated
    model = dataclasses.replace(MODEL, bias="intercept")
    plain = fit(model, data, num_epochs=40)
    options = {"num_epochs": 60, "batch_size": 40, "tolerance": 0.0} | options
    batch = fit(model, data, **options)
    fallen = plain.trace["free_energy"][0, 0] - plain.draws["free_energy"][0, 0]
    assert batch.draws["free_energy"] - plain.draws["free_energy"] < 0.2 * fallen
    assert precision_at_one(batch, hidden) > 0.1
