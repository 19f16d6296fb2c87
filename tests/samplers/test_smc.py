"""The generic filter: evidence exact on average, ancestry, tempering, growth, bounded memory."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxmf.samplers import cloud as clouds
from jaxmf.samplers.cloud import combine_log_evidence, log_evidence_variance, trace_paths
from jaxmf.samplers.resampling import (
    multinomial,
    optimal,
    residual,
    stratified,
    systematic,
)
from jaxmf.samplers.smc import ParticleModel, particle_filter
from jaxmf.testing import check_filter
from tests import FAST_COMPILE

SCHEMES = [multinomial, stratified, systematic, residual]
NUM_RUNS = 10_000


def particle_model(**functions):
    return ParticleModel(**{n: None if f is None else Partial(f) for n, f in functions.items()})


# one run is nothing beside its compilation, ten thousand are as much
FAST_ENOUGH = {"xla_backend_optimization_level": 1}


class Rows(NamedTuple):
    """Observations (N,), with the one thing the filter asks of data."""

    values: jax.Array

    @property
    def num_rows(self):
        return self.values.shape[0]


def steps_of(algorithm, data, key, *, num_steps=None, start=0, cloud=None):
    """All steps in one scan: last cloud and the draws."""
    if cloud is None:
        cloud = algorithm.init(jax.random.fold_in(key, 2**31), data)
    num_steps = data.num_rows if num_steps is None else num_steps

    def one(cloud, step):
        step_key = jax.random.fold_in(key, step)
        cloud, info = algorithm.step(step_key, cloud, data, jnp.ones(()))
        return cloud, (algorithm.record(step_key, cloud, data), info.overflow)

    return jax.lax.scan(one, cloud, jnp.arange(start, num_steps))


run_filter = jax.jit(
    steps_of, static_argnames=("num_steps", "start"), compiler_options=FAST_COMPILE
)


def many_clouds(algorithm, data, keys):
    """The last clouds of independent runs."""

    def one(key):
        return steps_of(algorithm, data, key)[0]

    return jax.jit(jax.vmap(one), compiler_options=FAST_ENOUGH)(keys)


def check_evidence(algorithm, data, exact, *, key, num_steps=None):
    """The mean evidence of many runs is the exact one."""
    check_filter(
        lambda key: steps_of(algorithm, data, key, num_steps=num_steps)[0].log_evidence,
        exact,
        num_runs=NUM_RUNS,
        key=key,
        compiler_options=FAST_ENOUGH,
    )


# --- a finite hidden Markov model ---------------------------------------------------------------

INITIAL = np.array([0.6, 0.3, 0.1])
TRANSITION = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
EMISSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.0, 0.2, 0.8]])
OBSERVED = np.array([0, 1, 1, 2, 2, 0, 1])


def hmm_log_evidence(num_rows=len(OBSERVED)):
    forward = INITIAL * EMISSION[:, OBSERVED[0]]
    for value in OBSERVED[1:num_rows]:
        forward = (forward @ TRANSITION) * EMISSION[:, value]
    return np.log(forward.sum())


class Walker(NamedTuple):
    before: jax.Array
    state: jax.Array


def prior_of(particle, row):
    moved = jnp.log(jnp.asarray(TRANSITION, jnp.result_type(float)))[particle.state]
    return jnp.where(row == 0, jnp.log(jnp.asarray(INITIAL, moved.dtype)), moved)


def hmm_model(*, enumerate_children=False, rejuvenates=True, twice=False):
    log_emission = np.log(np.maximum(EMISSION, 1e-300))
    log_emission[EMISSION == 0] = -np.inf

    def emitted(data, row):
        return jnp.asarray(log_emission, jnp.result_type(float))[:, data.values[row]]

    def init(key, data):
        zero = jnp.zeros((), jnp.int32)
        return Walker(zero, zero)

    def propose(key, particle, data, row):
        log_prior, log_likelihood = prior_of(particle, row), emitted(data, row)
        if enumerate_children:
            return jnp.arange(3, dtype=jnp.int32), log_prior + log_likelihood, {}
        child = jax.random.categorical(key, log_prior).astype(jnp.int32)
        weight = log_likelihood[child] * (2 if twice else 1)
        return child[None], weight[None], {}

    def extend(key, particle, choice, data, row):
        return Walker(particle.state, choice), {}

    def rejuvenate(key, particle, data, row):
        log_conditional = prior_of(Walker(particle.before, particle.before), row)
        drawn = jax.random.categorical(key, log_conditional + emitted(data, row))
        return Walker(particle.before, drawn.astype(jnp.int32)), {}

    return particle_model(
        init=init,
        propose=propose,
        extend=extend,
        keep=lambda particle: {"state": particle.state},
        rejuvenate=rejuvenate if rejuvenates else None,
    )


HMM_DATA = Rows(jnp.asarray(OBSERVED))


@pytest.mark.tiers(exhaustive=["multinomial", "residual", "stratified"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda f: f.__name__)
def test_hmm_evidence(scheme):
    algorithm = particle_filter(hmm_model(), num_particles=8, resample_fn=scheme)
    check_evidence(algorithm, HMM_DATA, hmm_log_evidence(), key=jax.random.key(1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", [1, 2])
def test_hmm_evidence_with_rejuvenation(every):
    algorithm = particle_filter(
        hmm_model(), num_particles=6, ess_threshold=0.7, rejuvenate_every=every
    )
    check_evidence(algorithm, HMM_DATA, hmm_log_evidence(), key=jax.random.key(2))


@pytest.mark.tiers(exhaustive=["optimal"])
@pytest.mark.parametrize("scheme", [optimal, systematic], ids=lambda f: f.__name__)
def test_hmm_evidence_with_enumerated_children(scheme):
    algorithm = particle_filter(
        hmm_model(enumerate_children=True), num_particles=2, resample_fn=scheme
    )
    check_evidence(algorithm, HMM_DATA, hmm_log_evidence(), key=jax.random.key(3))


def test_optimal_with_room_for_all_children_is_exact():
    # 3^4 histories fit in the cloud: the filter is the forward algorithm.
    data = Rows(jnp.asarray(OBSERVED[:4]))
    algorithm = particle_filter(
        hmm_model(enumerate_children=True), num_particles=81, resample_fn=optimal
    )
    cloud, _ = run_filter(algorithm, data, jax.random.key(0))
    assert float(cloud.log_evidence) == pytest.approx(hmm_log_evidence(4), abs=1e-5)
    # the weights that averages use stay uneven, and their effective number is recorded
    share = np.asarray(jax.nn.softmax(cloud.log_weights))
    assert float(cloud.effective_size) == pytest.approx(1 / np.sum(share**2), rel=1e-4)
    assert float(cloud.effective_size) < 40


def test_effective_size_of_enumerated_children_is_that_of_their_parents():
    algorithm = particle_filter(hmm_model(enumerate_children=True), num_particles=2)
    weights = jnp.log(jnp.array([[0.5, 0.25, 0.0], [0.25, 0.0, 0.0]]))
    options = {"resample_fn": systematic, "trigger_fn": lambda weights: jnp.ones((), bool)}

    @jax.jit
    def weighed(key):
        cloud = algorithm.init(key, HMM_DATA)
        return clouds.weigh(cloud, key, jnp.zeros((2, 3), jnp.int32), weights, **options)[0]

    cloud = weighed(jax.random.key(0))
    assert float(cloud.effective_size) == pytest.approx(1 / (0.75**2 + 0.25**2))
    assert not cloud.log_weights.any()


def keeps_the_weights(key, log_weights, num):
    ancestors, _ = systematic(key, log_weights, num)
    return ancestors, log_weights[ancestors]


@pytest.mark.slow
def test_weights_counted_twice_are_caught():
    algorithm = particle_filter(hmm_model(twice=True), num_particles=8)
    with pytest.raises(AssertionError):
        check_evidence(algorithm, HMM_DATA, hmm_log_evidence(), key=jax.random.key(1))


# --- a linear-Gaussian state space model --------------------------------------------------------

DRIFT, MOVE_SCALE, NOISE_SCALE = 0.95, 0.7, 0.4
SERIES = np.array([0.3, -0.2, 1.1, 0.9, 2.0, 2.6, 1.5, 0.4, -0.6])


def gaussian_log_evidence():
    """By the covariance of the whole series."""
    num = len(SERIES)
    covariance = np.zeros((num, num))
    for i in range(num):
        for j in range(num):
            shared = min(i, j)
            covariance[i, j] = MOVE_SCALE**2 * sum(
                DRIFT ** (i - s + j - s) for s in range(shared + 1)
            )
    covariance += NOISE_SCALE**2 * np.eye(num)
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (log_determinant + SERIES @ np.linalg.solve(covariance, SERIES))


def log_normal(x, mean, scale):
    return -0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)


class Point(NamedTuple):
    before: jax.Array
    position: jax.Array


def gaussian_model():
    def init(key, data):
        return Point(jnp.zeros(()), jnp.zeros(()))

    def propose(key, particle, data, row):
        child = DRIFT * particle.position + MOVE_SCALE * jax.random.normal(key)
        return child[None], log_normal(data.values[row], child, NOISE_SCALE)[None], {}

    def extend(key, particle, choice, data, row):
        return Point(particle.position, choice), {}

    def rejuvenate(key, particle, data, row):
        precision = MOVE_SCALE**-2 + NOISE_SCALE**-2
        mean = (
            DRIFT * particle.before / MOVE_SCALE**2 + data.values[row] / NOISE_SCALE**2
        ) / precision
        drawn = mean + jax.random.normal(key) / jnp.sqrt(precision)
        return particle._replace(position=drawn), {}

    return particle_model(init=init, propose=propose, extend=extend, rejuvenate=rejuvenate)


def check_gaussian(**options):
    data = Rows(jnp.asarray(SERIES, jnp.result_type(float)))
    algorithm = particle_filter(gaussian_model(), num_particles=20, **options)
    check_evidence(algorithm, data, gaussian_log_evidence(), key=jax.random.key(5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", [multinomial, residual], ids=lambda f: f.__name__)
def test_gaussian_evidence(scheme):
    check_gaussian(resample_fn=scheme)


@pytest.mark.slow
def test_gaussian_evidence_with_rejuvenation():
    check_gaussian(rejuvenate_every=2, ess_threshold=0.8)


def test_weights_not_reset_are_caught():
    with pytest.raises(AssertionError):
        check_gaussian(resample_fn=keeps_the_weights, ess_threshold=1.0)


# --- tempering ----------------------------------------------------------------------------------


class Tempered(NamedTuple):
    position: jax.Array
    power: jax.Array


def tempered_model(num_tempering):
    """Rows seen at a tenth of their weight, then tempered up: x ~ N(0, 1), values ~ N(x, 1)."""

    def log_likelihood(position, value):
        return log_normal(value, position, 1.0)

    def init(key, data):
        return Tempered(jax.random.normal(key), jnp.full((), 0.1))

    def propose(key, particle, data, row):
        weight = particle.power * log_likelihood(particle.position, data.values[row])
        return jnp.zeros((1,)), weight[None], {}

    def extend(key, particle, choice, data, row):
        return particle, {}

    def temper(key, particle, data, step):
        total = jnp.sum(log_likelihood(particle.position, data.values))
        power = jnp.minimum(0.1 + 0.9 * (step + 1.0) / num_tempering, 1.0)
        return particle._replace(power=power), (power - particle.power) * total

    def rejuvenate(key, particle, data, row):
        seen = jnp.arange(data.num_rows) <= row
        precision = 1 + particle.power * jnp.sum(seen)
        mean = particle.power * jnp.sum(jnp.where(seen, data.values, 0.0)) / precision
        return particle._replace(position=mean + jax.random.normal(key) / jnp.sqrt(precision)), {}

    return particle_model(
        init=init, propose=propose, extend=extend, temper=temper, rejuvenate=rejuvenate
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", [0, 2])
def test_tempering_reaches_the_evidence(every):
    values = np.array([1.5, 2.5, 1.0, 2.0])
    covariance = np.ones((4, 4)) + np.eye(4)
    exact = -0.5 * (
        np.linalg.slogdet(2 * np.pi * covariance)[1] + values @ np.linalg.solve(covariance, values)
    )
    algorithm = particle_filter(tempered_model(5), num_particles=30, rejuvenate_every=every)
    data = Rows(jnp.asarray(values, jnp.result_type(float)))
    check_evidence(algorithm, data, exact, key=jax.random.key(6), num_steps=4 + 5)


# --- structure ----------------------------------------------------------------------------------


def test_one_particle_is_the_prior():
    algorithm = particle_filter(hmm_model(), num_particles=1, ess_threshold=0.0)
    keys = jax.random.split(jax.random.key(3), 20_000)
    last = many_clouds(algorithm, HMM_DATA, keys).particles.state[:, 0]
    prior = INITIAL @ np.linalg.matrix_power(TRANSITION, len(OBSERVED) - 1)
    counts = np.bincount(np.asarray(last), minlength=3)
    z = (counts - 20_000 * prior) / np.sqrt(20_000 * prior * (1 - prior))
    assert np.max(np.abs(z)) < 5.5


def test_history_is_the_brute_force_trace():
    algorithm = particle_filter(hmm_model(), num_particles=16)
    _, (draws, _) = run_filter(algorithm, HMM_DATA, jax.random.key(8))
    state, ancestor = np.asarray(draws["state"]), np.asarray(draws["ancestor"])
    traced, _ = trace_paths({"state": state}, ancestor)
    paths = np.zeros((16, len(OBSERVED)), int)
    for particle in range(16):
        index = particle
        for row in range(len(OBSERVED) - 1, -1, -1):
            paths[particle, row] = state[row, index]
            index = ancestor[row, index]
    np.testing.assert_array_equal(traced["state"], paths)


def test_filtered_marginals():
    # Runs pooled by their evidence: the distribution of the last state given all rows.
    algorithm = particle_filter(hmm_model(), num_particles=64)
    keys = jax.random.split(jax.random.key(9), 2000)
    found = many_clouds(algorithm, HMM_DATA, keys)
    weights = np.exp(
        np.asarray(found.log_weights) + np.asarray(found.log_evidence)[:, None], dtype=float
    )
    states = np.asarray(found.particles.state)
    estimate = np.array([(weights * (states == k)).sum() for k in range(3)]) / weights.sum()
    forward = INITIAL * EMISSION[:, OBSERVED[0]]
    for value in OBSERVED[1:]:
        forward = (forward @ TRANSITION) * EMISSION[:, value]
    np.testing.assert_allclose(estimate, forward / forward.sum(), atol=0.006)


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_of_particles_change_nothing(batch_size):
    run = partial(run_filter, data=HMM_DATA, key=jax.random.key(1))
    whole, _ = run(particle_filter(hmm_model(), num_particles=10, rejuvenate_every=2))
    pieces, _ = run(
        particle_filter(hmm_model(), num_particles=10, rejuvenate_every=2, batch_size=batch_size)
    )
    np.testing.assert_array_equal(whole.particles.state, pieces.particles.state)
    np.testing.assert_allclose(whole.log_evidence, pieces.log_evidence, rtol=1e-6)


@pytest.mark.slow
def test_cut_and_continued_is_the_whole():
    algorithm = particle_filter(hmm_model(), num_particles=10)
    key = jax.random.key(4)
    whole, _ = run_filter(algorithm, HMM_DATA, key)
    part, _ = run_filter(algorithm, HMM_DATA, key, num_steps=3)
    rest, _ = run_filter(algorithm, HMM_DATA, key, start=3, cloud=part)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(rest), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_vmapped_filters_agree_with_single_ones():
    algorithm = particle_filter(hmm_model(), num_particles=10, rejuvenate_every=3)
    keys = jax.random.split(jax.random.key(4), 3)
    together = many_clouds(algorithm, HMM_DATA, keys)
    for run in range(3):
        alone, _ = run_filter(algorithm, HMM_DATA, keys[run])
        np.testing.assert_array_equal(together.particles.state[run], alone.particles.state)
        np.testing.assert_array_equal(together.num_resampled[run], alone.num_resampled)


def test_all_weights_zero_is_said():
    # State 2 never emits 0; a chain that starts and stays there cannot explain the first row.
    model = hmm_model(rejuvenates=False)

    def propose(key, particle, data, row):
        return jnp.zeros((1,), jnp.int32), jnp.full((1,), -jnp.inf), {}

    algorithm = particle_filter(model._replace(propose=Partial(propose)), num_particles=5)
    cloud, _ = run_filter(algorithm, HMM_DATA, jax.random.key(0))
    assert float(cloud.log_evidence) == -np.inf
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(cloud))


def test_growth_keeps_the_cloud():
    model = particle_model(
        init=lambda key, data: {"slots": jnp.zeros(2)},
        propose=lambda key, particle, data, row: (jnp.zeros(1), jnp.zeros(1), {}),
        extend=lambda key, particle, choice, data, row: (
            {"slots": particle["slots"] + 1},
            {"features": row >= 3},
        ),
        keep=lambda particle: {"slots": particle["slots"]},
        grow=lambda particle, sizes: {
            "slots": jnp.pad(particle["slots"], (0, sizes["features"] - particle["slots"].size))
        },
        capacity=lambda particle: {"features": particle["slots"].shape[0]},
    )
    algorithm = particle_filter(model, num_particles=3)
    cloud, (_, overflow) = run_filter(algorithm, HMM_DATA, jax.random.key(0), num_steps=5)
    np.testing.assert_array_equal(overflow["features"], [False, False, False, True, True])
    assert algorithm.capacity(cloud) == {"features": 2}
    grown = algorithm.grow(cloud, {"features": 4})
    assert algorithm.capacity(grown) == {"features": 4}
    np.testing.assert_array_equal(grown.particles["slots"][:, :2], cloud.particles["slots"])
    assert np.all(np.asarray(grown.particles["slots"][:, 2:]) == 0)


def test_long_sums_keep_their_digits():
    """The log evidence is a sum over rows, here without its last digits 2e-5 off."""
    zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
    start = clouds.Cloud(
        particles=(),
        log_weights=jnp.zeros(1, jnp.float32),
        log_evidence=zero,
        log_evidence_excess=zero,
        ancestor=jnp.zeros(1, jnp.int32),
        eve=jnp.zeros(1, jnp.int32),
        num_resampled=none,
        row=none,
        num_tempered=none,
        effective_size=zero,
    )

    def weigh(cloud, increment):
        options = {"resample_fn": systematic, "trigger_fn": lambda _: jnp.zeros((), bool)}
        weighed, _ = clouds.weigh(cloud, jax.random.key(0), None, increment[None, None], **options)
        return weighed, None

    increments = np.full(20_000, -51.2345678, np.float32)
    last, _ = jax.jit(lambda xs: jax.lax.scan(weigh, start, xs))(increments)
    assert float(last.log_evidence) == pytest.approx(increments.astype(float).sum(), rel=2e-7)


@pytest.mark.slow
def test_variance_of_the_log_evidence():
    algorithm = particle_filter(
        hmm_model(), num_particles=128, resample_fn=multinomial, ess_threshold=1.0
    )
    keys = jax.random.split(jax.random.key(12), 3000)
    found = many_clouds(algorithm, HMM_DATA, keys)
    estimates = np.asarray(jax.vmap(log_evidence_variance)(found), float)
    ratios = np.exp(np.asarray(found.log_evidence, float) - hmm_log_evidence())
    # The estimate times the squared evidence is unbiased for the variance of the evidence.
    estimate = (estimates * ratios**2).mean()
    spread = ratios.var() * np.sqrt((((ratios - 1) ** 2 / ratios.var()) ** 2).mean() / len(ratios))
    noise = np.hypot(spread, (estimates * ratios**2).std() / np.sqrt(len(ratios)))
    assert abs(estimate - ratios.var()) < 5 * noise
    assert noise < 0.05 * ratios.var()


def test_variance_between_runs():
    rng = np.random.default_rng(0)
    runs = np.log(rng.gamma(50.0, 1 / 50.0, size=4000)) - 700.0
    value, variance = combine_log_evidence(runs)
    assert value == pytest.approx(-700.0, abs=0.01)
    assert variance == pytest.approx(1 / 50 / 4000, rel=0.1)
    assert np.isnan(combine_log_evidence([1.0])[1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_particles": 0}, "num_particles"),
        ({"num_particles": 4, "ess_threshold": 1.5}, "ess_threshold"),
        ({"num_particles": 4, "rejuvenate_every": -1}, "rejuvenate_every"),
        ({"num_particles": 4, "batch_size": 0}, "batch_size"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        particle_filter(hmm_model(), **options)


def test_rejuvenation_needs_a_move():
    with pytest.raises(ValueError, match="no rejuvenate move"):
        particle_filter(hmm_model(rejuvenates=False), num_particles=4, rejuvenate_every=1)


def test_optimal_needs_children():
    algorithm = particle_filter(hmm_model(), num_particles=4, resample_fn=optimal)
    with pytest.raises(ValueError, match="enumerate"):
        run_filter(algorithm, HMM_DATA, jax.random.key(0))


def test_a_child_that_could_not_be_weighed_is_said_even_if_it_is_not_chosen():
    model = particle_model(
        init=lambda key, data: {"slots": jnp.zeros(2)},
        propose=lambda key, particle, data, row: (
            jnp.arange(2.0),
            jnp.array([0.0, -jnp.inf]),
            {"features": row == 1},
        ),
        extend=lambda key, particle, choice, data, row: (particle, {"features": choice > 0}),
    )
    algorithm = particle_filter(model, num_particles=3, resample_fn=optimal)
    _, (_, overflow) = run_filter(algorithm, HMM_DATA, jax.random.key(0), num_steps=3)
    np.testing.assert_array_equal(overflow["features"], [False, True, False])
