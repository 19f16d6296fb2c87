"""Chains of `jaxmf.sample(..., temper=R)`: the tempered algorithm of a model, and how it did."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jax.tree_util import Partial

from jaxmf import registry
from jaxmf.arguments import check_count
from jaxmf.data import Container
from jaxmf.devices import platform_of
from jaxmf.engine import Algorithm, Limit, Run
from jaxmf.model import Anneals, Model
from jaxmf.samplers.tempering import report, tempered

_MOST_REPLICAS = 128


def check_temper(model: Model, temper: object) -> int:
    """The number of replicas.

    Raises TypeError, ValueError: it is not from 2 to 128; the model has no powers of its
    likelihood.
    """
    num_replicas = check_count("temper", temper, 2, most=_MOST_REPLICAS)
    if not isinstance(model, Anneals):
        known = [entry.class_name for entry in registry.all_entries() if entry.anneals]
        raise ValueError(
            f"temper: {type(model).__name__} cannot be run at powers of its likelihood, "
            f"{', '.join(known)} can; leave it out"
        )
    return num_replicas


def with_replicas(
    algorithm: Algorithm,
    model: Model,
    data: Container,
    options: Mapping[str, object],
    num_replicas: int,
    *,
    mesh: object = None,
) -> Algorithm:
    """The sampler of a model, each chain with replicas at powers of the likelihood.

    Args:
        model: an `Anneals`.
        mesh: of the run; replicas are moved all at once where its devices are accelerators.
    Raises:
        ValueError: the model cannot be annealed with these data, or with these options.
    """
    assert isinstance(model, Anneals)
    entry = registry.entry_of(model)
    names = [setting.name for setting in registry.annealing_settings(entry)]
    try:
        annealed = model.annealed(data, **{n: value for n, value in options.items() if n in names})
    except ValueError as error:
        raise ValueError(f"temper: {error}") from None
    key = jax.random.key(0)
    sampled = jax.tree.structure(jax.eval_shape(algorithm.init, key, data))
    shapes, _ = jax.eval_shape(lambda data: annealed.init(key, data, None), data)
    if sampled != jax.tree.structure(shapes):
        raise ValueError(
            f"temper: for these data replicas of {type(model).__name__} keep what its sampler sums "
            'out; set weights="explicit", or leave temper out'
        )
    limit = None if algorithm.limit is None else Partial(_limit, algorithm.limit)
    return tempered(
        algorithm._replace(limit=limit),
        annealed,
        num_replicas=num_replicas,
        side_by_side=platform_of(data, mesh) != "cpu",
    )


def _limit(limit: Partial, data: Container) -> dict[str, Limit]:
    """The limits of growth, with what replicas have to do with them."""
    return {
        axis: each._replace(
            advice=f"{each.advice}. Replicas at low powers of the likelihood need more slots than "
            "draws do; without temper there are no replicas"
        )
        for axis, each in limit(data).items()
    }


def facts(run: Run, num_replicas: int) -> dict[str, object]:
    """Facts about the replicas for `Meta.run`.

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
