"""The kernels of BPMF: priors of the vectors, the vectors, noise.

Those of the columns are those of the rows of the transposed problem.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf._kernels.linalg import after
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.models.bpmf import groups
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import BPMFState, PreparedRatings, SidePrior
from jaxmf.priors.column_noise import least_noise
from jaxmf.priors.hyper import is_fixed
from jaxmf.row_shards import whole
from jaxmf.samplers import column_noise
from jaxmf.samplers.column_noise import ScaleWithFactors
from jaxmf.samplers.factors import coefficients
from jaxmf.samplers.factors.coefficients import Coefficients
from jaxmf.samplers.factors.layout import Arranged, Design, RowPriors
from jaxmf.samplers.factors.link import Link, update_link, update_link_of_groups, with_link
from jaxmf.samplers.factors.moments import precisions, statistics_of_all
from jaxmf.samplers.factors.rows import Residuals, draw_rows
from jaxmf.samplers.factors.scales import (
    scale_of_factors,
    scale_of_part,
    scaled,
    update_variance,
    variance_shape,
)
from jaxmf.samplers.factors.shares import Shares, draw_shared_rows
from jaxmf.samplers.factors.shifts import FactorSide
from jaxmf.samplers.factors.vectors import cell_means, design
from jaxmf.types import Array, Key


class MomentDraws(NamedTuple):
    """Random numbers behind a prior of vectors."""

    # (1, D) float, logarithms of Gamma draws, their shapes `gamma_shapes`; of no use with a mixture
    log_gammas: Array
    normals: Array  # (1, D, D + 1) float, standard normal; likewise
    key: Key  # of the link, or of the mixture


def gamma_shapes(model: BPMFSpec, state: BPMFState) -> Array:
    """Shapes of the Gamma draws that the rows' prior needs without a mixture: (1, D) float."""
    side = state.row_side
    num_rows = jnp.full((1,), state.u.shape[0])
    return _raised(model, side).gamma_shapes(num_rows).astype(state.u.dtype)


def _core(model: BPMFSpec, vectors: Array) -> Array:
    """Factors and biases (N, E) of vectors (N, D)."""
    return vectors[:, : model.core_width]


def _raised(model: BPMFSpec, side: SidePrior) -> NormalInverseWishart:
    """The prior of the rows' moments, with a degree of freedom for every line of the link."""
    prior = model.row_hyperprior()
    width = side.link.shape[0]
    return replace(prior, degrees=prior.degrees + width) if width else prior


def update_row_prior(
    model: BPMFSpec,
    draws: MomentDraws,
    state: BPMFState,
    data: PreparedRatings,
    *,
    split_merge: int,
) -> tuple[BPMFState, Array]:
    """Kernel: the prior of the rows' vectors given these: groups, means, covariances, the link.

    Args: split_merge: proposals to split a group or merge two, of those that have such.
    Returns the state, and whether there was no room for a new group, () bool.
    """
    state = _update_coefficients(model, jax.random.fold_in(draws.key, 1), state)
    if state.row_side.mixture is not None:
        return _update_groups(model, draws.key, state, split_merge)
    return _update_moments(model, draws, state, data), jnp.zeros((), bool)


def _update_coefficients(model: BPMFSpec, key: Key, state: BPMFState) -> BPMFState:
    parts, side = model.row_coefficients(), state.row_side
    if not parts.widths:
        return state
    now = coefficients.update(
        key,
        side.coefficients,
        values=state.u[:, model.core_width :],
        parts=parts,
        precision_prior=model.coefficient_precision,
    )
    return state._replace(row_side=side._replace(coefficients=now))


def _update_groups(
    model: BPMFSpec, key: Key, state: BPMFState, split_merge: int
) -> tuple[BPMFState, Array]:
    group_key, moments_key, link_key = jax.random.split(key, 3)
    side, prior, features = state.row_side, model.row_hyperprior(), model.row_link()
    vectors = _core(model, state.u)
    values = vectors - linked(model, side)
    new_groups, mixture, overflow = groups.update(
        model, group_key, side, values, split_merge=split_merge
    )
    statistics = prior.statistics(new_groups, values, side.moments.mean.shape[0])
    # empty groups have moments from the prior: the lowest of them is that of a new group
    moments = prior.sample_parameters(moments_key, statistics, {})
    side = side._replace(moments=moments, groups=new_groups, mixture=mixture)
    if features is not None:
        link = update_link_of_groups(
            link_key,
            Link(side.link, side.link_precision),
            vectors=vectors,
            features=features,
            moments=moments,
            groups=new_groups,
            precision_prior=model.link_precision,
        )
        side = side._replace(link=link.weights, link_precision=link.precision)
    return state._replace(row_side=side), overflow.get("group", jnp.zeros((), bool))


