"""Moves of BPMF along what cells leave open, see `samplers/factors/shifts.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from jaxmf.models.bpmf.state import Prepared, SideLaw, State
from jaxmf.samplers.factors import shifts
from jaxmf.samplers.factors.link import slices
from jaxmf.special import as_normals, uniforms
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.bpmf.model import BPMF


def shift(model: BPMF, key: Key, state: State, data: Prepared) -> State:
    """Kernel: what both sides, means and features share, moved between them; no cell changes.

    Of sides without groups; those of a mixture have means for every group.
    """
    width = model.core_width
    num_cells = 0 if model.cell_features is None else model.cell_features.width
    num_parts = [len(data.row_spectra), len(data.column_spectra)]
    flat = as_normals(uniforms(key, ((2 + sum(num_parts)) * width + num_cells,)))
    of_level = flat[: 2 * width].reshape(2, width)
    of_parts = flat[2 * width : flat.shape[0] - num_cells].reshape(-1, width)
    state = _shift_parts(model, of_parts[: num_parts[0]], state, data)
    turned = _shift_parts(
        model.transpose(), of_parts[num_parts[0] :], state.transpose(), data.transpose()
    )
    state = turned.transpose()
    if model.biases and model.mixture == (None, None):
        state = _shift_level(model, of_level[0], state)
        turned = _shift_level(model.transpose(), of_level[1], state.transpose())
        state = turned.transpose()
    if num_cells:
        state = _shift_cells(model, flat[flat.shape[0] - num_cells :], state)
    return state


def _shift_level(model: BPMF, normals: Array, state: State) -> State:
    """The rows' factors and biases against the columns' biases."""
    width = model.core_width
    rows, columns = shifts.shift_level(
        normals,
        _core(state.u, state.row_law, width),
        _core(state.v, state.column_law, width),
        row_prior=model.row_law_prior(),
        column_prior=model.transpose().row_law_prior(),
    )
    return state._replace(
        u=_with_core(state.u, rows.vectors),
        v=_with_core(state.v, columns.vectors),
        row_law=state.row_law._replace(law=rows.law, link=rows.link),
        column_law=state.column_law._replace(law=columns.law, link=columns.link),
    )


def _core(vectors: Array, side: SideLaw, width: int) -> shifts.Side:
    return shifts.Side(vectors[:, :width], side.law, side.link)


def _with_core(vectors: Array, core: Array) -> Array:
    width = core.shape[1]
    if vectors.shape[1] == width:
        return core
    return jnp.concatenate([core, vectors[:, width:]], axis=1)


def _shift_parts(model: BPMF, normals: Array, state: State, data: Prepared) -> State:
    """The rows' mean against what the link has in common in a part with one level a row."""
    features, side = model.row_link(), state.row_law
    if features is None or side.mixture is not None:
        return state
    law, link = side.law, side.link
    for place, part in enumerate(slices(features)):
        law, lines = shifts.shift_part(
            normals[place],
            law,
            link[part],
            precision=side.link_precision[place],
            length=data.row_spectra[place].total,
            prior=model.row_law_prior(),
        )
        link = link.at[part].set(lines)
    return state._replace(row_law=side._replace(law=law, link=link))


def _shift_cells(model: BPMF, normals: Array, state: State) -> State:
    """The means of the rows' coefficients of cells against those of the columns'."""
    number = normals.shape[0]
    sides = [state.row_law.coefficients, state.column_law.coefficients]
    ends = [
        (side.mean[-number:], jnp.broadcast_to(side.precision[-1], (number,))) for side in sides
    ]
    (mean, precision), (other_mean, other_precision) = ends
    moved = shifts.shift_shared(normals, (mean, other_mean), (precision, other_precision))

    def by(vectors: Array, side: SideLaw, change: Array) -> tuple[Array, SideLaw]:
        own = side.coefficients
        own = own._replace(mean=own.mean.at[-number:].add(change))
        return vectors.at[:, -number:].add(change), side._replace(coefficients=own)

    u, row_law = by(state.u, state.row_law, moved)
    v, column_law = by(state.v, state.column_law, -moved)
    return state._replace(u=u, v=v, row_law=row_law, column_law=column_law)
