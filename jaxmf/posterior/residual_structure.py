"""An alarm where the features leave structure in the cells that one more of many rows would take.

In a wide table a new feature is dear to its first row alone, and a chain may never begin one that
half of the rows share: its draws then agree with each other, and with the cells, whose noise is
taken to be a little larger. So may a dispersion of counts, which are compared on a
logarithmic scale among rows that have the same features.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxmf import registry
from jaxmf._kernels.linalg import first_direction
from jaxmf.data import Dense
from jaxmf.data.process_rows import ROWS_A_BLOCK, rows_on_host
from jaxmf.model import settings_of
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import Alarm

# Of residuals about true features, normal, of a t of three degrees, or of columns of unequal noise,
# 1.05 at most in 1,100 tables from 12 x 12 to 400 x 400; 1.2 where the noise was lognormal. Of
# counts of dispersion .02 to 2 above 1.25 in one of 600 tables from 30 x 12 to 200 x 40; 1.3 to 2.4
# where one of two features or two of three were left out of tables from 60 x 35.
_LARGEST_RATIO = 1.25
_MOST_NOISES = 3.0  # of a cell: one far cell would be a direction of its own
_FEWEST_DEGREES = 8  # of freedom of a column
_POWER_STEPS = 10
_COMPLETIONS = 10  # of missing cells
_ROUNDINGS = 64  # of the largest cell of a column, up to which residuals are rounding


def left_in_residuals(posterior: Draws) -> Iterator[Alarm]:
    """A direction of the residuals that stands out from noise."""
    draws, data = posterior.draws, posterior.data
    is_counts = "dispersion" in draws
    if not isinstance(data, Dense) or "z" not in draws or "v" in draws:
        return
    if not is_counts and "noise_scale" not in draws:
        return
    if settings_of(posterior.model).get("log_likelihood") is not None:
        return  # a user's own, in which features need not add up
    rows = slice(None, None, -(-data.num_rows // ROWS_A_BLOCK))
    z = np.asarray(posterior.reference_draw()["z"])[rows]
    z = z[:, z.any(axis=0)]
    if is_counts:
        z = _group_indicators(z)
    if len(z) - z.shape[1] - 1 < _FEWEST_DEGREES:
        return
    values = rows_on_host(data.values, rows)
    values = np.log1p(values) if is_counts else values
    observed = None if data.observed is None else rows_on_host(data.observed, rows)
    ratio = ratio_to_noise(values, z, observed)
    if ratio > _LARGEST_RATIO:
        instead, remedy = "", _advice(posterior)
        if is_counts:  # a longer warm-up ends there too
            instead = ", and the dispersion stands for it"
            remedy = (
                "See what mf.Poisson() finds, whose intervals are too narrow where counts are "
                "dispersed"
            )
        yield Alarm(
            "residuals",
            "The features leave structure in the residuals of the draw with the highest log joint: "
            f"their first singular value is {ratio:.1f} times that of noise alone, so at least one "
            f"feature that many rows share was not found{instead}. {remedy}",
        )


def _group_indicators(z: np.ndarray) -> np.ndarray:
    """Which rows have the same features (N, G - 1), but for one of the G groups.

    The cells of a column are alike in such rows under every likelihood, also on another scale.
    """
    groups = np.unique(z, axis=0, return_inverse=True)[1].ravel()
    return groups[:, None] == np.arange(1, groups.max(initial=0) + 1)


def ratio_to_noise(values: np.ndarray, z: np.ndarray, observed: np.ndarray | None) -> float:
    """The first singular value of residuals over that of as many cells of noise, about.

    Residuals are those of a regression on a constant and the features, by least squares, in units
    of their columns and rows and bounded. That of n x D cells of noise is about sqrt(n) + sqrt(D).
    Columns of which rounding alone is left are not noise: they are left out.

    Args: values (N, D) float; z (N, K) bool; observed (N, D) bool, None for all.
    """
    rounding = _ROUNDINGS * np.finfo(values.dtype).eps
    values = values.astype(float)
    basis, _ = np.linalg.qr(np.column_stack([np.ones(len(z)), z]))
    known = np.ones(values.shape, bool) if observed is None else observed
    means = values.sum(axis=0, where=known) / np.maximum(known.sum(axis=0), 1)
    fit = np.broadcast_to(means, values.shape)
    for _ in range(1 if observed is None else _COMPLETIONS):
        complete = np.where(known, values, fit)
        fit = basis @ (basis.T @ complete)
    residuals = np.where(known, values - fit, 0)
    largest = np.max(np.abs(values), axis=0, where=known, initial=0)
    is_noisy = np.max(np.abs(residuals), axis=0) > rounding * largest
    residuals, known = residuals[:, is_noisy], known[:, is_noisy]
    for axis in (0, 1):
        count = np.maximum(known.sum(axis=axis, keepdims=True), 1)
        scale = np.sqrt(np.sum(residuals**2, axis=axis, keepdims=True) / count)
        residuals = np.divide(residuals, scale, out=np.zeros_like(residuals), where=scale > 0)
    residuals = np.clip(residuals, -_MOST_NOISES, _MOST_NOISES)
    degrees = len(z) - basis.shape[1]
    scale = np.linalg.norm(residuals) / np.sqrt(degrees * max(is_noisy.sum(), 1))
    edge = scale * (np.sqrt(degrees) + np.sqrt(is_noisy.sum()))
    first = np.linalg.norm(residuals @ first_direction(residuals, _POWER_STEPS))
    return float(first / edge) if edge > 0 else 0.0


def _advice(posterior: Draws) -> str:
    if posterior.meta.method != "sample":
        return "Try mf.sample"
    entry = registry.entry_of(posterior.model)
    known = {setting.name for setting in registry.method_settings(entry, "sample")}
    options = posterior.meta.options
    moves = [
        f"{name}={proposals}"
        for name, proposals in (("shared_births", 1), ("split_merge", 5))
        if name in known and not options.get(name)
    ]
    warmup = int(posterior.meta.run.get("num_warmup", 0))
    return f"Try {' or '.join([*moves, f'num_warmup={max(2 * warmup, 500)}'])}"