def _update_moments(
    model: BPMFSpec, draws: MomentDraws, state: BPMFState, data: PreparedRatings
) -> BPMFState:
    side = state.row_side
    features = model.row_link()
    prior, vectors = _raised(model, side), _core(model, state.u)
    statistics = statistics_of_all(prior, vectors - linked(model, side))
    link = Link(side.link, side.link_precision)
    if features is not None:
        statistics = with_link(statistics, link, features)
    moments = prior.parameters_of(statistics, draws.log_gammas, draws.normals)
    if features is None:
        return state._replace(row_side=side._replace(moments=moments))
    link = update_link(
        draws.key,
        link,
        vectors=vectors,
        features=features,
        spectra=data.row_spectra,
        moments=moments,
        precision_prior=model.link_precision,
    )
    row_side = side._replace(moments=moments, link=link.weights, link_precision=link.precision)
    return state._replace(row_side=row_side)


def linked(model: BPMFSpec, side: SidePrior) -> Array:
    """Contribution of features to the prior means of factors and biases: (N, E), or 0."""
    features = model.row_link()
    return jnp.zeros((), side.link.dtype) if features is None else features.times(side.link)


def row_means(model: BPMFSpec, side: SidePrior) -> Array:
    """Prior means of the vectors of all rows: (N, D)."""
    core = side.moments.mean[side.groups] + linked(model, side)
    others = side.coefficients.mean
    if not others.shape[0]:
        return core
    return jnp.concatenate([core, jnp.broadcast_to(others, (core.shape[0], *others.shape))], axis=1)


def row_precisions(model: BPMFSpec, side: SidePrior) -> Array:
    """Prior precisions of the vectors of the groups: (G, D, D), of coefficients on the diagonal."""
    core, parts = precisions(side.moments), model.row_coefficients()
    if not parts.widths:
        return core
    width = sum(parts.widths)
    others = jnp.diag(parts.per_column(side.coefficients.precision))
    return jnp.pad(core, ((0, 0), (0, width), (0, width))) + jnp.pad(
        others, ((core.shape[1], 0), (core.shape[1], 0))
    )


def update_row_vectors(
    model: BPMFSpec,
    normals: Array,
    state: BPMFState,
    data: PreparedRatings,
    *,
    targets: Array,
    precision: Array,
    key: Key,
    noise_of_rows: Array | None = None,
    noise_of_columns: Array | None = None,
) -> tuple[BPMFState, Array]:
    """Kernel: the vectors of all rows given the rest, then the scale of some of their entries.

    Which entries these are says `_scaled_entries`; there are none where rows have noise of their
    own.

    Args: normals (N, D) float, standard normal; targets (T,) float, values that are normal about
    the means of the cells; precision () float, of these; noise_of_rows (N,), noise_of_columns (M,)
    float, by how much their noise is larger, of one side.
    Returns the state, and the sum of the squared residuals at it, over these factors of columns.
    """
    part_key, scale_key = jax.random.split(key)
    part = jax.random.randint(part_key, (), 0, max(len(model.row_coefficients().widths), 1))
    side, entries = state.row_side, None
    if noise_of_rows is None:
        entries = _scaled_entries(model, side, part, state.u.dtype)
    priors = RowPriors(row_means(model, side), side.groups, row_precisions(model, side))
    meets = design(whole(state.v), data.known, model.num_factors)
    u, residuals = _draw_vectors(
        normals, state.u, meets, data.cells, targets,
        noises=(noise_of_rows, noise_of_columns), priors=priors, precision=precision, part=entries,
    )  # fmt: skip
    state = state._replace(u=u)
    if entries is None:
        return state, residuals.squares
    if model.row_coefficients().widths:
        scale = scale_of_part(
            scale_key, side.coefficients.precision[part], residuals=residuals,
            noise_precision=precision, precision_prior=model.coefficient_precision,
        )  # fmt: skip
        state = _with_scale(state, entries, part, scale)
    else:
        normal = side.moments.mean[0], priors.precisions[0]
        state, scale = _scale_factors(model, scale_key, state, residuals, precision, normal)
    return state, residuals.scaled(scale - 1).squares


def _draw_vectors(
    normals: Array,
    before: Array,
    meets: Design,
    cells: Arranged | Shares,
    targets: Array,
    *,
    noises: tuple[Array | None, Array | None],
    priors: RowPriors,
    precision: Array,
    part: Array | None,
) -> tuple[Array, Residuals]:
    """The vectors of all rows, and what is left of the targets; see `update_row_vectors`.

    Args: before (N, D) float, the vectors until now; noises, of rows and of columns; part (D,), the
    entries that get another scale together, or None.
    """
    noise_of_rows, noise_of_columns = noises
    if noise_of_columns is not None:
        assert isinstance(cells, Arranged)
        meets = meets.over(noise_of_columns, cells.columns)
        targets = targets / noise_of_columns[cells.columns]
    if noise_of_rows is not None:
        priors, normals = priors.over(noise_of_rows), normals * noise_of_rows[:, None]
    conditions: dict[str, Any] = {"priors": priors, "precision": precision, "part": part}
    if isinstance(cells, Shares):
        shared = cells.by_row._replace(values=targets)
        return draw_shared_rows(normals, before, meets, side=shared, **conditions)
    padded = jnp.concatenate([targets, jnp.zeros_like(targets[:1])])
    return draw_rows(normals, before, meets, padded, chunks=cells.by_row, **conditions)


