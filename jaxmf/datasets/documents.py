"""Collections of documents as counts of words: KOS, NIPS 0-12, a Reuters sample."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.data import Tokens
from jaxmf.data.names import object_array
from jaxmf.datasets import parsers
from jaxmf.datasets.cache import Prepared, Recipe, Source, read, sparse_counts


class Documents(NamedTuple):
    """Counts of words in documents, and what else is known of them.

    Attributes:
        counts: (N, D) scipy.sparse array of int.
        vocabulary: (D,) the words.
        titles: (N,) texts, or None.
        train: (N,) bool, the documents of the usual training split, or None.
        authors: (N, A) scipy.sparse array of ones, or None.
        author_names: (A,) texts, or None.
        years: (N,) int, or None.
        sections: (N,) texts, or None.
    """

    counts: object
    vocabulary: np.ndarray
    titles: np.ndarray | None = None
    train: np.ndarray | None = None
    authors: object = None
    author_names: np.ndarray | None = None
    years: np.ndarray | None = None
    sections: np.ndarray | None = None

    def tokens(self) -> Tokens:
        """One token for each word in each document; columns ``document`` and ``word``."""
        return Tokens.from_counts(self.counts, vocabulary=self.vocabulary)


def _build_kos(paths: Mapping[str, Path]) -> Prepared:
    counts = parsers.bag_of_words(parsers.lines_of(parsers.open_bytes(paths["docword.kos.txt.gz"])))
    words = parsers.lines_of(parsers.open_bytes(paths["vocab.kos.txt"]))
    _check_length("vocab.kos.txt", words, counts["shape"][1])
    return Prepared(counts, {"vocab.txt": words})


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"

KOS = Recipe(
    "kos",
    "kos.npz",
    ("vocab.txt",),
    tuple(Source(file, _UCI + file) for file in ("docword.kos.txt.gz", "vocab.kos.txt")),
    _build_kos,
    sha256="0fa92debd1a80074f9d9baeb8cdcde5f819b44e7f1bb2d4cbecf2444e16f8897",
)


def kos() -> Documents:
    """KOS blog entries: 3430 documents, 6906 words, 467,714 tokens.

    ``train`` marks 2000 documents where the prepared file has that split; the official source does
    not.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Dua, Graff, UCI Machine Learning Repository, Bag of Words.
    """
    prepared = read(KOS)
    counts = sparse_counts(prepared.arrays)
    packed = prepared.arrays.get("train_4f13")
    train = None if packed is None else np.unpackbits(packed, count=counts.shape[0]).astype(bool)
    return Documents(counts, object_array(prepared.texts["vocab.txt"]), train=train)


_NIPS_ZIP = "nips-corpus-20111211.zip"
_KNOWCEANS = "https://raw.githubusercontent.com/gregoryyy/knowceans/master/knowceans-tools"
_NIPS_FILES = "corpus vocab docs authors authors.key vols vols.key labels labels.key"


def _build_nips12(paths: Mapping[str, Path]) -> Prepared:
    with zipfile.ZipFile(paths[_NIPS_ZIP]) as archive:
        lines = {
            name: [
                line.rstrip(" ")
                for line in parsers.lines_of(
                    archive.read(f"corpus-example/nips.{name}"), encoding="latin-1"
                )
            ]
            for name in _NIPS_FILES.split()
        }
    # A line of the vocabulary reads "word = index = frequency number-of-documents".
    words = [line.split(" = ")[0] for line in lines["vocab"]]
    counts = parsers.lda_c(lines["corpus"], len(words))
    for name in ("docs", "authors", "vols", "labels"):
        _check_length(f"nips.{name}", lines[name], counts["shape"][0])
    authors = parsers.row_lists(
        [[int(author) for author in line.split()] for line in lines["authors"]],
        len(lines["authors.key"]),
    )
    arrays = counts | {
        "author_indptr": authors["indptr"],
        "author_indices": authors["indices"],
        "volume": np.asarray(lines["vols"], int).astype(np.uint8),
        "label": np.asarray(lines["labels"], int).astype(np.int16),
    }
    texts = {
        "vocab.txt": words,
        "titles.txt": lines["docs"],
        "authors.txt": lines["authors.key"],
        "volumes.txt": lines["vols.key"],
        "labels.txt": lines["labels.key"],
    }
    return Prepared(arrays, texts)


NIPS12 = Recipe(
    "nips12",
    "nips12.npz",
    ("vocab.txt", "titles.txt", "authors.txt", "volumes.txt", "labels.txt"),
    (Source(_NIPS_ZIP, f"{_KNOWCEANS}/{_NIPS_ZIP}"),),
    _build_nips12,
    sha256="0735f0382f4d35c7f4e265df0f3d4889706af157b548aa7b543729dec005a5c5",
)


def nips12() -> Documents:
    """NIPS 0 to 12 (1987 to 1999): 1740 papers, 13,649 words, 2037 authors, years, sections.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        S. Roweis' data of the NIPS proceedings, as re-packed by G. Heinrich (2011).
    """
    arrays, texts = read(NIPS12)
    authors = {
        "indptr": arrays["author_indptr"],
        "indices": arrays["author_indices"],
        "shape": np.asarray([len(arrays["author_indptr"]) - 1, len(texts["authors.txt"])]),
    }
    return Documents(
        sparse_counts(arrays),
        object_array(texts["vocab.txt"]),
        titles=object_array(texts["titles.txt"]),
        authors=sparse_counts(authors),
        author_names=object_array(texts["authors.txt"]),
        years=1987 + arrays["volume"].astype(int),
        sections=object_array(texts["labels.txt"])[arrays["label"]],
    )


def _build_reuters(paths: Mapping[str, Path]) -> Prepared:
    words = parsers.lines_of(parsers.open_bytes(paths["reuters.tokens"]))
    counts = parsers.lda_c(parsers.lines_of(parsers.open_bytes(paths["reuters.ldac"])), len(words))
    titles = [
        line.rstrip() for line in parsers.lines_of(parsers.open_bytes(paths["reuters.titles"]))
    ]
    _check_length("reuters.titles", titles, counts["shape"][0])
    return Prepared(counts, {"vocab.txt": words, "titles.txt": titles})


REUTERS = Recipe(
    "reuters-lda",
    "reuters.npz",
    ("vocab.txt", "titles.txt"),
    tuple(
        Source(
            file,
            instructions=f"It comes with the Python package lda: pip install lda, and copy "
            f"lda/tests/{file} from where it was installed.",
        )
        for file in ("reuters.ldac", "reuters.tokens", "reuters.titles")
    ),
    _build_reuters,
)


def reuters() -> Documents:
    """The Reuters sample of the Python package lda: 395 news items, 4258 words, 84,010 tokens.

    Raises:
        FileNotFoundError: it is not in the folder of data sets; says how to get it.
    """
    arrays, texts = read(REUTERS)
    return Documents(
        sparse_counts(arrays),
        object_array(texts["vocab.txt"]),
        titles=object_array(texts["titles.txt"]),
    )


def _check_length(name: str, lines: list[str], size: int) -> None:
    if len(lines) != size:
        raise ValueError(f"{name}: has {len(lines)} lines, {size} are due")
