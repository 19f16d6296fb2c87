"""Location and scale of a dense matrix: what models of numbers centre by and start from.

Sums are taken in 64-bit floats and by blocks of rows, on the host; missing cells are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.linalg import first_direction
from jaxmf.data import checks
from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.data.container import bare
from jaxmf.data.dense import Dense
from jaxmf.data.entries import Entries
from jaxmf.data.process_rows import ROWS_A_BLOCK, rows_on_host
from jaxmf.types import Array, ArrayLike

_UNEQUAL = 30.0
# Levels of the lines of 2,400 matrices of features without levels spread .55 (half of them) to 1.1
# (99 in 100, with 20 lines or more a side; 1.34 with 12 x 6) times as much as what rows and columns
# leave; a few lines may differ by chance.
_LEVEL_SPREAD = 1.3
_FAR_BELOW = 100.0
_MOST_SMALL = 100  # columns of small spread that are looked at
_ROUNDING = 1e-5  # of a value, what may be rounding of 32-bit floats and sums of them
_FEWEST_LEVELS = 10
_FEWEST_CELLS = 10  # of a column whose mean and standard deviation count as known
_FEWEST_OF_SHAPE = 20  # rows, to say anything about the distribution of a column
_MOST_GRADES = 12  # values of a column that are answers or marks
_SKEWED = 1.5
_HEAVY = 10.0  # mean fourth power over the squared variance, of which a normal distribution has 3
COUNTS_REMEDY = (
    "Describe counts by topics, mf.LDA(K) of mf.Tokens.from_counts(table), or their logarithms by "
    "factors, mf.BPMF(K) of np.log1p(table)"
)
_POWER_STEPS = 7
_NORMAL_MEDIAN = NormalDist().inv_cdf(0.75)  # of absolute standard normal numbers
_REDUNDANT = 1e-3  # of the standard deviation of a column, what others leave of it


def column_means(data: Dense | Entries) -> np.ndarray:
    """Means (D,) of the observed cells of each column, of the dtype of the data.

    A column without an observed cell has the mean of all cells.
    """
    if isinstance(data, Entries):
        return _entry_moments(data)[0]
    first, total, count = (np.zeros(data.num_columns) for _ in range(3))
    for _, values, observed in blocks(data):
        start = values[np.argmax(observed, axis=0), np.arange(data.num_columns)]
        # about a cell of the column, or the mean of equal numbers is not always that number
        first = np.where(count > 0, first, start)
        deviation = np.subtract(values, first, dtype=float)
        total += np.sum(deviation, axis=0, where=observed)
        count += np.sum(observed, axis=0)
    overall = np.sum(total + count * first) / np.sum(count)
    means = np.where(count > 0, first + total / np.maximum(count, 1), overall)
    return means.astype(data.values.dtype)


def overall_mean(data: Dense) -> float:
    """Mean of the observed cells."""
    first, total, count = 0.0, 0.0, 0
    for _, values, observed in blocks(data):
        if count == 0:
            first = float(values.ravel()[np.argmax(observed)])
        total += float(np.sum(np.subtract(values, first, dtype=float), where=observed))
        count += int(np.sum(observed))
    return first + total / count


def mean_of_positive(data: Dense) -> float:
    """Mean of the observed cells above 0; 1 where there are none."""
    total, count = 0.0, 0
    for _, values, observed in blocks(data):
        is_positive = observed & (values > 0)
        total += float(np.sum(values, where=is_positive))
        count += int(np.sum(is_positive))
    return total / count if count else 1.0


def column_scales(data: Dense | Entries) -> np.ndarray:
    """Standard deviations (D,) of the observed cells of each column; 0 where none is observed."""
    if isinstance(data, Entries):
        return _entry_moments(data)[1]
    means, total, count = column_means(data), 0.0, 0.0
    for _, values, observed in blocks(data):
        total += np.sum(np.square(values - means, dtype=float), axis=0, where=observed)
        count += np.sum(observed, axis=0)
    return np.sqrt(total / np.maximum(count, 1))


def _entry_moments(data: Entries) -> tuple[np.ndarray, np.ndarray]:
    """Means, and standard deviations, (D,) of the cells of each column: see `column_means`."""
    columns, values = np.asarray(data.columns), np.asarray(data.values, float)
    counts, first = column_counts(data), np.zeros(data.num_columns)
    first[columns] = values  # one cell of each: about it equal cells are exactly zero
    total = np.bincount(columns, values - first[columns], data.num_columns)
    means = np.where(counts > 0, first + total / np.maximum(counts, 1), values.mean())
    squares = np.bincount(columns, (values - means[columns]) ** 2, data.num_columns)
    return means.astype(data.values.dtype), np.sqrt(squares / np.maximum(counts, 1))


def column_counts(data: Dense | Entries) -> np.ndarray:
    """Numbers (D,) of observed cells of each column."""
    if isinstance(data, Entries):
        return np.bincount(np.asarray(data.columns), minlength=data.num_columns)
    counts = np.zeros(data.num_columns, int)
    for _, _, observed in blocks(data):
        counts += np.sum(observed, axis=0)
    return counts


def redundant_columns(data: Dense) -> np.ndarray:
    """Columns of complete data, in their order, that are constant or follow from the others.

    A column follows from those before it if these predict it linearly, by least squares, up to a
    thousandth of its standard deviation. At most 4,096 rows are used.

    Returns (R,) int; constant columns alone if there are fewer than two rows for each column.
    """
    step = -(-data.num_rows // ROWS_A_BLOCK)
    x = np.asarray(data.values[::step], float)
    deviation = x - x.mean(axis=0)
    scale = np.sqrt(np.mean(deviation**2, axis=0))
    varies = np.ptp(x, axis=0) > 0
    found = np.flatnonzero(~varies)
    columns = np.flatnonzero(varies)
    if columns.size and x.shape[0] >= 2 * columns.size:
        # without pivots the k-th diagonal is what the columns before leave of the k-th
        factor = np.linalg.qr(deviation[:, columns] / scale[columns], mode="r")
        left = np.abs(np.diag(factor)) / np.sqrt(x.shape[0])
        found = np.sort(np.concatenate([found, columns[left < _REDUNDANT]]))
    return found


def two_valued_columns(data: Dense) -> np.ndarray:
    """Columns with two values in twenty known cells or more, such as 0 and 1: (R,) int.

    At most 4,096 rows are looked at.
    """
    columns, x = _known_columns(data)
    is_end = (x == np.nanmin(x, axis=0)) | (x == np.nanmax(x, axis=0)) | np.isnan(x)
    return columns[is_end.all(axis=0)]


def graded_columns(data: Dense) -> np.ndarray:
    """Columns with three to twelve values in twenty known cells or more, such as answers: (R,) int.

    At most 4,096 rows are looked at.
    """
    columns, x = _known_columns(data)
    ordered = np.sort(x, axis=0)  # missing cells last
    num_values = 1 + np.sum(np.diff(ordered, axis=0) > 0, axis=0)
    return columns[(num_values > 2) & (num_values <= _MOST_GRADES)]


def skewed_columns(data: Dense) -> np.ndarray:
    """Columns with a long tail that logarithms take away: (R,) int.

    Columns of positive numbers with twenty known cells or more, a skewness above 1.5, and at least
    three times that of their logarithms. (A few cells far from the others, which may be a group,
    are far from them on the scale of logarithms too.) At most 4,096 rows are used.
    """
    columns, x = _known_columns(data)
    is_positive = ((x > 0) | np.isnan(x)).all(axis=0)
    columns, x = columns[is_positive], x[:, is_positive]
    skewness, log_skewness = _skewness(x), _skewness(np.log(x))
    return columns[(skewness > _SKEWED) & (3 * np.abs(log_skewness) < skewness)]


def are_heavy_counts(data: Dense) -> bool:
    """Whether cells are counts whose largest ones no noise of one size describes.

    Whole numbers from 0 to above any scale. Most columns have a 0, and fourth powers about their
    mean of ten times the squared variance or more: normal cells have three times, Poisson ones
    with a mean of several four, those of a feature of one row in fifty 14, but no zeros. At most
    4,096 rows are used; where rows lie in several processes it is not known, and False.
    """
    if are_elsewhere(data):
        return False
    _, x = _known_columns(data)
    is_known = np.isfinite(x)
    if x.size == 0 or not np.all((x[is_known] >= 0) & (x[is_known] % 1 == 0)):
        return False
    squares = np.square(x - np.nanmean(x, axis=0))
    heaviness = np.nanmean(squares**2, axis=0) / np.nanmean(squares, axis=0) ** 2
    is_heavy = (heaviness >= _HEAVY) & (np.nanmin(x, axis=0) == 0)
    return bool(np.nanmax(x) > _MOST_GRADES and np.mean(is_heavy) > 0.5)


def _known_columns(data: Dense) -> tuple[np.ndarray, np.ndarray]:
    """Columns (R,) int that vary and have twenty known cells, and their values (n, R).

    Values are NaN where they are missing. At most 4,096 rows are used.
    """
    rows = slice(None, None, -(-data.num_rows // ROWS_A_BLOCK))
    x = np.asarray(data.values[rows], float)
    if data.observed is not None:
        x = np.where(np.asarray(data.observed[rows]), x, np.nan)
    columns = np.flatnonzero(np.sum(np.isfinite(x), axis=0) >= _FEWEST_OF_SHAPE)
    varies = np.nanmax(x[:, columns], axis=0) > np.nanmin(x[:, columns], axis=0)
    return columns[varies], x[:, columns[varies]]


def _skewness(x: np.ndarray) -> np.ndarray:
    deviation = x - np.nanmean(x, axis=0)
    return np.nanmean(deviation**3, axis=0) / np.nanmean(deviation**2, axis=0) ** 1.5


def row_mean_squares(data: Dense, offset: object = 0.0, scale: object = None) -> np.ndarray:
    """Mean squares (N,) of each row's observed cells about an offset; 0 for an empty row.

    Args: offset, scale: as in `scale_about`.
    """
    pieces = []
    for _, values, observed in blocks(data):
        squares = _squares(values, offset, scale)
        total = np.sum(squares, axis=1, where=observed)
        pieces.append(total / np.maximum(np.sum(observed, axis=1), 1))
    return np.concatenate(pieces)


def _squares(values: np.ndarray, offset: object, scale: object) -> np.ndarray:
    about = values - np.asarray(offset, float)
    return np.square(about if scale is None else about / np.asarray(scale, float), dtype=float)


def scale_about(data: Dense, offset: object = 0.0, scale: object = None) -> float:
    """Root mean square of the observed cells about an offset.

    Where all of them equal the offset it is not defined: then the largest absolute value of
    the data, and 1 where they are all zero.

    Args: offset: number, or (D,) one a column; scale: likewise, what cells are divided by then.
    """
    total, count, largest = 0.0, 0, 0.0
    for _, values, observed in blocks(data):
        squares = _squares(values, offset, scale)
        total += float(np.sum(squares, where=observed))
        count += int(np.sum(observed))
        largest = max(largest, float(np.max(np.abs(values), where=observed, initial=0.0)))
    return float(np.sqrt(total / count)) or largest or 1.0


def least_noise(data: Dense) -> float:
    """The smallest noise scale to allow, as a share of the root mean square of the data.

    Equal cells draw the noise towards zero, and then ever more and smaller features explain the
    rest. A tenth if more than half of the observed cells are equal, else a hundredth.
    """
    return 0.1 if _common_value(data) is not None else 0.01


def note_of_common_value(data: Dense | Entries) -> tuple[str, ...]:
    """For `Model.notes`: a sentence if more than half of the cells are equal."""
    value = _common_value(data)
    if value is None:
        return ()
    found = f"more than half of the cells are {value:.6g}, which Gaussian noise does not describe: "
    if isinstance(data, Entries):
        found += "their intervals are too wide, and those of the other cells too narrow"
    else:
        found += (
            "a noise scale that is left open was kept above a tenth of the root mean square of the "
            "data"
        )
    if value == 0:
        found += "; if they come from counts, models of counts, such as LDA(K), describe the zeros"
    return (found,)


def _common_value(data: Dense | Entries) -> float | None:
    """The number that more than half of the observed cells equal; None if all or none do.

    Only the median of the first block of rows is tried.
    """
    equal, count, middle = 0, 0, None
    for values in _observed_blocks(data):
        if middle is None and values.size:
            middle = float(np.median(values))
        equal += int(np.sum(values == middle))
        count += int(values.size)
    return middle if 0.5 < equal / max(count, 1) < 1 else None


def _observed_blocks(data: Dense | Entries) -> Iterator[np.ndarray]:
    """Their values; none of cells that lie in several processes."""
    if isinstance(data, Dense):
        yield from (values[observed] for _, values, observed in blocks(data))
    elif not are_elsewhere(data):
        yield np.asarray(data.values)


def check_magnitude(data: Dense, name: str) -> None:
    """Refuses numbers whose squares, summed and divided, leave the range of the data's floats.

    Raises ValueError: the largest absolute value is above 2.5e15 or, not 0, below 2.7e-16 (with
    32-bit floats; the 0.4th power of their range).
    """
    if checks.is_traced(data.values):
        return
    limits = np.finfo(data.values.dtype)
    value, row, column = 0.0, 0, 0
    for start, values, _ in blocks(data):
        at, here = np.unravel_index(np.argmax(np.abs(values)), values.shape)
        if np.abs(values[at, here]) > np.abs(value):
            value, row, column = values[at, here], start + int(at), int(here)
    largest = float(np.abs(value))
    if largest == 0 or float(limits.tiny) ** 0.4 <= largest <= float(limits.max) ** 0.4:
        return
    action = "Divide" if largest > 1 else "Multiply"
    power = f"1e{abs(int(np.floor(np.log10(largest))))}"
    raise ValueError(
        f"{name}: the largest value is {value:g}, at row {row}, column {column}; "
        f"squares of such values leave the range of {limits.bits}-bit floats. {action} the data "
        f"by {power}, that is, take another unit"
    )


def are_different(data: Dense | Entries, scales: np.ndarray) -> bool:
    """Whether columns are so unequal that they must be in different units.

    They are if the largest standard deviation is more than 30 times the median of the columns that
    vary, so that half of them have a thousandth of its variance or less. They also are if it is
    more than 100 times that of a column of measurements: one with ten cells, no value in more than
    half of them, and a variation above the rounding of floats.

    Args: scales (D,) standard deviations of the columns; 0 for columns that do not count.
    """
    varied = np.sort(scales[scales > 0])
    if not varied.size:
        return False
    if varied[-1] > _UNEQUAL * varied[(varied.size - 1) // 2]:
        return True
    small = np.flatnonzero((scales > 0) & (_FAR_BELOW * scales < varied[-1]))
    small = small[np.argsort(-scales[small])][:_MOST_SMALL]
    return any(_are_measurements(cells) for cells in _cells_of_columns(data, small))


def _are_measurements(cells: np.ndarray) -> bool:
    """Whether there are ten cells (n,) or more, not mostly equal, and not equal up to rounding."""
    if cells.size < _FEWEST_CELLS:
        return False
    counts = np.unique(cells, return_counts=True)[1]
    rounding = _ROUNDING * np.abs(cells).max(initial=0)
    return bool(counts.max() <= cells.size / 2) and bool(np.std(cells, dtype=float) > rounding)


def _cells_of_columns(data: Dense | Entries, chosen: np.ndarray) -> list[np.ndarray]:
    """The observed cells (n,) of some columns."""
    if not chosen.size:
        return []
    if isinstance(data, Entries):
        columns, values = np.asarray(data.columns), np.asarray(data.values)
        return [values[columns == column] for column in chosen]
    pieces = [(values[:, chosen], observed[:, chosen]) for _, values, observed in blocks(data)]
    values, observed = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return [values[observed[:, j], j] for j in range(chosen.size)]


def different_units(
    data: Dense | Entries, spreads: np.ndarray, *, always: bool = False
) -> tuple[np.ndarray, np.ndarray] | None:
    """Means and units (D,) of columns in different units, of the dtype of the data; None if alike.

    The unit of a column is its standard deviation. If its cells are equal, the unit is 1; for a
    single cell it is the size of this cell, and for a column without cells that of all others.

    Args: spreads: the `column_scales` of the data; always: whether units are wanted even if the
    columns are alike.
    """
    if not (always or are_different(data, spreads)):
        return None
    return column_means(data), units_of_spreads(data, spreads)


def units_of_spreads(data: Dense | Entries, spreads: np.ndarray) -> np.ndarray:
    """Units (D,) of columns with these spreads, of the dtype of the data: see `different_units`."""
    means, counts = column_means(data), column_counts(data)
    size = np.where(counts == 1, np.abs(means), 1)
    if not counts.all():
        size = np.where(counts == 0, _overall_scale(data), size)
    unit = np.where(spreads > 0, spreads, np.where(size > 0, size, 1))
    return unit.astype(means.dtype)


def _overall_scale(data: Dense | Entries) -> float:
    if isinstance(data, Entries):
        return float(np.std(np.asarray(data.values, float)))
    return scale_about(data, overall_mean(data))


def note_of_units(
    data: Dense | Entries,
    unit: ArrayLike | None,
    what: str,
    *,
    spreads: np.ndarray | None = None,
) -> tuple[str, ...]:
    """For `Model.notes`: a sentence if columns were taken in `different_units`.

    Args: unit: of the columns of a model; what: the parts of the model that are in standard
    deviations then; spreads: the standard deviations that it uses, None for `column_scales`.
    """
    if unit is None or not np.ndim(unit):
        return ()
    spreads = column_scales(data) if spreads is None else spreads
    is_found = are_different(data, spreads)
    if not is_found or not np.array_equal(np.asarray(unit), units_of_spreads(data, spreads)):
        return ()  # stated by the user
    varied = spreads[spreads > 0]
    num_few = int(np.sum(column_counts(data) < _FEWEST_CELLS))
    about_few = (
        f"; {num_few} of {data.num_columns} columns have fewer than {_FEWEST_CELLS} cells, too few "
        "to know their unit by, and their intervals are too narrow"
    )
    return (
        f"columns are in different units (standard deviations {varied.min():.3g} to "
        f"{varied.max():.3g}), so cells were taken about the mean of their column and divided by "
        f"its standard deviation: {what} are in standard deviations, predictions in the units of "
        f"the data{about_few if num_few else ''}",
    )


def levels_differ(data: Dense) -> tuple[bool, bool]:
    """Whether means of rows, and means of columns, vary more than the residuals of cells.

    The standard deviation of the means is more than 1.3 times that of the cells about the means of
    their row and column. Fewer than ten rows, or columns, say nothing about a spread.
    """
    columns = column_means(data).astype(float)
    rows, total, squares = [], 0.0, 0.0
    for _, values, observed in blocks(data):
        about = np.subtract(values, columns, dtype=float)
        count = np.sum(observed, axis=1)
        mean = np.sum(about, axis=1, where=observed) / np.maximum(count, 1)
        squares += float(np.sum((about - mean[:, None]) ** 2, where=observed))
        total += float(np.sum(observed))
        rows.append(mean[count > 0])
    rest = np.sqrt(squares / total)

    def differ(means: np.ndarray) -> bool:
        return means.size >= _FEWEST_LEVELS and bool(np.std(means) > _LEVEL_SPREAD * rest)

    return differ(np.concatenate(rows)), differ(columns)


def is_more_than_noise(data: Dense, offset: object = 0.0, scale: object = None) -> bool:
    """Whether the first singular vectors of the cells about an offset stand out from noise.

    The largest singular value of N x D cells of noise is about its standard deviation times
    sqrt(N) + sqrt(D). At most 4,096 rows are looked at, by a few steps of the power method.

    Args: offset, scale: as in `scale_about`.
    """
    rows = slice(None, None, -(-data.num_rows // ROWS_A_BLOCK))
    about = np.array(rows_on_host(data.values, rows))  # the one copy: rows may be wide
    about -= np.asarray(offset, float)
    if scale is not None:
        about /= np.asarray(scale, float)
    if data.observed is not None:
        about[~rows_on_host(data.observed, rows)] = 0
    # fourth powers of cells in any unit would leave the range of floats
    about /= np.max(np.abs(about), initial=0) or 1
    edge = np.linalg.norm(about) / np.sqrt(about.size) * np.sum(np.sqrt(about.shape))
    return bool(np.linalg.norm(about @ first_direction(about, _POWER_STEPS)) > edge)


def scale_of_bulk(deviation: np.ndarray) -> float:
    """The standard deviation of a normal distribution with the same median absolute deviation.

    Args: deviation (n,) float from the middle; signs are ignored.
    """
    return float(np.median(np.abs(deviation)) / _NORMAL_MEDIAN)


def column_medians(data: Dense) -> np.ndarray:
    """Medians (D,) of the observed cells of each column, 0 where none is observed."""
    pieces = []
    for start in range(0, data.num_columns, ROWS_A_BLOCK):
        some = slice(start, start + ROWS_A_BLOCK)
        pieces.append(_medians(np.concatenate([x[:, some] for x in _cells(data)]).T))
    return np.concatenate(pieces)


def row_medians(data: Dense, offset: object = 0.0) -> np.ndarray:
    """Medians (N,) of each row's observed cells about an offset; 0 of a row without any.

    Args: offset: number, or (D,) one a column.
    """
    about = np.asarray(0.0 if offset is None else offset, data.values.dtype)
    return np.concatenate([_medians(x - about) for x in _cells(data)])


def _cells(data: Dense) -> Iterator[np.ndarray]:
    """Blocks of rows on the host, NaN where a cell is missing."""
    for _, values, observed in blocks(data):
        yield values if data.observed is None else np.where(observed, values, np.nan)


def _medians(lines: np.ndarray) -> np.ndarray:
    """Medians (M,) of each line's numbers, 0 of lines without any."""
    there = np.isfinite(lines).any(axis=1)
    return np.nanmedian(np.where(there[:, None], lines, 0), axis=1).astype(lines.dtype)


def centred(data: Dense, offset: object, scale: object = None) -> Dense:
    """The data minus an offset, over a scale; missing cells 0 as before; in a transformation too.

    Args: offset: number, (D,) one a column, (N, D), or None for no offset; scale: number, (D,) one
    a column, or None for 1.
    """
    if offset is None and scale is None:
        return data
    values: Array = data.values
    if offset is not None:
        values = values - jnp.asarray(offset, values.dtype)
    if scale is not None:
        values = values / jnp.asarray(scale, values.dtype)
    if data.observed is not None:
        values = jnp.where(data.observed, values, 0)
    return bare(Dense, values=values, observed=data.observed, row_names=None, column_names=None)


def blocks(data: Dense) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Blocks of rows on the host: the first of them, values, and which are observed."""
    for start in range(0, data.num_rows, ROWS_A_BLOCK):
        rows = slice(start, start + ROWS_A_BLOCK)
        values = rows_on_host(data.values, rows)
        observed = True if data.observed is None else rows_on_host(data.observed, rows)
        yield start, values, np.broadcast_to(observed, values.shape)
