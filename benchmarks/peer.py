"""The package STA-663-IBP (module IBP_Sampler_Package), a collapsed Gibbs sampler in numpy."""

from __future__ import annotations

import importlib
from contextlib import suppress
from types import ModuleType

import numpy as np

from benchmarks.harness import Stopwatch

_MAX_NEW = 4


class _Enough(Exception):
    pass


def load_peer() -> ModuleType | None:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module("IBP_Sampler_Package.IBP_Sampler")
    except ImportError:
        return None


def peer_sweep_seconds(
    peer: ModuleType, x: np.ndarray, z: np.ndarray, *, num_timed: int | None = None
) -> float:
    """Seconds of one sweep of the peer's own sampler, started at Z.

    Its time is nearly all in one likelihood for each value of a bit and each number of new
    features, so a sweep cut off after `num_timed` rows is scaled to all rows.

    Args:
        peer: the module.
        x: (N, D) float64.
        z: (N, K) bool.
        num_timed: rows to time; all by default.
    """
    num_rows, num_features = z.shape
    num_calls = (num_timed or num_rows) * (2 * num_features + _MAX_NEW)
    likelihood, start = peer.log_likelyhood, peer.IBP
    count = 0

    def counted(*args: object) -> float:
        nonlocal count
        if count == num_calls:
            raise _Enough
        count += 1
        return likelihood(*args)

    # its start is a draw from the prior; here it starts where ours does
    peer.log_likelyhood, peer.IBP = counted, lambda alpha, N: z.astype(float)
    np.random.seed(0)  # noqa: NPY002 - the peer draws from the global generator
    try:
        with Stopwatch() as watch, suppress(_Enough):
            peer.sampler(x, 1, 1, 0.001, 0.5, 1.0, 1.0, 1.0, _MAX_NEW)
    finally:
        peer.log_likelyhood, peer.IBP = likelihood, start
    return watch.seconds * num_rows * (2 * num_features + _MAX_NEW) / count
