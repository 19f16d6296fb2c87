"""Joint-distribution tests of every kernel of the noisy-OR model, and broken twins."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.likelihoods.noisy_or import NoisyOrParameters
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.noisy_or.noisy_or_spec import HYPERPARAMETERS
from jaxmf.models.noisy_or.updates import (
    move_features,
    propose,
    target_of,
    update_features,
    update_hyperparameters,
)
from jaxmf.samplers.noisy_or import informed, moves, parallel
from jaxmf.samplers.noisy_or import sweep as sequential
from jaxmf.testing import check_prior
from tests import FAST_COMPILE, LONG_RUNS
from tests.support.containers import without_cells
from tests.support.joint_checks import check_setup

NUM_ROWS, NUM_COLUMNS = 4, 3
OBSERVED = jnp.array(
    [[True, True, True], [False, True, True], [True, True, False], [True, False, True]]
)
PRIORS = {
    "alpha": dist.Gamma(10.0, 15.0),
    "concentration": dist.Gamma(8.0, 6.0),
    "cause_probability": dist.Beta(4.0, 6.0),
    "efficacy": dist.Beta(8.0, 3.0),
    "leak": dist.Uniform(0.02, 0.4),
}
FIXED = {"alpha": 0.7, "cause_probability": 0.4, "efficacy": 0.8, "leak": 0.1}
CAPACITY = 16
LONGER = {"num_replicates": 4_096, "num_steps": 20, "compiler_options": LONG_RUNS}


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: NoisyOrIBP
    missing: bool = True
    capacity: int = CAPACITY

    def sample_prior(self, key):
        z_key, hyper_key = jax.random.split(key)
        num_slots = self.model.num_features or self.capacity
        return self.model.simulate_state(z_key, hyper_key, (NUM_ROWS, NUM_COLUMNS), num_slots)[0]

    def simulate(self, key, state):
        """Missing cells hold the value that they would have; it must not be used."""
        x = self.model.simulate_data(key, state)
        return Dense(x, OBSERVED) if self.missing else Dense(x)

    def statistics(self, state, data):
        z, y, x = state.z.astype(float), state.y.astype(float), data.values
        if data.observed is not None:
            x = jnp.where(data.observed, x, 0)
        shared, products, eta = z @ z.T, x @ x.T, z @ y
        found = {
            "number of causes": jnp.sum(jnp.any(state.z, axis=0)),
            "number of bits": jnp.sum(z).astype(int),
            "shared 0, 1": shared[0, 1].astype(int),
            "causes of one row": jnp.sum(jnp.sum(z, axis=0) == 1),
            "shared by all": jnp.sum(jnp.all(state.z, axis=0)),
            "active": jnp.sum(y).astype(int),
            "active cell": eta[0, 0].astype(int),
            "active missing cell": eta[1, 0].astype(int),
            "twice active": jnp.sum(eta == 2),
            "activity times data": jnp.sum(eta * x).astype(int),
            "shared times product": (shared[0, 2] * products[0, 2]).astype(int),
            "bits times ones": jnp.sum(jnp.diagonal(shared) * jnp.diagonal(products)).astype(int),
            "pairs of causes": jnp.sum((z.T @ z) * (y @ y.T)).astype(int),
        }
        for name in HYPERPARAMETERS:
            if getattr(self.model, name) is PRIORS[name]:
                value = getattr(state, name)
                found[name] = value
                found[f"{name} times bits"] = value * jnp.sum(z)
                found[f"{name} times activity"] = value * jnp.sum(y)
                found[f"log {name} times ones"] = jnp.log(value) * jnp.sum(x)
        return found

    check = check_setup


def step_kernel(model, **options):
    step = model.sampler(**options).step
    return lambda key, state, data: step(key, state, data, jnp.asarray(1.0))


def alone(kernel, model):
    """One kernel of `moves` or one part of a sweep as a kernel of the model."""

    def apply(key, state, data):
        target = target_of(model, state, data, None)
        z, y, overflow = kernel(key, state.z, state.y, target)
        return state._replace(z=z, y=y), Info(overflow={"features": overflow})

    return apply


def activity_alone(key, z, y, target):
    active = target.prior.exists(jnp.sum(z, axis=0))
    y = sequential.draw_activity(key, z, y, target, active=active)
    return z, y, jnp.zeros((), bool)


@pytest.mark.slow
def test_the_whole_step_quickly():
    model = NoisyOrIBP(**PRIORS)
    Setup(model).check(step_kernel(model), key=jax.random.key(31), num_steps=2)


def test_two_columns_have_the_likelihood_with_their_activity_summed_out():
    """Against the sums of the blind moves, and kept up to date row by row."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        z, y = jnp.asarray(rng.random((6, 4)) < 0.5), jnp.asarray(rng.random((4, 5)) < 0.5)
        x, observed = jnp.asarray((rng.random((6, 5)) < 0.5) * 1.0), rng.random((6, 5)) < 0.8
        values = {name: FIXED[name] for name in ("cause_probability", "efficacy", "leak")}
        parameters = NoisyOrParameters(
            **{name: jnp.asarray(value) for name, value in values.items()}
        )

        @jax.jit
        def compared(z, y, x, observed, parameters):
            """Pairs that must be equal."""
            rest, first, second = z.at[:, :2].set(False), z[:, 0], z[:, 1]
            pair = moves.CausePair(first | second, first, second)
            activity = moves.activity_log_weights(rest, y, x, observed, pair, parameters)

            columns = informed.NoisyOrColumns(y, x, observed, parameters)
            fixed = columns.start(rest)
            statistics = columns.at(fixed, z[:, :2].astype(float))
            whole = columns.at(fixed, jnp.stack([first | second, 0 * first], axis=1).astype(float))
            ratio = columns.log_likelihood(fixed, statistics) - columns.log_likelihood(fixed, whole)
            difference = jax.nn.logsumexp(activity.parts, 0) - jax.nn.logsumexp(activity.whole, 0)
            blind = jnp.sum(difference + parameters.log_inactive)

            settings = jnp.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])

            def of_row(row):
                now = z[row, :2].astype(float)
                candidates = columns.log_likelihoods(fixed, statistics, row, now, settings)

                def of_setting(setting):
                    moved = columns.change(fixed, statistics, row, now, setting)
                    anew = columns.at(fixed, z[:, :2].astype(float).at[row].set(setting))
                    return moved, anew, columns.log_likelihood(fixed, anew)

                moved, anew, likelihoods = jax.vmap(of_setting)(settings)
                return (moved, anew), (candidates, likelihoods)

            sums = (columns.log_weights(statistics), activity.parts), (ratio, blind)
            return sums, jax.vmap(of_row)(jnp.arange(2))

        for pairs in compared(z, y, x, jnp.asarray(observed), parameters):
            for found, expected in pairs:
                jax.tree.map(assert_close, found, expected)


