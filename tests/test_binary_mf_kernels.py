"""Joint-distribution tests of every kernel of binary matrix factorisation, and broken twins."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from jaxmf import BetaBernoulli, BinaryMF, IndianBuffet
from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.binary_mf import updates
from jaxmf.models.binary_mf.state import HYPERPARAMETERS
from jaxmf.samplers.bilinear import explicit
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.explicit import Side
from jaxmf.testing import check_kernel, check_prior

SHAPE = (4, 3)
OBSERVED = jnp.array(
    [[True, True, False], [False, True, True], [True, True, True], [True, False, True]]
)
PROCESS = {"row_prior": IndianBuffet(0.6, 1.4), "column_prior": IndianBuffet(0.7, 1.2)}
FINITE = {"row_prior": BetaBernoulli(1.2, 1.4, 2), "column_prior": BetaBernoulli(1.0, 1.2, 2)}
FREE = {
    "row_prior": IndianBuffet(dist.Gamma(20.0, 50.0), dist.Gamma(8.0, 6.0)),
    "column_prior": IndianBuffet(dist.Gamma(20.0, 45.0), 1.2),
}
FIXED = {
    "gaussian": {"noise_scale": 0.6, "weight_scale": 1.0, "weight_mean": 0.4},
    "logistic": {"weight_scale": 1.5, "weight_mean": 0.4},
    "poisson": {"weight_shape": 1.3, "weight_rate": 0.8, "base_rate": 0.4},
}
PRIORS = {
    "gaussian": {
        "noise_scale": dist.LogNormal(-0.5, 0.3),
        "weight_scale": dist.LogNormal(0.0, 0.3),
        "weight_mean": 0.4,
    },
    "logistic": {"weight_scale": dist.LogNormal(0.3, 0.3), "weight_mean": 0.4},
    "poisson": {
        "weight_shape": dist.LogNormal(0.3, 0.3),
        "weight_rate": dist.Gamma(8.0, 10.0),
        "base_rate": dist.Gamma(6.0, 15.0),
    },
}
KNOWN = {
    "row_bias": True,
    "fixed_column_features": jnp.array([[True], [False], [True]]),
}
# as many given features on both sides
BOTH = {"row_bias": True, "column_bias": True}
CAPACITY = 12
FAST_COMPILE = {"xla_backend_optimization_level": 0}  # the runs themselves are short


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: BinaryMF
    missing: bool = True
    collapsed: bool = False

    def sample_prior(self, key):
        """A state; without weights and with missing cells it holds a complete matrix, which the
        data will hide."""
        state_key, x_key = jax.random.split(key)
        state = self.model.simulate_state(state_key, *SHAPE, CAPACITY)
        if self.collapsed:
            x = self.model.simulate_data(x_key, state) if self.missing else None
            state = state._replace(weights=None, x=x)
        return state

    def simulate(self, key, state):
        if state.x is not None:
            return Dense(jnp.where(OBSERVED, state.x, 0), OBSERVED)
        weights_key, x_key = jax.random.split(key)
        if state.weights is None:
            prior = self.model.weight_prior(state)
            shape = state.u.shape[1], state.v.shape[1]
            state = state._replace(weights=prior.sample(weights_key, *shape))
        x = self.model.simulate_data(x_key, state)
        return Dense(jnp.where(OBSERVED, x, 0), OBSERVED) if self.missing else Dense(x)

    def statistics(self, state, data):
        u = state.u[:, self.model.num_fixed_rows() :].astype(float)
        v = state.v[:, self.model.num_fixed_columns() :].astype(float)
        x = data.values if state.x is None else state.x
        rows, columns = u @ u.T, v @ v.T
        found = {
            "row features": jnp.sum(jnp.any(u > 0, axis=0)),
            "column features": jnp.sum(jnp.any(v > 0, axis=0)),
            "bits of U": jnp.sum(u).astype(int),
            "bits of V": jnp.sum(v).astype(int),
            "rows 0, 1 share": rows[0, 1].astype(int),
            "columns 0, 2 share": columns[0, 2].astype(int),
            "features of one row": jnp.sum(jnp.sum(u, axis=0) == 1),
            "features of one column": jnp.sum(jnp.sum(v, axis=0) == 1),
            "shared times product": rows[0, 2] * x[0, 0] * x[2, 0],
            "columns times product": columns[1, 2] * x[2, 1] * x[2, 2],
            "bits times size": jnp.sum(jnp.diagonal(rows)[:, None] * x**2),
            "column bits times size": jnp.sum(jnp.diagonal(columns) * x**2),
        }
        if state.weights is not None:
            eta = state.u.astype(float) @ state.weights @ state.v.T.astype(float)
            found |= {
                "entry 0, 0": eta[0, 0],
                "entry 1, 0": eta[1, 0],
                "entries times data": jnp.sum(eta * x),
                "squares of entries": jnp.sum(eta**2),
                "weights": jnp.sum(state.weights),
                "squares of weights": jnp.sum(jnp.log1p(state.weights**2)),
            }
        if state.x is not None:
            found |= {
                "missing cell": x[0, 2],
                "missing times its row": x[0, 2] * x[0, 1] * rows[0, 0],
            }
        if jnp.ndim(self.model.weight_mean):  # slots are not alike
            through = u.T @ x @ v
            found |= {"slots 0, 1": through[0, 1], "slots 1, 0": through[1, 0]}
        for name in HYPERPARAMETERS:
            if hasattr(getattr(self.model, name), "log_prob"):
                value = getattr(state, name)
                found[name] = value
                found[f"{name} times bits"] = value * (jnp.sum(u) + jnp.sum(v))
                found[f"log {name} times size"] = jnp.log(value) * jnp.sum(x**2)
        return found

    def check(self, kernel, *, key=None, **options):
        return check_kernel(
            kernel,
            sample_prior=self.sample_prior,
            simulate=self.simulate,
            statistics=self.statistics,
            key=jax.random.key(31) if key is None else key,
            compiler_options=FAST_COMPILE,
            **options,
        )


def make(likelihood, *, priors=PROCESS, numbers=FIXED, **settings):
    return BinaryMF(likelihood=likelihood, **priors, **numbers[likelihood], **settings)


def whole_step(model, **options):
    step = model.sampler(**options).step
    return lambda key, state, data: step(key, state, data, jnp.asarray(1.0))


def move(model, name):
    """One of the moves of `samplers/bilinear/explicit.py`, on the rows."""

    def kernel(key, state, data):
        side = Side(state.u, state.v, state.weights, data.values, data.observed)
        settings = {
            "prior": model.row_law(state),
            "cells": model.cells(state),
            "num_fixed": model.num_fixed_rows(),
        }
        if name == "own":
            u, weights, overflow = explicit.draw_own(
                key,
                side,
                weight_prior=model.weight_prior(state),
                column_exists=model.column_exists(state),
                **settings,
            )
            return state._replace(u=u, weights=weights), Info(overflow={"row_features": overflow})
        function = {"bits": explicit.draw_bits, "several": explicit.draw_several}
        odds_key, move_key = jax.random.split(key)
        log_odds = explicit.feature_log_odds(odds_key, state.u, settings["prior"])
        u = function[name](move_key, side, log_odds, **settings)
        return state._replace(u=u), Info(overflow={})

    return kernel


@pytest.mark.slow
def test_the_whole_step_quickly():
    model = make("gaussian", priors=FREE, numbers=PRIORS, **KNOWN)
    Setup(model).check(whole_step(model, weights="explicit"), num_steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "logistic", "poisson"])
@pytest.mark.parametrize("name", ["bits", "several", "own"])
def test_a_move_alone(name, likelihood):
    model = make(likelihood, **KNOWN)
    Setup(model).check(move(model, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        make("gaussian"),
        make("gaussian", priors=FINITE, diagonal=True),
        make("logistic", priors=FINITE),
        make("logistic"),
        make("poisson"),
    ],
    ids=["gaussian", "diagonal", "logistic", "logistic by rows", "poisson"],
)
def test_the_update_of_weights_alone(model):
    Setup(model).check(partial(updates.update_weights, model))


@pytest.mark.slow
@pytest.mark.parametrize("collapsed", [False, True])
def test_the_update_of_hyperparameters_alone(collapsed):
    model = make("gaussian", priors=FREE, numbers=PRIORS, row_bias=True)
    Setup(model, False, collapsed).check(partial(updates.update_hyperparameters, model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "weight_rate", [dist.Gamma(8.0, 10.0), dist.LogNormal(-0.3, 0.4)], ids=["conjugate", "slice"]
)
def test_the_update_of_poisson_hyperparameters_alone(weight_rate):
    numbers = {"poisson": PRIORS["poisson"] | {"weight_rate": weight_rate}}
    model = make("poisson", numbers=numbers, **KNOWN)
    Setup(model).check(partial(updates.update_hyperparameters, model))


@pytest.mark.slow
def test_splits_and_merges_alone():
    """On both sides, weights summed out; a bias and a given feature stay as they are."""
    numbers = {"gaussian": {"noise_scale": 0.5, "weight_scale": 1.2, "weight_mean": 0.7}}
    model = make("gaussian", numbers=numbers, **KNOWN)
    kernel = partial(updates.split_or_merge, model, num_proposals=2)
    Setup(model, collapsed=True).check(kernel)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "weights"),
    [
        (make("gaussian", priors=FREE, numbers=PRIORS, **KNOWN), "collapsed"),
        (make("logistic", priors=FREE, numbers=PRIORS, **KNOWN), "explicit"),
        (make("poisson", priors=FREE, numbers=PRIORS, **KNOWN), "explicit"),
        (make("gaussian", priors=FINITE, diagonal=True), "explicit"),
        (make("gaussian", priors=FINITE, numbers=PRIORS, diagonal=True, **BOTH), "collapsed"),
    ],
    ids=["collapsed", "logistic", "poisson", "diagonal", "collapsed diagonal"],
)
def test_the_whole_step(model, weights):
    Setup(model, collapsed=weights == "collapsed").check(whole_step(model, weights=weights))


PRIOR_MEANS = jnp.array([[1.5, -2.0], [0.0, 0.7]])
MATRIX = {
    "gaussian": FIXED["gaussian"] | {"weight_mean": PRIOR_MEANS},
    "logistic": FIXED["logistic"] | {"weight_mean": PRIOR_MEANS},
}


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
    model = make(likelihood, priors=FINITE, numbers=MATRIX, diagonal=diagonal)
    Setup(model, collapsed=weights == "collapsed").check(whole_step(model, weights=weights))


@pytest.mark.slow
def test_weights_drawn_by_rows_with_a_matrix_of_prior_means(monkeypatch):
    monkeypatch.setattr(weight_moves, "MOST_PAIRS", 0)
    model = make("gaussian", priors=FINITE, numbers=MATRIX)
    Setup(model).check(partial(updates.update_weights, model))


@pytest.mark.slow
def test_a_prior_mean_of_the_wrong_slot_is_caught():
    """Columns drawn with the means of W in the place of those of W'."""
    model = make("gaussian", priors=FINITE, numbers=MATRIX)
    twin = make("gaussian", priors=FINITE, numbers=MATRIX)
    object.__setattr__(twin, "weight_mean", model.weight_mean.T)
    must_fail(
        Setup(model, collapsed=True), partial(updates.update_columns, twin), num_replicates=4_096
    )


