"""Words that are held out of documents whose words sit at tables, and topics of new documents.

A word that is held out is an unobserved item of its document: it sits at a table, which the chain
draws, and its word has the predictive distribution of that table's dish (section 7.5).

Of a new document the tables are drawn, of its words and one more, whose topic is asked for. A
flexible prior is for a number of items: this one is that of one word more than are known.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf._kernels import tables
from jaxmf.blocks.counts import all_values, slot_sizes, statistics_of, statistics_of_block
from jaxmf.blocks.folding import level_keys
from jaxmf.blocks.prediction import Draw, category_probabilities, hyperparameters_of
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.types import Array, Key, PyTree

_DOCUMENTS_AT_ONCE = 32
_NUM_SWEEPS = 40  # over the words of a new document; the second half is averaged


def topics_of_new_documents(network: Wiring, key: Key, draw: Draw, new: Tokens) -> Array:
    """Probabilities of the topic of one more word of new documents: (M, K) float.

    What the training data taught is held at its posterior mean: the words of topics, and the topic
    of a further table. p(tables, their topics | words) ~ FP(tables) prod_t p(k_t) prod_i phi_k(w_i)
    is sampled, and the topics of tables are summed out. Documents are independent.

    Args:
        network: of a table by document, a topic of tables, and the words of topics.
        new: documents of fewer words than the prior of tables covers.
    """
    ((table, topic),), (word,) = network.tables.items(), network.observed
    (column,), prior = network.blocks[table].by, network.distributions[table]
    log_words = jnp.log(category_probabilities(network, draw, word)).T
    further, width = _topic_of_one_more(network, draw, topic), prior.num_items
    order, sizes = tables.sorted_by(new.columns[column], new.sizes[column])
    words = jnp.pad(new.columns[word][order], (0, width))

    def one_document(document: tuple[Key, Array, Array]) -> Array:
        document_key, start, size = document
        document_words = jax.lax.dynamic_slice_in_dim(words, start, width)
        # the word that is asked for comes last, and is as likely in all topics
        is_known = (jnp.arange(width) < size)[:, None]
        logs = jnp.where(is_known, log_words[document_words], 0)
        return _mean_topics(prior, document_key, logs, size, further)

    documents = (level_keys(key, new, column), jnp.cumsum(sizes) - sizes, sizes)
    return jax.lax.map(one_document, documents, batch_size=_DOCUMENTS_AT_ONCE)


def _topic_of_one_more(network: Wiring, draw: Draw, topic: str) -> Array:
    """Probabilities (K,) of the topic of one more table than the training data have."""
    prior, counts = network.distributions[topic], draw[f"{topic}_counts"]
    hyperparameters = hyperparameters_of(network, draw, topic)
    cache = prior.begin(counts.reshape(1, -1), hyperparameters, with_sizes=False)
    weights, _ = prior.weights(cache, jnp.zeros((), jnp.int32))
    return weights / jnp.sum(weights)


def _mean_topics(prior: FlexiblePrior, key: Key, logs: Array, size: Array, further: Array) -> Array:
    """The mean over sweeps of the topic of one more word: (K,) float.

    Args:
        logs: (L, K) float, log p(word | topic); 0 at the index `size` and beyond.
        size: () int32, how many words are known.
        further: (K,) float, the probabilities of a new table's topic.
    """
    width, likely, batch = logs.shape[0], jnp.exp(logs), jnp.zeros((), jnp.int32)

    def choose_table(index: Array, carry: PyTree, uniforms: Array, is_first: Array) -> PyTree:
        cache, chosen, topics = carry
        cache = prior.move(cache, batch, chosen[index], jnp.where(is_first, 0, -1))
        weights, _ = prior.weights(cache, batch)
        is_taken = cache.counts[0] > 0
        new_table = likely[index] * further
        there = jnp.where(is_taken, likely[index][topics], jnp.sum(new_table))
        table = tables.choose(weights * there, uniforms[index, 0])
        topic = tables.choose(new_table, uniforms[index, 1])
        topics = topics.at[table].set(jnp.where(is_taken[table], topics[table], topic))
        return prior.move(cache, batch, table, 1), chosen.at[index].set(table), topics

    def sweep(turn: Array, carry: PyTree) -> PyTree:
        cache, chosen, topics, total = carry
        word_key, topic_key = jax.random.split(jax.random.fold_in(key, turn))
        uniforms = jax.random.uniform(word_key, (width, 2), logs.dtype)
        cache, chosen, topics = jax.lax.fori_loop(
            0,
            size + 1,
            lambda index, carry: choose_table(index, carry, uniforms, turn == 0),
            (cache, chosen, topics),
        )
        together = jnp.zeros_like(logs).at[chosen].add(logs) + jnp.log(further)
        without, _ = prior.weights(prior.move(cache, batch, chosen[size], -1), batch)
        current = without / jnp.sum(without) @ jax.nn.softmax(together)
        topics = jax.random.categorical(topic_key, together)
        return cache, chosen, topics, total + jnp.where(turn >= _NUM_SWEEPS // 2, current, 0)

    nothing = jnp.zeros((width,), jnp.int32)
    cache = prior.begin(nothing[None], {}, with_sizes=False)
    start = (cache, nothing, nothing, jnp.zeros_like(further))
    total = jax.lax.fori_loop(0, _NUM_SWEEPS, sweep, start)[3]
    return total / (_NUM_SWEEPS - _NUM_SWEEPS // 2)


def word_probabilities(
    network: Wiring, state: NetworkState, data: Tokens, documents: Array, words: Array
) -> Array:
    """Probabilities of held-out words given the tables of all others: (M,) float.

    One of the unobserved words of the document, any of them, leaves its table; the next table and
    the word there are summed out. At a table without words that are known the dish is that of one
    table more.

    Args: network: of a table by document, a dish of tables, and the dish's words; documents (M,)
    int32, of documents with unobserved words; words (M,) int32.
    """
    (table, dish), (word,) = network.tables.popitem(), network.observed
    values, slots = all_values(state, data), slot_sizes(state, network)
    sizes = network.sizes(data, slots)
    parts = {name: network.parts(name, sizes) for name in (table, dish, word)}
    counts = statistics_of_block(network, table, parts[table], state, data)
    distribution = network.distributions[table]
    cache = distribution.begin(counts, state.hyperparameters[table], with_sizes=False)
    batches = values[network.blocks[table].by[0]]
    eaten = jnp.zeros(counts.shape, jnp.int32).at[batches, values[table]].set(values[dish])
    dish_prior = network.distributions[dish].prior_of_new_tables()
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
    family = network.distributions[word]
    statistics = statistics_of(word, family, parts[word], values, None)
    table_of_words = family.probabilities(statistics, state.hyperparameters[word])
    return jnp.sum(shares[documents] * table_of_words[:, words].T, axis=1)
