"""Parallel tempering: its swaps, the chain at power 1, and runs with replicas."""

import dataclasses
import itertools
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jaxmf as mf
from jaxmf.engine import algorithm
from jaxmf.engine.executables import CACHE
from jaxmf.posterior import replicas
from jaxmf.preparation import with_device_options
from jaxmf.samplers.tempering import powers_of, swap_probabilities, swapped_order, tempered
from jaxmf.testing import check_kernel, check_means
from jaxmf.testing.kernels import in_batches
from tests import LONG_RUNS
from tests.models import test_linear_gaussian_enumeration as linear_gaussian
from tests.models import test_noisy_or_enumeration as noisy_or
from tests.samplers.test_annealed_smc import NOISE, NOISE_SCALES, noise_of_normal, normal_mean

POWERS = (1.0, 0.4, 0.1)
LOG_GAPS = np.log(np.diff(-np.log(POWERS)))
DONE = jnp.asarray(1.0)
ANSWERS = np.random.default_rng(3).random((20, 6)) < 0.3
# Of a mixture, which compiles soonest; replicas of the noisy-OR are run where they grow.
VALUES = ANSWERS.astype(float)
RUN = {"num_warmup": 20, "num_samples": 20, "num_chains": 2, "seed": 0, "progress": False}


def with_wrong_sign(model):
    """The twin: swaps are accepted the less, the better they are."""
    right = model.log_ratio
    return model._replace(log_ratio=Partial(lambda *arguments: -right(*arguments)))


def swap_matrix(model, parity):
    """(8, 8): probabilities of a swap between all settings of three replicas of two states."""
    settings = list(itertools.product(range(2), repeat=len(POWERS)))
    matrix = np.zeros((len(settings), len(settings)))
    for row, setting in enumerate(settings):
        states = NOISE_SCALES.astype(float)[jnp.array(setting)]
        accepted = swap_probabilities(model, states, None, jnp.array(POWERS))
        for flags in itertools.product((False, True), repeat=len(POWERS) - 1):
            proposed = np.arange(len(flags)) % 2 == parity
            if np.any(np.array(flags) & ~proposed):
                continue
            each = np.where(flags, accepted, 1 - accepted)[proposed]
            order = np.asarray(swapped_order(jnp.array(flags)))
            matrix[row, settings.index(tuple(np.array(setting)[order]))] += each.prod()
    return matrix


def check_swaps(model):
    exact = noise_of_normal()
    with jax.enable_x64(True):
        scales = NOISE_SCALES.astype(float)
        log_powered = np.array(
            [[float(exact.log_ratio(scale, 0.0, power)) for scale in scales] for power in POWERS]
        )
        posteriors = np.exp(log_powered) / np.exp(log_powered).sum(axis=1, keepdims=True)
        joint = [
            np.prod([posteriors[replica, state] for replica, state in enumerate(setting)])
            for setting in itertools.product(range(2), repeat=len(POWERS))
        ]
        for parity in (0, 1):
            matrix = swap_matrix(model, parity)
            np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
            np.testing.assert_allclose(joint @ matrix, joint, rtol=1e-12)


@pytest.mark.slow
def test_swaps_leave_the_product_of_the_powered_posteriors_invariant():
    check_swaps(noise_of_normal())


def test_swaps_of_the_wrong_sign_are_caught_by_the_exact_kernel():
    with pytest.raises(AssertionError):
        check_swaps(with_wrong_sign(noise_of_normal()))


