"""SparseBinaryMF in closed form: what it answers, that no ascent is below it, what is refused."""

import jax
import numpy as np
import pytest

import jaxmf as mf

CLOSED = {"num_factors": 3, "bias": "none"}


@pytest.fixture(scope="module")
def simulated():
    return mf.SparseBinaryMF(num_factors=3).simulate(jax.random.key(1), 120, 50, intercept=-1.5)[1]


@pytest.mark.parametrize("likelihood", [mf.Gaussian(), mf.Bernoulli()])
def test_the_closed_form_answers_as_a_fit_does(simulated, likelihood, tmp_path):
    model = mf.SparseBinaryMF(likelihood=likelihood, **CLOSED)
    posterior = mf.variational(model, simulated, analytic=True)
    assert 1 <= posterior.draws["row_mean"].shape[-1] <= 3
    best = posterior.recommend([0, 7], n=4)
    posterior.save(tmp_path / "run")
    again = mf.load(tmp_path / "run").recommend([0, 7], n=4)
    np.testing.assert_array_equal(best.columns, again.columns)
    assert "free_energy" in str(posterior)
    probability = posterior.scores([(0, 1), (2, 3)]).probability
    assert np.all((probability > 0) & (probability < 1))


@pytest.mark.slow
def test_no_ascent_comes_below_the_closed_form(simulated):
    settings = {"likelihood": mf.Gaussian(0.5), "column_scale": 1.0, **CLOSED}
    model = mf.SparseBinaryMF(**settings)
    closed = mf.variational(model, simulated, analytic=True).draws["free_energy"].item()
    ascent = mf.variational(model, simulated, num_epochs=60, progress=False)
    reached = ascent.draws["free_energy"].item()
    assert closed <= reached + 1e-5 * abs(reached)
    # ... and the ascent comes near it
    assert reached <= closed + 1e-3 * abs(closed)


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({"bias": "intercept"}, {}, ("analytic", "bias='none'")),
        ({"row_mean": 1.0}, {}, ("analytic", "row_mean")),
        ({"row_scale": None}, {}, ("analytic", "row_scale")),
        ({}, {"num_validation": 3}, ("num_validation", "analytic")),
        ({}, {"num_epochs": 5}, ("num_epochs", "analytic")),
        ({}, {"start": "random"}, ("start", "analytic")),
        ({}, {"resume": True}, ("resume", "analytic")),
        ({"row_scale": 0.1, "column_scale": 0.1}, {}, ("analytic", "switched off")),
    ],
)
def test_what_the_closed_form_is_not_for(simulated, settings, options, words):
    model = mf.SparseBinaryMF(**(CLOSED | {"likelihood": mf.Gaussian()} | settings))
    with pytest.raises(ValueError, match=words[0]) as error:
        mf.variational(model, simulated, analytic=True, **options)
    assert all(word in str(error.value) for word in words)
