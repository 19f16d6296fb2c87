"""Dates as numbers."""

import datetime as dt
import re
from collections.abc import Sequence

import numpy as np

from jaxmf.data.names import is_missing_id

DATES = "datetime64[us]"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d\d?)\2(\d\d?)(?:[T ]+(.*))?")
_YEAR_LAST = re.compile(r"(\d\d?)([-/.])(\d\d?)\2(\d{4})(?:,?[T ]+(.*))?")
_HALF_DAY = re.compile(r"(\d\d?):(\d\d)(:\d\d)? ?([ap])\.?m\.?", re.IGNORECASE)
_DAY = 86_400e6  # microseconds


def microseconds(values: object) -> np.ndarray | None:
    """Microseconds since 1970 of dates, (N,) float, NaN for none; None where not all are dates.

    Times of day with a zone are those of UTC.
    """
    if getattr(getattr(values, "dtype", None), "kind", None) in ("M", "O"):
        values = list(values)  # type: ignore[call-overload]
    if not isinstance(values, list | tuple):
        return None
    is_date = [isinstance(value, dt.date | np.datetime64) for value in values]
    if not any(is_date):
        return None
    if not all(known or is_missing_id(value) for known, value in zip(is_date, values, strict=True)):
        return None
    dates = np.array([_in_utc(value) for value in values], DATES)
    return np.where(np.isnat(dates), np.nan, dates.astype(np.int64).astype(float))


def days(values: np.ndarray) -> np.ndarray | None:
    """Days since 1970 of dates, or of texts that are all dates; None of anything else."""
    if values.dtype.kind in "biuf":
        return None
    cells = values.tolist() if values.dtype.kind != "M" else list(values)
    is_gap = [is_missing_id(cell) or cell == "" for cell in cells]
    there = [cell for cell, gap in zip(cells, is_gap, strict=True) if not gap]
    if there and all(isinstance(cell, str) for cell in there):
        read = dates_of(there)
        if read is None:
            return None
        dates = iter(read)
        cells = [None if gap else next(dates) for gap in is_gap]
    found = microseconds(cells)
    return None if found is None else found / _DAY


def are_dates(texts: Sequence[str]) -> bool:
    """Whether texts are dates, whatever of day and month stands first; see `dates_of`."""
    if all(map(_YEAR_LAST.fullmatch, texts)):
        return any(_ordered(texts, _YEAR_LAST, order) for order in ((3, 2, 0), (3, 0, 2)))
    return dates_of(texts) is not None


def dates_of(texts: Sequence[str]) -> list[dt.datetime] | None:
    """Dates as 2022-11-23, 23.11.2022, 23/11/2022 or 11/23/2022, with a time of day or not.

    Whether the day or the month stands first is seen by all of them; between points it is the day.
    None where one is none of these, or where all can be read in two ways.
    """
    if all(map(_YEAR_FIRST.fullmatch, texts)):
        return _ordered(texts, _YEAR_FIRST, (0, 2, 3))
    if not all(map(_YEAR_LAST.fullmatch, texts)):
        return None
    day_first = _ordered(texts, _YEAR_LAST, (3, 2, 0))
    if all("." in text[:3] for text in texts):
        return day_first
    month_first = _ordered(texts, _YEAR_LAST, (3, 0, 2))
    if day_first is None or month_first is None or day_first == month_first:
        return month_first if day_first is None else day_first
    return None


def _ordered(
    texts: Sequence[str], pattern: re.Pattern[str], order: tuple[int, int, int]
) -> list[dt.datetime] | None:
    """Dates by where year, month and day stand in a pattern; None where one is none."""
    found = []
    for text in texts:
        match = pattern.fullmatch(text)
        assert match is not None
        year, month, day = (int(match[1 + index]) for index in order)
        time = match[5] or "00:00"
        half = _HALF_DAY.fullmatch(time)
        if half is not None:
            hour = int(half[1]) % 12 + 12 * (half[4] in "pP")
            time = f"{hour:02d}:{half[2]}{half[3] or ''}"
        try:
            moment = dt.datetime.fromisoformat(f"{year:04d}-{month:02d}-{day:02d}T{time}")
        except ValueError:
            return None
        found.append(moment)
    return found


def _in_utc(value: object) -> np.datetime64:
    if is_missing_id(value):  # NaT, of pandas too
        return np.datetime64("NaT", "us")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return np.datetime64(value).astype(DATES)  # type: ignore[call-overload]
