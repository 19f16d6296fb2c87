"""Dates as numbers."""

import datetime as dt
import re

import numpy as np

from jaxmf.data.names import is_missing_id

DATES = "datetime64[us]"
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
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
    """Days since 1970 of dates, or of texts that are all ISO dates; None of anything else."""
    if values.dtype.kind in "biuf":
        return None
    cells = values.tolist() if values.dtype.kind != "M" else list(values)
    there = [cell for cell in cells if not is_missing_id(cell) and cell != ""]
    if there and all(isinstance(cell, str) and _ISO.fullmatch(cell) for cell in there):
        try:
            cells = [
                dt.datetime.fromisoformat(c) if isinstance(c, str) and c else None for c in cells
            ]
        except ValueError:
            return None
    found = microseconds(cells)
    return None if found is None else found / _DAY


def _in_utc(value: object) -> np.datetime64:
    if is_missing_id(value):  # NaT, of pandas too
        return np.datetime64("NaT", "us")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return np.datetime64(value).astype(DATES)  # type: ignore[call-overload]
