"""Several bits of a row at once under X = U W V' + noise with W summed out.

- `propose_bits`: some of them, by Metropolis-Hastings from their prior.
- `whole_row_log_weights`: all 2^K settings of a row, where there are few slots.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf._kernels.special import accepts
from jaxmf.likelihoods.bilinear_rows import Turned
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear.draws import ProposalDraws, proposed_bits
from jaxmf.samplers.bilinear.rows import (
    BilinearRowFit,
    log_likelihood,
    moved,
    new_feature_log_weights,
)
from jaxmf.samplers.feature_layout import RowPrior
from jaxmf.types import Array


def propose_bits(
    draws: ProposalDraws,
    fit: BilinearRowFit,
    conditional: RowPrior,
    *,
    extra: Array,
    noise_variance: Array,
) -> BilinearRowFit:
    """Several bits of the row at once, by Metropolis-Hastings (Meeds et al., section 3.3).

    `proposed_bits` says what is proposed.

    Args: fit, conditional, extra, noise_variance: as in `scan_bits`.
    """
    proposal = moved(fit, proposed_bits(draws, fit.z, conditional))
    log_ratio = log_likelihood(proposal, extra, noise_variance) - log_likelihood(
        fit, extra, noise_variance
    )
    accepted = accepts(draws.accept, log_ratio)
    return fit._replace(
        **{
            name: jnp.where(accepted, getattr(proposal, name), getattr(fit, name))
            for name in ("z", "gap", "squares", "m_z", "inflation")
        }
    )


def whole_row_log_weights(
    fit: BilinearRowFit, turned: Turned, conditional: RowPrior, *, noise_variance: Array
) -> tuple[Array, Array, Array]:
    """Log weights of all settings of a row: its bits and the number of its new features.

    Args:
      fit: of the row without singletons, slots that are not movable as they shall stay: settings
        that differ there have weight 0.
      turned, noise_variance: as in `new_feature_log_weights`.
    Returns:
      patterns (2^K, K) bool; log weights (2^K, K + 1), with the factor prod_k P(bit_k = 0) left
      out; () float, the log of a bound on what lies beyond.
    """
    patterns = feature_rows.all_patterns(fit.z.shape[0])
    _, log_prior = feature_rows.log_prior_of_patterns(patterns, fit.z, conditional)
    log_weights, beyond = jax.vmap(
        lambda pattern: new_feature_log_weights(
            moved(fit, pattern), turned, rate=conditional.rate, noise_variance=noise_variance
        )
    )(patterns)
    return patterns, log_weights + log_prior[:, None], logsumexp(beyond + log_prior)
