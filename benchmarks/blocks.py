"""Networks of blocks: time of a sweep beside tomotopy and a hand-written loop, held-out perplexity.

tomotopy trains with one worker and without its parallel scheme; a sweep of both sides draws the
topic of every token once, hyperparameters fixed at the same values, tokens drawn one by one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks import by_hand
from benchmarks.harness import (
    Row,
    Timings,
    compile_row,
    flat_rows,
    interleaved,
    planned_bytes,
    row,
)
from benchmarks.held_out import Topics, documents_split, perplexity
from jaxmf import datasets
from jaxmf.data import Tokens

ALPHA, BETA = 0.1, 0.01
NUM_SEEDS = 5
NUM_SWEEPS = 60


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
            self.state, info = _step(self.algorithm, key, self.state, self.tokens)
        if any(bool(short) for short in info.overflow.values()):
            raise RuntimeError("a benchmark ran out of slots; give it more")
        return self.state

    def at_random(self) -> Ours:
        """The chain with every indicator drawn afresh and evenly, as the peer starts."""
        number = self.tokens.num_tokens
        for place, name in enumerate(self.network.indicators):
            key = jax.random.fold_in(self.key, 1_000 + place)
            size = self.network.blocks[name].law.num_groups(1)
            own = {name: jax.random.randint(key, (number,), 0, size)}
            self.state = self.state._replace(values=self.state.values | own)
        return self

    def topics(self) -> Topics:
        """What the evaluator asks for; of an indicator `topic` over a column `word`."""
        own = np.asarray(self.state.values["topic"])
        words = np.asarray(self.tokens.columns["word"])
        counts = np.zeros((int(own.max()) + 1, self.tokens.sizes["word"]))
        np.add.at(counts, (own, words), 1)
        return Topics(counts[counts.sum(axis=1) > 0] + BETA)


@jax.jit
def _step(algorithm: Any, key: Any, state: Any, data: Any) -> Any:
    return algorithm.step(key, state, data, jnp.ones(()))


class Theirs:
    """A model of tomotopy over the same tokens."""

    def __init__(self, model: Any, tokens: Tokens):
        self.model, self.num_words = model, tokens.sizes["word"]
        order = np.argsort(np.asarray(tokens.columns["document"]), kind="stable")
        documents = np.asarray(tokens.columns["document"])[order]
        words = np.asarray(tokens.columns["word"])[order].astype(str)
        for own in np.split(words, np.flatnonzero(np.diff(documents)) + 1):
            model.add_doc(own.tolist())
        model.optim_interval = 0
        self.sweeps(0)

    def sweeps(self, number: int) -> None:
        """So many more iterations."""
        import tomotopy

        self.model.train(number, workers=1, parallel=tomotopy.ParallelScheme.NONE)

    def topics(self) -> Topics:
        """What the evaluator asks for."""
        model = self.model
        alive = range(model.k)
        if hasattr(model, "is_live_topic"):
            alive = [topic for topic in alive if model.is_live_topic(topic)]
        shares = np.array([model.get_topic_word_dist(topic) for topic in alive])
        places = np.array([int(word) for word in model.used_vocabs])
        table = np.zeros((len(shares), self.num_words))
        table[:, places] = shares
        sizes = np.asarray(model.get_count_by_topics(), float)[list(alive)]
        return Topics(table * (sizes[:, None] + BETA * self.num_words))


def has_peer() -> bool:
    """Whether tomotopy is there."""
    return importlib.util.find_spec("tomotopy") is not None


def peer(name: str, tokens: Tokens, *, seed: int = 1, **options: Any) -> Theirs:
    """A model of tomotopy by the name of its class."""
    import tomotopy

    return Theirs(getattr(tomotopy, name)(eta=BETA, seed=seed, **options), tokens)


def beside(mine: Any, other: Any | None, *, warm_up: int, sweeps: int, repeats: int) -> Timings:
    """Seconds a token and sweep of ours and, where there is a peer, of theirs, in turn."""
    sides = [mine] if other is None else [mine, other]
    for side in sides:
        side.sweeps(warm_up)
    runs = [partial(side.sweeps, sweeps) for side in sides]
    times = interleaved(*runs, repeats=repeats, warm_up=0)
    return times.over([sweeps * mine.tokens.num_tokens] * len(sides))


def time_row(case: str, times: Timings, name: str, note: str) -> Row:
    """Nanoseconds a token and sweep, beside the peer's where it was run."""
    with_peer = len(times.figures) > 1
    more = {"peer": name, "theirs": times.figures[1] * 1e9} if with_peer else {}
    return times.row(case, "ns a token", 0, scale=1e9, note=note, **more)


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


# --- cases ----------------------------------------------------------------------------------------


