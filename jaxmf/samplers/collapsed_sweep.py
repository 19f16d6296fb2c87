"""The collapsed Gibbs sweep of a linear-Gaussian feature model: row by row, Y summed out.

Each row costs O(K^2 + K D), whatever N. Source: Wood & Griffiths (2006), section 4, with the
row-wise statistics of `likelihoods/gaussian.py` in place of the growing inverse of eq 7.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.gaussian import RowPosterior
from jaxmf.samplers import feature_rows
from jaxmf.samplers.collapsed_rows import DrawnRow, sweep_collapsed_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowDraws, RowPrior, Scales, draws_of_rows
from jaxmf.samplers.feature_rows import RowFit
from jaxmf.types import Array, Key


class SweepSetting(NamedTuple):
    """A drawn row.

    Bits of existing features (K,) bool, their z M z', the number of new features, and whether the
    sum over that number was cut off.
    """

    z: Array
    inflation: Array
    num_new: Array
    cut_off: Array


class _LinearRows(NamedTuple):
    """Linear-Gaussian rows; `observed` is None where nothing is missing. See `CollapsedRows`."""

    x: Array
    observed: Array | None
    scales: Scales
    num_slots: int
    draw_row: Callable[..., SweepSetting]

    def draws(self, key: Key, rows: Array) -> RowDraws:
        num_columns = None if self.observed is None else self.x.shape[1]
        return draws_of_rows(key, rows, self.num_slots, num_columns, self.x.dtype)

    def block(self, start: Array, size: int) -> tuple[Array, Array | None]:
        x, observed = jax.tree.map(
            lambda array: jax.lax.dynamic_slice_in_dim(array, start, size), (self.x, self.observed)
        )
        return x, observed

    def targets(self, cells: Array) -> Array:
        return cells

    def values(self, cells: Array) -> Array:
        return cells

    def posterior(self, gram: Array, cross: Array) -> RowPosterior:
        return gaussian.row_posterior(gram, cross, self.scales.ratio)

    def remove(
        self,
        posterior: RowPosterior,
        z: Array,
        empty: Array,
        cells: Array,
        others: Callable[[Array], tuple[Array, Array]],
    ) -> RowPosterior:
        ratio = self.scales.ratio
        posterior = gaussian.remove_row(posterior, z, jnp.where(empty, z, 0), cells, ratio, others)
        return gaussian.reset_slots(posterior, empty, ratio)

    def draw(
        self,
        draws: RowDraws,
        posterior: RowPosterior,
        z: Array,
        cells: Array,
        seen: Array | None,
        conditional: RowPrior,
        num_singletons: Array,
    ) -> DrawnRow:
        fit = feature_rows.row_fit(posterior, z, cells, seen)
        setting = self.draw_row(
            draws, fit, conditional, num_singletons=num_singletons, scales=self.scales
        )
        drawn = None
        if seen is not None and draws.cells is not None:
            drawn = draw_cells(draws.cells, setting, posterior.mean, self.scales)
            drawn = jnp.where(seen, cells, drawn)
        return DrawnRow(setting.z, setting.num_new, setting.cut_off, drawn)

    def add(self, posterior: RowPosterior, z: Array, empty: Array, cells: Array) -> RowPosterior:
        del empty
        return gaussian.add_row(posterior, z, cells)


def collapsed_sweep(
    key: Key,
    z: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    scales: Scales,
    num_fixed: int = 0,
    whole_rows: bool = False,
    num_rows: Array | None = None,
) -> tuple[Array, Array, Array]:
    """One pass over the rows; leaves p(Z, missing cells | observed cells, scales) invariant.

    What is done with a row stands in `collapsed_rows.py`.

    Args: z (N, K) bool; x (N, D) float, missing cells imputed; observed (N, D) bool, or None when
    nothing is missing; num_fixed, num_rows: as in `sweep_collapsed_rows`; whole_rows: draw each row
    from all its 2^K settings at once, not bit by bit.
    Returns z, x, and () bool: whether a row needed more slots than there are.
    """
    rows = _LinearRows(x, observed, scales, z.shape[1], draw_whole_row if whole_rows else draw_bits)
    z, drawn, overflow = sweep_collapsed_rows(
        key, z, None if observed is None else x, gaussian.gram_statistics(z, x), rows,
        prior=prior, num_fixed=num_fixed, num_rows=num_rows,
    )  # fmt: skip
    return z, x if drawn is None else drawn, overflow


def draw_cells(normals: Array, setting: SweepSetting, mean: Array, scales: Scales) -> Array:
    """Cells (D,) of a row given its features: N(z mu, noise variance * (1 + z M z' + j / r))."""
    inflation = setting.inflation + setting.num_new / scales.ratio
    deviation = scales.noise * jnp.sqrt(1 + inflation)
    return setting.z.astype(mean.dtype) @ mean + deviation * normals


def draw_bits(
    draws: RowDraws, fit: RowFit, conditional: RowPrior, *, num_singletons: Array, scales: Scales
) -> SweepSetting:
    """A row drawn bit by bit in random order, then the number of its new features."""
    fit = feature_rows.scan_bits(
        draws,
        fit,
        conditional,
        extra=num_singletons / scales.ratio,
        noise_variance=scales.noise_variance,
    )
    log_weights, cut_off = feature_rows.new_feature_log_weights(
        fit.squared_error,
        fit.inflation,
        fit.num_observed,
        rate=conditional.rate,
        ratio=scales.ratio,
        noise_variance=scales.noise_variance,
        num_candidates=fit.z.shape[0] + 1,
    )
    return SweepSetting(
        z=fit.z,
        inflation=fit.inflation,
        num_new=feature_rows.draw_index(draws.num_new, log_weights),
        cut_off=cut_off,
    )


def draw_whole_row(
    draws: RowDraws, fit: RowFit, conditional: RowPrior, *, num_singletons: Array, scales: Scales
) -> SweepSetting:
    """A row drawn from all settings of its bits and number of new features at once."""
    del num_singletons  # drawn anew together with the bits
    patterns, log_weights, cut_off = feature_rows.whole_row_log_weights(
        fit,
        conditional,
        ratio=scales.ratio,
        noise_variance=scales.noise_variance,
        num_candidates=fit.z.shape[0] + 1,
    )
    pattern = feature_rows.draw_index(draws.bits[0], logsumexp(log_weights, axis=1))
    z_float = patterns[pattern].astype(fit.spread.dtype)
    return SweepSetting(
        z=patterns[pattern],
        inflation=z_float @ fit.spread @ z_float,
        num_new=feature_rows.draw_index(draws.num_new, log_weights[pattern]),
        cut_off=cut_off,
    )
