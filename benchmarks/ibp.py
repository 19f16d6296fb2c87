"""The linear-Gaussian Indian buffet process: Gibbs, filter, memory, compilation, section 4.2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmf as mf
from benchmarks import harness, section_4_2
from benchmarks.harness import (
    Row,
    clock,
    flat_rows,
    in_turn,
    interleaved,
    planned_bytes,
    reset_peak,
    resident,
    row,
    seconds,
    started_run,
)
from benchmarks.peer import load_peer, peer_sweep_seconds
from jaxmf import engine
from jaxmf.engine.bound import BoundAlgorithm
from jaxmf.engine.executables import num_bytes
from jaxmf.engine.sharding import Placement

NUM_COLUMNS = 36
MEMORY_TARGET = 100
MODEL = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)


def made(num_rows: int, num_features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Z with even odds and X = Z Y + noise of 0.5: (N, K) bool and (N, 36) float32."""
    generator = np.random.default_rng(seed)
    z = generator.random((num_rows, num_features), dtype=np.float32) < 0.5
    y = generator.standard_normal((num_features, NUM_COLUMNS), dtype=np.float32)
    x = z.astype(np.float32) @ y
    for start in range(0, num_rows, 100_000):  # in pieces: no second copy of large data
        piece = x[start : start + 100_000]
        piece += 0.5 * generator.standard_normal(piece.shape, dtype=np.float32)
    return z, x


@partial(jax.jit, static_argnames="num_sweeps")
def sweeps(algorithm: Any, key: Any, state: Any, data: Any, *, num_sweeps: int) -> Any:
    """So many steps of a sampler in one program."""

    def step(index: Any, state: Any) -> Any:
        return algorithm.step(jax.random.fold_in(key, index), state, data, jnp.ones(()))[0]

    return jax.lax.fori_loop(0, num_sweeps, step, state)


def started(num_rows: int, capacity: int, num_features: int) -> tuple[Any, Any, Any, np.ndarray]:
    """Sampler, state at the true Z, data, and that Z."""
    z, x = made(num_rows, num_features)
    algorithm, data = MODEL.sampler(capacity=capacity), mf.Dense.from_array(x)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    return algorithm, state._replace(z=state.z.at[:, :num_features].set(z)), data, z


