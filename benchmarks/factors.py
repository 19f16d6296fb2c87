"""BPMF beside SMURFF and myFM: time of a sweep, time to their error, error at equal draws.

Settings were fixed beforehand, on a split that is none of these: factors start as normals of
standard deviation one, the first 20 sweeps are thrown away, all others are averaged; side
information is year and genre, age and sex, date and the previous two ratings. Predictions are cut
off at the lowest and highest rating. Each side has one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks.factor_chains import (
    MyFM,
    Ours,
    Path,
    Smurff,
    Split,
    advance,
    has,
    random_split,
    run,
    split,
)
from benchmarks.harness import (
    Row,
    compile_row,
    flat_rows,
    interleaved,
    reset_peak,
    resident,
    row,
)
from benchmarks.side_features import any_features
from benchmarks.side_information import has_dates, with_side_information
from jaxmf import datasets
from jaxmf.data import Entries, Features, rating_features

NUM_WARMUP = 20
PUBLISHED = {"u1": {"gaussian": 0.8833, "ordinal": 0.8808}, "ml-1m": {"gaussian": 0.8161}}


@cache
def ratings(name: str) -> datasets.ratings.Ratings:
    """MovieLens by its name in the cases."""
    read = {"ml-100k": "movielens_100k", "ml-1m": "movielens_1m"}
    return getattr(datasets.ratings, read[name])()


def tenth(number: int, *, fold: int = 0) -> np.ndarray:
    """The test ratings of a fold of ten as myFM's examples cut them: a mask."""
    order = np.arange(number)
    np.random.RandomState(42).shuffle(order)  # as published
    parts = np.array_split(order, 10)
    is_test = np.zeros(number, bool)
    is_test[parts[fold]] = True
    return is_test


def side_information(name: str, data: Split, is_test: np.ndarray) -> dict[str, Any]:
    """What `BPMF` knows of users, movies and ratings; from training ratings alone."""
    known = ratings(name)
    users = known.user_features()
    few = Features(users.to_array()[:, :3], users.ids, columns=users.described[:3])
    times = np.asarray(known.time, float)
    ids = known.data.row_names[data.rows], known.data.column_names[data.columns]
    cells = rating_features(
        data.train, times=times[~is_test], new_cells=ids, new_times=times[is_test], num_neighbours=0
    )
    items = known.item_features()
    return {"row_features": few, "column_features": items, "cell_features": cells}


# --- time of a sweep ------------------------------------------------------------------------------


def sweeps(name: str, quick: bool) -> list[Row]:
    """Seconds of a sweep, nothing predicted on the way."""
    data = ratings(name).data
    timed = split(data, np.arange(data.num_entries) == 0)
    rows = []
    for num_factors in (10,) if quick else (10, 32, 64):
        sides: list[Any] = [Ours(mf.BPMF(num_factors), timed)]
        sides += [Smurff(num_factors, timed)] if has("smurff") else []
        times = interleaved(*(side.sweep for side in sides), repeats=7, warm_up=3)
        more: dict[str, Any] = {}
        if len(sides) > 1:
            more = {"peer": "SMURFF", "theirs": times.figures[1] * 1e3}
        case = f"factors/sweep/{name}/k{num_factors}"
        note = f"{timed.train.num_entries:,} ratings"
        rows.append(times.row(case, "ms", 0, scale=1e3, note=note, **more))
        if has("myfm"):
            theirs = np.array(_myfm_seconds(num_factors, timed, 4 if quick else 8)) * 1e3
            more = {"peer": "myFM", "theirs": float(np.median(theirs))}
            rows.append(times.row(f"{case}/myfm", "ms", 0, scale=1e3, note=note, **more))
    return rows


def _myfm_seconds(num_factors: int, data: Split, number: int) -> list[float]:
    moments: list[float] = []
    MyFM(num_factors, data).run(number, lambda *_: moments.append(time.process_time()))
    return np.diff(moments)[1:].tolist()


def compilation(quick: bool) -> list[Row]:
    """Seconds to compile a sweep, nothing cached."""
    rows = []
    for name in ("ml-100k",) if quick else ("ml-100k", "ml-1m"):
        data = ratings(name).data
        chain = Ours(mf.BPMF(10), split(data, np.arange(data.num_entries) == 0))
        # a function of its own, or what was traced before would be found again
        step = jax.jit(lambda *given: advance(*given))
        arguments = (chain.algorithm, chain.key, chain.state, chain.prepared)
        rows.append(compile_row(f"factors/compile/{name}/k10", step, *arguments, note="one sweep"))
    return rows


