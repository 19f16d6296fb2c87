"""The collapsed sweep of the plaid model: W diagonal and summed out, the rows of U sequentially.

X = sum_k w_k u_k v_k' + noise. All rows share the K weights, so a row is a regression on them: with
D = diag(u_i), Lambda = H + r I of the other rows and omega their mean of w, the observed cells of
row i are N(V_o D omega, s_X^2 (I + V_o D Lambda^-1 D V_o')). Everything about the row is in V_o'x
(K) and V_o'V_o (K, K); a bit costs O(K^3).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from jaxmf import slots
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf._kernels.linalg import eliminate
from jaxmf._kernels.special import accepts
from jaxmf.likelihoods.gaussian import gram_statistics
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.bilinear.draws import BilinearDraws, bilinear_draws, proposed_bits
from jaxmf.samplers.collapsed_rows import DrawnRow, sweep_collapsed_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowPrior
from jaxmf.types import Array, Key, PyTree


class PlaidRow(NamedTuple):
    """Distribution of w given the other rows, and the statistics of a row."""

    precision: Array  # (K, K) float, Lambda
    mean: Array  # (K,) float, omega
    gram: Array  # (K, K) float, V_o'V_o over the row's observed cells o
    cross: Array  # (K,) float, V_o'x_o


def log_density(row: PlaidRow, u: Array, noise_variance: Array) -> Array:
    """log p(observed cells of the row | its features, the other rows), () up to a constant.

    Args: u (K,) bool, its features.
    """
    bits = u.astype(row.mean.dtype)
    weights = bits * row.mean
    fitted = row.gram @ weights
    precision = row.precision + bits[:, None] * row.gram * bits
    log_determinant, left = eliminate(
        precision, bits * (row.cross - fitted), weights @ (fitted - 2 * row.cross)
    )
    return -0.5 * (log_determinant + left / noise_variance)


def _scan_bits(
    order: Array,
    threshold: Array,
    row: PlaidRow,
    u: Array,
    noise_variance: Array,
    prior_log_odds: Array,
    free_to_move: Array,
) -> Array:
    def update(k: Array, here: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        u, left = state
        density = log_density(row, u ^ here, noise_variance)
        on = jax.lax.dynamic_index_in_dim(u, k, keepdims=False)
        prior = jax.lax.dynamic_index_in_dim(prior_log_odds, k, keepdims=False)
        log_odds = jnp.where(on, -prior, prior) + density - left
        flip = jax.lax.dynamic_index_in_dim(threshold, k, keepdims=False) < log_odds
        return u ^ (here & flip), jnp.where(flip, density, left)

    start = (u, log_density(row, u, noise_variance))
    return slots.visit(update, start, order=order, allowed=free_to_move)[0]


_scan_bits_fused = fused_on_cpu(_scan_bits)


class _Design(NamedTuple):
    """Constants of a sweep: V (J, K) float, V'V, r, the prior mean of w (K,), the noise scale."""

    v: Array
    v_gram: Array
    ratio: Array
    centre: Array
    noise_scale: Array


class _PlaidStatistics(NamedTuple):
    """Sums over the other rows: H (K, K), and products of the design with X (K,)."""

    gram: Array
    cross: Array

    def moved(self, sign: int, u: Array, cross: Array, v_gram: Array) -> "_PlaidStatistics":
        """With a row of features u (K,) float and products V'x (K,) added or taken out."""
        return _PlaidStatistics(
            gram=self.gram + sign * u[:, None] * v_gram * u,
            cross=self.cross + sign * u * cross,
        )


class _PlaidCells(NamedTuple):
    """V'x (R, K), and the cells (R, J) themselves where some are missing."""

    cross: Array
    values: Array | None


class _PlaidRows(NamedTuple):
    """Rows of U given V; `observed` is None where nothing is missing. See `CollapsedRows`."""

    x: Array
    cross: Array
    observed: Array | None
    design: _Design
    num_proposals: int

    def draws(self, key: Key, rows: Array) -> BilinearDraws:
        num_slots = self.cross.shape[1]
        return bilinear_draws(
            key,
            rows,
            num_slots=num_slots,
            num_turned=num_slots,
            num_columns=None if self.observed is None else self.x.shape[1],
            num_proposals=self.num_proposals,
            dtype=self.x.dtype,
        )

    def block(self, start: Array, size: int) -> tuple[_PlaidCells, Array | None]:
        values = None if self.observed is None else self.x
        cells, observed = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size),
            (_PlaidCells(self.cross, values), self.observed),
        )
        return cells, observed

    def targets(self, cells: _PlaidCells) -> Array:
        return cells.cross

    def values(self, cells: _PlaidCells) -> Array | None:
        return cells.values

    def posterior(self, gram: Array, cross: Array) -> _PlaidStatistics:
        return _PlaidStatistics(gram * self.design.v_gram, jnp.diagonal(cross))

    def remove(
        self,
        posterior: _PlaidStatistics,
        z: Array,
        empty: Array,
        cells: _PlaidCells,
        others: Callable[[Array], tuple[Array, Array]],
    ) -> _PlaidStatistics:
        del empty, others
        return posterior.moved(-1, z, cells.cross, self.design.v_gram)

    def draw(
        self,
        draws: BilinearDraws,
        posterior: _PlaidStatistics,
        z: Array,
        cells: _PlaidCells,
        seen: Array | None,
        conditional: RowPrior,
        num_singletons: Array,
    ) -> DrawnRow:
        del num_singletons  # the number of features is fixed
        u, values = _draw_row(draws, z, cells, seen, posterior, self.design, conditional)
        drawn = None if values is None else _PlaidCells(values @ self.design.v, values)
        return DrawnRow(u, None, None, drawn)

    def add(
        self, posterior: _PlaidStatistics, z: Array, empty: Array, cells: _PlaidCells
    ) -> _PlaidStatistics:
        del empty
        return posterior.moved(1, z, cells.cross, self.design.v_gram)


