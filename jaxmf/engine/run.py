"""The way in: one function that runs any algorithm.

`loop.py` is the host loop, `bound.py` what it drives: an algorithm bound to its data; `chunk.py`
is what is compiled of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf.arguments import check_count, check_flag, check_number
from jaxmf.devices import default_device_of, default_platform
from jaxmf.engine import draws
from jaxmf.engine.algorithm import Algorithm
from jaxmf.engine.bound import BoundAlgorithm
from jaxmf.engine.chain_kernel import prepared
from jaxmf.engine.environment import config_value, describe_environment
from jaxmf.engine.executables import CACHE, bytes_on_device
from jaxmf.engine.interrupt import Interrupts
from jaxmf.engine.loop import Loop, num_workers
from jaxmf.engine.memory import MemoryGuard, check_limit, resident_bytes
from jaxmf.engine.ongoing import OngoingRun, finish, start_anew, start_from
from jaxmf.engine.progress import Display, ProgressReport
from jaxmf.engine.result import Run, Schedule
from jaxmf.engine.sharding import NO_MESH, Placement, validate_mesh
from jaxmf.engine.storage import Storage
from jaxmf.programs import refuse_in_fork
from jaxmf.types import Key, PyTree, Seed, is_key


def run(
    algorithm: Algorithm,
    data: PyTree,
    *,
    seed: Seed = 0,
    num_warmup: int = 0,
    num_samples: int,
    thin: int = 1,
    num_chains: int = 1,
    chain_method: str = "auto",
    mesh: Mesh | None = None,
    chunk_seconds: float = 0.5,
    progress: bool | Callable[[ProgressReport], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    draws_folder: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    resident: int | None = None,
    identity: dict[str, object] | None = None,
    initial: Run | None = None,
    note: str = "",
) -> Run:
    """Runs an algorithm and returns its draws and last state.

    Chain c has the key ``fold_in(seed, c)``, its step s the key ``fold_in(chain key, s)``: a
    result depends neither on how the run is cut into chunks nor on where it was stopped and
    resumed.

    Args:
        algorithm: what to run.
        data: a pytree of arrays, passed to every function of the algorithm.
        seed: a typed key, or a whole number of 64 bits; without x64 JAX takes its lower 32.
        num_warmup: steps before the first that may be kept.
        num_samples: draws to keep of each chain.
        thin: steps a kept draw, so that ``num_warmup + thin * num_samples`` steps are done.
        num_chains: independent chains.
        chain_method: "vectorized" advances all chains in one program, "sequential" each by itself
            (on CPU as many at once as there are cores), "auto" is sequential on CPU and
            vectorized elsewhere.
        mesh: devices to spread the chains over, along its axis "chain", and rows along "data".
            Where they belong to all processes of `jax.distributed`, each makes the same call and
            gets the same run; the first writes checkpoints, shows progress and warns.
        chunk_seconds: aim for the time between two looks of the host, which sees Ctrl-C and SIGTERM
            then: the run writes its checkpoint and returns the draws so far.
        progress: None for a bar on a terminal or in a notebook and, elsewhere, a line every 30
            seconds on standard error; True for lines from the start on; False; or a function called
            with a `ProgressReport` after every chunk.
        checkpoint: folder to write checkpoints to.
        checkpoint_seconds: least time between two of them; 0 for one a chunk.
        resume: continue the run in the folder; started anew if nothing was saved yet. A run
            that is done is returned at once; one may ask for more draws than it has.
        draws_folder: an empty folder for files of the draws, of which the arrays of the run are
            maps, so that memory need not hold them; a resumed run may use the same folder again. Of
            several processes the first one writes them, and all must see the folder.
        memory_limit: bytes the run may take; the free memory of the device if None.
        resident: bytes of the process from which on the run's are counted; where it is None those
            of now without the data.
        identity: what model and data these are, written as JSON; a resumed run must agree.
        initial: an earlier run to continue: `num_samples` more draws follow its own.
        note: how steps are made, shown beside the progress.
    Returns:
        A Run.
    Raises:
        NonFiniteError: if a state or a kept log joint is not finite.
        MemoryError: if the run cannot fit.
        GrowthError: if a step needs more slots than a growing axis may have (`Algorithm.limit`)
            before any draw was kept. Once there are draws, that is a `GrowthWarning`: the run ends
            incomplete, with the draws so far, as after an interrupt. The same holds where growth
            would exceed the memory.
        ValueError: for wrong settings or a wrong checkpoint.
        LockedError: if another run writes to the checkpoint folder.
        OSError: if the checkpoint folder cannot be written to at the start. Later that is a
            `CheckpointWarning`, and the run continues.
        RuntimeError: in a fork of a process that has run or loaded something.
    Example:
        >>> import jax
        >>> from jaxmf.engine import Info, algorithm, run
        >>> def step(key, state, data, progress):
        ...     return 0.5 * state + jax.random.normal(key), Info(overflow={})
        >>> walk = algorithm(
        ...     init=lambda key, data: 0.0, step=step, record=lambda key, state, data: {"x": state}
        ... )
        >>> run(walk, None, num_warmup=10, num_samples=100, num_chains=2).draws["x"].shape
        (2, 100)
    """
    refuse_in_fork()
    schedule = _schedule(num_warmup, num_samples, thin, initial)
    _check_settings(num_chains, chain_method, chunk_seconds, checkpoint_seconds)
    _check_kinds(checkpoint, resume, progress)
    memory_limit = check_limit(memory_limit)
    if resident is None:
        resident = resident_bytes() - bytes_on_device(data)
    as_key(seed)
    validate_mesh(mesh, num_chains)
    with contextlib.ExitStack() as stack:
        placement = _enter(stack, algorithm, data, mesh, chain_method)
        processes, key = placement.processes, as_key(seed)
        settings = _settings(key, schedule, num_chains, placement)
        if processes.are_several:
            stored = [checkpoint is None, bool(resume), draws_folder is None]
            passed = (algorithm, data, None if initial is None else initial.state)
            more = {"num_samples": schedule.num_samples, "stored": stored}
            processes.check_alike(settings | more, passed)
        folder = draws.draws_folder(draws_folder, processes, resume=resume)
        schedule = dataclasses.replace(schedule, folder=folder)
        display = stack.enter_context(Display(progress if processes.is_first else False))
        bound = _bind(algorithm, data, placement, schedule, num_chains, memory_limit, resident)
        keys = _group_keys(key, num_chains, placement)
        storage, ongoing = None, None
        if checkpoint is not None:
            header: dict[str, object] = {"settings": settings, "identity": identity or {}}
            header["environment"] = describe_environment()
            storage = stack.enter_context(
                Storage(checkpoint, header, processes, seconds=checkpoint_seconds)
            )
            ongoing = storage.open(bound, keys, schedule, resume=resume)
        if ongoing is None:
            display.say("compiling")
            ongoing = _start(bound, keys, schedule, initial)
        if ongoing.step < schedule.num_steps:
            display.say("starting")
            with Interrupts() as interrupts:
                Loop(bound, ongoing, storage, chunk_seconds, note).go(display, interrupts)
        elif storage is not None:
            storage.save(ongoing, at_once=True)
        return finish(bound, ongoing)


# --- what is asked for ---------------------------------------------------------------------------


def _schedule(num_warmup: int, num_samples: int, thin: int, initial: Run | None) -> Schedule:
    for name, value, least in (
        ("num_warmup", num_warmup, 0),
        ("num_samples", num_samples, 0),
        ("thin", thin, 1),
    ):
        check_count(name, value, least)
    if initial is None:
        return Schedule(num_warmup, num_samples, thin)
    if initial.state is None:
        raise ValueError("initial: this run has no state to continue from")
    if num_warmup not in (0, initial.num_warmup):
        raise ValueError(
            f"num_warmup={num_warmup}, but the initial run has {initial.num_warmup}; leave it out"
        )
    if thin != initial.thin:
        raise ValueError(f"thin={thin}, but the initial run has thin={initial.thin}")
    return Schedule(initial.num_warmup, initial.num_draws + num_samples, thin)


def _check_settings(
    num_chains: int, chain_method: str, chunk_seconds: float, checkpoint_seconds: float
) -> None:
    check_count("num_chains", num_chains, 1)
    if chain_method not in ("auto", "sequential", "vectorized"):
        raise ValueError(
            f"chain_method must be 'auto', 'sequential' or 'vectorized', not {chain_method!r}"
        )
    check_number("chunk_seconds", chunk_seconds, above=0)
    check_number("checkpoint_seconds", checkpoint_seconds, least=0)


def _check_kinds(checkpoint: object, resume: object, progress: object) -> None:
    is_path = isinstance(checkpoint, str | os.PathLike) and isinstance(os.fspath(checkpoint), str)
    if checkpoint is not None and not is_path:
        raise TypeError(f"checkpoint must be the path of a folder, got {checkpoint!r}")
    if checkpoint == "":
        raise ValueError("checkpoint must be the path of a folder, got an empty text")
    if check_flag("resume", resume) and checkpoint is None:
        raise ValueError("resume=True needs checkpoint, the folder of the run to continue")
    if not (progress is None or isinstance(progress, bool | np.bool_) or callable(progress)):
        raise TypeError(f"progress must be True, False, None or a function, got {progress!r}")


def as_key(seed: Seed) -> Key:
    """A typed key from a whole number or a typed key.

    Raises:
        TypeError: for anything else.
        ValueError: for a whole number beyond 64 bits.
    """
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
        if not -(2**63) <= seed < 2**63:
            raise ValueError(
                f"seed must be below 2**63 and not below -2**63, got {seed}; take it modulo 2**63, "
                "or pass a typed key (jax.random.key)"
            )
        return jax.random.key(int(seed))
    if isinstance(seed, jax.Array) and is_key(seed) and seed.shape == ():
        return seed
    raise TypeError(f"seed must be a whole number or one typed key (jax.random.key), not {seed!r}")


# --- where, and from which state ----------------------------------------------------------------


def _enter(
    stack: contextlib.ExitStack,
    algorithm: Algorithm,
    data: PyTree,
    mesh: Mesh | None,
    chain_method: str,
) -> Placement:
    """Where chains and rows lie; JAX's own settings are those of a run until the stack unwinds."""
    stack.enter_context(default_device_of(data, mesh))
    stack.enter_context(jax.set_mesh(NO_MESH))
    stack.enter_context(jax.disable_jit(False))
    row_arrays = () if algorithm.row_arrays is None else algorithm.row_arrays()
    placement = Placement(mesh, batched=_is_vectorized(chain_method, mesh), row_arrays=row_arrays)
    if not placement.processes.is_first:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
    return placement