# --- errors ---------------------------------------------------------------------------------------


def errors(
    name: str, num_factors: int, quick: bool, *, num_seeds: int, num_draws: int
) -> list[Row]:
    """Error at equal factors and draws, and CPU seconds until ours is as good as theirs."""
    num_seeds, num_draws = (1, 30) if quick else (num_seeds, num_draws)
    makers: dict[str, Callable[..., Any]] = {"jaxmf": partial(_ours, num_factors)}
    makers |= {"SMURFF": partial(Smurff, num_factors)} if has("smurff") else {}
    makers |= {"myFM": partial(MyFM, num_factors)} if has("myfm") else {}
    paths: dict[str, list[Path]] = {side: [] for side in makers}
    for seed in range(num_seeds):
        data = random_split(ratings(name).data, seed)
        for side, make in makers.items():
            chain = make(data, seed=seed)
            paths[side].append(run(chain, num_warmup=NUM_WARMUP, num_draws=num_draws))
    rows = []
    final = {side: [path.errors[-1] for path in found] for side, found in paths.items()}
    note = f"{num_draws} draws after {NUM_WARMUP} sweeps, a tenth held out at random"
    for side in [each for each in makers if each != "jaxmf"] or [None]:
        more = {"peer": side, "theirs": final[side]} if side else {}
        case = f"factors/error/{name}/k{num_factors}" + (f"/{side.lower()}" if side else "")
        rows.append(row(case, "quality", "RMSE", final["jaxmf"], note=note, **more))
        if side:
            rows.append(_time_to(name, num_factors, side, paths))
    return rows


def _ours(num_factors: int, data: Split, *, seed: int) -> Ours:
    return Ours(mf.BPMF(num_factors), data, seed=seed)


def _time_to(name: str, num_factors: int, side: str, paths: dict[str, list[Path]]) -> Row:
    """Seconds until ours is as good as the peer in the end, compiling aside, over all of theirs."""
    mine, theirs, compiling = [], [], []
    for ours, other in zip(paths["jaxmf"], paths[side], strict=True):
        good = ours.errors <= other.errors[-1]
        theirs.append(other.seconds[-1])
        compiling.append(ours.first)
        # a chain that never gets there counts as the slowest
        there = ours.seconds[int(np.argmax(good))] - ours.first if good.any() else np.inf
        mine.append(there)
    reached = f"reached in {np.isfinite(mine).sum()} of {len(theirs)}"
    note = (
        f"{reached}; compiling takes {max(compiling):.1f} s more in the first run, "
        f"{min(compiling):.2f} s in a later one"
    )
    case = f"factors/reach/{name}/k{num_factors}/{side.lower()}"
    return row(
        case, "time", "s", mine, peer=f"{side}, to its own final error", theirs=theirs, note=note,
        clock="cpu",
    )  # fmt: skip


def side(quick: bool) -> list[Row]:
    """Error with side information and without, MovieLens-100K, ten factors."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    for seed in range(1 if quick else 5):
        data = random_split(ratings("ml-100k").data, seed)
        is_test = np.random.default_rng([seed, 7]).random(100_000) < 0.1
        known = side_information("ml-100k", data, is_test)
        for name, features in {"with": known, "without": {}}.items():
            chain = Ours(mf.BPMF(10, **features), data, seed=seed)
            path = run(chain, num_warmup=NUM_WARMUP, num_draws=30 if quick else 200)
            found[name].append(path.errors[-1])
    note = "year, genre, age, sex, date, previous two ratings"
    case, peer = "factors/side/ml-100k/k10", "jaxmf without side information"
    more = {"peer": peer, "theirs": found["without"]}
    return [row(case, "quality", "RMSE", found["with"], note=note, **more)]


def published(name: str, kind: str, quick: bool) -> list[Row]:
    """Error on a published split, with what myFM's examples know, beside its published one."""
    data_name = "ml-100k" if name == "u1" else name
    known = ratings(data_name)
    is_test = known.test["u1"] if name == "u1" else tenth(known.data.num_entries)
    data, features = with_side_information(known, is_test)
    likelihood = {"gaussian": mf.Gaussian(), "ordinal": mf.Ordinal()}[kind]
    settings: dict[str, Any] = {"likelihood": likelihood, "coefficients": False}
    num_factors = 10 if name == "u1" else 32
    counts = {"num_warmup": NUM_WARMUP, "num_draws": 30 if quick else 512}
    found = []
    for seed in range(1 if quick or name != "u1" else 3):
        chain = Ours(mf.BPMF(num_factors, **settings, **features), data, seed=seed)
        found.append(run(chain, **counts).errors[-1])
    plain = Ours(mf.BPMF(num_factors, likelihood=likelihood), split(known.data, is_test))
    alone = run(plain, **counts).errors[-1]
    note = (
        f"{num_factors} factors, {counts['num_draws']} draws; users, movies, who rated what"
        f"{', days' if has_dates(known) else '; no days, which theirs has'}; "
        f"from training ratings alone; without features {alone:.4f}"
    )
    more = {"peer": "myFM, published", "theirs": PUBLISHED[name][kind]}
    return [row(f"factors/published/{name}/{kind}", "quality", "RMSE", found, note=note, **more)]