def collapsed_plaid_sweep(
    key: Key,
    u: Array,
    v: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
    num_fixed: int = 0,
    num_proposals: int = 0,
) -> tuple[Array, Array]:
    """One pass over the rows of U; p(U, missing cells | V, observed cells, scales) stays invariant.

    The bits of each row are drawn one after another in a fresh random order, its missing cells
    summed out; then w given everything and, given w, the missing cells. For V call it with x.T,
    observed.T, and u and v exchanged.

    Args: as of `collapsed_bilinear_sweep`, but layer k is the pair of the k-th columns of u (I, K)
    and v (J, K), and weight_mean is () or (K,).
    Returns u and x.
    Raises ValueError: with the Indian buffet process, under which features would come without the
    other half of their layer.
    """
    if isinstance(prior, IndianBuffet):
        raise ValueError(
            "a diagonal W pairs the features of rows and columns, so their number must "
            "be fixed: use BetaBernoulli"
        )
    v_float = v.astype(x.dtype)
    design = _Design(
        v=v_float,
        v_gram=v_float.T @ v_float,
        ratio=jnp.asarray((noise_scale / weight_scale) ** 2, x.dtype),
        centre=jnp.broadcast_to(jnp.asarray(weight_mean, x.dtype), (u.shape[1],)),
        noise_scale=jnp.asarray(noise_scale, x.dtype),
    )
    cross = x @ v_float
    u, drawn, _ = sweep_collapsed_rows(
        key, u, None if observed is None else x, gram_statistics(u, cross),
        _PlaidRows(x, cross, observed, design, num_proposals), prior=prior, num_fixed=num_fixed,
    )  # fmt: skip
    return u, x if drawn is None else drawn


def _draw_row(
    draws: BilinearDraws,
    u: Array,
    cells: _PlaidCells,
    observed: Array | None,
    others: _PlaidStatistics,
    design: _Design,
    conditional: RowPrior,
) -> tuple[Array, Array | None]:
    """The features of a row and, where cells are missing, its cells."""
    precision = others.gram + design.ratio * jnp.eye(u.shape[0], dtype=cells.cross.dtype)
    right_side = others.cross + design.ratio * design.centre
    mean = jax.scipy.linalg.solve(precision, right_side, assume_a="pos")
    here = PlaidRow(precision, mean, design.v_gram, cells.cross)
    if observed is not None and cells.values is not None:
        part = jnp.where(observed[:, None], design.v, 0)
        here = here._replace(gram=part.T @ design.v, cross=cells.values @ part)
    noise_variance = design.noise_scale**2
    threshold, odds = logit(draws.row.bits), conditional.log_odds
    u = _scan_bits_fused(
        draws.row.order, threshold, here, u, noise_variance, odds, conditional.movable
    )
    if draws.proposals is not None:

        def propose(u: Array, drawn: PyTree) -> tuple[Array, None]:
            proposal = proposed_bits(drawn, u, conditional)
            log_ratio = log_density(here, proposal, noise_variance) - log_density(
                here, u, noise_variance
            )
            return jnp.where(accepts(drawn.accept, log_ratio), proposal, u), None

        u, _ = jax.lax.scan(propose, u, draws.proposals)
    if observed is None or cells.values is None or draws.cells is None:
        return u, None
    bits = u.astype(cells.cross.dtype)
    weights = _draw_weights(draws.cells.effect, here, bits, design.noise_scale)
    values = design.v @ (bits * weights) + design.noise_scale * draws.cells.noise
    return u, jnp.where(observed, cells.values, values)


def _draw_weights(normals: Array, row: PlaidRow, u: Array, noise_scale: Array) -> Array:
    """w (K,) given the observed cells of a row with features u (K,) float, and the other rows."""
    factor = jnp.linalg.cholesky(row.precision + u[:, None] * row.gram * u)
    side = u * (row.cross - row.gram @ (u * row.mean))
    solve = jax.scipy.linalg.solve_triangular
    half = solve(factor, side, lower=True) + noise_scale * normals
    return row.mean + solve(factor, half, lower=True, trans=1)
