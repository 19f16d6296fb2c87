"""Topics: held-out perplexity by one evaluator, beside tomotopy with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks.defaults.measure import Case, fitted
from benchmarks.held_out import Halves, documents_split, perplexity
from benchmarks.topic_sides import has_peer, peer, topics_of

_ALPHA = 0.1
_SWEEPS = 300


def _thinned(counts: Any, num_tokens: int) -> Any:
    """Documents cut to so many tokens, drawn without replacement."""
    rng = np.random.default_rng(6)
    dense = np.asarray(sparse.csr_array(counts).toarray(), int)
    rows = [rng.multivariate_hypergeometric(row, min(num_tokens, row.sum())) for row in dense]
    return sparse.csr_array(np.array(rows))


def _kos() -> Any:
    return sparse.csr_array(mf.datasets.kos().counts)


SETS: dict[str, Callable[[], Any]] = {
    "KOS, 300 documents": lambda: _kos()[:300],
    "KOS, 50 words a document": lambda: _thinned(_kos()[300:900], 50),
    "KOS, 10 words a document": lambda: _thinned(_kos()[900:1900], 10),
    "Reuters (report)": lambda: mf.datasets.reuters().counts,
    "NIPS, 60 papers (report)": lambda: sparse.csr_array(mf.datasets.nips12().counts)[::29],
    "tiny, 20 documents (report)": lambda: sparse.csr_array(
        np.random.default_rng(7).poisson(0.7, (20, 30))
    ),
}
MODELS: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "lda": (lambda: mf.LDA(20), "LDAModel", {"k": 20}),
    "hdp": (mf.HDPLDA, "HDPModel", {}),
    "pam": (lambda: mf.PAM((5, 20)), "PAModel", {"k1": 5, "k2": 20}),
}


@cache
def split(name: str) -> tuple[Any, Halves]:
    """Documents to learn from, and halves of the others."""
    return documents_split(SETS[name]())


def _ours(make: Callable[[], Any], name: str, quick: bool) -> tuple[float, str]:
    train, test = split(name)
    post, note = fitted(make(), mf.Tokens.from_counts(train), quick)
    counts = np.asarray(post.reference_draw()["word_cells"], float).T
    topics = topics_of(counts)
    found = perplexity(topics, test, alpha=_ALPHA)
    return found, f"{topics.number} topics, {note}"


def _theirs(model: str, options: dict[str, Any], name: str) -> float:
    train, test = split(name)
    side = peer(model, mf.Tokens.from_counts(train), **options)
    side.sweeps(_SWEEPS)
    return perplexity(side.topics(), test, alpha=_ALPHA)


def _case(model: str, name: str) -> Case:
    make, peer_name, options = MODELS[model]
    peers = {}
    if has_peer():
        peers[f"tomotopy {peer_name}"] = partial(_theirs, peer_name, options, name)
    return Case("perplexity", partial(_ours, make, name), peers)


CASES: dict[str, Case] = {
    f"{model}/{name}": _case(model, name) for model in MODELS for name in SETS
}
