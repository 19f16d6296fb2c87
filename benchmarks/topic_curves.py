"""Held-out perplexity of KOS against CPU seconds: LDA and HDP, here and in tomotopy, as a picture.

One chain a side and thread, words with BETA on all sides and no other option but the number of
topics: LDA of 100, here and in tomotopy with concentrations learned by its default interval; HDP
as `HDPLDA` starts it, that of tomotopy by its default and from as many topics as ours. The sides
take turns, from one number of sweeps to the next, until they have had `MOST_SECONDS`. Sweeps are
timed, the evaluator is not; what is compiled is compiled by another chain before, and its seconds
are written down apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks.blocks import first_topics
from benchmarks.harness import Stopwatch
from benchmarks.held_out import Halves, documents_split, perplexity
from benchmarks.records import Paper
from benchmarks.topic_sides import BETA, Ours, has_peer, peer
from jaxmf import datasets
from jaxmf.data import Tokens
from jaxmf.plot.style import CHAIN_COLOURS, MUTED, figure_of, png

SWEEPS = (2, 5, 10, 20, 40, 70, 100, 150, 200, 300)
MOST_SECONDS = 60.0
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "topic_curves.png"


def sides(tokens: Tokens) -> dict[str, Callable[[], Any]]:
    """The chains by name; those of tomotopy where it is installed."""
    number = first_topics(tokens)
    made: dict[str, Callable[[], Any]] = {
        "LDA, 100 topics": lambda: Ours(mf.LDA(100, word_concentration=BETA).network(), tokens),
        "HDP": lambda: Ours(
            mf.HDPLDA(word_concentration=BETA).network(), tokens, capacity=3 * number
        ),
    }
    if has_peer():
        learned = {"optim_interval": 10}
        made |= {
            "tomotopy LDA, 100 topics": lambda: peer("LDAModel", tokens, k=100, **learned),
            "tomotopy HDP": lambda: peer("HDPModel", tokens, **learned),
            f"tomotopy HDP, from {number} topics": lambda: peer(
                "HDPModel", tokens, initial_k=number, **learned
            ),
        }
    return made


class Curve:
    """CPU seconds, perplexity and topics of a chain after so many sweeps."""

    def __init__(self, make: Callable[[], Any]) -> None:
        with Stopwatch() as first:
            if isinstance(make(), Ours):
                make().sweeps(1)
        with Stopwatch() as watch:
            self.chain = make()
        self.seconds, self.num_sweeps = watch.cpu, 0
        self.found: dict[str, Any] = {"first_cpu_seconds": first.cpu, "points": []}

    def go_on(self, num_sweeps: int, test: Halves) -> None:
        """To so many sweeps, unless the chain has had its time."""
        if self.seconds > MOST_SECONDS:
            return
        with Stopwatch() as watch:
            self.chain.sweeps(num_sweeps - self.num_sweeps)
        self.seconds, self.num_sweeps = self.seconds + watch.cpu, num_sweeps
        topics = self.chain.topics()
        score = perplexity(topics, test, alpha=self.chain.concentration() / topics.number)
        point = [num_sweeps, round(self.seconds, 3), round(score, 1), topics.number]
        self.found["points"].append(point)


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """All sides; the picture is drawn anew where all were run."""
    counts = sparse.csr_array(datasets.documents.kos().counts)
    train, test = documents_split(counts[:300] if quick else counts)
    tokens = Tokens.from_counts(train)
    about = {"tokens": tokens.num_tokens, "documents": tokens.sizes["document"], "seed": 0}
    paper = Paper("topic-curves", about, quick=quick, json=json)
    chains = {name: Curve(make) for name, make in sides(tokens).items()}
    curves = {name: chain.found for name, chain in chains.items()}
    for num_sweeps in SWEEPS[:4] if quick else SWEEPS:
        for chain in chains.values():
            chain.go_on(num_sweeps, test)
        paper.save(chains=curves)
    for name, one in curves.items():
        number, seconds, score, topics = one["points"][-1]
        paper.say(
            f"{name}: {number} sweeps, {seconds:.1f} s, perplexity {score:.0f}, {topics} topics"
        )
    if not quick and has_peer():
        PICTURE.write_bytes(png(drawn(curves), dots_per_inch=100))
    return paper.end([f"{name}: {one['points'][-1]}" for name, one in curves.items()])


def drawn(curves: dict[str, Any]) -> Any:
    """Perplexity against seconds, a line a side; those of tomotopy are dashed."""
    figure, (axes,) = figure_of(1, 1, width=6.4, height=3.6)
    for position, (name, one) in enumerate(curves.items()):
        _, seconds, score, _ = np.array(one["points"]).T
        is_peer = name.startswith("tomotopy")
        colour = MUTED if is_peer else CHAIN_COLOURS[position]
        style = ("--", ":", "-.")[position % 3] if is_peer else "-"
        line = {"color": colour, "linestyle": style, "marker": "o", "markersize": 2.5}
        axes.plot(seconds, score, label=name, **line)
    axes.set(xscale="log", xlabel="CPU seconds, one thread", ylabel="perplexity of held-out words")
    axes.legend(frameon=False, fontsize=8)
    return figure
