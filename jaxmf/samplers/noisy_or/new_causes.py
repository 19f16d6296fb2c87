"""The causes that a row is the first to have: their number, and their rows of Y.

Their number is drawn with their activity summed out (equation 11), their rows of Y then one after
another, jointly given the row. Sweeps and the particle filter share these functions.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrCells, Tally
from jaxmf.samplers import feature_rows
from jaxmf.types import Array, Key

# Numbers of new causes that are summed over, beyond the number of slots.
_MORE_CANDIDATES = 12


def most_new_causes(num_slots: int) -> int:
    """The most new causes of a row whose activity is ever summed out."""
    return num_slots + _MORE_CANDIDATES


def count_table(num_slots: int, parameters: AnyParameters) -> Tally:
    """The table that `new_cause_log_weights` needs, with one candidate more than it returns."""
    return noisy_or.count_table(num_slots, num_slots + _MORE_CANDIDATES + 1, parameters)


def new_cause_log_weights(counts: Tally, rate: Array, table: Tally) -> tuple[Array, Array]:
    """Unnormalised log probabilities of j = 0, 1, ... new causes of a row.

    The weight of j is rate^j / j! times equation 11 over the observed columns.

    Args:
      counts: of the row, with the causes that it shares, H = K + 1.
      rate: () float, Poisson rate of new causes; 0 gives weight to j = 0 alone.
      table: of `count_table`.
    Returns:
      (J,) log weights, and () bool: whether what lies beyond the last is more than rounding.
    """
    num_candidates = table.ones.shape[0] - 1
    log_poisson, log_tail = feature_rows.log_poisson_terms(rate, num_candidates)
    log_weights = log_poisson + noisy_or.log_likelihood_of_counts(counts, table)[:-1]
    # beyond the last candidate a one has probability one at most, a zero that of the next
    log_beyond = log_tail + table.zeros[-1] @ counts.zeros
    return log_weights, feature_rows.cut_off(
        log_beyond, logsumexp(log_weights), rate, num_candidates
    )


def draw_new_causes(
    key: Key,
    y: Array,
    claimed: Array,
    num_new: Array,
    eta: Array,
    cells: NoisyOrCells,
    parameters: AnyParameters,
) -> Array:
    """Y with the rows of a row's new causes, drawn jointly given the row.

    One after another, each given those before it, with those still to come summed out.

    Args: key: of the row and this purpose, new cause t uses fold_in(key, t); y (K, D) float, zero
    in the slots claimed (K,) bool; num_new () int; eta (D,) float, active causes of the row without
    the new ones; cells (D,) bool, of the row.
    """
    rank = jnp.cumsum(claimed) - 1

    def draw(new: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        y, eta = carry
        to_come = (num_new - new - 1).astype(y.dtype)
        log_odds = noisy_or.unseen_log_odds(eta, cells, parameters, to_come)
        uniforms = jax.random.uniform(jax.random.fold_in(key, new), eta.shape, y.dtype)
        active = (uniforms < jax.nn.sigmoid(log_odds)).astype(y.dtype)
        here = claimed & (rank == new)
        return jnp.where(here[:, None], active, y), eta + active

    return jax.lax.fori_loop(0, num_new, draw, (y, eta))[0]
