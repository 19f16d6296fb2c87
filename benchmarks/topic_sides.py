"""Chains of networks and models of tomotopy over the same tokens, for the benchmarks of blocks."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks.held_out import Topics
from jaxmf import datasets
from jaxmf._kernels.fusion import wide_vectors
from jaxmf.blocks.sequential import first_sweep
from jaxmf.data import Tokens

ALPHA, BETA = 0.1, 0.01
NUM_SEEDS = 5


class Ours:
    """A chain of a network that is stepped by hand, without records."""

    def __init__(self, network: mf.Network, tokens: Tokens, *, seed: int = 0, **options: Any):
        self.network, self.tokens = network, tokens
        self.algorithm = network.sampler(keep="scalars", **options)
        self.key = jax.random.key(seed)
        self.state = jax.jit(self.algorithm.init)(self.key, tokens)
        self.number = 0

    def sweeps(self, number: int) -> Any:
        """So many more steps."""
        for _ in range(number):
            self.number += 1
            key = jax.random.fold_in(self.key, self.number)
            self.state, info = stepper(self.algorithm)(self.algorithm, key, self.state, self.tokens)
        if any(bool(short) for short in info.overflow.values()):
            raise RuntimeError("a benchmark ran out of slots; give it more")
        # or the next to be timed would wait for it
        return jax.block_until_ready(self.state)

    def prepared(self) -> Ours:
        """The chain over tokens as its steps go through them, as the library's loop has them."""
        if self.algorithm.prepare is not None:
            self.tokens = jax.jit(self.algorithm.prepare)(self.tokens)
        return self

    def at_random(self) -> Ours:
        """The chain with every indicator drawn afresh and evenly, as the peer starts."""
        number = self.tokens.num_tokens
        for position, name in enumerate(self.network.indicators):
            key = jax.random.fold_in(self.key, 1_000 + position)
            size = self.network.blocks[name].distribution.num_groups(1)
            own = {name: jax.random.randint(key, (number,), 0, size)}
            self.state = self.state._replace(values=self.state.values | own)
        return self

    def in_turn(self) -> Ours:
        """The chain with every indicator drawn given those of the tokens before it."""
        network, names = self.network.at(self.tokens), self.network.indicators
        start = jax.jit(partial(first_sweep, network, names, ()))
        self.state = start(self.key, self.state, self.tokens)
        return self

    def concentration(self) -> float:
        """The sum of the pseudo-counts of the topics in a document."""
        number = self.state.hyperparameters["topic"]["concentration"]
        prior = self.network.blocks["topic"].distribution
        return float(number) * (1 if prior.grows else prior.num_groups(1))

    def topics(self) -> Topics:
        """What the evaluator asks for; of an indicator `topic` over a column `word`."""
        own = np.asarray(self.state.values["topic"])
        words = np.asarray(self.tokens.columns["word"])
        counts = np.zeros((int(own.max()) + 1, self.tokens.sizes["word"]))
        np.add.at(counts, (own, words), 1)
        return topics_of(counts)


def topics_of(counts: np.ndarray) -> Topics:
    """Topics from counts (K, V) of words, over the words that there are, as tomotopy has them.

    Held-out words that no training document has are left out, so they have no probability on
    either side: on a small corpus of a large vocabulary they would take a tenth of a topic.
    """
    is_known = counts.sum(axis=0) > 0
    return Topics(counts[counts.sum(axis=1) > 0] + BETA * is_known)


def stepper(algorithm: Any) -> Any:
    """A step as the library's loop compiles it."""
    return _compiled(algorithm.compiler_options is not None)


@cache
def _compiled(is_wide: bool) -> Any:
    return jax.jit(step, compiler_options=wide_vectors() if is_wide else {})


def step(algorithm: Any, key: Any, state: Any, data: Any) -> Any:
    return algorithm.step(key, state, data, jnp.ones(()))


