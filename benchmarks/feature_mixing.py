"""Chains of models of binary features: which moves bring them to the mode, and what that costs.

Every chain starts as its sampler does. It is in the mode where the mean log joint of its draws is
at most `NATS` below that of a chain started from the truth, which is four times as long as what
is compared with it and has its first quarter left out. Rows of each kind and data: the share
of chains in the mode, CPU seconds for each chain that is (seconds a chain over that share), and
effective samples of the log joint a second of those chains. Seconds hold the compilation of steps
whose slots grew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

import jaxmf as mf
from benchmarks import binary_mf
from benchmarks.harness import Row, clock, row, started_run, timed_run
from jaxmf.diagnostics import summarise_chains

NATS = 12.0
SHARE_MISSING = 0.1


class Problem(NamedTuple):
    """Data, a model of them, and the options of its sampler by the name of what they are.

    Attributes:
      model: the model.
      make: from a seed, the data and the fields of a state at the truth.
      kinds: name -> options, and `num_warmup` where it is another one; the first is the default.
      num_warmup, num_draws: of a chain.
    """

    model: Any
    make: Callable[[int], tuple[Any, dict[str, np.ndarray]]]
    kinds: dict[str, dict[str, Any]]
    num_warmup: int
    num_draws: int


def answers(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Answers of 250 people to 20 questions from four causes, a tenth of them missing."""
    generator = np.random.default_rng(seed)
    z, y = generator.random((250, 4)) < 0.3, generator.random((4, 20)) < 0.35
    x = (generator.random((250, 20)) < 1 - 0.95 * 0.2 ** (z.astype(float) @ y)).astype(float)
    x[generator.random(x.shape) < SHARE_MISSING] = np.nan
    return mf.Dense.from_array(x), {"z": z, "y": y}


