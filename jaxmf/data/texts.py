"""Texts and lists of words counted: a row a document, a column a word."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxmf.data.container import is_frame, is_sparse
from jaxmf.data.frames import as_pandas
from jaxmf.data.names import as_names, counts_from_zero, is_missing_id, object_array
from jaxmf.types import Names

_NEEDS_SKLEARN = (
    "from_texts counts words by scikit-learn, an extra: pip install 'jaxmf[sklearn]'; or split the "
    "texts and use Tokens.from_lists"
)


@runtime_checkable
class Vectorizer(Protocol):
    """What counts the words of texts, such as scikit-learn's ``CountVectorizer``."""

    def fit_transform(self, texts: Sequence[object], /) -> object:
        """Finds the vocabulary, and counts: a matrix."""
        ...

    def transform(self, texts: Sequence[object], /) -> object:
        """Counts the words of the vocabulary: a matrix."""
        ...

    def get_feature_names_out(self) -> Iterable[str]:
        """The vocabulary, in the order of the columns."""
        ...


class CountedTexts(NamedTuple):
    """Counts of words in documents."""

    counts: object  # (N, D) scipy.sparse matrix of whole numbers
    vocabulary: Names  # D words
    documents: Names | None  # N ids, or None


def count_texts(texts: object, *, vectorizer: object, documents: object) -> CountedTexts:
    """Counts by a vectoriser of scikit-learn; see `Tokens.from_texts`."""
    listed, names = _lines("texts", texts, documents)
    for position, text in enumerate(listed):
        if text is None or (isinstance(text, float) and np.isnan(text)):
            raise ValueError(
                f"texts: the text at position {position} is missing ({text!r}). Leave it out, or "
                "write '' for a document without words."
            )
        if vectorizer is None and not isinstance(text, str):
            raise TypeError(
                f"texts: the text at position {position} is a {type(text).__name__}, a str is "
                "needed. Lists of words are taken by Tokens.from_lists."
            )
    if vectorizer is None:
        vectorizer = _default_vectorizer()
    if not isinstance(vectorizer, Vectorizer) or isinstance(vectorizer, type):
        raise TypeError(
            f"vectorizer: {vectorizer!r} is none, which has fit_transform, transform and "
            "get_feature_names_out; pass an object such as sklearn's "
            "CountVectorizer(stop_words='english')."
        )
    counts = _vectorize(vectorizer, listed)
    vocabulary = np.asarray(vectorizer.get_feature_names_out(), dtype=object)
    return CountedTexts(counts, vocabulary, names)


def count_lists(lists_of_tokens: object, *, documents: object) -> CountedTexts:
    """Counts of words that are split already; see `Tokens.from_lists`."""
    from scipy.sparse import coo_array

    lists, names = _lines("lists_of_tokens", lists_of_tokens, documents)
    table: dict[Hashable, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for position, words in enumerate(lists):
        if isinstance(words, Mapping):
            raise TypeError(
                f"lists_of_tokens: the document at position {position} is a mapping "
                f"({type(words).__name__}), a list of words is needed. A Counter is one by "
                "list(counter.elements())."
            )
        if isinstance(words, str | bytes) or not isinstance(words, Iterable):
            raise TypeError(
                f"lists_of_tokens: the document at position {position} is {words!r}, a list of "
                "words is needed. Texts that are not split yet are taken by Tokens.from_texts."
            )
        for index, word in enumerate(words):
            columns.append(_index_of(word, table, where=(position, index)))
            rows.append(position)
    if not table:
        raise ValueError("lists_of_tokens: all lists are empty, there is no word.")
    cells = (np.ones(len(rows), np.int64), (rows, columns))
    counts = coo_array(cells, shape=(len(lists), len(table))).tocsr()
    return CountedTexts(counts, object_array(list(table)), names)


def _index_of(word: object, table: dict[Hashable, int], *, where: tuple[int, int]) -> int:
    """The index of a word, which is added where it is new."""
    shown = f"lists_of_tokens: the word at position {where[1]} of the document at position"
    if is_missing_id(word):
        raise ValueError(f"{shown} {where[0]} is missing ({word!r}). Leave it out.")
    try:
        return table.setdefault(word, len(table))
    except TypeError:
        raise TypeError(
            f"{shown} {where[0]} is {word!r}, which cannot be hashed. Words are texts or numbers."
        ) from None


def _lines(argument: str, lines: object, documents: object) -> tuple[list[object], Names | None]:
    """The documents as a list, and their ids: those of a mapping or a Series where none are set."""
    if isinstance(lines, str | bytes):
        raise TypeError(f"{argument}: is one text; pass a list with one for each document.")
    if not isinstance(lines, Iterable):
        raise TypeError(
            f"{argument}: is a {type(lines).__name__}, a list with one for each document is needed."
        )
    if is_frame(as_pandas(lines)):
        raise TypeError(f"{argument}: is a table; pass one column, such as df['text'].")
    index = getattr(lines, "index", None)  # of a Series; of a list it is a method
    if isinstance(lines, Mapping):
        listed = list(lines.values())
        documents = list(lines) if documents is None else documents
    else:
        listed = list(lines)
        has_ids = hasattr(index, "tolist") and not counts_from_zero(index, len(listed))
        documents = index if documents is None and has_ids else documents
    if not listed:
        raise ValueError(f"{argument}: is empty, there is no document.")
    names = as_names("documents", documents)
    if names is not None and len(names) != len(listed):
        raise ValueError(
            f"documents: {len(names)} ids for {len(listed)} documents; give one for each, in order."
        )
    return listed, names


def _default_vectorizer() -> Vectorizer:
    try:
        from sklearn.feature_extraction.text import CountVectorizer
    except ImportError:
        raise ImportError(_NEEDS_SKLEARN) from None
    vectorizer: Vectorizer = CountVectorizer()
    return vectorizer


def _vectorize(vectorizer: Vectorizer, texts: list[object]) -> object:
    """The counts of a vectoriser, which is fitted to the texts unless it is fitted already."""
    try:
        is_fitted = _is_fitted(vectorizer)
        counts = vectorizer.transform(texts) if is_fitted else vectorizer.fit_transform(texts)
    except ValueError as error:
        raise ValueError(f"texts: {error}") from error
    values = np.asarray(getattr(counts, "data", counts) if is_sparse(counts) else counts)
    if values.dtype.kind == "f" and np.any(values != np.floor(values)):
        raise ValueError(
            f"vectorizer: {type(vectorizer).__name__} returns weights, counts of words are needed; "
            "pass sklearn's CountVectorizer."
        )
    if is_fitted and not np.any(values):
        raise ValueError("texts: have no word of the vocabulary of the fitted vectorizer.")
    return counts


def _is_fitted(vectorizer: Vectorizer) -> bool:
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        return hasattr(vectorizer, "vocabulary_")
    try:
        check_is_fitted(vectorizer)
    except (NotFittedError, TypeError):
        return hasattr(vectorizer, "vocabulary_")
    return True
