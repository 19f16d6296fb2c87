"""From a finished run to the fields of a posterior; `extension.py` continues runs.

Each function returns the fields beside the model, by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from jaxmf.data import Container
from jaxmf.engine import Run
from jaxmf.model import Anneals, HasAscent, HasParticles, HoldsOutOnes, Model, TrimsDraws
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.evidence import annealed_evidence, filter_evidence
from jaxmf.programs import jit
from jaxmf.samplers.cloud import trace_paths
from jaxmf.types import Draw, PyTree

Paths = list[dict[str, np.ndarray]]
"""What was kept of every row, for each run: name -> (particles, rows, ...)."""


def fields_of_chains(model: Model, run: Run) -> dict[str, PyTree]:
    """Fields of a posterior from a finished sampler.

    Chains reserve slots for features that they may pass through; questions cost what is in use.
    """
    if isinstance(model, TrimsDraws) and run.num_draws:
        run = dataclasses.replace(run, draws=model.trimmed(run.draws))
    return {"draws": run.draws, "run": run, "averages": run.averages}


def fields_of_ascent(model: Model, data: Container, run: Run) -> dict[str, PyTree]:
    """Fields from a finished variational fit: one draw, the parameters of Q."""
    state = jax.tree.map(lambda leaf: leaf[0], run.state)
    assert isinstance(model, HasAscent)  # as the registry has seen to
    draw: dict[str, object] = dict(model.draw_of(state))
    if isinstance(model, HoldsOutOnes):
        draw |= model.held_out_of(state, data)
    return {"draws": _one_draw(draw), "trace": run.draws}


def fields_of_solution(draw: Mapping[str, object]) -> dict[str, PyTree]:
    """Fields from a fit in closed form, given as an ascent keeps its last state."""
    draws = _one_draw(draw)
    return {"draws": draws, "trace": {"free_energy": draws["free_energy"]}}


def _one_draw(draw: Mapping[str, object]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None, None] for name, value in draw.items()}


def fields_of_filter(
    model: Model, data: Container, run: Run, *, before: Draws | None = None
) -> dict[str, PyTree]:
    """Fields from a finished filter; the data end with the last row that it took in.

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
    draws = _stacked(
        _draws_of_particles(model, _in_run(cloud.particles, r), paths[r] if paths else {}, data)
        for r in range(log_evidences.size)
    )
    return {
        "data": data,
        "draws": draws,
        "run": dataclasses.replace(run, draws={}, averages={}),
        "particle_log_weights": shares + (log_evidences - log_evidences.max())[:, None],
        "evidence": filter_evidence(cloud),
        "trace": kept,
    }


def fields_of_annealing(
    model: Model, data: Container, run: Run, options: Mapping[str, object]
) -> dict[str, PyTree]:
    """Fields from finished annealed runs: particles at power one, pooled by evidence.

    Args: run: its draws are the scalars of every power, its state the last generation of each run.
    """
    generation, trace = run.state, run.draws
    log_evidences = np.asarray(trace["log_evidence"][:, -1], dtype=float)
    shares = np.full(generation.log_weights.shape, -np.log(generation.log_weights.shape[1]))
    assert isinstance(model, Anneals)
    record = model.annealed(data, **options).record
    draws = _stacked(
        _draws_of_states(record, _in_run(generation.particles, r), data)
        for r in range(log_evidences.size)
    )
    return {
        "draws": model.trimmed(draws) if isinstance(model, TrimsDraws) else draws,
        "particle_log_weights": shares + (log_evidences - log_evidences.max())[:, None],
        "evidence": annealed_evidence(trace),
        "trace": trace,
    }


@jit
def _draws_of_states(record: Callable[..., Draw], states: PyTree, data: Container) -> Draw:
    return jax.vmap(lambda state: record(jax.random.key(0), state, data))(states)


def _in_run(tree: PyTree, index: int) -> PyTree:
    """The part of one run."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _stacked(draws: Iterable[Draw]) -> dict[str, np.ndarray]:
    """Arrays of a draw for every particle of every run: name -> (runs, particles, ...)."""
    runs = [{name: np.asarray(x) for name, x in one.items()} for one in draws]
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]}


@jit
def _draws_of_particles(
    model: HasParticles[Container], particles: object, paths: dict[str, object], data: Container
) -> Draw:
    def one(particle: object, path: dict[str, object]) -> PyTree:
        return model.particle_draw(particle, path, data)

    return jax.vmap(one)(particles, paths)


def _paths(draws: dict[str, np.ndarray], num_rows: int, before: Draws | None) -> Paths:
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


def first_rows(data: Any, num_rows: int) -> Container:
    """The data up to a row, for a filter that was interrupted there."""
    if num_rows == data.num_rows:
        return data
    names = None if data.row_names is None else data.row_names[:num_rows]
    return type(data)(data.to_array()[:num_rows], row_names=names, column_names=data.column_names)
