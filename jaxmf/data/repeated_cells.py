"""Ratings of the same cell at several times: the last one counts."""

from pathlib import Path

import numpy as np

from jaxmf.data.dates import dates_of, microseconds
from jaxmf.data.text_tables import as_number
from jaxmf.user_warnings import warn


def latest_of_cells(path: Path, lines: list[list[str]]) -> list[list[str]]:
    """Lines of row, column, value and time: of each cell the one that is last in time.

    Cells stay repeated, for whoever refuses them, where times are neither numbers nor dates,
    all of them with offsets from UTC or none, or where two values of a cell have the last one.
    """
    cells: dict[tuple[str, str], list[int]] = {}
    for position, line in enumerate(lines):
        cells.setdefault((line[0], line[1]), []).append(position)
    if len(cells) == len(lines):
        return lines
    moments = _moments([line[3] for line in lines])
    if moments is None:
        return lines
    last = []
    for positions in cells.values():
        latest = [p for p in positions if moments[p] == moments[positions].max()]
        if len({lines[p][2] for p in latest}) > 1:
            return lines
        last.append(latest[0])
    warn(
        f"{path}: {len(lines) - len(last):,} of {len(lines):,} lines have a row and a column of "
        "another line; of these the last one by time counts."
    )
    return [lines[position] for position in sorted(last)]


def _moments(times: list[str]) -> np.ndarray | None:
    """Numbers in the order of the times; None where that is not known."""
    try:
        found = np.array([as_number(time) for time in times])
    except ValueError:
        dates = dates_of(times)
        has_offset = {date.utcoffset() is not None for date in dates or ()}
        return microseconds(dates) if len(has_offset) == 1 else None
    return found if np.isfinite(found).all() else None
