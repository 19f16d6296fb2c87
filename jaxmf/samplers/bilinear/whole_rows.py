"""Several bits of a row at once under X = U W V' + noise with W summed out.

- `propose_bits`: some of them, by Metropolis-Hastings from their prior.
- `whole_row_log_weights`: all 2^K settings of a row, where there are few slots.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit, logsumexp

from jaxmf.likelihoods.bilinear_rows import Turned
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear.rows import (
    RowFit,
    log_likelihood,
    moved,
    new_feature_log_weights,
)
from jaxmf.types import Array

_BITS_A_PROPOSAL = 3


class ProposalDraws(NamedTuple):
    """The random numbers of a proposal, uniforms over slots (K,) or alone ()."""

    choice: Array
    bits: Array
    accept: Array


def propose_bits(
    draws: ProposalDraws,
    fit: RowFit,
    *,
    extra: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    free_to_move: Array,
) -> RowFit:
    """Several bits of the row at once, by Metropolis-Hastings (Meeds et al., section 3.3).

    Each slot that may move is chosen with the same probability, three slots on the average; the
    chosen bits are proposed from their prior given the other rows, so the prior and the proposal
    cancel and the ratio of likelihoods decides.

    Args:
      draws: random numbers.
      fit, extra, noise_variance, prior_log_odds, free_to_move: as in `scan_bits`.
    """
    num_movable = jnp.sum(free_to_move, dtype=fit.gap.dtype)
    chosen = free_to_move & (draws.choice * num_movable < _BITS_A_PROPOSAL)
    on = logit(draws.bits) < prior_log_odds
    proposal = moved(fit, jnp.where(chosen, on, fit.z))
    log_ratio = log_likelihood(proposal, extra, noise_variance) - log_likelihood(
        fit, extra, noise_variance
    )
    accepted = jnp.log(draws.accept) < log_ratio
    return fit._replace(
        **{
            name: jnp.where(accepted, getattr(proposal, name), getattr(fit, name))
            for name in ("z", "gap", "squares", "reach", "inflation")
        }
    )


def whole_row_log_weights(
    fit: RowFit,
    turned: Turned,
    *,
    rate: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    free_to_move: Array,
) -> tuple[Array, Array, Array]:
    """Log weights of all settings of a row: its bits and the number of its new features.

    Args:
      fit: of the row without own features; slots not `free_to_move` as they shall stay.
      turned, rate, noise_variance: as in `new_feature_log_weights`.
      prior_log_odds: (K,) float.
      free_to_move: (K,) bool; settings that differ elsewhere have weight 0.

    Returns:
      patterns (2^K, K) bool; log weights (2^K, K + 1), with the factor prod_k P(bit_k = 0) left
      out; () float, the log of a bound on what lies beyond.
    """
    patterns = feature_rows.all_patterns(fit.z.shape[0])
    allowed = jnp.all((patterns == fit.z) | free_to_move, axis=1)
    log_prior = jnp.sum(jnp.where(patterns & free_to_move, prior_log_odds, 0), axis=1)

    log_prior = jnp.where(allowed, log_prior, -jnp.inf)
    log_weights, beyond = jax.vmap(
        lambda pattern: new_feature_log_weights(
            moved(fit, pattern), turned, rate=rate, noise_variance=noise_variance
        )
    )(patterns)
    return patterns, log_weights + log_prior[:, None], logsumexp(beyond + log_prior)
