r"""A change of basis of two columns of Z: one of them replaced by the rows that have just one.

A feature that almost every row has, beside another one that every row has, says what a feature of
a few rows would say: z_k y_k + z_l y_l = (z_k xor z_l) (-y_k) + z_l (y_k + y_l), k within l. From
one to the other by single bits every row has to change, through states that fit badly. Two
binary columns a, b and c = a xor b are the non-zero vectors of a plane over the field of two
elements, and any two of them are a basis of it; here one of its three bases is drawn,

    {a, b},  {c, b},  {a, c},      with weight  Lambda(h) Lambda(h') p(data | Z),

Lambda(h) being the intensity of features with history h (see `split_merge.py`; in the finite model
the probability of a labelled column). The loadings are summed out.

**Exact.** Lists of K features in a random order have density proportional to prod_k Lambda(h_k)
/ K! (`split_merge.py`). A move picks two positions of the K with equal chances, and replaces the
pair there by one of three with the weights above. All three are pairs of the same plane, so each
leads to each other with the same sum of weights, up to the order of a pair, on which no weight
depends: the flow from one to another is the product of their weights over that sum, the same both
ways. No feature comes or goes: c is empty only where a = b, and then the pair stays. A fixed
column, such as that of a bias feature, may be one of the two, and stays.

Which columns are picked depends on how many features there are and on nothing else of the state:
the picked ranks are counted among columns that are not empty.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.samplers.restricted_scans import LabelledPrior, PairLikelihood
from jaxmf.types import Array, Key


class Bases(NamedTuple):
    """The bases of the plane of two columns."""

    # (3, N, 2) bool, the pair as it is, then with the first replaced, then the second
    columns: Array
    log_weights: Array  # (3,) float; -inf for a basis that is not allowed


def change_of_basis(
    key: Key,
    z: Array,
    *,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
    num_draws: int,
    num_fixed: int = 0,
) -> Array:
    """The bases of some pairs of columns drawn; leaves p(Z | data) invariant.

    Args: z (N, K) bool; num_draws: how many pairs, one after another; num_fixed: how many of the
    first slots hold fixed features, which never change.
    Returns z.
    """

    def once(index: Array, z: Array) -> Array:
        uniforms = jax.random.uniform(jax.random.fold_in(key, index), (3,))
        slots, there_is_one = pick_columns(uniforms[:2], z)
        drawn = bases(z, slots, prior=prior, likelihood=likelihood, num_fixed=num_fixed)
        weights = jnp.exp(drawn.log_weights - jnp.max(drawn.log_weights))
        threshold = uniforms[2] * jnp.sum(weights)
        # comparisons with NaN are false: then the pair stays, which is the first of the bases
        chosen = jnp.where(
            threshold < weights[1], 1, jnp.where(threshold < weights[1] + weights[2], 2, 0)
        )
        pair = drawn.columns[jnp.where(there_is_one, chosen, 0)]
        index_of_slot = jnp.arange(z.shape[1])
        new = jnp.where(index_of_slot == slots[0], pair[:, :1], z)
        new = jnp.where(index_of_slot == slots[1], pair[:, 1:], new)
        return jnp.where(there_is_one, new, z)

    return jax.lax.fori_loop(0, num_draws, once, z)


def pick_columns(uniforms: Array, z: Array) -> tuple[Array, Array]:
    """The slots (2,) int32 of two different columns that are not empty, and whether there are two.

    Args: uniforms (2,) float, which decide; z (N, K) bool.
    """
    occupied = jnp.any(z, axis=0)
    rank_of_slot = jnp.cumsum(occupied, dtype=jnp.int32) - 1
    num_in_use = rank_of_slot[-1] + 1
    first = jnp.minimum((uniforms[0] * num_in_use).astype(jnp.int32), num_in_use - 1)
    second = jnp.minimum((uniforms[1] * (num_in_use - 1)).astype(jnp.int32), num_in_use - 2)
    ranks = jnp.stack([first, second + (second >= first)])
    slots = jnp.argmax(occupied & (rank_of_slot == ranks[:, None]), axis=1)
    return slots.astype(jnp.int32), num_in_use >= 2


def bases(
    z: Array, slots: Array, *, prior: LabelledPrior, likelihood: PairLikelihood, num_fixed: int = 0
) -> Bases:
    """The three bases of the plane of two columns of Z, with their weights.

    Args: z (N, K) bool; slots (2,) int32, two different columns that are not empty; prior,
    likelihood, num_fixed: as for `change_of_basis`.
    """
    every_slot = jnp.arange(z.shape[1])
    fixed = likelihood.start(z & (every_slot != slots[0]) & (every_slot != slots[1]))
    first, second = jnp.take(z, slots[0], axis=1), jnp.take(z, slots[1], axis=1)
    either = first ^ second
    pairs = ((first, second), (either, second), (first, either))
    columns = jnp.stack([jnp.stack(pair, axis=1) for pair in pairs])
    num_rows = jnp.asarray(z.shape[0], jnp.result_type(float))

    def log_weight(pair: Array) -> Array:
        # a fixed column has no probability of its own
        counts = jnp.where(slots >= num_fixed, jnp.sum(pair, axis=0), 0)
        log_prior = prior.log_prob_labelled(counts.astype(num_rows.dtype), num_rows)
        pair = pair.astype(num_rows.dtype)
        return log_prior + likelihood.log_likelihood(fixed, likelihood.at(fixed, pair))

    changed = jnp.array([[False, False], [True, False], [False, True]])
    refused = jnp.any(changed & (slots < num_fixed), axis=1)
    refused = refused | (changed.any(axis=1) & ~jnp.any(either))
    return Bases(columns, jnp.where(refused, -jnp.inf, jax.vmap(log_weight)(columns)))
