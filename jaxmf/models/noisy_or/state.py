"""The state of a chain of the noisy-OR Indian buffet process."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxmf.likelihoods.noisy_or import NoisyOrParameters
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.move_schedule import MoveSchedule
from jaxmf.types import Array

HYPERPARAMETERS = ("alpha", "concentration", "cause_probability", "efficacy", "leak")


class NoisyOrState(NamedTuple):
    """Where a chain is."""

    z: Array  # (N, K) bool, which rows a cause can turn on
    y: Array  # (K, D) bool, in which columns it is active; False in free slots
    # alpha, concentration, cause_probability, efficacy, leak: () float
    alpha: Array
    concentration: Array
    cause_probability: Array
    efficacy: Array
    leak: Array
    schedule: MoveSchedule = None  # of optional moves; None where all of them are made


def parameters_of(draw: object) -> NoisyOrParameters:
    """The parameters of the likelihood, of a state or a draw."""
    names = NoisyOrParameters._fields
    if isinstance(draw, dict):
        return NoisyOrParameters(*(draw[name] for name in names))
    return NoisyOrParameters(*(getattr(draw, name) for name in names))


def active_counts(
    prior: IndianBuffet | BetaBernoulli, counts: Array, y: Array
) -> tuple[Array, Array]:
    """How many entries of Y are ones, and zeros, among the causes there are: () float each.

    Args: counts (K,) float, ones of each column of Z; y (K, D) bool.
    """
    exists = prior.exists(counts)
    ones = jnp.sum(y & exists[:, None], dtype=jnp.int32).astype(counts.dtype)
    return ones, jnp.sum(exists, dtype=counts.dtype) * y.shape[1] - ones
