"""The official formats of public data sets, each parsed from text or bytes to numpy arrays."""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np


def open_bytes(path: Path) -> bytes:
    """The content of a file, decompressed where it is gzip."""
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def lines_of(content: bytes, *, encoding: str = "utf-8") -> list[str]:
    """Lines of a text, without empty ones at its end."""
    return content.decode(encoding).rstrip("\r\n").replace("\r\n", "\n").split("\n")


def row_lists(rows: Sequence[Sequence[int]], num_columns: int) -> dict[str, np.ndarray]:
    """Rows of column indices in compressed form: indptr, indices, shape."""
    indptr = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    indices = np.fromiter((index for row in rows for index in row), np.int64, int(indptr[-1]))
    if len(indices) and (indices.min() < 0 or indices.max() >= num_columns):
        raise ValueError(f"an index lies outside 0..{num_columns - 1}")
    small = np.uint16 if num_columns <= 2**16 else np.int32
    shape = np.asarray([len(rows), num_columns], np.int32)
    return {"indptr": indptr, "indices": indices.astype(small), "shape": shape}


def idx(content: bytes) -> np.ndarray:
    """An array of bytes in the IDX format of MNIST: zero, zero, type, number of axes, sizes, data.

    Raises:
        ValueError: another format, or the wrong length.
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"no IDX file of unsigned bytes, it starts with {content[:4]!r}")
    num_axes = content[3]
    shape = np.frombuffer(content, ">i4", num_axes, 4)
    array = np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes)
    if array.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"IDX file is cut: {array.size} bytes for shape {tuple(shape)}")
    return array.reshape(tuple(shape))


def zip_digits(lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) uint8 and grey levels (N, 256) in thousandths, int16, of the USPS digits."""
    table = np.loadtxt(lines, ndmin=2)
    if table.shape[1] != 257:
        raise ValueError(f"a line holds {table.shape[1]} numbers, a label and 256 pixels are due")
    return table[:, 0].astype(np.uint8), np.rint(1000 * table[:, 1:]).astype(np.int16)


def transactions(
    lines: Iterable[str], *, first: int, num_items: int | None = None
) -> list[list[int]]:
    """Baskets of the FIMI format, integers separated by blanks; ``first`` becomes 0."""
    baskets = [sorted({int(item) - first for item in line.split()}) for line in lines]
    for line_index, basket in enumerate(baskets, 1):
        if basket and (basket[0] < 0 or (num_items is not None and basket[-1] >= num_items)):
            raise ValueError(f"line {line_index}: an item lies outside {first}..{num_items}")
    return baskets


def bag_of_words(lines: Sequence[str]) -> dict[str, np.ndarray]:
    """Counts in the UCI format: three sizes, then ``document word count``, both from 1."""
    num_documents, num_words, num_counts = (int(line) for line in lines[:3])
    table = np.loadtxt(lines[3:], dtype=np.int64, ndmin=2)
    if len(table) != num_counts:
        raise ValueError(f"{len(table)} counts follow, the head announces {num_counts}")
    return _compressed(table[:, 0] - 1, table[:, 1] - 1, table[:, 2], num_documents, num_words)


def lda_c(lines: Sequence[str], num_words: int) -> dict[str, np.ndarray]:
    """Counts in the format of lda-c: ``number-of-words word:count word:count ...``, from 0."""
    rows, columns, counts = [], [], []
    for row, line in enumerate(lines):
        size, *cells = line.split() or ["0"]
        if len(cells) != int(size):
            raise ValueError(f"line {row + 1}: {len(cells)} words follow, it announces {size}")
        for cell in cells:
            word, count = cell.split(":")
            rows.append(row)
            columns.append(int(word))
            counts.append(int(count))
    table = np.array([rows, columns, counts], np.int64)
    return _compressed(table[0], table[1], table[2], len(lines), num_words)


def _compressed(
    rows: np.ndarray, columns: np.ndarray, counts: np.ndarray, num_rows: int, num_columns: int
) -> dict[str, np.ndarray]:
    if len(columns) and (columns.min() < 0 or columns.max() >= num_columns):
        raise ValueError(f"a word lies outside 0..{num_columns - 1}")
    order = np.lexsort((columns, rows))
    indptr = np.zeros(num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    return {
        "indptr": indptr,
        "indices": columns[order].astype(np.uint16 if num_columns <= 2**16 else np.int32),
        "data": counts[order].astype(np.min_scalar_type(int(counts.max(initial=0)))),
        "shape": np.asarray([num_rows, num_columns], np.int32),
    }


def fields(lines: Iterable[str], separator: str, num_fields: int) -> list[list[str]]:
    """Lines split at a separator, with as many fields each."""
    table = [line.split(separator) for line in lines]
    for line_index, line in enumerate(table, 1):
        if len(line) != num_fields:
            raise ValueError(
                f"line {line_index} has {len(line)} fields, {num_fields} are due: {line}"
            )
    return table
