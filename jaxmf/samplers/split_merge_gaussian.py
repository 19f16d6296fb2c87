r"""Linear-Gaussian columns as a `PairLikelihood`: two columns of Z move, the others stay.

A column x of group g is N(0, s^2 I + s^2 gain_g Z Z'), columns independent given Z; the gain is the
variance of a feature's loading over the noise variance. One group with all columns is the
linear-Gaussian model; as many groups as columns, the collapsed binary matrix factorisation given
V. Let R be Z without the two columns, A (N, 2) the two columns, and

    P = (I + gain R R')^-1 = I - R M R',   M = gain (I + gain R'R)^-1.

Then, with G = A'PA (2, 2) and c = A'PX (2, columns),

    log p(X | Z) = const(R) - (columns / 2) log |I + gain G|
                   + gain / (2 s^2) tr(c' (I + gain G)^-1 c),

and when row i of A changes by d, with w = (P A)_i and v = c (P X)_i,

    G += d w' + w d' + P_ii d d',   c += d (P X)_i',   c c' += d v' + v d' + d d' |(P X)_i|^2.

R, P X and the diagonal of P stay, (P A)_i = a_i - (R M)_i (R'A), so a visit of a row costs
O(groups K + columns) and no matrix is factorised: the N rows of a proposal together cost about as
much as computing P X. An empty column adds nothing, so the merged state is A = (c, 0).

Where loadings have a prior mean w (columns,), one for all features that come and go, X stands for
X less the mean of R's features, and with g = G 1, c~ = c - g w' is to be put for c and

    (2 (c w)' 1 - |w|^2 1'g) / (2 s^2)

to be added.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from jaxmf import row_shards
from jaxmf.likelihoods import bilinear_rows
from jaxmf.types import Array


class Fixed(NamedTuple):
    """Quantities that do not depend on the two columns."""

    features: Array  # (N, K) float, R
    r_m: Array  # (N, G, K) float, R M
    leverage: Array  # (N, G) float, the diagonal of P
    residual: Array  # (N, G, C) float, P X
    squares: Array  # (N, G) float, |(P X)_i|^2
    weight: Array  # (G,) float, gain / (2 s^2)
    mean: Array | None  # (G, C) float, w, or None for zero
    tilt: Array | None  # (N, G) float, (P X)_i w; None as well


class PairStatistics(NamedTuple):
    """Quantities that depend on the two columns."""

    through: Array  # (K, 2) float, R'A
    gram: Array  # (G, 2, 2) float, A'PA
    cross: Array  # (G, 2, C) float, A'PX
    product: Array  # (G, 2, 2) float, A'PX X'PA


class _Quantities(NamedTuple):
    """Statistics of the density, with any leading axes: G, c c' (..., G, 2, 2), c w (..., G, 2)."""

    gram: Array
    product: Array
    along: Array | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GaussianColumns:
    """Columns whose loadings are summed out; see the module."""

    x: Array  # (N, G, C) float, the columns by group, missing cells imputed
    gain: Array  # (G,) float, loading variance over noise variance; 0 for a group without signal
    noise_variance: Array  # () float, s^2
    # (K, G, C) float, prior means of the loadings of the feature of every slot; the slots of
    # features that come and go have one and the same, which is read off the last. None for zero.
    mean: Array | None = None

    def start(self, rest: Array) -> Fixed:
        """See `PairLikelihood`; rest is (N, K) bool."""
        features = rest.astype(self.x.dtype)
        identity = jnp.eye(features.shape[1], dtype=features.dtype)
        gram = features.T @ features

        def project_group(gain: Array, x: Array) -> tuple[Array, Array]:
            factor = jnp.linalg.cholesky(identity + gain * gram)
            r_m = gain * row_shards.by_row(_solve_rows, (features,), factor)
            return r_m, x - r_m @ (features.T @ x)

        x, mean = self.x, None
        if self.mean is not None:
            x, mean = x - jnp.einsum("nk,kgc->ngc", features, self.mean), self.mean[-1]
        r_m, residual = jax.vmap(project_group, in_axes=(0, 1), out_axes=1)(self.gain, x)
        return Fixed(
            features=features,
            r_m=r_m,
            leverage=1 - jnp.sum(r_m * features[:, None, :], axis=2),
            residual=residual,
            squares=jnp.sum(residual**2, axis=2),
            weight=0.5 * self.gain / self.noise_variance,
            mean=mean,
            tilt=None if mean is None else jnp.sum(residual * mean, axis=2),
        )

    def at(self, fixed: Fixed, pair: Array) -> PairStatistics:
        """See `PairLikelihood`; pair is (N, 2) float."""
        through = fixed.features.T @ pair
        projected = pair[:, None, :] - fixed.r_m @ through
        cross = jnp.einsum("np,ngc->gpc", pair, fixed.residual)
        return PairStatistics(
            through=through,
            gram=jnp.einsum("np,ngq->gpq", pair, projected),
            cross=cross,
            product=jnp.einsum("gpc,gqc->gpq", cross, cross),
        )

    def log_likelihood(self, fixed: Fixed, statistics: PairStatistics) -> Array:
        along = None if fixed.mean is None else _along(fixed.mean, statistics)
        return self._log_density(fixed, _Quantities(statistics.gram, statistics.product, along))

    def log_likelihoods(
        self,
        fixed: Fixed,
        statistics: PairStatistics,
        row: Array,
        setting: Array,
        candidates: Array,
    ) -> Array:
        changes = (candidates - setting)[:, None, :]
        return self._log_density(fixed, _changed(fixed, statistics, row, setting, changes))

    def change(
        self, fixed: Fixed, statistics: PairStatistics, row: Array, setting: Array, new: Array
    ) -> PairStatistics:
        change = new - setting
        after = _changed(fixed, statistics, row, setting, change)
        features, residual = (_row(leaf, row) for leaf in (fixed.features, fixed.residual))
        return PairStatistics(
            through=statistics.through + features[:, None] * change,
            gram=after.gram,
            cross=statistics.cross + change[:, None] * residual[:, None, :],
            product=after.product,
        )

    def _log_density(self, fixed: Fixed, quantities: _Quantities) -> Array:
        """The formulas of the module, summed over groups."""
        gram, product, along = quantities
        added: Array | float = 0.0
        if fixed.mean is not None and along is not None:
            size = jnp.sum(fixed.mean**2, axis=1)
            total = jnp.sum(gram, axis=-1)
            outer = along[..., :, None] * total[..., None, :]
            square = total[..., :, None] * total[..., None, :]
            product = product - outer - jnp.swapaxes(outer, -1, -2) + size[:, None, None] * square
            added = jnp.sum(along - 0.5 * size[:, None] * total, axis=-1) / self.noise_variance
        first = 1 + self.gain * gram[..., 0, 0]
        second = 1 + self.gain * gram[..., 1, 1]
        between = self.gain * gram[..., 0, 1]
        determinant = first * second - between**2
        explained = (
            second * product[..., 0, 0]
            + first * product[..., 1, 1]
            - 2 * between * product[..., 0, 1]
        ) / determinant
        num_columns = self.x.shape[2]
        log_density = fixed.weight * explained - 0.5 * num_columns * jnp.log(determinant)
        return jnp.sum(log_density + added, axis=-1)


