"""The Markov chain of BPMF: the algorithm that its kernels make."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.special import as_normals, loggammas, uniforms, uniforms_at
from jaxmf.data import Entries
from jaxmf.engine import Info
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.models.bpmf import density, groups, moves
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, PreparedRatings, SidePrior
from jaxmf.models.bpmf.updates import (
    MomentDraws,
    gamma_shapes,
    means_of_data,
    noise_shape,
    squares_of_columns,
    update_column_noise,
    update_noise,
    update_row_prior,
    update_row_vectors,
    wait,
)
from jaxmf.priors import column_noise, hyper
from jaxmf.samplers.factors import coefficients
from jaxmf.samplers.factors.shares import ROW_ARRAYS, Shares, uniforms_of_rows
from jaxmf.types import Array, Draw, Key

# Folded into the key of a step, each by one of its parts. A new part takes the next number: with
# another order every seed would give other draws.
_AUGMENTATION, _NORMALS, _GAMMAS, _ROW_PRIOR, _COLUMN_PRIOR = range(5)
_NOISE, _SHIFTS, _ROW_VECTORS, _COLUMN_VECTORS, _COLUMN_NOISE = range(5, 10)


@jax.tree_util.register_static
@dataclass(frozen=True)
class BPMFPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    keep_factors: bool
    num_slots: int = 1
    split_merge: int = 0


def init(plan: BPMFPlan, model: BPMFSpec, key: Key, data: Entries | PreparedRatings) -> BPMFState:
    """Factors standard normal, biases zero, coefficients small; groups see `groups.start`."""
    data = model.prepare(data)
    u = _start(model, jax.random.fold_in(key, 0), data.num_rows)
    v = _start(model.transpose(), jax.random.fold_in(key, 1), data.num_columns)
    return BPMFState(
        u=u,
        v=v,
        row_side=_start_prior(plan, model, jax.random.fold_in(key, 2), u),
        column_side=_start_prior(plan, model.transpose(), jax.random.fold_in(key, 3), v),
        noise=_start_noise(model, data),
        column_noise=column_noise.start(v.shape[0], v.dtype) if model.column_noise else None,
    )


def _start_noise(model: BPMFSpec, data: PreparedRatings) -> Array:
    noise, cells = model.cell_noise(data.unit), data.cells
    if not model.is_normal:
        return noise.start(cells.values)
    return noise.start(cells.values, data.unit, where=cells.are_cells)


def _start(model: BPMFSpec, key: Key, num_rows: int) -> Array:
    # smaller factors leave their saddle late: at a standard deviation of 0.1 chains on a million
    # ratings are still behind after 80 sweeps
    vectors = as_normals(uniforms(key, (num_rows, model.row_width())))
    parts = model.row_coefficients()
    scale = np.ones(model.core_width)
    scale[model.num_factors :] = 0
    if not parts.widths:
        return vectors * scale.astype(vectors.dtype)
    # from zero their precision would be drawn so high that they stay there
    first = coefficients.start(parts, model.coefficient_precision)
    coefficient_scale = 1 / jnp.sqrt(parts.per_column(first.precision))
    return vectors * jnp.concatenate([jnp.asarray(scale), coefficient_scale]).astype(vectors.dtype)


def _start_prior(plan: BPMFPlan, model: BPMFSpec, key: Key, vectors: Array) -> SidePrior:
    size = groups.num_groups(model, plan.num_slots)
    num_rows, width = vectors.shape[0], model.core_width
    features = model.row_link()
    num_features, num_parts = (0, 0) if features is None else (features.width, len(features.parts))
    identity = jnp.eye(width, dtype=vectors.dtype)
    moments = NormalParameters(
        jnp.zeros((size, width), vectors.dtype), jnp.broadcast_to(identity, (size, width, width))
    )
    start_groups, mixture = groups.start(
        model, key, num_rows, plan.num_slots, split_merge=plan.split_merge
    )
    return SidePrior(
        moments=moments,
        groups=start_groups,
        link=jnp.zeros((num_features, width), vectors.dtype),
        link_precision=jnp.full(
            (num_parts,), hyper.initial_value(model.link_precision), vectors.dtype
        ),
        coefficients=coefficients.start(model.row_coefficients(), model.coefficient_precision),
        mixture=mixture,
    )


def step(
    plan: BPMFPlan,
    model: BPMFSpec,
    key: Key,
    state: BPMFState,
    data: Entries | PreparedRatings,
    progress: Array,
) -> tuple[BPMFState, Info]:
    """Prior of the rows, the rows, prior of the columns, the columns, noise (section 6.2.8)."""
    del progress
    data = model.prepare(data)
    state, cells = _as_normal_cells(model, jax.random.fold_in(key, _AUGMENTATION), state, data)
    draws = _draws(model, key, state, data)
    proposals = {"split_merge": plan.split_merge}
    noise_of_columns = state.column_noise
    factors = None if noise_of_columns is None else noise_of_columns.factors
    state, row_overflow = update_row_prior(model, draws.rows, state, data, **proposals)
    row_key = jax.random.fold_in(key, _ROW_VECTORS)
    column_key = jax.random.fold_in(key, _COLUMN_VECTORS)
    state, _ = update_row_vectors(
        model, draws.u, state, data, key=row_key, noise_of_columns=factors, **cells
    )
    # the columns are drawn as rows of the transposed problem
    turned, columns = wait(state).transpose(), model.transpose()
    data_turned = data.transpose()
    if model.is_normal:
        cells["targets"] = data_turned.values
    turned, column_overflow = update_row_prior(
        columns, draws.columns, turned, data_turned, **proposals
    )
    turned, squares = update_row_vectors(
        columns, draws.v, turned, data_turned, key=column_key, noise_of_rows=factors, **cells
    )
    state = moves.shift(model, jax.random.fold_in(key, _SHIFTS), turned.transpose(), data)
    if model.is_normal:
        # a matrix turned round has no noise of columns
        state = state._replace(column_noise=noise_of_columns)
        state = _update_noise_and_columns(model, key, draws.noise, state, data, squares)
    overflow = {"row_groups": row_overflow, "column_groups": column_overflow}
    return state, Info(overflow={name: overflow[name] for name in capacity(state)})


def _as_normal_cells(
    model: BPMFSpec, key: Key, state: BPMFState, data: PreparedRatings
) -> tuple[BPMFState, dict[str, Array]]:
    """Values (T,) that are normal about the means of the cells, and their precision () float.

    Of other likelihoods the values are auxiliary variables, which are drawn with the thresholds.
    """
    if model.is_normal:
        return state, {"targets": data.values, "precision": data.unit**2 / state.noise}
    means = means_of_data(model, state, data)
    is_cell = jnp.ones(data.values.shape, bool)
    (targets, precision), noise = model.cell_noise().augment(
        key, state.noise, data.values, means, is_cell
    )
    return state._replace(noise=noise), {"targets": targets, "precision": precision}


def _update_noise_and_columns(
    model: BPMFSpec,
    key: Key,
    log_gamma: Array | None,
    state: BPMFState,
    data: PreparedRatings,
    squares: Array,
) -> BPMFState:
    """Kernel: the common variance of the cells, then the noise of columns beside each other."""
    noise_key = jax.random.fold_in(key, _NOISE)
    if state.column_noise is None:
        return update_noise(model, noise_key, log_gamma, state, data, squares)
    sums = squares_of_columns(model, state, data)
    squares = jnp.sum(sums[0] / state.column_noise.factors**2)
    state = update_noise(model, noise_key, log_gamma, state, data, squares)
    return update_column_noise(model, jax.random.fold_in(key, _COLUMN_NOISE), state, data, sums)


def grow(state: BPMFState, sizes: dict[str, int]) -> BPMFState:
    """The state with more slots for groups."""
    rows = sizes.get("row_groups", state.row_side.moments.mean.shape[0])
    columns = sizes.get("column_groups", state.column_side.moments.mean.shape[0])
    return state._replace(
        row_side=groups.grow(state.row_side, rows),
        column_side=groups.grow(state.column_side, columns),
    )


def capacity(state: BPMFState) -> dict[str, int]:
    """Slots of the growing groups of either side."""
    sides = {"row_groups": state.row_side, "column_groups": state.column_side}
    return {
        name: side.moments.mean.shape[-2]
        for name, side in sides.items()
        if side.mixture is not None and side.mixture.slots
    }


class _Draws(NamedTuple):
    """Random numbers of a step: of the priors, the vectors, and normal noise."""

    rows: MomentDraws
    columns: MomentDraws
    u: Array
    v: Array
    noise: Array | None


def _draws(model: BPMFSpec, key: Key, state: BPMFState, data: PreparedRatings) -> _Draws:
    """Random numbers of a step, but those of mixtures, which are drawn where groups are known.

    One call of the generator makes all normals and one all gammas, which are then cut up: compiling
    such calls is most of compiling a step.
    """
    widths = [side.moments.mean.shape[-1] for side in (state.row_side, state.column_side)]
    shapes = [(1, width, width + 1) for width in widths] + [state.u.shape, state.v.shape]
    row_normals, column_normals, u, v = _normals(jax.random.fold_in(key, _NORMALS), shapes, data)
    row_shapes = gamma_shapes(model, state)
    column_shapes = gamma_shapes(model.transpose(), state.transpose())
    noise_shapes = noise_shape(model, data)
    all_shapes = [row_shapes.ravel(), column_shapes.ravel()]
    if noise_shapes is not None:
        all_shapes.append(noise_shapes.astype(row_shapes.dtype))
    log_gammas = loggammas(jax.random.fold_in(key, _GAMMAS), jnp.concatenate(all_shapes))
    ends = row_shapes.size, row_shapes.size + column_shapes.size
    rows, columns, noise = jnp.split(log_gammas, ends)
    row_key, column_key = (
        jax.random.fold_in(key, _ROW_PRIOR),
        jax.random.fold_in(key, _COLUMN_PRIOR),
    )
    return _Draws(
        rows=MomentDraws(rows.reshape(row_shapes.shape), row_normals, row_key),
        columns=MomentDraws(columns.reshape(column_shapes.shape), column_normals, column_key),
        u=u,
        v=v,
        noise=None if noise_shapes is None else noise[0],
    )


def _normals(key: Key, shapes: list[tuple[int, ...]], data: PreparedRatings) -> list[Array]:
    """Normals of these shapes: of the priors of rows and of columns, then of U and of V.

    Over devices each makes those of its own rows of U and V, by their positions in the one array
    that a single device would draw, so that both have the same.
    """
    sizes = [math.prod(shape) for shape in shapes]
    ends = list(itertools.accumulate(sizes))
    cells = data.cells
    if not isinstance(cells, Shares):
        parts = jnp.split(as_normals(uniforms(key, (ends[-1],))), ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    few = uniforms_at(key, ends[-1], jnp.arange(ends[1]))
    drawn = [few[: ends[0]].reshape(shapes[0]), few[ends[0] :].reshape(shapes[1])]
    for side, start, (_, width) in zip(
        (cells.by_row, cells.by_column), ends[1:], shapes[2:], strict=False
    ):
        where = {"size": ends[-1], "start": start, "width": width}
        drawn.append(uniforms_of_rows(key, side, num_devices=cells.num_devices, **where))
    return [as_normals(one) for one in drawn]


def row_arrays() -> tuple[str, ...]:
    """Arrays of data, state and draws whose rows are spread over devices."""
    cells = tuple(f"cells.{name}" for name in ROW_ARRAYS)
    return ("u", "v", "row_side.groups", "column_side.groups", *cells)


def record(
    plan: BPMFPlan, model: BPMFSpec, key: Key, state: BPMFState, data: Entries | PreparedRatings
) -> Draw:
    """Arrays of a draw: priors, noise, and the vectors unless they are left out."""
    del key
    data = model.prepare(data)
    draw = {
        "row_mean": state.row_side.moments.mean,
        "row_factor": state.row_side.moments.factor,
        "column_mean": state.column_side.moments.mean,
        "column_factor": state.column_side.moments.factor,
        "log_joint": density.log_joint(model, state, data),
    }
    draw |= model.noise_draw(state.noise)
    if state.column_noise is not None:
        factors, spread = state.column_noise
        draw |= {"noise_factors": factors, "noise_spread": spread}
    for name, side_model, side in (
        ("row", model, state.row_side),
        ("column", model.transpose(), state.column_side),
    ):
        if side_model.row_link() is not None:
            draw[f"{name}_link"] = side.link
            draw[f"{name}_link_precision"] = side.link_precision
        if side.coefficients.mean.shape[0]:
            draw[f"{name}_coefficient_mean"] = side.coefficients.mean
            draw[f"{name}_coefficient_precision"] = side.coefficients.precision
        if side.mixture is not None:
            draw |= groups.recorded(side_model, name, side)
    return draw | ({"u": state.u, "v": state.v} if plan.keep_factors else {})
