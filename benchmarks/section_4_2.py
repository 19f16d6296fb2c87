"""Section 4.2 of Wood & Griffiths (2006): error against time of filter and Gibbs sampler, Figure 3.

Ten generated data sets: N = 100 images of 36 cells, four features, noise 0.5. The paper does not
give alpha and the feature scale, nor whether they are sampled; here both are fixed at 1. The error
is the sum of |E[ZZ'] - truth| over the upper triangle with the diagonal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import Partial
from rich.console import Console
from rich.table import Table

import jaxmf as mf
from benchmarks import naive
from benchmarks.harness import Row, clock, number, row, timed_run
from benchmarks.records import Paper
from jaxmf import diagnostics
from jaxmf.datasets.generated import section_4_2
from jaxmf.samplers.cloud import trace_paths

MODEL = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)
SETTINGS = naive.Settings(alpha=1.0, noise_scale=0.5, feature_scale=1.0)
SIZES = (1, 10, 100, 500, 1000, 2500, 5000)
ANNEALED_SIZES = (10, 100, 500, 1000)
NUM_SETS = 10
WARM_UP, DRAWS = 500, 100  # of the annealed chains; the default warm-up
NATS = 12.0
SMC = {
    "num_particles": 16, "proposal": "exact", "anneal_from": 0.4, "anneal_steps": 30,
    "rejuvenate_every": 10,
}  # fmt: skip


def images(seed: int, num_rows: int = 100) -> tuple[Any, np.ndarray]:
    """Data and true Z (N, 4) of one generated set."""
    made = section_4_2(seed, num_rows=num_rows)
    return mf.Dense.from_array(made.x.astype(np.float32)), made.z


def error(shared: np.ndarray, z: np.ndarray) -> float:
    """Summed |shared - ZZ'| over the upper triangle with the diagonal."""
    truth = z.astype(float) @ z.T
    return float(np.abs(np.triu(shared - truth)).sum())


def chain_error(z_draws: np.ndarray, z: np.ndarray) -> float:
    """The error of E[ZZ'] over draws (S, N, K) bool."""
    weights = np.full(len(z_draws), 1 / len(z_draws))
    return error(diagnostics.shared_features(z_draws, weights), z)


def run_filter(
    data: Any, num_particles: int, seed: int, **options: Any
) -> tuple[Any, np.ndarray, float]:
    """A finished run of the filter, the weights (P,) of its particles, and its seconds."""
    algorithm = MODEL.filter(num_particles=num_particles, **options)
    num_steps = data.num_rows + options.get("anneal_steps", 0)
    run, seconds = timed_run(algorithm, data, seed=seed, num_samples=num_steps)
    log_weights = np.asarray(run.state.log_weights[0], float)
    weights = np.exp(log_weights - log_weights.max())
    return run, weights / weights.sum(), seconds


def filter_point(data: Any, z: np.ndarray, num_particles: int, seed: int) -> tuple[float, float]:
    """Seconds and error of the plain filter."""
    run, weights, seconds = run_filter(data, num_particles, seed)
    paths, _ = trace_paths({"z": run.draws["z"][0]}, run.draws["ancestor"][0])
    shared = diagnostics.shared_features(paths["z"], weights)
    return seconds, error(shared, z)


