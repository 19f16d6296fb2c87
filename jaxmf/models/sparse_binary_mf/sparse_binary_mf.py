"""`SparseBinaryMF`: the description with its ascent and the questions that it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import jax
from jax.tree_util import Partial

from jaxmf.arguments import assign
from jaxmf.data import SparseBinary
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair
from jaxmf.models.sparse_binary_mf import ascent, closed_form, factor_checks, fold_in
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Draw, Key, PyTree, Seed
from jaxmf.variational_bayes import (
    answers,
    held_out,
    partial_newton,
    progress,
    shares,
    state,
)
from jaxmf.variational_bayes.contracts import AscentPlan

if TYPE_CHECKING:
    import optax

_MAX_BLOCK_FACTORS = 32
_LEARNING_RATE = 0.02
_RELAXATION = 1.7
_FEW_ONES = 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseBinaryMF(SparseBinaryMFSpec):
    """Gaussian factors of the rows and columns of a sparse 0/1 matrix.

    Args:
      num_factors: K.
      likelihood: `Bernoulli()`, the default, whose bound is chosen by the data (tilted where rows
        have fewer than 20 ones on average), or `Gaussian(noise_scale)`, whose noise is learned
        unless given; "sigmoid" and "gaussian" will do.
      zeros: which zeros the updates sum over: `Exact()`, `SharedSample(n)` or
        `RowSample(n, resample)`. By default all with Gaussian cells, where that costs nothing, and
        `SharedSample(500)` with others.
      bias: "rows_columns" (an intercept, and a bias of every row and every column, which ranks by
        popularity where factors say nothing), "intercept" (that alone), or "none".
      row_mean: prior mean of a row's factors: a number, or K of them; None learns them.
      row_scale: prior standard deviation of a row's factors, likewise; fixed at one by default,
        since a factor may be multiplied by a number in the rows and divided by it in the columns.
      column_mean: prior mean of a column's factors, likewise.
      column_scale: prior standard deviation of a column's factors, likewise; with twenty factors
        the default lets scores vary by sqrt(20 / 2) a priori. Learning it (None) drives factors to
        zero where rows have fewer than about twenty ones.
      bias_scale: prior standard deviation of biases; None learns one for rows and one for columns.
      intercept_scale: prior standard deviation of the intercept.
    Raises:
      TypeError, ValueError: a setting of a wrong type or out of range, or settings that contradict
        each other.
    Example:
      >>> import jaxmf as mf
      >>> mf.SparseBinaryMF(num_factors=20, likelihood=mf.Gaussian(), bias="none").zeros
      Exact()
    """

    def __post_init__(self) -> None:
        assign(self, **factor_checks.settings(self))

    def matched(self, data: SparseBinary) -> SparseBinaryMF:
        """The model with the bound of its sigmoid chosen by the data, where that is left open.

        The tilted bound is the tighter by far where few ones leave a row's factors uncertain; with
        many ones a row both are alike and the quadratic one ranked better in every comparison made.
        """
        likelihood = self.likelihood
        if isinstance(likelihood, Gaussian) or likelihood.bound is not None:
            return self
        is_sparse = data.num_ones < _FEW_ONES * data.num_rows
        return replace(self, likelihood=Bernoulli("tilted" if is_sparse else "quadratic"))

    def check_data(self, data: SparseBinary, name: str) -> None:
        """Refuses data without any one."""
        data.check_has_ones(name)

    # --- methods ----------------------------------------------------------------------------------

    def ascent(
        self,
        *,
        num_epochs: int = 50,
        start: str = "svd",
        update: str | None = None,
        relaxation: float | None = None,
        power: float | None = None,
        step_size: float | None = None,
        optimizer: object = None,
        batch_size: int | None = None,
        decay: float = 0.7,
        hold_priors: int = 10,
        tolerance: float = 1e-5,
        patience: int = 3,
        evaluate_every: int = 1,
        num_evaluation: int = 250,
    ) -> Algorithm:
        """Coordinate ascent: rows and columns in turn, in closed form.

        Args:
          num_epochs: the most epochs.
          start: "svd" (leading singular vectors, those of the rows with mean square one; for the
            tilted bound of the ones divided by the roots of their row's and column's numbers of
            ones) or "random", which needs more epochs.
          update: of the means: "block" (a Newton step of all factors of a line, exact at fixed
            zeta), "partial_newton" (diagonal), or "gradient" (all means and log variances at once
            by an optax optimiser on the derivative of the free energy). By default block for up to
            32 factors, then partial Newton.
          relaxation: block steps are longer by this factor. 1.7 by default: below two the free
            energy still falls (at fixed zeta it is a parabola along the step), and above one much
            faster, as zeta lets the scores of a sparse matrix go only slowly. With the tilted bound
            1, of Newton steps that are shortened where they move scores by much. Where zeros are
            drawn anew, steps shorten over the second half of the epochs.
          power: alpha of partial Newton, 1 by default.
          step_size: gamma of partial Newton at the start, 0.5 by default; it adapts to the free
            energy.
          optimizer: an optax transformation: for "gradient" instead of `optax.adam(0.02)`; for
            "partial_newton" a chain with `jaxmf.variational_bayes.partial_newton(...)` in it.
          batch_size: rows of a batch; None for all at once. With batches the columns follow scaled
            sums over a few rows, or the derivative from these, in steps that decay: for data of so
            many rows that a pass is long.
          decay: kappa of those steps: (1 + t)^-kappa at the t-th batch, or with gradients
            (1 + t / number of batches)^-kappa of the optimiser's own; above 1/2 and at most 1.
          hold_priors: epochs before priors are learned, and before the ascent may stop: learned
            from the start they collapse.
          tolerance: stop once the free energy of a fixed sample changes by less, relatively, ...
          patience: ... this many times in succession; with validation once its score did not
            improve this many times.
          evaluate_every: epochs between two looks at free energy and validation score; one where
            noise is learned, which takes a look.
          num_evaluation: columns of that fixed sample.
        Returns:
          Algorithm on what `prepare` makes of the data.
        Raises:
          TypeError, ValueError: an option of a wrong type or out of range, or options that
            contradict each other.
        """
        if update is None:
            in_blocks = batch_size is not None or self.num_factors <= _MAX_BLOCK_FACTORS
            update = "block" if in_blocks else "partial_newton"
        if relaxation is None:
            relaxation = _RELAXATION if self.likelihood.is_quadratic else 1.0
        plan = AscentPlan(
            num_epochs=num_epochs,
            start=start,
            update=update,
            optimizer=optimizer,
            num_evaluation=num_evaluation,
            relaxation=relaxation,
            decay=decay,
            tolerance=tolerance,
            hold_priors=hold_priors,
            evaluate_every=evaluate_every,
            patience=patience,
        )
        factor_checks.options(plan, power=power, step_size=step_size, batch_size=batch_size)
        if optimizer is None:
            plan = replace(plan, optimizer=_default_optimizer(update, power, step_size))
        return algorithm(
            init=Partial(ascent.init, plan, self),
            step=Partial(progress.step, Partial(ascent.epoch, plan, self)),
            record=progress.record,
            row_arrays=shares.row_arrays,
        )

    takes_process_rows = "variational"

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Rows are spread over "data", each with its ones."""
        return () if factor_checks.not_spread(self, options) else (DATA_AXIS,)

    def mesh_advice(self, options: Mapping[str, object]) -> str:
        """Settings that keep rows from being spread over devices; empty if they are spread."""
        names = " and ".join(factor_checks.not_spread(self, options))
        return f"without {names} it spreads rows over {DATA_AXIS!r}" if names else ""

    def prepare(
        self,
        data: SparseBinary,
        *,
        num_validation: int = 0,
        batch_size: int | None = None,
        seed: Seed = 0,
        hold_out: int | None = None,
        num_devices: int = 1,
    ) -> PyTree:
        """The data as the ascent goes through it; see `state.prepare`.

        Ones are held out by default where zeros are drawn anew, for which all epochs are needed.

        Raises:
          ValueError: `hold_out` with batches or validation, more than rows can lose, or rows that
            the devices cannot share evenly.
        """
        num_held_out = factor_checks.hold_out(
            self, data, hold_out, by_itself=batch_size is None and num_validation == 0
        )
        return state.prepare(
            data,
            num_validation=num_validation,
            batch_size=batch_size,
            seed=seed,
            hold_out=num_held_out,
            num_devices=num_devices,
        )

    summary_of = answers.summary

    def alarms(self, draw: Draw, data: SparseBinary) -> list[tuple[str, str]]:
        """Alarms of a fit, a kind and a sentence each; empty where all is well."""
        del data
        return answers.alarms(self, draw)

    analytic = closed_form.closed_form

    def draw_of(self, last: state.AscentState) -> Draw:
        """Arrays recorded of the last state of an ascent, by name."""
        return progress.draw_of(last, state.as_draw)

    def held_out_of(self, last: state.AscentState, data: SparseBinary) -> Mapping[str, object]:
        """Scores of the ones held out by the fit and by popularity; empty without any."""
        return {} if last.unknowing is None else held_out.comparison(last.unknowing, data)

    # --- questions to a fit -----------------------------------------------------------------------

    def score_cells(self, draw: Draw, rows: Array, columns: Array) -> Pair:
        return answers.score_cells(draw, rows, columns)

    def score_rows(self, draw: Draw, rows: Array) -> Pair:
        return answers.score_rows(draw, answers.factors_of_rows(draw, rows))

    def factors(self, draw: Draw, data: SparseBinary) -> tuple[Array, Array]:
        del data
        rows, columns = draw["row_mean"], draw["column_mean"]
        if self.bias == "rows_columns":  # what all columns or all rows share is a level
            rows, columns = rows - rows.mean(axis=0), columns - columns.mean(axis=0)
        return rows, columns

    def transform_rows(
        self, key: Key, draw: Draw, data: SparseBinary, new_data: SparseBinary
    ) -> Array:
        """Posterior means of the factors of further rows, (M, K)."""
        del key, data
        return fold_in.fold_in(self, draw, new_data).mean[:, : self.num_factors]

    def score_new_rows(self, draw: Draw, new_data: SparseBinary) -> Pair:
        return answers.score_rows(draw, fold_in.fold_in(self, draw, new_data))


def _default_optimizer(
    update: str, power: float | None, step_size: float | None
) -> optax.GradientTransformation | None:
    if update == "partial_newton":
        return partial_newton(
            1.0 if power is None else power, 0.5 if step_size is None else step_size
        )
    return _adam() if update == "gradient" else None


@cache
def _adam() -> optax.GradientTransformation:
    # one object, so that a second fit finds the program of the first
    import optax

    return optax.adam(_LEARNING_RATE)
