"""The features of a row that was not in training, given a draw.

A setting is the row's bits of the draw's features together with its number of new features.
All settings are enumerated for up to 10 slots; beyond that 40 Gibbs sweeps over the bits are made
and the probabilities averaged over the second half.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf.samplers.feature_layout import RowPrior
from jaxmf.samplers.feature_rows import all_patterns, draw_index, log_poisson_terms
from jaxmf.types import Array, Key, PyTree

# the sum over the number of new features of one further row: what is beyond has a chance below 1e-9
# up to a rate of 14, and a row of N + 1 expects alpha concentration / (concentration + N)
MOST_NEW_FEATURES = 48
_MOST_ENUMERATED = 10
_NUM_SWEEPS = 40
_ROWS_AT_ONCE = 16


class NewRow(NamedTuple):
    """A drawn row that was not in training: bits (K,), number of new ones, probabilities (K,)."""

    z: Array
    num_new: Array
    probabilities: Array


def log_prior_of_settings(z: Array, conditional: RowPrior) -> Array:
    """Log prior (J,) of bits z (K,) bool together with 0 ... J - 1 new features."""
    log_poisson, _ = log_poisson_terms(conditional.rate, MOST_NEW_FEATURES)
    return jnp.sum(jnp.where(z & conditional.movable, conditional.log_odds, 0)) + log_poisson


def over_rows(function: Callable[[Key, PyTree], PyTree], key: Key, rows: PyTree) -> PyTree:
    """A function of every row, in blocks: leaves of `rows` and of the result are (M, ...).

    The last block is filled up with the last row, as a shorter one would be compiled beside it.

    Args: function: (key, row) -> its result; row number m is given fold_in(key, m).
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(num_rows))
    if num_rows <= _ROWS_AT_ONCE:
        return jax.vmap(function)(keys, rows)
    filled = jnp.minimum(jnp.arange(-(-num_rows // _ROWS_AT_ONCE) * _ROWS_AT_ONCE), num_rows - 1)
    keyed = jax.tree.map(lambda leaf: leaf[filled], (keys, rows))
    found = jax.lax.map(lambda row: function(*row), keyed, batch_size=_ROWS_AT_ONCE)
    return jax.tree.map(lambda leaf: leaf[:num_rows], found)


def draw_new_row(
    key: Key, log_weights_fn: Callable[[Array], Array], conditional: RowPrior, *, always_on: Array
) -> NewRow:
    """The features of a further row given a draw; new features are summed out of its bits.

    Args:
      log_weights_fn: z (K,) bool -> (J,) log weights of z together with 0 ... J - 1 features of
        new features, prior included.
      conditional: prior of the row, as one more customer.
      always_on: (K,) bool, bits that are fixed to one.
    """
    bits_key, count_key = jax.random.split(key)
    z, probabilities = draw_bits(
        bits_key, lambda z: logsumexp(log_weights_fn(z)), conditional.movable, always_on=always_on
    )
    uniform = jax.random.uniform(count_key, (), conditional.log_odds.dtype)
    return NewRow(z=z, num_new=draw_index(uniform, log_weights_fn(z)), probabilities=probabilities)


def draw_bits(
    key: Key, log_density_fn: Callable[[Array], Array], movable: Array, *, always_on: Array
) -> tuple[Array, Array]:
    """The bits of a further row given a draw, (K,) bool, and their probabilities, (K,) float.

    Args: log_density_fn: z (K,) bool -> () float, up to a constant; movable, always_on (K,) bool,
    bits that are not fixed, and those that are fixed to one.
    """
    num_slots = movable.shape[0]
    if num_slots > _MOST_ENUMERATED:
        return _gibbs_bits(key, always_on, movable, log_density_fn)
    patterns = all_patterns(num_slots)
    allowed = jnp.all((patterns == always_on) | movable, axis=1)
    weights = jnp.where(allowed, jax.lax.map(log_density_fn, patterns), -jnp.inf)
    share = jax.nn.softmax(weights)
    z = patterns[draw_index(jax.random.uniform(key, (), weights.dtype), weights)]
    # a sum that rounding has carried beyond one
    return z, jnp.minimum(share @ patterns.astype(share.dtype), 1)


def _gibbs_bits(
    key: Key, start: Array, movable: Array, log_density_fn: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Bits after `_NUM_SWEEPS` random-order sweeps; probabilities averaged over the last half."""
    num_slots = start.shape[0]
    dtype = jnp.result_type(float)

    def sweep(step: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        z, total = carry
        sweep_key = jax.random.fold_in(key, step)
        order = jnp.argsort(jax.random.uniform(jax.random.fold_in(sweep_key, 0), (num_slots,)))
        uniforms = jax.random.uniform(jax.random.fold_in(sweep_key, 1), (num_slots,), dtype)

        def visit(position: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            z, probabilities = carry
            k = order[position]
            log_odds = log_density_fn(z.at[k].set(True)) - log_density_fn(z.at[k].set(False))
            probability = jnp.where(movable[k], jax.nn.sigmoid(log_odds), z[k].astype(dtype))
            return z.at[k].set(uniforms[k] < probability), probabilities.at[k].set(probability)

        z, probabilities = jax.lax.fori_loop(0, num_slots, visit, (z, jnp.zeros(num_slots, dtype)))
        return z, total + jnp.where(step >= _NUM_SWEEPS // 2, probabilities, 0)

    z, total = jax.lax.fori_loop(0, _NUM_SWEEPS, sweep, (start, jnp.zeros(num_slots, dtype)))
    return z, total / (_NUM_SWEEPS - _NUM_SWEEPS // 2)