def gibbs_points(
    data: Any, z: np.ndarray, sizes: Sequence[int], seed: int
) -> list[tuple[float, float]]:
    """Seconds and error after so many plain sweeps, the first 10 % left out; one chain for all."""
    sampler = MODEL.sampler(anneal=False)
    run, seconds = timed_run(sampler, data, seed=seed, num_samples=max(sizes))
    draws = run.draws["z"][0]
    return [
        (seconds * size / max(sizes), chain_error(draws[size // 10 : size], z)) for size in sizes
    ]


def annealed_point(data: Any, z: np.ndarray, num_sweeps: int, seed: int) -> tuple[float, float]:
    """The same with an annealed start inside the 10 % that are left out."""
    run, seconds = timed_run(
        MODEL.sampler(),
        data,
        seed=seed,
        num_warmup=num_sweeps // 10,
        num_samples=num_sweeps - num_sweeps // 10,
    )
    return seconds, chain_error(run.draws["z"][0], z)


def from_truth(z: np.ndarray, data: Any, seed: int, num_draws: int) -> tuple[Any, float]:
    """A chain started at the true Z, and its seconds."""
    sampler = MODEL.sampler(anneal=False)
    padded = np.zeros((len(z), 16), bool)
    padded[:, : z.shape[1]] = z
    sampler = sampler._replace(init=Partial(_start_at, sampler.init, padded))
    return timed_run(sampler, data, seed=seed, num_warmup=num_draws, num_samples=num_draws)


def _start_at(init: Any, z: Any, key: Any, data: Any) -> Any:
    return init(key, data)._replace(z=z)


def figure_3(num_sets: int, sizes: Sequence[int], annealed: Sequence[int], say: Any) -> list[dict]:
    """The curves: for each method and size the seconds and errors on every data set."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    data, _ = images(0)
    for size in sizes:  # compile first
        run_filter(data, size, 0)
    gibbs_points(data, images(0)[1], (1,), 0)
    annealed_point(data, images(0)[1], 10, 0)
    say("Figure 3: compiled")
    for seed in range(num_sets):
        data, z = images(seed)
        for size in sizes:
            found.setdefault(("filter", size), []).append(filter_point(data, z, size, seed))
        for size, point in zip(sizes, gibbs_points(data, z, sizes, seed), strict=True):
            found.setdefault(("Gibbs", size), []).append(point)
        for size in annealed:
            point = annealed_point(data, z, size, seed)
            found.setdefault(("annealed Gibbs", size), []).append(point)
        say(f"Figure 3: data set {seed + 1} of {num_sets}")
    return [
        {
            "method": method,
            "size": size,
            "seconds": [point[0] for point in points],
            "errors": [point[1] for point in points],
        }
        for (method, size), points in found.items()
    ]


def naive_costs(num_sets: int, *, num_particles: int = 10, num_rows: int = 10) -> dict[str, Any]:
    """Seconds a particle and a sweep of the implementations in numpy, one after the other.

    A sweep is timed on its first `num_rows` rows, from a Z of about four features, and scaled.
    """
    kinds = {
        "naive filter, growing inverse": None,
        "naive Gibbs, eq 6 a bit": naive.log_likelihood_by_eq_6,
        "naive Gibbs, N x N covariance a bit": naive.log_likelihood_by_covariance,
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for seed in range(num_sets):
        data, z = images(seed)
        x = np.asarray(data.values, float)
        for name, log_likelihood in kinds.items():
            generator = np.random.default_rng(seed)
            began = time.perf_counter()
            if log_likelihood is None:
                naive.particle_filter(generator, x, SETTINGS, num_particles=num_particles)
                share = num_particles
            else:
                naive.gibbs_sweep(
                    generator, z.astype(float), x, SETTINGS,
                    log_likelihood=log_likelihood, max_rows=num_rows,
                )  # fmt: skip
                share = num_rows / len(x)
            found[name].append((time.perf_counter() - began) / share)
    return {
        "seconds_each": {name: float(np.median(times)) for name, times in found.items()},
        "timed": f"{num_particles} particles; {num_rows} of 100 rows of a sweep; scaled linearly, "
        f"medians of {num_sets} data sets",
    }


def modes(num_sets: int, *, smc: bool = True) -> dict[str, Any]:
    """Which methods end in the mode of a chain started at the truth, and their errors."""
    methods = ["truth", "annealed Gibbs", "plain Gibbs"] + ["annealed SMC"] * smc
    found: dict[str, dict[str, list[float]]] = {
        name: {"seconds": [], "errors": [], "below": []} for name in methods
    }

    def add(name: str, seconds: float, its_error: float, below: float) -> None:
        for key, value in zip(
            ("seconds", "errors", "below"), (seconds, its_error, below), strict=True
        ):
            found[name][key].append(float(value))

    for seed in range(num_sets):
        data, z = images(seed)
        truth, seconds = from_truth(z, data, seed, DRAWS)
        level = truth.draws["log_joint"].mean()
        add("truth", seconds, chain_error(truth.draws["z"][0], z), 0)
        for name, anneal in (("annealed Gibbs", True), ("plain Gibbs", False)):
            run, seconds = timed_run(
                MODEL.sampler(anneal=anneal), data, seed=seed, num_warmup=WARM_UP, num_samples=DRAWS
            )
            final = run.draws["log_joint"][0, -1]
            add(name, seconds, chain_error(run.draws["z"][0], z), level - final)
        if smc:
            add("annealed SMC", *_smc_point(data, z, seed, level))
    return found


def split_merge(quick: bool, *, anneal: bool) -> list[Row]:
    """Share of chains at the mode with and without split-merge moves, from a plain start or not."""
    num_sets, num_chains = (2, 1) if quick else (NUM_SETS, 4)
    below: dict[int, list[float]] = {0: [], 3: []}
    seconds_each: dict[int, list[float]] = {0: [], 3: []}
    for seed in range(num_sets):
        data, z = images(seed)
        level = from_truth(z, data, seed, DRAWS)[0].draws["log_joint"].mean()
        for proposals, gaps in below.items():
            run, seconds = timed_run(
                MODEL.sampler(anneal=anneal, split_merge=proposals), data, seed=seed,
                num_warmup=WARM_UP, num_samples=DRAWS, num_chains=num_chains,
            )  # fmt: skip
            gaps.extend(level - run.draws["log_joint"][:, -1])
            seconds_each[proposals].append(seconds / num_chains)
    rows = []
    for proposals, gaps in below.items():
        inside, without = (float(np.mean(np.asarray(found) <= NATS)) for found in (gaps, below[0]))
        beside: dict[str, Any] = {}
        if proposals:
            beside = {"peer": "without split-merge", "theirs": without}
        case = f"ibp/split-merge/{'annealed' if anneal else 'plain'}/{proposals}-proposals"
        note = f"{round(inside * len(gaps))} of {len(gaps)} chains of {WARM_UP + DRAWS} sweeps end "
        rows.append(
            row(f"{case}/in-mode", "quality", "share", inside, more_is_better=True, **beside,
                note=note + f"within {NATS:g} nats of a chain from the truth")
        )  # fmt: skip
        note = "the median of data sets; the first compiles"
        figures = seconds_each[proposals]
        rows.append(row(f"{case}/seconds", "time", "s a chain", figures, clock=clock(), note=note))
    return rows


def _smc_point(data: Any, z: np.ndarray, seed: int, level: float) -> tuple[float, float, float]:
    options = dict(SMC)
    run, weights, seconds = run_filter(data, options.pop("num_particles"), seed, **options)
    paths = np.asarray(run.state.particles.z[0])
    particles = run.state.particles
    log_joints = [float(_log_joint(MODEL, particles, index, data)) for index in range(len(weights))]
    shared = diagnostics.shared_features(paths, weights)
    return seconds, error(shared, z), level - float(weights @ np.asarray(log_joints))


def _log_joint(model: Any, particles: Any, index: int, data: Any) -> Any:
    import jax

    particle = jax.tree.map(lambda leaf: leaf[0, index], particles)
    return model.log_joint(particle, data)


def quality(quick: bool) -> list[Row]:
    """Rows of the benchmark `ibp`: how often the mode is found, and the error there."""
    num_sets = 2 if quick else NUM_SETS
    return quality_rows(modes(num_sets, smc=not quick))


def quality_rows(found: dict[str, Any]) -> list[Row]:
    """Share of runs in the mode, and errors beside those of chains started at the truth."""
    truth = np.asarray(found["truth"]["errors"])
    rows = []
    for name, figures in found.items():
        if name == "truth":
            continue
        case = f"ibp/section-4-2/{name.lower().replace(' ', '-')}"
        inside = np.asarray(figures["below"]) <= NATS
        note = f"{inside.sum()} of {inside.size} end within {NATS:g} nats of a chain from the truth"
        rows.append(
            row(f"{case}/in-mode", "quality", "share", float(inside.mean()), peer="target",
                theirs=0.9, more_is_better=True, note=note)
        )  # fmt: skip
        middle = float(np.median(figures["errors"]))
        rows.append(
            row(f"{case}/error", "quality", "L1 of E[ZZ'], median", middle,
                peer="chains started at the truth", theirs=float(np.median(truth)),
                note=f"mean {np.mean(figures['errors']):.0f}")
        )  # fmt: skip
        rows.append(
            row(f"{case}/seconds", "time", "s a data set", figures["seconds"], clock=clock())
        )
    return rows


def verdict(curves: list[dict], costs: dict[str, Any], size: int) -> list[str]:
    """Which wins where, in words."""
    middle = {
        (curve["method"], curve["size"]): (np.median(curve["seconds"]), np.median(curve["errors"]))
        for curve in curves
    }
    each = costs["seconds_each"]
    particle = next(iter(each.values()))
    errors = {
        method: {n: error for (name, n), (_, error) in middle.items() if name == method}
        for method in ("filter", "Gibbs")
    }
    words = [
        f"Literal implementations in numpy, {particle * 1e3:.0f} ms a particle: a sweep costs "
        + ", ".join(
            f"{seconds / particle:.0f} particles ({name})"
            for (name, seconds) in list(each.items())[1:]
        )
        + "; at as many particles as sweeps the filter is faster by as much."
    ]
    for name, seconds in list(each.items())[1:]:
        clouds = [(particle * n, error) for n, error in errors["filter"].items()]
        chains = [(seconds * n, error) for n, error in errors["Gibbs"].items()]
        words.append(f"Error at equal time, {name}: {_lower(clouds, chains)}.")
    pair = [[point for (name, _), point in middle.items() if name == one] for one in errors]
    filter_time, gibbs_time = middle["filter", size][0], middle["Gibbs", size][0]
    words.append(
        "Row-wise statistics on both sides: a sweep costs "
        f"{gibbs_time / filter_time:.1f} particles ({size:,} of each: filter {filter_time:.2f} s, "
        f"Gibbs {gibbs_time:.2f} s). Error at equal time: {_lower(*pair)}."
    )
    if ("annealed Gibbs", size) in middle:
        seconds, its_error = middle["annealed Gibbs", size]
        words.append(
            f"Gibbs with an annealed start reaches {its_error:.0f} in {size:,} sweeps, "
            f"{seconds:.1f} s; plain Gibbs {min(errors['Gibbs'].values()):.0f} and the filter "
            f"{min(errors['filter'].values()):.0f} at best, with {max(errors['filter']):,}."
        )
    return words


def _lower(clouds: list[tuple[float, float]], chains: list[tuple[float, float]]) -> str:
    """Which of two curves of (seconds, error) is lower when, by the best point so far."""

    def best(points: list[tuple[float, float]], seconds: float) -> float:
        return min((error for time, error in points if time <= seconds), default=np.inf)

    times = sorted(time for time, _ in clouds + chains)
    turns: list[tuple[float, str]] = []
    for seconds in times:
        winner = "the filter" if best(clouds, seconds) < best(chains, seconds) else "Gibbs"
        if not turns or turns[-1][1] != winner:
            turns.append((seconds, winner))
    return ", ".join(f"{winner} is lower from {seconds:.2g} s" for seconds, winner in turns)


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Everything of section 4.2, printed, and written to `json`."""
    num_sets, sizes, annealed = (2, (1, 10, 100), (10, 100)) if quick else (
        NUM_SETS, SIZES, ANNEALED_SIZES
    )  # fmt: skip
    about = {
        "data_sets": num_sets, "rows": 100, "columns": 36, "particles_and_sweeps": list(sizes),
        "annealed_sweeps": list(annealed),
        "model": "alpha = 1, noise scale 0.5, feature scale 1, all fixed",
        "trivial_error": [error(np.zeros((100, 100)), images(seed)[1]) for seed in range(num_sets)],
    }  # fmt: skip
    paper = Paper("section-4-2", about, quick=quick, json=json)
    costs = naive_costs(min(num_sets, 3))
    paper.say(f"naive: {costs}")
    paper.save(naive=costs)
    curves = figure_3(num_sets, sizes, annealed, paper.say)
    paper.save(curves=curves)
    print_curves("Figure 3", curves, paper.console)
    return paper.end(verdict(curves, costs, max(annealed)))


def print_curves(figure: str, curves: list[dict], console: Console) -> None:
    """A figure of error against time as a table."""
    table = Table(title=f"{figure}: error against time", title_justify="left")
    for name in ("method", "particles or sweeps", "seconds, median", "error, median", "mean", "sd"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for curve in curves:
        errors = np.asarray(curve["errors"])
        figures = (np.median(curve["seconds"]), np.median(errors), errors.mean(), errors.std())
        table.add_row(curve["method"], f"{curve['size']:,}", *map(number, figures))
    console.print(table)
