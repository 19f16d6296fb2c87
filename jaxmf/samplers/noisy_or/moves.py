r"""Moves of whole causes in a noisy-OR model: split and merge, birth and death.

A cause of history h and activity y is a point of a Poisson process with intensity Lambda(h) p(y),
Lambda(h) = alpha beta B(m, N - m + beta) for a history of m rows, whatever slot it lies in. In both
moves the activities that change are drawn from their conditional given everything else, so the
acceptance ratio has them summed out; columns are independent, which makes that cheap.

**Split and merge.** With probability 1/2 each, when there are n causes:

- *split*: a cause c is picked, 1/n; every row of c goes to a alone, to b alone, or to both, each
  with probability 1/3; if a or b is left without rows nothing happens. (y_a, y_b) is drawn column
  by column from its conditional given everything else.
- *merge*: an ordered pair (a, b) is picked, 1/(n (n - 1)), and becomes c = a OR b; y_c is drawn
  from its conditional given everything else.

A split to a given unordered pair can come about in two orders, with probability
2 (1/n) 3^(-m_c) / 2; the merge back picks it in two orders as well, 2 / ((n + 1) n) / 2. So

    A = [Lambda(a) Lambda(b) / Lambda(c)] * prod_d [M_d(a, b) / M_d(c)] * 3^(m_c) / (n + 1),
    M_d(a, b) = sum_(y_a, y_b) p(y_a) p(y_b) prod_i P(x_id | eta_id + z_ia y_a + z_ib y_b),
    M_d(c)    = sum_y p(y) prod_i P(x_id | eta_id + z_ic y),

eta without these causes; a split is accepted with probability min(1, A), a merge with min(1, 1/A)
where n + 1 is the number of causes before the merge.

**Birth and death** in a row picked at random, each with probability 1/2: a cause that the row alone
has is added, or one of its s singletons, the causes that no other row has, is removed. With R the
rate of new causes of a row and f_d(j) the probability of x_d when j more causes are summed out,

    A = R / (s + 1) * prod_d f_d(1) / f_d(0),

and the inverse, with s - 1 in place of s, for a death.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import row_shards, slots
from jaxmf._kernels.special import accepts
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import AnyParameters, NoisyOrCells
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.feature_rows import draw_index
from jaxmf.samplers.noisy_or.target import NoisyOrTarget
from jaxmf.types import Array, Key, PyTree


class CausePair(NamedTuple):
    """A cause and the two it may be made of."""

    whole: Array  # (N,) bool, history of c = a OR b
    # first, second: (N,) bool, histories of a and b
    first: Array
    second: Array


class Activity(NamedTuple):
    """Log weights of what is active in each column, given everything else."""

    whole: Array  # (2, D) float: c is not, or is
    parts: Array  # (4, D) float: neither, a, b, both


def repeat_moves(
    key: Key,
    z: Array,
    y: Array,
    target: NoisyOrTarget,
    *,
    num_moves: Array | int,
    kernels: Sequence[Callable[..., tuple[Array, Array, Array]]],
) -> tuple[Array, Array, Array]:
    """Some proposals of each of these kernels, by turns; p(Z, Y | observed cells) stays invariant.

    Args: z (N, K) bool; y (K, D) bool, False in free slots; kernels: as `split_or_merge`.
    Returns z, y, and () bool: whether more slots were needed.
    """

    def move(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, y, overflow = carry
        move_key = jax.random.fold_in(key, index)
        for stream, kernel in enumerate(kernels):
            z, y, more = kernel(jax.random.fold_in(move_key, stream), z, y, target)
            overflow = overflow | more
        return z, y, overflow

    return jax.lax.fori_loop(0, num_moves, move, (z, y, jnp.zeros((), bool)))


def split_or_merge(
    key: Key, z: Array, y: Array, target: NoisyOrTarget
) -> tuple[Array, Array, Array]:
    """One proposal of a split or a merge; arguments and results as `repeat_moves`."""
    x, observed, prior, parameters = target
    dtype = x.dtype
    choices = jax.random.uniform(jax.random.fold_in(key, 0), (4,), dtype)
    kinds = jax.random.uniform(jax.random.fold_in(key, 1), (z.shape[0],), dtype)
    kinds = jnp.floor(3 * row_shards.spread(kinds))
    used = jnp.any(z, axis=0)
    num_causes = jnp.sum(used, dtype=jnp.int32)
    is_split = choices[0] < 0.5
    first = pick(choices[1], used)
    second = pick(choices[2], used & (jnp.arange(z.shape[1]) != first))
    pair = _pair_of(z, first, second, kinds, is_split)
    possible = (num_causes >= jnp.where(is_split, 1, 2)) & pair.first.any() & pair.second.any()

    without = z & ~_columns_in(z.shape[1], first, second, is_split)
    weights = activity_log_weights(without, y, x, observed, pair, parameters)
    log_ratio = log_split_ratio(
        pair,
        weights,
        num_causes + is_split,
        prior=prior,
        parameters=parameters,
        num_rows=z.shape[0],
    )
    log_ratio = jnp.where(is_split, log_ratio, -log_ratio)
    accepted = possible & accepts(choices[3], log_ratio)
    claim = slots.claim(used, 1)
    uniforms = jax.random.uniform(jax.random.fold_in(key, 2), (x.shape[1],), dtype)
    empty = jnp.where(is_split, jnp.argmax(claim.claimed), second)
    new_z, new_y = _with_columns(z, y, pair, weights, uniforms, (first, empty), is_split)
    overflow = accepted & is_split & claim.overflow
    return jnp.where(accepted, new_z, z), jnp.where(accepted, new_y, y), overflow


def pick(uniform: Array, among: Array) -> Array:
    """A uniformly random slot among (K,) bool: () int; it does not depend on the capacity."""
    rank = jnp.cumsum(among)
    target = jnp.floor(uniform * rank[-1]).astype(rank.dtype)
    return jnp.argmax(among & (rank == jnp.minimum(target, rank[-1] - 1) + 1))


def _pair_of(z: Array, first: Array, second: Array, kinds: Array, is_split: Array) -> CausePair:
    """Both columns as they are, or the first one shared out by `kinds` (N,): a, b, both."""
    a, b = z[:, first], z[:, second]
    return CausePair(
        whole=jnp.where(is_split, a, a | b),
        first=jnp.where(is_split, a & (kinds != 1), a),
        second=jnp.where(is_split, a & (kinds != 0), b),
    )


def _columns_in(num_slots: int, first: Array, second: Array, is_split: Array) -> Array:
    slots_of = jnp.arange(num_slots)
    return (slots_of == first) | (~is_split & (slots_of == second))


def _with_columns(
    z: Array,
    y: Array,
    pair: CausePair,
    weights: Activity,
    uniforms: Array,
    slots_of_pair: tuple[Array, Array],
    is_split: Array,
) -> tuple[Array, Array]:
    """Z and Y with the pair in `slots_of_pair`, or the merged cause in the first of them."""
    drawn = jax.vmap(draw_index, in_axes=(0, 1))
    parts, whole = drawn(uniforms, weights.parts), drawn(uniforms, weights.whole)
    first, second = slots_of_pair
    columns = (jnp.where(is_split, pair.first, pair.whole), is_split & pair.second)
    rows = (jnp.where(is_split, parts % 2 == 1, whole == 1), is_split & (parts >= 2))
    z = z.at[:, second].set(columns[1]).at[:, first].set(columns[0])
    return z, y.at[second].set(rows[1]).at[first].set(rows[0])


def activity_log_weights(
    z: Array, y: Array, x: Array, observed: Array | None, pair: CausePair, parameters: AnyParameters
) -> Activity:
    """Log weights of the activity of the causes of a pair, in every column.

    Args: z (N, K) bool, without the causes of the pair; y (K, D) bool; x (N, D) float, zeros and
    ones; observed (N, D) bool, or None.
    """
    rows = (z, x, *pair) if observed is None else (z, x, *pair, observed)
    return Activity(*row_shards.with_rows(_weights_of_rows, rows, y, parameters))


def _weights_of_rows(
    z: Array, x: Array, whole: Array, first: Array, second: Array, *others: PyTree
) -> Activity:
    observed, y, parameters = (None, *others)[-3:]
    dtype = x.dtype
    num_rows, num_columns = x.shape
    more = jnp.stack([whole, first, second]).astype(dtype)
    one = jnp.stack([first, second, first ^ second]).astype(dtype)
    whole, both = more[0], (first & second).astype(dtype)
    table = noisy_or.gain_table(z.shape[1] + 2, parameters)

    def weigh_columns(at: Callable[[Array], Array]) -> Activity:
        cells = noisy_or.cells_of(at(x), None if observed is None else at(observed))
        ones = cells.ones.astype(dtype)
        eta = noisy_or.num_active(z, at(y), dtype).astype(jnp.int32)
        by_one = ones * noisy_or.look_up(table, eta)
        by_two = by_one + ones * noisy_or.look_up(table, eta + 1)
        sums = more @ cells.zeros.astype(dtype), one @ by_one, whole @ by_one, both @ by_two
        # gain: of a alone, of b alone, and of both where only one of them is
        num_zeros, gain, gain_of_whole, gain_of_both = row_shards.add_over_devices(sums)
        in_zeros = parameters.log_fail * num_zeros
        odds = parameters.log_odds
        zero = jnp.zeros_like(gain[0])
        return Activity(
            whole=jnp.stack([zero, odds + gain_of_whole + in_zeros[0]]),
            parts=jnp.stack(
                [
                    zero,
                    odds + gain[0] + in_zeros[1],
                    odds + gain[1] + in_zeros[2],
                    2 * odds + gain[2] + gain_of_both + in_zeros[1] + in_zeros[2],
                ]
            ),
        )

    start = Activity(jnp.zeros((2, num_columns), dtype), jnp.zeros((4, num_columns), dtype))
    return noisy_or.map_columns(weigh_columns, num_rows, num_columns, start_value=start)


def log_split_ratio(
    pair: CausePair,
    weights: Activity,
    num_after: Array,
    *,
    prior: IndianBuffet | BetaBernoulli,
    parameters: AnyParameters,
    num_rows: int,
) -> Array:
    """log A of the split of a cause into a pair, () float, with `num_after` causes after it."""
    dtype = weights.whole.dtype
    counts = jnp.stack([jnp.sum(column, dtype=dtype) for column in pair])
    log_intensity = log_intensities(prior, counts, num_rows)
    # p(y) enters through the odds alone, so each cause left out (1 - p) in every column
    gain = jnp.sum(
        jax.nn.logsumexp(weights.parts, axis=0)
        - jax.nn.logsumexp(weights.whole, axis=0)
        + parameters.log_inactive
    )
    return (
        log_intensity[1]
        + log_intensity[2]
        - log_intensity[0]
        + gain
        + counts[0] * np.log(3)
        - jnp.log(num_after.astype(dtype))
    )


def log_intensities(prior: IndianBuffet | BetaBernoulli, counts: Array, num_rows: int) -> Array:
    """log Lambda of histories with this many ones (K,): (K,) float."""
    nothing = prior.log_prob_labelled(jnp.zeros((1,), counts.dtype), num_rows)
    each = jax.vmap(lambda count: prior.log_prob_labelled(count[None], num_rows))(counts)
    return each - nothing


def birth_or_death(
    key: Key, z: Array, y: Array, target: NoisyOrTarget
) -> tuple[Array, Array, Array]:
    """One proposal of a birth or death of a singleton; arguments as `repeat_moves`."""
    x, observed, prior, parameters = target
    dtype = x.dtype
    choices = jax.random.uniform(jax.random.fold_in(key, 0), (4,), dtype)
    row = jnp.minimum((choices[0] * z.shape[0]).astype(jnp.int32), z.shape[0] - 1)
    is_birth = choices[1] < 0.5
    counts = row_shards.column_counts(z, dtype)
    z_row = row_shards.rows_at(z, row)
    singletons = z_row & (counts == 1)
    dying = pick(choices[2], singletons)
    claim = slots.claim(counts > 0, 1)
    slot = jnp.where(is_birth, jnp.argmax(claim.claimed), dying)

    seen = None if observed is None else row_shards.rows_at(observed, row)
    cells = noisy_or.cells_of(row_shards.rows_at(x, row), seen)
    others = z_row & ~(~is_birth & (jnp.arange(z.shape[1]) == dying))
    eta = noisy_or.num_active(others, y, dtype)
    num_causes = jnp.sum(singletons) + is_birth
    log_ratio = log_birth_ratio(
        eta, cells, num_causes, rate=prior.new_rate(z.shape[0]), parameters=parameters
    )
    log_ratio = jnp.where(is_birth, log_ratio, -log_ratio)
    accepted = (is_birth | singletons.any()) & accepts(choices[3], log_ratio)
    uniforms = jax.random.uniform(jax.random.fold_in(key, 1), eta.shape, dtype)
    log_odds = noisy_or.unseen_log_odds(eta, cells, parameters, 0.0)
    active = is_birth & (uniforms < jax.nn.sigmoid(log_odds))
    here = (jnp.arange(z.shape[0]) == row)[:, None] & (jnp.arange(z.shape[1]) == slot)
    new_z, new_y = jnp.where(here, is_birth, z), y.at[slot].set(active)
    overflow = accepted & is_birth & claim.overflow
    return jnp.where(accepted, new_z, z), jnp.where(accepted, new_y, y), overflow


def log_birth_ratio(
    eta: Array, cells: NoisyOrCells, num_causes: Array, *, rate: Array, parameters: AnyParameters
) -> Array:
    """log A of the birth of a singleton of a row, () float.

    Args: eta (D,) float, active causes of the row without this one; cells (D,) bool, of the row;
    num_causes () int, singletons of the row with this one; rate () float, of new causes of a row.
    """
    gain_of_ones = noisy_or.log_one(eta, parameters, 1.0) - noisy_or.log_one(eta, parameters)
    gain = jnp.where(cells.ones, gain_of_ones, 0)
    gain = gain + jnp.where(cells.zeros, parameters.log_fail_unseen, 0)
    return jnp.log(rate) - jnp.log(num_causes.astype(eta.dtype)) + jnp.sum(gain)