@pytest.mark.slow
def test_the_whole_step_of_whole_rows():
    model = make("gaussian", priors=FINITE, numbers=PRIORS, **KNOWN)
    setup = Setup(model, collapsed=True)
    setup.check(whole_step(model, sweep="whole_rows"), num_steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "logistic"])
def test_the_prior_comes_back_with_the_likelihood_off(likelihood):
    """No cell is observed: everything follows its prior."""
    model = make(likelihood, priors=FREE, numbers=PRIORS)
    setup = Setup(model)
    nothing = Dense(jnp.zeros(SHAPE), jnp.ones(SHAPE, bool))
    leaves = [jnp.zeros(SHAPE), jnp.zeros(SHAPE, bool)]
    unseen = jax.tree_util.tree_unflatten(
        jax.tree_util.tree_structure(Dense(nothing.values, OBSERVED)), leaves
    )
    check_prior(
        whole_step(model, weights="explicit"),
        sample_prior=setup.sample_prior,
        data=unseen,
        statistics=setup.statistics,
        key=jax.random.key(34),
        compiler_options=FAST_COMPILE,
        num_steps=4,
    )


# --- broken twins: each must be seen -----------------------------------------------------------


def must_fail(setup, kernel, **options):
    with pytest.raises(AssertionError, match="FAILED") as caught:
        setup.check(kernel, **{"num_replicates": 2_048, **options})
    print(caught.value)


