"""What is fitted: means and variances of the factors, offsets and bias, and their priors.

Offsets are two further factors: the rows' offset meets a column factor that is one, the columns'
offset a row factor that is one. A `Half` is the model seen from one side in this form; every update
is written once, for a `Half`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmf.types import Array


class Normal(NamedTuple):
    """Independent Gaussians by mean and variance, arrays of one shape."""

    mean: Array
    variance: Array


class Priors(NamedTuple):
    """The priors of the parameters, each Gaussian.

    Attributes:
      rows: mean and variance of a row's factors, each (K,).
      columns: mean and variance of a column's factors, each (K,).
      row_offset: variance of a row's offset, () float; its mean is zero.
      column_offset: variance of a column's offset, () float.
      bias: variance of the bias, () float.
    """

    rows: Normal
    columns: Normal
    row_offset: Array
    column_offset: Array
    bias: Array


class Parameters(NamedTuple):
    """The approximate posterior Q and the hyperparameters learned beside it.

    Attributes:
      rows: factors of the rows, (N, K) each.
      columns: factors of the columns, (D, K) each.
      row_offset: (N,) each; None without offsets.
      column_offset: (D,) each; None without offsets.
      bias: () each; held at zero without a bias.
      priors: see `Priors`.
      noise: () float, variance of the noise of Gaussian cells.
    """

    rows: Normal
    columns: Normal
    row_offset: Normal | None
    column_offset: Normal | None
    bias: Normal
    priors: Priors
    noise: Array


class Half(NamedTuple):
    """The model seen from one side: the factors of its lines, and those of the other side.

    Attributes:
    From the rows a line is a row; from the columns rows and columns are exchanged.

      factors: (N, L) each, with L = K, or K + 2 with offsets.
      others: (D, L) each.
      bias: () each.
      prior: (L,) each, of a line's factors.
      free: (L,) bool on the host: False for the factor that is one.
    """

    factors: Normal
    others: Normal
    bias: Normal
    prior: Normal
    free: np.ndarray


def half(parameters: Parameters, side: str) -> Half:
    """The model seen from "rows" or "columns"."""
    p = parameters
    offset, other_offset = p.row_offset, p.column_offset
    factors, others, prior, spread = p.rows, p.columns, p.priors.rows, p.priors.row_offset
    if side == "columns":
        factors, others = others, factors
        offset, other_offset = other_offset, offset
        prior, spread = p.priors.columns, p.priors.column_offset
    free = np.ones(factors.mean.shape[1], bool)
    if offset is None or other_offset is None:
        return Half(factors, others, p.bias, prior, free)
    # a side's offset comes first, so that both sides look alike
    one = jnp.ones((1,), prior.mean.dtype)
    return Half(
        factors=_widen(factors, offset, offset_first=True),
        others=_widen(others, other_offset, offset_first=False),
        bias=p.bias,
        prior=Normal(
            mean=jnp.concatenate([prior.mean, 0 * one, one]),
            variance=jnp.concatenate([prior.variance, spread[None], one]),
        ),
        free=np.append(free, [True, False]),
    )


def _widen(factors: Normal, offset: Normal, *, offset_first: bool) -> Normal:
    """The factors with an offset and the constant one as two more."""

    def add(values: Array, offset: Array, constant: float) -> Array:
        more = [offset[:, None], jnp.full_like(offset[:, None], constant)]
        return jnp.concatenate([values, *(more if offset_first else more[::-1])], axis=1)

    return Normal(
        mean=add(factors.mean, offset.mean, 1.0),
        variance=add(factors.variance, offset.variance, 0.0),
    )


def with_half(parameters: Parameters, side: str, factors: Normal, bias: Normal) -> Parameters:
    """The parameters with one side's factors and offsets, and the bias, put in.

    Args:
      parameters: as they were.
      side: "rows" or "columns".
      factors: (N, L) each, as in `Half`.
      bias: () each.
    """
    num_factors = parameters.rows.mean.shape[1]
    without_offset = Normal(factors.mean[:, :num_factors], factors.variance[:, :num_factors])
    offset = None
    if parameters.row_offset is not None:
        offset = Normal(factors.mean[:, num_factors], factors.variance[:, num_factors])
    if side == "rows":
        return parameters._replace(rows=without_offset, row_offset=offset, bias=bias)
    return parameters._replace(columns=without_offset, column_offset=offset, bias=bias)
