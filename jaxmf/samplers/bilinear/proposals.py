"""Proposals to change several bits of a row at once (Meeds et al., section 3.3)."""

import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf.samplers.bilinear.draws import ProposalDraws
from jaxmf.types import Array

_BITS_A_PROPOSAL = 3


def proposed_bits(
    draws: ProposalDraws, bits: Array, *, prior_log_odds: Array, free_to_move: Array
) -> Array:
    """The row (K,) bool that is proposed.

    Each slot that may move is chosen with the same probability, three slots on the average; the
    chosen bits are proposed from their prior given the other rows, so the prior and the proposal
    cancel and the ratio of likelihoods decides.

    Args: bits (K,) bool, the row as it is; prior_log_odds (K,) float, of each bit being on given
    the other rows; free_to_move (K,) bool, the slots that may move.
    """
    num_movable = jnp.sum(free_to_move, dtype=draws.choice.dtype)
    chosen = free_to_move & (draws.choice * num_movable < _BITS_A_PROPOSAL)
    on = logit(draws.bits) < prior_log_odds
    return jnp.where(chosen, on, bits)
