"""Recommendations of topic models: the words, or items, that a document or basket may have next.

p(w | d) = sum_k theta_dk phi_kw with both summed out given the topics of the tokens of a draw,
averaged over draws. A new basket is folded in first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import check_count
from jaxmf.data import Container, Positions, Tokens
from jaxmf.data.alignment import UNKNOWN, check_unknown
from jaxmf.data.names import positions as index_of_ids
from jaxmf.diagnostics import evenly_spread
from jaxmf.model import RanksWords
from jaxmf.posterior.draw_blocks import filled_blocks
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.ranking import NextWords, Recommendations, best_columns
from jaxmf.posterior.topic_draws import TopicBlocks, topic_blocks
from jaxmf.posterior.topics import named_entries
from jaxmf.programs import jit, jit_method
from jaxmf.types import Array, Draw, Key

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_DRAWS_OF_NEW = 10  # each folds the new documents in
_BLOCK_CELLS = 2**22


def recommend(
    posterior: Draws,
    rows: object,
    *,
    new_rows: object,
    unknown: str,
    n: int,
    by: str | None,
    include_known: bool,
    seed: int,
) -> Recommendations:
    """See `Posterior.recommend`."""
    check_unknown(unknown, UNKNOWN[:2])
    check_count("n", n)
    if by not in (None, "probability"):
        raise ValueError(f"by: words are ranked by their probability alone, got {by!r}")
    blocks = topic_blocks(posterior)
    new = None
    if new_rows is not None:
        new = posterior.container(new_rows, "new_rows", unknown=unknown)
    tokens: Tokens = posterior.data if new is None else new
    positions = _read_documents(rows, tokens, blocks.document, drop=unknown == "drop")
    num_words = posterior.data.sizes[blocks.word]
    width = min(n, num_words)
    best = np.full((positions.size, width), -1)
    scores = np.full((2, positions.size, width), np.nan)
    size = max(1, min(positions.size, _BLOCK_CELLS // num_words))
    known = None if include_known else _words_of(tokens, positions, blocks, num_words)
    for kept, index in filled_blocks(positions.size, size):
        here, count = positions[index], kept.stop - kept.start
        mean, sd = _moments(posterior, here, new, seed)
        values = mean.copy()
        if known is not None:
            values[known[here].tocoo().coords] = -np.inf
        found = best_columns(values, width)
        chosen = np.maximum(found, 0)
        for part, moment in zip(scores, (mean, sd), strict=True):
            shown = np.where(found >= 0, np.take_along_axis(moment, chosen, axis=1), np.nan)
            part[kept] = shown[:count]
        best[kept] = found[:count]
    names, words = tokens.names.get(blocks.document), posterior.data.names.get(blocks.word)
    return Recommendations(
        rows=positions,
        columns=best,
        scores=NextWords(*scores),
        row_names=None if names is None else names[positions],
        column_names=None if words is None else named_entries(best, words.astype(object)),
    )


def _words_of(
    tokens: Tokens, positions: np.ndarray, blocks: TopicBlocks, num_words: int
) -> csr_array:
    """Which words (documents, V) bool these documents have; rows of the others are empty."""
    from scipy.sparse import csr_array

    cells = [np.asarray(tokens.columns[name]) for name in (blocks.document, blocks.word)]
    is_asked = np.isin(cells[0], positions)
    cells = [each[is_asked] for each in cells]
    shape = (tokens.sizes[blocks.document], num_words)
    return csr_array((np.ones(cells[0].size, bool), cells), shape=shape)


def _read_documents(rows: object, tokens: Tokens, column: str, *, drop: bool) -> np.ndarray:
    """(R,) positions of documents."""
    size, names = tokens.sizes[column], tokens.names.get(column)
    if rows is None:
        return np.arange(size)
    if drop and names is not None and not isinstance(rows, Positions):
        known = set(names.tolist())
        is_one = isinstance(rows, str | tuple) or not isinstance(rows, Iterable)
        listed = [rows] if is_one else list(cast("Iterable[object]", rows))
        rows = [row for row in listed if row in known]
        if not rows:
            raise ValueError(
                f"rows: none of the {len(listed)} is the id of a {column} of the data. Check their "
                "types"
            )
    return index_of_ids("rows", rows, names=names, size=size, line=column)


def _moments(
    posterior: Draws, documents: np.ndarray, new: Tokens | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over draws of the probabilities of words, (R, V) each."""
    chains, draws, weights = posterior.spread_draws()
    if new is not None and draws.size > _DRAWS_OF_NEW:
        some = evenly_spread(draws.size, _DRAWS_OF_NEW)
        chains, draws, weights = chains[some], draws[some], weights[some] / weights[some].sum()
    shape = (documents.size, posterior.data.sizes[topic_blocks(posterior).word])
    mean, square, total = np.zeros(shape), np.zeros(shape), 0.0
    for index, (chain, draw, weight) in enumerate(zip(chains, draws, weights, strict=True)):
        key = jax.random.fold_in(jax.random.key(seed), index)
        arrays = posterior.draw_at(chain, draw)
        arguments = (posterior.model, arrays, posterior.data, jnp.asarray(documents))
        if new is None:
            values = np.asarray(_next_words(*arguments, {}), float)
        else:
            values = np.asarray(_next_words_of_new(*arguments, new, key), float)
        # West's running update: no difference of large squares
        total += weight
        step = values - mean
        mean += (weight / total) * step
        square += weight * step * (values - mean)
    return mean, np.sqrt(np.maximum(square, 0))


_next_words = jit_method(RanksWords.next_words)


@jit
def _next_words_of_new(
    model: RanksWords[Container],
    draw: Draw,
    data: Container,
    documents: Array,
    new: Container,
    key: Key,
) -> Array:
    return model.next_words(draw, data, documents, model.fold(key, draw, data, new))
