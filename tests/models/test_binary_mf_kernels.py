"""Joint-distribution tests of every kernel of binary matrix factorisation, and broken twins."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.models.binary_mf import chain, updates
from jaxmf.models.binary_mf.hyperparameters import update_hyperparameters
from jaxmf.samplers.bilinear import explicit, singletons
from jaxmf.samplers.bilinear import weights as weight_moves
from jaxmf.samplers.bilinear.side import BilinearSide
from jaxmf.testing import check_prior
from tests import FAST_COMPILE, LONG_RUNS
from tests.support.binary_mf_setups import (
    BOTH,
    CAPACITY,
    FINITE,
    FREE,
    KNOWN,
    OBSERVED,
    PRIORS,
    SHAPE,
    Setup,
    make,
    must_fail,
    whole_step,
)
from tests.support.containers import without_cells

LONGER = {"num_replicates": 4_096, "num_steps": 20, "compiler_options": LONG_RUNS}


def move(model, name):
    """One of the moves of `samplers/bilinear/explicit.py`, on the rows."""

    def kernel(key, state, data):
        side = BilinearSide(state.u, state.v, state.weights, data.values, data.observed)
        settings = {
            "prior": model.row_prior_at(state),
            "likelihood": model.likelihood_at(state),
            "num_fixed": model.num_fixed_rows(),
        }
        if name == "singletons":
            u, weights, overflow = singletons.draw_singletons(
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
    model = make("gaussian", priors=FREE, hyperparameters=PRIORS, **KNOWN)
    Setup(model).check(whole_step(model, weights="explicit"), num_steps=1)


@pytest.mark.tiers(
    exhaustive=[
        "bits-gaussian",
        "bits-logistic",
        "bits-poisson",
        "several-gaussian",
        "several-logistic",
        "several-poisson",
        "singletons-gaussian",
        "singletons-logistic",
        "singletons-poisson",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "logistic", "poisson"])
@pytest.mark.parametrize("name", ["bits", "several", "singletons"])
def test_a_move_alone(name, likelihood):
    model = make(likelihood, **KNOWN)
    Setup(model).check(move(model, name))


@pytest.mark.tiers(exhaustive=["diagonal", "gaussian", "logistic by rows", "poisson"])
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


@pytest.mark.tiers(exhaustive=["False", "True"])
@pytest.mark.slow
@pytest.mark.parametrize("collapsed", [False, True])
def test_the_update_of_hyperparameters_alone(collapsed):
    model = make("gaussian", priors=FREE, hyperparameters=PRIORS, row_bias=True)
    Setup(model, False, collapsed).check(partial(update_hyperparameters, model))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "weight_rate", [dist.Gamma(8.0, 10.0), dist.LogNormal(-0.3, 0.4)], ids=["conjugate", "slice"]
)
def test_the_update_of_poisson_hyperparameters_alone(weight_rate):
    hyperparameters = {"poisson": PRIORS["poisson"] | {"weight_rate": weight_rate}}
    model = make("poisson", hyperparameters=hyperparameters, **KNOWN)
    Setup(model).check(partial(update_hyperparameters, model))


@pytest.mark.tiers(
    exhaustive=["collapsed", "collapsed diagonal", "diagonal", "logistic", "poisson"]
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "weights"),
    [
        (make("gaussian", priors=FREE, hyperparameters=PRIORS, **KNOWN), "collapsed"),
        (make("logistic", priors=FREE, hyperparameters=PRIORS, **KNOWN), "explicit"),
        (make("poisson", priors=FREE, hyperparameters=PRIORS, **KNOWN), "explicit"),
        (make("gaussian", priors=FINITE, diagonal=True), "explicit"),
        (
            make("gaussian", priors=FINITE, hyperparameters=PRIORS, diagonal=True, **BOTH),
            "collapsed",
        ),
    ],
    ids=["collapsed", "logistic", "poisson", "diagonal", "collapsed diagonal"],
)
def test_the_whole_step(model, weights):
    Setup(model, collapsed=weights == "collapsed").check(whole_step(model, weights=weights))


@pytest.mark.exhaustive
def test_the_whole_step_of_whole_rows():
    model = make("gaussian", priors=FINITE, hyperparameters=PRIORS, **KNOWN)
    setup = Setup(model, collapsed=True)
    setup.check(whole_step(model, sweep="whole_rows"), num_steps=2)


@pytest.mark.tiers(exhaustive=["gaussian", "logistic"])
@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "logistic"])
def test_the_prior_comes_back_with_the_likelihood_off(likelihood):
    """No cell is observed: everything follows its prior."""
    model = make(likelihood, priors=FREE, hyperparameters=PRIORS)
    setup = Setup(model)
    check_prior(
        whole_step(model, weights="explicit"),
        sample_prior=setup.sample_prior,
        data=without_cells(SHAPE),
        statistics=setup.statistics,
        key=jax.random.key(34),
        compiler_options=FAST_COMPILE,
        num_steps=4,
    )


# --- broken twins: each must be seen -----------------------------------------------------------


@pytest.mark.slow
def test_columns_that_may_be_emptied_are_caught(monkeypatch):
    """Bits drawn without refusing a change that empties a column: features die out."""
    right = explicit.row_prior

    def twin(prior, counts, num_rows, *, num_fixed):
        distribution = right(prior, counts, num_rows, num_fixed=num_fixed)
        return distribution._replace(movable=jnp.ones_like(distribution.movable))

    monkeypatch.setattr(explicit, "row_prior", twin)
    model = make("logistic")
    must_fail(Setup(model), move(model, "several"))


@pytest.mark.exhaustive
def test_singleton_weights_from_the_prior_are_caught(monkeypatch):
    """The rows of W of Gaussian singletons drawn without looking at the row."""
    right = singletons._draw_sum

    def twin(fit, num_new, normal, mean, scales):
        nothing = fit._replace(cross=0 * fit.cross, values=0 * fit.values)
        return right(nothing, num_new, normal, mean, scales)

    monkeypatch.setattr(singletons, "_draw_sum", twin)
    model = make("gaussian")
    must_fail(Setup(model), move(model, "singletons"), **LONGER)


@pytest.mark.slow
def test_proposals_that_are_always_accepted_are_caught(monkeypatch):
    """Features of one row alone of the logistic model from the prior, the likelihood forgotten."""
    monkeypatch.setattr(
        Bernoulli, "log_kernel_of_rows", lambda self, x, eta, observed: jnp.zeros(x.shape[0])
    )
    model = make("logistic", row_bias=True)
    must_fail(Setup(model), move(model, "singletons"), **LONGER)


@pytest.mark.slow
def test_precisions_that_are_not_drawn_are_caught(monkeypatch):
    """Logistic weights with a precision of 1/4, the bound of the logistic curvature."""
    monkeypatch.setattr(
        weight_moves, "polya_gamma", lambda key, z: jnp.full(z.shape, 0.25, z.dtype)
    )
    model = make("logistic", priors=FINITE)
    must_fail(Setup(model), partial(updates.update_weights, model), num_steps=6)


@pytest.mark.exhaustive
def test_counts_given_to_one_feature_are_caught(monkeypatch):
    """Poisson counts that are not split: a pair gets the whole count of its cells."""

    def twin(key, u, v, weights, x, observed, base_rate):
        left = x if observed is None else jnp.where(observed, x, 0)
        return u.T @ left @ v

    monkeypatch.setattr(weight_moves, "_split_counts", twin)
    model = make("poisson")
    must_fail(Setup(model), partial(updates.update_weights, model))


@pytest.mark.exhaustive
def test_a_base_rate_that_counts_missing_cells_is_caught():
    """Missing cells taken for observed zeros."""
    model = make("poisson", hyperparameters=PRIORS)

    def twin(key, state, data):
        return update_hyperparameters(model, key, state, Dense(data.values))

    must_fail(Setup(model), twin)


class TemperedSetup(Setup):
    """Gaussian cells to a power below one: p(noise) p(U, V) times the power of N(x; U W V', noise).

    As densities of cells with noise over the root of the power, and of the noise under another
    prior: the power of N(x; m, s^2) is N(x; m, s^2 / power) times s^(1 - power). Cells that are
    missing have no factor.
    """

    def wide(self, state):
        return state._replace(noise_scale=state.noise_scale * NOISE_FACTOR)

    def sample_prior(self, key):
        power = (1 - 1 / NOISE_FACTOR**2) * jnp.sum(OBSERVED)
        prior = self.model.likelihood.noise_scale
        tilted = dist.LogNormal(prior.loc + power * prior.scale**2, prior.scale)
        model = replace(self.model, likelihood=mf.Gaussian(tilted))
        state = Setup(model, self.missing, collapsed=False).sample_prior(key)
        if not self.collapsed:
            return state
        x = model.simulate_data(jax.random.fold_in(key, 1), self.wide(state))
        return state._replace(weights=None, x=x)

    def simulate(self, key, state):
        return super().simulate(key, self.wide(state))


NOISE_FACTOR = 1.8


def tempered_kernel(model, *, collapsed, **options):
    plan = chain.BinaryMFPlan(
        row_slots=CAPACITY,
        column_slots=CAPACITY,
        collapsed=collapsed,
        whole_rows=False,
        anneal=True,
        several=1,
        **options,
    )

    def kernel(key, state, data):
        factor = jnp.asarray(NOISE_FACTOR)
        powers = {"noise_factor": factor, "is_of_scales": True}
        return chain.tempered_step(plan, model, key, state, data, **powers)

    return kernel


@pytest.mark.tiers(exhaustive=["explicit"])
@pytest.mark.slow
@pytest.mark.parametrize("collapsed", [True, False], ids=["collapsed", "explicit"])
def test_a_step_of_the_annealing_leaves_its_tempered_density_invariant(collapsed):
    model = make("gaussian", priors=FINITE, hyperparameters=PRIORS)
    kernel = tempered_kernel(model, collapsed=collapsed, split_merge=int(not collapsed))
    TemperedSetup(model, True, collapsed).check(kernel, key=jax.random.key(32))


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["power one", "missing cells counted"])
def test_annealed_missing_cells_in_the_noise_are_caught(monkeypatch, fault):
    """Imputed under the noise of the sweeps, they used to raise the noise scale."""
    right = chain.update_hyperparameters

    def twin(model, key, state, data, *, power):
        if fault == "power one":
            return right(model, key, state, data)
        return right(model, key, state, Dense(state.x), power=power)

    monkeypatch.setattr(chain, "update_hyperparameters", twin)
    model = make("gaussian", priors=FINITE, hyperparameters=PRIORS)
    must_fail(TemperedSetup(model, True, True), tempered_kernel(model, collapsed=True))