def check_joint(model):
    """m ~ N(0, 1), x ~ N(m, NOISE^2); the other replicas are drawn given x at their powers."""
    plain = algorithm(
        init=lambda key, data: {"m": jnp.zeros(()), "slots": jnp.zeros(2)},
        step=lambda key, state, data, progress: model.step(key, state, data, jnp.ones(())),
        record=lambda key, state, data: {},
    )
    step = tempered(plain, model, num_replicas=3, side_by_side=True).step
    powers = jnp.array(POWERS[1:])
    precision = 1 + powers / NOISE**2

    def kernel(key, state, x):
        means = powers * x / NOISE**2 / precision
        m = jnp.concatenate([state["m"][:1], means + state["m"][1:] / jnp.sqrt(precision)])
        replicas = state["replicas"]._replace(states={"m": m, "slots": jnp.zeros((3, 2))})
        replicas, info = step(key, replicas, x, DONE)
        m = replicas.states["m"]
        others = (m[1:] - means) * jnp.sqrt(precision)
        return {"m": jnp.append(m[:1], others), "replicas": replicas}, info

    def sample_prior(key):
        start = tempered(plain, model, num_replicas=3, side_by_side=True).init(key, 0.0)
        gaps = jnp.asarray(LOG_GAPS, start.log_gaps.dtype)
        return {"m": jax.random.normal(key, (3,)), "replicas": start._replace(log_gaps=gaps)}

    def statistics(state, x):
        m = state["m"]
        return {"m": m[0], "m x": m[0] * x, "second": m[1], "third": m[2], "pair": m[1] * m[2]}

    return check_kernel(
        kernel,
        sample_prior=sample_prior,
        simulate=lambda key, state: state["m"][0] + NOISE * jax.random.normal(key),
        statistics=statistics,
        key=jax.random.key(5),
        num_steps=4,
        title="tempered chain",
    )


@pytest.mark.slow
def test_the_replica_at_power_one_is_a_chain_of_the_posterior():
    check_joint(normal_mean())


@pytest.mark.slow
def test_swaps_of_the_wrong_sign_are_caught_by_the_joint_distribution():
    with pytest.raises(AssertionError, match="tempered chain"):
        check_joint(with_wrong_sign(normal_mean()))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_tempered_chain_of_the_noisy_or_against_enumeration():
    case = noisy_or.Case()
    posterior = case.posterior()
    annealed = case.model.annealed(case.data, capacity=9)
    sampler = case.model.sampler(capacity=9)
    chains = tempered(sampler, annealed, num_replicas=3, side_by_side=True)

    def one_chain(key):
        replicas = chains.init(jax.random.fold_in(key, 2**20), case.data)
        replicas = replicas._replace(log_gaps=jnp.asarray(LOG_GAPS, replicas.log_gaps.dtype))

        def step(carry, index):
            replicas, overflow = carry
            step_key = jax.random.fold_in(key, index)
            replicas, info = chains.step(step_key, replicas, case.data, DONE)
            cold = jax.tree.map(lambda leaf: leaf[0], replicas.states)
            return (replicas, overflow | info.overflow["features"]), noisy_or.statistics(cold)

        (_, overflow), found = jax.lax.scan(step, (replicas, False), jnp.arange(60))
        return jax.tree.map(lambda values: values[30:].mean(axis=0), found), overflow

    run = jax.jit(jax.vmap(one_chain), compiler_options=LONG_RUNS)
    found, overflow = run(jax.random.split(jax.random.key(1), 600))
    assert not overflow.any()
    means = case.expectations(posterior)
    check_means(jax.device_get(found), means, title="tempered noisy-OR")


