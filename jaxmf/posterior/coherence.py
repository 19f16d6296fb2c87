"""How well the words of topics go together: coherence from a corpus, and diversity.

Source: Roeder, Both & Hinneburg (2015), sections 3.1 to 3.4, for NPMI and C_v; Mimno, Wallach,
Talley, Leenders & McCallum (2011), equation 1, for UMass, here as the mean over pairs; Dieng,
Ruiz & Blei (2020), section 6, for diversity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse

from jaxmf.answers import Answer
from jaxmf.arguments import check_count
from jaxmf.data import Tokens
from jaxmf.data.alignment import matched_positions
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import match, topic_blocks
from jaxmf.posterior.topic_table import best_words
from jaxmf.types import Names

MEASURES = ("npmi", "c_v", "u_mass")
_TINY = 1e-12  # added to joint probabilities, section 3.2
_PAIRS_AT_ONCE = 2**20


class _Coherence(NamedTuple):
    values: np.ndarray
    mean: float
    measure: str


class Coherence(Answer, _Coherence):
    """How well the words of each topic go together.

    Attributes:
        values: (G,) float, of the topics in the order of `Posterior.topics`; NaN for a topic with
            fewer than two words that the reference has.
        mean: over topics.
        measure: "npmi", between -1 and 1, "c_v", between 0 and 1 for most topics, or "u_mass", at
            most little above 0.
    """

    _axes: ClassVar = {"values": "topic"}

    def table(self) -> dict[str, np.ndarray]:
        """One line for each topic."""
        return {"topic": np.arange(self.values.size), self.measure: self.values}

    def footer(self) -> str:
        return "; ".join(filter(None, [super().footer(), f"mean {self.mean:.3f}"]))


def topic_coherence(
    posterior: Draws,
    measure: str = "npmi",
    *,
    n: int = 10,
    reference: object = None,
    window: int | None = None,
) -> Coherence:
    """How often the most probable words of each topic are together in documents.

    Args:
        measure: "npmi", the mean normalised pointwise mutual information of pairs, "c_v", the
            mean cosine of each word's vector of it with that of all words (Roeder, Both &
            Hinneburg 2015), or "u_mass", the mean log of the part of the documents with the
            more probable word of a pair that have the other too, one document added to the
            latter (Mimno and others 2011).
        n: words a topic.
        reference: the corpus that counts: `Tokens`, or lists of words (of a mapping its
            values); the documents of the data by default. Words that it lacks are left out.
        window: of lists of words in their order: pairs count in windows of this many words. The
            paper takes 10 for NPMI and 110 for C_v. Whole documents by default.
    Returns:
        A value for each topic, in the order of `topics`, and their mean.
    Raises:
        ValueError: another measure, a window without lists, a reference with none of the words
            of the topics; the model has no topics.
        TypeError: the reference is no corpus, or a document of it no list of words.
    """
    check_count("n", n, 2)
    if window is not None:
        check_count("window", window, 2)
    best = _best_words(posterior, n)
    if measure not in MEASURES:
        raise ValueError(f"measure: takes {', '.join(map(repr, MEASURES))}; got {measure!r}")
    words = np.unique(best[best >= 0])
    together = _together(posterior, words, reference, window)
    if words.size and together.counts.nnz == 0:
        raise ValueError("reference: has none of the words of the topics; check case and type")
    values = []
    for topic in best:
        index = np.searchsorted(words, topic[topic >= 0])
        counts = together.counts[index][:, index].toarray()
        counts = counts[:, np.diag(counts) > 0][np.diag(counts) > 0]
        values.append(_one_topic(counts, together.num_windows, measure))
    found = np.array(values)
    mean = float(np.nanmean(found)) if np.isfinite(found).any() else np.nan
    return Coherence(found, mean, measure)


def topic_diversity(posterior: Draws, n: int = 25) -> float:
    """The part of different words among the n most probable ones of all topics.

    1 where no word is shared, 1/K where all K topics have the same words (Dieng, Ruiz & Blei
    2020).

    Args:
        n: words a topic.
    Raises:
        ValueError: the model has no topics.
    """
    check_count("n", n)
    best = _best_words(posterior, n)
    words = best[best >= 0]
    return float(np.unique(words).size / words.size)


def _best_words(posterior: Draws, n: int) -> np.ndarray:
    """(G, n) positions of the most probable words of every topic, -1 where it has fewer."""
    matched = match(posterior)
    phi = matched.word_probabilities
    best, is_entry = best_words(lambda topic, words: phi[topic, words], matched.has_word, n)
    return np.where(is_entry, best, -1)


def _one_topic(counts: np.ndarray, num_windows: int, measure: str) -> float:
    """The coherence of n words, the most probable first, of (n, n) windows with two of them."""
    if len(counts) < 2:
        return np.nan
    if measure == "u_mass":
        # each word conditionals each that is more probable
        conditionals = np.log((counts + 1) / np.diag(counts))
        return float(conditionals[np.tril_indices(len(counts), -1)].mean())
    npmi = _npmi(counts / num_windows)
    if measure == "npmi":
        return float(npmi[np.triu_indices(len(npmi), 1)].mean())
    # each word against all of them: the cosine of their vectors of NPMI with every word
    total = npmi.sum(axis=0)
    norms = np.linalg.norm(npmi, axis=1) * np.linalg.norm(total)
    return float(np.mean(npmi @ total / np.where(norms > 0, norms, 1)))


def _npmi(joint: np.ndarray) -> np.ndarray:
    """log(p_ij / (p_i p_j)) / -log p_ij; 0 for two words that are in every window."""
    single = np.diag(joint)
    log_joint = np.log(joint + _TINY)
    pointwise = log_joint - np.log(single[:, None] * single)
    is_certain = joint >= 1
    return np.where(is_certain, 0, pointwise / np.where(is_certain, 1, -log_joint))


class _Together(NamedTuple):
    """(R, R) windows with two words, those with one on the diagonal, and how many there are."""

    counts: sparse.csr_array
    num_windows: int


def _together(
    posterior: Draws, words: np.ndarray, reference: object, window: int | None
) -> _Together:
    blocks = topic_blocks(posterior)
    known = posterior.model.names(posterior.data, blocks.word)
    if reference is not None and not isinstance(reference, Tokens):
        return _together_in_lists(reference, words, known, window)
    if window is not None:
        raise ValueError(
            "window: needs texts in their order, as lists of words; pass them as reference="
        )
    tokens = posterior.model.over(posterior.data)[1] if reference is None else reference
    if not isinstance(tokens, Tokens) or not {blocks.word, blocks.document} <= set(tokens.columns):
        raise ValueError(
            f"reference: needs the columns {blocks.document!r} and {blocks.word!r} of the data"
        )
    size = posterior.model.over(posterior.data)[1].sizes[blocks.word]
    positions = matched_positions(
        tokens.names.get(blocks.word),
        known,
        sizes=(tokens.sizes[blocks.word], size),
        argument="reference",
        word=blocks.word,
        unknown="drop",
    )
    documents = np.asarray(tokens.columns[blocks.document])
    index_of = np.full(size + 1, -1)  # at the end for words that the data lack
    index_of[words] = np.arange(words.size)
    index = index_of[positions[np.asarray(tokens.columns[blocks.word])]]
    there = index >= 0
    counts = _products(documents[there], index[there], words.size)
    return _Together(counts, np.unique(documents).size)


def _together_in_lists(
    reference: object, words: np.ndarray, known: Names | None, window: int | None
) -> _Together:
    """The same from lists of words, in windows of some words or whole documents."""
    if isinstance(reference, str | bytes) or not isinstance(reference, Iterable):
        raise TypeError(
            f"reference: must be Tokens, or lists of words; got {type(reference).__name__}"
        )
    listed = [
        _list_of_words(position, document)
        for position, document in enumerate(
            reference.values() if isinstance(reference, Mapping) else reference
        )
    ]
    ids = words if known is None else np.asarray(known)[words]
    index_of = {word: index for index, word in enumerate(ids.tolist())}
    counts, num_windows = sparse.csr_array((words.size, words.size)), 0
    for windows, index, num in _windows(listed, index_of, window):
        counts = counts + _products(windows, index, words.size)
        num_windows += num
    if num_windows == 0:
        raise ValueError("reference: all documents are empty")
    return _Together(counts.tocsr(), num_windows)


def _list_of_words(position: int, document: object) -> list[object]:
    """The words of one document.

    Raises TypeError: it is not split, a mapping, or has a word that cannot be hashed.
    """
    where = f"reference: the document at position {position}"
    if isinstance(document, str | bytes | Mapping) or not isinstance(document, Iterable):
        shown = f"a {type(document).__name__}"
        raise TypeError(f"{where} is {shown} ({document!r}), a list of words is needed")
    words = list(document)
    for index, word in enumerate(words):
        try:
            hash(word)
        except TypeError:
            raise TypeError(
                f"{where} has at position {index} the {type(word).__name__} {word!r}, which is no "
                "word; words are texts or numbers"
            ) from None
    return words


def _windows(
    documents: Sequence[Iterable[object]], index_of: dict[object, int], window: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Blocks of pairs (window, word) of some words, and how many windows each block has."""
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    num_windows, size = 0, 0
    for document in documents:
        index = np.array([index_of.get(word, -1) for word in document], int)
        if index.size == 0:
            continue
        width = index.size if window is None else min(window, index.size)
        inside = sliding_window_view(index, width)
        which, where = np.nonzero(inside >= 0)
        rows.append(num_windows + which)
        columns.append(inside[which, where])
        num_windows, size = num_windows + len(inside), size + which.size
        if size > _PAIRS_AT_ONCE:
            yield np.concatenate(rows), np.concatenate(columns), num_windows
            rows, columns, num_windows, size = [], [], 0, 0
    if rows:
        yield np.concatenate(rows), np.concatenate(columns), num_windows


def _products(windows: np.ndarray, words: np.ndarray, num_words: int) -> sparse.csr_array:
    """In how many windows two words are, (R, R), from pairs (window, word) that may repeat."""
    _, rows = np.unique(windows, return_inverse=True)
    cells = (np.ones(rows.size), (rows, words))
    shape = (int(rows.max(initial=-1)) + 1, num_words)
    is_there = sparse.coo_array(cells, shape=shape).tocsr()
    is_there.data[:] = 1
    return (is_there.T @ is_there).tocsr()