def lda_times(name: str, sizes: Sequence[int], quick: bool) -> list[Row]:
    """Time of a token at several numbers of topics."""
    tokens = tokens_of(name, quick)
    rows = []
    for num_topics in sizes[:1] if quick else sizes:
        mine = Ours(lda(tokens, num_topics), tokens)
        other = peer("LDAModel", tokens, k=num_topics, alpha=ALPHA) if has_peer() else None
        few = num_topics >= 400 or tokens.num_tokens > 1_000_000
        counts = {"warm_up": 8 if few else 20, "sweeps": 1 if few else 5, "repeats": 5}
        times = beside(mine, other, **counts)
        note = f"after {counts['warm_up']} sweeps, {tokens.num_tokens} tokens"
        rows.append(time_row(f"blocks/lda/{name}/k{num_topics}", times, "tomotopy LDA", note))
    return rows


def _perplexities(
    case: str, make_ours: Any, make_theirs: Any, quick: bool, note: str, peer_name: str
) -> list[Row]:
    """Held-out perplexity of both sides after equal sweeps, and the number of topics."""
    counts = sparse.csr_array(datasets.documents.kos().counts)
    train, test = documents_split(counts[:300] if quick else counts)
    tokens = Tokens.from_counts(train)
    figures: dict[str, list[tuple[float, int]]] = {"ours": [], "theirs": []}
    for seed in range(2 if quick else NUM_SEEDS):
        sides = {"ours": make_ours(tokens, seed)}
        if has_peer():
            sides["theirs"] = make_theirs(tokens, seed + 1)
        for name, side in sides.items():
            side.sweeps(NUM_SWEEPS)
            topics = side.topics()
            figures[name].append((perplexity(topics, test, alpha=ALPHA), topics.number))
    ours, theirs = (np.array(figures[name]).T for name in ("ours", "theirs"))
    more = {"peer": peer_name, "theirs": theirs[0]} if len(theirs) else {}
    note += f", {NUM_SWEEPS} sweeps, document completion on a tenth of the documents"
    rows = [row(f"{case}/perplexity", "quality", "perplexity", ours[0], note=note, **more)]
    if "hdp" in case:
        more = {"peer": peer_name, "theirs": theirs[1]} if len(theirs) else {}
        rows.append(row(f"{case}/topics", "quality", "topics", ours[1], note="live", **more))
    return rows


def lda_quality(num_topics: int, quick: bool) -> list[Row]:
    """Perplexity after equal sweeps."""
    return _perplexities(
        f"blocks/lda/kos/k{num_topics}",
        lambda tokens, seed: Ours(lda(tokens, num_topics), tokens, seed=seed).at_random(),
        lambda tokens, seed: peer("LDAModel", tokens, k=num_topics, alpha=ALPHA, seed=seed),
        quick,
        f"{num_topics} topics, started evenly at random",
        "tomotopy LDA",
    )


_PEER_HDP = {"initial_k": 2, "alpha": 1.0, "gamma": 1.0}


def hdp_times(quick: bool) -> list[Row]:
    """Time of a token of the HDP; the weights of the topics are drawn too, on both sides."""
    tokens = tokens_of("kos", quick)
    mine = Ours(hdp(tokens), tokens, capacity=64)
    other = peer("HDPModel", tokens, **_PEER_HDP) if has_peer() else None
    times = beside(mine, other, warm_up=30, sweeps=5, repeats=5)
    live = {"ours": mine.topics().number}
    if other is not None:
        live["tomotopy"] = other.topics().number
    note = "64 slots, concentrations fixed; live topics: "
    note += ", ".join(f"{name} {number}" for name, number in live.items())
    rows = [time_row("blocks/hdp/kos", times, "tomotopy HDP", note)]
    return rows + _perplexities(
        "blocks/hdp/kos",
        lambda tokens, seed: Ours(hdp(tokens), tokens, capacity=64, seed=seed),
        lambda tokens, seed: peer("HDPModel", tokens, seed=seed, **_PEER_HDP),
        quick,
        "concentrations 1",
        "tomotopy HDP",
    )


def pachinko_times(quick: bool) -> list[Row]:
    """Time of a token where super and sub topic are drawn together."""
    tokens = tokens_of("kos", quick)
    mine = Ours(pachinko(tokens, 10, 50), tokens, joint=(("super", "sub"),))
    other = None
    if has_peer():
        sizes = {"k1": 10, "k2": 50, "alpha": ALPHA, "subalpha": ALPHA}
        other = peer("PAModel", tokens, **sizes)
    times = beside(mine, other, warm_up=5, sweeps=1, repeats=5)
    return [time_row("blocks/pam/kos/10x50", times, "tomotopy PAM", "paths drawn jointly")]


def bi_lda_times(quick: bool) -> list[Row]:
    """Time of a rating with groups of users and of movies."""
    data = datasets.ratings.movielens_1m().data
    rows = [np.asarray(one) for one in (data.rows, data.columns, data.values)]
    order = np.lexsort((rows[0], rows[1]))[: 50_000 if quick else None]
    user, movie, rating = (one[order].astype(np.int32) for one in rows)
    sizes = {"user": data.shape[0], "movie": data.shape[1], "rating": 5}
    tokens = Tokens({"user": user, "movie": movie, "rating": rating - 1}, sizes)
    times = beside(Ours(bi_lda(tokens, 20, 50), tokens), None, warm_up=5, sweeps=1, repeats=5)
    note = f"{tokens.num_tokens} ratings, 20 x 50 groups, both of a rating"
    return [times.row("blocks/bi-lda/movielens-1m", "ns a rating", 0, scale=1e9, note=note)]