def check_missing_cells(*, redraws, num_chains=2_000):
    """Tempered linear-Gaussian chains with a missing cell, which exact draws of Z do not need."""
    case = linear_gaussian.FINITE
    path = case.model.annealed(case.data)
    chains = tempered(
        case.model.sampler(),
        path if redraws else path._replace(refresh=None),
        num_replicas=3,
        side_by_side=True,
    )

    def one_chain(key):
        replicas = chains.init(jax.random.fold_in(key, 2**20), case.data)
        wide = np.log(np.full(2, np.log(20)))  # powers so far apart that cells differ by much
        replicas = replicas._replace(log_gaps=jnp.asarray(wide, replicas.log_gaps.dtype))

        def step(replicas, index):
            step_key = jax.random.fold_in(key, index)
            replicas, _ = chains.step(step_key, replicas, case.data, DONE)
            cold = jax.tree.map(lambda leaf: leaf[0], replicas.states)
            return replicas, linear_gaussian.statistics(case.model, cold)

        _, found = jax.lax.scan(step, replicas, jnp.arange(160))
        return jax.tree.map(lambda values: values[40:].mean(axis=0), found)

    run = jax.jit(partial(in_batches, one_chain), compiler_options=LONG_RUNS)
    found = run(jax.random.split(jax.random.key(1), num_chains))
    means = case.posterior().expectations()
    check_means(jax.device_get(found), means, title="tempered, a cell missing")


@pytest.mark.slow
def test_a_tempered_chain_with_missing_cells_against_enumeration():
    check_missing_cells(redraws=True)


@pytest.mark.exhaustive
def test_missing_cells_that_keep_their_values_are_caught():
    with pytest.raises(AssertionError, match="a cell missing"):
        check_missing_cells(redraws=False, num_chains=500)


def test_powers_fall_from_one():
    np.testing.assert_allclose(powers_of(jnp.asarray(LOG_GAPS)), POWERS, rtol=1e-5)


@pytest.fixture(scope="module")
def run():
    with pytest.warns(mf.RunWarning):
        return mf.sample(mf.DPMixture(), VALUES, temper=3, **RUN)


@pytest.mark.slow
def test_a_run_says_how_its_replicas_did(run):
    facts = run.meta.run
    assert facts["temper"] == len(facts["powers"]) == len(facts["swap_acceptance"]) + 1 == 3
    assert facts["powers"][0] == 1
    assert np.all(np.diff(facts["powers"]) < 0)
    assert len(facts["round_trips"]) == 2
    assert "round_trips" in run.facts()


def test_a_stopped_run_with_replicas_resumes_bit_for_bit(run, tmp_path):
    def stop(report):
        if report.step >= 20:
            raise KeyboardInterrupt

    options = RUN | {"checkpoint": tmp_path, "checkpoint_seconds": 0.0}
    sample = partial(mf.sample, mf.DPMixture(), VALUES, temper=3)
    with warnings.catch_warnings():  # there is one where it stops after some draws
        warnings.simplefilter("ignore", mf.RunWarning)
        sample(**options | {"progress": stop})
    with pytest.warns(mf.RunWarning):
        resumed = sample(**options, resume=True)
    for name, values in run.draws.items():
        np.testing.assert_array_equal(resumed.draws[name], values)
    assert resumed.meta.run == run.meta.run


def test_a_run_like_another_compiles_nothing(run):
    """Before, what is fixed of the replicas compared unequal, and every run compiled anew."""
    before = CACHE.num_compilations
    with pytest.warns(mf.RunWarning):
        again = mf.sample(mf.DPMixture(), VALUES, temper=3, **RUN | {"seed": 1})
    assert CACHE.num_compilations == before
    assert not np.array_equal(again.draws["log_joint"], run.draws["log_joint"])


def test_a_saved_run_with_replicas_continues(run, tmp_path):
    run.save(tmp_path / "run")
    loaded = mf.load(tmp_path / "run").extend(num_samples=5)
    continued = run.extend(num_samples=5)
    np.testing.assert_array_equal(loaded.draws["x_location"], continued.draws["x_location"])
    assert loaded.meta.run == continued.meta.run
    assert loaded.meta.run["num_samples"] == 25


@pytest.mark.exhaustive
def test_replicas_grow_together():
    with pytest.warns(mf.RunWarning):
        run = mf.sample(mf.NoisyOrIBP(alpha=1.0), ANSWERS[:8], temper=2, capacity=6, **RUN)
    assert run.meta.capacity["features"] > 6


