"""Sparse binary variational Bayes: time of an epoch and of a one, memory, precision beside peers.

``python -m benchmarks paper sparse-binary`` makes the tables of precision, all methods on all sets.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks import ranking, sparse_binary, variants
from benchmarks.harness import (
    Row,
    Stopwatch,
    clock,
    compile_row,
    flat_rows,
    interleaved,
    planned_bytes,
    reset_peak,
    resident,
    row,
)
from jaxmf.variational_bayes.parameters import half
from jaxmf.variational_bayes.pieces import sum_over_ones
from jaxmf.variational_bayes.sums import side_sums
from jaxmf.variational_bayes.zeros import Shared

NUM_FACTORS = 20
ONES_A_ROW = 100


def even_ones(size: int, *, ones_a_row: int = ONES_A_ROW, seed: int = 0) -> mf.SparseBinary:
    """(size, size), in every row a one somewhere in each of equal stretches of columns."""
    generator = np.random.default_rng(seed)
    width = size // ones_a_row
    positions = generator.integers(0, width, (size, ones_a_row)) + width * np.arange(ones_a_row)
    rows = np.repeat(np.arange(size), ones_a_row)
    return mf.SparseBinary(rows, positions.ravel(), (size, size))


def started(
    data: mf.SparseBinary, *, ascent: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Any, Any, Any]:
    """Algorithm of the ascent, the state that it starts from, prepared data."""
    zeros = mf.SharedSample(min(variants.NUM_SAMPLES, *data.shape))
    if isinstance(options.get("likelihood"), mf.Gaussian):
        zeros = mf.Exact()  # in the time of the ones
    model = mf.SparseBinaryMF(num_factors=NUM_FACTORS, zeros=zeros, **options)
    algorithm = model.ascent(num_epochs=10_000, tolerance=0.0, **(ascent or {}))
    prepared = model.prepare(data)
    state = jax.jit(algorithm.init)(jax.random.key(0), prepared)
    return algorithm, state, prepared


@jax.jit
def one_epoch(algorithm: Any, key: Any, state: Any, data: Any) -> Any:
    """The state after one more epoch."""
    return algorithm.step(key, state, data, jnp.ones(()))[0]


def compiled_epochs(data: mf.SparseBinary, num_epochs: int, **options: Any) -> Callable[[], Any]:
    """A function that does so many epochs, one call of the program each."""
    algorithm, start, prepared = started(data, **options)
    key = jax.random.key(1)
    program = one_epoch.lower(algorithm, key, start, prepared).compile()

    def run() -> Any:
        state = start
        for _ in range(num_epochs):
            state = program(algorithm, key, state, prepared)
        return state

    return run


# --- the kernel over the ones ---------------------------------------------------------------------


@jax.jit
def _pieces(parameters: Any, layout: Any, zeros: Any) -> Any:
    view = half(parameters, "rows")
    return side_sums(
        view, layout.rows, zeros, likelihood=mf.Bernoulli(), noise=parameters.noise, block=False
    )


@jax.jit
def _segments(parameters: Any, rows: Any, columns: Any) -> Any:
    """The same sums as one segment sum over coordinates, the way that comes to mind first."""
    a, var_a = (leaf[rows] for leaf in parameters.rows)
    s, var_s = (leaf[columns] for leaf in parameters.columns)
    mean = jnp.sum(a * s, axis=1) + parameters.intercept.mean
    spread = jnp.sum((a**2 + var_a) * var_s + var_a * s**2, axis=1) + parameters.intercept.variance
    slopes = mf.Bernoulli().slopes(mean, spread, parameters.noise)
    q, r = slopes.weight, slopes.mean - 0.5
    each = [r[:, None] * s, r[:, None], q[:, None] * s, q[:, None]]
    each += [q[:, None] * var_s, q[:, None] * s**2]
    return jax.ops.segment_sum(
        jnp.concatenate(each, axis=1),
        rows,
        num_segments=parameters.rows.mean.shape[0],
        indices_are_sorted=True,
    )


@jax.jit
def _product(parameters: Any, layout: Any) -> Any:
    means = parameters.columns.mean
    return sum_over_ones(layout.rows.ones, means, num_lines=parameters.rows.mean.shape[0])


@jax.jit
def _plain_product(parameters: Any, rows: Any, columns: Any) -> Any:
    return jax.ops.segment_sum(
        parameters.columns.mean[columns],
        rows,
        num_segments=parameters.rows.mean.shape[0],
        indices_are_sorted=True,
    )


def kernel(quick: bool) -> list[Row]:
    """Nanoseconds a one of the sums that an update of the rows needs, beside segment sums."""
    data = even_ones(1_000 if quick else 10_000)
    _, state, prepared = started(data)
    nothing = Shared(indices=jnp.zeros((1,), jnp.int32), weight=jnp.zeros((1,)))
    mine = partial(_pieces, state.parameters, prepared.layout, nothing)
    plain = partial(_segments, state.parameters, data.rows, data.columns)
    # the same sums; the one shared zero of weight nought adds none
    np.testing.assert_allclose(
        mine().residual_cross, plain()[:, :NUM_FACTORS], rtol=1e-2, atol=1e-2
    )
    product = partial(_product, state.parameters, prepared.layout)
    plain_product = partial(_plain_product, state.parameters, data.rows, data.columns)
    np.testing.assert_allclose(product(), plain_product(), rtol=1e-2, atol=1e-2)
    runs = {"sigmoid": (mine, plain), "gaussian": (product, plain_product)}
    notes = {
        "sigmoid": "all sums over the ones for an update of the rows, diagonal curvature",
        "gaussian": "the sum over the ones of the columns' factors",
    }
    rows = []
    for name, pair in runs.items():
        times = interleaved(*pair, repeats=5).over([data.num_ones] * 2)
        rows.append(
            times.row(
                f"variational/kernel/{name}/{data.num_ones}-ones", "ns a one", 0, scale=1e9,
                note=f"{notes[name]}, {NUM_FACTORS} factors",
                peer="segment sums over coordinates", theirs=times.figures[1] * 1e9,
            )
        )  # fmt: skip
    return rows


# --- epochs ---------------------------------------------------------------------------------------


def als_iterations(ones: sparse.csr_array, number: int) -> None:
    """So many iterations of implicit's ALS."""
    from implicit.als import AlternatingLeastSquares

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AlternatingLeastSquares(
            factors=NUM_FACTORS, iterations=number, num_threads=1, random_state=0
        ).fit(sparse.csr_matrix(ones.astype(np.float32)), show_progress=False)