assert_close = partial(np.testing.assert_allclose, rtol=0, atol=1e-12)


@pytest.mark.tiers(exhaustive=["activity", "birth-death", "informed", "rows", "together"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel",
    [
        sequential.sweep_rows,
        activity_alone,
        moves.split_or_merge,
        moves.birth_or_death,
        parallel.noisy_or_parallel_sweep,
        partial(moves.repeat_moves, num_moves=2, kernels=(informed.split_or_merge,)),
        partial(sequential.sweep_rows, bits_together=True),
    ],
    ids=["rows", "activity", "split-merge", "birth-death", "parallel", "informed", "together"],
)
def test_a_kernel_alone(kernel):
    model = NoisyOrIBP(concentration=1.4, **FIXED)
    Setup(model).check(alone(kernel, model), key=jax.random.key(32), num_steps=5)


def test_a_parallel_sweep_says_how_many_slots_it_is_short_of():
    model = NoisyOrIBP(concentration=1.4, **(FIXED | {"alpha": 2.0}))
    setup = Setup(model, missing=False)
    data = Dense(jax.random.bernoulli(jax.random.key(0), 0.5, (20, NUM_COLUMNS)).astype(float))

    def sweep(num_slots, starts=None):
        state = setup.sample_prior(jax.random.key(1))
        state = state._replace(
            z=jnp.zeros((20, num_slots), bool), y=jnp.zeros((num_slots, NUM_COLUMNS), bool)
        )
        target = target_of(model, state, data, None)
        key = jax.random.key(2)
        z, _, shortage = parallel.noisy_or_parallel_sweep(
            key, state.z, state.y, target, starts=starts
        )
        return jnp.sum(jnp.any(z, axis=0)), shortage

    few, many, over, start = jax.jit(
        lambda starts: (sweep(4), sweep(16), sweep(4, ~starts), sweep(4, starts))
    )(jnp.asarray(True))
    assert many[1] == 0
    assert few[1] == over[1] == many[0] - 4 > 0
    assert start[1] == 0  # while a chain begins, rows have new causes as far as there are slots
    assert 0 < start[0] <= 4


@pytest.mark.tiers(exhaustive=["parallel", "sequential"])
@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
def test_a_sweep_of_the_finite_model(sweep):
    model = NoisyOrIBP(concentration=1.4, num_features=4, **FIXED)
    Setup(model).check(partial(update_features, model, sweep=sweep), key=jax.random.key(33))


@pytest.mark.tiers(exhaustive=["{'num_features': 4}", "{}"])
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"num_features": 4}], ids=str)
def test_the_update_of_hyperparameters_alone(settings):
    model = NoisyOrIBP(**PRIORS, **settings)
    Setup(model).check(partial(update_hyperparameters, model), key=jax.random.key(34))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_moves_alone_and_the_whole_step_in_parallel():
    model = NoisyOrIBP(**FIXED)
    Setup(model, False).check(
        partial(move_features, model, num_moves=6), key=jax.random.key(35), num_steps=5
    )
    model = NoisyOrIBP(**PRIORS)
    Setup(model).check(step_kernel(model, sweep="parallel"), key=jax.random.key(36))


