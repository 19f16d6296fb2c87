"""From a finished run to a posterior, and on from there."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import registry
from jaxmf.arguments import check_count
from jaxmf.data import Container
from jaxmf.data.elsewhere import without_cells
from jaxmf.engine import Algorithm, Run
from jaxmf.engine import run as run_engine
from jaxmf.engine.sharding import check_mesh_axes
from jaxmf.model import Anneals, HasAscent, HasParticles, HoldsOutOnes, SomeModel, TrimsDraws
from jaxmf.posterior import kept_cells, replicas
from jaxmf.posterior.evidence import annealed_evidence
from jaxmf.posterior.posterior import Posterior
from jaxmf.posterior.records import Evidence, Meta
from jaxmf.programs import jit
from jaxmf.samplers.cloud import combine_log_evidence, log_evidence_variance
from jaxmf.samplers.history import trace_paths
from jaxmf.types import Array, Draw, Key, PyTree

_FIXED = (
    "algorithm",
    "data",
    "seed",
    "num_warmup",
    "num_samples",
    "thin",
    "num_chains",
    "identity",
    "note",
    "initial",
)
"""Arguments of a run that its continuation has from it."""

_LARGEST_VARIANCE = 0.5
"""Of the evidence, relative, beyond which the error of its log is not stated."""

Paths = list[dict[str, np.ndarray]]
"""What was kept of every row, for each run: name -> (particles, rows, ...)."""


def from_chains(
    model: SomeModel, data: Container, run: Run, meta: Meta, predicted_at: dict[str, np.ndarray]
) -> Posterior[SomeModel]:
    """The posterior of a finished sampler; `predicted_at` are the cells named before it.

    Chains reserve slots for features that they may pass through; questions cost what is in use.
    """
    if isinstance(model, TrimsDraws) and run.num_draws:
        run = dataclasses.replace(run, draws=model.trimmed(run.draws))
    return Posterior(
        model=model,
        data=data,
        draws=run.draws,
        meta=meta,
        run=run,
        averages=run.averages,
        predicted_at=predicted_at,
    )


def from_ascent(model: SomeModel, data: Container, run: Run, meta: Meta) -> Posterior[SomeModel]:
    """The posterior of a finished variational fit: one draw, the parameters of Q."""
    state = jax.tree.map(lambda leaf: leaf[0], run.state)
    assert isinstance(model, HasAscent)  # as the registry has seen to
    draw = model.draw_of(state)
    if isinstance(model, HoldsOutOnes):
        draw |= model.held_out_of(state, data)
    draws, data = _one_draw(draw), without_cells(data)
    return Posterior(model=model, data=data, draws=draws, meta=meta, trace=run.draws)


def from_solution(
    model: SomeModel, data: object, draw: Mapping[str, object], meta: Meta
) -> Posterior[SomeModel]:
    """The posterior of a fit in closed form, given what an ascent keeps of its last state."""
    draws = _one_draw(draw)
    trace = {"free_energy": draws["free_energy"]}
    return Posterior(model=model, data=data, draws=draws, meta=meta, trace=trace)


def _one_draw(draw: Mapping[str, object]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None, None] for name, value in draw.items()}


def from_filter(
    model: SomeModel, data: Container, run: Run, meta: Meta, *, before: Posterior | None = None
) -> Posterior[SomeModel]:
    """The posterior of a finished filter.

    Particles of several runs are pooled: a particle's weight is its share of its run times the
    run's evidence, which is what makes the pooled mean unbiased up to normalisation.

    Args: run: its draws are those of the steps since `before`, its state is the last cloud.
    """
    cloud = run.state
    num_rows = int(np.max(cloud.row))
    data = first_rows(data, num_rows)
    log_evidences = np.asarray(cloud.log_evidence, dtype=float)
    log_weights = np.asarray(cloud.log_weights, dtype=float)
    shares = log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True)
    paths = _paths(run.draws, num_rows, before)
    kept = {name: values for name, values in run.draws.items() if values.ndim == 2}
    if before is not None:
        kept = {name: np.concatenate([before.trace[name], x], axis=1) for name, x in kept.items()}
    return Posterior(
        model=model,
        data=data,
        draws=_stacked(
            _draws_of_particles(model, _in_run(cloud.particles, r), paths[r] if paths else {}, data)
            for r in range(log_evidences.size)
        ),
        meta=meta,
        run=dataclasses.replace(run, draws={}, averages={}),
        particle_log_weights=shares + (log_evidences - log_evidences.max())[:, None],
        evidence=_evidence(cloud, log_evidences),
        trace=kept,
    )


def from_annealing(model: SomeModel, data: Container, run: Run, meta: Meta) -> Posterior[SomeModel]:
    """The posterior of finished annealed runs: their particles at power one, pooled by evidence.

    Args: run: its draws are the scalars of every power, its state the last generation of each run.
    """
    generation, trace = run.state, run.draws
    log_evidences = np.asarray(trace["log_evidence"][:, -1], dtype=float)
    shares = np.full(generation.log_weights.shape, -np.log(generation.log_weights.shape[1]))
    assert isinstance(model, Anneals)
    record = model.annealed(data, **meta.options).record
    draws = _stacked(
        _draws_of_states(record, _in_run(generation.particles, r), data)
        for r in range(log_evidences.size)
    )
    return Posterior(
        model=model,
        data=data,
        draws=model.trimmed(draws) if isinstance(model, TrimsDraws) else draws,
        meta=meta,
        particle_log_weights=shares + (log_evidences - log_evidences.max())[:, None],
        evidence=annealed_evidence(trace),
        trace=trace,
    )


@jit
def _draws_of_states(record: Callable[..., Draw], states: PyTree, data: Container) -> Draw:
    return jax.vmap(lambda state: record(jax.random.key(0), state, data))(states)


def _evidence(cloud: PyTree, log_evidences: np.ndarray) -> Evidence:
    """The evidence; its error only where what it is estimated from allows that.

    A run of which few first particles have descendants knows little of its own error, and what one
    says of itself holds for the modes that it found: one had 0.6 where another was 45 nats higher
    (20 questions, 60 persons). Runs of which one outweighs all others have the relative variance 1
    whatever the truth is.
    """
    value, variance = combine_log_evidence(log_evidences)
    run_variances = np.asarray(jax.vmap(log_evidence_variance)(cloud), dtype=float)
    is_trusted = (
        log_evidences.size > 1 and variance < _LARGEST_VARIANCE and np.median(run_variances) < 1.0
    )
    return Evidence(value=value, standard_error=np.sqrt(variance) if is_trusted else np.nan)


def _in_run(tree: PyTree, index: int) -> PyTree:
    """The part of one run."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _stacked(draws: Iterable[Draw]) -> dict[str, np.ndarray]:
    """What a draw holds, for every particle of every run: name -> (runs, particles, ...)."""
    runs = [{name: np.asarray(x) for name, x in one.items()} for one in draws]
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]}


