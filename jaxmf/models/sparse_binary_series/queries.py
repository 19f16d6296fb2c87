"""What a fit of a series says: at its times, between and after them, and of rows not seen."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseSeries
from jaxmf.models.sparse_binary_series.sparse_binary_series_spec import SparseBinarySeriesSpec
from jaxmf.programs import jit
from jaxmf.types import Array, Draw
from jaxmf.variational_bayes import paths as gp
from jaxmf.variational_bayes import series
from jaxmf.variational_bayes.answers import table_of_new_rows
from jaxmf.variational_bayes.parameters import Normal, half
from jaxmf.variational_bayes.paths import Paths
from jaxmf.variational_bayes.series import SeriesParameters
from jaxmf.variational_bayes.state import from_draw
from jaxmf.variational_bayes.sums import side_sums
from jaxmf.variational_bayes.zeros import All

_OF_ROWS = ("row_mean", "row_variance", "row_bias", "row_bias_variance")
_NUM_FOLDS = 30


def at_last(draw: Draw) -> Draw:
    """A draw with the rows as they are at the last time, as one of a single matrix has them."""
    return draw | {name: draw[name][:, -1] for name in _OF_ROWS if name in draw}


def below_each_other(draw: Draw) -> Draw:
    """A draw with the rows of all times, one below the other."""
    return draw | {
        name: draw[name].reshape(-1, *draw[name].shape[2:]) for name in _OF_ROWS if name in draw
    }


def at(
    model: SparseBinarySeriesSpec, draw: Draw, data: SparseSeries, time: object
) -> tuple[Draw, SparseSeries]:
    """A draw and its data at one time, be it one of the series or not.

    Raises:
      TypeError, ValueError: no finite number; the draw is of one time already.
    """
    if isinstance(time, bool) or not isinstance(time, (int, float, np.integer, np.floating)):
        raise TypeError(f"time must be a number, as the times of the data are, got {time!r}")
    if not math.isfinite(time):
        raise ValueError(f"time must be finite, got {time!r}")
    if "row_weight" not in draw:
        raise ValueError("this posterior is of one time already; ask that of the whole series")
    across = np.abs(np.asarray(data.times, np.float64) - float(time))
    dtype = draw["row_weight"].dtype
    moments = _moments_at(model, draw, jnp.asarray(data.gaps(), dtype), jnp.asarray(across, dtype))
    kept = {name: x for name, x in draw.items() if name not in ("row_weight", "row_precision")}
    width = draw["row_mean"].shape[-1]
    kept |= {"row_mean": moments.mean[:, None, :width]}
    kept |= {"row_variance": moments.variance[:, None, :width]}
    if "row_bias" in draw:
        kept |= {"row_bias": moments.mean[:, None, width]}
        kept |= {"row_bias_variance": moments.variance[:, None, width]}
    return kept, data.at(float(time))


@jit
def _moments_at(model: SparseBinarySeriesSpec, draw: Draw, gaps: Array, across: Array) -> Normal:
    lengthscale = draw["lengthscale"]
    return gp.moments_between(
        Paths(draw["row_weight"], draw["row_precision"]),
        correlations=gp.correlation(model.kernel, gaps, lengthscale),
        across=gp.correlation(model.kernel, across, lengthscale),
        prior=series.path_prior(_parameters(draw, gaps)),
    )


def _parameters(draw: Draw, gaps: Array) -> SeriesParameters:
    """All but the paths of the parameters that a draw holds."""
    plain = from_draw(at_last(draw))
    nothing = jnp.zeros(())
    return SeriesParameters(
        paths=Paths(nothing, nothing),
        columns=plain.columns,
        column_bias=plain.column_bias,
        intercept=plain.intercept,
        priors=plain.priors,
        noise=plain.noise,
        lengthscale=jnp.asarray(draw["lengthscale"]),
        gaps=gaps,
    )


def fold_in(model: SparseBinarySeriesSpec, draw: Draw, new_data: SparseSeries) -> Normal:
    """Values of the paths of further rows, at their own times, given the columns: (M, T, L) each.

    The updates of rows, all zeros included, again and again; the columns stay as they are.

    Args: new_data: M rows at T times, which need not be those of the fit.
    """
    times = jnp.asarray(new_data.times)
    parameters = _parameters(draw, jnp.abs(times[:, None] - times))
    num_rows, num_times, num_columns = new_data.shape
    shape = (num_rows * num_times, num_columns)
    table = table_of_new_rows(*new_data.lines(), new_data.missing_lines(), shape=shape)
    width = series.path_prior(parameters).mean.shape[0]
    nothing = jnp.zeros((num_rows, num_times, width), parameters.noise.dtype)
    values_of = partial(series.values, kernel=model.kernel)

    def once(_: int, paths: Paths) -> Paths:
        now = parameters._replace(paths=paths)
        row_values, _divergence = values_of(now)
        plain = series.stacked(now, row_values)
        view = half(plain, "rows")
        sums = side_sums(
            view, table, All(), likelihood=model.likelihood, noise=plain.noise, block=True
        )
        found, _values, _search = series.update_rows(
            now,
            row_values,
            series.quadratic(view, sums, num_times=num_times),
            None,
            kernel=model.kernel,
            joint=False,
            relaxation=jnp.ones((), nothing.dtype),
        )
        return found.paths

    paths = jax.lax.fori_loop(0, _NUM_FOLDS, once, Paths(nothing, nothing))
    return values_of(parameters._replace(paths=paths))[0]


def lines_of(draw: Draw, values: Normal) -> Normal:
    """Rows at the last of their times as scores take them, (M, L + 1) or (M, K) each."""
    mean, variance = values.mean[:, -1], values.variance[:, -1]
    if "row_bias" not in draw:
        return Normal(mean, variance)
    one = jnp.ones_like(mean[:, :1])
    return Normal(
        mean=jnp.concatenate([mean, one], axis=1),
        variance=jnp.concatenate([variance, 0 * one], axis=1),
    )
