"""The joint-distribution test of a kernel; many chains or filters against exact values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import checks_call
from jaxmf.engine import Info
from jaxmf.programs import jit
from jaxmf.testing.report import LEVEL, Comparison, Report
from jaxmf.types import Array, PyTree


def z_test(name: str, samples: np.ndarray, expected: float) -> Comparison:
    """Whether the mean of independent samples is `expected`, by the standard error of these.

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


@checks_call
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


@checks_call
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


Statistics = dict[str, Array]


@checks_call
def check_kernel(
    kernel: Callable[..., tuple[PyTree, Info]],
    *,
    sample_prior: Callable[[Array], PyTree],
    simulate: Callable[[Array, PyTree], PyTree],
    statistics: Callable[[PyTree, PyTree], Statistics],
    key: Array,
    num_replicates: int = 4_096,
    num_steps: int = 3,
    title: str = "joint distribution",
    level: float = LEVEL,
    compiler_options: dict[str, object] | None = None,
) -> Report:
    """Joint-distribution test (Geweke 2004) in its replicate form.

    Each independent replicate draws a state from the prior, data given the state, and applies
    the kernel a few times. If the kernel leaves p(state | data) invariant, then (state, data) is
    distributed afterwards as before. For every statistic the mean change within replicates is
    held against zero, and its distribution against that of fresh draws from the prior: a chi-square
    test if it takes few values, a Kolmogorov-Smirnov test otherwise.

    Args:
        kernel: (key, state, data) -> (state, Info).
        sample_prior: key -> state; give it capacity enough that no replicate overflows.
        simulate: (key, state) -> data.
        statistics: (state, data) -> name -> () number; not dependent on labels.
        key: typed PRNG key.
        num_replicates: independent replicates, and as many fresh draws.
        num_steps: how often the kernel is applied.
        title: what is checked.
        level: false-alarm probability of the whole check.
        compiler_options: of XLA; most of the time goes into compiling, which
            `{"xla_backend_optimization_level": 0}` shortens.
    Returns:
        A `Report` with two comparisons for each statistic.
    Raises:
        AssertionError: if a comparison fails.
        RuntimeError: if a replicate overflows, or a statistic is not finite.
    """

    def draw(key: Array) -> tuple[PyTree, PyTree, Statistics]:
        state_key, data_key = jax.random.split(key)
        state = sample_prior(state_key)
        data = simulate(data_key, state)
        return state, data, statistics(state, data)

    def advance(key: Array, state: PyTree, data: PyTree) -> tuple[Statistics, dict[str, Array]]:
        def step(state: PyTree, index: Array) -> tuple[PyTree, dict[str, Array]]:
            state, info = kernel(jax.random.fold_in(key, index), state, data)
            return state, info.overflow

        state, overflow = jax.lax.scan(step, state, jnp.arange(num_steps))
        return statistics(state, data), jax.tree.map(lambda flag: flag.any(), overflow)

    draw_key, step_key = jax.random.split(key)
    # The second half of the draws only serves as fresh ones.
    keys = jax.random.split(draw_key, 2 * num_replicates)
    state, data, drawn = _run(jax.vmap(draw), (keys,), compiler_options)
    state, data = jax.tree.map(lambda leaf: leaf[:num_replicates], (state, data))
    keys = jax.random.split(step_key, num_replicates)
    after, overflow = jax.device_get(
        _run(partial(in_batches, advance), (keys, state, data), compiler_options)
    )
    drawn = jax.device_get(drawn)
    before = {name: values[:num_replicates] for name, values in drawn.items()}
    fresh = {name: values[num_replicates:] for name, values in drawn.items()}
    for axis, flags in overflow.items():
        if flags.any():
            raise RuntimeError(
                f"{title}: {flags.sum()} of {num_replicates} replicates overflowed on axis "
                f"{axis!r}; the test needs a larger capacity"
            )
    comparisons = []
    for name in after:
        for values in (fresh[name], before[name], after[name]):
            if not np.all(np.isfinite(values)):
                raise RuntimeError(f"{title}: statistic {name!r} is not finite")
        first, last = (np.asarray(each[name], np.float64) for each in (before, after))
        change = z_test(name, last - first, 0.0)  # paired, and shown as means
        comparisons.append(
            dataclasses.replace(change, expected=float(first.mean()), found=float(last.mean()))
        )
        comparisons.append(_same_distribution(name, fresh[name], after[name]))
    return Report(title, tuple(comparisons), level).require()