def _is_vectorized(chain_method: str, mesh: Mesh | None) -> bool:
    if mesh is not None:
        if chain_method == "sequential":
            raise ValueError("chain_method='sequential' cannot use a mesh; leave one of them out")
        return True
    if chain_method == "auto":
        return default_platform() != "cpu"
    return chain_method == "vectorized"


def _settings(
    key: Key, schedule: Schedule, num_chains: int, placement: Placement
) -> dict[str, object]:
    """Settings that a resumed run, and each of several processes, must share."""
    mesh = placement.mesh
    return {
        "seed": [
            str(jax.random.key_impl(key)),
            *np.asarray(jax.random.key_data(key)).ravel().tolist(),
        ],
        "num_warmup": schedule.num_warmup,
        "thin": schedule.thin,
        "num_chains": num_chains,
        "chain_method": "vectorized" if placement.batch.batched else "sequential",
        "mesh": None if mesh is None else {name: int(n) for name, n in mesh.shape.items()},
        "x64": bool(config_value("jax_enable_x64")),
    }


def _bind(
    algorithm: Algorithm,
    data: PyTree,
    placement: Placement,
    schedule: Schedule,
    num_chains: int,
    memory_limit: int | None,
    resident: int,
) -> BoundAlgorithm:
    share_out = algorithm.share_out if placement.num_shares > 1 else None
    if share_out is not None:
        data = share_out(data, placement.num_shares)
    algorithm, data = placement.put_everywhere(algorithm), placement.put_data(data)
    num_groups = 1 if placement.batch.batched else num_chains
    guard = MemoryGuard(
        (algorithm, data),
        num_groups=num_groups,
        num_at_once=num_workers(num_groups),
        num_draws=schedule.num_samples if schedule.folder is None else 0,
        before=resident,
        limit=memory_limit,
        processes=placement.processes,
    )
    if algorithm.prepare is not None and share_out is None:
        program = CACHE.get(prepared, (algorithm.prepare, data), {})
        guard.approve(program)
        data = placement.put_data(jax.block_until_ready(program(algorithm.prepare, data)))
        guard.hold((algorithm, data))
    return BoundAlgorithm(
        algorithm,
        data,
        placement,
        schedule.num_warmup,
        schedule.thin,
        approve=guard.approve,
        limits={} if algorithm.limit is None else algorithm.limit(data),
    )


def _group_keys(key: Key, num_chains: int, placement: Placement) -> list[tuple[slice, Key]]:
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(num_chains))
    if placement.batch.batched:
        return [(slice(0, num_chains), placement.put_chains(keys))]
    words, impl = np.asarray(jax.random.key_data(keys)), jax.random.key_impl(keys)
    return [
        (slice(chain, chain + 1), jax.random.wrap_key_data(words[chain], impl=impl))
        for chain in range(num_chains)
    ]


def _start(
    bound: BoundAlgorithm, keys: list[tuple[slice, Key]], schedule: Schedule, initial: Run | None
) -> OngoingRun:
    """All chains before their first step, or where the run left them that is continued."""
    bound.approve(bound.chunk_program(keys[0][1], *bound.shapes(keys[0][1])))
    if initial is None:
        bound.approve(bound.start_program(keys[0][1]))
        return start_anew(bound, keys, schedule)
    return start_from(bound, keys, schedule, initial)
