"""The linear-Gaussian Indian buffet process: X = Z Y + noise with binary Z of unknown width.

    alpha ~ its prior,  Z ~ IBP(alpha)                   eq 2
    y_kd ~ N(0, feature_scale^2)
    x_nd = offset_d + column_unit_d (sum_k z_nk y_kd + e_nd),  e_nd ~ N(0, noise_scale^2)

With `column_noise` column_unit_d is multiplied by a factor f_d with a prior (see
`priors/column_noise.py`): noise and features of a column are f_d times as large, so that given f
all kernels are those of columns alike.

The offset, the units of columns, and the priors of scales that the user leaves open, come from the
data: `defaults.py`. Kernels see the data about the offset and in units of columns.
Y is always summed out between steps (eq 6); see `likelihoods/gaussian.py`. Missing cells are part
of the state and drawn along (data augmentation), so all methods see complete rows.

Source: Wood & Griffiths (2006), Particle filtering for nonparametric Bayesian matrix factorization,
sections 2 and 4; Griffiths & Ghahramani (2005).
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp

from jaxmf.arguments import check_flag
from jaxmf.column_units import ColumnUnits
from jaxmf.data import Dense, units
from jaxmf.feature_models import BuffetModel
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.linear_gaussian.state import HYPERPARAMETERS, LinearGaussianState, complete
from jaxmf.priors import column_noise, hyper
from jaxmf.priors.features import sample_by_rows
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.programs import full_products
from jaxmf.types import STATIC, Array, Draw, Key


@dataclass(frozen=True, kw_only=True)
class LinearGaussianSpec(ColumnUnits, BuffetModel):
    """The fields of `LinearGaussianIBP`, and what follows from them alone."""

    alpha: Hyperparameter = None
    noise_scale: Hyperparameter = None
    feature_scale: Hyperparameter = None
    concentration: Hyperparameter = 1.0
    num_features: int | None = field(default=None, metadata=STATIC)
    bias: bool | None = field(default=None, metadata=STATIC)
    offset: float | Array | None = None
    column_unit: float | Array | None = None
    column_noise: bool | None = field(default=None, metadata=STATIC)
    likelihood: InitVar[Gaussian | None] = None

    cells_given_draw = "summed out"  # Y is, so that cells of a column depend on each other

    hyperparameter_names = HYPERPARAMETERS
    sweeps = ("collapsed", "parallel", "whole_rows")
    kind = "linear_gaussian"

    def __post_init__(self, likelihood: Gaussian | None) -> None:
        self.take_likelihood(likelihood, Gaussian)
        self.check_buffet()
        for name in ("noise_scale", "feature_scale"):
            if getattr(self, name) is not None:
                hyper.validate(name, getattr(self, name))
        hyper.validate_columns("offset", self.offset)
        hyper.validate_columns("column_unit", self.column_unit, is_positive=True)
        for name in ("bias", "column_noise"):
            if getattr(self, name) is not None:
                check_flag(name, getattr(self, name))

    def notes(self, data: Dense) -> tuple[str, ...]:
        """Notes if columns were taken in their own units, or if most cells are one number."""
        notes = units.note_of_units(data, self.column_unit, "noise_scale and feature_scale")
        if notes and self.column_noise:
            notes = (f"{notes[0]}; each column has noise of its own",)
        return notes + units.note_of_common_value(data)

    def completed(self, unit: float = 1.0, least_noise: float = 0.01) -> Self:
        """The model with the scales that were left open filled in.

        Args:
          unit: spread of the data about the offset; 1 without data.
          least_noise: the lower end of the prior of an open noise scale, in units.
        """
        open_settings: dict[str, Any] = {}
        if self.noise_scale is None:
            open_settings["noise_scale"] = hyper.noise_prior(unit, least_noise)
        if self.feature_scale is None:
            open_settings["feature_scale"] = hyper.effect_prior(unit)
        return replace(self, **open_settings) if open_settings else self

    def check_data(self, data: Dense, name: str) -> None:
        """Refuses values whose squares leave the range of floats."""
        units.check_magnitude(data, name)

    def centred(self, data: Dense) -> Dense:
        """The data minus the offset, in units of `column_unit`."""
        return units.centred(data, self.offset, self.column_unit)

    def scaled_by(self, factors: Array) -> Self:
        """The model whose columns are alike in units `factors` (D,) times as large."""
        unit = self.unit_at(slice(None)) * factors
        return replace(self, column_unit=unit, column_noise=False)

    def at_noise(self, state: LinearGaussianState) -> tuple[Self, LinearGaussianState]:
        """The model given the factors of a state, and the state without them, its cells in these.

        Both as they are where columns are alike.
        """
        if state.column_noise is None:
            return self, state
        factors = state.column_noise.factors
        x = None if state.x is None else state.x / factors
        return self.scaled_by(factors), state._replace(x=x, column_noise=None)

    def least_factor(self, state: LinearGaussianState) -> Array:
        """The lower end of the factors of a state: see `priors/column_noise.py`."""
        return column_noise.least_noise(self.completed().noise_scale) / state.noise_scale

    def at_draw(self, draw: Draw) -> Self:
        """The model given the factors of a draw."""
        return self.scaled_by(draw["noise_factors"]) if self.column_noise else self

    def first_slot(self) -> int:
        """The slot of the first feature: 1 with a bias feature, else 0."""
        return int(self.has_bias_feature)

    @property
    def has_bias_feature(self) -> bool:
        """Whether slot 0 is a feature that every row has."""
        return bool(self.bias)

    def log_joint(self, state: LinearGaussianState, data: Dense) -> Array:
        """log p(Z, X, hyperparameters), missing cells included, Y summed out.

        Z enters by the probability of its left-ordered class (eq 2), in the finite model by that of
        the labelled matrix; fixed hyperparameters add nothing. Hyperparameters count as they are in
        the state, their priors as they are in the model. What the model leaves open is taken from
        no data here: use ``model.matched(data)``, or the model of `jaxmf.kernel`.

        Args:
          state: of data with N rows.
          data: (N, D).
        Returns:
          () float.
        """
        if state.column_noise is not None:
            scaled, rest = self.at_noise(state)
            noise = column_noise.log_density(state.column_noise, self.least_factor(state))
            return scaled.log_joint(rest, data) + noise
        x = complete(state, self.centred(data))
        gram, cross = gaussian.gram_statistics(state.z, x)
        start = self.first_slot()
        log_prior = self.prior(state).log_prob(
            jnp.diagonal(gram)[start:], gram[start:, start:], x.shape[0]
        )
        log_likelihood = gaussian.log_likelihood(
            state.z, x, (gram, cross), state.noise_scale, state.feature_scale
        )
        log_hyperprior = self.completed().log_hyperprior(state)
        log_unit = self.log_unit(data, observed_only=False)
        return log_prior + log_likelihood + log_hyperprior - log_unit

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[LinearGaussianState, Dense, Array]:
        z_key, hyper_key, x_key = jax.random.split(key, 3)
        state, overflow = self.simulate_state(z_key, hyper_key, shape, capacity)
        return state, Dense(self.simulate_data(x_key, state, shape[1])), overflow

    def simulate_state(
        self, z_key: Key, hyper_key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[LinearGaussianState, Array]:
        num_rows = shape[0]
        model = self.completed()
        keys = jax.random.split(hyper_key, len(HYPERPARAMETERS))
        values = {
            name: hyper.sample_prior(key, getattr(model, name))
            for key, name in zip(keys, HYPERPARAMETERS, strict=True)
        }
        noise = None
        if self.column_noise:
            least = column_noise.least_noise(model.noise_scale) / values["noise_scale"]
            noise = column_noise.sample(jax.random.fold_in(hyper_key, 1), shape[1], least)
        empty = jnp.zeros((num_rows, 0), bool)
        state = LinearGaussianState(z=empty, x=None, column_noise=noise, **values)
        num_slots = max(capacity, self.num_features or 1)
        z, overflow = self.prior(state).sample(z_key, num_rows, num_slots)
        if self.bias:
            z = jnp.concatenate([jnp.ones((num_rows, 1), bool), z], axis=1)
        return state._replace(z=z), overflow

    @full_products
    def simulate_data(self, key: Key, state: LinearGaussianState, num_columns: int) -> Array:
        """X (N, D) given a state, Y drawn from its prior."""
        if state.column_noise is not None:
            scaled, rest = self.at_noise(state)
            return scaled.simulate_data(key, rest, num_columns)
        y_key, noise_key = jax.random.split(key)
        dtype = state.noise_scale.dtype
        y = jax.random.normal(y_key, (state.z.shape[1], num_columns), dtype)
        noise = jax.random.normal(noise_key, (state.z.shape[0], num_columns), dtype)
        signal = state.feature_scale * (state.z.astype(dtype) @ y)
        return self.to_data_units(signal + state.noise_scale * noise)

    @full_products
    def simulate_more(
        self, key: Key, state: LinearGaussianState, data: Dense
    ) -> tuple[LinearGaussianState, Dense, dict[str, Array]]:
        if state.column_noise is not None:
            scaled, rest = self.at_noise(state)
            rest, data, overflows = scaled.simulate_more(key, rest, data)
            filled = None if rest.x is None else rest.x * state.column_noise.factors
            return rest._replace(x=filled, column_noise=state.column_noise), data, overflows
        z_key, y_key, noise_key = jax.random.split(key, 3)
        x, start = complete(state, self.centred(data)), self.first_slot()
        earlier = state.z[:, start:]
        z, overflow = sample_by_rows(self.prior(state), z_key, *earlier.shape, earlier=earlier)
        z = jnp.pad(z, ((0, 0), (start, 0)), constant_values=True)
        normals = jax.random.normal(y_key, (z.shape[1], x.shape[1]), x.dtype)
        y = gaussian.draw_features(
            *gaussian.gram_statistics(state.z, x), normals, state.noise_scale, state.feature_scale
        )
        noise = state.noise_scale * jax.random.normal(noise_key, x.shape, x.dtype)
        more = z.astype(x.dtype) @ y + noise
        state = state._replace(
            z=jnp.concatenate([state.z, z]),
            x=None if state.x is None else jnp.concatenate([x, more]),
        )
        return state, data.with_more(self.to_data_units(more)), {"features": overflow}
