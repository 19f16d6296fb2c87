"""Births and deaths of a feature that one row alone has, with several candidates, any likelihood.

The features that a row alone has are points of a Poisson process with the rate r of the prior of Z
and rows of Y from their prior. A birth draws M candidates from that prior and takes one by the
likelihood; a death takes one of the n + 1 such features, each equally likely. The birth from n
features S to n + 1 of them is accepted with probability min(1, A),

    A = r / (n + 1) * mean_i L(S + y_i) / L(S),

the mean over the candidates, and the death back with min(1, 1 / A), where the feature that leaves
is one of the candidates and M - 1 others are drawn: the candidates are auxiliary variables of a
multiple-try proposal, and the density of choosing y_j by its likelihood cancels L(S + y_j) of the
target. With M = 1 this is the ordinary birth-death move. What more candidates gain: a draw from the
prior seldom fits a row, the best of many does more often.

Source: Liu, Liang & Wong (2000), The multiple-try method and local optimization in Metropolis
sampling; Geyer & Moller (1994) for birth and death of points.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf._kernels.special import accepts
from jaxmf.samplers.explicit_rows import ExplicitFeatures, RowState
from jaxmf.samplers.feature_layout import RowPrior
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.types import Array, Key

NUM_CANDIDATES = 16


def birth_or_death(
    key: Key,
    model: ExplicitFeatures,
    state: RowState,
    x: Array,
    observed: Array | None,
    conditional: RowPrior,
) -> tuple[RowState, Array]:
    """Kernel of one row, for `explicit_rows.sweep_rows`: a feature of the row alone more or less.

    A finite prior knows no features of one row alone, and nothing changes.
    """
    z, y = state
    candidate_key, uniform_key = jax.random.split(key)
    uniforms = jax.random.uniform(uniform_key, (4,), jnp.result_type(float))
    alone = z & conditional.free
    num_alone = jnp.sum(alone, dtype=jnp.int32)
    is_birth = uniforms[0] < 0.5

    # the slot that is filled or emptied
    unused = conditional.free & ~z
    rank = jnp.minimum((uniforms[1] * num_alone).astype(jnp.int32), num_alone - 1)
    leaving = jnp.argmax(alone & (jnp.cumsum(alone) == rank + 1))
    slot = jnp.where(is_birth, jnp.argmax(unused), leaving)
    without = z.at[slot].set(False)
    with_slot = z.at[slot].set(True)

    drawn = model.draw_features(candidate_key, NUM_CANDIDATES)
    first = jnp.where(is_birth, drawn[0], y[slot])
    candidates = drawn.at[0].set(first)

    def log_likelihood(candidate: Array) -> Array:
        return model.row_log_likelihood(x, observed, with_slot, y.at[slot].set(candidate))

    log_with = jax.vmap(log_likelihood)(candidates)
    log_without = model.row_log_likelihood(x, observed, without, y)
    num_others = num_alone - jnp.where(is_birth, 0, 1)
    log_mean = logsumexp(log_with) - jnp.log(NUM_CANDIDATES)
    log_ratio = jnp.log(conditional.rate) - jnp.log(num_others + 1.0) + log_mean - log_without

    is_possible = jnp.where(is_birth, jnp.any(unused), num_alone > 0)
    accepted = is_possible & accepts(uniforms[2], jnp.where(is_birth, log_ratio, -log_ratio))
    chosen = candidates[draw_index(uniforms[3], log_with)]
    y_new = jnp.where(accepted & is_birth, y.at[slot].set(chosen), y)
    z_new = jnp.where(accepted, jnp.where(is_birth, with_slot, without), z)
    # asked for before anything is accepted, so that the choice does not depend on the capacity
    overflow = is_birth & (conditional.rate > 0) & ~jnp.any(unused)
    return RowState(z_new, y_new), overflow
