"""What a fit says: scores and their uncertainty, probabilities, rows not seen in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.models.sparse_binary_mf.state import from_draw
from jaxmf.types import Array
from jaxmf.variational import Gaussian, Normal
from jaxmf.variational import updates as closed
from jaxmf.variational.parameters import Half, half
from jaxmf.variational.pieces import Table, cut
from jaxmf.variational.sums import gathered_moments, gatherer, shared_moments, side_sums
from jaxmf.variational.zeros import All

if TYPE_CHECKING:
    from jaxmf.models.sparse_binary_mf.model import SparseBinaryMF

Draw = dict[str, Array]
_NUM_NODES = 32
# Factors weaker than this share of the strongest, or than this, are switched off.
_LEAST_SHARE, _LEAST_STRENGTH = 1e-3, 1e-6
_NUM_FOLDS = 30


def score_cells(draw: Draw, rows: Array, columns: Array) -> tuple[Array, Array]:
    """Mean and variance under Q of the scores of cells (M,): (M,) each."""
    view = half(from_draw(draw), "rows")
    mine = Normal(view.mine.mean[rows], view.mine.variance[rows])
    others = gatherer(view.others)(columns[:, None])
    mean, variance = gathered_moments(mine, others, view.bias)
    return mean[:, 0], variance[:, 0]


def score_rows(draw: Draw, mine: Normal) -> tuple[Array, Array]:
    """Mean and variance of the scores of lines (M, L) with all columns: (M, D) each."""
    view = half(from_draw(draw), "rows")
    return shared_moments(mine, view.others, view.bias)


def factors_of_rows(draw: Draw, rows: Array) -> Normal:
    """Factors of some rows with their offsets, as `score_rows` takes them: (M, L) each."""
    view = half(from_draw(draw), "rows")
    return Normal(view.mine.mean[rows], view.mine.variance[rows])


def probability(model: SparseBinaryMF, mean: Array, variance: Array) -> Array:
    """Probability of a one, E[sigma(m)] over a Gaussian score by Gauss-Hermite quadrature.

    With Gaussian cells the mean of the cell as 0 or 1, which may lie outside of them.
    """
    if isinstance(model.likelihood, Gaussian):
        return (1 + mean) / 2
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    weights = weights / weights.sum()
    spread = jnp.sqrt(variance)

    def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        return total + node[1] * jax.nn.sigmoid(mean + spread * node[0]), None

    pairs = (jnp.asarray(nodes, mean.dtype), jnp.asarray(weights, mean.dtype))
    return jax.lax.scan(add, jnp.zeros_like(mean), pairs)[0]


def cell_moments(
    model: SparseBinaryMF, draw: Draw, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """Mean and variance of cells as 0 or 1, from those of their scores."""
    expected = probability(model, mean, variance)
    if isinstance(model.likelihood, Gaussian):
        return expected, (variance + draw["noise_variance"]) / 4
    return expected, expected * (1 - expected)


def fold_in(model: SparseBinaryMF, draw: Draw, new_data: SparseBinary) -> Normal:
    """Factors and offsets of further rows given those of the columns: (M, L) each.

    The updates of rows, all zeros included, again and again; the columns stay as they are.

    Args:
      model: its description.
      draw: what a fit recorded.
      new_data: (M, D).
    """
    parameters = from_draw(draw)
    view = half(parameters, "rows")
    num_rows, num_columns = new_data.shape
    index = jnp.arange(num_columns, dtype=jnp.int32)
    missing = None
    if new_data.missing_rows is not None:
        missing = cut(new_data.missing_rows, new_data.missing_columns, num_lines=num_rows)
    table = Table(
        ones=cut(new_data.rows, new_data.columns, num_lines=num_rows),
        missing=missing,
        starts=jnp.zeros((num_rows + 1,), jnp.int32),
        taken=new_data.columns,
        order=index,
    )
    shape = (num_rows, view.prior.mean.shape[0])
    prior = view.prior._replace(variance=jnp.where(view.free, view.prior.variance, 0))
    start = Normal(*(jnp.broadcast_to(part, shape) for part in prior))

    def once(_: int, mine: Normal) -> Normal:
        now: Half = view._replace(mine=mine)
        sums = side_sums(
            now, table, All(), likelihood=model.likelihood, noise=parameters.noise, block=True
        )
        found = closed.slopes(now, sums, block=True)
        mean = mine.mean - closed.newton_step(now, sums, found)
        return Normal(mean, closed.new_variances(now, found))

    return jax.lax.fori_loop(0, _NUM_FOLDS, once, start)


def summary(model: SparseBinaryMF, draw: Draw) -> dict[str, tuple[float, float]]:
    """Scalars of a fit by name: mean and sd, which is NaN for numbers without a law.

    The strength of a factor is the root mean square of its part of the scores over all cells.
    Factors that the fit has switched off, of next to no strength, are left out.
    """
    nothing = float("nan")
    rows = {"free_energy": (float(draw["free_energy"]), nothing)}
    if "validation_score" in draw:
        rows["validation_score"] = (float(draw["validation_score"]), nothing)
    if model.offsets != "none":
        rows["bias"] = (float(draw["bias"]), float(np.sqrt(draw["bias_variance"])))
    if isinstance(model.likelihood, Gaussian):
        rows["noise_variance"] = (float(draw["noise_variance"]), nothing)
    strength = np.sqrt(np.mean(draw["row_mean"] ** 2, 0) * np.mean(draw["column_mean"] ** 2, 0))
    in_use = np.sort(strength)[::-1]
    in_use = in_use[in_use > max(_LEAST_SHARE * in_use[0], _LEAST_STRENGTH)]
    rows["factors_in_use"] = (float(in_use.size), nothing)
    for place, value in enumerate(in_use):
        rows[f"strength[{place}]"] = (float(value), nothing)
    return rows
