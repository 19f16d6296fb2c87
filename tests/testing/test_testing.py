"""The checks themselves: what they let pass, what they catch, and how often they are wrong."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf import testing
from jaxmf.engine import Info
from jaxmf.testing import check_filter, check_kernel, check_means, check_prior
from jaxmf.testing.kernels import _same_distribution, z_test


class State(NamedTuple):
    mean: jax.Array


def gibbs(key, state, data, *, shrink=0.5, overflow=False):
    """mean ~ N(0, 1), data ~ N(mean, 1): the posterior is N(data / 2, 1/2)."""
    mean = shrink * data + jnp.sqrt(0.5) * jax.random.normal(key)
    return State(mean), Info(overflow={"features": jnp.asarray(overflow)})


SETUP = {
    "sample_prior": lambda key: State(jax.random.normal(key)),
    "simulate": lambda key, state: state.mean + jax.random.normal(key),
    "statistics": lambda state, data: {
        "mean": state.mean,
        "sign": jnp.sign(state.mean),
        "product": state.mean * data,
    },
    "key": jax.random.key(26),
}


def test_a_right_kernel_passes_and_its_report_reads_well():
    report = check_kernel(gibbs, **SETUP)
    assert report.passed
    assert len(report.comparisons) == 6
    text = str(report)
    assert text.startswith("joint distribution: 6 comparisons, passed")
    assert "chi-square" in text
    assert "Kolmogorov-Smirnov" in text


@pytest.mark.parametrize("shrink", [0.4, 0.6, 0.0])
def test_a_wrong_kernel_is_caught(shrink):
    def kernel(key, state, data):
        return gibbs(key, state, data, shrink=shrink)

    with pytest.raises(AssertionError, match="FAILED product"):
        check_kernel(kernel, **SETUP)


def test_an_overflowing_replicate_is_an_error():
    def kernel(key, state, data):
        return gibbs(key, state, data, overflow=data > 3)

    with pytest.raises(RuntimeError, match="replicates overflowed on axis 'features'"):
        check_kernel(kernel, **SETUP)


def test_a_statistic_that_is_not_finite_is_an_error():
    def kernel(key, state, data):
        state, info = gibbs(key, state, data)
        return State(jnp.where(data > 3, jnp.nan, state.mean)), info

    with pytest.raises(RuntimeError, match="'mean' is not finite"):
        check_kernel(kernel, **SETUP)


def test_check_prior():
    options = {name: SETUP[name] for name in ("sample_prior", "statistics", "key")}

    def kernel(key, state, data, scale=1.0):
        return State(scale * jax.random.normal(key)), Info(overflow={})

    assert check_prior(kernel, data=jnp.asarray(1.0), **options).passed
    with pytest.raises(AssertionError, match="FAILED mean"):
        check_prior(
            lambda key, state, data: kernel(key, state, data, scale=1.5),
            data=jnp.asarray(1.0),
            **options,
        )


def test_p_values_are_uniform():
    """False alarms come at the stated rate: checked at 5 % with 500 comparisons each."""
    rng = np.random.default_rng(2)
    alarms = np.zeros(4)
    for _ in range(500):
        first, second = rng.normal(size=(2, 300))
        few_first, few_second = rng.poisson(1.5, size=(2, 300))
        p_values = [
            z_test("z", first, 0.0).p_value,
            z_test("paired", few_first - few_second, 0.0).p_value,
            _same_distribution("Kolmogorov-Smirnov", first, second).p_value,
            _same_distribution("chi-square", few_first, few_second).p_value,
        ]
        alarms += np.array(p_values) < 0.05
    assert np.all(alarms < 50)
    assert np.all(alarms > 7)


def test_last_bits_of_one_number_are_no_other_distribution():
    first, second = np.tanh(20 * np.random.default_rng(0).standard_normal((2, 2_000), np.float32))
    second[second == 1] = np.nextafter(np.float32(1), np.float32(0))
    assert _same_distribution("tanh", first, second).p_value > 0.01
    assert _same_distribution("tanh", first, 0.999 * second).p_value < 1e-6
    # a large mean hides nothing
    draws = 1e9 + np.random.default_rng(0).standard_normal((2, 2_000))
    assert _same_distribution("shifted", *draws).p_value > 0.01
    assert _same_distribution("shifted", draws[0], draws[1] + 0.5).p_value < 1e-6


def test_bonferroni_and_the_level_of_the_suite():
    shared = testing.LEVEL * testing.MAX_CHECKS
    assert shared == pytest.approx(testing.SUITE_FALSE_ALARM_RATE)
    comparison = testing.Comparison("x", "mean", 0.0, 1.0, 0.1, 0.004)
    assert not testing.Report("one", (comparison,), level=0.01).passed
    assert testing.Report("three", (comparison,) * 3, level=0.01).passed
    nothing = testing.Comparison("x", "mean", 0.0, math.nan, math.nan, math.nan)
    with pytest.raises(AssertionError, match="1 FAILED"):
        testing.Report("not a number", (nothing,)).require()


def test_check_means():
    rng = np.random.default_rng(3)
    samples = {"a": rng.normal(1.0, 1.0, 4_000), "b": rng.normal(size=(4_000, 2))}
    report = check_means(samples, {"a": 1.0, "b": [0.0, 0.0]}, max_standard_error=0.02)
    assert [one.name for one in report.comparisons] == ["a", "b[0]", "b[1]"]
    with pytest.raises(AssertionError, match=r"FAILED b\[1\]"):
        check_means(samples, {"a": 1.0, "b": [0.0, 0.15]})
    with pytest.raises(AssertionError, match=r"standard error 0.016 is above 0.001"):
        check_means(samples, {"a": 1.0, "b": [0.0, 0.0]}, max_standard_error=0.001)
    with pytest.raises(ValueError, match="exact values of"):
        check_means(samples, {"a": 1.0})
    with pytest.raises(ValueError, match=r"b: chains of shape \(2,\), expectation of \(3,\)"):
        check_means(samples, {"a": 1.0, "b": [0.0, 0.0, 0.0]})


def test_constant_samples_must_be_exact():
    assert z_test("same", np.full(10, 2.0), 2.0).p_value == 1
    assert z_test("another", np.full(10, 2.0), 2.1).p_value == 0


def test_check_filter():
    """Importance sampling of a normal's evidence, by its mean and by the mean of its log."""
    observed = 0.7
    exact = -0.25 * observed**2 - 0.5 * math.log(4 * math.pi)

    def log_weights(key):
        particles = jax.random.normal(key, (4,))
        return -0.5 * (observed - particles) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    def run(key):
        return jax.nn.logsumexp(log_weights(key)) - jnp.log(4.0)

    assert check_filter(run, exact, key=jax.random.key(27), num_runs=20_000).passed
    with pytest.raises(AssertionError, match="FAILED evidence / exact"):
        check_filter(lambda key: log_weights(key).mean(), exact, key=jax.random.key(27))


