"""Annealed sequential Monte Carlo: on a normal mean with closed forms, and against enumeration."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import jaxmf as mf
from jaxmf import annealed as verb
from jaxmf.engine import GrowthWarning, Info, NonFiniteError
from jaxmf.engine.bound import Failure
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import log_density, power_change
from jaxmf.models.linear_gaussian import annealed as linear_gaussian_annealed
from jaxmf.models.linear_gaussian import updates as linear_gaussian_updates
from jaxmf.posterior.evidence import annealed_evidence, annealing_fault
from jaxmf.samplers import annealed_smc as annealed_smc_module
from jaxmf.samplers.annealed_smc import (
    annealed_model,
    annealed_smc,
    log_ratio_of_powers,
    rising_powers,
)
from jaxmf.testing import check_means
from tests import LONG_RUNS
from tests.models import test_linear_gaussian_enumeration as linear_gaussian
from tests.models import test_noisy_or_enumeration as noisy_or
from tests.support import oracles

POWERS = np.array([0.05, 0.3, 1.0])
NOISE = 0.4
X = 1.3
NOISE_SCALES = jnp.array([0.1, 2.0])
REST = {"record": lambda key, state, data: {}, "limit": lambda data: {}}
EXACT = scipy.stats.norm.logpdf(X, 0, np.hypot(1, NOISE))


def log_power_constant(noise_scale, power):
    """log of N(x; m, s^2)^power over N(x; m, s^2 / power)."""
    each = (1 - power) * (jnp.log(2 * jnp.pi) + 2 * jnp.log(noise_scale)) - jnp.log(power)
    return 0.5 * each


def normal_mean(*, keep=0.5, fault=None):
    """m ~ N(0, 1), x ~ N(m, NOISE^2); a step mixes the old m with an exact draw at the power."""

    def init(key, data, sizes):
        size = 2 if sizes is None else sizes["slots"]
        m = jax.random.normal(key)
        return {"m": m, "slots": jnp.zeros(size)}, {"slots": (m > 2.0) & (size < 4)}

    def step(key, state, data, power):
        if fault == "power":
            power = jnp.ones_like(power)
        precision = 1 + power / NOISE**2
        fresh = power * data / NOISE**2 / precision
        noise = jax.random.normal(key) * jnp.sqrt((1 - keep**2) / precision)
        m = fresh + keep * (state["m"] - fresh) + noise
        return state | {"m": m}, Info({"slots": jnp.zeros((), bool)})

    def measure(state, data):
        return jax.scipy.stats.norm.logpdf(data, state["m"], NOISE)

    return annealed_model(
        init=init,
        step=step,
        measure=measure,
        log_ratio=log_ratio_of_powers,
        grow=lambda state, sizes: state | {"slots": jnp.zeros(sizes["slots"])},
        capacity=lambda state: {"slots": state["slots"].shape[-1]},
        **REST,
    )


def noise_of_normal(*, fault=None):
    """The noise scale is one of two, m is summed out; a step draws the scale given the data."""

    def log_powered(scale, power):
        safe = jnp.where(power > 0, power, 1)
        value = jax.scipy.stats.norm.logpdf(X, 0, jnp.sqrt(1 + scale**2 / safe))
        return jnp.where(power > 0, value + log_power_constant(scale, safe), 0)

    def init(key, data, sizes):
        return jax.random.choice(key, NOISE_SCALES), {}

    def step(key, state, data, power):
        log_weights = log_powered(NOISE_SCALES, power)
        if fault == "constant":
            log_weights -= log_power_constant(NOISE_SCALES, power)
        return NOISE_SCALES[jax.random.categorical(key, log_weights)], Info({})

    return annealed_model(
        init=init,
        step=step,
        measure=lambda state, data: state,
        log_ratio=lambda scale, low, high: log_powered(scale, high) - log_powered(scale, low),
        grow=lambda state, sizes: state,
        capacity=lambda state: {},
        **REST,
    )


def many_runs(algorithm, data, *, num_steps, num_runs, seed=0, compiler_options=None):
    """The last generations of many runs, their traces, and whether any ran out of slots."""

    def one_run(key):
        def step(carry, index):
            state, overflow = carry
            state, info = algorithm.step(jax.random.fold_in(key, index), state, data, 1.0)
            for needed in info.overflow.values():
                overflow = overflow | needed
            return (state, overflow), algorithm.record(key, state, data)

        start = algorithm.init(key, data), jnp.zeros((), bool)
        (state, overflow), trace = jax.lax.scan(step, start, jnp.arange(num_steps))
        return state, trace, overflow

    keys = jax.random.split(jax.random.key(seed), num_runs)
    run = jax.jit(jax.vmap(one_run), compiler_options=compiler_options)
    state, trace, overflow = jax.device_get(run(keys))
    return state, trace, overflow.any()


def runs_of(model, *, num_runs=10_000, num_particles=24, chain_length=4):
    algorithm = annealed_smc(
        model, num_particles=num_particles, chain_length=chain_length, powers=POWERS
    )
    state, trace, _ = many_runs(algorithm, jnp.asarray(X), num_steps=4, num_runs=num_runs)
    return state, trace


def check_evidence(trace, exact, **expectations):
    """The mean of the ratios of estimates to the evidence is one, over all runs."""
    ratio = np.exp(trace["log_evidence"][:, -1].astype(float) - exact)
    weighted = {name: ratio * found for name, (found, _) in expectations.items()}
    means = {name: mean for name, (_, mean) in expectations.items()}
    samples = {"evidence": ratio} | weighted
    check_means(samples, {"evidence": 1.0} | means, title="annealed evidence")


def mean_of_normal(state):
    """Found and exact mean and square of m under the posterior."""
    m = state.particles["m"].astype(float)
    precision = 1 + 1 / NOISE**2
    mean = X / NOISE**2 / precision
    square = mean**2 + 1 / precision
    return {"mean": (m.mean(axis=1), mean), "square": ((m**2).mean(axis=1), square)}


@pytest.mark.slow
def test_the_evidence_of_fixed_powers_is_unbiased_and_so_are_weighted_means():
    state, trace = runs_of(normal_mean())
    check_evidence(trace, EXACT, **mean_of_normal(state))


@pytest.mark.slow
def test_a_move_at_the_wrong_power_is_caught():
    state, trace = runs_of(normal_mean(fault="power"))
    with pytest.raises(AssertionError, match="evidence"):
        check_evidence(trace, EXACT, **mean_of_normal(state))


def check_noise(fault=None):
    state, trace = runs_of(noise_of_normal(fault=fault))
    density = scipy.stats.norm.pdf(X, 0, np.sqrt(1 + np.asarray(NOISE_SCALES, float) ** 2))
    is_small = (state.particles < 1).mean(axis=1)
    probability = density[0] / density.sum()
    check_evidence(trace, np.log(density.mean()), small=(is_small, probability))


@pytest.mark.slow
def test_the_evidence_is_unbiased_where_parameters_are_summed_out():
    check_noise()


@pytest.mark.exhaustive
def test_a_noise_scale_drawn_without_the_constant_of_the_power_is_caught():
    # Left out of weights and moves alike it would be another path with the same ends.
    with pytest.raises(AssertionError, match="evidence"):
        check_noise(fault="constant")


@pytest.mark.exhaustive
def test_the_variance_of_one_run_is_that_between_runs_where_chains_mix():
    _, trace = runs_of(normal_mean(keep=0.0), num_particles=180, chain_length=12, num_runs=4_000)
    log_evidence = trace["log_evidence"][:, -1].astype(float)
    between = np.var(np.exp(log_evidence - EXACT))
    assert trace["variance"][:, -1].mean() == pytest.approx(between, rel=0.1)


@pytest.mark.slow
def test_powers_are_chosen_by_the_effective_sample_size():
    search = annealed_smc(normal_mean(), num_particles=400, chain_length=4, effective_share=0.7)
    _, trace, _ = many_runs(search, jnp.asarray(X), num_steps=8, num_runs=1)
    powers = rising_powers(trace["power"][0])
    assert np.all(np.diff(powers, prepend=0) > 0)
    assert powers[-1] == 1
    assert len(powers) > 2
    np.testing.assert_allclose(trace["effective_share"][0, : len(powers) - 1], 0.7, atol=0.01)
    ended = {name: values[0, len(powers) :] for name, values in trace.items()}
    assert all(np.ptp(values) == 0 for values in ended.values())


@pytest.mark.slow
def test_a_draw_from_the_prior_that_needs_more_slots_is_repeated_with_more():
    algorithm = annealed_smc(normal_mean(), num_particles=80, chain_length=4, powers=POWERS)
    run = mf.engine.run(algorithm, jnp.asarray(X), num_samples=4)
    assert run.capacity == {"slots": 4}
    assert np.all(run.draws["power"] == [[*POWERS.astype(run.draws["power"].dtype), 1.0]])


def trace_of(log_evidences, *, variance=0.01, effective=0.5, moved=1.0):
    """A trace of runs with two powers."""
    num_runs = len(log_evidences)
    return {
        "log_evidence": np.array([[value - 3, value] for value in log_evidences]),
        "variance": np.full((num_runs, 2), variance),
        "power": np.tile([0.1, 1.0], (num_runs, 1)),
        "effective_share": np.full((num_runs, 2), effective),
        "moved_share": np.full((num_runs, 2), moved),
    }


def test_the_error_is_the_larger_of_spread_and_what_runs_say_themselves():
    value, error = annealed_evidence(trace_of([-9.9, -10.1, -10.0, -10.0]))
    assert value == pytest.approx(-10, abs=0.01)
    assert error == pytest.approx(np.sqrt(0.01 / 4))
    spread = [-9.8, -10.2, -10.0, -10.0]
    assert annealed_evidence(trace_of(spread)).standard_error == pytest.approx(0.082, abs=1e-3)


def test_chains_with_nothing_to_move_have_an_error():
    still = trace_of([-10.0, -10.0], variance=0.0, moved=0.0)
    assert annealed_evidence(still).standard_error == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (trace_of([-10.0]), "there is one run, .* num_runs=4"),
        (trace_of([-10.0, -10.1], effective=0.02), "at power 0.1 .* 2.0% of the particles"),
        (trace_of([-10.0, -10.1], moved=0.0), "0.0% of the chains moved; set a larger chain_len"),
        (trace_of([-10.0, -14.0, -11.0]), r"differ by \d+\.\d times their error, .*=400"),
        (trace_of([-10.0, -11.0], variance=2.0), "differ too much; set num_particles=400"),
    ],
)
def test_an_error_that_cannot_be_trusted_is_withheld_with_what_to_do(trace, message):
    assert np.isnan(annealed_evidence(trace).standard_error)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(annealing_fault(trace, 100))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_particles": 105}, "num_particles must be a multiple of chain_length=10, got 105"),
        ({"powers": [0.5, 0.2, 1.0]}, r"powers must rise .* powers\[1\] is 0.2 after 0.5"),
        ({"powers": [0.5]}, "powers must end at 1, the posterior, got 0.5"),
        ({"powers": []}, "powers must be a list of 1 to 1000 numbers"),
        ({"effective_share": 1.0}, "effective_share must be below 1"),
        ({"capacitty": 3}, "smc takes no option 'capacitty'.* sweep, capacity.*Is capacity meant"),
        ({"sweep": "sideways"}, "sweep must be one of"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        mf.smc(mf.LinearGaussianIBP(), np.eye(3), **arguments)


def test_data_and_models_without_a_path_are_refused():
    with pytest.raises(ValueError, match=r"BPMF has no method 'smc'; use jaxmf\.sample"):
        mf.smc(mf.BPMF(2), np.eye(3))
    with pytest.raises(ValueError, match=r"3 cells are missing.*IndependentColumns"):
        mf.smc(mf.DPMixture(), np.where(np.eye(3), np.nan, 1.0))


# --- models, against enumeration ------------------------------------------------------------------


LEAST_NOISE, MOST_NOISE = 0.2, 1.5
WHOLE_ROWS = {"sweep": "whole_rows"}
LINEAR_GAUSSIAN = linear_gaussian.Case()
NOISY_OR = noisy_or.Case()


def linear_gaussian_with_noise():
    """The linear-Gaussian model of the enumeration, its noise scale uniform."""
    noise = dist.Uniform(LEAST_NOISE, MOST_NOISE)
    return mf.LinearGaussianIBP(alpha=LINEAR_GAUSSIAN.alpha, noise_scale=noise, feature_scale=0.9)


def posteriors_over_noise(observed=None):
    """Posteriors at the nodes of a quadrature of the noise scale, and the weights of these."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    scales = LEAST_NOISE + (MOST_NOISE - LEAST_NOISE) / 2 * (1 + nodes)
    settings = {"alpha": LINEAR_GAUSSIAN.alpha, "feature_scale": 0.9, "max_features": 7}
    settings["observed"] = observed
    posteriors = [
        oracles.posterior_of_classes(linear_gaussian.X, noise_scale=scale, **settings)
        for scale in scales
    ]
    return posteriors, weights / 2


