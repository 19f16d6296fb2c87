"""Binary matrix factorisation: time and memory a cell, compilation; weights summed out or kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmf as mf
from benchmarks.harness import (
    Row,
    clock,
    compile_row,
    flat_rows,
    interleaved,
    planned_bytes,
    row,
    started_run,
    timed_run,
)
from jaxmf.engine.executables import num_bytes

NUM_FEATURES = 16
LAYOUTS = ("collapsed", "explicit")
TRUE_FEATURES = 4
WARM_UP, DRAWS = 500, 50
PLAIN = "plain"
STARTS: dict[str, dict[str, Any]] = {
    PLAIN: {"anneal": False},
    "annealed, one proposal": {"several": 1},
    "annealed": {},
    "annealed, split-merge": {"split_merge": 3},
    "annealed, whole rows": {"sweep": "whole_rows"},
    "from data": {"start": "data"},
}
NATS = 12.0
KINDS = {"complete": 0.0, "missing": 0.3}
FINITE = mf.BetaBernoulli(8.0, 1.0, NUM_FEATURES)
MODEL = mf.BinaryMF(
    row_prior=FINITE, column_prior=FINITE, likelihood=mf.Gaussian(0.5), weight_scale=1.0
)


def made(
    num_rows: int, *, num_features: int = NUM_FEATURES, share_missing: float = 0.0, seed: int = 0
) -> tuple[Any, Any, Any]:
    """U, V (n, K) bool with odds of one to two and X = U W V' + noise of 0.5, square."""
    generator = np.random.default_rng(seed)
    shape = (num_rows, num_features)
    u, v = (generator.random(shape, dtype=np.float32) < 1 / 3 for _ in range(2))
    weights = generator.standard_normal((num_features, num_features), dtype=np.float32)
    x = u.astype(np.float32) @ weights @ v.T.astype(np.float32)
    x += 0.5 * generator.standard_normal(x.shape, dtype=np.float32)
    if share_missing:
        x[generator.random(x.shape, dtype=np.float32) < share_missing] = np.nan
    return u, v, mf.Dense.from_array(x)


@partial(jax.jit, static_argnames="num_steps")
def steps(algorithm: Any, key: Any, state: Any, data: Any, *, num_steps: int) -> Any:
    """So many steps of a sampler in one program."""

    def step(index: Any, state: Any) -> Any:
        return algorithm.step(jax.random.fold_in(key, index), state, data, jnp.ones(()))[0]

    return jax.lax.fori_loop(0, num_steps, step, state)


def started(weights: str, num_rows: int, *, share_missing: float = 0.0) -> tuple[Any, Any, Any]:
    """Sampler, state at the true U and V, data."""
    u, v, data = made(num_rows, share_missing=share_missing)
    algorithm = MODEL.sampler(weights=weights)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    return algorithm, state._replace(u=jnp.asarray(u), v=jnp.asarray(v)), data


def program_of(
    weights: str, num_rows: int, *, num_steps: int = 1, share_missing: float = 0.0
) -> tuple[Callable[[], Any], Any, Any]:
    """A run of so many steps, its program, and the data."""
    algorithm, state, data = started(weights, num_rows, share_missing=share_missing)
    arguments = (algorithm, jax.random.key(1), state, data)
    program = steps.lower(*arguments, num_steps=num_steps).compile()
    return partial(program, *arguments), program, data


