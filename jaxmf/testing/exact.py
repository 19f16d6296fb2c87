"""Many chains or filters against exact values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import numpy as np
from jax import Array

from jaxmf.programs import jit
from jaxmf.testing.report import LEVEL, Comparison, Report


def z_test(name: str, samples: np.ndarray, expected: float) -> Comparison:
    """Whether the mean of independent samples is `expected`, by their own standard error.

    Args:
        name: what is compared.
        samples: (C,) float.
        expected: the exact mean.
    Returns:
        A `Comparison`; samples without any spread must be equal to `expected` to rounding.
    """
    from scipy.special import ndtr

    samples = np.asarray(samples, np.float64)
    found = float(samples.mean())
    standard_error = float(samples.std(ddof=1) / np.sqrt(len(samples)))
    scale = max(1.0, abs(expected))
    if standard_error <= 1e-9 * scale:
        p_value = 1.0 if abs(found - expected) <= 1e-6 * scale else 0.0
    else:
        p_value = float(2 * ndtr(-abs(found - expected) / standard_error))
    return Comparison(name, "mean", float(expected), found, standard_error, p_value)


def check_means(
    samples: Mapping[str, object],
    exact: Mapping[str, object],
    *,
    title: str = "means of independent chains",
    max_standard_error: float | None = None,
    level: float = LEVEL,
) -> Report:
    """Compares the averages of many independent chains with exact expectations.

    Start every chain at a draw from the exact distribution, then there is no warm-up to judge.

    Args:
        samples: name -> (C, ...) averages of C independent chains.
        exact: name -> (...) the expectations, with the same names.
        title: what is checked.
        max_standard_error: refuses a comparison that would be too weak to see anything.
        level: false-alarm probability of the whole check.
    Returns:
        A `Report` with one z test for each entry.
    Raises:
        AssertionError: if a mean differs, or a standard error is above `max_standard_error`.
    """
    if samples.keys() != exact.keys():
        raise ValueError(f"samples of {sorted(samples)} but exact values of {sorted(exact)}")
    comparisons = []
    for name, expected in exact.items():
        expected = np.asarray(expected, np.float64)
        found = np.asarray(samples[name], np.float64)
        if found.shape[1:] != expected.shape:
            raise ValueError(
                f"{name}: chains of shape {found.shape[1:]}, expectation of {expected.shape}"
            )
        for index in np.ndindex(expected.shape):
            label = f"{name}{list(index)}" if index else name
            comparisons.append(z_test(label, found[(slice(None), *index)], float(expected[index])))
    report = Report(title, tuple(comparisons), level)
    if max_standard_error is not None and report.max_standard_error > max_standard_error:
        raise AssertionError(
            f"{title}: standard error {report.max_standard_error:.2g} is above "
            f"{max_standard_error:.2g}; use more or longer chains\n{report}"
        )
    return report.require()


def check_filter(
    run_fn: Callable[[Array], Array],
    exact_log_evidence: float,
    *,
    key: Array,
    num_runs: int = 10_000,
    batch_size: int = 1_000,
    title: str = "evidence of the filter",
    level: float = LEVEL,
    compiler_options: dict[str, object] | None = None,
) -> Report:
    """Checks that the evidence of a particle filter is unbiased (that of its log is not).

    Args:
        run_fn: key -> () log evidence of one run; jittable.
        exact_log_evidence: of the same data.
        key: typed PRNG key.
        num_runs: independent runs.
        batch_size: how many are run at the same time.
        title: what is checked.
        level: false-alarm probability of the check.
        compiler_options: of XLA, as in `check_kernel`.
    Returns:
        A `Report` on the mean of evidence / exact evidence.
    Raises:
        AssertionError: if that mean is not one.
    """
    keys = jax.random.split(key, num_runs)
    run_all = jit(
        lambda keys: jax.lax.map(run_fn, keys, batch_size=batch_size),
        compiler_options=compiler_options,
    )
    log_evidence = run_all(keys)
    ratios = np.exp(np.asarray(log_evidence, np.float64) - float(exact_log_evidence))
    return Report(title, (z_test("evidence / exact", ratios, 1.0),), level).require()
