"""Binary matrix factorisation: X ~ f(U W V') with binary features of rows and of columns.

    U ~ IBP or beta-Bernoulli, (I, K) binary        features of the rows
    V ~ IBP or beta-Bernoulli, (J, L) binary        features of the columns
    w_kl ~ N(w0, weight_scale^2)                    how a row feature and a column feature meet
    x_ij ~ f((U W V')_ij)                           eq 1

with f Gaussian, logistic or Poisson; Poisson weights are Gamma. In the letters of the paper theta
is 1 / noise_scale^2 and phi is 1 / weight_scale^2. The prior of rows has alpha and beta
(concentration), that of columns lambda.

Source: Meeds, Ghahramani, Neal & Roweis (2006), Modeling dyadic data with binary latent factors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import MOST_SLOTS, check_count
from jaxmf.column_units import ColumnUnits
from jaxmf.data import Dense, units
from jaxmf.data.container import unchecked
from jaxmf.feature_models import SimulatedModel
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf import sides
from jaxmf.models.binary_mf.sides import FeatureSpec
from jaxmf.models.binary_mf.state import BinaryMFState, Hyperparameters
from jaxmf.priors.features import BetaBernoulli
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.slots import FIRST_SLOTS
from jaxmf.types import STATIC, Array


@dataclass(frozen=True, kw_only=True)
class BinaryMFSpec(ColumnUnits, SimulatedModel):
    """The fields of `BinaryMF`, and what follows from them alone."""

    row_prior: FeatureSpec = None  # type: ignore[assignment]
    column_prior: FeatureSpec = None  # type: ignore[assignment]
    likelihood: Gaussian | Bernoulli | Poisson = Gaussian()  # noqa: RUF009
    weight_scale: Hyperparameter = None
    weight_mean: float | Array = 0.0
    weight_shape: Hyperparameter = None
    weight_rate: Hyperparameter = None
    offset: float | Array | None = None
    column_unit: float | Array | None = None
    row_offset: float | Array | None = None
    diagonal: bool = field(default=False, metadata=STATIC)
    row_bias: bool = field(default=False, metadata=STATIC)
    column_bias: bool = field(default=False, metadata=STATIC)
    fixed_row_features: Any = None
    fixed_column_features: Any = None

    @property
    def row_alpha(self) -> Hyperparameter:
        return self.row_prior.alpha

    @property
    def row_concentration(self) -> Hyperparameter:
        return self.row_prior.concentration

    @property
    def column_alpha(self) -> Hyperparameter:
        return self.column_prior.alpha

    @property
    def column_concentration(self) -> Hyperparameter:
        return self.column_prior.concentration

    def num_fixed_rows(self) -> int:
        """How many slots of U hold given features."""
        return int(self.row_bias) + sides.width(self.fixed_row_features)

    def num_fixed_columns(self) -> int:
        """How many slots of V hold given features."""
        return int(self.column_bias) + sides.width(self.fixed_column_features)

    def transpose(self) -> Self:
        """The model of X': rows and columns exchanged."""
        swapped = {
            "row_prior": self.column_prior,
            "column_prior": self.row_prior,
            "row_bias": self.column_bias,
            "column_bias": self.row_bias,
            "fixed_row_features": self.fixed_column_features,
            "fixed_column_features": self.fixed_row_features,
            "weight_mean": jnp.transpose(self.weight_mean),
        }
        # those of columns have no form as rows; kernels see data that are centred and scaled
        units_of_lines = "offset", "column_unit", "row_offset"
        swapped |= {name: None for name in units_of_lines if np.ndim(getattr(self, name))}
        # settings are checked once; inside a transformation numbers cannot be looked at
        return unchecked(self, **swapped)

    def num_slots(self, capacity: int | None, side: str) -> int:
        """Slots of one side, "rows" or "columns", for a wished capacity; given features held."""
        if capacity is not None:
            capacity = check_count("capacity", capacity, most=MOST_SLOTS)
        is_rows = side == "rows"
        prior = self.row_prior if is_rows else self.column_prior
        num_fixed = self.num_fixed_rows() if is_rows else self.num_fixed_columns()
        if isinstance(prior, BetaBernoulli):
            return prior.num_features + num_fixed
        return (FIRST_SLOTS if capacity is None else capacity) + num_fixed

    def centred(self, data: Dense) -> Dense:
        """The data minus the offsets, in units of `column_unit`."""
        return units.centred(data, self._offsets(self.row_offset), self.column_unit)

    def _offsets(self, row_offset: object) -> object:
        """The offsets of cells: as `offset`, or (I, J) if rows have offsets too."""
        if row_offset is None:
            return self.offset
        rows = jnp.asarray(row_offset)
        columns = jnp.asarray(0.0 if self.offset is None else self.offset, rows.dtype)
        return columns + (rows[:, None] if rows.ndim else rows)

    def _new_levels(self, new_data: Dense) -> object:
        """Offsets of rows not seen in training: (M,), one number, or None."""
        if self.row_offset is None or np.ndim(self.row_offset) == 0:
            return self.row_offset
        about = units.centred(new_data, self.offset)
        if about.observed is None:
            return jnp.median(about.values, axis=1)
        levels = jnp.nanmedian(jnp.where(about.observed, about.values, jnp.nan), axis=1)
        return jnp.where(jnp.any(about.observed, axis=1), levels, 0)

    # --- the priors at the values of a state ------------------------------------------------------

    def row_prior_at(self, state: BinaryMFState) -> FeatureSpec:
        """The prior of U at the values of a state."""
        return replace(self.row_prior, alpha=state.row_alpha, concentration=state.row_concentration)

    def column_prior_at(self, state: BinaryMFState) -> FeatureSpec:
        """The prior of V at the values of a state."""
        return replace(
            self.column_prior, alpha=state.column_alpha, concentration=state.column_concentration
        )

    def likelihood_at(
        self, values: BinaryMFState | Hyperparameters
    ) -> Gaussian | Bernoulli | Poisson:
        """The likelihood of a cell given U W V', at the values of a state or a draw."""
        return self.likelihood.at_values(values._asdict())

    def weight_prior(self, values: BinaryMFState | Hyperparameters) -> WeightPrior:
        """The prior of W at the values of a state or a draw."""
        return WeightPrior(
            mean=jnp.asarray(self.weight_mean, values.weight_scale.dtype),
            scale=values.weight_scale,
            shape=values.weight_shape,
            rate=values.weight_rate,
            positive=isinstance(self.likelihood, Poisson),
            diagonal=self.diagonal,
        )

    def summed_out_mean(self) -> Array:
        """w0 as the likelihoods without W take it: of a matrix for a diagonal W its diagonal."""
        mean = jnp.asarray(self.weight_mean)
        return jnp.diagonal(mean) if self.diagonal and mean.ndim else mean

    def row_exists(self, state: BinaryMFState) -> Array:
        """(K,) bool: slots of U that are features, given ones included."""
        return sides.exists(self.row_prior_at(state), state.u, self.num_fixed_rows())

    def column_exists(self, state: BinaryMFState) -> Array:
        """(L,) bool: slots of V that are features, given ones included."""
        return sides.exists(self.column_prior_at(state), state.v, self.num_fixed_columns())

    def weight_exists(self, state: BinaryMFState) -> Array:
        """(K, L) bool: weights between features of a state; the others are zero."""
        prior = self.weight_prior(state)
        return prior.there(self.row_exists(state), self.column_exists(state))