def gibbs(quick: bool) -> list[Row]:
    """A collapsed sweep beside the package STA-663-IBP, both from the same Z."""
    peer, rows = load_peer(), []
    sizes = [(100, 8)] if quick else [(100, 8), (100, 16), (1_000, 8), (1_000, 16)]
    for num_rows, capacity in sizes:
        num_features = capacity - 2  # room for features that come and go
        algorithm, state, data, z = started(num_rows, capacity, num_features)
        num_sweeps = max(1, 2_000 // num_rows)
        run = partial(sweeps, algorithm, jax.random.key(1), state, data, num_sweeps=num_sweeps)
        measures: list[Callable[[], float]] = [lambda run=run, n=num_sweeps: seconds(run) / n]
        note = f"{num_features} features in use"
        if peer is not None:
            # a sweep of the peer takes minutes at 1,000 rows: then its first rows are timed
            timed = num_rows if num_rows <= 100 else 2
            values = np.asarray(data.values, float)
            measures.append(partial(peer_sweep_seconds, peer, values, z, num_timed=timed))
            note += f"; peer timed on {timed} of {num_rows} rows" if timed < num_rows else ""
        run()
        figures = in_turn(*measures, repeats=3 if quick else 5) * 1e3
        rows.append(
            row(
                f"ibp/gibbs/n{num_rows}/k{capacity}",
                "time",
                "ms a sweep",
                figures[0],
                peer="STA-663-IBP",
                theirs=figures[1] if peer is not None else None,
                clock=clock(),
                note=note if peer is not None else note + "; the peer is not installed",
            )
        )
    return rows


def rows_flat(quick: bool) -> list[Row]:
    """Time of a row in a sweep over ever more rows; ratio to the time at 1,000."""
    sizes = [1_000, 10_000] if quick else [1_000, 10_000, 100_000, 1_000_000]
    runs, counts = [], []
    for num_rows in sizes:
        algorithm, state, data, _ = started(num_rows, 16, 8)
        num_sweeps = max(1, 10_000 // num_rows)
        # a compiled program, so that no sweep is spent on warming up
        arguments = algorithm, jax.random.key(1), state, data
        program = sweeps.lower(*arguments, num_sweeps=num_sweeps).compile()
        runs.append(partial(program, *arguments))
        counts.append(num_rows * num_sweeps)
    times = interleaved(*runs, repeats=2, warm_up=0).over(counts)
    cases = [f"ibp/gibbs/row/n{num_rows}/k16" for num_rows in sizes]
    return flat_rows(cases, "µs a row", times, scale=1e6, peer="jaxmf at 1,000 rows")


def memory(quick: bool) -> list[Row]:
    """Bytes a row beyond the data, as the compiled programs plan them, and as the process peaks."""
    num_rows = 100_000 if quick else 1_000_000
    algorithm, state, data, _ = started(num_rows, 16, 8)
    case = f"ibp/memory/n{num_rows}/k16"
    arguments = algorithm, jax.random.key(1), state, data
    step = planned_bytes(sweeps.lower(*arguments, num_sweeps=2).compile()) - num_bytes(data)
    placement = Placement(None, batched=False)
    algorithm, data = placement.put_everywhere((algorithm, data))
    program = BoundAlgorithm(algorithm, data, placement, 0, 1)
    key = jax.random.key(0)
    executable = program.chunk_program(key, *program.shapes(key))
    chunk = sum(executable.memory()) - num_bytes((data, algorithm))
    kept = sum(num_bytes(leaf) for leaf in executable.shapes.draws.values())
    beside = {"peer": "target", "theirs": float(MEMORY_TARGET)}
    rows = [
        row(f"{case}/step", "memory", "bytes a row", step / num_rows, **beside),
        row(
            f"{case}/run-loop",
            "memory",
            "bytes a row",
            (chunk - kept) / num_rows,
            **beside,
            note=f"without the buffer of draws, {kept / 2**20:.0f} MiB whatever the rows",
        ),
    ]
    if not quick and (before := reset_peak()) is not None:
        # from the true features: a first sweep from none would claim room for many more
        engine.run(
            algorithm, data, num_samples=1, progress=False, initial=started_run(algorithm, state)
        )
        rows.append(
            row(
                f"{case}/process",
                "memory",
                "bytes a row",
                (resident("VmHWM") - before) / num_rows,
                **beside,
                note="peak resident memory of a run of one sweep, compiler and draw included",
            )
        )
    return rows


def filtered(data: Any, num_particles: int) -> Any:
    """One pass of the plain filter."""
    algorithm = MODEL.filter(num_particles=num_particles)
    return engine.run(algorithm, data, num_samples=data.num_rows, progress=False).draws


def particles_flat(quick: bool) -> list[Row]:
    """Time of a particle and row with ever more particles; ratio to the time at 1,000."""
    sizes = [1_000] if quick else [100, 1_000, 10_000, 100_000]
    runs, counts = [], []
    for num_particles in sizes:
        num_rows = int(np.clip(500_000 // num_particles, 10, 100))
        data = section_4_2.images(0, num_rows)[0]
        runs.append(partial(filtered, data, num_particles))
        counts.append(num_particles * num_rows)
    return flat_rows(
        [f"ibp/filter/p{num_particles}" for num_particles in sizes],
        "µs a particle and row",
        interleaved(*runs, repeats=3).over(counts),
        scale=1e6,
        peer="jaxmf at 1,000 particles",
        reference=sizes.index(1_000),
    )


def stream(quick: bool) -> list[Row]:
    """One pass over 100,000 rows; ratio to the time a row of a pass over 1,000."""
    num_particles, num_rows = (4 if quick else 32), 100_000
    long, short = (section_4_2.images(0, n)[0] for n in (num_rows, 1_000))
    for data in (short, long):  # compiled before it is timed: one row of each
        engine.run(MODEL.filter(num_particles=num_particles), data, num_samples=1, progress=False)
    runs = [partial(filtered, data, num_particles) for data in (long, short)]
    times = interleaved(*runs, repeats=1, warm_up=0)
    each = times.over([num_particles * num_rows, num_particles * 1_000])
    return [
        each.row(
            f"ibp/filter/n{num_rows}/p{num_particles}",
            "µs a particle and row",
            0,
            scale=1e6,
            peer="jaxmf over 1,000 rows",
            theirs=each.figures[1] * 1e6,
            note=f"{times.figures[0, 0]:.0f} s for the pass",
        )
    ]


_FIRST_RESULT = """
from jaxmf.engine.disk_cache import use_compilation_cache
use_compilation_cache()
import numpy as np
import jaxmf as mf
values = np.array(mf.datasets.section_4_2(0).x)
values[::7, ::5] = np.nan
model = mf.LinearGaussianIBP(noise_scale=0.5, feature_scale=1.0)
post = mf.sample(model, values, num_warmup=1, num_samples=1, num_chains=4, progress=False)
post.summary()
"""


def first_result(quick: bool) -> list[Row]:
    """From the start of Python to the first draws of the demo, without and with a warm cache."""
    del quick
    note = "Python, imports, data, the first draws of the demo's four chains"
    return harness.first_result("ibp/demo/first-result", _FIRST_RESULT, note)


@partial(jax.jit, static_argnames="num_steps")
def one_long_scan(algorithm: Any, data: Any, key: Any, *, num_steps: int) -> Any:
    """The steps and draws of `engine.run`, one chain, as one scan without a host."""
    key = jax.random.fold_in(key, 0)
    state = algorithm.init(jax.random.fold_in(key, np.uint32(2**32 - 1)), data)

    def step(state: Any, index: Any) -> tuple[Any, Any]:
        step_key = jax.random.fold_in(key, index)
        state, _ = algorithm.step(jax.random.fold_in(step_key, 0), state, data, jnp.ones(()))
        return state, algorithm.record(jax.random.fold_in(step_key, 1), state, data)

    return jax.lax.scan(step, state, jnp.arange(num_steps))[1]


def run_loop(quick: bool) -> list[Row]:
    """What the run loop adds to the same steps in one scan."""
    rows = []
    for num_rows, num_steps in [(20, 1_000)] if quick else [(20, 3_000), (100, 600)]:
        _, x = made(num_rows, 4)
        # room for all features there will be: growth would leave the two sides at different sizes
        data, algorithm = mf.Dense.from_array(x), MODEL.sampler(anneal=False, capacity=32)

        def loop(algorithm=algorithm, data=data, num_steps=num_steps) -> Any:
            return engine.run(algorithm, data, num_samples=num_steps, progress=False).draws

        def scan(algorithm=algorithm, data=data, num_steps=num_steps) -> Any:
            draws = one_long_scan(algorithm, data, jax.random.key(0), num_steps=num_steps)
            return jax.device_get(draws)

        times = interleaved(loop, scan, repeats=3 if quick else 5).over([num_steps] * 2)
        rows.append(
            times.row(
                f"ibp/run-loop/n{num_rows}",
                "µs a step",
                0,
                scale=1e6,
                peer="one lax.scan of the same steps",
                theirs=times.figures[1] * 1e6,
                note=f"{num_steps} steps, all draws kept",
            )
        )
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "ibp/gibbs/sweep": gibbs,
    "ibp/gibbs/row": rows_flat,
    "ibp/memory": memory,
    "ibp/filter/particles": particles_flat,
    "ibp/filter/stream": stream,
    "ibp/run-loop": run_loop,
    "ibp/demo/first-result": first_result,
    "ibp/section-4-2": section_4_2.quality,
    "ibp/split-merge/plain": partial(section_4_2.split_merge, anneal=False),
    "ibp/split-merge/annealed": partial(section_4_2.split_merge, anneal=True),
}
QUICK = ("ibp/gibbs/sweep", "ibp/filter/particles", "ibp/run-loop")