def feature_model():
    """The noisy-OR model of the enumeration as a model of any likelihood."""
    parameters = noisy_or.PARAMETERS
    likelihood = mf.NoisyOr(efficacy=parameters["efficacy"], leak=parameters["leak"])
    activity = dist.Bernoulli(parameters["cause_probability"]).expand([3]).to_event(1)
    return mf.FeatureModel(
        likelihood=likelihood,
        feature_prior=activity,
        prior=mf.IndianBuffet(NOISY_OR.alpha),
    )


def runs_of_model(annealed, data, *, num_runs=10_000):
    algorithm = annealed_smc(annealed, num_particles=8, chain_length=4, powers=[0.3, 1.0])
    state, trace, overflow = many_runs(
        algorithm, data, num_steps=3, num_runs=num_runs, compiler_options=LONG_RUNS
    )
    assert not overflow
    z = state.particles.z
    num_features = z.any(axis=-2).sum(axis=-1)
    upper = np.triu_indices(z.shape[-2])
    shared = np.einsum("rpnk,rpmk->rnm", z, z, dtype=float)[:, *upper] / z.shape[1]
    probabilities = np.stack([(num_features == k).mean(axis=1) for k in range(4)], axis=1)
    return trace, {"probability of K": probabilities, "shared": shared}


