"""Corpora from files, for the command line: counts, tokens, texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmf.arguments import check_file, checks_call
from jaxmf.data.array_files import open_numpy
from jaxmf.data.checks import check_counts
from jaxmf.data.container import LabelledMatrix
from jaxmf.data.headed_tables import columns_with_gaps, read_columns
from jaxmf.data.headings import kinds_of, roles
from jaxmf.data.names import ids
from jaxmf.data.ones import Listed, by_ids, listed_ones
from jaxmf.data.readers import read_matrix, read_text
from jaxmf.data.table_columns import as_option, likely, positions, refuse_twice, roles_by_content
from jaxmf.data.text_tables import (
    MISSING,
    as_number,
    extension,
    is_numeric,
    is_text,
    numbered_lines,
    stripped_lines,
    texts_of_files,
)
from jaxmf.data.tokens import Tokens
from jaxmf.user_warnings import warn

_CSR = {"indptr", "indices", "shape"}
_WORDS = ("document", "word")
_DOCUMENTS = frozenset(
    ["document", "doc", "document_id", "doc_id", "docid", "documentid", "text_id"]
)
_TERMS = frozenset(["word", "term", "token", "lemma", "feature"])
_TEXTS = frozenset(["text", "texts", "body", "content", "abstract", "review", "comment"])
_FEW = 10  # lines: of fewer it is not seen what they are
_SHARE = 0.9  # of lines of one length in a matrix, of cells that are no numbers in lists
_COUNTS = frozenset(["count", "counts", "n", "freq", "frequency", "occurrences"])


@checks_call
def read_tokens(
    path: str | Path,
    *,
    columns: Sequence[str] = _WORDS,
    real: Sequence[str] = (),
    vocabulary: str | Path | None = None,
    key: str | None = None,
    form: str | None = None,
    use_columns: Sequence[str] | None = None,
    drop_columns: Sequence[str] = (),
    noted: dict[str, object] | None = None,
) -> Tokens:
    """Tokens from a file.

    - ``.csv``, ``.tsv`` with the names of the columns in its first line: a token a line, in columns
      of ids of any kind. Of documents and words a column of counts, such as ``count`` or ``n``,
      says how often a word stands there. Sales with headings such as ``customer`` and ``item`` are
      documents and words, an item for each line, with a warning of the columns left aside.
    - A folder, for documents and words: its ``.txt`` files are documents, with their names as ids.
    - ``.txt``, or a column ``text``, for documents and words: a text a line, of which words of two
      letters and more, in lower case, are taken.
    - "pairs" and "baskets" as `read_ones` has them, for documents and words: a line for each word
      of a document, repeats counted, or all words of a document in a line. Without a form they
      are seen where hardly a cell is a number, or lines of numbers have many lengths.
    - Otherwise, for documents and words only, a matrix of counts as `read_matrix` reads it, or an
      ``.npz`` with the arrays ``indptr``, ``indices``, ``shape`` and maybe ``data`` of one in
      compressed rows.

    Args:
        path: the file.
        columns: the columns of ids that are wanted.
        real: columns of real values that are wanted.
        vocabulary: a text file with the words of a matrix of counts, one a line.
        key: which array of an ``.npz``.
        form: of documents and words "pairs", "baskets" or "matrix".
        use_columns: headings (or numbers from 1) of the columns that are read as `columns` and
            `real`, in this order, and maybe of counts; of a matrix the columns that are read.
        drop_columns: of a matrix those that are not.
        noted: receives the form found, so that other files can be read in the same way.
    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column is missing, a count is no whole number, or the vocabulary has another
            length.
    """
    are_words = tuple(columns) == _WORDS and not real
    if Path(path).is_dir() and are_words:
        return _folder(Path(path))
    path = check_file(path)
    headings = stripped_lines(path, first=True)[0][0] if is_text(path) else None
    needed = [*columns, *real]
    if form is not None and not are_words:
        raise ValueError(f"form belongs to documents and words, not to {', '.join(needed)}")
    has_all = use_columns is not None and len(use_columns) - len(needed) in (0, int(are_words))
    if form is None and use_columns is not None and has_all:
        return _named(path, headings, use_columns, columns, real)
    choice = use_columns is not None or bool(drop_columns)
    found = None
    if form is None and headings is not None:
        found = _by_headings(path, headings, (columns, real), vocabulary, choice=choice)
    if found is not None:
        return found
    if not are_words:
        required = ", ".join(needed)
        raise ValueError(
            f"{path}: needs a first line with the columns {required}, one token a line; others are "
            f"named in this order by use_columns=[...], --columns {','.join(needed).upper()}"
        )
    if vocabulary is None and (form is not None or not choice):
        found = _lists(path, form, use_columns, noted)
    if found is not None:
        return found
    table = _counts(path, key, use_columns, drop_columns)
    words = None if vocabulary is None else [*map(str.strip, _lines(check_file(vocabulary)))]
    if words is not None and len(words) != table.values.shape[1]:
        raise ValueError(
            f"{vocabulary}: has {len(words)} words, the counts have {table.values.shape[1]} columns"
        )
    names = table.column_names if words is None else words
    return Tokens.from_counts(table.values, vocabulary=names, row_names=table.row_names)


def _named(
    path: Path,
    headings: list[str] | None,
    use: Sequence[str],
    columns: Sequence[str],
    real: Sequence[str],
) -> Tokens:
    """Tokens from the columns that are named."""
    if headings is None:
        raise ValueError(f"{path}: has no headings; leave use_columns out.")
    at = positions(path, headings, use, "use_columns")
    if tuple(columns) == _WORDS and len(at) == 2 and kinds_of(headings) is None:
        return _as_tokens(listed_ones(path, form="pairs", use_columns=use))
    return _tokens(path, [headings[index] for index in at], columns, real)


def _by_headings(
    path: Path,
    headings: list[str],
    sides: tuple[Sequence[str], Sequence[str]],
    vocabulary: object,
    *,
    choice: bool,
) -> Tokens | None:
    """Tokens of a table whose headings say what is what; None where they do not.

    Args: sides: columns of ids, and of real values; choice: whether columns are chosen.
    """
    columns, real = sides
    are_words = tuple(columns) == _WORDS and not real
    needed = [*columns, *real]
    if set(needed) <= set(headings) and not (are_words and _COUNTS & _lower(headings)):
        if vocabulary is not None:
            raise ValueError(f"{path}: holds the words themselves; leave the vocabulary out")
        return _tokens(path, needed, columns, real)
    if are_words and vocabulary is None and not choice:
        return _counted_words(path, headings) or _column_of_texts(path, headings)
    return None


def _lists(
    path: Path, form: str | None, use: Sequence[str] | None, noted: dict[str, object] | None
) -> Tokens | None:
    """Tokens of a text with a line for each text, pair or basket; None where it holds a matrix."""
    if not is_text(path) or form == "matrix":
        return None
    if form is None and extension(path) == ".txt" and _are_texts(path):
        return _words_of(_lines(path))  # empty lines are documents without words
    if form is None and not _is_list(path):
        return None
    listed = listed_ones(path, form=form, use_columns=use)
    if listed.form == "matrix":
        return None
    if noted is not None:
        noted.update(listed.reading())
    return _as_tokens(listed)


def _is_list(path: Path) -> bool:
    """Whether a text has hardly a number, or lines of numbers of many lengths, as no matrix has.

    Raises ValueError: two columns of whole numbers may be a list or a matrix.
    """
    lines = stripped_lines(path)[0]
    if _lower(lines[0]) & (_DOCUMENTS | _TERMS):
        refuse_twice(path, lines[0])
    body = lines if kinds_of(lines[0]) is None or len(lines) == 1 else lines[1:]
    cells = [cell for line in body for cell in line if cell.lower() not in MISSING]
    count = sum(map(is_numeric, cells))
    widths = [len(line) for line in lines]
    if len(lines) >= _FEW and max(map(widths.count, {*widths})) < _SHARE * len(lines):
        return True
    if len(lines) >= _FEW and {*widths} == {2} and all(map(str.isdecimal, cells)):
        raise ValueError(
            f"{path}: has two columns of whole numbers. Say form='pairs' if each line is a "
            "document and a word, or a customer and an item, form='matrix' if it has counts of two "
            "words."
        )
    return count <= (1 - _SHARE) * len(cells)


def _as_tokens(listed: Listed) -> Tokens:
    """Tokens of pairs or baskets."""
    if listed.baskets is not None:
        return Tokens.from_lists(listed.baskets)
    documents, words = zip(*by_ids(listed.pairs or []), strict=True)
    return Tokens.from_columns({"document": [*documents], "word": [*words]})


def _tokens(
    path: Path, names: Sequence[str], columns: Sequence[str], real: Sequence[str]
) -> Tokens:
    """Tokens of a table with one a line, from the columns `names`; a further one has counts."""
    if tuple(columns) == _WORDS and not real:
        return _words_of_documents(path, *names)
    found = list(read_columns(path, names).values())
    values = {
        name: _as_floats(path, name, column)
        for name, column in zip(real, found[len(columns) :], strict=False)
    }
    return Tokens.from_columns(dict(zip(columns, found, strict=False)), values=values)


def _words_of_documents(path: Path, document: str, word: str, count: str | None = None) -> Tokens:
    """Tokens of columns of documents, of words and maybe of counts.

    A document whose lines have no word, or none but counts of 0, stays without words.
    """
    names = [document, word, *([count] if count is not None else [])]
    columns, is_gap = columns_with_gaps(path, names, word, count)
    pairs = {"document": columns[document][~is_gap], "word": columns[word]}
    if not pairs["word"].size:
        raise ValueError(f"{path}: column {word!r} is empty in all lines.")
    if is_gap.any():
        warn(
            f"{path}: column {word!r} is empty in {is_gap.sum():,} of {is_gap.size:,} lines, which "
            "say no word; a document without another line stays, without words."
        )
    if count is not None:
        repeats = _as_floats(path, count, columns[count][~is_gap])
        check_counts(f"{path}: {count}", repeats)
        pairs = {name: np.repeat(each, repeats.astype(int)) for name, each in pairs.items()}
    every = [*dict.fromkeys(columns[document].tolist())]
    return Tokens.from_columns(pairs, names={"document": every})


def _lower(headings: Sequence[str]) -> set[str]:
    return {heading.lower() for heading in headings}


def _counted_words(path: Path, headings: list[str]) -> Tokens | None:
    """Tokens of a table of documents, words and maybe counts; None where headings are others."""
    found = [
        [heading for heading in headings if heading.lower() in known]
        for known in (_DOCUMENTS, _TERMS, _COUNTS)
    ]
    is_other = found[0] or found[1] or _TEXTS & _lower(headings)
    sales = None if is_other else roles(headings, with_value=False)
    if not is_other and (sales is None or not sales.is_named):
        # a log, as dates tell; without them it may be a matrix
        sales = roles_by_content(stripped_lines(path)[0], with_value=False)
        sales = None if sales is None or sales.time is None else sales._replace(is_named=True)
    if sales is not None and sales.is_named:
        found[:2] = [headings[sales.row]], [headings[sales.column]]
    if [len(each) for each in found] not in ([1, 1, 0], [1, 1, 1]):
        return None
    document, word = found[0][0], found[1][0]
    columns = columns_with_gaps(path, [document, word], word)[0]
    known = [document, word, *found[2], "", "unnamed: 0", "Unnamed: 0"]
    if not set(headings) <= set(known) and _are_counts(columns[word]):
        return None  # a matrix of counts that has the word `word`
    others = [heading for heading in headings if heading not in known]
    if sales is not None and others:
        warn(
            f"{path}: of its columns {document!r} and {word!r} are read, as documents and words"
            f"{f', {found[2][0]!r} times' if found[2] else ', once a line'}; "
            f"the others, {', '.join(map(repr, others))}, do not count. Name other ones by "
            f"{as_option([document, word])}."
        )
    return _words_of_documents(path, document, word, *found[2])


def _are_counts(cells: np.ndarray) -> bool:
    """Whether all cells are whole numbers, such as 2 or 2.0; codes such as 0012 are none."""
    return cells.dtype.kind == "i" or all(
        re.fullmatch(r"(0|[1-9]\d*)(\.0*)?", str(cell)) for cell in cells.tolist()
    )


def _column_of_texts(path: Path, headings: list[str]) -> Tokens | None:
    """Tokens of a table with a text a line; None where no heading, or more than one, says so."""
    texts = [heading for heading in headings if heading.lower() in _TEXTS]
    if len(texts) != 1:
        return None
    index = headings.index(texts[0])
    known = [k for k, heading in enumerate(headings) if heading.lower() in (*_DOCUMENTS, "id")]
    lines = [line for line in stripped_lines(path)[0][1:] if len(line) == len(headings)]
    if all(is_numeric(line[index]) for line in lines):
        return None  # a matrix of counts that has the word `text`
    return _words_of(
        [line[index] for line in lines],
        [line[known[0]] for line in lines] if known else None,
    )


def _words_of(texts: list[str], documents: list[str] | None = None) -> Tokens:
    """Tokens of texts: words of two letters and more, in lower case."""
    split = [re.findall(r"\b\w\w+\b", text.lower()) for text in texts]
    return Tokens.from_lists(split, documents=None if documents is None else ids(documents))


def _are_texts(path: Path) -> bool:
    """Whether most lines of a file have words, and no number alone."""
    lines = [cells[0] for _, cells in numbered_lines(path, whole=True) if cells]
    return 2 * sum(len(re.findall(r"[^\W\d]{2,}", line)) > 1 for line in lines) > len(lines)


def _folder(path: Path) -> Tokens:
    """Tokens of the texts in a folder, a document for each file."""
    files = sorted(path.glob("*.txt"))
    if not files:
        raise ValueError(f"{path}: the folder has no .txt file; a file for each text is needed.")
    num_others = sum(not entry.name.startswith(".") for entry in path.iterdir()) - len(files)
    if num_others:
        verb = "is no .txt file and does" if num_others == 1 else "are no .txt files and do"
        warn(f"{path}: {num_others:,} of what the folder holds {verb} not count")
    texts = texts_of_files(path, files)
    num_empty = sum(not text.strip() for text in texts)
    if num_empty:
        verb = "text is a document" if num_empty == 1 else "texts are documents"
        warn(f"{path}: {num_empty:,} empty {verb} without words, of {len(texts):,}")
    return _words_of(texts, [file.stem for file in files])


def _counts(
    path: Path, key: str | None, use: Sequence[str] | None, drop: Sequence[str]
) -> LabelledMatrix:
    if extension(path) == ".npz" and key is None:
        with open_numpy(path) as arrays:
            if set(arrays.files) >= _CSR and "format" not in arrays.files:
                from scipy.sparse import csr_array

                indices = arrays["indices"]
                counts = arrays["data"] if "data" in arrays.files else np.ones(indices.size, int)
                matrix = (counts.astype(np.int64), indices, arrays["indptr"])
                return LabelledMatrix(csr_array(matrix, shape=tuple(arrays["shape"])))
    if is_text(path):
        try:
            return read_text(path, counts_words=True, use_columns=use, drop_columns=drop)
        except ValueError as error:
            guess = likely(stripped_lines(path)[0], only_long=True)[:2]
            if use is not None or drop or len(guess) < 2:
                raise
            raise ValueError(
                f"{error} (This file was read as a matrix of counts. If it has a line for each "
                f"word of a document, name these two columns: {as_option(guess)}.)"
            ) from None
    return read_matrix(path, key=key, use_columns=use, drop_columns=drop)


def _lines(path: Path) -> list[str]:
    """The lines of a text, without empty ones at its end."""
    lines = [cells[0] for _, cells in numbered_lines(path, whole=True)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _as_floats(path: Path, name: str, texts: np.ndarray) -> np.ndarray:
    values = np.empty(len(texts))
    for position, text in enumerate(texts):
        try:
            values[position] = as_number(str(text))
        except ValueError:
            values[position] = np.nan
        if not np.isfinite(values[position]):
            raise ValueError(
                f"{path}: {name} {str(text)!r} of line {position + 1} below the headings is no "
                "number; write it as one, or leave it empty"
            )
    return values