def test_columns_that_may_be_emptied_are_caught(monkeypatch):
    """Bits drawn without refusing a change that empties a column: features die out."""
    right = explicit.row_prior

    def twin(prior, counts, num_rows, *, num_fixed):
        law = right(prior, counts, num_rows, num_fixed=num_fixed)
        return law._replace(movable=jnp.ones_like(law.movable))

    monkeypatch.setattr(explicit, "row_prior", twin)
    model = make("logistic")
    must_fail(Setup(model), move(model, "several"))


@pytest.mark.slow
def test_own_weights_from_the_prior_are_caught(monkeypatch):
    """The rows of W of Gaussian own features drawn without looking at the row."""
    right = explicit._draw_sum

    def twin(fit, number, normal, mean, scales):
        nothing = fit._replace(cross=0 * fit.cross, values=0 * fit.values)
        return right(nothing, number, normal, mean, scales)

    monkeypatch.setattr(explicit, "_draw_sum", twin)
    model = make("gaussian")
    must_fail(Setup(model), move(model, "own"), num_steps=20, num_replicates=4_096)


@pytest.mark.slow
def test_proposals_that_are_always_accepted_are_caught(monkeypatch):
    """Own features of the logistic model from the prior, the likelihood forgotten."""
    monkeypatch.setattr(
        explicit.Cells, "rows", lambda self, x, eta, observed: jnp.zeros(x.shape[0])
    )
    model = make("logistic", row_bias=True)
    must_fail(Setup(model), move(model, "own"), num_steps=20, num_replicates=4_096)


