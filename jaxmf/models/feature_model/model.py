"""Binary latent features with any likelihood of a row and any prior of a feature.

    Z ~ a prior that goes row by row, such as an Indian buffet process
    y_k ~ feature_prior, independently              rows of Y
    p(X | Z, Y) = prod_i p(x_i | z_i, Y),           log_likelihood

Inference is the particle filter of `filter.py`: it asks of the three parts only what is written
here, so that the linear-Gaussian and the noisy-OR model are two of its cases.

Source: Wood & Griffiths (2006), Particle filtering for nonparametric Bayesian matrix factorization,
section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.arguments import MOST_SLOTS, check_count
from jaxmf.data import Dense
from jaxmf.engine import Algorithm
from jaxmf.model import Model
from jaxmf.models.feature_model import checks, queries
from jaxmf.priors.features import IndianBuffet, sample_by_rows
from jaxmf.readable import Readable
from jaxmf.samplers.resampling import systematic
from jaxmf.samplers.smc import ResampleFn, TriggerFn
from jaxmf.types import Array, Key


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["log_likelihood", "feature_prior", "prior", "moments", "sample_row"],
    meta_fields=["cell_distribution"],
)
@dataclass(frozen=True)
class FeatureModel(Readable, Model):
    """Binary latent features with a user's likelihood and prior of features.

    Args:
        log_likelihood: (x (D,), z (K,) bool, y (K, ...)) -> () float, log p(x | z, Y), or (D,), one
            number a cell; missing cells need the latter. A JAX function. Where z_k is False, y_k
            must not matter: slots without a feature hold something. Numbers it depends on are best
            bound as `jax.tree_util.Partial(function, number)`; a function made anew is compiled
            anew. It is tried on the first rows before a run; where it gives NaN later on, the run
            stops and says that log_evidence is not finite.
        feature_prior: numpyro distribution of a row of Y; its event shape is that of the row.
        prior: of Z: `IndianBuffet(alpha, concentration)`, `BetaBernoulli(...)` or an object with
            the methods of `jaxmf.priors.features.RowByRowPrior`.
        moments: (z (K,) bool, y (K, ...)) -> mean (D,) and variance (D,) of the cells of a row;
            what `predict` needs, and nothing else does.
        sample_row: (key, z (K,) bool, y (K, ...)) -> x (D,), a row drawn from what `log_likelihood`
            scores; what `simulate` needs, and nothing else does.
        cell_distribution: "normal" or "bernoulli": how a cell with such a mean and variance is
            drawn and scored.

    Raises:
        TypeError, ValueError: a part is not what it should be; the message names it.

    Example:
        >>> import jax, numpyro.distributions as dist, jaxmf as mf
        >>> def log_likelihood(x, z, y):
        ...     return dist.Poisson(0.1 + z @ y).log_prob(x)
        >>> model = mf.FeatureModel(log_likelihood, dist.Gamma(1.0, 0.5).expand([6]).to_event(1))
        >>> model.row_shape
        (6,)
    """

    log_likelihood: Callable[..., Array]
    feature_prior: Any
    prior: Any = field(default_factory=lambda: IndianBuffet(1.0), kw_only=True)
    moments: Callable[..., tuple[Array, Array]] | None = field(default=None, kw_only=True)
    cell_distribution: str = field(default="normal", kw_only=True)
    sample_row: Callable[..., Array] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.check_parts(self)
        for name in ("log_likelihood", "moments", "sample_row"):
            function = getattr(self, name)
            if callable(function) and not isinstance(function, Partial):
                object.__setattr__(self, name, Partial(function))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of Y."""
        return tuple(self.feature_prior.event_shape)

    def num_slots(self, capacity: int | None = None) -> int:
        """Slots for a wished capacity, at least as many as a finite prior has features."""
        if capacity is not None:
            capacity = check_count("capacity", capacity, most=MOST_SLOTS)
        fixed = getattr(self.prior, "num_features", None)
        return int(fixed) if fixed is not None else (8 if capacity is None else capacity)

    def check_data(self, data: Dense, name: str) -> None:
        """Tries the likelihood on some rows; see `checks.check_likelihood`."""
        checks.check_likelihood(self, data, name)

    def draw_features(self, key: Key, num_slots: int) -> Array:
        """Rows of Y from their prior, (K, ...): row k from fold_in(key, k)."""

        def draw(slot):
            return self.feature_prior.sample(jax.random.fold_in(key, slot))

        return jax.vmap(draw)(jnp.arange(num_slots))

    def row_log_likelihood(self, x: Array, observed: Array | None, z: Array, y: Array) -> Array:
        """() float, log p of the observed cells of a row x (D,)."""
        if observed is not None:
            x = jnp.where(observed, x, 0)
        value = self.log_likelihood(x, z, y)
        checks.check_shape(value, x, missing=observed is not None)
        if value.ndim and observed is not None:
            value = jnp.where(observed, value, 0)
        return jnp.sum(value).astype(jnp.result_type(float))

    def log_joint(self, draw: dict[str, Array], data: Dense) -> Array:
        """log p(Z, Y, observed cells); Z by its left-ordered class as in the prior's `log_prob`.

        Args:
            draw: z (N, K) bool and y (K, ...).
            data: (N, D).

        Returns:
            () float.
        """
        z, y = draw["z"], draw["y"]
        counts = jnp.sum(z, axis=0, dtype=jnp.result_type(float))
        z_float = z.astype(counts.dtype)
        log_features = jnp.where(
            self.prior.exists(counts), jax.vmap(self.feature_prior.log_prob)(y), 0
        )
        rows = jax.vmap(self.row_log_likelihood, in_axes=(0, 0, 0, None))
        log_rows = rows(data.values, data.observed, z, y)
        log_prior = self.prior.log_prob(counts, z_float.T @ z_float, z.shape[0])
        return log_prior + jnp.sum(log_features) + jnp.sum(log_rows)

    def simulate(
        self, key: Key, num_rows: int, *, capacity: int = 32
    ) -> tuple[dict[str, Array], Dense]:
        """A draw from the prior and complete data from it; needs `sample_row`.

        Args:
            key: typed PRNG key.
            num_rows: N.
            capacity: slots for features; a prior with a fixed number of them has that many.

        Returns:
            z (N, K) bool and y (K, ...) by their names, as `log_joint` takes them, and Dense
            (N, D). Nothing says so when `capacity` was too small: the last features are then
            missing from Z; `simulate_features` tells.

        Raises:
            ValueError: the model has no `sample_row`, or it gives something else than a row.
        """
        feature_key, x_key = jax.random.split(key)
        draw, _ = self.simulate_features(feature_key, num_rows, capacity)
        return draw, Dense(self.simulate_data(x_key, draw))

    def simulate_features(
        self, key: Key, num_rows: int, capacity: int
    ) -> tuple[dict[str, Array], Array]:
        """Z and Y from the prior, row by row, and () bool whether `capacity` was too small."""
        z_key, y_key = jax.random.split(key)
        num_slots = self.num_slots(capacity)
        z, overflow = sample_by_rows(self.prior, z_key, num_rows, num_slots)
        return {"z": z, "y": self.draw_features(y_key, num_slots)}, overflow

    def simulate_data(self, key: Key, draw: dict[str, Array]) -> Array:
        """X (N, D) float given Z and Y: row n from fold_in(key, n)."""
        if self.sample_row is None:
            raise ValueError(
                "data can be simulated only where it is known how a row is drawn, which a log "
                "likelihood does not tell: give FeatureModel(..., sample_row=function), where "
                "function(key, z, y) returns a row, shape (columns,)"
            )
        z, y = draw["z"], draw["y"]
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(z.shape[0]))
        x = jax.vmap(self.sample_row, in_axes=(0, 0, None))(keys, z, y)
        if x.ndim != 2:
            raise ValueError(
                f"sample_row returned shape {x.shape[1:]}; it must return a row, (columns,)"
            )
        return x.astype(jnp.result_type(float))

    def filter(
        self,
        *,
        num_particles: int = 1_000,
        resample_fn: ResampleFn = systematic,
        ess_threshold: float | TriggerFn = 0.5,
        rejuvenate_every: int = 0,
        capacity: int | None = None,
        batch_size: int | None = None,
    ) -> Algorithm:
        """The particle filter, a row a step; see `filter.py`.

        Args:
            num_particles: P.
            resample_fn: scheme of `jaxmf.samplers.resampling`; not `optimal`, which needs all
                children of a particle enumerated.
            ess_threshold: resample when the effective sample size is below this share of P.
            rejuvenate_every: Gibbs and Metropolis-Hastings updates of all rows so far, and of Y,
                after every so many rows; 0 for none.
            capacity: slots for features to begin with; they double when a particle needs more.
            batch_size: how many particles are worked on at once; None for all.

        Returns:
            Algorithm with the growing axis "features", and "rows" where particles carry all Z.
        """
        from jaxmf.models.feature_model.filter import build_filter

        return build_filter(
            self,
            num_particles=num_particles,
            resample_fn=resample_fn,
            ess_threshold=ess_threshold,
            rejuvenate_every=rejuvenate_every,
            capacity=capacity,
            batch_size=batch_size,
        )

    def particle_draw(self, particle: Any, path: dict[str, Array], data: Dense) -> dict[str, Array]:
        """What a draw holds of one particle of the filter: whole Z, Y, and the log joint."""
        z = path["z"] if particle.z is None else particle.z
        draw = {
            "z": z,
            "y": particle.y,
            "num_features": jnp.sum(jnp.any(z, axis=0), dtype=jnp.int32),
        }
        if hasattr(self.prior, "log_prob"):
            draw["log_joint"] = self.log_joint(draw, data)
        return draw

    def features(self, draw: dict[str, Array], data: Dense) -> tuple[Array, Array]:
        """Y of a draw as (K, size of a row), and zeros: Y is drawn, so it has no spread."""
        del data
        y = draw["y"].reshape(draw["y"].shape[0], -1)
        return y, jnp.zeros_like(y)

    def predict_cells(
        self, draw: dict[str, Array], data: Dense, rows: Array, columns: Array
    ) -> tuple[Array, Array]:
        """Predictive mean and variance, each (M,), of the cells (rows[m], columns[m])."""
        del data
        mean, variance = jax.vmap(self.row_moments, in_axes=(0, None))(draw["z"][rows], draw["y"])
        index = jnp.arange(rows.shape[0])
        return mean[index, columns], variance[index, columns]

    def row_moments(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance (D,) of the cells of a row with features z."""
        if self.moments is None:
            raise ValueError(
                "predictions need the mean and the variance of a cell, which a log likelihood does "
                "not tell: give FeatureModel(..., moments=function), where function(z, y) returns "
                "both, each of shape (columns,)"
            )
        return self.moments(z, y)

    def transform_rows(
        self, key: Key, draw: dict[str, Array], data: Dense, new_data: Dense
    ) -> Array:
        """Probabilities (N_new, K) of the draw's features in rows not seen in training.

        Features that only a new row would have are left out: their rows of Y cannot be summed out
        of a likelihood that is known by its value alone.
        """
        del data
        return queries.new_rows(self, key, draw, new_data)[1]

    def predict_rows(
        self, key: Key, draw: dict[str, Array], data: Dense, new_data: Dense
    ) -> tuple[Array, Array]:
        """Predictive mean and variance, each (N_new, D), of the cells of new rows.

        The features of each row are drawn given its observed cells, as in `transform_rows`.
        """
        del data
        z = queries.new_rows(self, key, draw, new_data)[0]
        return jax.vmap(self.row_moments, in_axes=(0, None))(z, draw["y"])
