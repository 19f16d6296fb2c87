"""Means of columns that outliers do not move: a model with a sampler written out."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.tree_util import Partial

import jaxmf as mf
from jaxmf.engine import Info, algorithm


class State(NamedTuple):
    """means (D,) float, and precisions (N, D) float of cells as multiples of 1 / noise_scale^2."""

    means: jax.Array
    precisions: jax.Array


@mf.register
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["noise_scale", "mean_scale", "degrees"],
    meta_fields=[],
)
@dataclass(frozen=True)
class RobustMeans(mf.Model):
    """Columns with a mean each and Student-t noise, by a mixture of scales.

    m_d ~ N(0, mean_scale^2), w_nd ~ Gamma(v / 2, v / 2), x_nd ~ N(m_d, noise_scale^2 / w_nd), so
    that x_nd is Student-t with v degrees of freedom.
    """

    noise_scale: float = 1.0
    mean_scale: float = 10.0
    degrees: float = 4.0

    data_type = mf.Dense

    def log_joint(self, state, data):
        rate = self.degrees / 2
        spread = self.noise_scale / jnp.sqrt(state.precisions)
        cells = dist.Normal(state.means, spread).log_prob(data.values)
        weights = dist.Gamma(rate, rate).log_prob(state.precisions)
        each = jnp.where(_observed(data), cells + weights, 0)
        return jnp.sum(each) + jnp.sum(dist.Normal(0, self.mean_scale).log_prob(state.means))

    def sampler(self):
        return algorithm(
            init=Partial(_init, self), step=Partial(_step, self), record=Partial(_record, self)
        )

    def simulate_like(self, key, data):
        mean_key, weight_key, noise_key = jax.random.split(key, 3)
        dtype, rate = data.values.dtype, self.degrees / 2
        means = self.mean_scale * jax.random.normal(mean_key, data.shape[1:], dtype)
        precisions = jax.random.gamma(weight_key, rate, data.shape, dtype) / rate
        noise = jax.random.normal(noise_key, data.shape, dtype)
        values = means + self.noise_scale * noise / jnp.sqrt(precisions)
        seen = jax.tree.map(lambda leaf: leaf, data)
        object.__setattr__(seen, "values", jnp.where(_observed(data), values, 0))
        return State(means, jnp.where(_observed(data), precisions, 1)), seen

    # --- what the posterior asks ------------------------------------------------------------------

    def predict_cells(self, draw, data, rows, columns):
        variance = self.noise_scale**2 * self.degrees / (self.degrees - 2)
        return draw["means"][columns], jnp.full(columns.shape, variance, draw["means"].dtype)

    def predict_rows(self, key, draw, data, new_data):
        rows, columns = jnp.indices(new_data.shape)
        return self.predict_cells(draw, data, rows, columns)

    def cell_log_density(self, draw, data, rows, columns, values):
        return self._cells(draw, columns).log_prob(values)

    def draw_cells(self, key, draw, data, rows, columns):
        return self._cells(draw, columns).sample(key)

    def _cells(self, draw, columns):
        return dist.StudentT(self.degrees, draw["means"][columns], self.noise_scale)


def _observed(data):
    return jnp.ones(data.shape, bool) if data.observed is None else data.observed


def _init(model, key, data):
    return State(jnp.zeros(data.shape[1:], data.values.dtype), jnp.ones(data.shape))


def _step(model, key, state, data, progress):
    weight_key, mean_key = jax.random.split(key)
    seen = _observed(data)
    square = ((data.values - state.means) / model.noise_scale) ** 2
    shape, rate = (model.degrees + 1) / 2, (model.degrees + square) / 2
    drawn = jax.random.gamma(weight_key, shape, data.shape, square.dtype) / rate
    precisions = jnp.where(seen, drawn, 1)
    weights = jnp.where(seen, precisions, 0) / model.noise_scale**2
    total = jnp.sum(weights, axis=0) + 1 / model.mean_scale**2
    centre = jnp.sum(weights * data.values, axis=0) / total
    noise = jax.random.normal(mean_key, centre.shape, centre.dtype)
    return State(centre + noise / jnp.sqrt(total), precisions), Info(overflow={})


def _record(model, key, state, data):
    return {
        "means": state.means,
        "mean_precision": jnp.mean(state.precisions),
        "log_joint": model.log_joint(state, data),
    }