# options of the ascent and of the model; a look goes through all ones and a sample of zeros
EPOCHS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "sigmoid": ({"evaluate_every": 10_000}, {}, "no look at the free energy"),
    "sigmoid-with-look": ({}, {}, "and a look at the free energy"),
    "sigmoid-diagonal": (
        {"update": "partial_newton", "evaluate_every": 10_000}, {},
        "partial-Newton steps, as in the paper, no look at the free energy",
    ),
    "gaussian": ({}, {"likelihood": mf.Gaussian()}, "and the look that noise is learned from"),
}  # fmt: skip


def epoch(quick: bool) -> list[Row]:
    """Seconds of an epoch beside an iteration of implicit's ALS, one thread each.

    The iteration of ALS computes no objective either, unless it is asked to.
    """
    size = 1_000 if quick else 10_000
    ones = ranking.sigmoid_ones(size)
    data = mf.SparseBinary.from_scipy(ones)
    runs = [
        compiled_epochs(data, 2, ascent=ascent, **options) for ascent, options, _ in EPOCHS.values()
    ]
    counts = [2] * len(runs)
    if importlib.util.find_spec("implicit"):
        runs.append(partial(als_iterations, ones, 3))
        counts.append(3)
    times = interleaved(*runs, repeats=5).over(counts)
    beside: dict[str, Any] = {}
    if len(runs) > len(EPOCHS):
        beside = {"peer": "implicit ALS, an iteration", "theirs": times.figures[-1]}
    rows = []
    for index, (name, (_, _, words)) in enumerate(EPOCHS.items()):
        note = f"{data.num_ones} ones, {NUM_FACTORS} factors, {words}"
        if name.startswith("sigmoid"):
            note += f"; {variants.NUM_SAMPLES} zeros shared by all rows"
        rows.append(
            times.row(f"variational/epoch/{name}/{size}x{size}", "s", index, note=note, **beside)
        )
    return rows


def flat(quick: bool) -> list[Row]:
    """Nanoseconds a one of an epoch at ever more ones, a hundred a row."""
    return _flat((1_000, 3_000) if quick else (1_000, 10_000, 100_000), repeats=3)


def huge(quick: bool) -> list[Row]:
    """The same at a hundred million ones, which takes 9 GB."""
    return _flat((1_000, 3_000 if quick else 1_000_000), repeats=2)[1:]


