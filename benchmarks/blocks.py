"""Networks of blocks: time of a sweep beside tomotopy and a hand-written loop, held-out perplexity.

tomotopy trains with one worker and without its parallel scheme; a sweep of both sides draws the
topic of every token once, hyperparameters fixed at the same values, tokens drawn one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks import by_hand, mixing
from benchmarks.harness import (
    Row,
    Timings,
    compile_row,
    flat_rows,
    interleaved,
    planned_bytes,
    row,
)
from benchmarks.held_out import documents_split, perplexity
from benchmarks.topic_sides import (
    ALPHA,
    BETA,
    NUM_SEEDS,
    Ours,
    bi_lda,
    has_peer,
    hdp,
    lda,
    made_up,
    pachinko,
    peer,
    step,
    stepper,
    tokens_of,
)
from jaxmf import datasets
from jaxmf.blocks.starting import num_first_groups
from jaxmf.data import Tokens

NUM_SWEEPS = 60
HDP_SWEEPS = 100


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
    """Held-out perplexity of both sides after equal sweeps."""
    counts = sparse.csr_array(datasets.documents.kos().counts)
    train, test = documents_split(counts[:300] if quick else counts)
    tokens = Tokens.from_counts(train)
    figures: dict[str, list[float]] = {"ours": [], "theirs": []}
    for seed in range(2 if quick else NUM_SEEDS):
        sides = {"ours": make_ours(tokens, seed)}
        if has_peer():
            sides["theirs"] = make_theirs(tokens, seed + 1)
        for name, side in sides.items():
            side.sweeps(NUM_SWEEPS)
            figures[name].append(perplexity(side.topics(), test, alpha=ALPHA))
    more = {"peer": peer_name, "theirs": figures["theirs"]} if figures["theirs"] else {}
    note += f", {NUM_SWEEPS} sweeps, document completion on a tenth of the documents"
    return [row(f"{case}/perplexity", "quality", "perplexity", figures["ours"], note=note, **more)]


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


def hdp_times(quick: bool) -> list[Row]:
    """Time of a token of the HDP; the weights of the topics are drawn too, on both sides.

    Both start evenly over as many topics as our default has for these tokens.
    """
    tokens = tokens_of("kos", quick)
    number = first_topics(tokens)
    mine = Ours(hdp(tokens), tokens)
    settings = {"initial_k": number, "alpha": 1.0, "gamma": 1.0}
    other = peer("HDPModel", tokens, **settings) if has_peer() else None
    times = beside(mine, other, warm_up=10, sweeps=2, repeats=5)
    live = {"ours": mine.topics().number}
    if other is not None:
        live["tomotopy"] = other.topics().number
    note = f"concentrations fixed, from {number} topics on both sides; live: "
    note += ", ".join(f"{name} {count}" for name, count in live.items())
    return [time_row("blocks/hdp/kos", times, "tomotopy HDP", note)]


def first_topics(tokens: Tokens) -> int:
    """How many topics an HDP of documents starts with."""
    return num_first_groups(hdp(tokens).at(tokens), tokens) or 1


def hdp_quality(quick: bool) -> list[Row]:
    """Perplexity and number of topics after equal sweeps, words with BETA on all sides.

    Beside LDA of 100 topics, and tomotopy's HDP: by its default and started from as many topics as
    ours, concentrations learned. Reuters had no part in the choice of our start.
    """
    rows = []
    for name in ("kos",) if quick else ("kos", "reuters"):
        counts = sparse.csr_array(getattr(datasets.documents, name)().counts)
        train, test = documents_split(counts[:300] if quick else counts)
        tokens = Tokens.from_counts(train)
        number = first_topics(tokens)
        sides: dict[str, Callable[[int], Any]] = {
            "ours": lambda seed, tokens=tokens, number=number: Ours(
                mf.HDPLDA(word_concentration=BETA).network(),
                tokens,
                seed=seed,
                capacity=3 * number,
            ),
            "LDA of 100 topics": lambda seed, tokens=tokens: Ours(
                mf.LDA(100, word_concentration=BETA).network(), tokens, seed=seed
            ),
        }
        if has_peer():
            sides["tomotopy HDP, default"] = lambda seed, tokens=tokens: peer(
                "HDPModel", tokens, seed=seed + 1, optim_interval=10
            )
            sides["tomotopy HDP, as many topics"] = lambda seed, tokens=tokens, number=number: peer(
                "HDPModel", tokens, seed=seed + 1, optim_interval=10, initial_k=number
            )
        figures = {side: [] for side in sides}
        for seed in range(2):
            for side, make in sides.items():
                chain = make(seed)
                chain.sweeps(HDP_SWEEPS)
                topics = chain.topics()
                score = perplexity(topics, test, alpha=chain.concentration() / topics.number)
                figures[side].append((score, topics.number))
        both = {side: np.array(own).T for side, own in figures.items()}
        for side in [side for side in sides if side != "ours"]:
            case = f"blocks/hdp/{name}/beside {side}"
            note = f"{HDP_SWEEPS} sweeps, document completion, {tokens.num_tokens} tokens; topics "
            note += " and ".join(f"{np.median(both[own][1]):.0f}" for own in ("ours", side))
            more = {"peer": side, "theirs": both[side][0]}
            rows.append(row(case, "quality", "perplexity", both["ours"][0], note=note, **more))
    return rows


def hdp_beside_best(quick: bool) -> list[Row]:
    """Perplexity of the HDP after its sweeps, beside the best LDA over K in the same CPU time."""
    counts = sparse.csr_array(datasets.documents.reuters().counts)
    train, test = documents_split(counts[:100] if quick else counts)
    tokens, mine, best = Tokens.from_counts(train), [], []
    number = first_topics(tokens)
    for seed in range(2 if quick else 3):
        model = mf.HDPLDA(word_concentration=BETA)
        chain = Ours(model.network(), tokens, seed=seed, capacity=3 * number)
        chain.sweeps(1)
        limit = time.process_time()
        chain.sweeps(HDP_SWEEPS)
        limit = time.process_time() - limit
        topics = chain.topics()
        alpha = chain.concentration() / topics.number
        mine.append((perplexity(topics, test, alpha=alpha), topics.number))
        scores = []
        for num_topics in (10, 20, 50, 100, 200, 400):
            network = mf.LDA(num_topics, word_concentration=BETA).network()
            other = Ours(network, tokens, seed=seed)
            other.sweeps(1)
            start = time.process_time()
            while time.process_time() - start < limit:
                other.sweeps(1)
            alpha = other.concentration() / num_topics
            scores.append((perplexity(other.topics(), test, alpha=alpha), num_topics))
        best.append(min(scores))
    figures = {"ours": [score for score, _ in mine], "theirs": [score for score, _ in best]}
    note = (
        f"{HDP_SWEEPS} sweeps of the HDP, {tokens.num_tokens} tokens, document completion; topics "
    )
    note += ", ".join(str(number) for _, number in mine) + "; best K of 10 to 400 "
    note += ", ".join(str(number) for _, number in best) + "; words with .01 on both sides"
    case, peer_name = "blocks/hdp/reuters/beside best LDA", "the best LDA in equal CPU time"
    return [
        row(case, "quality", "perplexity", figures["ours"], peer=peer_name,
            theirs=figures["theirs"], note=note)
    ]  # fmt: skip


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
    of_four = jax.jit(jax.vmap(step, in_axes=(None, 0, 0, None)))
    keys = jax.random.split(jax.random.key(1), 4)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), one.state)
    runs = (
        lambda: stepper(one.algorithm)(one.algorithm, keys[0], one.state, tokens)[0],
        lambda: of_four(one.algorithm, keys, states, tokens)[0],
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
        arguments = side.algorithm, side.key, side.state, tokens
        program = stepper(side.algorithm).lower(*arguments).compile()
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
        rows.append(compile_row(f"blocks/compile/{name}", stepper(side.algorithm), *arguments))
    return rows


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "blocks/lda/kos": partial(lda_times, "kos", (20, 100, 400, 1_000)),
    "blocks/lda/nips12": partial(lda_times, "nips12", (20, 100, 400)),
    **{f"blocks/lda/quality/k{number}": partial(lda_quality, number) for number in (20, 100, 400)},
    "blocks/hdp": hdp_times,
    "blocks/hdp/quality": hdp_quality,
    "blocks/hdp/best": hdp_beside_best,
    "blocks/pam": pachinko_times,
    "blocks/bi-lda": bi_lda_times,
    "blocks/chains": chains,
    "blocks/by-hand": hand_written,
    "blocks/flat": flat,
    "blocks/memory": memory,
    "blocks/compile": compile_time,
    "blocks/effective": mixing.effective,
    "blocks/two-cores": mixing.two_cores,
    "blocks/lda/start": mixing.starts,
    "blocks/vectors": mixing.vectors,
}
QUICK = (
    "blocks/lda/kos",
    "blocks/lda/quality/k20",
    "blocks/pam",
    "blocks/chains",
    "blocks/by-hand",
    "blocks/memory",
)