# --- size -----------------------------------------------------------------------------------------


def made_up(num_ratings: int, *, shape: tuple[int, int] = (138_000, 27_000)) -> Entries:
    """Ratings of users and movies of power-law popularity, from five factors and noise."""
    generator = np.random.default_rng(0)
    keys = np.zeros(0, np.int64)
    while keys.size < num_ratings:
        rows, columns = (
            (size * generator.random(num_ratings) ** power).astype(np.int64)
            for size, power in zip(shape, (2.0, 3.0), strict=True)
        )
        keys = np.unique(np.append(keys, rows * shape[1] + columns))
    keys = keys[np.sort(generator.permutation(keys.size)[:num_ratings])]
    rows, columns = np.divmod(keys, shape[1])
    u, v = (generator.normal(size=(size, 5)).astype(np.float32) for size in shape)
    values = 3.5 + 0.3 * np.einsum("tk,tk->t", u[rows], v[columns])
    values = values + 0.8 * generator.normal(size=num_ratings)
    return Entries(rows, columns, values.astype(np.float32), shape)


def large(quick: bool) -> list[Row]:
    """MovieLens-20M's shape: time of a rating at ever more ratings, and peak memory."""
    sizes = (20_000, 200_000) if quick else (200_000, 2_000_000, 20_000_000)
    shape = (1_380, 2_700) if quick else (138_000, 27_000)
    chains = []
    for size in sizes:
        before = reset_peak()
        chains.append(Ours(mf.BPMF(32), split(made_up(size, shape=shape), np.arange(size) == 0)))
        jax.block_until_ready(chains[-1].sweep())
    peak = resident("VmHWM")
    counts = [chain.data.train.num_entries for chain in chains]
    times = interleaved(*(chain.sweep for chain in chains), repeats=3, warm_up=1).over(counts)
    cases = [f"factors/large/{size}" for size in sizes]
    rows = flat_rows(
        cases, "ns a rating", times, scale=1e9, peer="the largest", reference=2 - quick
    )
    note = f"{counts[-1]:,} ratings, 32 factors, the process in all; {(before or 0) / 1e9:.1f} GB "
    note += "before the largest was made; asked for 8 GiB"
    return [*rows, row("factors/large/memory", "memory", "GB", peak / 1e9, note=note)]


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "factors/sweep/ml-100k": partial(sweeps, "ml-100k"),
    "factors/sweep/ml-1m": partial(sweeps, "ml-1m"),
    "factors/compile": compilation,
    "factors/error/ml-100k": partial(errors, "ml-100k", 10, num_seeds=5, num_draws=200),
    "factors/error/ml-1m": partial(errors, "ml-1m", 10, num_seeds=5, num_draws=100),
    "factors/side": side,
    "factors/features": any_features,
    "factors/published/u1/gaussian": partial(published, "u1", "gaussian"),
    "factors/published/u1/ordinal": partial(published, "u1", "ordinal"),
    "factors/published/ml-1m/gaussian": partial(published, "ml-1m", "gaussian"),
    "factors/large": large,
}
QUICK = (
    "factors/sweep/ml-100k",
    "factors/compile",
    "factors/error/ml-100k",
    "factors/side",
)