def _scale_factors(
    model: BPMFSpec,
    key: Key,
    state: BPMFState,
    residuals: Residuals,
    precision: Array,
    normal: tuple[Array, Array],
) -> tuple[BPMFState, Array]:
    """All factors of the rows, their moments and the link on one further scale, and that scale.

    Args: normal: mean and precision of the factors, which has been decomposed for the vectors.
    """
    side, size = state.row_side, model.num_factors
    log_scale = scale_of_factors(
        key, *normal, num_factors=size, prior=model.row_hyperprior(), residuals=residuals,
        noise_precision=precision,
    )  # fmt: skip
    moved = scaled(FactorSide(state.u, side.moments, side.link), jnp.full((size,), log_scale))
    side = side._replace(moments=moved.moments, link=moved.link)
    return state._replace(u=moved.vectors, row_side=side), jnp.exp(log_scale)


def _scaled_entries(
    model: BPMFSpec, side: SidePrior, part: Array, dtype: DTypeLike
) -> Array | None:
    """The entries of the vectors that get another scale together: (D,) float, one there, or None.

    Those of a part () int of the coefficients; all factors where there are no coefficients, and no
    groups, which have covariances of their own.
    """
    parts = model.row_coefficients()
    if parts.widths:
        if is_fixed(model.coefficient_precision):
            return None
        chosen = parts.per_column(jnp.arange(len(parts.widths)) == part)
        return jnp.pad(chosen.astype(dtype), (model.core_width, 0))
    if not model.num_factors or side.mixture is not None:
        return None
    return (jnp.arange(model.core_width) < model.num_factors).astype(dtype)


def _with_scale(state: BPMFState, entries: Array, part: Array, scale: Array) -> BPMFState:
    """The coefficients of a part, their means and the root of their variance multiplied."""
    side = state.row_side
    now = side.coefficients
    by = jnp.where(entries == 1, scale, 1)
    moved = Coefficients(
        now.mean * by[by.shape[0] - now.mean.shape[0] :], now.precision.at[part].divide(scale**2)
    )
    return state._replace(u=state.u * by, row_side=side._replace(coefficients=moved))


def means_of_data(model: BPMFSpec, state: BPMFState, data: PreparedRatings) -> Array:
    """Means of the observed cells, without the offset and in units: (T,) float."""
    cells = data.cells
    assert isinstance(cells, Arranged)
    return cell_means(
        state.u, state.v, data.known, cells.rows, cells.columns, num_factors=model.num_factors
    )


def noise_shape(model: BPMFSpec, data: PreparedRatings) -> Array | None:
    """Shape of the Gamma draw behind the variance of normal noise, (1,); None without such."""
    if not model.is_normal:
        return None
    return variance_shape(model.cell_noise().noise_variance, data.num_cells)


def update_noise(
    model: BPMFSpec,
    key: Key,
    log_gamma: Array | None,
    state: BPMFState,
    data: PreparedRatings,
    squares: Array,
) -> BPMFState:
    """Kernel: the variance of normal noise given the sum of squared residuals, in units.

    `log_gamma` is the logarithm of a Gamma draw of `noise_shape`, where that is not None.
    """
    prior = model.cell_noise(data.unit).noise_variance
    if state.column_noise is not None and not is_fixed(prior):
        least = least_noise(prior, power=0.5)
        prior, log_gamma = ScaleWithFactors(prior, state.column_noise, least, power=0.5), None
    noise = update_variance(
        key,
        prior,
        state.noise,
        squares=squares * data.unit**2,
        count=data.num_cells,
        log_gamma=log_gamma,
    )
    return state._replace(noise=noise)


def squares_of_columns(
    model: BPMFSpec, state: BPMFState, data: PreparedRatings
) -> tuple[Array, Array]:
    """Sums of squared residuals of the cells of each column, in units, and how many: (M,) each."""
    cells = data.cells
    assert isinstance(cells, Arranged)
    squares = (cells.values - means_of_data(model, state, data)) ** 2
    zeros = jnp.zeros((data.num_columns,), squares.dtype)
    return zeros.at[cells.columns].add(squares), zeros.at[cells.columns].add(1)


def update_column_noise(
    model: BPMFSpec,
    key: Key,
    state: BPMFState,
    data: PreparedRatings,
    sums: tuple[Array, Array],
) -> BPMFState:
    """Kernel: the noise of columns beside each other given `squares_of_columns`, and the common."""
    assert state.column_noise is not None
    squares, counts = sums
    columns_key, level_key = jax.random.split(key)
    least = model.least_factor(data.unit, jnp.sqrt(state.noise))
    noise = column_noise.update(
        columns_key,
        state.column_noise,
        squares=squares * data.unit**2 / state.noise,
        counts=counts,
        least=least,
    )
    prior = model.cell_noise(data.unit).noise_variance
    noise, variance = column_noise.update_level(
        level_key, noise, state.noise, prior, least=least, power=0.5
    )
    return state._replace(column_noise=noise, noise=variance)


def wait(state: BPMFState) -> BPMFState:
    """The state with the columns' vectors to be had only after the rows', see `after`."""
    return state._replace(v=after(state.v, state.u))
