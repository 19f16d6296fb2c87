"""Runs that continue from a posterior: more draws of chains, more rows of a filter."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxmf import registry
from jaxmf.arguments import check_count, meant
from jaxmf.data import Container
from jaxmf.engine import Algorithm, Run
from jaxmf.engine import run as run_engine
from jaxmf.engine.sharding import check_mesh_axes
from jaxmf.posterior import kept_cells, replicas
from jaxmf.posterior.assemble import fields_of_chains, fields_of_filter
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import sweep_note
from jaxmf.types import Array, Key, PyTree

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

Extended = TypeVar("Extended", bound=Draws)


def algorithm_of(posterior: Draws) -> Algorithm:
    """The algorithm that made a posterior, built again from its model and options."""
    return _with_replicas(_sampler_of(posterior), posterior)


def _sampler_of(posterior: Draws) -> Algorithm:
    entry = registry.entry_of(posterior.model)
    return entry.builder(posterior.model, posterior.meta.method)(**posterior.meta.options)


def _with_replicas(algorithm: Algorithm, posterior: Draws, mesh: object = None) -> Algorithm:
    meta = posterior.meta
    if "temper" not in meta.run:
        return algorithm
    return replicas.with_replicas(
        algorithm, posterior.model, posterior.data, meta.options, meta.run["temper"], mesh=mesh
    )


def extend(
    posterior: Extended, new_rows: object, *, num_samples: int | None, settings: dict[str, object]
) -> Extended:
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
        f"{', '.join(known)}.{meant(unknown[0], ['new_rows', 'num_samples', *known])}"
    )


def _extend_chains(posterior: Extended, num_samples: int, settings: dict[str, object]) -> Extended:
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
    return dataclasses.replace(posterior, meta=meta, **fields_of_chains(model, run))


def _extend_filter(
    posterior: Extended, new_rows: object, settings: Mapping[str, object]
) -> Extended:
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
    fields = fields_of_filter(posterior.model, data, run, before=posterior)
    return dataclasses.replace(posterior, meta=meta, **fields)


def outcome(run: Run, began: float) -> dict[str, PyTree]:
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
