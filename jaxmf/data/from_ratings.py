"""Features made of the ratings themselves: who rated what, dates, earlier ratings, similar items.

Computed from the training cells alone, for these and for any cells that are to be predicted. A
cell's own rating is none of its features, and ratings left out of training enter nothing. What is
not there is zero, which is the average.

Source: Porteous (2010), Networks of mixture blocks for non parametric Bayesian models, 6.2.6.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from jaxmf.arguments import checks_call
from jaxmf.data import checks
from jaxmf.data.cell_features import CellFeatures
from jaxmf.data.encoding import Column
from jaxmf.data.entries import Entries
from jaxmf.data.features import Features

_ITEMS_AT_ONCE = 128
_LOOK_UPS_AT_ONCE = 2**20


class RatedCells(NamedTuple):
    """Cells by positions of rows and columns, and when they were rated: each (M,)."""

    rows: np.ndarray
    columns: np.ndarray
    times: np.ndarray | None = None


@checks_call
def implicit_features(train: Entries, *, of: str = "rows", sparse: bool = True) -> Features:
    """Which columns each row has a training cell in, whatever its value; or the other way about.

    A row of n cells has 1 / sqrt(n) at each of its columns, so that the squares of its numbers sum
    to one. As `row_features` of `BPMF` they make a user's factors a sum over the items he rated, as
    in SVD++; those of the columns, as `column_features`, an item's over its users, too.

    Cells that are to be predicted do not enter: nothing tells that they were rated at all. For rows
    not seen in training give their own cells, over the same columns.

    Args:
        train: the training cells.
        of: "rows" or "columns".
        sparse: whether only what is not zero is held. Where more than a few in a hundred of all
            cells are there, products are as fast without.
    Returns:
        `Features` of N lines and as many columns as the data, one part; or of as many lines as the
        data has columns. A line without cells has zeros.
    Raises:
        ValueError: neither rows nor columns.
    Example:
        >>> train = Entries([0, 0, 1], [0, 1, 1], [5, 1, 4], (2, 2))
        >>> print(implicit_features(train).to_array().round(2))
        [[0.71 0.71]
         [0.   1.  ]]
    """
    if of not in ("rows", "columns"):
        raise ValueError(f'of: must be "rows" or "columns", is {of!r}.')
    cells = (np.asarray(train.rows), np.asarray(train.columns))
    there = scipy.sparse.csr_array((np.ones(train.num_entries), cells), shape=train.shape)
    ids = [train.row_names, train.column_names]
    if of == "columns":
        there, ids = scipy.sparse.csr_array(there.T), ids[::-1]
    counts = np.maximum(np.diff(there.indptr), 1)
    scaled = scipy.sparse.coo_array(there.multiply(1 / np.sqrt(counts)[:, None]))
    levels = range(there.shape[1]) if ids[1] is None else ids[1].tolist()
    name = "rated" if of == "rows" else "rated by"
    columns = [Column(name, name, level) for level in levels]
    return Features(scaled if sparse else scaled.toarray(), ids[0], columns=columns)


@checks_call
def rating_features(
    train: Entries,
    *,
    times: object = None,
    new_cells: tuple[object, object] | None = None,
    new_times: object = None,
    flag_at: float | None = None,
    num_previous: int = 2,
    num_neighbours: int = 5,
    shrinkage: float = 100.0,
) -> CellFeatures:
    """The features of 6.2.6 for training cells and for cells to be predicted.

    - ``date``, from 0 at the first training rating to 1 at the last, and ``date flag``, one before
      ``flag_at``; both are centred at their mean over the training cells.
    - ``previous k``: the user's k-th rating back, among the training cells that are earlier than
      the cell, less the mean of all.
    - ``neighbour k``: the user's training rating of the item that is k-th in correlation with the
      cell's by the ratings of other users (see `neighbours`), less that item's mean.

    Args:
        train: the training ratings.
        times: (T,) numbers, when they were given; None leaves out what needs them.
        new_cells: ids of rows and of columns of further cells, (M,) each; None for none.
        new_times: (M,) numbers.
        flag_at: a time; None leaves the flag out.
        num_previous: how many earlier ratings; they need times.
        num_neighbours: how many similar items.
        shrinkage: correlations over n common users are multiplied by n / (n + shrinkage), as those
            over a few users are mostly chance.
    Returns:
        `CellFeatures` of T + M cells; the ids are those of ``train``.
    Raises:
        ValueError: times for one of the two alone or of another length, ids that the data lacks, a
            new cell that is a training cell, nothing to compute.
    Example:
        >>> train = Entries([0, 0, 1, 1], [0, 1, 0, 1], [5, 1, 4, 2], (2, 2))
        >>> found = rating_features(train, times=[1, 3, 2, 3], num_previous=1, num_neighbours=0)
        >>> found.labels, found.take(np.array([0]), np.array([1])).tolist()
        (('date', 'previous 1'), [[0.375, 2.0]])
    """
    cells, num_train = _all_cells(train, times, new_cells, new_times)
    found: dict[str, np.ndarray] = {}
    if cells.times is not None:
        found |= _dates(cells.times, num_train, flag_at)
        earlier = previous_ratings(train, times, cells, num_previous=num_previous)
        found |= {f"previous {k + 1}": one for k, one in enumerate(earlier.T)}
    if num_neighbours:
        similar = neighbours(train, num_neighbours=num_neighbours, shrinkage=shrinkage)
        ratings = neighbour_ratings(train, similar, cells)
        found |= {f"neighbour {k + 1}": one for k, one in enumerate(ratings.T)}
    if not found:
        raise ValueError("times: without them, and with num_neighbours=0, nothing is left.")
    table = Features(np.stack(list(found.values()), axis=1), columns=list(found))
    return CellFeatures(
        cells.rows,
        cells.columns,
        table,
        train.shape,
        row_names=train.row_names,
        column_names=train.column_names,
    )


def previous_ratings(
    train: Entries, times: object, cells: RatedCells, *, num_previous: int
) -> np.ndarray:
    """The user's last ratings before each cell, less the mean of all; zero where there are fewer.

    Of ratings given at the same time none is before the other: a cell of a batch sees those before
    the batch. Among them the later in the data counts as the later one.

    Args: times (T,) numbers.
    Returns (M, P) float, the last one first.
    """
    values = np.asarray(train.values, float) - float(np.mean(np.asarray(train.values, float)))
    assert cells.times is not None
    moments, ranks = np.unique(
        np.concatenate([np.asarray(times, float), cells.times]), return_inverse=True
    )
    known, asked = ranks[: len(values)], ranks[len(values) :]
    keys = np.asarray(train.rows, np.int64) * len(moments) + known
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    ends = np.searchsorted(keys, cells.rows.astype(np.int64) * len(moments) + asked)
    starts = np.searchsorted(keys, cells.rows.astype(np.int64) * len(moments))
    indices = ends[:, None] - 1 - np.arange(num_previous)
    return np.where(indices >= starts[:, None], values[np.maximum(indices, 0)], 0.0)


def neighbours(
    train: Entries, *, num_neighbours: int, shrinkage: float = 100.0, num_folds: int = 5
) -> np.ndarray:
    """The items in closest correlation with each item: Pearson's, over the users who rated both.

    The users of a fold (every `num_folds`-th) have items that are close by the ratings of all the
    others. Were a user's own ratings among them, the items whose ratings happen to agree with his
    would be preferred, and would seem to tell more of his training ratings than of his others.

    Args: train: the training ratings of N users and D items; shrinkage: correlations over n users
    are multiplied by n / (n + shrinkage); num_folds: F, at least 2.
    Returns (F, D, Q) int, the closest first; -1 where fewer items have a positive correlation. User
    i belongs to fold i mod F.
    """
    ratings = scipy.sparse.csr_array(train.to_scipy().astype(float))
    # about the mean, or sums of squares of large numbers would cancel
    ratings.data = ratings.data - ratings.data.mean()
    folds = [ratings[fold::num_folds] for fold in range(num_folds)]
    found = np.full((num_folds, train.num_columns, num_neighbours), -1)
    for start in range(0, train.num_columns, _ITEMS_AT_ONCE):
        block = slice(start, min(start + _ITEMS_AT_ONCE, train.num_columns))
        sums = [_sums(fold, block) for fold in folds]
        whole = [sum(parts) for parts in zip(*sums, strict=True)]
        for fold, parts in enumerate(sums):
            others = [one - part for one, part in zip(whole, parts, strict=True)]
            close = _correlations(*others) * others[0] / np.maximum(others[0] + shrinkage, 1)
            np.fill_diagonal(close[:, start:], -np.inf)
            best = np.argsort(-close, axis=1, kind="stable")[:, :num_neighbours]
            # more than rounding
            positive = np.take_along_axis(close, best, axis=1) > 1e-9
            found[fold, block, : best.shape[1]] = np.where(positive, best, -1)
    return found


def neighbour_ratings(train: Entries, similar: np.ndarray, cells: RatedCells) -> np.ndarray:
    """The user's ratings of the items that are close to each cell's, less the items' means.

    Args: similar (F, D, Q) int of `neighbours`.
    Returns (M, Q) float, zero where the user has not rated the item in training.
    """
    rows, columns = np.asarray(train.rows, np.int64), np.asarray(train.columns, np.int64)
    values = np.asarray(train.values, float)
    counts = np.maximum(np.bincount(columns, minlength=train.num_columns), 1)
    means = np.bincount(columns, values, minlength=train.num_columns) / counts
    keys = rows * train.num_columns + columns
    order = np.argsort(keys)
    keys, centred = keys[order], (values - means[columns])[order]
    result = np.zeros((len(cells.rows), similar.shape[2]))
    for start in range(0, len(result), _LOOK_UPS_AT_ONCE):
        some = slice(start, start + _LOOK_UPS_AT_ONCE)
        chosen = similar[cells.rows[some] % len(similar), cells.columns[some]]
        asked = cells.rows[some].astype(np.int64)[:, None] * train.num_columns + chosen
        indices = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        there = (chosen >= 0) & (keys[indices] == asked)
        result[some] = np.where(there, centred[indices], 0.0)
    return result


def _sums(ratings: scipy.sparse.csr_array, block: slice) -> list[np.ndarray]:
    """Sums over the users who rated both items, (B, D) each, of a block of items with all.

    Their number; of ratings of the one and of the other; of squares; of products.
    """
    seen, squares = ratings.copy(), ratings.copy()
    seen.data = np.ones_like(seen.data)
    squares.data = squares.data**2
    left, left_seen, left_squares = (
        scipy.sparse.csr_array(x[:, block].T) for x in (ratings, seen, squares)
    )
    pairs = (
        (left_seen, seen), (left, seen), (left_seen, ratings), (left_squares, seen),
        (left_seen, squares), (left, ratings),
    )  # fmt: skip
    return [(left @ right).toarray() for left, right in pairs]


def _correlations(
    common: np.ndarray,
    left: np.ndarray,
    theirs: np.ndarray,
    my_squares: np.ndarray,
    their_squares: np.ndarray,
    products: np.ndarray,
) -> np.ndarray:
    """(B, D) correlations from sums over the users who rated both."""
    count = np.maximum(common, 1)
    covariance = products - left * theirs / count
    spread = (my_squares - left**2 / count) * (their_squares - theirs**2 / count)
    enough = spread > 1e-9 * count**2
    return np.where(enough, covariance / np.sqrt(np.where(enough, spread, 1)), 0.0)


def _dates(times: np.ndarray, num_train: int, flag_at: float | None) -> dict[str, np.ndarray]:
    """Date and flag of all cells, the first `number` of which are training cells."""
    first, last = times[:num_train].min(), times[:num_train].max()
    date = (times - first) / (last - first if last > first else 1.0)
    found = {"date": date - date[:num_train].mean()}
    if flag_at is not None:
        flag = (times < flag_at).astype(float)
        found["date flag"] = flag - flag[:num_train].mean()
    return found


def _all_cells(
    train: Entries, times: object, new_cells: tuple[object, object] | None, new_times: object
) -> tuple[RatedCells, int]:
    """Training cells and then new ones, checked, and how many the first are."""
    rows, columns = np.asarray(train.rows), np.asarray(train.columns)
    when = None if times is None else _checked_times("times", times, len(rows))
    num_train = len(rows)
    if new_cells is None:
        if new_times is not None:
            raise ValueError("new_times: there are no new_cells that they belong to.")
        return RatedCells(rows, columns, when), num_train
    further = train.row_positions(new_cells[0]), train.column_positions(new_cells[1])
    checks.check_vector("new_cells", further[1], length=len(further[0]), like="its first part")
    if (new_times is None) != (when is None):
        raise ValueError("times and new_times: give both, or none.")
    if when is not None:
        when = np.concatenate([when, _checked_times("new_times", new_times, len(further[0]))])
    rows, columns = np.append(rows, further[0]), np.append(columns, further[1])
    return RatedCells(rows, columns, when), num_train


def _checked_times(name: str, times: object, length: int) -> np.ndarray:
    array = checks.as_numeric(name, times)
    checks.check_vector(name, array, length=length, like="the cells")
    checks.check_finite(name, array)
    return array.astype(float)
