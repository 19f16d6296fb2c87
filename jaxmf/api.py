"""The verbs: `fit`, `sample`, `particle_filter`, `variational` and `load`.

Each takes a model and data and returns a `Posterior`. Data may be a container, or what one can
be made of without a question: an array (NaN means missing), a DataFrame, a scipy.sparse matrix, an
AnnData.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf import devices, engine, registry, settings
from jaxmf.annealed import smc
from jaxmf.arguments import check_count, check_flag, check_text, checks_call
from jaxmf.data import Container, Dense, Tokens
from jaxmf.data.container import digest
from jaxmf.data.container import identity as data_identity
from jaxmf.engine.memory import resident_bytes
from jaxmf.engine.progress import ProgressReport
from jaxmf.engine.run import as_key
from jaxmf.engine.sharding import Placement, check_mesh_axes, validate_mesh
from jaxmf.model import HasAscent, HoldsOutOnes, Model, SolvesInClosedForm, SomeModel
from jaxmf.posterior import kept_cells
from jaxmf.posterior.assemble import (
    fields_of_ascent,
    fields_of_chains,
    fields_of_filter,
    fields_of_solution,
)
from jaxmf.posterior.extension import outcome
from jaxmf.posterior.records import sweep_note
from jaxmf.posterior.replicas import check_temper, with_replicas
from jaxmf.posterior.replicas import facts as replica_facts
from jaxmf.preparation import (
    check_process_rows,
    notes_of,
    posterior_of_run,
    prepare_run,
    refuse_traced,
    with_device_options,
)
from jaxmf.results import Posterior
from jaxmf.results import load as load
from jaxmf.samplers import move_schedule
from jaxmf.types import Seed

if TYPE_CHECKING:
    from jax.sharding import Mesh

_NUM_EPOCHS = 50


@checks_call
def fit(
    model: SomeModel,
    data: object,
    *,
    method: str | None = None,
    seed: object = 0,
    **options: object,
) -> Posterior[SomeModel]:
    """Fit a model to data by its default method, or by the one named.

    Args:
        model: a model, such as `LinearGaussianIBP(...)`.
        data: a container, or what one can be made of: an array with NaN where cells are missing.
        method: ``"sample"``, ``"particle_filter"``, ``"variational"`` or ``"smc"``; None for the
            default.
        seed: int or typed key.
        **options: settings of that method.
    Returns:
        The posterior.
    Raises:
        ValueError: the model lacks the method; the message names those it has.
    Example:
        >>> import numpy as np, jaxmf as mf
        >>> X = np.random.default_rng(0).normal(size=(8, 3))
        >>> post = mf.fit(mf.LinearGaussianIBP(alpha=1.0), X, num_warmup=5, num_samples=5)
        >>> post.draws["num_features"].shape
        (4, 5)
    """
    entry = registry.entry_of(model)
    chosen = entry.default if method is None else check_text("method", method)
    registry.check_method(entry, chosen)
    return VERBS[chosen](model, data, seed=seed, **options)


@checks_call
def sample(
    model: SomeModel,
    data: object,
    *,
    num_warmup: int = 500,
    num_samples: int = 500,
    num_chains: int = 4,
    thin: int = 1,
    temper: int | None = None,
    seed: Seed = 0,
    chain_method: str = "auto",
    mesh: Mesh | None = None,
    progress: bool | Callable[[ProgressReport], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    draws_folder: str | Path | None = None,
    memory_limit: int | None = None,
    predict_at: object = None,
    **options: object,
) -> Posterior[SomeModel]:
    """Draw from the posterior by Markov chain Monte Carlo.

    Args:
        model: a model that has this method.
        data: a container, or what one can be made of.
        num_warmup: steps discarded at the start of each chain.
        num_samples: draws kept of each chain.
        num_chains: independent chains, each started from another random state.
        thin: steps between kept draws.
        temper: replicas of each chain, at powers of the likelihood from 1 down, which exchange
            their states (non-reversible parallel tempering): a chain that is stuck in a mode can
            leave it through the lower powers, and a step costs this many times as much. Draws are
            those at power 1. Powers are chosen in the warm-up and then fixed; `post.meta.run` has
            them, the share of accepted exchanges, and how many states came back from the lowest
            power. None: no replicas.
        seed: int or typed key; the same seed gives the same draws on the same device.
        chain_method: ``"vectorized"``, ``"sequential"`` or ``"auto"`` (sequential on CPU).
        mesh: `jax.sharding.Mesh` with an axis ``"chain"`` to spread chains over devices, and where
            the sampler can use it (the parallel sweep of tokens, and that of rows of
            `LinearGaussianIBP`, `NoisyOrIBP` and `BinaryMF`, ratings of `BPMF`) an axis ``"data"``.
            Devices are those of this process, or of all processes of `jax.distributed`: then all
            make the same call with the whole data (or `from_process_rows` of its container), and
            all get the posterior; the first writes checkpoints, shows progress and warns.
        progress: None for a bar on a terminal or in a notebook and, elsewhere (the log of a batch
            job), a line every 30 seconds on standard error; True for lines from the start on;
            False; or a function called with a `jaxmf.engine.ProgressReport` after every chunk.
        checkpoint: folder to which draws and state are written during the run.
        checkpoint_seconds: least time between two checkpoints.
        resume: continue from that folder, bit for bit.
        draws_folder: an empty folder to which draws are written during the run, for more of them
            than fit in memory: ``post.draws`` are then memory maps of its files `NAME.npy`, which
            must stay there while the posterior is used. `Posterior.save` copies them. With several
            processes the first one writes them, and all must have access to the folder.
        memory_limit: bytes of device memory that the run may use; on a CPU bytes of the whole
            process, with what compiling takes.
        predict_at: cells, as for `Posterior.predict`, whose predictive moments (and probabilities
            of values, where these are few) are averaged during the run, for draws too large to
            keep: "predicted", "predicted_square" and "predicted_probabilities" in ``averages``.
            Draws without factors then have the mean and variance of each of these cells (if these
            are at most 2^26 numbers in all), so that `Posterior.predict` answers for them, with
            quantiles.
        **options: options of the model's sampler.
    Returns:
        The posterior; an interrupted run returns the draws there are.
    Raises:
        ValueError: the model lacks the method, or powers of its likelihood for `temper`; the
            checkpoint is of another run, or the mesh has an axis that the sampler cannot use.
        TypeError: an unknown option; the message names the right ones.
    """
    refuse_traced("sample", seed=seed, predict_at=predict_at)
    resident = resident_bytes()
    if temper is not None and isinstance(model, Model):
        model = model.for_method("smc")  # whose powers replicas are at
    model, container, build, passed = prepare_run(
        model, data, "sample", options, sample, memory_limit
    )
    options = with_device_options(model, passed, container, mesh)
    algorithm = build(**options)
    registry.check_draws(model, algorithm, container)
    run_settings: dict[str, Any] = {
        "num_warmup": check_count("num_warmup", num_warmup, 0),
        "num_samples": check_count("num_samples", num_samples, 1),
        "num_chains": check_count("num_chains", num_chains, 1),
        "thin": check_count("thin", thin, 1),
    }
    cells: dict[str, np.ndarray] = {}
    identified = _identified(model, passed, options, container)
    if predict_at is not None:
        algorithm, cells = kept_cells.predicting_at(
            algorithm, model, container, predict_at, num_draws=num_samples * num_chains
        )
        identified["predict_at"] = digest("cells", (cells["rows"].size,), cells)
    if temper is not None:
        temper = identified["temper"] = check_temper(model, temper)
        check_mesh_axes(mesh, "temper", (), {})
        algorithm = with_replicas(algorithm, model, container, options, temper, mesh=mesh)
    began = time.perf_counter()
    run = engine.run(
        algorithm,
        container,
        seed=seed,
        **run_settings,
        chain_method=chain_method,
        mesh=mesh,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        draws_folder=draws_folder,
        memory_limit=memory_limit,
        resident=resident,
        identity=_identity(model, container, "sample", identified) if checkpoint else None,
        note=sweep_note(options),
    )
    run_settings["chain_method"] = chain_method
    if temper is not None:
        run_settings |= replica_facts(run, temper)
    if moves := move_schedule.facts(run.state):
        run_settings["moves"] = moves
    fields = fields_of_chains(model, run) | {"predicted_at": cells}
    return posterior_of_run(
        "sample", model, container, fields, seed=seed, settings=run_settings, options=options,
        outcome=outcome(run, began), mesh=mesh,
        notes=notes_of(model, container, passed, options, mesh),
    )  # fmt: skip


@checks_call
def particle_filter(
    model: SomeModel,
    data: object,
    *,
    num_particles: int = 1_000,
    num_runs: int = 1,
    seed: Seed = 0,
    chain_method: str = "auto",
    mesh: Mesh | None = None,
    progress: bool | Callable[[ProgressReport], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    memory_limit: int | None = None,
    **options: Any,
) -> Posterior[SomeModel]:
    """Add the rows one after another to weighted particles: sequential Monte Carlo.

    Args:
        model: a model that has this method.
        data: a container, or what one can be made of.
        num_particles: particles of a run.
        num_runs: independent runs, pooled by their evidence.
        seed: int or typed key.
        chain_method: how several runs are computed: ``"vectorized"``, ``"sequential"`` or
            ``"auto"``.
        mesh: `jax.sharding.Mesh` with an axis ``"chain"`` to spread runs over devices.
        progress, checkpoint, checkpoint_seconds, resume, memory_limit: as in `sample`.
        **options: options of the model's filter.
    Returns:
        The posterior, with `log_weights` and `log_evidence`; `extend` adds further rows. With
        default scales, whose priors are taken from the data, the evidence is empirical Bayes and
        not comparable with that of fixed scales; see `Posterior.log_evidence`.
    Raises:
        ValueError, TypeError: as `sample`.
    """
    refuse_traced("particle_filter", seed=seed)
    check_mesh_axes(mesh, "particle_filter", (), {})
    model, container, build, options = prepare_run(
        model, data, "particle_filter", options, particle_filter, memory_limit
    )
    check_count("num_particles", num_particles, 1)
    algorithm = build(num_particles=num_particles, **options)
    assert not isinstance(container, Tokens)  # a filter goes through rows
    num_steps = container.num_rows + int(options.get("anneal_steps", 0) or 0)
    everything = dict(options) | {"num_particles": num_particles}
    check_count("num_runs", num_runs, 1)
    began = time.perf_counter()
    run = engine.run(
        algorithm,
        container,
        seed=seed,
        num_warmup=0,
        num_samples=num_steps,
        num_chains=num_runs,
        chain_method=chain_method,
        mesh=mesh,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        memory_limit=memory_limit,
        identity=_identity(model, container, "particle_filter", everything) if checkpoint else None,
    )
    run_settings = {"num_runs": num_runs, "chain_method": chain_method}
    return posterior_of_run(
        "particle_filter", model, container, fields_of_filter(model, container, run), seed=seed,
        settings=run_settings, options=everything, outcome=outcome(run, began), mesh=mesh,
    )  # fmt: skip


@checks_call
def variational(
    model: SomeModel,
    data: object,
    *,
    num_epochs: int | None = None,
    num_validation: int = 0,
    hold_out: int | None = None,
    analytic: bool = False,
    seed: Seed = 0,
    mesh: Mesh | None = None,
    progress: bool | Callable[[ProgressReport], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    memory_limit: int | None = None,
    **options: object,
) -> Posterior[SomeModel]:
    """Approximate the posterior by the closest of a family of simple distributions.

    Args:
        model: a model that has this method.
        data: a container, or what one can be made of.
        num_epochs: passes over the data, at most, 50 unless given; the method stops earlier once
            it has converged.
        num_validation: how many rows have one of their ones hidden, to be ranked among the columns
            that the row does not have; the fit stops when these ranks no longer improve, and the
            best epoch is kept. The free energy does not measure how well a fit ranks.
        hold_out: how many rows have one of their ones hidden for the first four fifths of the
            epochs; an alarm says if the fit ranks these no better than popularity does. By default
            2 % of the ones and at most 500, where that is 60 or more and zeros are resampled; 0 for
            none.
        analytic: use a solution in closed form, from the leading singular vectors: the global one
            of Nakajima et al. (2013) for Gaussian cells, the iteration of Seeger and Bouchard
            (2012) on it for sigmoid ones. Takes no options of the method, has no epochs and nothing
            to resume.
        seed: int or typed key; of the start, of samples and of the validation rows.
        mesh: `jax.sharding.Mesh` with an axis ``"data"``, over which `SparseBinaryMF` spreads rows
            with their ones. Devices are those of this process or of all, as for `sample`.
        progress, checkpoint, checkpoint_seconds, resume, memory_limit: as in `sample`. One optax
            transformation cannot be distinguished from another, so resume with the same as before.
        **options: options of the model's method.
    Returns:
        The posterior: one draw, which holds the parameters of that distribution; `trace` has the
        free energy of every epoch. An interrupted fit returns the parameters so far.
    Raises:
        ValueError: the model lacks the method; the message names those it has. The mesh has an axis
            that the fit cannot use, or devices that cannot have equally many rows.
        TypeError: an unknown option; the message names the right ones.
    """
    refuse_traced("variational", seed=seed)
    resident = resident_bytes()
    model, container, build, options = prepare_run(
        model, data, "variational", options, variational, memory_limit
    )
    check_count("num_validation", num_validation, 0)
    if check_flag("analytic", analytic):
        return _analytic(
            model, container, seed, **options, num_epochs=num_epochs, num_validation=num_validation,
            hold_out=hold_out, checkpoint=checkpoint, resume=resume, mesh=mesh,
        )  # fmt: skip
    as_key(seed)  # refuses what is none, before anything is done
    num_epochs = check_count("num_epochs", _NUM_EPOCHS if num_epochs is None else num_epochs, 1)
    algorithm = build(num_epochs=num_epochs, **options)
    began = time.perf_counter()
    name, axes, advice = type(model).__name__, model.mesh_axes(options), model.mesh_advice(options)
    validate_mesh(mesh, 0)
    check_mesh_axes(mesh, f"variational of {name}", axes, options, advice, has_chains=False)
    check_process_rows(container, mesh, model, axes)
    run_settings = {"num_epochs": num_epochs, "num_validation": num_validation}
    if hold_out is not None:
        if not isinstance(model, HoldsOutOnes):
            raise ValueError(f"hold_out: {name} has no comparison with popularity; leave it out")
        run_settings["hold_out"] = hold_out
    layout: dict[str, Any] = _layout_options(options, hold_out, mesh)
    assert isinstance(model, HasAscent)  # as the registry has seen to
    with devices.default_device_of(container, mesh):
        prepared = model.prepare(container, num_validation=num_validation, seed=seed, **layout)
    kept = {name: _as_written(value) for name, value in options.items()}
    run = engine.run(
        algorithm,
        prepared,
        seed=seed,
        num_samples=num_epochs,
        mesh=mesh,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        memory_limit=memory_limit,
        resident=resident,
        identity=_identity(model, container, "variational", run_settings | kept)
        if checkpoint
        else None,
    )
    return posterior_of_run(
        "variational", model, container, fields_of_ascent(model, container, run), seed=seed,
        settings=run_settings, options=kept, outcome=outcome(run, began), mesh=mesh,
    )  # fmt: skip


def _layout_options(
    options: Mapping[str, object], hold_out: int | None, mesh: Mesh | None
) -> dict[str, object]:
    """How the ascent wants its data laid out: those of `prepare` that are not left to the model."""
    layout = {key: options[key] for key in ("batch_size",) if key in options}
    if (num_devices := Placement(mesh, batched=True).num_shares) > 1:
        layout["num_devices"] = num_devices
    return layout if hold_out is None else layout | {"hold_out": hold_out}


def _analytic(
    model: SomeModel, data: Container, seed: object, **meaningless: object
) -> Posterior[SomeModel]:
    """The posterior in closed form, on the host in one go."""
    refused = [name for name, value in meaningless.items() if value]
    if refused:
        raise ValueError(
            f"analytic=True has no epochs, so {refused[0]} has no effect on it; leave one of "
            "them out"
        )
    if not isinstance(model, SolvesInClosedForm):
        raise ValueError(
            f"analytic=True: {type(model).__name__} has no solution in closed form; leave it out"
        )
    began = time.perf_counter()
    draw = model.analytic(data)
    seconds = time.perf_counter() - began
    facts = {"seconds": seconds, "wall_seconds": seconds, "complete": True, "capacity": {}}
    return posterior_of_run(
        "variational", model, data, fields_of_solution(draw), seed=seed,
        settings={"analytic": True}, options={}, outcome=facts,
    )  # fmt: skip


VERBS: Mapping[str, Callable[..., Posterior]] = {
    "sample": sample,
    "particle_filter": particle_filter,
    "variational": variational,
    "smc": smc,
}


def _identified(
    model: Model, passed: Mapping[str, object], options: Mapping[str, object], data: Container
) -> dict[str, object]:
    """The options by which a checkpoint knows its run.

    Those that the device decided are among them only where they are not what a CPU has: so were
    they before devices decided.
    """
    usual = model.device_options(passed, platform="cpu", data=data)
    return {
        name: value for name, value in options.items() if name not in usual or usual[name] != value
    }


def _as_written(value: object) -> object:
    """An option as it is written down; an optax transformation is two functions without a name."""
    return "an optax transformation" if hasattr(value, "update") else value


def _identity(
    model: Model, data: Container, method: str, options: Mapping[str, object]
) -> dict[str, object]:
    """Fingerprint that a run must share with the checkpoint it continues, beside its settings."""
    return {
        "model": registry.encode_model(model),
        "method": method,
        "options": {name: settings.encode(value, name=name) for name, value in options.items()},
        "data": data_identity(data),
        "data_size": _size(data),
    }


def _size(data: Container) -> str:
    """How much data there is, as every one of several processes finds by itself."""
    if isinstance(data, Dense):  # whose missing cells none can count that has a part of them
        return f"{data.num_rows:,} rows, {data.num_columns:,} columns"
    return data.describe()
