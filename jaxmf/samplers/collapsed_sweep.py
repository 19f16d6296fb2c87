"""The collapsed Gibbs sweep of a linear-Gaussian feature model: row by row, Y summed out.

Each row costs O(K^2 + K D), whatever N. Source: Wood & Griffiths (2006), section 4, with the
row-wise statistics of `likelihoods/gaussian.py` in place of the growing inverse of eq 7.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf import slots
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.gaussian import RowPosterior
from jaxmf.samplers import feature_rows
from jaxmf.samplers.feature_layout import (
    FeaturePrior,
    RowDraws,
    RowPrior,
    Scales,
    draws_of_rows,
    row_prior,
    write_rows,
)
from jaxmf.samplers.feature_rows import RowFit
from jaxmf.types import Array, Key, PyTree

_ROWS_A_BLOCK = 128


class Setting(NamedTuple):
    """A drawn row.

    Bits of existing features (K,) bool, their z M z', the number of new features, and whether the
    sum over that number was cut off.
    """

    z: Array
    inflation: Array
    num_new: Array
    cut_off: Array


class _Block(NamedTuple):
    z: Array
    x: Array
    posterior: RowPosterior
    counts: Array
    overflow: Array


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

    For each row: take it out; the features that it alone has leave with it, their number is
    remembered; draw the bits of the features that other rows have, given that number; draw the
    number of new features from its exact sum; draw the missing cells; put the row back. Missing
    cells are summed out of the first two draws. (M, mu) is recomputed by Cholesky every 128 rows.

    Args:
      key: of the step.
      z: (N, K) bool.
      x: (N, D) float, missing cells imputed.
      observed: (N, D) bool, or None when nothing is missing.
      prior: of Z.
      scales: noise and feature scale.
      num_fixed: the first so many slots hold fixed features, such as an always-on one:
        they are part of the likelihood and never change.
      whole_rows: draw each row from all its 2^K settings at once, not bit by bit.
      num_rows: () int; only the first `num_rows` rows are there, as in a filter that goes over
        earlier rows once more. The others are left as they are and must have no features.

    Returns:
      z, x, and () bool: whether a row needed more slots than there are.
    """
    total_rows, num_slots = z.shape
    size = min(_ROWS_A_BLOCK, total_rows)
    present = jnp.asarray(total_rows if num_rows is None else num_rows, jnp.int32)
    num_columns = None if observed is None else x.shape[1]
    draw_row = draw_whole_row if whole_rows else draw_bits

    # rows are read from z and x and written to others: see `write_rows`
    def sweep_block(block: Array, carry: PyTree) -> PyTree:
        z_out, x_out, gram, cross, overflow = carry
        start, first = gaussian.piece_start(block, size, total_rows)
        rows = start + jnp.arange(size)
        here = (rows >= first) & (rows < present)
        draws = draws_of_rows(key, rows, num_slots, num_columns, x.dtype)
        z_before = jax.lax.dynamic_slice_in_dim(z, start, size)
        x_before = jax.lax.dynamic_slice_in_dim(x, start, size)
        seen = None if observed is None else jax.lax.dynamic_slice_in_dim(observed, start, size)

        def update(index: Array, block: _Block) -> _Block:
            drawn, row_seen, row_here = jax.tree.map(
                lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False),
                (draws, seen, here),
            )
            return _update_row(
                drawn, row_seen, row_here, index, block, prior=prior, scales=scales,
                num_fixed=num_fixed, num_rows=present.astype(x.dtype), draw_row=draw_row,
            )  # fmt: skip

        after = jax.lax.fori_loop(
            0,
            size,
            update,
            _Block(
                z=z_before,
                x=x_before,
                posterior=gaussian.row_posterior(gram, cross, scales.ratio),
                counts=jnp.diagonal(gram),
                overflow=overflow,
            ),
        )
        old, new = z_before.astype(x.dtype), after.z.astype(x.dtype)
        gram = gram + new.T @ new - old.T @ old
        cross = cross + new.T @ after.x - old.T @ x_before
        z_out = write_rows(z_out, after.z, start, here)
        if observed is not None:
            x_out = write_rows(x_out, after.x, start, here)
        return z_out, x_out, gram, cross, after.overflow

    num_blocks = -(-present // size)
    statistics = gaussian.gram_statistics(z, x)
    carry = (z, None if observed is None else x, *statistics, jnp.zeros((), bool))
    z_new, x_new, _, _, overflow = jax.lax.fori_loop(0, num_blocks, sweep_block, carry)
    return z_new, x if observed is None else x_new, overflow


def _update_row(
    draws: RowDraws,
    observed: Array | None,
    here: Array,
    index: Array,
    block: _Block,
    *,
    prior: FeaturePrior,
    scales: Scales,
    num_fixed: int,
    num_rows: Array,
    draw_row: Callable[..., Setting],
) -> _Block:
    """The block with row `index` drawn anew; unchanged where the row is not `here`."""
    z_old = jax.lax.dynamic_index_in_dim(block.z, index, keepdims=False)
    x_old = jax.lax.dynamic_index_in_dim(block.x, index, keepdims=False)
    leaving = (z_old & here).astype(x_old.dtype)
    counts = block.counts - leaving
    conditional = row_prior(prior, counts, num_rows, num_fixed=num_fixed)
    conditional = conditional._replace(movable=conditional.movable & here)
    empty = counts < 0.5
    posterior = gaussian.remove_row(
        block.posterior, leaving, jnp.where(empty, leaving, 0), x_old, scales.ratio
    )
    # slots without ones are put back to the prior exactly, so rounding cannot gather there
    posterior = gaussian.reset_slots(posterior, empty, scales.ratio)
    singletons = z_old & conditional.free
    setting = draw_row(
        draws,
        feature_rows.row_fit(posterior, z_old & ~singletons & here, x_old, observed),
        conditional,
        num_singletons=jnp.sum(singletons & here, dtype=x_old.dtype),
        scales=scales,
    )
    num_new = jnp.where(here, setting.num_new, 0)
    claim = slots.claim(~conditional.free, num_new)
    z_new = jnp.where(here, setting.z | claim.claimed, z_old)
    x_new = x_old
    if observed is not None and draws.cells is not None:
        drawn = draw_cells(draws.cells, setting, posterior.mean, scales)
        x_new = jnp.where(observed | ~here, x_old, drawn)
    arriving = (z_new & here).astype(x_old.dtype)
    return _Block(
        z=jax.lax.dynamic_update_index_in_dim(block.z, z_new, index, 0),
        x=jax.lax.dynamic_update_index_in_dim(block.x, x_new, index, 0),
        posterior=gaussian.add_row(posterior, arriving, x_new),
        counts=counts + arriving,
        overflow=block.overflow | (here & (claim.overflow | setting.cut_off)),
    )


def draw_cells(normals: Array, setting: Setting, mean: Array, scales: Scales) -> Array:
    """Cells (D,) of a row given its features: N(z mu, noise variance * (1 + z M z' + j / r))."""
    inflation = setting.inflation + setting.num_new / scales.ratio
    deviation = scales.noise * jnp.sqrt(1 + inflation)
    return setting.z.astype(mean.dtype) @ mean + deviation * normals


def draw_bits(
    draws: RowDraws, fit: RowFit, conditional: RowPrior, *, num_singletons: Array, scales: Scales
) -> Setting:
    """A row drawn bit by bit in random order, then the number of its new features."""
    fit = feature_rows.scan_bits(
        draws.order,
        draws.bits,
        fit,
        extra=num_singletons / scales.ratio,
        noise_variance=scales.noise_variance,
        prior_log_odds=conditional.log_odds,
        free_to_move=conditional.movable,
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
    return Setting(
        z=fit.z,
        inflation=fit.inflation,
        num_new=feature_rows.draw_index(draws.num_new, log_weights),
        cut_off=cut_off,
    )


def draw_whole_row(
    draws: RowDraws, fit: RowFit, conditional: RowPrior, *, num_singletons: Array, scales: Scales
) -> Setting:
    """A row drawn from all settings of its bits and number of new features at once."""
    del num_singletons  # drawn anew together with the bits
    patterns, log_weights, cut_off = feature_rows.whole_row_log_weights(
        fit,
        rate=conditional.rate,
        ratio=scales.ratio,
        noise_variance=scales.noise_variance,
        prior_log_odds=conditional.log_odds,
        free_to_move=conditional.movable,
        num_candidates=fit.z.shape[0] + 1,
    )
    pattern = feature_rows.draw_index(draws.bits[0], logsumexp(log_weights, axis=1))
    z_float = patterns[pattern].astype(fit.spread.dtype)
    return Setting(
        z=patterns[pattern],
        inflation=z_float @ fit.spread @ z_float,
        num_new=feature_rows.draw_index(draws.num_new, log_weights[pattern]),
        cut_off=cut_off,
    )