class Theirs:
    """A model of tomotopy over the same tokens."""

    def __init__(self, model: Any, tokens: Tokens, *, workers: int = 1, optim_interval: int = 0):
        self.model, self.num_words, self.workers = model, tokens.sizes["word"], workers
        order = np.argsort(np.asarray(tokens.columns["document"]), kind="stable")
        documents = np.asarray(tokens.columns["document"])[order]
        words = np.asarray(tokens.columns["word"])[order].astype(str)
        for own in np.split(words, np.flatnonzero(np.diff(documents)) + 1):
            model.add_doc(own.tolist())
        model.optim_interval = optim_interval
        self.sweeps(0)

    def sweeps(self, number: int) -> None:
        """So many more iterations."""
        from tomotopy import ParallelScheme

        scheme = ParallelScheme.NONE if self.workers == 1 else ParallelScheme.DEFAULT
        self.model.train(number, workers=self.workers, parallel=scheme)

    def concentration(self) -> float:
        """The sum of the pseudo-counts of the topics in a document."""
        return float(np.sum(self.model.alpha))

    def topics(self) -> Topics:
        """What the evaluator asks for."""
        model = self.model
        # the topics that have words: `k` counts the super topics of pachinko allocation
        alive = range(getattr(model, "k2", model.k))
        if hasattr(model, "is_live_topic"):
            alive = [topic for topic in alive if model.is_live_topic(topic)]
        shares = np.array([model.get_topic_word_dist(topic) for topic in alive])
        positions = np.array([int(word) for word in model.used_vocabs])
        table = np.zeros((len(shares), self.num_words))
        table[:, positions] = shares
        sizes = np.asarray(model.get_count_by_topics(), float)[list(alive)]
        return Topics(table * (sizes[:, None] + BETA * positions.size))


def has_peer() -> bool:
    """Whether tomotopy is there."""
    return importlib.util.find_spec("tomotopy") is not None


def peer(
    name: str,
    tokens: Tokens,
    *,
    seed: int = 1,
    workers: int = 1,
    optim_interval: int = 0,
    **options: Any,
) -> Theirs:
    """A model of tomotopy by the name of its class; it learns concentrations if asked to."""
    import tomotopy

    model = getattr(tomotopy, name)(eta=BETA, seed=seed, **options)
    return Theirs(model, tokens, workers=workers, optim_interval=optim_interval)


# --- networks -------------------------------------------------------------------------------------


def lda(tokens: Tokens, num_topics: int) -> mf.Network:
    """Latent Dirichlet allocation."""
    return mf.Network(
        topic=mf.Block(mf.Dirichlet(num_topics, ALPHA), by="document"),
        word=mf.Block(
            mf.DirichletMultinomial(tokens.sizes["word"], BETA), by="topic", observed=True
        ),
    )


def hdp(tokens: Tokens) -> mf.Network:
    """The same with as many topics as the tokens need."""
    return mf.Network(
        topic=mf.Block(mf.HDP(1.0, 1.0), by="document"),
        word=mf.Block(
            mf.DirichletMultinomial(tokens.sizes["word"], BETA), by="topic", observed=True
        ),
    )


def pachinko(tokens: Tokens, num_super: int, num_sub: int) -> mf.Network:
    """Pachinko allocation of three levels."""
    words = mf.DirichletMultinomial(tokens.sizes["word"], BETA)
    return mf.Network(
        super=mf.Block(mf.Dirichlet(num_super, ALPHA), by="document"),
        sub=mf.Block(mf.Dirichlet(num_sub, ALPHA), by=("document", "super")),
        word=mf.Block(words, by="sub", observed=True),
    )


def bi_lda(tokens: Tokens, num_users: int, num_movies: int) -> mf.Network:
    """Groups of users and groups of movies; ratings by both."""
    ratings = mf.DirichletMultinomial(tokens.sizes["rating"], 0.5)
    return mf.Network(
        user_group=mf.Block(mf.Dirichlet(num_users, ALPHA), by="user"),
        movie_group=mf.Block(mf.Dirichlet(num_movies, ALPHA), by="movie"),
        rating=mf.Block(ratings, by=("user_group", "movie_group"), observed=True),
    )


def tokens_of(name: str, quick: bool) -> Tokens:
    """The tokens of a collection of documents; of a few of them where it is quick."""
    counts = sparse.csr_array(getattr(datasets.documents, name)().counts)
    return Tokens.from_counts(counts[:300] if quick else counts)


def made_up(num_tokens: int) -> Tokens:
    """Documents of a hundred tokens, words by a power law."""
    generator = np.random.default_rng(0)
    words = (5_000 * generator.random(num_tokens) ** 2).astype(np.int32)
    documents = generator.integers(0, num_tokens // 100, num_tokens).astype(np.int32)
    ones, shape = np.ones(num_tokens, np.int32), (num_tokens // 100, 5_000)
    return Tokens.from_counts(sparse.coo_array((ones, (documents, words)), shape=shape))
