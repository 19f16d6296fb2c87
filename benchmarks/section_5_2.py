"""Section 5.2 of Wood & Griffiths (2006): filter and Gibbs sampler of the noisy-OR model.

Ten generated data sets: 6 x 250, four causes, alpha = 3, p = 0.1, lambda = 0.9, epsilon = 0.01, all
of them known to the model. Figure 4: the causal graph of the truth, of one particle, and E[ZZ'].
Figure 5: error against time, the error being the sum of |E[ZZ'] - truth| over the upper triangle
with the diagonal, as in section 4.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.tree_util import Partial
from scipy.special import betaln

import jaxmf as mf
from benchmarks.harness import Row, clock, row, timed_run
from benchmarks.records import Paper
from benchmarks.section_4_2 import error, print_curves
from jaxmf import diagnostics
from jaxmf.datasets.generated import section_5_2
from jaxmf.samplers.cloud import trace_paths

MODEL = mf.NoisyOrIBP(alpha=3.0, cause_probability=0.1, efficacy=0.9, leak=0.01)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
INFORMED_SIZES = (10, 100, 1000)
NUM_SETS = 10
FIGURE_4 = (500, 10_000)
WARM_UP, DRAWS = 300, 100
# an annealed start: the leak falls from a fifth to its value over three quarters of the warm-up
LEAKS, SWEEPS_A_LEAK = np.geomspace(0.2, 0.01, 10), 25
NATS = 6.0
KINDS = {
    "Gibbs": {"num_moves": 0},
    "Gibbs with moves": {"num_moves": 6},
}


def causes(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Data, true Z (6, 4) and Y (4, 250) of one generated set."""
    made = section_5_2(seed)
    return mf.Dense.from_array(made.x), made.z, made.y


def run_filter(data: Any, num_particles: int, seed: int, proposal: str) -> dict[str, Any]:
    """Seconds, weights (P,) and whole Z (P, N, K) of one pass."""
    algorithm = MODEL.filter(num_particles=num_particles, proposal=proposal, capacity=16)
    run, seconds = timed_run(algorithm, data, seed=seed, num_samples=data.num_rows)
    log_weights = np.asarray(run.state.log_weights[0], float)
    weights = np.exp(log_weights - log_weights.max())
    paths, _ = trace_paths({"z": run.draws["z"][0]}, run.draws["ancestor"][0])
    return {
        "seconds": seconds,
        "weights": weights / weights.sum(),
        "z": paths["z"],
        "log_evidence": float(run.state.log_evidence[0]),
    }


def filter_point(data: Any, z: np.ndarray, size: int, seed: int, proposal: str) -> tuple:
    """Seconds and error of one pass."""
    cloud = run_filter(data, size, seed, proposal)
    return cloud["seconds"], error(diagnostics.shared_features(cloud["z"], cloud["weights"]), z)


def run_chain(data: Any, num_draws: int, seed: int, kind: str, **options: Any) -> tuple[Any, float]:
    """A chain started without causes, and its seconds."""
    sampler = MODEL.sampler(capacity=16, **KINDS[kind])
    return timed_run(sampler, data, seed=seed, num_samples=num_draws, **options)


def run_annealed(data: Any, num_draws: int, seed: int, kind: str) -> tuple[Any, float]:
    """The same with a leak that falls in steps, each a run from the last state of the last."""
    options = {"capacity": 16, **KINDS[kind]}
    start, total = (
        (np.zeros((data.num_rows, 16), bool), np.zeros((16, data.num_columns), bool)),
        0.0,
    )
    for stage, leak in enumerate(LEAKS):
        sampler = replace(MODEL, leak=float(leak)).sampler(**options)
        sampler = sampler._replace(init=Partial(_start_at, sampler.init, *start))
        last = stage == len(LEAKS) - 1
        run, seconds = timed_run(
            sampler,
            data,
            seed=1_000 * seed + stage,
            num_warmup=WARM_UP - SWEEPS_A_LEAK * stage if last else SWEEPS_A_LEAK - 1,
            num_samples=num_draws if last else 1,
        )
        start, total = (run.state.z[0], run.state.y[0]), total + seconds
    return run, total


