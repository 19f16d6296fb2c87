"""What SparseBinaryMF refuses, in words."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

import jaxmf as mf
from jaxmf.variational_bayes import partial_newton
from tests.support.sparse_binary_setup import MODEL, fit, simulate


@pytest.fixture(scope="module")
def simulated():
    return simulate()


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit(MODEL, simulated[1], num_epochs=3)


@pytest.mark.parametrize(
    ("setting", "kind", "words"),
    [
        ({"num_factors": 0}, ValueError, "num_factors must be at least 1"),
        ({"num_factors": 2.0}, TypeError, "num_factors must be a whole number"),
        ({"likelihood": "probit"}, TypeError, "likelihood must be one of mf.Gaussian"),
        ({"zeros": 500}, TypeError, "zeros must be one of mf.Exact"),
        ({"zeros": mf.RowSample}, TypeError, "needs its number of samples"),
        ({"bias": "rows"}, ValueError, "bias must be one of 'none', 'intercept'"),
        ({"row_scale": None, "column_scale": None}, ValueError, "both None"),
        ({"row_scale": -1.0}, ValueError, "row_scale must be finite and positive"),
        ({"row_scale": "big"}, TypeError, "row_scale must be a number"),
        ({"column_mean": np.zeros(7)}, ValueError, "one for each of the 20 factors"),
        ({"column_scale": np.array([1.0] * 19 + [0.0])}, ValueError, r"column_scale\[19\]"),
        ({"intercept_scale": None}, TypeError, "intercept_scale must be a number"),
    ],
)
def test_settings_that_are_refused(setting, kind, words):
    with pytest.raises(kind, match=words):
        mf.SparseBinaryMF(**setting)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: mf.SharedSample(0), ValueError, "num_samples must be at least 1"),
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
        ({"start": "zeros"}, ValueError, "start must be one of 'svd', 'random'"),
        ({"update": "newton"}, ValueError, "update must be one of 'block'"),
        ({"optimizer": optax.sgd(0.1)}, ValueError, "block updates have none"),
        (
            {"optimizer": optax.sgd(0.1), "update": "partial_newton"},
            ValueError,
            "takes no curvature",
        ),
        (
            {"optimizer": optax.chain(optax.scale_by_adam()), "update": "partial_newton"},
            ValueError,
            "takes no curvature",
        ),
        ({"tolerance": 2.0}, ValueError, "tolerance must be finite, at least 0, below 1"),
        ({"relaxation": 2.0}, ValueError, "relaxation must be finite, above 0, below 2"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
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


def test_data_that_are_refused():
    with pytest.raises(ValueError, match="must hold 0 and 1 only"):
        fit(MODEL, np.full((3, 3), 2.0))
    with pytest.raises(TypeError, match="baskets"):
        fit(MODEL, [["milk"], ["bread", "milk"]])


def test_questions_that_are_refused(fitted):
    with pytest.raises(ValueError, match="by must be one of 'score'"):
        fitted.recommend(by="luck")
    with pytest.raises(ValueError, match="n must be at least 1"):
        fitted.recommend(n=0)
    with pytest.raises(ValueError, match="nobody"):
        fitted.recommend(["nobody"])
    with pytest.raises(ValueError, match="does not continue"):
        fitted.extend(num_samples=3)
    with pytest.raises(ValueError, match="no binary features"):
        fitted.cooccurrence()
    with pytest.raises(ValueError, match="SparseBinaryMF does not have features"):
        fitted.features()
    with pytest.raises(ValueError, match="needs binary features"):
        fitted.plot.cooccurrence()
    binary = mf.BinaryMF(row_prior=mf.IndianBuffet(1.0), column_prior=mf.IndianBuffet(1.0))
    with pytest.raises(ValueError, match="BinaryMF has no scores"):
        dataclasses.replace(fitted, model=binary).scores(([0], [0]))


def test_optimizers_that_take_the_curvature_are_taken():
    """A chain with the partial-Newton step, and a custom transformation."""

    def update(gradient, state, params=None, *, curvature, **others):
        return jax.tree.map(lambda g, h: -0.1 * g / h, gradient, curvature), state

    custom = optax.GradientTransformationExtraArgs(lambda params: (), update)
    flat = partial_newton(power=0.0)
    for optimizer in (optax.chain(flat, optax.scale(0.5)), custom):
        assert MODEL.ascent(update="partial_newton", optimizer=optimizer).step is not None
