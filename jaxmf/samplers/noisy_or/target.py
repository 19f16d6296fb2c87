"""The distribution that the kernels of a noisy-OR model leave invariant."""

from __future__ import annotations

from typing import NamedTuple

from jaxmf.likelihoods.noisy_or import AnyParameters
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.types import Array


class NoisyOrTarget(NamedTuple):
    """p(Z, Y | observed cells) at fixed hyperparameters, for z (N, K) bool and y (K, D) bool."""

    x: Array  # (N, D) float, zeros and ones; what lies in missing cells does not matter
    observed: Array | None  # (N, D) bool, or None when nothing is missing
    prior: IndianBuffet | BetaBernoulli  # of Z
    parameters: AnyParameters  # of the likelihood, or of it to a power