def gibbs_points(
    data: Any, z: np.ndarray, sizes: Sequence[int], seed: int, kind: str
) -> list[tuple[float, float]]:
    """Seconds and error after so many sweeps, the first 10 % left out; one chain for all."""
    run, seconds = run_chain(data, max(sizes), seed, kind)
    draws = run.draws["z"][0]
    return [
        (seconds * size / max(sizes), chain_error(draws[size // 10 : size], z)) for size in sizes
    ]


def chain_error(draws: np.ndarray, z: np.ndarray) -> float:
    """The error of E[ZZ'] over draws (S, N, K) bool."""
    return error(diagnostics.shared_features(draws, np.full(len(draws), 1 / len(draws))), z)


def from_truth(data: Any, z: np.ndarray, y: np.ndarray, seed: int) -> float:
    """log p(X, Z) of the last Z of a chain started at the true Z and Y."""
    sampler = MODEL.sampler(capacity=16)
    start = np.zeros((len(z), 16), bool), np.zeros((16, y.shape[1]), bool)
    start[0][:, : z.shape[1]], start[1][: len(y)] = z, y
    sampler = sampler._replace(init=Partial(_start_at, sampler.init, *start))
    run, _ = timed_run(sampler, data, seed=seed, num_samples=DRAWS)
    return log_collapsed(run.draws["z"][0, -1], data)


def log_collapsed(z: np.ndarray, data: Any) -> float:
    """log p(X, Z) of complete data with Y summed out exactly, at cost 2^N; Z labelled.

    Modes are compared by it: the joint density with Y in it favours few causes, whatever their Y.
    """
    z = z[:, z.any(axis=0)]
    counts, num_rows = z.sum(axis=0), len(z)
    total = len(counts) * np.log(MODEL.alpha)
    total += betaln(counts, num_rows - counts + MODEL.concentration).sum()
    patterns, number = np.unique(np.asarray(data.values).T, axis=0, return_counts=True)
    for x, times in zip(patterns, number, strict=True):
        chance = 0.0
        ones = np.flatnonzero(x)
        for some in itertools.product([False, True], repeat=len(ones)):
            rows = np.concatenate([np.flatnonzero(x == 0), ones[list(some)]]).astype(int)
            fail = (1 - MODEL.efficacy) ** z[rows].sum(axis=0)
            p = MODEL.cause_probability
            chance += (-1) ** sum(some) * (1 - MODEL.leak) ** len(rows) * (1 - p + p * fail).prod()
        total += times * np.log(chance)
    return float(total)


def _start_at(init: Any, z: Any, y: Any, key: Any, data: Any) -> Any:
    return init(key, data)._replace(z=z, y=y)


def figure_4(seed: int, sizes: Sequence[int], proposal: str = "prior") -> dict[str, Any]:
    """The truth, one particle drawn by its weight, and E[ZZ'], of one data set."""
    data, z, _ = causes(seed)
    found: dict[str, Any] = {"data_set": seed, "proposal": proposal, "z": z.astype(int).tolist()}
    for size in sizes:
        cloud = run_filter(data, size, seed, proposal)
        chosen = np.random.default_rng(seed).choice(size, p=cloud["weights"])
        particle = cloud["z"][chosen]
        shared = diagnostics.shared_features(cloud["z"], cloud["weights"])
        found[str(size)] = {
            "particle": particle[:, particle.any(axis=0)].astype(int).tolist(),
            "shared": shared.tolist(),
            "error": error(shared, z),
            "log_evidence": cloud["log_evidence"],
            "seconds": cloud["seconds"],
        }
    return found


def figure_5(num_sets: int, sizes: Sequence[int], informed: Sequence[int], say: Any) -> list[dict]:
    """The curves: for each method and size the seconds and errors on every data set."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    data, z, _ = causes(0)
    filters = [("filter", "prior", sizes), ("informed filter", "informed", informed)]
    for _, proposal, numbers in filters:  # compile first
        for size in numbers:
            run_filter(data, size, 0, proposal)
    for kind in KINDS:
        gibbs_points(data, z, (1,), 0, kind)
    say("Figure 5: compiled")
    for seed in range(num_sets):
        data, z, _ = causes(seed)
        for name, proposal, numbers in filters:
            for size in numbers:
                point = filter_point(data, z, size, seed, proposal)
                found.setdefault((name, size), []).append(point)
        for name in KINDS:
            points = gibbs_points(data, z, sizes, seed, name)
            for size, point in zip(sizes, points, strict=True):
                found.setdefault((name, size), []).append(point)
        say(f"Figure 5: data set {seed + 1} of {num_sets}")
    return [
        {
            "method": method,
            "size": size,
            "seconds": [point[0] for point in points],
            "errors": [point[1] for point in points],
        }
        for (method, size), points in found.items()
    ]


def modes(num_sets: int, num_chains: int) -> dict[str, Any]:
    """How far below a chain from the truth chains end, and their errors, by kind of sampler."""
    found: dict[str, Any] = {}

    def add(name: str, seconds: float, draws: np.ndarray, data: Any, z: np.ndarray) -> None:
        figures = found.setdefault(name, {"seconds": [], "errors": [], "below": []})
        figures["seconds"].append(seconds)
        figures["errors"].append(chain_error(draws, z))
        figures["below"].append(level - log_collapsed(draws[-1], data))

    for seed in range(num_sets):
        data, z, y = causes(seed)
        level = from_truth(data, z, y, seed)
        for kind in KINDS:
            run, seconds = run_chain(
                data, DRAWS, seed, kind, num_warmup=WARM_UP, num_chains=num_chains
            )
            for draws in run.draws["z"]:
                add(kind, seconds / num_chains, draws, data, z)
            for chain in range(num_chains):
                run, seconds = run_annealed(data, DRAWS, num_chains * seed + chain, kind)
                add(f"{kind}, annealed leak", seconds, run.draws["z"][0], data, z)
    return found


def quality(quick: bool) -> list[Row]:
    """Rows of the benchmark `noisy_or`: how often a chain ends in a wrong mode, and the error."""
    num_sets, num_chains = (2, 2) if quick else (NUM_SETS, 4)
    rows = []
    for name, figures in modes(num_sets, num_chains).items():
        case = f"noisy-or/section-5-2/{name.lower().replace(',', '').replace(' ', '-')}"
        wrong = np.asarray(figures["below"]) > NATS
        note = (
            f"{wrong.sum()} of {wrong.size} chains end more than {NATS:g} nats of log p(X, Z), Y "
            f"summed out, below a chain from the truth; {WARM_UP} + {DRAWS} sweeps from no causes"
        )
        rows.append(row(f"{case}/wrong-mode", "quality", "share", float(wrong.mean()), note=note))
        rows.append(
            row(f"{case}/error", "quality", "L1 of E[ZZ'], mean", float(np.mean(figures["errors"])),
                note=f"median {np.median(figures['errors']):.2g}")
        )  # fmt: skip
        rows.append(row(f"{case}/seconds", "time", "s a chain", figures["seconds"], clock=clock()))
    return rows


def verdict(curves: list[dict], found: dict[str, Any]) -> list[str]:
    """Which method is best, in words."""
    largest: dict[str, dict] = {}
    for curve in curves:
        if curve["size"] >= largest.get(curve["method"], curve)["size"]:
            largest[curve["method"]] = curve
    words = [
        f"{name}, {curve['size']:,}: mean error {np.mean(curve['errors']):.1f} in "
        f"{np.mean(curve['seconds']):.2f} s"
        for name, curve in largest.items()
    ]
    for name, figures in found.items():
        wrong = np.asarray(figures["below"]) > NATS
        words.append(
            f"{name}: {wrong.sum()} of {wrong.size} chains in a wrong mode after "
            f"{WARM_UP + DRAWS} sweeps, mean error {np.mean(figures['errors']):.2f}"
        )
    return words


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Everything of section 5.2, printed, and written to `json`."""
    num_sets, sizes, informed = (2, (1, 10, 100), (10, 100)) if quick else (
        NUM_SETS, SIZES, INFORMED_SIZES
    )  # fmt: skip
    num_chains = 2 if quick else 4
    about = {
        "data_sets": num_sets, "rows": 6, "columns": 250, "particles_and_sweeps": list(sizes),
        "informed_particles": list(informed), "chains_a_data_set": num_chains,
        "warm_up": WARM_UP, "draws": DRAWS,
        "model": "alpha = 3, p = 0.1, lambda = 0.9, epsilon = 0.01, all fixed",
        "trivial_error": [error(np.zeros((6, 6)), causes(seed)[1]) for seed in range(num_sets)],
    }  # fmt: skip
    paper = Paper("section-5-2", about, quick=quick, json=json)
    graphs = [
        figure_4(0, (50, 500) if quick else FIGURE_4, proposal)
        for proposal in ("prior", "informed")
    ]
    paper.say("Figure 4")
    paper.save(figure_4=graphs)
    curves = figure_5(num_sets, sizes, informed, paper.say)
    paper.save(curves=curves)
    found = modes(num_sets, num_chains)
    paper.save(modes=found)
    print_curves("Figure 5", curves, paper.console)
    return paper.end(verdict(curves, found))