def check_model(annealed, data, posteriors, weights=(1.0,)):
    """Evidence, number of features and features shared by rows."""
    trace, found = runs_of_model(annealed, data)
    evidences = weights * np.exp([posterior.log_evidence for posterior in posteriors])
    evidence = evidences.sum()
    ratio = np.exp(trace["log_evidence"][:, -1].astype(float)) / evidence
    samples, means = {"evidence": ratio}, {"evidence": 1.0}
    expectations = [posterior.expectations(max_features=3) for posterior in posteriors]
    for name, values in found.items():
        each = np.stack([one[name] for one in expectations])
        samples[name] = ratio[:, None] * values
        means[name] = evidences @ each / evidence
    check_means(samples, means, title="annealed model")


MISSING = linear_gaussian.Case(missing=True)
MODELS = {
    "linear-Gaussian": (LINEAR_GAUSSIAN.model, LINEAR_GAUSSIAN, {}),
    "linear-Gaussian, noise": (linear_gaussian_with_noise(), LINEAR_GAUSSIAN, {}),
    "linear-Gaussian, whole rows": (LINEAR_GAUSSIAN.model, LINEAR_GAUSSIAN, WHOLE_ROWS),
    "linear-Gaussian, parallel": (LINEAR_GAUSSIAN.model, LINEAR_GAUSSIAN, {"sweep": "parallel"}),
    "missing": (MISSING.model, MISSING, {}),
    "missing, noise": (linear_gaussian_with_noise(), MISSING, {}),
    "missing, whole rows": (MISSING.model, MISSING, WHOLE_ROWS),
    "missing, parallel": (MISSING.model, MISSING, {"sweep": "parallel"}),
    "noisy-OR": (NOISY_OR.model, NOISY_OR, {"num_moves": 1}),
    "any likelihood": (feature_model(), NOISY_OR, {}),
}


