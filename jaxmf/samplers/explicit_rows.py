"""Sweeps over rows of binary features whose rows of Y are part of the state, for any likelihood.

Nothing is summed out: a sweep asks the value of the likelihood of one row, and nothing else, so
that models with a likelihood of any form share it. `ExplicitFeatures` is what it asks. Each update
leaves p(Z, Y | observed cells) invariant:

- the bits of a row that other rows share, one after another in a fresh random order (Gibbs);
- all of these bits together, by particle Gibbs (`particle_rows.py`);
- the features that the row alone has, all at once: a new Poisson number of them with rows of Y from
  their prior is proposed and accepted with the ratio of likelihoods (Meeds et al. 2007, section
  3.1: that proposal is their prior, so nothing else enters);
- one feature of the row alone, added or removed, with the best of several candidates
  (`birth_or_death`);
- the row of Y of every feature, one after another: a draw from its prior is proposed and accepted
  with the ratio of likelihoods. Finer moves of Y are in `feature_values.py`.

The order in which slots are visited depends on nothing but the key.

Births and deaths: the features that a row alone has are points of a Poisson process with the rate r
of the prior of Z and rows of Y from their prior. A birth draws M candidates from that prior and
takes one by the likelihood; a death takes one of the n + 1 such features, each equally likely. The
birth from n features S to n + 1 of them is accepted with probability min(1, A),

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

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf import slots
from jaxmf._kernels.special import accepts, poisson
from jaxmf.data import Dense
from jaxmf.priors.features import RowByRowPrior
from jaxmf.samplers import feature_layout, particle_rows
from jaxmf.samplers.feature_layout import RowPrior, row_uniforms
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.types import Array, Key

_NUM_CANDIDATES = 16  # of a birth


class ExplicitFeatures(Protocol):
    """Methods of a model that the sweeps call; `FeatureModel` has them at fixed hyperparameters.

    The likelihood may lack terms that depend on neither z nor y.
    """

    @property
    def prior(self) -> RowByRowPrior:
        """The prior of Z."""

    def first_slot(self) -> int:
        """The slot of the first feature; what stands before it every row has."""

    def exists(self, counts: Array, /) -> Array:
        """Which slots are features, (K,) bool, given how many rows have each."""

    def row_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array, /) -> Array:
        """() float, log p of the observed cells of a row x (D,) given z (K,) and y (K, ...)."""

    def draw_features(self, key: Key, num_slots: int, /) -> Array:
        """Rows of Y from their prior, (K, ...); more slots leave the first ones as they are."""


class RowState(NamedTuple):
    """One row of Z and all of Y: z (K,) bool, y (K, ...)."""

    z: Array
    y: Array


UpdateModelRow = Callable[
    [Key, ExplicitFeatures, RowState, Array, Array | None, RowPrior], tuple[RowState, Array]
]
"""(key, model, state, x, observed, prior of the row given the others) -> state, overflow."""


def sweep_rows(
    key: Key,
    model: ExplicitFeatures,
    z: Array,
    y: Array,
    data: Dense,
    *,
    update_row: UpdateModelRow | Sequence[UpdateModelRow],
    num_rows: Array | int | None = None,
) -> tuple[Array, Array, Array]:
    """`feature_layout.sweep_rows` with kernels that ask the model for the likelihood of the row.

    Args: update_row: a kernel of one row, or several, all for one row before the next; the others
    as there.
    Returns z, y, and () bool: whether more slots were needed.
    """

    def update(
        row_key: Key, row: Array, z_row: Array, y: Array, conditional: RowPrior, /
    ) -> tuple[Array, Array, Array]:
        state, overflow = RowState(z_row, y), jnp.zeros((), bool)
        for index, kernel in enumerate(kernels):
            kernel_key = jax.random.fold_in(row_key, index)
            state, needed = kernel(kernel_key, model, state, *data.row(row), conditional)
            overflow = overflow | needed
        return *state, overflow

    kernels = [update_row] if callable(update_row) else update_row

    return feature_layout.sweep_rows(
        key,
        z,
        y,
        update_row=update,
        prior=model.prior,
        num_rows=num_rows,
        num_fixed=model.first_slot(),
    )


def update_bits_and_new(
    key: Key,
    model: ExplicitFeatures,
    state: RowState,
    x: Array,
    observed: Array | None,
    conditional: RowPrior,
) -> tuple[RowState, Array]:
    """The row's shared bits by Gibbs, then all features that the row alone has by Metropolis."""
    z, y = state
    num_slots, dtype = z.shape[0], jnp.result_type(float)
    uniform_key, count_key, draw_key = jax.random.split(key, 3)
    (last,), (order, uniforms) = row_uniforms(uniform_key, 1, num_slots, 2, dtype)

    def log_likelihood(z: Array, y: Array) -> Array:
        return model.row_log_likelihood(x, observed, z, y)

    def flip(k: Array, here: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        z, before = state
        flipped = z ^ here
        after = log_likelihood(flipped, y)
        sign = jnp.where(z[k], -1, 1)
        accepted = uniforms[k] < jax.nn.sigmoid(sign * conditional.log_odds[k] + after - before)
        return jnp.where(accepted, flipped, z), jnp.where(accepted, after, before)

    start = (z, log_likelihood(z, y))
    z, before = slots.visit(flip, start, order=order, allowed=conditional.movable)

    claim = slots.claim(~conditional.free, poisson(count_key, conditional.rate))
    z_new = (z & ~conditional.free) | claim.claimed
    drawn = model.draw_features(draw_key, num_slots)
    y_new = where_slots(claim.claimed, drawn, y)
    log_ratio = log_likelihood(z_new, y_new) - before
    accepted = accepts(last, log_ratio)
    state = RowState(jnp.where(accepted, z_new, z), jnp.where(accepted, y_new, y))
    return state, claim.overflow


def update_bits_together(
    key: Key,
    model: ExplicitFeatures,
    state: RowState,
    x: Array,
    observed: Array | None,
    conditional: RowPrior,
) -> tuple[RowState, Array]:
    """The row's shared bits by particle Gibbs; features that it alone has stay."""
    z, y = state
    row = particle_rows.draw_row(
        particle_rows.draw_uniforms(key, z.shape[0]),
        z,
        particle_rows.target_of_bits(lambda z: model.row_log_likelihood(x, observed, z, y)),
        prior_log_odds=conditional.log_odds,
        movable=conditional.movable,
    )
    return RowState(row.z, y), jnp.zeros((), bool)


def replace_features(
    key: Key, model: ExplicitFeatures, z: Array, y: Array, data: Dense, num_rows: Array | int
) -> Array:
    """The row of Y of every feature: a draw from the prior, accepted by the likelihood.

    Args: z (N, K) bool; y (K, ...); num_rows: rows from this one on have no factor in the
    likelihood.
    """
    num_slots, dtype = z.shape[1], jnp.result_type(float)
    uniform_key, draw_key = jax.random.split(key)
    _, (order, uniforms) = row_uniforms(uniform_key, 0, num_slots, 2, dtype)
    drawn = model.draw_features(draw_key, num_slots)
    present = jnp.arange(z.shape[0]) < num_rows
    over_rows = jax.vmap(model.row_log_likelihood, in_axes=(0, 0, 0, None))

    def log_likelihood(y: Array) -> Array:
        by_row = over_rows(data.values, data.observed, z, y)
        return jnp.sum(jnp.where(present, by_row, 0))

    def replace(k: Array, _: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        y, before = state
        proposed = y.at[k].set(drawn[k])
        after = log_likelihood(proposed)
        accepted = accepts(uniforms[k], after - before)
        return jnp.where(accepted, proposed, y), jnp.where(accepted, after, before)

    exists = model.exists(jnp.sum(z, axis=0, dtype=dtype))
    return slots.visit(replace, (y, log_likelihood(y)), order=order, allowed=exists)[0]


def where_slots(chosen: Array, these: Array, those: Array) -> Array:
    """Rows (K, ...) from one array where `chosen` (K,), else from the other."""
    return jnp.where(chosen.reshape(-1, *[1] * (these.ndim - 1)), these, those)


def birth_or_death(
    key: Key,
    model: ExplicitFeatures,
    state: RowState,
    x: Array,
    observed: Array | None,
    conditional: RowPrior,
) -> tuple[RowState, Array]:
    """Kernel of one row, for `sweep_rows`: a feature that the row alone has is added or removed.

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

    drawn = model.draw_features(candidate_key, _NUM_CANDIDATES)
    first = jnp.where(is_birth, drawn[0], y[slot])
    candidates = drawn.at[0].set(first)

    def log_likelihood(candidate: Array) -> Array:
        return model.row_log_likelihood(x, observed, with_slot, y.at[slot].set(candidate))

    log_with = jax.vmap(log_likelihood)(candidates)
    log_without = model.row_log_likelihood(x, observed, without, y)
    num_others = num_alone - jnp.where(is_birth, 0, 1)
    log_mean = logsumexp(log_with) - jnp.log(_NUM_CANDIDATES)
    log_ratio = jnp.log(conditional.rate) - jnp.log(num_others + 1.0) + log_mean - log_without

    is_possible = jnp.where(is_birth, jnp.any(unused), num_alone > 0)
    accepted = is_possible & accepts(uniforms[2], jnp.where(is_birth, log_ratio, -log_ratio))
    chosen = candidates[draw_index(uniforms[3], log_with)]
    y_new = jnp.where(accepted & is_birth, y.at[slot].set(chosen), y)
    z_new = jnp.where(accepted, jnp.where(is_birth, with_slot, without), z)
    # asked for before anything is accepted, so that the choice does not depend on the capacity
    overflow = is_birth & (conditional.rate > 0) & ~jnp.any(unused)
    return RowState(z_new, y_new), overflow
