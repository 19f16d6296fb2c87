"""Cells whose row or column was not in the data: what the prior says of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax
import numpy as np

from jaxmf.data import Container, Entries, SparseBinary
from jaxmf.data.container import bare
from jaxmf.data.names import Positions, object_array
from jaxmf.model import TakesUnknownIds
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.named_cells import pair_of, positions_or_unknown
from jaxmf.programs import jit
from jaxmf.types import Array, Draw, Key, PyTree

_WITHOUT_ONES = '. For a row without ones pass new_rows=SparseBinary.from_baskets({"its id": []}).'


def with_unknown(posterior: Draws, cells: object, seed: int) -> tuple[Draws, PyTree]:
    """The posterior with a row and a column for every unknown id of some cells.

    Args:
        cells: as a user names them; None for the missing ones, which have no unknown id.
    Returns:
        The posterior of the larger matrix, and the positions of the cells in it.
    Raises:
        ValueError: the model draws none.
    """
    _check_prior(posterior)
    if cells is None:
        return posterior, None
    data = posterior.data
    pair = pair_of(cells, data)
    if isinstance(pair, Positions):
        return posterior, pair
    pairs = zip(pair, ("row", "column"), strict=True)
    (rows, new_rows), (columns, new_columns) = (_with_new_ids(i, data, word) for i, word in pairs)
    return _enlarged(posterior, (new_rows, new_columns), seed), Positions(rows, columns)


def with_unknown_rows(posterior: Draws, rows: object, seed: int) -> tuple[Draws, np.ndarray]:
    """The posterior with a row for every unknown id of some rows, and the positions of these.

    Args: posterior: of a model that draws rows from their prior; rows: ids, or positions, as a user
    names them.
    Raises ValueError: the model draws none.
    """
    _check_prior(posterior)
    positions, new = _with_new_ids(rows, posterior.data, "row")
    return _enlarged(posterior, (new, []), seed), positions


def beside_new_columns(posterior: Draws, cells: object, seed: int) -> tuple[Draws, object]:
    """The posterior with a row for every unknown id of rows of some cells, which are as before.

    Args: cells: of columns of which no cell is known, as a user names them; None for all.
    """
    _check_prior(posterior)
    if cells is None or isinstance(cells, Positions):
        return posterior, cells
    pair = pair_of(cells, posterior.data)
    if isinstance(pair, Positions):
        return posterior, cells
    return with_unknown_rows(posterior, pair[0], seed)[0], pair


def _check_prior(posterior: Draws) -> None:
    model = posterior.model
    if not isinstance(model, TakesUnknownIds):
        raise ValueError(
            f'unknown="prior": {type(model).__name__} answers for rows and columns of the data '
            'alone; use "error" or "drop", or new_rows= with what is known of the row'
            + (_WITHOUT_ONES if isinstance(posterior.data, SparseBinary) else "")
        )


def answers_unknown(posterior: Draws, word: str) -> bool:
    """Whether ``unknown="prior"`` answers for a further row, or column, as the word says."""
    model = posterior.model
    if not isinstance(model, TakesUnknownIds):
        return False
    shape = posterior.data.num_rows, posterior.data.num_columns
    try:
        model.with_unknown((1, 0) if word == "row" else (0, 1), shape)
    except ValueError:
        return False
    return True


def _enlarged(posterior: Draws, new: tuple[list[object], list[object]], seed: int) -> Draws:
    """The posterior of the matrix with rows and columns of these ids below and beside it."""
    counts = len(new[0]), len(new[1])
    if counts == (0, 0):
        return posterior
    data = posterior.data
    names = [
        object_array([*known.tolist(), *more]) if more else known
        for known, more in zip((data.row_names, data.column_names), new, strict=True)
    ]
    shape = data.num_rows + counts[0], data.num_columns + counts[1]
    arrays = {"rows": data.rows, "columns": data.columns, "values": data.values}
    larger = bare(Entries, **arrays, shape=shape, row_names=names[0], column_names=names[1])
    draws = posterior.draws | _vectors(posterior, counts, seed)
    model = posterior.model.with_unknown(counts, data.shape)
    return dataclasses.replace(posterior, model=model, data=larger, draws=draws)


def _with_new_ids(index: object, data: Container, word: str) -> tuple[np.ndarray, list[object]]:
    """Positions, unknown ids standing below the known ones, and the unknown ids."""
    found = positions_or_unknown(index, data, word)
    unknown = np.flatnonzero(found < 0)
    if not unknown.size:
        return found, []
    single = isinstance(index, str) or not isinstance(index, Iterable)
    asked = object_array([index] if single else index).tolist()
    new: dict[object, int] = {}
    for position in unknown:
        found[position] = getattr(data, f"num_{word}s") + new.setdefault(asked[position], len(new))
    return found, list(new)


def _vectors(posterior: Draws, counts: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """The vectors of rows and columns of every draw, with those of the unknown ones."""
    size = posterior.num_chains * posterior.num_draws
    draws = {name: x.reshape(size, *x.shape[2:]) for name, x in posterior.draws.items()}
    keys = jax.random.split(jax.random.key(seed), size)
    found = _drawn(posterior.model, keys, draws, posterior.data, counts=counts)
    return {
        name: np.asarray(x).reshape(posterior.num_chains, posterior.num_draws, *x.shape[1:])
        for name, x in found.items()
    }


@jit(static_argnames="counts")
def _drawn(
    model: TakesUnknownIds[Container],
    keys: Array,
    draws: Draw,
    data: Container,
    counts: tuple[int, int],
) -> Draw:
    def one(both: tuple[Key, Draw]) -> Draw:
        return model.draw_unknown(both[0], both[1], data, counts)

    return jax.lax.map(one, (keys, draws))