def chains(quick: bool) -> list[Row]:
    """A sweep of four chains over one of a single chain."""
    tokens = tokens_of("kos", quick)
    one = Ours(lda(tokens, 20), tokens)
    step = jax.jit(jax.vmap(_step, in_axes=(None, 0, 0, None)))
    keys = jax.random.split(jax.random.key(1), 4)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), one.state)
    runs = (
        lambda: _step(one.algorithm, keys[0], one.state, tokens)[0],
        lambda: step(one.algorithm, keys, states, tokens)[0],
    )
    times = interleaved(*runs, repeats=9)
    return [
        times.row(
            "blocks/chains/four", "ms", 1, scale=1e3, peer="one chain",
            theirs=times.figures[0] * 1e3, note="LDA, 20 topics; a quarter is a ratio of 0.25",
        )
    ]  # fmt: skip


def hand_written(quick: bool) -> list[Row]:
    """The compiled network beside the same sweep written out by hand."""
    tokens, rows = tokens_of("kos", quick), []
    for num_topics in (20,) if quick else (20, 100, 400):
        mine = Ours(lda(tokens, num_topics), tokens)
        other = by_hand.Chain(tokens, num_topics, alpha=ALPHA, beta=BETA)
        times = beside(mine, other, warm_up=8, sweeps=3 if num_topics < 400 else 1, repeats=7)
        case = f"blocks/by-hand/lda/k{num_topics}"
        rows.append(time_row(case, times, "the loop by hand", "one sweep, counts taken afresh"))
    return rows


def made_up(num_tokens: int) -> Tokens:
    """Documents of a hundred tokens, words by a power law."""
    generator = np.random.default_rng(0)
    words = (5_000 * generator.random(num_tokens) ** 2).astype(np.int32)
    documents = generator.integers(0, num_tokens // 100, num_tokens).astype(np.int32)
    ones, shape = np.ones(num_tokens, np.int32), (num_tokens // 100, 5_000)
    return Tokens.from_counts(sparse.coo_array((ones, (documents, words)), shape=shape))


def flat(quick: bool) -> list[Row]:
    """Time of a token at ever more tokens."""
    sizes = (10_000, 100_000) if quick else (100_000, 1_000_000, 10_000_000)
    sets = [made_up(size) for size in sizes]
    sides = [Ours(lda(tokens, 20), tokens) for tokens in sets]
    counts = [max(1, 1_000_000 // size) for size in sizes]
    for side, number in zip(sides, counts, strict=True):
        side.sweeps(3 * number)
    runs = [partial(side.sweeps, number) for side, number in zip(sides, counts, strict=True)]
    each = [number * size for number, size in zip(counts, sizes, strict=True)]
    return flat_rows(
        [f"blocks/flat/{size}-tokens" for size in sizes],
        "ns a token",
        interleaved(*runs, repeats=3, warm_up=0).over(each),
        scale=1e9,
        peer=f"jaxmf at {sizes[0]} tokens",
        notes=["LDA, 20 topics, documents of 100 tokens"] * len(sizes),
    )


def memory(quick: bool) -> list[Row]:
    """Bytes a token of a step, as the compiled program plans them."""
    tokens, rows = made_up(10_000 if quick else 1_000_000), []
    for num_topics in (20, 100):
        side = Ours(lda(tokens, num_topics), tokens)
        program = _step.lower(side.algorithm, side.key, side.state, tokens).compile()
        total = planned_bytes(program)
        note = f"{total / 1e6:.0f} MB in all, tokens and tables included, documents of 100 tokens"
        case = f"blocks/memory/k{num_topics}/{tokens.num_tokens}-tokens"
        rows.append(row(case, "memory", "bytes a token", total / tokens.num_tokens, note=note))
    return rows


def compile_time(quick: bool) -> list[Row]:
    """Seconds to lower and compile one step, nothing cached."""
    del quick
    tokens, rows = made_up(12_300), []
    for name, network in {"lda": lda(tokens, 20), "hdp": hdp(tokens)}.items():
        side = Ours(network, tokens)
        arguments = side.algorithm, side.key, side.state, tokens
        rows.append(compile_row(f"blocks/compile/{name}", _step, *arguments))
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "blocks/lda/kos": partial(lda_times, "kos", (20, 100, 400, 1_000)),
    "blocks/lda/nips12": partial(lda_times, "nips12", (20, 100, 400)),
    **{f"blocks/lda/quality/k{number}": partial(lda_quality, number) for number in (20, 100, 400)},
    "blocks/hdp": hdp_times,
    "blocks/pam": pachinko_times,
    "blocks/bi-lda": bi_lda_times,
    "blocks/chains": chains,
    "blocks/by-hand": hand_written,
    "blocks/flat": flat,
    "blocks/memory": memory,
    "blocks/compile": compile_time,
}
QUICK = (
    "blocks/lda/kos",
    "blocks/lda/quality/k20",
    "blocks/pam",
    "blocks/chains",
    "blocks/by-hand",
    "blocks/memory",
)
