"""The collapsed Gibbs sweep of binary matrix factorisation: the rows of U, W summed out.

Given V, X turns into L independent linear-Gaussian columns (`likelihoods/bilinear_rows.py`), so a
row costs O(L K^2) beyond the product of X with the turned columns. The same sweep with X' for X and
the roles of U and V exchanged updates V. Source: Meeds, Ghahramani, Neal & Roweis (2006), sections
3.1 to 3.3.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf import slots
from jaxmf.likelihoods import bilinear_rows, gaussian
from jaxmf.likelihoods.bilinear_rows import Turned, TurnedPosterior
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear import rows as rows_of_bits
from jaxmf.samplers.bilinear.draws import Draws, ProposalDraws, bilinear_draws
from jaxmf.samplers.bilinear.rows import PartialRow, RowFit
from jaxmf.samplers.bilinear.whole_rows import propose_bits, whole_row_log_weights
from jaxmf.samplers.feature_layout import (
    FeaturePrior,
    RowDraws,
    RowPrior,
    row_prior,
    write_rows,
)
from jaxmf.types import Array, Key, PyTree

_ROWS_A_BLOCK = 128


class Plan(NamedTuple):
    """How a row is drawn; static.

    Whether from all its 2^K settings at once; after the bits, drawn one at a time, how many
    proposals of several bits at once; and how many slots hold fixed features.
    """

    whole_rows: bool
    num_proposals: int
    num_fixed: int


class _Row(NamedTuple):
    """What a row brings: its turned cells (L,), whether it is drawn, and its missing cells."""

    turned: Array
    here: Array
    partial: PartialRow | None


class _Block(NamedTuple):
    u: Array
    x: Array | None
    turned: Array
    posterior: TurnedPosterior
    counts: Array
    overflow: Array


def collapsed_bilinear_sweep(
    key: Key,
    u: Array,
    v: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
    num_fixed: int = 0,
    whole_rows: bool = False,
    num_proposals: int = 0,
) -> tuple[Array, Array, Array]:
    """One pass over the rows of U; p(U, missing cells | V, observed cells, scales) stays invariant.

    For each row: take it out; the features that it alone has leave with it, their number j is
    remembered; draw the bits of the features that other rows have in a fresh random order, given
    j; draw the number of new features from its exact sum; draw the row's missing cells; put the row
    back. The missing cells of the row are summed out of the first two draws (those of other rows
    stay as they are imputed), and are then drawn jointly given its features and its observed cells.
    (M, mu) is recomputed by Cholesky every 128 rows.

    For V call it with x.T, observed.T, u and v exchanged and weight_mean.T.

    Args:
      key: of the step.
      u: (I, K) bool.
      v: (J, L) bool.
      x: (I, J) float, missing cells imputed.
      observed: (I, J) bool, or None when nothing is missing.
      prior: of U.
      noise_scale: () float, s_X.
      weight_scale: () float, s_W.
      weight_mean: w0, broadcasts to (K, L). Where features come and go, all slots but the fixed
        ones must have the same mean, as slots carry no meaning then.
      num_fixed: the first so many slots of U hold fixed features, which never change.
      whole_rows: draw each row from all its 2^K settings at once, not bit by bit.
      num_proposals: after the bits, so many Metropolis-Hastings proposals of several bits at once.

    Returns:
      u, x, and () bool: whether a row needed more slots than there are.
    """
    num_rows, num_slots = u.shape
    size = min(_ROWS_A_BLOCK, num_rows)
    plan = Plan(whole_rows, num_proposals, num_fixed)
    turned = bilinear_rows.turn(
        v,
        noise_scale=noise_scale,
        weight_scale=weight_scale,
        weight_mean=weight_mean,
        num_slots=num_slots,
    )

    # rows are read from u and x and written to others: see `write_rows`
    def sweep_block(block: Array, carry: PyTree) -> PyTree:
        u_out, x_out, gram, cross, overflow = carry
        start, first = gaussian.piece_start(block, size, num_rows)
        rows = start + jnp.arange(size)
        draws = bilinear_draws(
            key,
            rows,
            num_slots=num_slots,
            num_turned=v.shape[1],
            num_columns=None if observed is None else x.shape[1],
            num_proposals=num_proposals,
            dtype=x.dtype,
        )
        u_before, turned_before = (
            jax.lax.dynamic_slice_in_dim(array, start, size) for array in (u, turned_x)
        )
        partial, x_before = None, None
        if observed is not None:
            x_before = jax.lax.dynamic_slice_in_dim(x, start, size)
            seen = jax.lax.dynamic_slice_in_dim(observed, start, size)
            grams = bilinear_rows.observed_grams(seen, turned.basis)
            partial = PartialRow(x_before, seen, grams)
        rows_before = _Row(turned_before, rows >= first, partial)

        def update(index: Array, block: _Block) -> _Block:
            drawn, row = jax.tree.map(
                lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False),
                (draws, rows_before),
            )
            return _update_row(
                drawn, row, index, block, turned, prior=prior, noise_scale=noise_scale,
                num_rows=jnp.asarray(num_rows, turned_x.dtype), plan=plan,
            )  # fmt: skip

        after = jax.lax.fori_loop(
            0,
            size,
            update,
            _Block(
                u=u_before,
                x=x_before,
                turned=turned_before,
                posterior=bilinear_rows.turned_posterior(gram, cross, turned),
                counts=jnp.diagonal(gram),
                overflow=overflow,
            ),
        )
        old, new = u_before.astype(turned_x.dtype), after.u.astype(turned_x.dtype)
        gram = gram + new.T @ new - old.T @ old
        cross = cross + new.T @ after.turned - old.T @ turned_before
        u_out = write_rows(u_out, after.u, start, rows_before.here)
        if observed is not None:
            x_out = write_rows(x_out, after.x, start, rows_before.here)
        return u_out, x_out, gram, cross, after.overflow

    turned_x = x @ turned.basis
    statistics = gaussian.gram_statistics(u, turned_x)
    carry = (u, None if observed is None else x, *statistics, jnp.zeros((), bool))
    num_blocks = -(-num_rows // size)
    u_new, x_new, _, _, overflow = jax.lax.fori_loop(0, num_blocks, sweep_block, carry)
    return u_new, x if observed is None else x_new, overflow


def _update_row(
    draws: Draws,
    row: _Row,
    index: Array,
    block: _Block,
    turned: Turned,
    *,
    prior: FeaturePrior,
    noise_scale: Array,
    num_rows: Array,
    plan: Plan,
) -> _Block:
    """The block with row `index` drawn anew; unchanged where the row is not `here`."""
    dtype, here = row.turned.dtype, row.here
    u_old = jax.lax.dynamic_index_in_dim(block.u, index, keepdims=False)
    leaving = (u_old & here).astype(dtype)
    counts = block.counts - leaving
    conditional = row_prior(prior, counts, num_rows, num_fixed=plan.num_fixed)
    conditional = conditional._replace(movable=conditional.movable & here)
    empty = counts < 0.5
    posterior = bilinear_rows.remove_row(
        block.posterior, leaving, jnp.where(empty, leaving, 0), row.turned, turned
    )
    posterior = bilinear_rows.reset_slots(posterior, empty, turned)
    singletons = u_old & conditional.free
    fit = rows_of_bits.row_fit(
        posterior, u_old & ~singletons & here, row.turned, turned, row.partial
    )
    num_singletons = jnp.sum(singletons & here, dtype=dtype)
    fit, num_new, cut_off = draw_row(
        draws.row, draws.proposals, fit, conditional, turned,
        num_singletons=num_singletons, noise_variance=noise_scale**2, plan=plan,
    )  # fmt: skip
    num_new = jnp.where(here, num_new, 0)
    claim = slots.claim(~conditional.free, num_new)
    u_new = jnp.where(here, fit.z | claim.claimed, u_old)
    x, turned_new, turned_block = block.x, row.turned, block.turned
    if row.partial is not None and draws.cells is not None:
        cells = rows_of_bits.draw_cells(
            draws.cells, fit, num_new, turned, partial=row.partial, noise_scale=noise_scale
        )
        x_new = jnp.where(here, cells, row.partial.cells)
        turned_new = x_new @ turned.basis
        x = jax.lax.dynamic_update_index_in_dim(block.x, x_new, index, 0)
        turned_block = jax.lax.dynamic_update_index_in_dim(block.turned, turned_new, index, 0)
    arriving = (u_new & here).astype(dtype)
    return _Block(
        u=jax.lax.dynamic_update_index_in_dim(block.u, u_new, index, 0),
        x=x,
        turned=turned_block,
        posterior=bilinear_rows.add_row(
            posterior, arriving, jnp.where(empty, arriving, 0), turned_new, turned
        ),
        counts=counts + arriving,
        overflow=block.overflow | (here & (claim.overflow | cut_off)),
    )


def draw_row(
    draws: RowDraws,
    proposals: ProposalDraws | None,
    fit: RowFit,
    conditional: RowPrior,
    turned: Turned,
    *,
    num_singletons: Array,
    noise_variance: Array,
    plan: Plan,
) -> tuple[RowFit, Array, Array]:
    """A row drawn anew: its fit, the number of its new features, whether that sum was cut off."""
    candidates = {"rate": conditional.rate, "noise_variance": noise_variance}
    moves = {"prior_log_odds": conditional.log_odds, "free_to_move": conditional.movable}
    if plan.whole_rows:
        patterns, log_weights, beyond = whole_row_log_weights(fit, turned, **candidates, **moves)
        pattern = feature_rows.draw_index(draws.bits[0], logsumexp(log_weights, axis=1))
        num_new = feature_rows.draw_index(draws.num_new, log_weights[pattern])
        fit = rows_of_bits.moved(fit, patterns[pattern])
        return fit, num_new, rows_of_bits.is_cut_off(log_weights, beyond)
    singleton_mean = num_singletons * turned.prior_mean[-1]
    fixed = {"extra": num_singletons * turned.strength, "noise_variance": noise_variance, **moves}
    fit = rows_of_bits.shifted(fit, singleton_mean)
    fit = rows_of_bits.scan_bits(draws.order, draws.bits, fit, **fixed)
    if proposals is not None:
        fit, _ = jax.lax.scan(
            lambda fit, drawn: (propose_bits(drawn, fit, **fixed), None),
            fit,
            proposals,
        )
    fit = rows_of_bits.shifted(fit, -singleton_mean)
    log_weights, beyond = rows_of_bits.new_feature_log_weights(fit, turned, **candidates)
    num_new = feature_rows.draw_index(draws.num_new, log_weights)
    return fit, num_new, rows_of_bits.is_cut_off(log_weights, beyond)
