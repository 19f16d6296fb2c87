"""Words that are held out of documents whose words sit at tables.

Each is an unobserved item of its document: it sits at a table, which the chain draws, and its word
has the predictive distribution of that table's dish (section 7.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxmf.blocks.counts import all_values, slot_sizes, statistics_of, statistics_of_block
from jaxmf.blocks.state import State
from jaxmf.data import Tokens
from jaxmf.types import Array

if TYPE_CHECKING:
    from jaxmf.blocks.network import Network


def word_probabilities(
    network: Network, state: State, data: Tokens, documents: Array, words: Array
) -> Array:
    """Probabilities of held-out words given the tables of all others: (M,) float.

    One of the unobserved words of the document, any of them, leaves its table; the next table and
    the word there are summed out. At a table without words that are known the dish is that of one
    table more.

    Args:
        network: of a table by document, a dish of tables, and the dish's words.
        state: of a chain.
        data: the tokens it was trained on.
        documents: (M,) int32, of documents with unobserved words.
        words: (M,) int32.
    """
    (table, dish), (word,) = network.tables.popitem(), network.observed
    values, slots = all_values(state, data), slot_sizes(state, network)
    sizes = network.sizes(data, slots)
    parts = {name: network.parts(name, sizes) for name in (table, dish, word)}
    counts = statistics_of_block(network, table, parts[table], state, data)
    distribution = network.blocks[table].distribution
    cache = distribution.begin(counts, state.hyperparameters[table], with_sizes=False)
    batches = values[network.blocks[table].by[0]]
    eaten = jnp.zeros(counts.shape, jnp.int32).at[batches, values[table]].set(values[dish])
    dish_prior = network.blocks[dish].distribution.prior_of_new_tables()
    dish_counts = statistics_of_block(network, dish, parts[dish], state, data)
    dishes = dish_prior.begin(dish_counts, state.hyperparameters[dish], with_sizes=False)
    new_dish_weights, _ = dish_prior.weights(dishes, jnp.zeros((), jnp.int32))
    new_dish_weights = new_dish_weights / jnp.sum(new_dish_weights)
    # probabilities (G, K) of dishes for the words of a document, when one has left any table
    width = counts.shape[1]

    def shares_of_document(batch: Array) -> Array:
        held = cache.unobserved[batch]

        def after(table_of_word: Array) -> Array:
            left = distribution.move_unobserved(alone, nothing, table_of_word, -1)
            weights, _ = distribution.weights(left, nothing)
            return weights / jnp.sum(weights)

        nothing = jnp.zeros((), jnp.int32)
        fields = ("counts", "joining", "unobserved")
        alone = cache._replace(**{name: getattr(cache, name)[batch][None] for name in fields})
        share = held / jnp.maximum(jnp.sum(held), 1)
        at_tables = share @ jax.vmap(after)(jnp.arange(width))
        known = counts[batch] > 0
        shares = (
            jnp.zeros(new_dish_weights.shape).at[eaten[batch]].add(jnp.where(known, at_tables, 0))
        )
        return shares + jnp.sum(jnp.where(known, 0, at_tables)) * new_dish_weights

    shares = jax.lax.map(shares_of_document, jnp.arange(counts.shape[0]))
    family = network.blocks[word].distribution
    statistics = statistics_of(word, family, parts[word], values, None)
    table_of_words = family.probabilities(statistics, state.hyperparameters[word])
    return jnp.sum(shares[documents] * table_of_words[:, words].T, axis=1)