@pytest.mark.tiers(
    exhaustive=[
        "any likelihood",
        "linear-Gaussian",
        "linear-Gaussian, noise",
        "linear-Gaussian, parallel",
        "linear-Gaussian, whole rows",
        "missing",
        "missing, noise",
        "missing, parallel",
        "missing, whole rows",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_evidence_and_posterior_against_enumeration(name):
    model, case, options = MODELS[name]
    annealed = model.annealed(case.data, capacity=9, **options)
    if name.endswith("noise"):
        check_model(annealed, case.data, *posteriors_over_noise(case.data.observed))
    else:
        check_model(annealed, case.data, [case.posterior()])


@pytest.mark.exhaustive
def test_hyperparameters_moved_at_the_wrong_power_are_caught(monkeypatch):
    right = linear_gaussian_updates.update_hyperparameters

    def wrong(model, key, state, data, *, power):
        return right(model, key, state, data)

    monkeypatch.setattr(linear_gaussian_updates, "update_hyperparameters", wrong)
    model, case, _ = MODELS["linear-Gaussian, noise"]
    with pytest.raises(AssertionError, match="annealed model"):
        check_model(model.annealed(case.data, capacity=9), case.data, *posteriors_over_noise())


@pytest.fixture(scope="module")
def missing_state():
    """A state with two features and a free slot, and its settings."""
    z = jnp.asarray([[1, 0, 0], [1, 1, 0], [0, 1, 0]], bool)
    model, key = MISSING.model, jax.random.key(0)
    state, _ = model.annealed(MISSING.data, capacity=3).init(key, MISSING.data, None)
    return model, state._replace(z=z), linear_gaussian.SCALES


def missing_draws(missing_state, power):
    """Many draws of the missing cell, X[1, 1], at a power."""
    model, state, _ = missing_state
    draw = linear_gaussian_annealed.draw_missing

    def cell(key):
        return draw(model, key, state, MISSING.data, jnp.asarray(power)).x[1, 1]

    cells = np.asarray(jax.jit(jax.vmap(cell))(jax.random.split(jax.random.key(1), 40_000)), float)
    return {"mean": cells, "square": cells**2}


def exact_cell(missing_state, power):
    """Moments of X[1, 1] given the rest of its column, by its joint normal distribution."""
    _, state, scales = missing_state
    z = np.asarray(state.z, float)
    noise, feature = scales["noise_scale"] / np.sqrt(power), scales["feature_scale"]
    covariance = noise**2 * np.eye(3) + feature**2 * z @ z.T
    gain = np.linalg.solve(covariance[np.ix_([0, 2], [0, 2])], covariance[[0, 2], 1])
    mean = gain @ linear_gaussian.X[[0, 2], 1]
    return {"mean": mean, "square": mean**2 + covariance[1, 1] - gain @ covariance[[0, 2], 1]}


def test_missing_cells_are_drawn_given_the_others_at_a_power(missing_state):
    samples = missing_draws(missing_state, 0.3)
    check_means(samples, exact_cell(missing_state, 0.3), title="missing cell")
    with pytest.raises(AssertionError, match="missing cell"):
        check_means(samples, exact_cell(missing_state, 0.35), title="missing cell")


def test_missing_cells_have_no_weight_at_any_power(missing_state):
    model, state, scales = missing_state
    z, x, observed = np.asarray(state.z)[None], linear_gaussian.X, linear_gaussian.OBSERVED

    def powered(power):
        noise = scales["noise_scale"]
        raised = scales | {"noise_scale": noise / np.sqrt(power), "observed": observed}
        constant = observed.sum() * log_power_constant(noise, power)
        return float(oracles.log_likelihood(z, x, **raised)[0] + constant)

    measured = linear_gaussian_annealed.measure(model, state, MISSING.data)
    ratio = linear_gaussian_annealed.log_ratio
    assert float(ratio(measured, 0.0, 0.3)) == pytest.approx(powered(0.3), rel=1e-5)
    assert float(ratio(measured, 0.3, 1.0)) == pytest.approx(powered(1.0) - powered(0.3), rel=1e-5)


@pytest.mark.parametrize(("before", "after"), [(0.0, 1e-6), (0.01, 0.0101), (0.5, 1.0)])
def test_the_change_of_a_power_keeps_its_digits_with_many_cells(before, after):
    rng = np.random.default_rng(0)
    z = rng.random((1000, 8)) < 0.3
    z[:, 7] = False  # a free slot
    x = z @ rng.normal(size=(8, 100)) + 0.5 * rng.normal(size=(1000, 100))

    def change(bits):
        dtype = jnp.float64 if bits == 64 else jnp.float32
        spectrum = jax.jit(gaussian.spectrum)(jnp.asarray(z), jnp.asarray(x, dtype))
        scales = (jnp.asarray(0.5, dtype), jnp.asarray(1.1, dtype))
        powers = (jnp.asarray(before, dtype), jnp.asarray(after, dtype))
        return float(jax.jit(power_change)(spectrum, *scales, *powers))

    def powered(power):
        if power == 0:
            return 0.0
        spectrum = jax.jit(gaussian.spectrum)(jnp.asarray(z), jnp.asarray(x))
        scales = jnp.asarray(0.5 / np.sqrt(power)), jnp.asarray(1.1)
        value = jax.jit(log_density)(spectrum, *scales)
        return float(value + x.size * log_power_constant(0.5, power))

    with jax.enable_x64(True):
        exact = change(64)
        assert exact == pytest.approx(powered(after) - powered(before), rel=1e-6)
    assert change(32) == pytest.approx(exact, rel=1e-4)


def test_a_run_that_may_not_grow_says_so_and_is_no_interruption(monkeypatch):
    def run(*args, **options):
        warnings.warn("there is no more memory", GrowthWarning, stacklevel=1)

    monkeypatch.setattr(verb.engine, "run", run)
    with pytest.raises(RuntimeError, match="before its last power: there is no more memory"):
        mf.smc(mf.LinearGaussianIBP(), np.eye(3), powers=[0.5, 1.0])


def test_data_that_no_particle_can_have_made_are_refused(monkeypatch):
    def run(*args, **options):
        raise NonFiniteError(Failure("log_evidence", 0, 1), None)

    monkeypatch.setattr(verb.engine, "run", run)
    with pytest.raises(ValueError, match="data: no particle has a likelihood above zero"):
        mf.smc(mf.LinearGaussianIBP(), np.eye(3), powers=[0.5, 1.0])


def test_what_is_continuous_does_not_count_as_a_move():
    z, noise = jnp.array([[True], [False]]), jnp.array([0.1, 0.2])
    differ = annealed_smc_module._differ
    assert differ((z, noise), (z, noise + 1)).tolist() == [False, False]
    assert differ((z, noise), (~z, noise)).tolist() == [True, True]
    assert differ((noise,), (noise + jnp.array([0.0, 1.0]),)).tolist() == [False, True]


def test_a_run_that_was_interrupted_before_its_last_power_has_no_posterior(monkeypatch):
    interrupted = SimpleNamespace(complete=False)
    monkeypatch.setattr(verb.engine, "run", lambda *args, **options: interrupted)
    with pytest.raises(KeyboardInterrupt, match="before its last power"):
        mf.smc(mf.LinearGaussianIBP(), np.eye(3), powers=[0.5, 1.0])


@pytest.mark.slow
def test_annealed_runs_are_saved_with_their_evidence_and_do_not_continue(tmp_path):
    model, case, options = MODELS["any likelihood"]
    settings = {"num_particles": 400, "num_runs": 2, "chain_length": 4, **options}
    post = mf.smc(model, case.data, capacity=9, **settings)
    exact = case.posterior().log_evidence
    assert abs(post.log_evidence - exact) < 5 * post.log_evidence_error
    assert post.weights.shape == (2, 400)
    assert post.weights.sum() == pytest.approx(1)
    assert "log evidence" in str(post.summary())
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    assert again.evidence == post.evidence
    np.testing.assert_array_equal(again.trace["power"], post.trace["power"])
    with pytest.raises(ValueError, match=r"do not continue .* run jaxmf\.smc again"):
        post.extend(num_samples=5)
