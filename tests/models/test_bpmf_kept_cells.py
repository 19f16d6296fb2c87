"""Predictions of cells named before the run, of BPMF without factors kept."""

import dataclasses

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import kept_cells

NUM_ROWS, NUM_COLUMNS = 20, 12
RUN = {"num_warmup": 2, "num_samples": 6, "num_chains": 1, "seed": 0, "progress": False}


def ratings():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(NUM_ROWS, NUM_COLUMNS)).round(1)
    seen = generator.random(values.shape) < 0.5
    data = mf.Entries(*np.nonzero(seen), values[seen], values.shape)
    return values, np.nonzero(~seen), data


@pytest.fixture(scope="module")
def gathered():
    _, cells, data = ratings()
    return mf.sample(mf.BPMF(2), data, keep_factors=False, predict_at=cells, **RUN)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_distribution_of_named_cells_is_that_of_kept_factors(gathered):
    values, cells, data = ratings()
    kept = mf.sample(mf.BPMF(2), data, **RUN)
    assert "u" not in gathered.draws
    found, expected = (
        gathered.predict(quantiles=(0.1, 0.5)),
        kept.predict(cells, quantiles=(0.1, 0.5)),
    )
    for name in ("mean", "sd", "quantiles", "draws"):
        value, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(value, other, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(
        gathered.averages["predicted"][0], expected.mean, rtol=1e-3, atol=1e-5
    )
    one, other = (post.held_out_log_likelihood(values[cells], cells) for post in (gathered, kept))
    np.testing.assert_allclose(one.log_likelihood, other.log_likelihood, rtol=1e-4, atol=1e-4)
    # broken twin: the prior of the last draw alone is another
    last = dataclasses.replace(
        gathered, draws={name: x[:, -1:] for name, x in gathered.draws.items()}
    )
    assert np.abs(last.predict(quantiles=(0.1,)).quantiles[0] - expected.quantiles[0]).max() > 0.1


def test_some_of_the_named_cells_in_any_order(gathered, tmp_path):
    whole = gathered.predict()
    chosen = np.array([7, 2, 11])
    found = gathered.predict((whole.rows[chosen], whole.columns[chosen]))
    np.testing.assert_allclose(found.mean, whole.mean[chosen], rtol=1e-12)
    gathered.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict().quantiles, whole.quantiles)
    longer = again.extend(num_samples=2)
    assert longer.draws["predicted_mean"].shape[1] == 8
    np.testing.assert_array_equal(
        longer.draws["predicted_mean"][:, :6], gathered.draws["predicted_mean"]
    )


def test_what_was_not_named_is_refused_in_words(gathered, monkeypatch):
    _, cells, data = ratings()
    seen = int(np.asarray(data.rows)[0]), int(np.asarray(data.columns)[0])
    with pytest.raises(ValueError, match=f"row {seen[0]}, column {seen[1]} was not named"):
        gathered.predict(([seen[0]], [seen[1]]))
    for ask in (
        lambda: gathered.predict(new_rows=mf.Entries([0], [0], [1.0], (1, NUM_COLUMNS))),
        lambda: gathered.recommend([0]),
        lambda: gathered.reconstruction(),
        lambda: gathered.transform(mf.Entries([0], [0], [1.0], (1, NUM_COLUMNS))),
    ):
        with pytest.raises(ValueError, match="keep_factors"):
            ask()
    few = {name: x for name, x in gathered.draws.items() if not name.startswith("predicted")}
    with pytest.raises(ValueError, match="too many to keep"):
        dataclasses.replace(gathered, draws=few).predict()
    with pytest.raises(ValueError, match="name the cells before the run"):
        dataclasses.replace(gathered, draws=few, predicted_at={}).predict()
    algorithm, model = mf.BPMF(2).sampler(keep_factors=False), mf.BPMF(2)
    named = kept_cells.cells_by_name(cells, data)
    assert kept_cells.are_kept(algorithm, model, data, named, num_draws=6)
    monkeypatch.setattr(kept_cells, "_MOST_FLOATS", 12 * cells[0].size - 1)
    assert not kept_cells.are_kept(algorithm, model, data, named, num_draws=6)
    assert not kept_cells.are_kept(model.sampler(), model, data, named, num_draws=1)


@pytest.mark.exhaustive
def test_cells_of_few_values_have_their_averaged_probabilities():
    _, cells, data = ratings()
    ones = mf.Entries(data.rows, data.columns, (np.asarray(data.values) > 0) * 1.0, data.shape)
    model = mf.BPMF(2, likelihood=mf.Probit())
    kept = mf.sample(model, ones, **RUN)
    without = mf.sample(model, ones, keep_factors=False, predict_at=cells, **RUN)
    np.testing.assert_allclose(without.probabilities(cells), kept.probabilities(cells), rtol=1e-4)
    found, expected = (post.predict(cells, quantiles=(0.3, 0.7)) for post in (without, kept))
    np.testing.assert_array_equal(found.quantiles, expected.quantiles)
