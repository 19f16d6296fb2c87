"""Whether the device is right, and on a GPU how fast. Without one: a sentence."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks.accelerator.problems import PROBLEMS
from benchmarks.harness import Row, make_console, row
from jaxmf import registry
from jaxmf._kernels import cell_products, token_draw
from jaxmf.blocks import in_kernel
from jaxmf.blocks.in_kernel import PARTIALLY_COLLAPSED
from jaxmf.devices import default_platform
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import marginal_change
from jaxmf.programs import jit

# sweeps of the shorter run, and the most that the longer one has more
_SHORT, _MOST_STEPS = 2, 512
_LONG_ENOUGH = 0.7  # seconds
_MOMENTS = {
    "linear-gaussian-ibp": ("num_features", "noise_scale"),
    "lda": ("log_joint",),
    "bpmf": ("log_joint",),
}


@functools.cache
def is_here() -> bool:
    """Whether the default device is an accelerator; says so once where it is none."""
    platform = default_platform()
    if platform == "cpu":
        make_console().print(
            "No GPU here: nothing is measured or checked on one; launches and bytes are counted."
        )
    return platform != "cpu"


def log_density(quick: bool) -> list[Row]:
    """log p(X | Z) of many cells in single precision beside double precision, on any device.

    And its change where the noise scale moves by five posterior standard deviations, which is what
    a draw of the scale sees.
    """
    rows = []
    for num_rows in (10_000,) if quick else (10_000, 100_000):
        generator = np.random.default_rng(0)
        z = generator.random((num_rows, 16)) < 0.3
        y = generator.normal(size=(16, 100))
        x = (z @ y + 0.5 * generator.normal(size=(num_rows, 100))).astype(np.float32)
        scales, moved = (np.float32(0.5), np.float32(1)), np.float32(0.5 * (1 + 5 / x.size**0.5))
        value, change = _single(z, x, scales, (moved, scales[1]))
        exact = exact_log_likelihood(z, x, noise=0.5)
        exact_change = exact_log_likelihood(z, x, noise=float(moved)) - exact
        case = f"accelerator/right/log-density/{x.size:.0e}".replace("e+0", "e")
        digit = np.spacing(np.float32(-value))
        note = f"float32 beside float64; the last digit of the value is {digit:.2g}"
        rows += [
            row(f"{case}/value", "quality", "nats of error", abs(value - exact), note=note),
            row(f"{case}/change", "quality", "nats of error", abs(change - exact_change)),
        ]
    return rows


@jit
def _of_single(z: Any, x: Any, before: Any, after: Any) -> tuple[Any, Any]:
    statistics = gaussian.gram_statistics(z, x)
    value = gaussian.log_likelihood(z, x, statistics, *before)
    spectrum = gaussian.spectrum(z, x, statistics)
    return value, marginal_change(spectrum, before, after)


def _single(z: Any, x: Any, before: Any, after: Any) -> tuple[float, float]:
    value, change = _of_single(z, x, before, after)
    return float(value), float(change)


def exact_log_likelihood(z: np.ndarray, x: np.ndarray, *, noise: float) -> float:
    """log p(X | Z) in double precision, feature scale 1."""
    bits, cells, ratio = z.astype(float), x.astype(float), noise**2
    inner = bits.T @ bits + ratio * np.eye(bits.shape[1])
    y = np.linalg.solve(inner, bits.T @ cells)
    squares = np.sum((cells - bits @ y) ** 2) + ratio * np.sum(y**2)
    log_determinant = np.linalg.slogdet(inner / ratio)[1] + len(cells) * np.log(noise**2)
    constant = cells.size * np.log(2 * np.pi)
    return float(-0.5 * (constant + cells.shape[1] * log_determinant + squares / noise**2))


def same_bits(quick: bool) -> list[Row]:
    """Two runs with one seed: how many numbers of their draws differ."""
    del quick
    if not is_here():
        return []
    rows = []
    for name in _MOMENTS:
        model, data = registry.get(name).example()
        first, second = (
            mf.sample(model, data, num_warmup=20, num_samples=20, progress=False) for _ in range(2)
        )
        num_other = sum(int(np.sum(first.draws[k] != second.draws[k])) for k in first.draws)
        case = f"accelerator/right/same-bits/{name}"
        rows.append(row(case, "quality", "numbers that differ", float(num_other)))
    return rows


def moments(quick: bool) -> list[Row]:
    """Means of draws there and on the CPU of the machine, apart in standard errors."""
    if not is_here():
        return []
    num = 500 if quick else 5_000
    rows = []
    for name, quantities in _MOMENTS.items():
        model, data = registry.get(name).example()
        settings: dict[str, Any] = {"num_warmup": num, "num_samples": num, "progress": False}
        there = mf.sample(model, data, seed=1, **settings)
        with jax.default_device(jax.devices("cpu")[0]):
            here = mf.sample(model, data, seed=2, **settings)
        for quantity in quantities:
            means, errors = [], []
            for post in (there, here):
                of_chains = np.mean(post.draws[quantity], axis=1)
                means.append(np.mean(of_chains))
                errors.append(np.var(of_chains, ddof=1) / of_chains.size)
            error = np.sqrt(sum(errors))
            distance = abs(means[0] - means[1]) / error if error else 0.0  # it is not drawn
            case = f"accelerator/right/moments/{name}/{quantity}"
            rows.append(row(case, "quality", "standard errors from the CPU", float(distance)))
    return rows


def time_of(name: str, quick: bool) -> list[Row]:
    """Milliseconds a sweep of four chains, compiled before."""
    if not is_here():
        return []
    problem = PROBLEMS[name]
    if problem.options.get("sweep") == PARTIALLY_COLLAPSED and in_kernel.trouble(
        problem.model().network(), default_platform()
    ):
        return []  # and `token_draw_refused` says why
    entry = registry.get(problem.entry)
    rows = []
    for size in problem.sizes[:1] if quick else problem.sizes:
        model, data = problem.model(), problem.data(size)

        def sample(num_samples: int, model: Any = model, data: Any = data) -> float:
            start = time.perf_counter()
            options = dict(problem.options)
            mf.sample(model, data, num_warmup=0, num_samples=num_samples, progress=False, **options)
            return time.perf_counter() - start

        seconds, num_steps = _seconds_a_sweep(sample)
        case = f"accelerator/time/{name}/{size}"
        note = f"{entry.class_name}, four chains in one program, {num_steps} sweeps"
        milliseconds = [1e3 * one for one in seconds]
        rows.append(row(case, "time", "ms a sweep", milliseconds, note=note, clock="wall"))
    return rows


def _seconds_a_sweep(sample: Callable[[int], float]) -> tuple[list[float], int]:
    """Seconds of a sweep, three times, and over how many sweeps each was measured.

    So many that they take a second or more in all: what a run does beside its sweeps is in both of
    the times that are compared, and it varies.
    """
    sample(_SHORT)  # compiles
    num_steps = 1
    while True:
        seconds = sample(_SHORT + num_steps) - sample(_SHORT)
        if seconds > _LONG_ENOUGH or num_steps >= _MOST_STEPS:
            break
        num_steps *= 8
    more = [sample(_SHORT + num_steps) - sample(_SHORT) for _ in range(2)]
    return [one / num_steps for one in (seconds, *more)], num_steps


def token_draw_refused(quick: bool) -> list[Row]:
    """Whether the kernel that draws topics compiles there and draws what it should."""
    del quick
    if not is_here():
        return []
    rows = []
    for num_above, num_topics in (
        (1, 1),
        (1, 20),
        (1, 1_000),
        (1, token_draw.MOST_TOPICS),
        (16, 64),
    ):
        why = token_draw.trouble(default_platform(), num_above, num_topics)
        case = f"accelerator/right/token-draw/k{num_above * num_topics}-of-{num_above}"
        rows.append(row(case, "quality", "refused", float(bool(why)), note=why))
    return rows


def cell_products_error(quick: bool) -> list[Row]:
    """By how much the kernel of sums over cells errs there, beside double precision."""
    del quick
    if not is_here():
        return []
    rows = []
    for size in (3, 35, 67, cell_products.MOST_ENTRIES):
        why = cell_products.trouble(default_platform(), size)
        error = np.nan if why.startswith("it failed") else cell_products.largest_error(size)
        case = f"accelerator/right/cell-products/{size}"
        rows.append(row(case, "quality", "of the absolute terms", float(error), note=why))
    return rows


CHECKS: dict[str, Callable[[bool], list[Row]]] = {
    "log-density": log_density,
    "same-bits": same_bits,
    "moments": moments,
    "token-draw": token_draw_refused,
    "cell-products": cell_products_error,
}
