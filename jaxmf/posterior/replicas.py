"""Chains of `jaxmf.sample(..., temper=R)`: the tempered algorithm of a model, and how it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmf import registry
from jaxmf.arguments import check_count
from jaxmf.data import Container
from jaxmf.devices import platform_of
from jaxmf.engine import Algorithm, Run
from jaxmf.model import Anneals, Model
from jaxmf.samplers.tempering import report, tempered

_MOST_REPLICAS = 128


def check_temper(model: Model, temper: object, passed: Mapping[str, object]) -> int:
    """The number of replicas.

    Args:
        model: of the run.
        temper: what the user wants.
        passed: options of the sampler that the user stated.

    Raises:
        TypeError, ValueError: it is not from 2 to 128; the model has no powers of its likelihood;
            an option that replicas have no use for.
    """
    num_replicas = check_count("temper", temper, 2, most=_MOST_REPLICAS)
    if not isinstance(model, Anneals):
        known = [e.class_name for e in registry.all_entries() if issubclass(e.model, Anneals)]
        raise ValueError(
            f"temper: {type(model).__name__} cannot be run at powers of its likelihood, "
            f"{', '.join(known)} can; leave it out"
        )
    for name in passed:
        if name not in _options_of_replicas(model):
            raise ValueError(f"temper: replicas have no {name}; leave one of the two out")
    return num_replicas


def with_replicas(
    algorithm: Algorithm,
    model: Model,
    data: Container,
    options: Mapping[str, object],
    num_replicas: int,
) -> Algorithm:
    """The sampler of a model, each chain with replicas at powers of the likelihood.

    Args:
        algorithm: the model's sampler with these options.
        model: an `Anneals`.
        data: the container.
        options: of the sampler.
        num_replicas: R, of each chain.

    Raises:
        ValueError: the model cannot be annealed with these data.
    """
    assert isinstance(model, Anneals)
    names = _options_of_replicas(model)
    chosen = {name: value for name, value in options.items() if name in names}
    return tempered(
        algorithm,
        model.annealed(data, **chosen),
        num_replicas=num_replicas,
        side_by_side=platform_of(data) != "cpu",
    )


def _options_of_replicas(model: Model) -> Sequence[str]:
    settings = registry.annealing_settings(registry.entry_of(model))
    return [setting.name for setting in settings]


def facts(run: Run, num_replicas: int) -> dict[str, object]:
    """What `Meta.run` says of the replicas.

    Returns:
        ``temper``: R; ``powers``: R numbers, the geometric mean over chains; ``swap_acceptance``:
        R - 1 numbers, the mean over chains; ``round_trips``: a count for each chain.
    """
    powers, acceptance, round_trips = report(run.state)
    return {
        "temper": num_replicas,
        "powers": [float(f"{p:.3g}") for p in np.exp(np.log(powers).mean(axis=0))],
        "swap_acceptance": [float(f"{p:.3g}") for p in acceptance.mean(axis=0)],
        "round_trips": round_trips.tolist(),
    }