def test_no_round_trip_is_an_alarm(run):
    facts = dict(run.meta.run) | {"round_trips": [0, 0], "thin": 50}
    idle = dataclasses.replace(run, meta=dataclasses.replace(run.meta, run=facts))
    assert "round trips" in [alarm.kind for alarm in idle.alarms()]
    some = dataclasses.replace(idle.meta, run=facts | {"round_trips": [0, 1]})
    assert "round trips" not in [a.kind for a in dataclasses.replace(idle, meta=some).alarms()]


def test_missing_cells_are_refused_with_what_to_do():
    hidden = np.where(np.random.default_rng(0).random(ANSWERS.shape) < 0.1, np.nan, ANSWERS)
    with pytest.raises(ValueError, match=r'temper: weights: .*set weights="explicit"'):
        mf.sample(mf.BinaryMF(), hidden, temper=2, **RUN)


def with_options(model, data, **options):
    """The tempered algorithm of a run with these options, and that without replicas."""
    data = mf.Dense(data)
    filled = with_device_options(model, options, data, None)
    sampler = model.sampler(**filled)
    return replicas.with_replicas(sampler, model, data, filled, 2), sampler, data


@pytest.mark.parametrize("options", [{}, {"sweep": "bits"}, {"sweep": "whole_rows"}])
def test_replicas_of_large_data_treat_weights_as_the_sampler_does(options):
    """Before, with the sweep stated, the replicas alone kept the weights."""
    tempered_chain, sampler, data = with_options(mf.BinaryMF(), np.ones((400, 400)), **options)
    kept = jax.eval_shape(sampler.init, jax.random.key(0), data).weights is not None
    assert kept == (not options)
    start = jax.eval_shape(tempered_chain.init, jax.random.key(0), data)
    assert (start.states.weights is not None) == kept


def test_replicas_draw_whole_rows_where_the_sampler_does():
    model, data = mf.BinaryMF(), mf.Dense(ANSWERS.astype(float))
    limits = set()
    for sweep in ("bits", "whole_rows"):
        path = model.annealed(data, sweep=sweep, several=0, capacity=4)
        assert path.step.args[0].whole_rows == (sweep == "whole_rows")
        limits.add(path.limit(data)["row_features"].size)
    assert limits == {256, 12}
    with pytest.raises(ValueError, match=r"sweep='whole_rows' .* use sweep='bits'"):
        model.annealed(data, sweep="whole_rows", weights="explicit")


def test_slots_that_replicas_may_not_have_are_explained():
    tempered_chain, _, data = with_options(mf.BinaryMF(), ANSWERS * 1.0, sweep="whole_rows")
    limit = tempered_chain.limit(data)["row_features"]
    assert limit.size == 12
    assert "use sweep='bits'. Replicas at low powers" in limit.advice


class Stop(Exception):
    """Ends a run before it begins."""


def test_replicas_move_as_the_devices_of_the_mesh_want_it(monkeypatch):
    """All at once on accelerators, whatever device the data are on."""
    seen = []

    def refuse(*arguments, side_by_side, **options):
        seen.append(side_by_side)
        raise Stop

    platforms = {False: "cpu", True: "gpu"}
    monkeypatch.setattr(replicas, "platform_of", lambda data, mesh: platforms[mesh is not None])
    monkeypatch.setattr(replicas, "tempered", refuse)
    for mesh in (None, jax.sharding.Mesh(jax.devices()[:1], ("chain",))):
        with pytest.raises(Stop):
            mf.sample(mf.NoisyOrIBP(), ANSWERS, temper=2, mesh=mesh, **RUN)
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (mf.BPMF(2), {"temper": 3}, "BPMF cannot be run at powers of its likelihood"),
        (mf.NoisyOrIBP(), {"temper": 1}, "temper"),
    ],
)
def test_what_replicas_cannot_do_is_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        mf.sample(model, ANSWERS.astype(float), **options, **RUN)