@jit
def _draws_of_particles(
    model: HasParticles[Container], particles: object, paths: dict[str, object], data: Container
) -> Draw:
    def one(particle: object, path: dict[str, object]) -> PyTree:
        return model.particle_draw(particle, path, data)

    return jax.vmap(one)(particles, paths)


def _paths(draws: dict[str, np.ndarray], num_rows: int, before: Posterior | None) -> Paths:
    """Whole paths of every particle; nothing where the particles carry their past themselves."""
    if "ancestor" not in draws:
        return []
    num_before = 0 if before is None else before.data.num_rows
    paths = []
    for run_index, ancestors in enumerate(draws["ancestor"]):
        is_row = num_before + np.arange(len(ancestors)) < num_rows
        kept = {n: x[run_index] for n, x in draws.items() if x.ndim > 2 and n != "ancestor"}
        path, first = trace_paths(kept, ancestors, is_row=is_row)
        if before is not None:
            path = {
                name: _joined(before.draws[name][run_index][first], values)
                for name, values in path.items()
            }
        paths.append(path)
    return paths


def _joined(earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Paths (P, rows, K) one after the other, padded to the larger K."""
    width = max(earlier.shape[-1], later.shape[-1])
    padded = [
        np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]) for x in (earlier, later)
    ]
    return np.concatenate(padded, axis=1)


def algorithm_of(posterior: Posterior) -> Algorithm:
    """The algorithm that made a posterior, built again from its model and options."""
    return _with_replicas(_sampler_of(posterior), posterior)


def _sampler_of(posterior: Posterior) -> Algorithm:
    entry = registry.entry_of(posterior.model)
    return entry.builder(posterior.model, posterior.meta.method)(**posterior.meta.options)


def _with_replicas(algorithm: Algorithm, posterior: Posterior, mesh: object = None) -> Algorithm:
    meta = posterior.meta
    if "temper" not in meta.run:
        return algorithm
    return replicas.with_replicas(
        algorithm, posterior.model, posterior.data, meta.options, meta.run["temper"], mesh=mesh
    )


def extend(
    posterior: Posterior, new_rows: object, *, num_samples: int | None, settings: dict[str, object]
) -> Posterior:
    """See `Posterior.extend`."""
    _check_settings(settings)
    if num_samples is not None:
        check_count("num_samples", num_samples)
    if posterior.is_variational:
        raise ValueError(
            "a variational fit does not continue from a posterior; fit again with more num_epochs"
        )
    method = posterior.meta.method
    if method == "smc":
        raise ValueError(
            "annealed runs do not continue from a posterior; run jaxmf.smc again, with all rows "
            "and more num_particles"
        )
    if method == "particle_filter":
        if num_samples is not None or new_rows is None:
            raise ValueError(
                "new_rows: a filter continues with more rows, extend(new_rows), and takes no "
                "num_samples"
            )
    elif new_rows is not None:
        raise ValueError(
            f"new_rows: {method} cannot take more rows, jaxmf.particle_filter can; "
            "extend(num_samples=...) draws more samples"
        )
    elif num_samples is None:
        raise ValueError("num_samples: say how many more draws, extend(num_samples=500)")
    if posterior.run is None or posterior.run.state is None:
        raise ValueError("this posterior was kept without its last state and cannot continue")
    if method == "particle_filter":
        return _extend_filter(posterior, new_rows, settings)
    assert num_samples is not None
    return _extend_chains(posterior, num_samples, settings)


def _check_settings(settings: Mapping[str, object]) -> None:
    """Refuses what extend() does not take."""
    known = [name for name in inspect.signature(run_engine).parameters if name not in _FIXED]
    unknown = [name for name in settings if name not in known]
    if not unknown:
        return
    why = ""
    if unknown[0] in _FIXED:
        why = "; it continues the run as it was started, with its data, seed, chains and thinning"
    raise TypeError(
        f"extend takes no option {unknown[0]!r}{why}. It takes new_rows, num_samples, "
        f"{', '.join(known)}"
    )


def _extend_chains(
    posterior: Posterior, num_samples: int, settings: dict[str, object]
) -> Posterior:
    meta, began = posterior.meta, time.perf_counter()
    mesh, model = settings.get("mesh"), posterior.model
    axes, advice = model.mesh_axes(meta.options), model.mesh_advice(meta.options)
    check_mesh_axes(mesh, type(model).__name__, axes, meta.options, advice)
    if "temper" in meta.run:
        check_mesh_axes(mesh, "temper", (), {})
    algorithm, cells = _sampler_of(posterior), posterior.predicted_at
    if cells:
        keep = "predicted_mean" in posterior.draws
        algorithm = kept_cells.with_predictions(algorithm, model, cells, keep=keep)
    run = run_engine(
        _with_replicas(algorithm, posterior, mesh),
        posterior.data,
        seed=meta.seed,
        num_samples=num_samples,
        num_chains=meta.run["num_chains"],
        thin=meta.run["thin"],
        initial=posterior.run,
        note=sweep_note(meta.options),
        **{"chain_method": meta.run["chain_method"], **settings},
    )
    settings = dict(meta.run) | {"num_samples": run.num_draws}
    if "temper" in meta.run:
        settings |= replicas.facts(run, meta.run["temper"])
    meta = dataclasses.replace(meta, run=settings, **outcome(run, began))
    return from_chains(model, posterior.data, run, meta, cells)


def _extend_filter(
    posterior: Posterior, new_rows: object, settings: Mapping[str, object]
) -> Posterior:
    """Take in more rows. The step of a row has the key of its number, whatever came when."""
    meta, before, began = posterior.meta, posterior.run, time.perf_counter()
    assert before is not None
    new = posterior.container(new_rows, "new_rows", can_drop=False)
    data = posterior.data.append_rows(new, argument="new_rows")
    algorithm = algorithm_of(posterior)
    run = run_engine(
        algorithm,
        data,
        seed=meta.seed,
        num_samples=new.num_rows,
        num_chains=meta.run["num_runs"],
        initial=dataclasses.replace(before, state=_with_room(algorithm, data, before)),
        **{"chain_method": meta.run["chain_method"], **settings},
    )
    meta = dataclasses.replace(meta, **outcome(run, began))
    return from_filter(posterior.model, data, run, meta, before=posterior)


def sweep_note(options: Mapping[str, object]) -> str:
    """Which sweep a run makes, for its progress line and its report: "sweep=collapsed"."""
    named = [f"{name}={options[name]}" for name in ("sweep", "weights") if options.get(name)]
    return ", ".join(named)


def outcome(run: Run, began: float) -> dict[str, Any]:
    """The fields of `Meta` that a run decides; `began` is the performance counter at its call."""
    return {
        "seconds": float(run.seconds),
        "wall_seconds": time.perf_counter() - began,
        "complete": bool(run.complete),
        "capacity": dict(run.capacity),
    }


def _with_room(algorithm: Any, data: Container, before: Run) -> PyTree:
    """The last state with zeros where arrays are as long as the data, which now has more rows."""

    def start(key: Key, data: PyTree) -> PyTree:
        state = algorithm.init(key, data)
        larger = {
            axis: before.capacity[axis]
            for axis, size in algorithm.capacity(state).items()
            if before.capacity[axis] > size
        }
        return algorithm.grow(state, larger) if larger else state

    shapes = jax.eval_shape(start, jax.random.key(0), data)

    def pad(leaf: Array, shape: jax.ShapeDtypeStruct) -> Array:
        more = [(0, 0)] + [(0, b - a) for a, b in zip(leaf.shape[1:], shape.shape, strict=True)]
        return jnp.pad(leaf, more) if any(b for _, b in more) else leaf

    return jax.tree.map(pad, before.state, shapes)


def first_rows(data: Any, num_rows: int) -> Container:
    """The data up to a row, for a filter that was interrupted there."""
    if num_rows == data.num_rows:
        return data
    names = None if data.row_names is None else data.row_names[:num_rows]
    return type(data)(data.to_array()[:num_rows], row_names=names, column_names=data.column_names)
