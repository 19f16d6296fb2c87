"""A matrix of prior means of W: joint-distribution tests and a broken twin."""

from functools import partial

import jax.numpy as jnp
import pytest

from jaxmf.models.binary_mf import updates
from jaxmf.samplers.bilinear import weights as weight_moves
from tests.support.binary_mf_setups import FINITE, FIXED, Setup, make, must_fail, whole_step

PRIOR_MEANS = jnp.array([[1.5, -2.0], [0.0, 0.7]])
MATRIX = {
    "gaussian": FIXED["gaussian"] | {"weight_mean": PRIOR_MEANS},
    "logistic": FIXED["logistic"] | {"weight_mean": PRIOR_MEANS},
}


@pytest.mark.tiers(
    exhaustive=["gaussian-collapsed-True", "gaussian-explicit-False", "logistic-explicit-False"]
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "weights", "diagonal"),
    [
        ("gaussian", "collapsed", False),
        ("gaussian", "explicit", False),
        ("gaussian", "collapsed", True),
        ("logistic", "explicit", False),
    ],
)
def test_the_whole_step_with_a_matrix_of_prior_means(likelihood, weights, diagonal):
    model = make(likelihood, priors=FINITE, hyperparameters=MATRIX, diagonal=diagonal)
    Setup(model, collapsed=weights == "collapsed").check(whole_step(model, weights=weights))


@pytest.mark.exhaustive
def test_weights_drawn_by_rows_with_a_matrix_of_prior_means(monkeypatch):
    monkeypatch.setattr(weight_moves, "MOST_PAIRS", 0)
    model = make("gaussian", priors=FINITE, hyperparameters=MATRIX)
    Setup(model).check(partial(updates.update_weights, model))


@pytest.mark.slow
def test_a_prior_mean_of_the_wrong_slot_is_caught():
    """Columns drawn with the means of W instead of those of W'."""
    model = make("gaussian", priors=FINITE, hyperparameters=MATRIX)
    twin = make("gaussian", priors=FINITE, hyperparameters=MATRIX)
    object.__setattr__(twin, "weight_mean", model.weight_mean.T)
    must_fail(
        Setup(model, collapsed=True), partial(updates.update_columns, twin), num_replicates=4_096
    )
