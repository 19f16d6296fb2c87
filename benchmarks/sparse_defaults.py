"""SparseBinaryMF with no option set on rows of one to four ones, beside LDA and peers' defaults.

One item is left out of every row of two or more; precision@1 and recall@10 are the shares of these
rows whose item is the first, or among the first ten, of those not known. Nothing is tuned: twenty
factors where a method needs their number (`ours` has that by default), else what a package
does on its own. The sets of `REPORT_ONLY` were never looked at while the defaults were chosen;
"clicks-wide" was, for the order of recommendations alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from scipy import sparse

import jaxmf as mf
from benchmarks import ranking, recommenders, variants
from benchmarks.harness import Row, Stopwatch, clock, row
from benchmarks.ranking import Factors, Scores
from jaxmf import datasets

NUM_FACTORS = 20


def thinned(read: Callable[[], Any], *, most: int, num_rows: int) -> sparse.csr_array:
    """Rows of two or more ones cut to two, or up to `most`, at random; columns that are left."""
    generator = np.random.default_rng(0)
    ones = sparse.csr_array(read())
    row_of = np.repeat(np.arange(ones.shape[0]), np.diff(ones.indptr))
    order = np.lexsort((generator.random(ones.nnz), row_of))
    rank = np.arange(ones.nnz) - np.repeat(ones.indptr[:-1], np.diff(ones.indptr))
    limit = generator.integers(2, most + 1, ones.shape[0])
    kept = order[rank < limit[row_of]]
    return _compact(_of_positions(row_of[kept], ones.indices[kept], ones.shape), num_rows)


def sampled(read: Callable[[], Any], *, share: float, num_rows: int) -> sparse.csr_array:
    """A share of all ones."""
    ones = sparse.coo_array(read())
    kept = np.random.default_rng(0).random(ones.nnz) < share
    positions = ones.coords[0][kept], ones.coords[1][kept]
    return _compact(_of_positions(*positions, ones.shape), num_rows)


def clicks(
    num_rows: int, num_columns: int, num_groups: int, *, exponent: float, stray: float
) -> sparse.csr_array:
    """Clicks of visitors of one group each, popularity by Zipf; a share of them of any group."""
    generator = np.random.default_rng(0)
    popularity = generator.permutation(np.arange(1.0, num_columns + 1) ** -exponent)
    group = generator.integers(0, num_groups, num_columns)
    rows, columns = [], []
    for visitor in range(num_rows):
        own = popularity * (group == generator.integers(num_groups))
        chance = (1 - stray) * own / max(own.sum(), 1e-12) + stray * popularity / popularity.sum()
        number = 1 + generator.poisson(1.3)
        chosen = generator.choice(num_columns, number, replace=False, p=chance / chance.sum())
        rows += [visitor] * number
        columns += chosen.tolist()
    return _compact(_of_positions(rows, columns, (num_rows, num_columns)), num_rows)


def _of_positions(rows: Any, columns: Any, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=shape)


def _compact(ones: sparse.csr_array, num_rows: int) -> sparse.csr_array:
    """So many rows of two ones or more, and the columns that they have."""
    able = np.flatnonzero(np.diff(ones.indptr) >= 2)
    generator = np.random.default_rng(1)
    chosen = np.sort(generator.choice(able, min(num_rows, able.size), replace=False))
    ones = sparse.csr_array(ones[chosen])
    return sparse.csr_array(ones[:, np.flatnonzero(ones.sum(axis=0) > 0)])


SETS: dict[str, Callable[[], sparse.csr_array]] = {
    "clicks": partial(clicks, 4_000, 400, 20, exponent=1.0, stray=0.15),
    "groceries-2-3": partial(thinned, ranking.baskets, most=3, num_rows=5_000),
    "movielens-1m-2%": partial(sampled, ranking.movies, share=0.02, num_rows=3_000),
    "retail-2-3": partial(
        thinned, lambda: datasets.retail().to_scipy(), most=3, num_rows=4_000
    ),
    "clicks-wide": partial(clicks, 5_000, 1_200, 40, exponent=0.8, stray=0.3),
    "clicks-narrow": partial(clicks, 3_000, 250, 10, exponent=1.2, stray=0.05),
    "t10i4d100k-2": partial(
        thinned, lambda: datasets.t10i4d100k().to_scipy(), most=2, num_rows=4_000
    ),
    "movielens-100k-4%": partial(
        sampled, lambda: ranking.liked_movies(datasets.movielens_100k), share=0.04, num_rows=3_000
    ),
}  # fmt: skip
REPORT_ONLY = ("clicks-narrow", "t10i4d100k-2", "movielens-100k-4%")


@cache
def data_set(name: str) -> sparse.csr_array:
    """The ones of a set, made once."""
    return SETS[name]()


# --- methods: (train, seed) -> scores ---------------------------------------------------------


def ours(train: sparse.csr_array, seed: int) -> tuple[Scores, list[str]]:
    """`SparseBinaryMF` with no option set, by the order of `recommend`; what it warned of."""
    data = mf.SparseBinary.from_scipy(train.astype(np.int8))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        posterior = mf.variational(mf.SparseBinaryMF(NUM_FACTORS), data, seed=seed, progress=False)
    draw = jax.device_put(posterior.reference_draw())
    probability = jax.jit(_probability)
    return lambda rows: probability(posterior.model, draw, rows), [str(w.message) for w in said]


def _probability(model: Any, draw: Any, rows: Any) -> Any:
    return model.probability(*model.score_rows(draw, rows))


def popularity(train: sparse.csr_array, seed: int) -> Scores:
    """By the number of ones of a column."""
    del seed
    counts = np.asarray(train.sum(axis=0), float)
    return lambda rows: np.broadcast_to(counts, (rows.size, counts.size))


def als(train: sparse.csr_array, seed: int) -> Scores:
    """implicit's ALS with its own defaults, a hundred factors."""
    from implicit.als import AlternatingLeastSquares

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AlternatingLeastSquares(num_threads=1, random_state=seed)
        model.fit(sparse.csr_matrix(train), show_progress=False)
    return Factors(model.user_factors, model.item_factors)


