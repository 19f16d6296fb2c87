"""The random numbers of a row in the sweeps that have the weights summed out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jax.typing import DTypeLike

from jaxmf._kernels.special import as_normals
from jaxmf.samplers.feature_layout import RowDraws, RowPrior, row_uniforms
from jaxmf.types import Array, Key

_BITS_A_PROPOSAL = 3


class ProposalDraws(NamedTuple):
    """The random numbers of a proposal, uniforms over slots (K,) or alone ()."""

    choice: Array
    bits: Array
    accept: Array


class CellDraws(NamedTuple):
    """Normals for the missing cells of a row: over slots of V (L,) and over columns (J,)."""

    effect: Array
    noise: Array


class BilinearDraws(NamedTuple):
    """The random numbers of rows; the proposals of a row have an axis too. None: not done."""

    row: RowDraws
    proposals: ProposalDraws | None
    cells: CellDraws | None


def bilinear_draws(
    key: Key,
    rows: Array,
    *,
    num_slots: int,
    num_turned: int,
    num_columns: int | None,
    num_proposals: int,
    dtype: DTypeLike,
) -> BilinearDraws:
    """The random numbers of rows on a leading axis; a row's depend on its index.

    Args: rows (R,) int, their indices; num_columns: J where cells are missing, else None.
    """

    def draw_row(row: Array) -> BilinearDraws:
        # uniforms for the missing cells come last: with complete data the draws are those of
        # `row_draws`
        is_missing = num_columns is not None
        noise, streams = row_uniforms(
            jax.random.fold_in(key, row),
            num_columns or 0,
            max(num_slots, num_turned) if is_missing else num_slots,
            3 + 3 * num_proposals + is_missing,
            dtype,
        )
        order, bits, num_new = streams[:3, :num_slots]
        proposals, cells = None, None
        if num_proposals:
            drawn = streams[3 : 3 + 3 * num_proposals, :num_slots].reshape(-1, 3, num_slots)
            proposals = ProposalDraws(choice=drawn[:, 0], bits=drawn[:, 1], accept=drawn[:, 2, 0])
        if num_columns is not None:
            normals = as_normals(jnp.concatenate([noise, streams[-1, :num_turned]]))
            cells = CellDraws(effect=normals[num_columns:], noise=normals[:num_columns])
        return BilinearDraws(RowDraws(order, bits, num_new[0], cells=None), proposals, cells)

    return jax.vmap(draw_row)(rows)


def proposed_bits(draws: ProposalDraws, bits: Array, conditional: RowPrior) -> Array:
    """The row (K,) bool that is proposed (Meeds et al., section 3.3).

    Each slot that may move is chosen with the same probability, three slots on the average; the
    chosen bits are proposed from their prior given the other rows, so the prior and the proposal
    cancel and the ratio of likelihoods decides.

    Args: bits (K,) bool, the row as it is.
    """
    num_movable = jnp.sum(conditional.movable, dtype=draws.choice.dtype)
    chosen = conditional.movable & (draws.choice * num_movable < _BITS_A_PROPOSAL)
    on = logit(draws.bits) < conditional.log_odds
    return jnp.where(chosen, on, bits)