def cells_flat(quick: bool, *, share_missing: float = 0.0) -> list[Row]:
    """Time of a cell in a step over ever more cells; ratio to the time at the smallest size."""
    sizes = [100, 316] if quick else [100, 316, 1_000, 3_162]
    if share_missing and not quick:
        sizes = [100, 1_000]
    name = "missing" if share_missing else "complete"
    missing = f", {share_missing:.0%} missing" if share_missing else ""
    rows = []
    for weights in LAYOUTS:
        runs, counts = [], []
        for num_rows in sizes:
            num_steps = max(1, 100_000 // num_rows**2)
            run, *_ = program_of(
                weights, num_rows, num_steps=num_steps, share_missing=share_missing
            )
            runs.append(run)
            counts.append(num_rows**2 * (1 - share_missing) * num_steps)
        rows += flat_rows(
            [f"binary-mf/step/{weights}/{name}/n{num_rows**2}" for num_rows in sizes],
            "ns an observed cell",
            interleaved(*runs, repeats=3).over(counts),
            scale=1e9,
            peer=f"jaxmf at {sizes[0]} x {sizes[0]}",
            notes=[f"{n} x {n}, K = L = {NUM_FEATURES}{missing}" for n in sizes],
        )
    return rows


def memory(quick: bool) -> list[Row]:
    """Bytes a cell beyond the data, as the compiled step plans them."""
    num_rows = 316 if quick else 1_000
    rows = []
    for weights, (kind, share_missing) in itertools.product(LAYOUTS, KINDS.items()):
        _, program, data = program_of(weights, num_rows, share_missing=share_missing)
        per_cell = (planned_bytes(program) - num_bytes(data)) / num_rows**2
        case = f"binary-mf/memory/{weights}/{kind}/n{num_rows**2}"
        rows.append(row(case, "memory", "bytes a cell", per_cell))
    return rows


def compile_time(quick: bool) -> list[Row]:
    """Seconds to lower and compile one step, nothing cached."""
    del quick
    rows = []
    for weights, (kind, share_missing) in itertools.product(LAYOUTS, KINDS.items()):
        # a shape that no other case has
        algorithm, state, data = started(weights, 53, share_missing=share_missing)
        arguments = algorithm, jax.random.key(1), state, data
        rows.append(
            compile_row(f"binary-mf/compile/{weights}/{kind}", steps, *arguments, num_steps=1)
        )
    return rows


def found_mode(quick: bool) -> list[Row]:
    """How near chains come to one from the truth, by how they start and what moves they have."""
    num_sets, num_chains, num_warmup = (1, 2, 40) if quick else (5, 8, WARM_UP)
    prior = mf.BetaBernoulli(TRUE_FEATURES, 1.0, 2 * TRUE_FEATURES)
    model = replace(MODEL, row_prior=prior, column_prior=prior)
    below: dict[str, list[float]] = {name: [] for name in STARTS}
    seconds_each: dict[str, list[float]] = {name: [] for name in STARTS}
    for seed in range(num_sets):
        u, v, data = made(50, num_features=TRUE_FEATURES, seed=seed)
        plain = model.sampler(anneal=False)
        state = plain.init(jax.random.key(0), data)
        room = [(0, 0), (0, TRUE_FEATURES)]
        state = state._replace(u=jnp.asarray(np.pad(u, room)), v=jnp.asarray(np.pad(v, room)))
        truth, _ = timed_run(plain, data, num_samples=DRAWS, initial=started_run(plain, state))
        level = truth.draws["log_joint"].mean()
        for name, options in STARTS.items():
            run, seconds = timed_run(
                model.sampler(**options), data, seed=seed,
                num_warmup=num_warmup, num_samples=DRAWS, num_chains=num_chains,
            )  # fmt: skip
            below[name].extend(level - run.draws["log_joint"].mean(axis=1))
            seconds_each[name].append(seconds / num_chains)
    about = (
        f"{num_warmup + DRAWS} steps, 50 x 50, {TRUE_FEATURES} features a side in "
        f"{2 * TRUE_FEATURES} slots, weights summed out"
    )
    rows = []
    for name, found in below.items():
        gaps, case = np.asarray(found), f"binary-mf/start/{name}"
        share, plain_share = (
            float(np.mean(np.asarray(one) <= NATS)) for one in (found, below[PLAIN])
        )
        beside = {} if name == PLAIN else {"peer": PLAIN, "theirs": plain_share}
        note = (
            f"{np.sum(gaps <= NATS)} of {gaps.size} chains at most {NATS:g} nats below one from "
            f"the truth, half of them at most {np.median(gaps):.0f}; {about}"
        )
        rows.append(
            row(f"{case}/in-mode", "quality", "share", share, more_is_better=True, note=note,
                **beside)
        )  # fmt: skip
        note = "the median of data sets; the first compiles"
        rows.append(
            row(
                f"{case}/seconds", "time", "s a chain", seconds_each[name], clock=clock(), note=note
            )
        )
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "binary-mf/step/complete": cells_flat,
    "binary-mf/step/missing": partial(cells_flat, share_missing=0.3),
    "binary-mf/memory": memory,
    "binary-mf/compile": compile_time,
    "binary-mf/start": found_mode,
}
QUICK = ("binary-mf/step/complete", "binary-mf/memory", "binary-mf/compile")
