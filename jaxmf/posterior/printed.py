"""Tables as text and as HTML, for results that print themselves."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence


def as_text(lines: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Lines of cells under each other, the first the headings.

    Args:
        lines: as many cells in each.
        right: positions of columns that are set to the right, such as numbers.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_html(lines: Sequence[Sequence[str]]) -> str:
    """The same as a table of HTML, the first line its head."""
    heading, *body = ([html.escape(cell) for cell in line] for line in lines)
    head = "".join(f"<th>{cell}</th>" for cell in heading)
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