def test_enumerated_classes_are_all_and_left_ordered():
    classes = testing.enumerate_features(3, 4)
    assert len(classes.z) == sum(math.comb(6 + k, k) for k in range(5))
    assert len({matrix.tobytes() for matrix in classes.z}) == len(classes.z)
    weights = np.array([4, 2, 1])[:, None]
    histories = (classes.z * weights).sum(axis=1)
    assert np.all(np.diff(histories, axis=1) <= 0)
    np.testing.assert_array_equal(classes.num_features, (histories > 0).sum(axis=1))
    of_history = classes.histories @ weights[:, 0]
    for history, code in enumerate(of_history):
        np.testing.assert_array_equal(classes.counts[:, history], (histories == code).sum(axis=1))


def test_the_size_of_the_usual_oracle_and_the_mass_it_leaves_out():
    assert math.comb(19, 7) == 50_388
    classes = testing.enumerate_features(3, 12)
    assert classes.z.shape == (50_388, 3, 12)
    assert classes.mass_left_out(1.0) == pytest.approx(8e-8, rel=0.1)


def test_enumerated_partitions_are_the_bell_numbers():
    assert [len(testing.enumerate_partitions(n)) for n in range(7)] == [1, 1, 2, 5, 15, 52, 203]
    labels = testing.enumerate_partitions(5)
    assert len(np.unique(labels, axis=0)) == 52
    assert np.all(labels <= np.maximum.accumulate(np.pad(labels, ((0, 0), (1, 0)))[:, :-1] + 1, 1))
