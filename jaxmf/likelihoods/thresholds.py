"""A Gibbs step of thresholds and latent cells: the ordered probit model.

A cell shows level c where its latent z ~ N(eta, 1) lies between thresholds t_{c-1} and t_c, with
t_{-1} = -inf and t_{L-1} = inf. Drawn alternately with z, thresholds hardly move: each is shut in
between the largest z below it and the smallest above. So they are drawn with all z summed out,

    p(t | cells, eta) ~ p(t) prod_i [Phi(t_c - eta_i) - Phi(t_{c-1} - eta_i)],

and z afterwards. This density is log-concave in t (Pratt 1981), its Hessian tridiagonal: a draw
from the normal distribution that one Newton step finds, corrected by Metropolis-Hastings with the
step back, is accepted nearly always where cells are many, and is then a new independent draw.

Source: Albert & Chib (1993), Bayesian analysis of binary and polychotomous response data; Cowles
(1996), Accelerating Monte Carlo Markov chain convergence for cumulative-link generalized linear
models; Pratt (1981), Concavity of the log likelihood.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from jaxmf._kernels.special import accepts, as_normals, uniforms
from jaxmf.likelihoods.intervals import log_mass, slopes, truncated_normals
from jaxmf.types import Array, Key

_CELLS_A_PIECE = 2**15


class ThresholdCells(NamedTuple):
    """Cells in pieces (P, B), the last filled up."""

    eta: Array  # float, the means of the latent values
    codes: Array  # int, the levels from 0 on
    there: Array  # bool, whether there is a cell at all


class _Normal(NamedTuple):
    """A normal distribution by its centre (M,) and the Cholesky factor (M, M) of its precision."""

    centre: Array
    root: Array


def bounds(thresholds: Array, codes: Array) -> tuple[Array, Array]:
    """Thresholds below and above each cell's latent value; -inf and inf at the ends."""
    infinity = jnp.full(1, jnp.inf, thresholds.dtype)
    edges = jnp.concatenate([-infinity, thresholds, infinity])
    return edges[codes], edges[codes + 1]


def in_pieces(eta: Array, codes: Array, there: Array) -> ThresholdCells:
    """Cells (T,) in pieces that a loop goes over, so that little is in memory at once."""
    size = min(_CELLS_A_PIECE, eta.shape[0])
    filled = -eta.shape[0] % size

    def cut(x: Array) -> Array:
        return jnp.pad(x, (0, filled)).reshape(-1, size)

    return ThresholdCells(cut(eta), cut(codes), cut(there))


def draw_thresholds(
    key: Key, thresholds: Array, cells: ThresholdCells, *, scale: Array | float
) -> tuple[Array, Array]:
    """A Metropolis-Hastings step of the thresholds with the latent values summed out.

    Args: thresholds (M,) float, ascending; scale: of the prior, independent N(0, scale^2) in
    ascending order.
    Returns thresholds (M,), and whether they are new, () bool.
    """
    random = uniforms(key, (thresholds.shape[0] + 1,))
    normals = as_normals(random[1:]).astype(thresholds.dtype)

    def look(point: Array, _: None) -> tuple[Array, tuple[Array, _Normal, Array]]:
        normal = _newton(point, cells, scale)
        drawn = normal.centre + solve_triangular(normal.root, normals, trans=1, lower=True)
        is_ordered = jnp.all(jnp.diff(drawn) > 0)
        endpoint = jnp.where(is_ordered, drawn, point)
        return endpoint, (endpoint, normal, is_ordered)

    # there and back, compiled once
    _, (points, distributions, ordered) = jax.lax.scan(look, thresholds, None, length=2)
    there, back = (
        jax.tree.map(lambda leaf, index=index: leaf[index], distributions) for index in (0, 1)
    )
    proposed, is_ordered = points[0], ordered[0]
    gain = _gain(thresholds, proposed, cells)
    gain = gain + jnp.sum(thresholds**2 - proposed**2) / (2 * scale**2)
    gain = gain + _log_density(back, thresholds) - _log_density(there, proposed)
    accepted = is_ordered & accepts(random[0], gain)
    return jnp.where(accepted, proposed, thresholds), accepted


def draw_latent(key: Key, thresholds: Array, eta: Array, codes: Array) -> Array:
    """Latent values (T,): N(eta, 1) between the thresholds of each cell's level."""
    return truncated_normals(uniforms(key, eta.shape), eta, *bounds(thresholds, codes))


def _newton(thresholds: Array, cells: ThresholdCells, scale: Array | float) -> _Normal:
    """The normal distribution that one Newton step fits to the density of thresholds."""
    num_thresholds = thresholds.shape[0]

    def add(sums: Array, piece: ThresholdCells) -> tuple[Array, None]:
        lower, upper = (edge - piece.eta for edge in bounds(thresholds, piece.codes))
        low, high = slopes(lower, upper)
        bend_low, bend_high = low * (low - _finite(lower)), high * (high + _finite(upper))
        # computed once: XLA would do it again for every level
        terms = jax.lax.optimization_barrier((low, high, bend_low, bend_high, low * high))
        is_level = piece.there & (piece.codes == jnp.arange(num_thresholds + 1)[:, None])
        members = is_level.astype(low.dtype)
        # products with one vector at a time, as XLA does those with so narrow a matrix badly
        return sums + jnp.stack([members @ term for term in terms]), None

    empty = jnp.zeros((5, num_thresholds + 1), cells.eta.dtype)
    sums, _ = jax.lax.scan(add, empty, cells)
    low, high, curved_low, curved_high, crossed = sums
    gradient = high[:-1] - low[1:] - thresholds / scale**2
    # both are positive, and rounding must not make them less
    curvature = jnp.maximum(curved_high[:-1], 0) + jnp.maximum(curved_low[1:], 0)
    precision = jnp.diag(curvature + 1 / scale**2)
    if num_thresholds > 1:
        precision = precision - jnp.diag(crossed[1:-1], 1) - jnp.diag(crossed[1:-1], -1)
    root = jnp.linalg.cholesky(precision)
    return _Normal(thresholds + cho_solve((root, True), gradient), root)


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isinf(x), 0, x)


def _log_density(normal: _Normal, x: Array) -> Array:
    """Up to a constant."""
    return jnp.log(jnp.diag(normal.root)).sum() - 0.5 * jnp.sum(
        (normal.root.T @ (x - normal.centre)) ** 2
    )


def _gain(old: Array, new: Array, cells: ThresholdCells) -> Array:
    """How much likelier the cells are under new thresholds, summed over differences of cells."""

    def add(total: Array, piece: ThresholdCells) -> tuple[Array, None]:
        after, before = (
            log_mass(*(edge - piece.eta for edge in bounds(edges, piece.codes)))
            for edges in (new, old)
        )
        return total + jnp.where(piece.there, after - before, 0).sum(), None

    total, _ = jax.lax.scan(add, jnp.zeros((), cells.eta.dtype), cells)
    return total