@pytest.mark.slow
def test_precisions_that_are_not_drawn_are_caught(monkeypatch):
    """Logistic weights with a precision of 1/4, the bound of the logistic curvature."""
    monkeypatch.setattr(
        weight_moves, "polya_gamma", lambda key, z: jnp.full(z.shape, 0.25, z.dtype)
    )
    model = make("logistic", priors=FINITE)
    must_fail(Setup(model), partial(updates.update_weights, model), num_steps=6)


@pytest.mark.slow
def test_counts_given_to_one_feature_are_caught(monkeypatch):
    """Poisson counts that are not split: a pair gets the whole count of its cells."""

    def twin(key, u, v, weights, x, observed, base_rate):
        left = x if observed is None else jnp.where(observed, x, 0)
        return u.T @ left @ v

    monkeypatch.setattr(weight_moves, "_split_counts", twin)
    model = make("poisson")
    must_fail(Setup(model), partial(updates.update_weights, model))


@pytest.mark.slow
def test_a_base_rate_that_counts_missing_cells_is_caught():
    """Missing cells taken for observed zeros."""
    model = make("poisson", numbers=PRIORS)

    def twin(key, state, data):
        return updates.update_hyperparameters(model, key, state, Dense(data.values))

    must_fail(Setup(model), twin)