@checks_call
def check_prior(
    kernel: Callable[..., tuple[PyTree, Info]],
    *,
    sample_prior: Callable[[Array], PyTree],
    data: PyTree,
    statistics: Callable[[PyTree, PyTree], Statistics],
    key: Array,
    num_replicates: int = 4_096,
    num_steps: int = 10,
    title: str = "prior with the likelihood off",
    level: float = LEVEL,
    compiler_options: dict[str, object] | None = None,
) -> Report:
    """Checks that the prior comes back when the data say nothing.

    Args:
        kernel, sample_prior, statistics, key, num_replicates, title, level, compiler_options: as
            in `check_kernel`.
        data: without information about the state, for example with every cell missing.
        num_steps: how often the kernel is applied.
    Returns:
        A `Report`.
    Raises:
        AssertionError: if a comparison fails.
        RuntimeError: if a replicate overflows, or a statistic is not finite.
    """
    return check_kernel(
        kernel,
        sample_prior=sample_prior,
        simulate=lambda key, state: data,
        statistics=statistics,
        key=key,
        num_replicates=num_replicates,
        num_steps=num_steps,
        title=title,
        level=level,
        compiler_options=compiler_options,
    )


_MOST_AT_ONCE = 256  # replicates, whose arrays stay in the cache of a core


def in_batches(fn: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """`jax.vmap(fn)(*arguments)`, at most 256 entries of the first axes at a time."""
    length = jax.tree.leaves(arguments)[0].shape[0]
    num_batches = -(-length // _MOST_AT_ONCE)
    # as equal as can be, since a batch of another size is compiled by itself
    size = -(-length // num_batches)
    return jax.lax.map(lambda each: fn(*each), arguments, batch_size=size)


def _run(
    fn: Callable[..., object], arguments: tuple[object, ...], options: dict[str, object] | None
) -> PyTree:
    return jit(fn).lower(*arguments).compile(compiler_options=options)(*arguments)


def _same_distribution(name: str, expected: np.ndarray, found: np.ndarray) -> Comparison:
    """Two-sample test of the whole distribution."""
    from scipy import stats

    expected, found = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    pooled = _without_last_bits(np.concatenate([expected, found]))
    expected, found = pooled[: len(expected)], pooled[len(expected) :]
    values, category = np.unique(pooled, return_inverse=True)
    if len(values) == 1:
        test, p_value = "chi-square", 1.0
    elif len(values) <= 64:
        test = "chi-square"
        sample = np.repeat([0, 1], [len(expected), len(found)])
        table = np.zeros((2, len(values)))
        np.add.at(table, (sample, category), 1)
        table = _pool_rare(table)
        p_value = 1.0
        if table.shape[1] > 1:
            p_value = float(stats.chi2_contingency(table, correction=False).pvalue)
    else:
        test = "Kolmogorov-Smirnov"
        p_value = float(stats.ks_2samp(expected, found, method="asymp").pvalue)
    spread = np.sqrt(expected.var(ddof=1) / len(expected) + found.var(ddof=1) / len(found))
    return Comparison(
        name, test, float(expected.mean()), float(found.mean()), float(spread), p_value
    )


def _without_last_bits(values: np.ndarray) -> np.ndarray:
    """Numbers rounded to some eight times the precision of float32, or a hundredth of their sd.

    A statistic is computed by one program for fresh draws and by another one after the kernel, and
    the last bits of the two differ. Where many replicates have one value, such as 1 for the tanh of
    large numbers, the test would take that difference for one of the distributions.
    """
    step = min(2.0**-20 * np.max(np.abs(values)), 0.01 * values.std())
    return np.round(values / step) * step if step > 0 else values


_FEWEST_DRAWS = 40  # of a value, so that the chi-square distribution holds


def _pool_rare(table: np.ndarray) -> np.ndarray:
    """Joins neighbouring values until each has enough draws for the chi-square distribution."""
    columns: list[np.ndarray] = []
    pending = np.zeros(2)
    for column in table.T:
        pending = pending + column
        if pending.sum() >= _FEWEST_DRAWS:
            columns.append(pending)
            pending = np.zeros(2)
    if pending.sum() > 0:
        if columns:
            columns[-1] = columns[-1] + pending
        else:
            columns.append(pending)
    return np.array(columns).T
