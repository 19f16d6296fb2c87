"""Proposals to change several bits of a row at once (Meeds et al., section 3.3)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf.types import Array, Key

_BITS_A_PROPOSAL = 3


class ProposalDraws(NamedTuple):
    """The random numbers of a proposal, uniforms over slots (K,) or alone ()."""

    choice: Array
    bits: Array
    accept: Array


def proposal_draws(key: Key, num_proposals: int, num_slots: int, dtype) -> ProposalDraws | None:
    """The random numbers of a row's proposals, on a leading axis; None where there are none."""

    def of_proposal(index):
        stream = jax.random.fold_in(key, index)
        return ProposalDraws(
            choice=jax.random.uniform(jax.random.fold_in(stream, 0), (num_slots,), dtype),
            bits=jax.random.uniform(jax.random.fold_in(stream, 1), (num_slots,), dtype),
            accept=jax.random.uniform(jax.random.fold_in(stream, 2), (), dtype),
        )

    return jax.vmap(of_proposal)(jnp.arange(num_proposals)) if num_proposals else None


def proposed_bits(
    draws: ProposalDraws, bits: Array, *, prior_log_odds: Array, free_to_move: Array
) -> Array:
    """The row (K,) bool that is proposed.

    Each slot that may move is chosen with the same probability, three slots on the average; the
    chosen bits are proposed from their prior given the other rows, so the prior and the proposal
    cancel and the ratio of likelihoods decides.

    Args:
      draws: random numbers.
      bits: (K,) bool, the row as it is.
      prior_log_odds: (K,) float, of each bit being on given the other rows.
      free_to_move: (K,) bool, the slots that may move.
    """
    num_movable = jnp.sum(free_to_move, dtype=draws.choice.dtype)
    chosen = free_to_move & (draws.choice * num_movable < _BITS_A_PROPOSAL)
    on = logit(draws.bits) < prior_log_odds
    return jnp.where(chosen, on, bits)
