"""Networks of blocks: effective samples a second, two cores, and where a chain starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from benchmarks.harness import Row, Stopwatch, clock, interleaved, row
from benchmarks.held_out import documents_split, perplexity
from benchmarks.topic_sides import (
    ALPHA,
    BETA,
    NUM_SEEDS,
    Ours,
    has_peer,
    lda,
    peer,
    step,
    tokens_of,
)
from jaxmf import datasets
from jaxmf._kernels.fusion import wide_vectors
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.diagnostics import summarise_chains
from jaxmf.types import Array

NUM_TOPICS = 20
FEW_TOPICS = 10  # of few documents: the log joint of all still drifts after hundreds of sweeps
NUM_WORDS = 40


def effective(quick: bool) -> list[Row]:
    """Effective samples a second: the parallel sweep beside the sequential one.

    Three hundred documents. Both go on from the same states, after sequential sweeps; only the
    steps are timed. Of the log joint with few topics; with more it still drifts, and the log
    probabilities of some words in some documents are looked at.
    """
    return [_effective(FEW_TOPICS, quick, of_words=False), _effective(NUM_TOPICS, quick)]


def _effective(num_topics: int, quick: bool, *, of_words: bool = True) -> Row:
    warm_up, number = (20, 30) if quick else (1_000, 1_000)
    tokens = tokens_of("kos", True)
    network = lda(tokens, num_topics)
    measure = jax.jit(_log_probabilities if of_words else network.log_joint)
    rates: dict[str, list[float]] = {"parallel": [], "sequential": []}
    sizes: dict[str, list[float]] = {"parallel": [], "sequential": []}
    for seed in range(2 if quick else NUM_SEEDS):
        start = Ours(network, tokens, seed=seed)
        start.sweeps(warm_up)
        for name, own in rates.items():
            side = Ours(network, tokens, seed=seed + 100, sweep=name).prepared()
            side.state = start.state
            jax.block_until_ready(measure(side.sweeps(1), tokens))
            seconds, values = 0.0, []
            for _ in range(number):
                with Stopwatch() as watch:
                    side.sweeps(1)
                seconds += watch.seconds
                values.append(np.ravel(measure(side.state, tokens)))
            chains = {str(index): chain[None] for index, chain in enumerate(np.array(values).T)}
            found = summarise_chains(chains)
            size = float(np.mean([found[label, "ESS"] for label in chains]))
            own.append(size / seconds)
            sizes[name].append(size)
    note = f"log probabilities of {NUM_WORDS} words" if of_words else "log joint"
    note += f", {tokens.num_tokens} tokens, {number} sweeps after {warm_up}; in all "
    note += " and ".join(f"{np.median(own):.0f} {name}" for name, own in sizes.items())
    each = {name: np.array(sizes[name]) / own / number for name, own in rates.items()}
    note += "; ms a sweep "
    note += " and ".join(f"{np.median(own) * 1e3:.1f}" for own in each.values())
    case = f"blocks/effective/kos-300/k{num_topics}{'/words' if of_words else ''}"
    more: dict[str, Any] = {"peer": "the sequential sweep", "theirs": rates["sequential"]}
    return row(
        case, "time", "effective samples a second", rates["parallel"], more_is_better=True,
        clock=clock(), note=note, **more,
    )  # fmt: skip


def _log_probabilities(state: NetworkState, tokens: Tokens) -> Array:
    """Of some words in some documents, given the topics of all tokens: (N,)."""
    generator, topics = np.random.default_rng(0), state.values["topic"]
    documents = generator.integers(tokens.sizes["document"], size=NUM_WORDS)
    words = tokens.columns["word"][generator.integers(tokens.num_tokens, size=NUM_WORDS)]

    def counts(column: str) -> Array:
        empty = jnp.zeros((tokens.sizes[column], NUM_TOPICS))
        return empty.at[tokens.columns[column], topics].add(1)

    shares, of_words = counts("document")[documents] + ALPHA, counts("word") + BETA
    probabilities = (of_words / jnp.sum(of_words, axis=0))[words]
    return jnp.log(jnp.sum(shares * probabilities, axis=1) / jnp.sum(shares, axis=1))


def two_cores(quick: bool) -> list[Row]:
    """Two chains at the same time, beside one model of tomotopy trained by two workers."""
    tokens, sweeps = tokens_of("kos", quick), 1 if quick else 4
    rows = []
    for num_topics in (20,) if quick else (20, 100):
        pair = [Ours(lda(tokens, num_topics), tokens, seed=seed) for seed in range(2)]

        def ours(pair: list[Ours] = pair) -> Any:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(lambda side: side.sweeps(sweeps), pair))

        runs = [ours]
        if has_peer():
            other = peer("LDAModel", tokens, k=num_topics, alpha=ALPHA, workers=2)
            runs.append(lambda other=other: other.sweeps(sweeps))
        for run in runs:
            for _ in range(1 if quick else 5):
                run()
        times = interleaved(*runs, repeats=3 if quick else 7)
        number = sweeps * tokens.num_tokens
        times = times.over([2 * number, number][: len(runs)])
        note = "two chains in two threads beside one model; time of both cores together"
        more: dict[str, Any] = {}
        if len(runs) > 1:
            more = {"peer": "tomotopy LDA, two workers", "theirs": times.figures[1] * 1e9}
            wall = np.median(times.wall, axis=1) * 1e9
            note += f"; by the wall clock {wall[0]:.0f} and {wall[1]:.0f} ns"
        case = f"blocks/two-cores/lda/k{num_topics}"
        rows.append(times.row(case, "ns a token", 0, scale=1e9, note=note, **more))
    return rows


def vectors(quick: bool) -> list[Row]:
    """A sweep over long rows compiled for whole vectors, and as XLA does by itself."""
    tokens, rows = tokens_of("kos", quick), []
    for num_topics in (400,) if quick else (400, 1_000):
        side = Ours(lda(tokens, num_topics), tokens)
        side.sweeps(6)
        arguments = side.algorithm, side.key, side.state, tokens
        steps = [jax.jit(step, compiler_options=own) for own in (wide_vectors(), {})]
        runs = [partial(own, *arguments) for own in steps]
        times = interleaved(*runs, repeats=9).over([tokens.num_tokens] * 2)
        more: dict[str, Any] = {"peer": "half vectors", "theirs": times.figures[1] * 1e9}
        case = f"blocks/vectors/lda/k{num_topics}"
        rows.append(times.row(case, "ns a token", 0, scale=1e9, **more))
    return rows


def starts(quick: bool) -> list[Row]:
    """Perplexity after equal sweeps from topics drawn in turn, and from even ones."""
    counts = sparse.csr_array(datasets.documents.kos().counts)
    train, test = documents_split(counts[:300] if quick else counts)
    tokens = Tokens.from_counts(train)
    sweeps, figures = 60, {"in turn": [], "even": []}
    for seed in range(2 if quick else NUM_SEEDS):
        network = lda(tokens, NUM_TOPICS)
        sides = {
            "in turn": Ours(network, tokens, seed=seed).in_turn(),
            "even": Ours(network, tokens, seed=seed).at_random(),
        }
        for name, side in sides.items():
            side.sweeps(sweeps)
            figures[name].append(perplexity(side.topics(), test, alpha=ALPHA))
    return [
        row(
            f"blocks/lda/kos/k{NUM_TOPICS}/start", "quality", "perplexity", figures["even"],
            peer="started by topics drawn in turn", theirs=figures["in turn"],
            note=f"started evenly at random; {sweeps} sweeps, document completion",
        )
    ]  # fmt: skip
