"""The noisy-OR Indian buffet process: time a cell, memory, filter, first result, section 5.2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks import harness, section_5_2
from benchmarks.harness import Row, compile_row, flat_rows, interleaved, planned_bytes, row
from benchmarks.ibp import sweeps
from jaxmf.engine.executables import num_bytes

MODEL = section_5_2.MODEL
NUM_CAUSES = 4
SIZES = ((6, 250), (200, 2_000), (2_000, 20_000))
QUICK_SIZES = ((6, 250), (60, 600))


def made(num_rows: int, num_columns: int, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """Data of four causes that each act on a third of the rows, true Z and Y."""
    generator = np.random.default_rng(seed)
    z = generator.random((num_rows, NUM_CAUSES)) < 1 / 3
    z[:NUM_CAUSES] |= np.eye(NUM_CAUSES, dtype=bool)
    y = generator.random((NUM_CAUSES, num_columns)) < 0.1
    x = np.empty((num_rows, num_columns), np.float32)
    for start in range(0, num_rows, 200):  # in pieces: no second copy of large data
        chance = 1 - 0.99 * 0.1 ** (z[start : start + 200].astype(np.float32) @ y)
        x[start : start + 200] = generator.random(chance.shape, dtype=np.float32) < chance
    return mf.Dense.from_array(x), z, y


def started(num_rows: int, num_columns: int, **options: Any) -> tuple[Any, Any, Any]:
    """Sampler, state at the true Z and Y, data."""
    data, z, y = made(num_rows, num_columns)
    algorithm = MODEL.sampler(capacity=16, **options)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    state = state._replace(z=state.z.at[:, :NUM_CAUSES].set(z), y=state.y.at[:NUM_CAUSES].set(y))
    return algorithm, state, data


def compiled_sweeps(num_rows: int, num_columns: int, **options: Any) -> tuple[Any, int]:
    """A function of one measurement and how many sweeps it does."""
    algorithm, state, data = started(num_rows, num_columns, **options)
    num_sweeps = max(1, 1_000_000 // (num_rows * num_columns))
    arguments = algorithm, jax.random.key(1), state, data
    program = sweeps.lower(*arguments, num_sweeps=num_sweeps).compile()
    return partial(program, *arguments), num_sweeps


KINDS = {
    "sequential": {"num_moves": 0},
    "six-moves": {"num_moves": 6},
    "parallel": {"num_moves": 0, "sweep": "parallel"},
}


def cells(kind: str, quick: bool) -> list[Row]:
    """Nanoseconds a cell of a sweep: rows in turn, with six moves, or all rows at once."""
    sizes = QUICK_SIZES if quick else SIZES
    names = [f"{num_rows}x{num_columns}" for num_rows, num_columns in sizes]
    runs = [compiled_sweeps(*size, **KINDS[kind]) for size in sizes]
    counts = [num * rows * columns for (_, num), (rows, columns) in zip(runs, sizes, strict=True)]
    return flat_rows(
        [f"noisy-or/{kind}/{name}" for name in names],
        "ns a cell and sweep",
        interleaved(*(run for run, _ in runs), repeats=3).over(counts),
        scale=1e9,
        peer="jaxmf at 6 x 250",
        notes=[f"{NUM_CAUSES} causes in 16 slots"] * len(sizes),
    )


def memory(quick: bool) -> list[Row]:
    """Bytes a cell beyond the data, as the compiled programs plan them; linear is a ratio of 1."""
    rows = []
    for kind in ("six-moves", "parallel"):
        each: list[float] = []
        for num_rows, num_columns in QUICK_SIZES[1:] if quick else SIZES[1:]:
            run, _ = compiled_sweeps(num_rows, num_columns, **KINDS[kind])
            data = run.args[-1]
            each.append((planned_bytes(run.func) - num_bytes(data)) / (num_rows * num_columns))
            beside: dict[str, Any] = {}
            if len(each) > 1:
                beside = {"peer": "jaxmf at 200 x 2,000", "theirs": each[0]}
            case = f"noisy-or/memory/{kind}/{num_rows}x{num_columns}"
            rows.append(
                row(case, "memory", "bytes a cell", each[-1], note="beyond the data", **beside)
            )
    return rows


def filters(quick: bool) -> list[Row]:
    """Microseconds a particle and row of one pass over 6 x 250 data, both proposals."""
    num_particles = 100 if quick else 1_000
    data = section_5_2.causes(0)[0]
    proposals = "prior", "informed"
    runs = [
        partial(section_5_2.run_filter, data, num_particles, 0, proposal) for proposal in proposals
    ]
    times = interleaved(*runs, repeats=3).over([num_particles * data.num_rows] * 2)
    return [
        times.row(
            f"noisy-or/filter/{proposal}/p{num_particles}",
            "µs a particle and row",
            index,
            scale=1e6,
            note="rows of 250 columns, 16 slots",
        )
        for index, proposal in enumerate(proposals)
    ]


_FIRST_RESULT = """
from jaxmf.engine.disk_cache import use_compilation_cache
use_compilation_cache()
import jaxmf as mf
from benchmarks.section_5_2 import MODEL, causes
mf.sample(MODEL, causes(0)[0], num_warmup=1, num_samples=1, num_chains=2, progress=False)
"""


def first_result(quick: bool) -> list[Row]:
    """From the start of Python to the first draws, without and with a warm cache."""
    del quick
    note = "Python, imports, data, the first draws of two chains on 6 x 250"
    return harness.first_result("noisy-or/first-result", _FIRST_RESULT, note)


def compile_time(quick: bool) -> list[Row]:
    """Seconds to lower and compile one program of sweeps, nothing cached."""
    del quick
    rows = []
    for kind, options in {"sequential": {}, "parallel": {"sweep": "parallel"}}.items():
        algorithm, state, data = started(7, 251, **options)  # a shape no other case has
        note = "one step with six moves, fixed hyperparameters"
        arguments = algorithm, jax.random.key(1), state, data
        rows.append(
            compile_row(f"noisy-or/compile/{kind}", sweeps, *arguments, note=note, num_sweeps=2)
        )
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    **{f"noisy-or/cells/{kind}": partial(cells, kind) for kind in KINDS},
    "noisy-or/compile": compile_time,
    "noisy-or/memory": memory,
    "noisy-or/filter": filters,
    "noisy-or/first-result": first_result,
    "noisy-or/section-5-2": section_5_2.quality,
}
QUICK = ("noisy-or/cells/sequential", "noisy-or/cells/six-moves", "noisy-or/filter")