def _flat(sizes: tuple[int, ...], *, repeats: int) -> list[Row]:
    sets = [even_ones(size) for size in sizes]
    num_ones = [data.num_ones for data in sets]
    counts = [max(1, 1_000_000 // number) for number in num_ones]
    runs = []
    while sets:  # the largest is not kept beside what is made of it
        runs.append(compiled_epochs(sets.pop(0), counts[len(runs)]))
    each = [number * ones for number, ones in zip(counts, num_ones, strict=True)]
    return flat_rows(
        [f"variational/epoch/{number}-ones" for number in num_ones],
        "ns a one and epoch",
        interleaved(*runs, repeats=repeats).over(each),
        scale=1e9,
        peer=f"jaxmf at {num_ones[0]} ones",
        notes=[f"{size} rows, {NUM_FACTORS} factors" for size in sizes],
    )


def memory(quick: bool) -> list[Row]:
    """Bytes that an epoch needs beyond the ones, as the compiled program plans them."""
    data = even_ones(1_000 if quick else 10_000)
    algorithm, state, prepared = started(data)
    program = one_epoch.lower(algorithm, jax.random.key(1), state, prepared).compile()
    total = planned_bytes(program)
    return [
        row(
            f"variational/memory/{data.num_ones}-ones", "memory", "bytes a one",
            total / data.num_ones, note=f"{total / 1e6:.0f} MB in all, data included",
        )
    ]  # fmt: skip


def compile_time(quick: bool) -> list[Row]:
    """Seconds to lower and compile one program of an epoch, nothing cached."""
    del quick
    rows = []
    for name, likelihood in {"sigmoid": mf.Bernoulli(), "gaussian": mf.Gaussian()}.items():
        # a shape no other case has
        algorithm, state, prepared = started(even_ones(1_100), likelihood=likelihood)
        arguments = algorithm, jax.random.key(1), state, prepared
        rows.append(compile_row(f"variational/compile/{name}", one_epoch, *arguments))
    return rows


# --- precision ------------------------------------------------------------------------------------

# what is claimed, with the peers it is claimed against
CLAIMS = {
    "5k": ("SVD", "ALS", "LMF"),
    "movielens-1m": ("SVD", "ALS"),
}


def precision(name: str, quick: bool) -> list[Row]:
    """Precision@1 and @10 of sigmoid cells beside tuned peers."""
    chosen = "300" if quick else name
    mine = "SS" if name == "5k" else "SSe"
    return sparse_binary.rows(chosen, peers=CLAIMS[name], levels=(1, 10), mine=mine)


def large(quick: bool) -> list[Row]:
    """Precision and seconds of one fit where the matrix has 5e9 cells, beside two peers.

    With the settings that were chosen on 5k, ours with 24 epochs; scored on 5,000 rows.
    """
    size, num_columns = (3_000, 2_000) if quick else (100_000, 50_000)
    ones = ranking.sigmoid_ones(size, num_columns=num_columns, share=0.02 if quick else 0.001)
    split = ranking.left_out(ones, 0)
    split = replace(split, rows=split.rows[:5_000], out=split.out[:5_000])
    methods, settings = sparse_binary.methods(), sparse_binary.tuned("5k")
    if "SS" in settings:
        num_factors, _, variance = settings["SS"]
        settings["SS"] = num_factors, 24, variance
    found, peaks = {}, {}
    for name in [name for name in ("SS", "ALS", "LMF") if name in methods]:
        chosen = settings.get(name, methods[name].choices[0])
        before = reset_peak()
        with Stopwatch() as watch:
            scores = methods[name].fit(split.train, chosen, 0)
        peaks[name] = None if before is None else resident("VmHWM")
        found[name] = ranking.precision(scores, split)[1], watch.seconds
    note = f"{ones.nnz} ones, {size} x {num_columns}, 24 epochs, compilation included"
    case, rows = f"variational/large/{size}x{num_columns}", []
    for peer in [name for name in found if name != "SS"] or [None]:
        name = f"{case}/{peer.lower()}" if peer else case
        pairs = zip(found["SS"], found[peer] if peer else (None, None), strict=True)
        (ours, theirs), (seconds, their_seconds) = pairs
        beside = {"peer": peer, "note": note}
        rows.append(
            row(f"{name}/at-1", "quality", "precision@1", ours, more_is_better=True,
                theirs=theirs, **beside)
        )  # fmt: skip
        rows.append(row(f"{name}/fit", "time", "s", seconds, theirs=their_seconds, clock=clock(),
                        **beside))  # fmt: skip
    if (peak := peaks["SS"]) is not None:
        note = "peak resident memory of the process during the fit, compiler and data included"
        rows.append(row(f"{case}/process", "memory", "GB", peak / 1e9, note=note))
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "variational/kernel": kernel,
    "variational/epoch": epoch,
    "variational/flat": flat,
    "variational/huge": huge,
    "variational/memory": memory,
    "variational/compile": compile_time,
    "variational/large": large,
    **{f"variational/precision/{name}": partial(precision, name) for name in CLAIMS},
}
QUICK = ("variational/kernel", "variational/epoch", "variational/memory")