PEERS: dict[str, tuple[Callable[[sparse.csr_array, int], Scores], str]] = {
    "popularity": (popularity, ""),
    "truncated SVD": (lambda train, seed: recommenders.svd(train, NUM_FACTORS, seed), ""),
    "EASE": (lambda train, seed: recommenders.ease(train, 30.0, seed), ""),
    "implicit ALS": (als, "implicit"),
    "LDA": (
        lambda train, seed: variants.topics(
            mf.LDA(NUM_FACTORS, word_concentration=0.01), train, seed
        ),
        "",
    ),
}


def measure(name: str, quick: bool) -> list[Row]:
    """Precision@1 and recall@10 of one set beside every peer that is installed."""
    import importlib.util

    ones = data_set(name)
    split = ranking.left_out(ones, 0, number=1)
    with Stopwatch() as watch:
        scores, said = ours(split.train, 0)
    found = _shares(scores, split)
    per_row = split.train.nnz / split.train.shape[0]
    note = f"{ones.shape[0]} x {ones.shape[1]}, {per_row:.1f} ones a row; alarm: {said or 'none'}"
    if name in REPORT_ONLY:
        note += "; never used for choosing"
    case, rows = f"sparse-defaults/{name}", []
    for peer, (fit, package) in PEERS.items():
        if package and importlib.util.find_spec(package) is None:
            continue
        theirs = _shares(fit(split.train, 0), split)
        for metric in ("precision@1", "recall@10"):
            rows.append(
                row(f"{case}/{peer.lower().replace(' ', '-')}/{metric}", "quality", "share",
                    found[metric], peer=peer, theirs=theirs[metric], more_is_better=True, note=note)
            )  # fmt: skip
    rows.append(row(f"{case}/fit", "time", "s", watch.seconds, clock=clock(),
                    note=f"{note}; compilation included"))  # fmt: skip
    return rows


def _shares(scores: Scores, split: ranking.Split) -> dict[str, float]:
    found = ranking.precision(scores, split)
    return {"precision@1": float(found[1]), "recall@10": float(10 * found[10])}


CASES: dict[str, Callable[[bool], list[Row]]] = {
    f"sparse-defaults/{name}": partial(measure, name) for name in SETS
}
QUICK = ("sparse-defaults/clicks", "sparse-defaults/groceries-2-3")
