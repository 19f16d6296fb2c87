"""`SparseBinarySeries`: the description with its ascent and the questions that it answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf.arguments import assign, check_word
from jaxmf.data import SparseSeries
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair
from jaxmf.models.sparse_binary_series import ascent, queries
from jaxmf.models.sparse_binary_series.sparse_binary_series_spec import SparseBinarySeriesSpec
from jaxmf.types import Array, Draw, Key, Seed
from jaxmf.variational_bayes import answers, fit_checks, progress, state
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.paths import KERNELS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseBinarySeries(SparseBinarySeriesSpec):
    """Gaussian-process factors of the rows, and factors of the columns, of 0/1 matrices over time.

    Args:
      num_factors: K.
      lengthscale: of the kernel, in the unit of the times; None learns it. One far longer than the
        series makes rows that never change, one far shorter than the gaps of the times makes rows
        of one's own for every time.
      kernel: "matern_3_2" (paths with one derivative), "matern_5_2", "squared_exponential" (very
        smooth) or "matern_1_2" (rough).
      likelihood: `Bernoulli()`, the default, with the quadratic bound, or `Gaussian(noise_scale)`,
        whose noise is learned unless given; "sigmoid" and "gaussian" will do.
      zeros: which zeros the updates go through, as in `SparseBinaryMF`.
      bias: "rows_columns" (an intercept, a bias of every column, and one of every row that is a
        function of time too), "intercept" (that alone), or "none".
      row_mean: prior mean of a row's factors at any time: a number, or K of them.
      row_scale: their prior standard deviation, likewise; held, as a factor may be scaled on one
        side against the other.
      column_mean: prior mean of a column's factors: a number, K of them, or None to learn them.
      column_scale: their prior standard deviation, likewise.
      bias_scale: prior standard deviation of biases; None learns that of the columns' and holds
        that of the rows' at one.
      intercept_scale: prior standard deviation of the intercept.
    Raises:
      TypeError, ValueError: a setting of a wrong type or out of range, or settings that contradict
        each other.
    Example:
      >>> import jaxmf as mf
      >>> mf.SparseBinarySeries(num_factors=5, lengthscale=2.0).kernel
      'matern_3_2'
    """

    def __post_init__(self) -> None:
        assign(self, **_settings(self))

    def check_data(self, data: SparseSeries, name: str) -> None:
        """Refuses a series without any one."""
        if data.num_ones == 0:
            raise ValueError(f"{name}: has no ones at any time. At least one is needed.")

    # --- methods ----------------------------------------------------------------------------------

    def ascent(
        self,
        *,
        num_epochs: int = 50,
        start: str = "svd",
        update: str | None = None,
        relaxation: float = 1.7,
        hold_priors: int = 10,
        tolerance: float = 1e-5,
        patience: int = 3,
        evaluate_every: int = 1,
        num_evaluation: int = 500,
    ) -> Algorithm:
        """Coordinate ascent: the paths of the rows, and the columns, in turn, in closed form.

        With all zeros the free energy never rises, whatever is learned.

        Args:
          num_epochs: the most epochs.
          start: "svd" (leading singular vectors of the matrices below each other, smoothed) or
            "random", which needs many more epochs.
          update: of the paths' means: "joint" (all factors at all times of a row at once: a system
            of T K equations a row), or "factors" (one factor after the other: K systems of T). By
            default joint up to 256 equations.
          relaxation: steps are longer by this factor than to the minimiser.
          hold_priors: epochs before priors and the length scale are learned, and before the ascent
            may stop.
          tolerance, patience, evaluate_every, num_evaluation: when it stops, as in
            `SparseBinaryMF.ascent`.
        Returns:
          Algorithm on what `prepare` makes of the data.
        Raises:
          TypeError, ValueError: an option of a wrong type or out of range.
        """
        plan = AscentPlan(
            num_epochs=num_epochs,
            start=start,
            update=ascent.BY_SIZE if update is None else update,
            num_evaluation=num_evaluation,
            relaxation=relaxation,
            tolerance=tolerance,
            hold_priors=hold_priors,
            evaluate_every=evaluate_every,
            patience=patience,
        )
        fit_checks.check_stopping(plan)
        if update is not None:
            check_word("update", update, ("joint", "factors"))
        return algorithm(
            init=Partial(ascent.init, plan, self),
            step=Partial(progress.step, Partial(ascent.epoch, plan, self)),
            record=Partial(_record),
        )

    def prepare(
        self, data: SparseSeries, *, num_validation: int = 0, seed: Seed = 0
    ) -> state.PreparedOnes:
        """The data as the ascent goes through it; rows of validation are rows at a time."""
        prepared = state.prepare(
            data.stacked(), num_validation=num_validation, batch_size=None, seed=seed
        )
        return prepared._replace(gaps=jnp.asarray(data.gaps(), jnp.result_type(float)))

    def draw_of(self, last: state.AscentState) -> Draw:
        """Arrays recorded of the last state of an ascent, by name."""
        return progress.draw_of(last, partial(ascent.named, self))

    def alarms(self, draw: Draw, data: SparseSeries) -> list[tuple[str, str]]:
        """Alarms of a fit, a kind and a sentence each; empty where all is well."""
        del data
        return answers.alarms(self, queries.below_each_other(draw))

    # --- questions to a fit -----------------------------------------------------------------------

    at_time = queries.at

    def summary_of(self, draw: Draw) -> dict[str, tuple[float, float]]:
        """Scalars of a fit by name: mean and sd, which is NaN for what has no distribution."""
        rows = answers.summary(self, queries.below_each_other(draw))
        lengthscale = {"lengthscale": (float(np.asarray(draw["lengthscale"])), float("nan"))}
        return {"free_energy": rows.pop("free_energy")} | lengthscale | rows

    def score_cells(self, draw: Draw, rows: Array, columns: Array) -> Pair:
        return answers.score_cells(queries.at_last(draw), rows, columns)

    def score_rows(self, draw: Draw, rows: Array) -> Pair:
        last = queries.at_last(draw)
        return answers.score_rows(last, answers.factors_of_rows(last, rows))

    def transform_rows(
        self, key: Key, draw: Draw, data: SparseSeries, new_data: SparseSeries
    ) -> Array:
        """Posterior means of the factors of further rows at the last of their times, (M, K)."""
        del key, data
        return queries.fold_in(self, draw, new_data).mean[:, -1, : self.num_factors]

    def score_new_rows(self, draw: Draw, new_data: SparseSeries) -> Pair:
        """Mean and variance of the scores of further rows at the last of their times: (M, D)."""
        lines = queries.lines_of(draw, queries.fold_in(self, draw, new_data))
        return answers.score_rows(queries.at_last(draw), lines)


def _record(key: Key, state: state.AscentState, data: state.PreparedOnes) -> Draw:
    kept = progress.record(key, state, data)
    return kept | {"lengthscale": state.parameters.lengthscale}


def _settings(model: SparseBinarySeriesSpec) -> dict[str, object]:
    """The settings of a model, classes made objects.

    Raises:
      TypeError, ValueError: see `SparseBinarySeries`.
    """
    found = fit_checks.cell_settings(model)
    found["likelihood"] = _quadratic(found["likelihood"])
    if model.lengthscale is not None:
        fit_checks.check_number("lengthscale", model.lengthscale, positive=True)
    check_word("kernel", model.kernel, KERNELS)
    for name, positive in (("row_mean", False), ("row_scale", True)):
        if getattr(model, name) is None:
            raise ValueError(
                f"{name} is None, but that of a row's paths is held: its scale is shared with the "
                "columns; give a number, and learn column_scale"
            )
        fit_checks.check_per_factor(model, name, positive=positive)
    return found


def _quadratic(likelihood: object) -> object:
    """The likelihood with a quadratic bound, which the search for the length scale compares by."""
    assert isinstance(likelihood, Gaussian | Bernoulli)
    if isinstance(likelihood, Gaussian) or likelihood.is_quadratic:
        return likelihood
    if likelihood.bound is None:
        return Bernoulli("quadratic")
    raise ValueError(
        f"likelihood: a series has the quadratic bound only, got {likelihood!r}; use "
        'mf.Bernoulli("quadratic"), or leave likelihood out'
    )
