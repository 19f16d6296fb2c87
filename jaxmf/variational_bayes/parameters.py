"""What is fitted: means and variances of the factors, biases and intercept, and their priors.

Biases are two further factors: the rows' bias meets a column factor that is one, the columns'
bias a row factor that is one. A `Half` is the model seen from one side in this form; every update
is written once, for a `Half`.

`draw_ones` simulates the cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Array, Key
from jaxmf.variational_bayes.contracts import Likelihood


class Normal(NamedTuple):
    """Independent Gaussians by mean and variance, arrays of one shape."""

    mean: Array
    variance: Array


class Priors(NamedTuple):
    """The priors of the parameters, each Gaussian.

    Attributes:
      rows: mean and variance of a row's factors, each (K,).
      columns: mean and variance of a column's factors, each (K,).
      row_bias: variance of a row's bias, () float; its mean is zero.
      column_bias: variance of a column's bias, () float.
      intercept: variance of the intercept, () float.
    """

    rows: Normal
    columns: Normal
    row_bias: Array
    column_bias: Array
    intercept: Array


class Parameters(NamedTuple):
    """The approximate posterior Q and the hyperparameters learned beside it."""

    rows: Normal  # factors of the rows, (N, K) each
    columns: Normal  # factors of the columns, (D, K) each
    row_bias: Normal | None  # (N,) each; None without biases
    column_bias: Normal | None  # (D,) each; None without biases
    intercept: Normal  # () each; held at zero without an intercept
    priors: Priors  # see `Priors`
    noise: Array  # () float, variance of the noise of Gaussian cells


class Half(NamedTuple):
    """The model seen from one side: the factors of its lines, and those of the other side.

    From the rows a line is a row; from the columns rows and columns are exchanged.

    Attributes:
      factors: (N, L) each, with L = K, or K + 2 with biases.
      others: (D, L) each.
      intercept: () each.
      prior: (L,) each, of a line's factors.
      free: (L,) bool on the host: False for the factor that is one.
    """

    factors: Normal
    others: Normal
    intercept: Normal
    prior: Normal
    free: np.ndarray


def half(parameters: Parameters, side: str) -> Half:
    """The model seen from "rows" or "columns"."""
    p = parameters
    bias, other_bias = p.row_bias, p.column_bias
    factors, others, prior, spread = p.rows, p.columns, p.priors.rows, p.priors.row_bias
    if side == "columns":
        factors, others = others, factors
        bias, other_bias = other_bias, bias
        prior, spread = p.priors.columns, p.priors.column_bias
    free = np.ones(factors.mean.shape[1], bool)
    if bias is None or other_bias is None:
        return Half(factors, others, p.intercept, prior, free)
    # a side's bias comes first, so that both sides look alike
    one = jnp.ones((1,), prior.mean.dtype)
    return Half(
        factors=_widen(factors, bias, bias_first=True),
        others=_widen(others, other_bias, bias_first=False),
        intercept=p.intercept,
        prior=Normal(
            mean=jnp.concatenate([prior.mean, 0 * one, one]),
            variance=jnp.concatenate([prior.variance, spread[None], one]),
        ),
        free=np.append(free, [True, False]),
    )


def _widen(factors: Normal, bias: Normal, *, bias_first: bool) -> Normal:
    """The factors with a bias and the constant one as two more."""

    def add(values: Array, bias: Array, constant: float) -> Array:
        more = [bias[:, None], jnp.full_like(bias[:, None], constant)]
        return jnp.concatenate([values, *(more if bias_first else more[::-1])], axis=1)

    return Normal(
        mean=add(factors.mean, bias.mean, 1.0), variance=add(factors.variance, bias.variance, 0.0)
    )


def with_half(parameters: Parameters, side: str, factors: Normal, intercept: Normal) -> Parameters:
    """The parameters with one side's factors and biases, and the intercept, put in.

    Args: parameters: as they were; factors (N, L) each, as in `Half`; intercept () each.
    """
    num_factors = parameters.rows.mean.shape[1]
    without_bias = Normal(factors.mean[:, :num_factors], factors.variance[:, :num_factors])
    bias = None
    if parameters.row_bias is not None:
        bias = Normal(factors.mean[:, num_factors], factors.variance[:, num_factors])
    if side == "rows":
        return parameters._replace(rows=without_bias, row_bias=bias, intercept=intercept)
    return parameters._replace(columns=without_bias, column_bias=bias, intercept=intercept)


_BLOCK_CELLS = 2**22


def draw_ones(
    key: Key, parameters: Parameters, *, likelihood: Likelihood
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the ones of a matrix, drawn on the host a block of rows at a time.

    Args:
      parameters: means are taken as the parameters, variances are not looked at.
      likelihood: of a cell; those of the Gaussian are ones where they are positive.
    """
    shape = parameters.rows.mean.shape[0], parameters.columns.mean.shape[0]
    generator = np.random.default_rng(np.ravel(jax.random.key_data(key)).tolist())
    p: Any = jax.tree.map(np.asarray, parameters)
    is_gaussian = isinstance(likelihood, Gaussian)
    noise_scale = float(np.sqrt(parameters.noise))
    block = max(1, _BLOCK_CELLS // shape[1])
    rows, columns = [], []
    for start in range(0, shape[0], block):
        here = slice(start, start + block)
        mean = p.rows.mean[here] @ p.columns.mean.T + p.intercept.mean
        if p.row_bias is not None:
            mean = mean + p.row_bias.mean[here, None] + p.column_bias.mean
        if is_gaussian:
            ones = mean + noise_scale * generator.standard_normal(mean.shape) > 0
        else:
            # uniform < sigma(m), by the logistic quantile of the uniform
            uniform = generator.random(mean.shape, np.float32)
            ones = np.log(uniform) - np.log1p(-uniform) < mean
        ones_at = np.nonzero(ones)
        rows.append(ones_at[0] + start)
        columns.append(ones_at[1])
    return np.concatenate(rows), np.concatenate(columns)