@pytest.mark.tiers(exhaustive=["parallel", "sequential"])
@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
def test_the_prior_comes_back_with_the_likelihood_off(sweep):
    """No cell is observed: causes, their activity and hyperparameters follow their prior."""
    model = NoisyOrIBP(**PRIORS)
    setup = Setup(model)
    check_prior(
        step_kernel(model, sweep=sweep),
        sample_prior=setup.sample_prior,
        data=without_cells((NUM_ROWS, NUM_COLUMNS), 1.0),
        statistics=setup.statistics,
        key=jax.random.key(37),
        compiler_options=FAST_COMPILE,
        num_steps=5,
    )


# --- broken twins: each must be seen -----------------------------------------------------------


def must_fail(setup, kernel, **options):
    """`num_steps` is larger for faults that show only after a while."""
    with pytest.raises(AssertionError, match="FAILED") as caught:
        setup.check(kernel, key=jax.random.key(38), **{"num_replicates": 2_048, **options})
    print(caught.value)


@pytest.mark.exhaustive
def test_forgetting_singletons_is_caught(monkeypatch):
    """The causes of this row alone dropped before its bits are drawn, their count forgotten."""
    right = sequential.scan_bits

    def twin(*args, num_singletons, **options):
        return right(*args, num_singletons=jnp.zeros_like(num_singletons), **options)

    monkeypatch.setattr(sequential, "scan_bits", twin)
    model = NoisyOrIBP(alpha=1.0, cause_probability=0.5, efficacy=0.95, leak=0.05)
    must_fail(Setup(model, False, 20), alone(sequential.noisy_or_sweep, model), **LONGER)


@pytest.mark.slow
def test_new_activity_from_the_prior_is_caught(monkeypatch):
    """New rows of Y not given the row they are for."""

    def twin(eta, cells, parameters, unseen):
        return jnp.broadcast_to(parameters.log_odds, eta.shape)

    monkeypatch.setattr(sequential.noisy_or, "unseen_log_odds", twin)
    model = NoisyOrIBP(**FIXED)
    must_fail(Setup(model, False), alone(sequential.sweep_rows, model), num_steps=5)


@pytest.mark.slow
def test_a_split_without_the_number_of_ways_is_caught(monkeypatch):
    """Acceptance as if there were one way to share out the rows of a cause."""
    right = moves.log_split_ratio

    def twin(pair, *args, **options):
        return right(pair, *args, **options) - jnp.sum(pair.whole) * jnp.log(3.0)

    monkeypatch.setattr(moves, "log_split_ratio", twin)
    model = NoisyOrIBP(**FIXED)
    must_fail(Setup(model, False), alone(moves.split_or_merge, model), **LONGER)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_birth_that_forgets_its_siblings_is_caught(monkeypatch):
    """Acceptance without the count of causes of one row alone."""
    right = moves.log_birth_ratio

    def twin(eta, cells, num_siblings, **options):
        return right(eta, cells, jnp.ones_like(num_siblings), **options)

    monkeypatch.setattr(moves, "log_birth_ratio", twin)
    model = NoisyOrIBP(**FIXED | {"alpha": 2.0})
    must_fail(Setup(model, False, 24), alone(moves.birth_or_death, model), **LONGER)


@pytest.mark.exhaustive
def test_an_informed_split_with_a_row_of_both_causes_counted_twice_is_caught(monkeypatch):
    """Both causes active in a cell as if the second gained what the first does."""
    right = informed.NoisyOrColumns.start

    def twin(self, rest):
        gains = right(self, rest)
        return gains._replace(two=2 * gains.one)

    monkeypatch.setattr(informed.NoisyOrColumns, "start", twin)
    model = NoisyOrIBP(**FIXED | {"alpha": 1.0})
    kernel = alone(
        partial(moves.repeat_moves, num_moves=2, kernels=(informed.split_or_merge,)), model
    )
    must_fail(Setup(model, False, 20), kernel, **LONGER)


@pytest.mark.exhaustive
def test_informed_splits_and_merges_of_the_finite_model():
    model = NoisyOrIBP(concentration=1.4, num_features=4, **FIXED)

    def kernel(key, state, data):
        return propose(model, informed.split_or_merge, key, state, 2, data=data)[:2]

    Setup(model).check(kernel, key=jax.random.key(39), num_steps=5)
