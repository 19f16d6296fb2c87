"""Moves of BPMF along what cells leave open, see `samplers/factors/shifts.py`."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec, parts_with_coefficients
from jaxmf.models.bpmf.state import BPMFState, PreparedRatings, SidePrior
from jaxmf.samplers.factors import scales, shifts
from jaxmf.samplers.factors.link import slices
from jaxmf.samplers.factors.moments import precisions
from jaxmf.types import Array, Key


def shift(model: BPMFSpec, key: Key, state: BPMFState, data: PreparedRatings) -> BPMFState:
    """Kernel: what both sides, means and features share, moved between them; no cell changes.

    Of sides without groups; those of a mixture have means for every group.
    """
    width, num_factors = model.core_width, model.num_factors
    num_cells = 0 if model.cell_features is None else model.cell_features.width
    num_parts = [len(data.row_spectra), len(data.column_spectra)]
    shapes = [(2, width), (sum(num_parts), width), (num_cells,), (2, num_factors)]
    shapes += [(known.shape[1], num_factors) for known in (data.known.columns, data.known.rows)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    flat = uniforms(key, (int(ends[-1]),))
    drawn = zip(jnp.split(flat, ends[:-1]), shapes, strict=True)
    level, parts, cells, stretch, *shared = (part.reshape(shape) for part, shape in drawn)
    for index in range(2):  # the rows, then the columns
        side_parts = parts[: num_parts[0]] if index == 0 else parts[num_parts[0] :]
        state = _shift_parts(model, as_normals(side_parts), state, data)
        state = _shift_features(model, as_normals(shared[index]), state, data)
        model, state, data = model.transpose(), state.transpose(), data.transpose()
    if model.mixture == (None, None):
        if model.bias:
            for normals in as_normals(level):
                state = _shift_level(model, normals, state)
                model, state = model.transpose(), state.transpose()
        if num_factors:
            state = _scale_factors(model, stretch, state)
    if num_cells:
        state = _shift_cells(as_normals(cells), state)
    return state


def _shift_features(
    model: BPMFSpec, normals: Array, state: BPMFState, data: PreparedRatings
) -> BPMFState:
    """The rows' coefficients of features of the columns against the factors' link with these."""
    features, columns = model.column_features, state.column_side
    linked = model.column_link()
    if features is None or linked is None or columns.mixture is not None or not model.num_factors:
        return state
    part_indices = {part.start: index for index, part in enumerate(slices(linked))}
    width, start = model.core_width, 0
    inverse = precisions(shifts.after_moments(columns.moments, state.v))[0]
    factors, coefficients = state.u[:, : model.num_factors], state.row_side.coefficients
    for index, (first, last) in enumerate(parts_with_coefficients(features, model.coefficients)):
        part = slice(start, start + last - first)
        chosen = slice(width + part.start, width + part.stop)
        moved = shifts.shift_features(
            normals[part],
            factors,
            state.u[:, chosen] - coefficients.mean[part],
            state.column_side.link[first:last],
            precision=coefficients.precision[index],
            inverse=inverse,
            line_precision=columns.link_precision[part_indices[first]],
        )
        link = state.column_side.link.at[first:last, : model.num_factors].add(-moved)
        state = state._replace(
            u=state.u.at[:, chosen].add(factors @ moved.T),
            v=state.v.at[:, : model.num_factors].add(-data.known.columns[:, part] @ moved),
            column_side=state.column_side._replace(link=link),
        )
        start = part.stop
    return state


def _scale_factors(model: BPMFSpec, draws: Array, state: BPMFState) -> BPMFState:
    """Each factor of the rows against the same of the columns."""
    width = model.core_width
    rows, columns = scales.scale_factors(
        as_normals(draws[0]),
        draws[1],
        _core(state.u, state.row_side, width),
        _core(state.v, state.column_side, width),
        row_prior=model.row_hyperprior(),
        column_prior=model.transpose().row_hyperprior(),
    )
    return _with_sides(state, rows, columns)


def _shift_level(model: BPMFSpec, normals: Array, state: BPMFState) -> BPMFState:
    """The rows' factors and biases against the columns' biases."""
    width = model.core_width
    rows, columns = shifts.shift_level(
        normals,
        _core(state.u, state.row_side, width),
        _core(state.v, state.column_side, width),
        row_prior=model.row_hyperprior(),
        column_prior=model.transpose().row_hyperprior(),
    )
    return _with_sides(state, rows, columns)


def _with_sides(state: BPMFState, rows: shifts.FactorSide, columns: shifts.FactorSide) -> BPMFState:
    return state._replace(
        u=_with_core(state.u, rows.vectors),
        v=_with_core(state.v, columns.vectors),
        row_side=state.row_side._replace(moments=rows.moments, link=rows.link),
        column_side=state.column_side._replace(moments=columns.moments, link=columns.link),
    )


def _core(vectors: Array, side: SidePrior, width: int) -> shifts.FactorSide:
    return shifts.FactorSide(vectors[:, :width], side.moments, side.link)


def _with_core(vectors: Array, core: Array) -> Array:
    width = core.shape[1]
    if vectors.shape[1] == width:
        return core
    return jnp.concatenate([core, vectors[:, width:]], axis=1)


def _shift_parts(
    model: BPMFSpec, normals: Array, state: BPMFState, data: PreparedRatings
) -> BPMFState:
    """The rows' mean against what the link has in common in a part with one level a row."""
    features, side = model.row_link(), state.row_side
    if features is None or side.mixture is not None:
        return state
    moments, link = side.moments, side.link
    for index, part in enumerate(slices(features)):
        moments, lines = shifts.shift_part(
            normals[index],
            moments,
            link[part],
            precision=side.link_precision[index],
            length=data.row_spectra[index].total,
            prior=model.row_hyperprior(),
        )
        link = link.at[part].set(lines)
    return state._replace(row_side=side._replace(moments=moments, link=link))


def _shift_cells(normals: Array, state: BPMFState) -> BPMFState:
    """The means of the rows' coefficients of cells against those of the columns'."""
    num_cells = normals.shape[0]
    sides = [state.row_side.coefficients, state.column_side.coefficients]
    ends = [
        (side.mean[-num_cells:], jnp.broadcast_to(side.precision[-1], (num_cells,)))
        for side in sides
    ]
    (mean, precision), (other_mean, other_precision) = ends
    moved = shifts.shift_shared(normals, (mean, other_mean), (precision, other_precision))

    def by(vectors: Array, side: SidePrior, change: Array) -> tuple[Array, SidePrior]:
        moved = side.coefficients
        moved = moved._replace(mean=moved.mean.at[-num_cells:].add(change))
        return vectors.at[:, -num_cells:].add(change), side._replace(coefficients=moved)

    u, row_side = by(state.u, state.row_side, moved)
    v, column_side = by(state.v, state.column_side, -moved)
    return state._replace(u=u, v=v, row_side=row_side, column_side=column_side)
