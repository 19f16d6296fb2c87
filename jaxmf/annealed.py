"""The verb `smc`: annealed sequential Monte Carlo from prior to posterior."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxmf import engine, registry
from jaxmf.arguments import check_count, check_number, checks_call, meant
from jaxmf.data import Container
from jaxmf.engine import Algorithm, ProgressReport, Run
from jaxmf.engine.processes import refuse_several
from jaxmf.engine.run import as_key
from jaxmf.engine.sharding import check_mesh_axes
from jaxmf.model import Anneals, SomeModel
from jaxmf.posterior.assemble import fields_of_annealing
from jaxmf.posterior.extension import outcome
from jaxmf.preparation import matched_to, posterior_of_run, refuse_inside, refuse_traced
from jaxmf.registry.entry import Entry
from jaxmf.results import Posterior
from jaxmf.samplers.annealed_smc import MOST_POWERS, annealed_smc, rising_powers
from jaxmf.types import Key, Seed

# Powers that are looked for at once.
_POWERS_A_RUN = 25
# Of the seed: the runs have the seed itself.
_PILOT = np.uint32(2**32 - 1)


@checks_call
def smc(
    model: SomeModel,
    data: object,
    *,
    num_particles: int = 400,
    num_runs: int = 4,
    chain_length: int = 10,
    powers: object = None,
    effective_share: float = 0.5,
    seed: Seed = 0,
    chain_method: str = "auto",
    mesh: Mesh | None = None,
    progress: bool | Callable[[ProgressReport], None] | None = None,
    memory_limit: int | None = None,
    **options: object,
) -> Posterior[SomeModel]:
    """Go from the prior to the posterior by powers of the likelihood, with the evidence.

    Annealed, waste-free sequential Monte Carlo (Dau and Chopin, 2022): particles start as draws
    from the prior; at each of the rising powers one particle in `chain_length` is resampled by
    weight and moved by the model's sampler, and all states on its path are kept. A first run
    chooses the powers and is then thrown away, so that the evidence of the others is unbiased.

    Args:
        model: `LinearGaussianIBP`, `NoisyOrIBP`, `FeatureModel`, `BinaryMF`, `DPMixture`,
            `MixtureOfGaussians`, or a model with `annealed`, see `jaxmf.model.Anneals`.
        data: a container, or what one can be made of.
        num_particles: particles of a run, a multiple of `chain_length`.
        num_runs: independent runs, pooled by their evidence; 2 or more for an error.
        chain_length: states of each chain at each power, its start included; longer chains mix
            better, more chains (there are `num_particles / chain_length`) can cover more modes.
        powers: rising numbers above 0, the last 1; None to choose them by a first run.
        effective_share: the first run raises the power until the effective sample size has fallen
            to this share of the particles; a larger share gives more powers.
        seed: int or typed key.
        chain_method: how several runs are computed: ``"vectorized"`` in one program,
            ``"sequential"`` or ``"auto"`` (sequential on CPU).
        mesh: `jax.sharding.Mesh` with an axis ``"chain"`` to spread runs over devices.
        progress, memory_limit: as in `sample`.
        **options: those of the model's `annealed`, such as ``capacity``.
    Returns:
        The posterior, with weighted draws and `log_evidence`, for which see `Posterior`: with
        default scales it is empirical Bayes. `log_evidence_error` is NaN, and an alarm says why,
        where the runs do not allow an error: too few particles carry the weight at some power,
        chains do not move, or runs differ by more than their errors allow. ``trace`` has the
        powers.
    Raises:
        ValueError: the model cannot be annealed, or a setting is out of its range.
        TypeError: an unknown option; the message names the right ones.
        KeyboardInterrupt: the run was interrupted; before the last power the particles do not
            represent the posterior.
    """
    refuse_traced("smc", seed=seed, model=model, data=data, **options)
    refuse_inside("smc")
    check_mesh_axes(mesh, "smc", (), {})
    refuse_several(mesh, "smc")
    entry = registry.entry_of(model)
    _check_options(entry, options)
    _check_numbers(num_particles, num_runs, chain_length, effective_share)
    key = as_key(seed)
    matched, container = matched_to(model, data, memory_limit, method="smc")
    assert isinstance(matched, Anneals)  # as the registry has seen to
    annealed = matched.annealed(container, **options)
    method_settings: dict[str, Any] = {
        "num_particles": num_particles,
        "chain_length": chain_length,
        "effective_share": float(effective_share),
    }
    run_options: dict[str, Any] = {
        "chain_method": chain_method,
        "mesh": mesh,
        "memory_limit": memory_limit,
        "progress": progress,
    }
    began = time.perf_counter()
    if powers is None:
        search = annealed_smc(annealed, **method_settings)
        chosen = _search_powers(search, container, key, run_options)
    else:
        chosen = _check_powers(powers)
    run = _run(
        annealed_smc(annealed, **method_settings, powers=chosen),
        container,
        seed=key,
        num_samples=len(chosen) + 1,
        num_chains=num_runs,
        **run_options,
    )
    if not run.complete:
        raise KeyboardInterrupt("jaxmf.smc was interrupted before its last power: no posterior yet")
    settings = {"num_runs": num_runs, **method_settings, "num_powers": len(chosen)}
    settings["chain_method"] = chain_method
    return posterior_of_run(
        "smc", matched, container, fields_of_annealing(matched, container, run, options), seed=seed,
        settings=settings, options=options, outcome=outcome(run, began), mesh=mesh,
    )  # fmt: skip


def _run(search: Algorithm, data: Container, **options: Any) -> Run:
    """A run to its end, or to an interruption.

    Raises RuntimeError: it ended because its state may not grow any more. ValueError: no particle
    has a likelihood above zero.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", engine.GrowthWarning)
        try:
            return engine.run(search, data, **options)
        except engine.GrowthWarning as problem:
            raise RuntimeError(f"smc ended before its last power: {problem}") from None
        except engine.NonFiniteError as problem:
            if not problem.quantity.startswith(("log_evidence", "variance")):
                raise
            raise ValueError(
                "data: no particle has a likelihood above zero at some power. Check the data "
                "against the model and its fixed settings"
            ) from problem


