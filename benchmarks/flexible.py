"""Flexible priors: time of a sweep beside the processes that they generalise.

A flexible mixture beside a DP mixture, and the HFP on KOS beside the HDP by direct assignment; the
weights are those of the processes, so that both sides have as many groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jaxmf as mf
from benchmarks.blocks import Ours, beside, hdp, tokens_of
from benchmarks.harness import Row
from jaxmf.blocks import chain
from jaxmf.data import Tokens

BETA = 0.5  # with which both have about as many topics


def _grown(network: mf.Network, tokens: Tokens, **slots: int) -> Ours:
    side = Ours(network, tokens, capacity=32)
    side.state = chain.grow(side.state, slots)
    return side


def mixture(quick: bool) -> list[Row]:
    """A sweep of numbers in groups, sixteen slots more than groups."""
    number = 2_000 if quick else 20_000
    generator = np.random.default_rng(0)
    values = generator.normal(size=number) + 8 * generator.integers(0, 8, number)
    tokens = Tokens({"all": np.zeros(number, np.int32)}, {"all": 1}, values={"x": values})
    x = mf.Block(mf.NormalInverseGamma(28.0, 0.01, 2.0, 1.0), by="group", observed=True)
    priors = {
        "flexible": mf.FlexiblePrior.dirichlet_process(1.0, num_items=number),
        "process": mf.DirichletProcess(1.0),
    }
    sides = [
        Ours(mf.Network(group=mf.Block(prior), x=x), tokens, capacity=32)
        for prior in priors.values()
    ]
    times = beside(*sides, warm_up=20, sweeps=20, repeats=9)
    note = f"{number} numbers, 32 slots; 1.2 is what it may cost"
    theirs = {"peer": "DP mixture", "theirs": times.figures[1] * 1e9}
    return [times.row("flexible/mixture", "ns a row", 0, scale=1e9, note=note, **theirs)]


def topics(quick: bool) -> list[Row]:
    """A step of the HFP, with a Dirichlet process of topics and with a flexible prior of them."""
    tokens = tokens_of("kos", quick)
    longest = int(np.bincount(tokens.columns["document"]).max())
    tables = mf.FlexiblePrior.dirichlet_process(1.0, num_items=longest)
    kinds = {
        "process": mf.DirichletProcess(1.0),
        "flexible": mf.FlexiblePrior.dirichlet_process(1.0, num_items=tokens.num_tokens),
    }
    rows = []
    for name, prior in kinds.items():
        model = mf.HFP(tables, prior, BETA)
        sides: list[Any] = [
            _grown(model.network().at(tokens), tokens, table=64, topic=64),
            Ours(_hdp(tokens), tokens, capacity=64),
        ]
        times = beside(*sides, warm_up=20, sweeps=3, repeats=5)
        live = [int(side.state.slots["topic"].sum()) for side in sides]
        note = f"{tokens.num_tokens} words, topics {live[0]} and {live[1]} of 64 slots; 3 times is "
        note += "what it may cost"
        theirs = {"peer": "HDP, direct assignment", "theirs": times.figures[1] * 1e9}
        case = f"flexible/topics/{name}"
        rows.append(times.row(case, "ns a word", 0, scale=1e9, note=note, **theirs))
    return rows


def _hdp(tokens: Tokens) -> mf.Network:
    words = mf.DirichletMultinomial(tokens.sizes["word"], BETA)
    blocks = hdp(tokens).blocks
    return mf.Network(blocks | {"word": blocks["word"].with_distribution(words)})


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "flexible/mixture": mixture,
    "flexible/topics": topics,
}
QUICK = tuple(CASES)
