"""From a finished run to a posterior, and on from there."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxmf import registry
from jaxmf.engine import Run
from jaxmf.engine import run as run_engine
from jaxmf.posterior.posterior import Evidence, Meta, Posterior
from jaxmf.samplers.history import History
from jaxmf.samplers.smc import combine_log_evidence, log_evidence_variance


def assemble(model: Any, data: Any, run: Run, meta: Meta) -> Posterior:
    """The posterior of a run, whatever its method."""
    if meta.method == "particle_filter":
        paths = _paths(run.draws, run.state, data.num_rows)
        return from_filter(model, data, run, meta, paths)
    return Posterior(
        model=model, data=data, draws=run.draws, meta=meta, run=run, averages=run.averages
    )


def from_filter(
    model: Any, data: Any, run: Run, meta: Meta, paths: list[dict[str, np.ndarray]]
) -> Posterior:
    """The posterior of a finished filter.

    Particles of several runs are pooled: a particle's weight is its share of its run times the
    run's evidence, which is what makes the pooled mean unbiased up to normalisation.

    Args:
        model: the description.
        data: every row that was taken in.
        run: its last state is a cloud with a leading run axis.
        meta: the facts.
        paths: what the history kept of every row, (P, N, ...) by name, for each run.
    """
    cloud = run.state
    draws = particle_draws(model, data, cloud, paths)
    log_evidences = np.asarray(cloud.log_evidence, dtype=float)
    log_weights = np.asarray(cloud.log_weights, dtype=float)
    shares = log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True)
    value, relative_variance = combine_log_evidence(log_evidences)
    if log_evidences.size == 1:
        relative_variance = float(jax.vmap(log_evidence_variance)(cloud)[0])
    scalars = {name: values for name, values in run.draws.items() if values.ndim == 2}
    return Posterior(
        model=model,
        data=data,
        draws=draws,
        meta=meta,
        run=dataclasses.replace(run, draws=scalars),
        particle_log_weights=shares + (log_evidences - log_evidences.max())[:, None],
        evidence=Evidence(value=value, standard_error=float(np.sqrt(relative_variance))),
        trace=scalars,
    )


def particle_draws(
    model: Any, data: Any, cloud: Any, paths: list[dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What a draw holds, for every particle of every run: name -> (runs, particles, ...)."""
    kept = {name: np.stack([path[name] for path in paths]) for name in (paths[0] if paths else {})}
    runs = []
    for place in range(cloud.log_weights.shape[0]):
        particles = jax.tree.map(lambda leaf, place=place: leaf[place], cloud.particles)
        own = {name: values[place] for name, values in kept.items()}
        runs.append(_draws_of_particles(model, particles, own, data))
    return {name: np.stack([np.asarray(run[name]) for run in runs]) for name in runs[0]}


@jax.jit
def _draws_of_particles(model: Any, particles: Any, kept: dict[str, Any], data: Any) -> Any:
    def one(particle: Any, path: dict[str, Any]) -> Any:
        return model.particle_draw(particle, path, data)

    return jax.vmap(one)(particles, kept)


def _paths(draws: dict[str, np.ndarray], cloud: Any, num_rows: int) -> list[dict[str, np.ndarray]]:
    """Whole paths of every particle, for each run; nothing where the particles carry them."""
    if "ancestor" not in draws:
        return []
    paths = []
    for place in range(len(draws["ancestor"])):
        ancestors = draws["ancestor"][place]
        kept = {
            name: values[place]
            for name, values in draws.items()
            if values.ndim > 2 and name != "ancestor"
        }
        history = History(ancestors.shape[1])
        history.append(kept, ancestors, is_row=np.arange(len(ancestors)) < num_rows)
        paths.append(history.trace())
    return paths


def algorithm_of(posterior: Posterior) -> Any:
    """The algorithm that made a posterior, built again from its model and options."""
    entry = registry.entry_of(posterior.model)
    return entry.builder(posterior.model, posterior.meta.method)(**posterior.meta.options)


def extend(
    posterior: Posterior, new_rows: Any, *, num_samples: int | None, run_settings: dict[str, Any]
) -> Posterior:
    """See `Posterior.extend`."""
    if posterior.run is None or posterior.run.state is None:
        raise ValueError("this posterior was kept without its last state and cannot go on")
    if posterior.meta.method == "particle_filter":
        if new_rows is None:
            raise ValueError("a filter goes on with more rows: extend(new_rows)")
        return _extend_filter(posterior, new_rows, run_settings)
    if new_rows is not None:
        raise ValueError(
            f"{posterior.meta.method} cannot take more rows, only jaxmf.particle_filter can; "
            "extend(num_samples=...) draws more samples"
        )
    if num_samples is None or num_samples < 1:
        raise ValueError("say how many more draws: extend(num_samples=500)")
    return _extend_chains(posterior, num_samples, run_settings)


def _extend_chains(
    posterior: Posterior, num_samples: int, run_settings: dict[str, Any]
) -> Posterior:
    meta, before = posterior.meta, posterior.run
    settings = {
        name: meta.run[name] for name in ("num_warmup", "thin", "num_chains") if name in meta.run
    }
    run = run_engine(
        algorithm_of(posterior),
        posterior.data,
        seed=meta.seed,
        num_samples=num_samples,
        initial=before,
        **settings,
        **run_settings,
    )
    total = dataclasses.replace(meta, seconds=meta.seconds + run.seconds, complete=run.complete)
    return assemble(posterior.model, posterior.data, run, total)


def _extend_filter(posterior: Posterior, new_rows: Any, run_settings: dict[str, Any]) -> Posterior:
    raise NotImplementedError
