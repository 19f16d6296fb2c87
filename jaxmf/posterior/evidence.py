"""The evidence of filters and of annealed runs: its error, and what forbids one."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from scipy.special import chdtri

from jaxmf.posterior.records import Evidence
from jaxmf.samplers.cloud import combine_log_evidence, log_evidence_variance
from jaxmf.types import PyTree

_LEAST_RUNS = 2
_LEAST_EFFECTIVE = 0.1  # of the particles, at any power
_LEAST_MOVED = 0.1  # of the chains, at any power
_NO_VARIANCE = 1e-8  # relative, of particles that agree about the evidence but for rounding
_LARGEST_VARIANCE = 0.5  # of the evidence, relative, beyond which its log has no symmetric error
_SPREAD_LEVEL = 1e-3
_MOST_BEYOND = 4.0  # spread of the runs over what each says itself, however few they are


def filter_evidence(cloud: PyTree) -> Evidence:
    """The evidence; its error only where what it is estimated from allows that.

    A run of which few first particles have descendants knows little of its own error, and what one
    says of itself holds for the modes that it found: one had 0.6 where another was 45 nats higher
    (20 questions, 60 persons). Runs of which one outweighs all others have the relative variance 1
    whatever the truth is.

    Args: cloud: the last of every run.
    """
    log_evidences = np.asarray(cloud.log_evidence, dtype=float)
    value, variance = combine_log_evidence(log_evidences)
    run_variances = np.asarray(jax.vmap(log_evidence_variance)(cloud), dtype=float)
    is_trusted = (
        log_evidences.size >= _LEAST_RUNS
        and variance < _LARGEST_VARIANCE
        and np.median(run_variances) < 1.0
    )
    return Evidence(value=value, standard_error=np.sqrt(variance) if is_trusted else np.nan)


def annealed_evidence(trace: Mapping[str, np.ndarray]) -> Evidence:
    """The log of the mean evidence of the runs, and its error where that can be trusted.

    The variance is the larger of two: of the runs about their mean, and the mean of what each run
    says of itself by its chains.

    Args: trace: ``log_evidence``, ``variance``, ``effective_share``, ``moved_share`` and ``power``,
    (R, S) each, after every step of every run.
    """
    value, _ = combine_log_evidence(trace["log_evidence"][:, -1])
    variance = max(_variances(trace))
    is_trusted = annealing_fault(trace, 1) is None
    return Evidence(value=value, standard_error=np.sqrt(variance) if is_trusted else np.nan)


def annealing_fault(trace: Mapping[str, np.ndarray], num_particles: int) -> str | None:
    """Reason why no error is given, and a remedy, for the middle of a sentence; None if one is.

    Args: trace: see `annealed_evidence`.
    """
    log_evidences = trace["log_evidence"][:, -1]
    num_runs = log_evidences.size
    if num_runs < _LEAST_RUNS:
        return "there is one run, and nothing to compare it with; set num_runs=4"
    spread, within = _variances(trace)
    if max(spread, within) < _NO_VARIANCE:
        return None  # as of one group: there is nothing to move
    share, power = _least(trace, "effective_share")
    if share < _LEAST_EFFECTIVE:
        return (
            f"at power {power:.3g} the weights rest on {share:.1%} of the particles; set "
            f"num_particles={4 * num_particles} and effective_share=0.8, or list more powers where "
            "they are given"
        )
    share, power = _least(trace, "moved_share")
    if share < _LEAST_MOVED:
        return (
            f"at power {power:.3g} only {share:.1%} of the chains moved; set a larger chain_length"
        )
    beyond = chdtri(num_runs - 1, _SPREAD_LEVEL) / (num_runs - 1)
    if spread > max(beyond, _MOST_BEYOND) * within:
        return (
            f"its {num_runs} runs differ by {np.sqrt(spread / within):.1f} times their error, so "
            "chains stay in different modes; set a larger chain_length, or "
            f"num_particles={4 * num_particles}"
        )
    if max(spread, within) >= _LARGEST_VARIANCE:
        return f"its runs differ too much; set num_particles={4 * num_particles}"
    return None


def _variances(trace: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Relative variances of the mean evidence: by the spread of the runs, and by each alone."""
    log_evidences = trace["log_evidence"][:, -1]
    _, spread = combine_log_evidence(log_evidences)
    within = float(np.mean(trace["variance"][:, -1], dtype=float)) / log_evidences.size
    return float(np.nan_to_num(spread)), within


def _least(trace: Mapping[str, np.ndarray], name: str) -> tuple[float, float]:
    """The least value of a share over powers and runs, and the power there."""
    index = np.unravel_index(np.argmin(trace[name]), trace[name].shape)
    return float(trace[name][index]), float(trace["power"][index])
