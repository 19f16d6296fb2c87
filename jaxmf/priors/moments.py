"""Flexible priors from beliefs about how many groups there are of every size.

Of all distributions with E[m_i] = c_i that of largest entropy is a flexible prior, and its weights
maximise

    sum_i lambda_i c_i - log Z(lambda) - (alpha / 2) sum_i lambda_i^2,

whose gradient is c_i - E[m_i] - alpha lambda_i (eq 7.4). The last term is the potential form of
constraints that cannot be met, or not with finite weights: each may be missed by alpha lambda_i.

Source: Porteous (2010), section 7.2; Dudik, Phillips & Schapire (2004) for the potential.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import check_number, check_numbers, checks_call
from jaxmf.priors import flexible_distribution
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.programs import jit
from jaxmf.types import Array

_TOLERANCE = 1e-6


class Matched(NamedTuple):
    """A prior that was found from expected counts.

    Attributes:
        prior: the prior.
        expected_counts: (N,) its exact E[m_i].
        missed: () the largest |E[m_i] - c_i|.
    """

    prior: FlexiblePrior
    expected_counts: np.ndarray
    missed: float


def check_expected_counts(expected_counts: object, shrinkage: float) -> np.ndarray:
    """The expected counts (N,) as float64.

    Raises ValueError: not one count for every size, negative, or counts that no distribution of
    partitions of N items has.
    """
    targets = check_numbers("expected_counts", expected_counts)
    check_number("shrinkage", shrinkage, least=0)
    if targets.ndim != 1 or not targets.size:
        raise ValueError(
            f"expected_counts must be (N,), E[m_i] of groups of 1 to N; got shape {targets.shape}"
        )
    if not np.all(np.isfinite(targets) & (targets >= 0)):
        first = int(np.argmin(np.isfinite(targets) & (targets >= 0)))
        raise ValueError(
            f"expected_counts must be finite and not negative, got {targets[first]} for groups of "
            f"{first + 1}"
        )
    total = float(targets @ np.arange(1, targets.size + 1))
    if abs(total - targets.size) > _TOLERANCE * targets.size:
        raise ValueError(
            f"expected_counts: sum of i E[m_i] is {total:g}, but all {targets.size} items are in "
            "some group, so it must be that number; scale them by "
            f"{targets.size / total if total else float('nan'):.6g}"
        )
    check_number("shrinkage", shrinkage, least=0)
    if shrinkage == 0 and np.any(targets == 0):
        raise ValueError(
            f"expected_counts: groups of {int(np.argmin(targets)) + 1} never occur, "
            "which no finite weight "
            "gives; allow small violations by shrinkage, such as 1e-3"
        )
    return targets


@checks_call
def match_moments(expected_counts: object, *, shrinkage: float = 0.0) -> Matched:
    """The flexible prior with these expected counts of groups, by exact gradients.

    Args:
        expected_counts: (N,) E[m_i] of groups of 1 to N items; sum i E[m_i] = N.
        shrinkage: alpha; above zero where the counts cannot be met, or need not be exactly.
    Returns:
        Matched.
    Raises:
        ValueError: counts that no distribution has, or weights too far apart for a sweep.
    Example:
        >>> wanted = FlexiblePrior([0.0, 0.5, -0.5]).expected_counts(3)
        >>> match_moments(wanted).missed < 1e-4
        True
    """
    from scipy import optimize

    targets = check_expected_counts(expected_counts, shrinkage)

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            log_normaliser, expected = _log_normaliser_and_counts(jnp.asarray(weights))
        value = float(log_normaliser) - weights @ targets + shrinkage / 2 * weights @ weights
        return float(value), np.asarray(expected) - targets + shrinkage * weights

    # from where the expected counts are those of a distribution without the constraint on their sum
    sizes = np.arange(1, targets.size + 1)
    with jax.enable_x64(True):
        factorials = -np.asarray(flexible_distribution.log_potentials(jnp.zeros(targets.size)))
    start = np.log(np.maximum(targets, 1e-9)) + factorials
    start -= sizes * (sizes @ start) / (sizes @ sizes)  # c i changes nothing: take the smallest
    settings = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-8, "maxcor": 50}
    result = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=settings)
    prior = FlexiblePrior(result.x)
    expected = prior.expected_counts(targets.size)
    return Matched(prior, expected, float(np.max(np.abs(expected - targets))))


@jit
def _log_normaliser_and_counts(log_weights: Array) -> tuple[Array, Array]:
    known = flexible_distribution.log_normalisers(log_weights)
    return known[-1], flexible_distribution.expected_counts(log_weights, known)
