"""Rows not seen in training: the updates of rows, with the columns as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.data import SparseBinary
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.types import Draw
from jaxmf.variational_bayes import updates
from jaxmf.variational_bayes.answers import table_of_new_rows
from jaxmf.variational_bayes.parameters import Half, Normal, half
from jaxmf.variational_bayes.state import from_draw
from jaxmf.variational_bayes.sums import side_sums
from jaxmf.variational_bayes.zeros import All

_NUM_FOLDS = 30


def fold_in(model: SparseBinaryMFSpec, draw: Draw, new_data: SparseBinary) -> Normal:
    """Factors and biases of further rows given those of the columns: (M, L) each.

    The updates of rows, all zeros included, again and again; the columns stay as they are.

    Args: new_data (M, D).
    """
    parameters = from_draw(draw)
    view = half(parameters, "rows")
    missing = None
    if new_data.missing_rows is not None and new_data.missing_columns is not None:
        missing = (new_data.missing_rows, new_data.missing_columns)
    table = table_of_new_rows(new_data.rows, new_data.columns, missing, shape=new_data.shape)
    shape = (new_data.num_rows, view.prior.mean.shape[0])
    prior = view.prior._replace(variance=jnp.where(view.free, view.prior.variance, 0))
    start = Normal(*(jnp.broadcast_to(part, shape) for part in prior))

    def once(_: int, factors: Normal) -> Normal:
        now: Half = view._replace(factors=factors)
        sums = side_sums(
            now, table, All(), likelihood=model.likelihood, noise=parameters.noise, block=True
        )
        slopes = updates.slopes(now, sums, block=True)
        change = updates.newton_step(now, sums, slopes)
        length = updates.step_lengths(now, change, likelihood=model.likelihood)
        variance = updates.new_variances(now, slopes, likelihood=model.likelihood)
        return Normal(factors.mean - length * change, variance)

    return jax.lax.fori_loop(0, _NUM_FOLDS, once, start)
