"""Market baskets: groceries, a retail store, and the synthetic T10I4D100K."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.data.names import object_array
from jaxmf.datasets import parsers
from jaxmf.datasets.cache import Prepared, Recipe, Source, read, sparse_counts


def _sparse_binary(arrays: Mapping[str, np.ndarray], item_names: list[str] | None) -> SparseBinary:
    names = None if item_names is None else object_array(item_names)
    return SparseBinary.from_scipy(sparse_counts(arrays), column_names=names)


def _build_groceries(paths: Mapping[str, Path]) -> Prepared:
    items = parsers.lines_of(parsers.open_bytes(paths["items.tsv"]))
    position = {line[0]: k for k, line in enumerate(parsers.fields(items, "\t", 3))}
    baskets = []
    for line_index, line in enumerate(
        parsers.lines_of(parsers.open_bytes(paths["baskets.csv"])), 1
    ):
        basket = [item.strip().strip('"') for item in line.split(",")]
        unknown = [item for item in basket if item not in position]
        if unknown:
            raise ValueError(f"baskets.csv: line {line_index}: {unknown[0]!r} is not in items.tsv")
        baskets.append(sorted(position[item] for item in basket))
    return Prepared(parsers.row_lists(baskets, len(items)), {"items.txt": items})


_R = "It is part of the R package arules. In R: library(arules); data(Groceries); "

GROCERIES = Recipe(
    "groceries",
    "groceries.npz",
    ("items.txt",),
    (
        Source(
            "baskets.csv",
            instructions=_R
            + 'write(Groceries, "baskets.csv", format="basket", sep=",", quote=FALSE)',
        ),
        Source(
            "items.tsv",
            instructions=_R + 'write.table(itemInfo(Groceries), "items.tsv", sep="\\t", '
            "quote=FALSE, row.names=FALSE, col.names=FALSE)",
        ),
    ),
    _build_groceries,
)


def groceries() -> SparseBinary:
    """Groceries: 9835 transactions of a grocery outlet in a month, 169 items, ids their labels.

    Raises:
        FileNotFoundError: it is not in the folder of data sets; says how to get it.

    Reference:
        Hahsler, Hornik, Reutterer (2006), Implications of probabilistic data modeling for mining
        association rules.
    """
    arrays, texts = read(GROCERIES)
    return _sparse_binary(arrays, [line.split("\t")[0] for line in texts["items.txt"]])


def _build_fimi(file: str, *, first: int, num_items: int | None, path: Path) -> Prepared:
    lines = parsers.lines_of(parsers.open_bytes(path))
    try:
        baskets = parsers.transactions(lines, first=first, num_items=num_items)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    largest = max((basket[-1] for basket in baskets if basket), default=0)
    return Prepared(parsers.row_lists(baskets, num_items or largest + 1), {})


def _fimi(file: str, *, first: int, num_items: int | None, sha256: str) -> Recipe:
    name = file.removesuffix(".dat").lower()
    return Recipe(
        name,
        f"{name}.npz",
        sources=(Source(file, f"https://fimi.uantwerpen.be/data/{file}"),),
        build=lambda paths: _build_fimi(file, first=first, num_items=num_items, path=paths[file]),
        sha256=sha256,
    )


RETAIL = _fimi(
    "retail.dat",
    first=0,
    num_items=None,
    sha256="39d0846489b67ec4e9cfc61bc66f9687c105bef1ce3a4e8733501d7986104166",
)
T10I4D100K = _fimi(
    "T10I4D100K.dat",
    first=1,
    num_items=1000,
    sha256="15a4cc3f1e22b9840c904ec6c5089b7f36aa54e7e53624db0c9773c0a5b22f8c",
)


def retail() -> SparseBinary:
    """Baskets of an anonymous Belgian store: 88,162 transactions, 16,470 items.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Brijs, Swinnen, Vanhoof, Wets (1999), Using association rules for product assortment
        decisions; FIMI repository.
    """
    return _sparse_binary(read(RETAIL).arrays, None)


def t10i4d100k() -> SparseBinary:
    """T10I4D100K: 100,000 synthetic transactions of the IBM Quest generator, 1000 items.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Agrawal, Srikant (1994), Fast algorithms for mining association rules; FIMI repository.
    """
    return _sparse_binary(read(T10I4D100K).arrays, None)