def images(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """The images of section 4.2."""
    made = mf.datasets.generated.section_4_2(seed)
    return mf.Dense.from_array(made.x), {"z": made.z, "y": made.y}


def blocks(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """A matrix of 50 x 50 of four features a side."""
    u, v, data = binary_mf.made(50, num_features=binary_mf.TRUE_FEATURES, seed=seed)
    return data, {"u": u, "v": v}


def logistic_blocks(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """A binary matrix of 50 x 50 of four features a side, weights of standard deviation 3."""
    generator = np.random.default_rng(seed)
    u, v = (generator.random((50, binary_mf.TRUE_FEATURES)) < 1 / 3 for _ in range(2))
    weights = generator.normal(0, 3, (binary_mf.TRUE_FEATURES, binary_mf.TRUE_FEATURES))
    odds = np.exp(u.astype(float) @ weights @ v.T)
    x = (generator.random(odds.shape) < odds / (1 + odds)).astype(np.float32)
    return mf.Dense.from_array(x), {"u": u, "v": v, "weights": weights}


def counts_of_blocks(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Counts in 50 x 50 cells of four features a side, gamma weights of mean 4, base rate .1."""
    generator = np.random.default_rng(seed)
    u, v = (generator.random((50, binary_mf.TRUE_FEATURES)) < 1 / 3 for _ in range(2))
    weights = generator.gamma(2.0, 2.0, (binary_mf.TRUE_FEATURES, binary_mf.TRUE_FEATURES))
    x = generator.poisson(0.1 + u.astype(float) @ weights @ v.T).astype(np.float32)
    return mf.Dense.from_array(x), {"u": u, "v": v, "weights": weights}


def scores(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Zeros and ones in 120 x 30 cells of four features, whose scores have the sd 1.5."""
    generator = np.random.default_rng(seed)
    z, y = generator.random((120, 4)) < 0.3, generator.normal(0, 1.5, (4, 30))
    x = (z.astype(float) @ y + generator.standard_normal((120, 30)) > 0).astype(np.float32)
    return mf.Dense.from_array(x), {"z": z, "y": y}


def counts(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Counts in 120 x 30 cells of four features, rates of mean 3, base rate .1."""
    generator = np.random.default_rng(seed)
    z, y = generator.random((120, 4)) < 0.3, generator.exponential(3.0, (4, 30))
    x = generator.poisson(0.1 + z.astype(float) @ y).astype(np.float32)
    return mf.Dense.from_array(x), {"z": z, "y": y}


def spread_counts(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Counts of dispersion .2 in 60 x 20 cells of three features, half of their entries 0."""
    generator = np.random.default_rng(seed)
    z, y = generator.random((60, 3)) < 0.4, generator.gamma(2.0, 3.0, (3, 20))
    y *= generator.random((3, 20)) < 0.5
    rates = 0.3 + z.astype(float) @ y
    x = generator.poisson(rates * generator.gamma(5.0, 0.2, rates.shape)).astype(np.float32)
    return mf.Dense.from_array(x), {"z": z, "y": np.maximum(y, 0.01)}


def open_blocks(seed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """A matrix of 60 x 40 of three features a side, noise 0.5."""
    generator = np.random.default_rng(seed)
    u, v = generator.random((60, 3)) < 1 / 3, generator.random((40, 3)) < 1 / 3
    x = u.astype(float) @ generator.standard_normal((3, 3)) @ v.T
    x += 0.5 * generator.standard_normal(x.shape)
    return mf.Dense.from_array(x.astype(np.float32)), {"u": u, "v": v}


def _finite_sides() -> mf.BinaryMF:
    prior = mf.BetaBernoulli(binary_mf.TRUE_FEATURES, 1.0, 2 * binary_mf.TRUE_FEATURES)
    return mf.BinaryMF(
        row_prior=prior, column_prior=prior, likelihood=mf.Gaussian(0.5), weight_scale=1.0
    )


def _logistic_sides() -> mf.BinaryMF:
    prior = _finite_sides().row_prior
    return mf.BinaryMF(row_prior=prior, column_prior=prior, likelihood=mf.Bernoulli())


def _count_sides() -> mf.BinaryMF:
    prior = _finite_sides().row_prior
    likelihood = mf.Poisson(0.1)
    return mf.BinaryMF(
        row_prior=prior, column_prior=prior, likelihood=likelihood, weight_shape=2.0,
        weight_rate=0.5,
    )  # fmt: skip


def _model_of_rows(likelihood: Any, entries: Any, num_columns: int) -> mf.FeatureModel:
    rows = entries.expand([num_columns]).to_event(1)
    return mf.FeatureModel(likelihood=likelihood, feature_prior=rows, prior=mf.IndianBuffet(1.0))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "noisy-or/250x20": lambda: Problem(
        mf.NoisyOrIBP(), answers,
        {
            "default": {},
            "particle Gibbs": {"sweep": "particle_gibbs"},
            "split-merge": {"split_merge": 2},
            "shared births": {"shared_births": 2},
        }, 300, 200,
    ),
    "feature-model/section-4-2": lambda: Problem(
        _model_of_rows(mf.Gaussian(0.5), dist.Normal(0.0, 1.0), 36), images,
        {"default": {}, "particle Gibbs": {"sweep": "particle_gibbs"}}, 300, 200,
    ),
    "feature-model/120x30/probit": lambda: Problem(
        _model_of_rows(mf.Probit(), dist.Normal(0.0, 1.5), 30), scores, {"default": {}}, 300, 200
    ),
    "feature-model/120x30/poisson": lambda: Problem(
        _model_of_rows(mf.Poisson(0.1), dist.Exponential(1 / 3), 30), counts,
        {"default": {}}, 300, 200,
    ),
    "feature-model/60x20/negative binomial": lambda: Problem(
        _model_of_rows(
            mf.NegativeBinomial(dist.Exponential(1.0), dist.Exponential(1 / 3)),
            dist.Gamma(1.0, 1 / 7), 20,
        ),
        spread_counts, {"default": {}}, 300, 200,
    ),
    "binary-mf/50x50": lambda: Problem(
        _finite_sides(), blocks,
        {
            "default": {},
            "no change of basis": {"change_basis": 0},
            "from data": {"start": "data"},
            "whole rows": {"sweep": "whole_rows", "change_basis": 0},
        }, 500, 100,
    ),
    "binary-mf/50x50/logistic": lambda: Problem(
        _logistic_sides(), logistic_blocks,
        {
            "default": {},
            "default, long warm-up": {"num_warmup": 850},
            "from data": {"start": "data"},
            "search": {"start": "search"},
            "search, short warm-up": {"start": "search", "num_warmup": 150},
        }, 500, 200,
    ),
    "binary-mf/50x50/poisson": lambda: Problem(
        _count_sides(), counts_of_blocks, {"default": {}}, 500, 200
    ),
    "binary-mf/60x40/open": lambda: Problem(
        mf.BinaryMF(), open_blocks, {"default": {}}, 500, 100
    ),
}  # fmt: skip


def level_of_truth(problem: Problem, data: Any, truth: dict[str, np.ndarray]) -> float:
    """The mean log joint of a chain that starts at the truth, in its slots."""
    sampler = problem.model.sampler()
    start = start_at(sampler, data, truth)
    run, _ = timed_run(sampler, data, num_samples=4 * problem.num_draws, initial=start)
    return float(run.draws["log_joint"][0, problem.num_draws :].mean())


def start_at(sampler: Any, data: Any, truth: dict[str, np.ndarray]) -> Any:
    """A run that stands at the truth: its arrays in front, free slots as they are."""
    state = jax.jit(sampler.init)(jax.random.key(0), data)
    fields = {}
    for name, values in truth.items():
        whole = np.array(getattr(state, name))
        if name != "y":
            whole[:] = False
        whole[tuple(slice(size) for size in values.shape)] = values
        fields[name] = whole
    return started_run(sampler, state._replace(**fields))


def compare(name: str, quick: bool) -> list[Row]:
    """The rows of one problem."""
    problem = PROBLEMS[name]()
    num_sets, num_chains = (1, 2) if quick else (3, 3)
    if quick:
        problem = problem._replace(num_warmup=20, num_draws=20)
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in problem.kinds}
    for seed in range(num_sets):
        data, truth = problem.make(seed)
        level = level_of_truth(problem, data, truth)
        for kind, options in problem.kinds.items():
            others = {name: value for name, value in options.items() if name != "num_warmup"}
            num_warmup = (
                problem.num_warmup if quick else options.get("num_warmup", problem.num_warmup)
            )
            run, seconds = timed_run(
                problem.model.sampler(**others), data, seed=seed, num_warmup=num_warmup,
                num_samples=problem.num_draws, num_chains=num_chains,
            )  # fmt: skip
            measured = _measured(run, level, seconds / num_chains)
            found[kind].append(measured | {"warm-up": num_warmup})
    rows: list[Row] = []
    for kind, sets in found.items():
        rows += _rows(f"mixing/{name}/{kind}", sets, None if not rows else found, problem)
    return rows


def _measured(run: Any, level: float, seconds: float) -> dict[str, Any]:
    """Of the chains of one run: whether in the mode, effective samples, seconds a chain."""
    log_joint = run.draws["log_joint"]
    sizes = [
        summarise_chains({"log joint": values[None]})["log joint", "ESS"] for values in log_joint
    ]
    return {
        "in mode": level - log_joint.mean(axis=1) <= NATS,
        "size": np.array(sizes),
        "features": run.draws["num_features"][:, -1],
        "seconds": seconds,
    }


def _rows(
    case: str, sets: list[dict[str, Any]], beside: dict[str, Any] | None, problem: Problem
) -> list[Row]:
    figures, note = _figures(sets), _note(sets, problem)
    others = None if beside is None else _figures(next(iter(beside.values())))
    rows = []
    for name, (metric, unit, more_is_better) in _FIGURES.items():
        if not np.isfinite(figures[name]):
            continue  # no chain is in the mode
        more: dict[str, Any] = {} if others is None else {"peer": "default", "theirs": others[name]}
        if metric == "time":
            more["clock"] = clock()
        rows.append(
            row(
                f"{case}/{name}", metric, unit, figures[name],
                more_is_better=more_is_better, note=note, **more,
            )
        )  # fmt: skip
    return rows


_FIGURES = {
    "in-mode": ("quality", "share", True),
    "seconds": ("time", "s for each chain in the mode", False),
    "effective": ("time", "effective samples a second", True),
}


def _figures(sets: list[dict[str, Any]]) -> dict[str, float]:
    in_mode = np.concatenate([each["in mode"] for each in sets])
    # the first run compiles
    seconds = float(np.median([each["seconds"] for each in sets[-2:]]))
    sizes = np.concatenate([each["size"] for each in sets])
    share = float(in_mode.mean())
    return {
        "in-mode": share,
        "seconds": seconds / share if share else np.inf,
        "effective": float(np.median(sizes[in_mode])) / seconds if share else np.nan,
    }


def _note(sets: list[dict[str, Any]], problem: Problem) -> str:
    in_mode = np.concatenate([each["in mode"] for each in sets])
    features = np.concatenate([each["features"] for each in sets])
    return (
        f"{in_mode.sum()} of {in_mode.size} chains at most {NATS:g} nats below one from the truth; "
        f"features at the end {', '.join(map(str, np.sort(features)))}; {sets[-1]['warm-up']} "
        f"steps of warm-up, {problem.num_draws} draws, {sets[-1]['seconds']:.2f} s a chain, "
        "with the compilation of steps whose slots grew"
    )


CASES: dict[str, Callable[[bool], list[Row]]] = {
    f"mixing/{name}": partial(compare, name) for name in PROBLEMS
}
QUICK = tuple(CASES)[:1]