def _search_powers(
    search: Algorithm, data: Container, key: Key, run_options: dict[str, Any]
) -> np.ndarray:
    """The powers of one adaptive run, (T,) float.

    Raises ValueError: it does not arrive at 1.
    """
    run_options = run_options | {"mesh": None}
    run: Run | None = None
    for _ in range(0, MOST_POWERS, _POWERS_A_RUN):
        run = _run(
            search,
            data,
            seed=jax.random.fold_in(key, _PILOT),
            num_samples=_POWERS_A_RUN,
            initial=run,
            **run_options,
        )
        found = np.asarray(run.draws["power"][0])
        if found.size and found[-1] >= 1:
            return rising_powers(found)
        if not run.complete:
            raise KeyboardInterrupt("jaxmf.smc was interrupted while it looked for powers")
    raise ValueError(
        f"the particles reach power {found[-1]:.3g} after {MOST_POWERS} powers: the likelihood is "
        "too peaked. Set a smaller effective_share"
    )


def _check_options(entry: Entry, options: dict[str, object]) -> None:
    known = [setting.name for setting in registry.annealing_settings(entry)]
    unknown = [name for name in options if name not in known]
    if unknown:
        parameters = inspect.signature(smc).parameters.values()
        every = [*known, *(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)]
        raise TypeError(
            f"smc takes no option {', '.join(map(repr, unknown))}; for {entry.class_name} it takes "
            f"{', '.join(known)} beside its own arguments.{meant(unknown[0], every)}"
        )


def _check_numbers(
    num_particles: int, num_runs: int, chain_length: int, effective_share: float
) -> None:
    check_count("num_runs", num_runs, 1)
    check_count("chain_length", chain_length, 2)
    check_count("num_particles", num_particles, 2 * chain_length)
    if num_particles % chain_length:
        raise ValueError(
            f"num_particles must be a multiple of chain_length={chain_length}, got "
            f"{num_particles}; {num_particles // chain_length * chain_length} is one"
        )
    check_number("effective_share", effective_share, above=0)
    if effective_share >= 1:
        raise ValueError(
            f"effective_share must be below 1, got {effective_share}: at 1 no power can rise"
        )


def _check_powers(powers: object) -> np.ndarray:
    values = np.asarray(powers, dtype=float)
    if values.ndim != 1 or not 1 <= values.size <= MOST_POWERS:
        raise ValueError(
            f"powers must be a list of 1 to {MOST_POWERS} numbers, got shape {values.shape}"
        )
    rises = np.diff(values, prepend=0.0)
    if not (rises > 0).all():
        first = int(np.argmin(rises > 0))
        raise ValueError(
            f"powers must rise from above 0, but powers[{first}] is {values[first]:g} after "
            f"{values[first - 1] if first else 0:g}"
        )
    if values[-1] != 1:
        raise ValueError(f"powers must end at 1, the posterior, got {values[-1]:g}")
    return values
