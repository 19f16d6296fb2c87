"""Cells drawn from their scores."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Key
from jaxmf.variational_bayes.contracts import Likelihood
from jaxmf.variational_bayes.parameters import Parameters

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
