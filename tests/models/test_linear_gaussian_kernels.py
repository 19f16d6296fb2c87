"""Joint-distribution tests of every Gibbs kernel of the linear-Gaussian model, and broken twins."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods.spectrum import marginal_change
from jaxmf.models.linear_gaussian import LinearGaussianIBP, updates
from jaxmf.models.linear_gaussian.state import complete
from jaxmf.models.linear_gaussian.updates import update_features, update_hyperparameters
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers import collapsed_sweep as collapsed
from jaxmf.samplers import parallel_sweep as parallel
from jaxmf.samplers.feature_layout import num_features
from jaxmf.testing import check_prior
from tests import FAST_COMPILE, LONG_RUNS
from tests.support.containers import without_cells
from tests.support.joint_checks import check_setup

NUM_ROWS, NUM_COLUMNS = 4, 2
OBSERVED = jnp.array([[True, True], [False, True], [True, True], [True, False]])
PRIORS = {
    "alpha": dist.Gamma(10.0, 15.0),
    "concentration": dist.Gamma(8.0, 6.0),
    "noise_scale": dist.LogNormal(-0.5, 0.3),
    "feature_scale": dist.LogNormal(0.0, 0.3),
}
FIXED = {"alpha": 0.7, "noise_scale": 0.6, "feature_scale": 1.0}
FEW = {**FIXED, "alpha": 0.3}
CAPACITY = 16
WHOLE_ROW_CAPACITY = 8
LONGER = {"num_replicates": 4_096, "num_steps": 20, "compiler_options": LONG_RUNS}


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: LinearGaussianIBP
    missing: bool = True
    capacity: int = CAPACITY

    def sample_prior(self, key):
        """A state; with missing cells it holds a complete matrix, which the data will hide."""
        z_key, hyper_key, x_key = jax.random.split(key, 3)
        num_slots = self.model.num_features or self.capacity
        shape = NUM_ROWS, NUM_COLUMNS
        state, _ = self.model.simulate_state(z_key, hyper_key, shape, num_slots)
        x = self.model.simulate_data(x_key, state, NUM_COLUMNS) if self.missing else None
        return state._replace(x=x)

    def simulate(self, key, state):
        if self.missing:
            return Dense(jnp.where(OBSERVED, state.x, 0), OBSERVED)
        return Dense(self.model.simulate_data(key, state, NUM_COLUMNS))

    def statistics(self, state, data):
        z = state.z[:, self.model.first_slot() :].astype(float)
        x = complete(state, data)
        shared, products = z @ z.T, x @ x.T
        found = {
            "number of features": num_features(state.z[:, self.model.first_slot() :]),
            "number of bits": jnp.sum(z).astype(int),
            "shared 0, 1": shared[0, 1].astype(int),
            "shared 2, 3": shared[2, 3].astype(int),
            "features of one row": jnp.sum(jnp.sum(z, axis=0) == 1),
            "shared by all": jnp.sum(jnp.all(z > 0, axis=0)),
            "shared times product": shared[0, 2] * products[0, 2],
            "bits times size": jnp.sum(jnp.diagonal(shared) * jnp.diagonal(products)),
            "size": jnp.sum(x**2),
        }
        if self.missing:
            found["missing cell"] = x[1, 0]
            found["missing times its row"] = x[1, 0] * x[1, 1] * shared[1, 1]
            found["missing times its column"] = x[1, 0] * x[0, 0]
            found["missing times shared column"] = x[3, 1] * x[2, 1] * shared[3, 2]
        for name in PRIORS:
            if getattr(self.model, name) is PRIORS[name]:
                value = getattr(state, name)
                found[name] = value
                found[f"{name} times bits"] = value * jnp.sum(z)
                found[f"log {name} times size"] = jnp.log(value) * jnp.sum(data.values**2)
        return found

    check = check_setup


def sweep_kernel(model, sweep):
    return partial(update_features, model, sweep=sweep)


def step_kernel(model, sweep):
    step = model.sampler(sweep=sweep, anneal=False).step
    return lambda key, state, data: step(key, state, data, jnp.asarray(1.0))


@pytest.mark.tiers(exhaustive=["collapsed-False", "collapsed-True", "parallel-True"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweep", "missing"),
    [("collapsed", False), ("collapsed", True), ("parallel", True), ("whole_rows", True)],
)
def test_a_sweep_alone(sweep, missing):
    few = sweep == "whole_rows"
    model = LinearGaussianIBP(concentration=1.4, bias=not few, **(FEW if few else FIXED))
    setup = Setup(model, missing, WHOLE_ROW_CAPACITY if few else CAPACITY)
    setup.check(sweep_kernel(model, sweep), key=jax.random.key(19))


@pytest.mark.tiers(exhaustive=["parallel", "whole_rows"])
@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["collapsed", "parallel", "whole_rows"])
def test_a_sweep_of_the_finite_model(sweep):
    model = LinearGaussianIBP(concentration=1.4, num_features=4, **FIXED)
    Setup(model).check(sweep_kernel(model, sweep), key=jax.random.key(20))


@pytest.mark.tiers(exhaustive=["{'bias': True}", "{'num_features': 4}"])
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"bias": True}, {"num_features": 4}], ids=str)
def test_the_update_of_hyperparameters_alone(settings):
    model = LinearGaussianIBP(**PRIORS, **settings)
    setup = Setup(model, missing=False)
    setup.check(partial(update_hyperparameters, model), key=jax.random.key(21))


@pytest.mark.slow
def test_the_whole_step_quickly():
    model = LinearGaussianIBP(**PRIORS, bias=True)
    Setup(model).check(step_kernel(model, "collapsed"), key=jax.random.key(22), num_steps=2)


@pytest.mark.slow
def test_the_whole_step_in_parallel():
    model = LinearGaussianIBP(**PRIORS)
    Setup(model).check(step_kernel(model, "parallel"), key=jax.random.key(23))


@pytest.mark.tiers(exhaustive=["collapsed", "parallel"])
@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["collapsed", "parallel"])
def test_the_prior_comes_back_with_the_likelihood_off(sweep):
    """No cell is observed: features, cells and hyperparameters follow their prior."""
    model = LinearGaussianIBP(**PRIORS)
    setup = Setup(model)
    check_prior(
        step_kernel(model, sweep),
        sample_prior=setup.sample_prior,
        data=without_cells((NUM_ROWS, NUM_COLUMNS)),
        statistics=setup.statistics,
        key=jax.random.key(24),
        compiler_options=FAST_COMPILE,
        num_steps=5,
    )


# --- broken twins: each must be seen -----------------------------------------------------------


class WrongRate(IndianBuffet):
    """New features at rate alpha in place of alpha / N."""

    def new_rate(self, num_rows):
        return jnp.asarray(self.alpha)


class RowItselfCounted(IndianBuffet):
    """Odds m / (N - m) with the row itself among the N."""

    def log_odds(self, counts_without_row, num_rows):
        return super().log_odds(counts_without_row, num_rows + 1)


def wrong_prior(twin, sweep):
    model = LinearGaussianIBP(**(FEW if sweep == "whole_rows" else FIXED))

    def kernel(key, state, data):
        sweep_fn = parallel.parallel_sweep
        if sweep != "parallel":
            sweep_fn = partial(collapsed.collapsed_sweep, whole_rows=sweep == "whole_rows")
        z, x, overflow = sweep_fn(
            key,
            state.z,
            complete(state, data),
            data.observed,
            prior=twin(state.alpha, state.concentration),
            scales=collapsed.Scales(noise=state.noise_scale, feature=state.feature_scale),
        )
        return state._replace(z=z, x=x), Info(overflow={"features": overflow})

    return model, kernel


def must_fail(setup, kernel, **options):
    """`num_steps` is larger for faults that show only after a while."""
    options = {"num_replicates": 2_048, **options}
    with pytest.raises(AssertionError, match="FAILED") as caught:
        setup.check(kernel, key=jax.random.key(25), **options)
    print(caught.value)


@pytest.mark.slow
def test_a_wrong_rate_of_new_features_is_caught():
    model, kernel = wrong_prior(WrongRate, "collapsed")
    must_fail(Setup(model, capacity=20), kernel)


@pytest.mark.tiers(exhaustive=["RowItselfCounted-collapsed", "WrongRate-parallel"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "sweep"),
    [
        (RowItselfCounted, "collapsed"),
        (WrongRate, "parallel"),
        (RowItselfCounted, "whole_rows"),
    ],
)
def test_wrong_conditionals_of_the_prior_are_caught(twin, sweep):
    model, kernel = wrong_prior(twin, sweep)
    must_fail(Setup(model, capacity=9 if sweep == "whole_rows" else 20), kernel)


@pytest.mark.exhaustive
def test_forgetting_the_singletons_is_caught(monkeypatch):
    """Features of this row alone dropped before its bits are drawn, their count forgotten."""
    right = collapsed.draw_bits

    def twin(draws, fit, conditional, *, num_singletons, scales):
        return right(
            draws, fit, conditional, num_singletons=jnp.zeros_like(num_singletons), scales=scales
        )

    monkeypatch.setattr(collapsed, "draw_bits", twin)
    model = LinearGaussianIBP(alpha=1.0, noise_scale=0.3, feature_scale=1.0)
    must_fail(Setup(model, False, 20), sweep_kernel(model, "collapsed"), **LONGER)


@pytest.mark.slow
def test_cells_imputed_without_their_features_are_caught(monkeypatch):
    """Missing cells drawn from their prior, not given the row's features."""
    right = collapsed.draw_cells

    def twin(normals, setting, mean, scales):
        return right(normals, setting, jnp.zeros_like(mean), scales)

    monkeypatch.setattr(collapsed, "draw_cells", twin)
    model = LinearGaussianIBP(**FIXED)
    must_fail(Setup(model), sweep_kernel(model, "collapsed"))


@pytest.mark.slow
def test_a_parallel_sweep_without_drawn_probabilities_is_caught(monkeypatch):
    """All rows at once with collapsed odds, as if the rows were independent given the counts."""

    def twin(key, prior, counts, num_rows):
        return prior.log_odds(counts, num_rows + 1)

    monkeypatch.setattr(parallel, "draw_log_odds", twin)
    model = LinearGaussianIBP(**FIXED)
    must_fail(Setup(model, False), sweep_kernel(model, "parallel"), **LONGER)


@pytest.mark.slow
def test_a_wrong_likelihood_of_the_scales_is_caught(monkeypatch):
    """The determinant of the covariance counted once, not once a column."""
    right = marginal_change

    def twin(statistics, before, after):
        ratio = (after[0] / after[1]) ** 2
        extra = jnp.sum(jnp.log1p(statistics.eigenvalues / ratio))
        return right(statistics, before, after) + 0.5 * extra

    monkeypatch.setattr(updates, "marginal_change", twin)
    model = LinearGaussianIBP(**PRIORS)
    must_fail(Setup(model, missing=False), partial(update_hyperparameters, model))
