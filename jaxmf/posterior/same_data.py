"""Whether several posteriors are of the same data, whatever container holds them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxmf.data import Container, Tokens
from jaxmf.data.container import digest, identity
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.leave_one_out import known_cells


def check(posteriors: Mapping[str, Draws]) -> None:
    """Refuses posteriors whose data are not those of the first."""
    first = next(iter(posteriors))
    data = posteriors[first].data
    prints = fingerprint(data)
    for name, posterior in posteriors.items():
        other = posterior.data
        if fingerprint(other) != prints:
            raise ValueError(
                f"posteriors: {name!r} is of other data than {first!r} ({other.describe()}; "
                f"{data.describe()}). Scores of different cells cannot be compared: run all models "
                "on the same rows, columns and observed cells"
            )
        for word in ("row", "column"):
            ids, others = (getattr(each, f"{word}_names", None) for each in (data, other))
            if ids is not None and others is not None and list(ids) != list(others):
                raise ValueError(
                    f"posteriors: the {word}s of {name!r} are in another order than those of "
                    f"{first!r}, or have other ids; make both from one table"
                )


def fingerprint(data: Container) -> str:
    """SHA-256 of the observed cells in order of rows and columns; of other data of the container.

    An array with missing cells and a list of its observed cells have the same.
    """
    known = known_cells(data)
    if known is None or isinstance(data, Tokens):
        return identity(data)
    rows, columns, values = known
    order = np.lexsort((columns, rows))
    arrays = {
        "rows": rows[order].astype(np.int64),
        "columns": columns[order].astype(np.int64),
        "values": values[order].astype(np.float32),
    }
    return digest("cells", (data.num_rows, data.num_columns), arrays)
