"""Cells whose row or column was not in the data: what the prior says of them."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxmf.data import Entries
from jaxmf.data.container import bare
from jaxmf.data.names import Positions, object_array
from jaxmf.model import TakesUnknownIds
from jaxmf.posterior.named_cells import pair_of, positions_or_unknown

if TYPE_CHECKING:
    from jaxmf.posterior.posterior import Posterior


def with_unknown(posterior: Posterior, cells: Any, seed: int) -> tuple[Posterior, Any]:
    """The posterior with a row and a column for every unknown id of some cells.

    Args:
        posterior: of a model that draws rows and columns from their prior.
        cells: as a user names them; None for the missing ones, which have no unknown id.
        seed: of these draws.
    Returns:
        The posterior of the larger matrix, and the positions of the cells in it.
    Raises:
        ValueError: the model draws none.
    """
    model, data = posterior.model, posterior.data
    if not isinstance(model, TakesUnknownIds):
        raise ValueError(
            f'unknown="prior": {type(model).__name__} answers for rows and columns of the data '
            'alone; use "error" or "drop", or predict(new_rows=)'
        )
    if cells is None:
        return posterior, None
    pair = pair_of(cells, data)
    if isinstance(pair, Positions):
        return posterior, pair
    pairs = zip(pair, ("row", "column"), strict=True)
    sides = [_with_new_ids(index, data, word) for index, word in pairs]
    where = Positions(sides[0][0], sides[1][0])
    counts = len(sides[0][1]), len(sides[1][1])
    if counts == (0, 0):
        return posterior, where
    names = [
        _longer(known, new)
        for known, (_, new) in zip((data.row_names, data.column_names), sides, strict=True)
    ]
    shape = data.num_rows + counts[0], data.num_columns + counts[1]
    arrays = {"rows": data.rows, "columns": data.columns, "values": data.values}
    larger = bare(Entries, **arrays, shape=shape, row_names=names[0], column_names=names[1])
    draws = posterior.draws | _vectors(posterior, counts, seed)
    larger_model = model.with_unknown(counts, data.shape)
    return dataclasses.replace(posterior, model=larger_model, data=larger, draws=draws), where


def _with_new_ids(index: Any, data: Any, word: str) -> tuple[np.ndarray, list[Any]]:
    """Positions, unknown ids standing below the known ones, and the unknown ids."""
    found = positions_or_unknown(index, data, word)
    unknown = np.flatnonzero(found < 0)
    if not unknown.size:
        return found, []
    asked = object_array(index).tolist()
    new: dict[Any, int] = {}
    for position in unknown:
        found[position] = getattr(data, f"num_{word}s") + new.setdefault(asked[position], len(new))
    return found, list(new)


def _longer(known: Any, new: list[Any]) -> Any:
    return object_array([*known.tolist(), *new]) if new else known


def _vectors(posterior: Posterior, counts: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    """The vectors of rows and columns of every draw, with those of the unknown ones."""
    size = posterior.num_chains * posterior.num_draws
    draws = {name: x.reshape(size, *x.shape[2:]) for name, x in posterior.draws.items()}
    keys = jax.random.split(jax.random.key(seed), size)
    found = _drawn(posterior.model, keys, draws, posterior.data, counts=counts)
    return {
        name: np.asarray(x).reshape(posterior.num_chains, posterior.num_draws, *x.shape[1:])
        for name, x in found.items()
    }


@partial(jax.jit, static_argnames="counts")
def _drawn(model: Any, keys: Any, draws: Any, data: Any, counts: tuple[int, int]) -> Any:
    def one(both: Any) -> Any:
        return model.draw_unknown(both[0], both[1], data, counts)

    return jax.lax.map(one, (keys, draws))