def _solve_rows(rows: Array, factor: Array) -> Array:
    """The rows (N, K) times the inverse of the matrix with this Cholesky factor."""
    return cho_solve((factor, True), rows.T).T


def _changed(
    fixed: Fixed, statistics: PairStatistics, row: Array, setting: Array, changes: Array
) -> _Quantities:
    """Statistics of the density after changes (..., 1, 2) of a row's setting."""
    r_m, leverage, residual, squares = (
        _row(leaf, row) for leaf in (fixed.r_m, fixed.leverage, fixed.residual, fixed.squares)
    )
    projected = setting - jnp.sum(r_m[:, :, None] * statistics.through, axis=1)
    explained = jnp.sum(statistics.cross * residual[:, None, :], axis=2)

    def moved(matrix: Array, vector: Array, diagonal: Array) -> Array:
        outer = changes[..., :, None] * vector[:, None, :]
        square = changes[..., :, None] * changes[..., None, :]
        return matrix + outer + jnp.swapaxes(outer, -1, -2) + diagonal[:, None, None] * square

    along = None
    if fixed.mean is not None and fixed.tilt is not None:
        along = _along(fixed.mean, statistics) + changes * _row(fixed.tilt, row)[:, None]
    return _Quantities(
        gram=moved(statistics.gram, projected, leverage),
        product=moved(statistics.product, explained, squares),
        along=along,
    )


def _along(mean: Array, statistics: PairStatistics) -> Array:
    """c w, (G, 2)."""
    # a product of matrices: the density sums what comes of it, see `_squared_lengths` of
    # `multivariate_normal` for such sums of sums
    return jnp.einsum("gpc,gc->gp", statistics.cross, mean)


def linear_gaussian_columns(
    x: Array, *, noise_scale: Array, feature_scale: Array
) -> GaussianColumns:
    """The columns (N, D) of the linear-Gaussian model, one group."""
    noise_variance = jnp.asarray(noise_scale, x.dtype) ** 2
    return GaussianColumns(
        x=x[:, None, :],
        gain=(feature_scale**2 / noise_variance)[None],
        noise_variance=noise_variance,
    )


def bilinear_columns(
    v: Array,
    x: Array,
    *,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float,
    num_slots: int,
) -> GaussianColumns:
    """The collapsed binary matrix factorisation given V, as a function of U: L turned columns.

    Args:
      v: (J, L) bool.
      x: (I, J) float, missing cells imputed.
      weight_mean: w0, broadcasts to (K, L); one row for all slots of U whose features come and go.
    """
    turned = bilinear_rows.turn(
        v,
        noise_scale=noise_scale,
        weight_scale=weight_scale,
        weight_mean=weight_mean,
        num_slots=num_slots,
    )
    no_mean = isinstance(weight_mean, (int, float)) and weight_mean == 0
    return GaussianColumns(
        x=(x @ turned.basis)[:, :, None],
        gain=turned.strength,
        noise_variance=jnp.asarray(noise_scale, x.dtype) ** 2,
        mean=None if no_mean else turned.prior_mean[:, :, None],
    )


def _row(array: Array, row: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(array, row, keepdims=False)
