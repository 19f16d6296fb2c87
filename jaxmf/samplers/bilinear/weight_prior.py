"""The prior of W in X ~ f(U W V'): independent entries, normal or, under Poisson cells, Gamma."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxmf import slots
from jaxmf._kernels.special import loggamma
from jaxmf.types import STATIC, Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeightPrior:
    """The prior of the entries of W."""

    mean: Array  # () float or (K, L), of N(mean, scale^2)
    scale: Array  # () float, likewise
    # shape, rate: () float, of Gamma(shape, rate), where `positive`
    shape: Array
    rate: Array
    positive: bool = field(default=False, metadata=STATIC)  # whether the weights are positive
    # whether only the diagonal of W is there (the plaid model)
    diagonal: bool = field(default=False, metadata=STATIC)

    def sample(self, key: Key, num_rows: int, num_columns: int) -> Array:
        """W (K, L) from the prior, the diagonal not yet cut out.

        A vector a row feature, so that the draw does not depend on the capacity of either side.
        """
        if self.positive:
            return self.positive_gammas(
                key, jnp.broadcast_to(self.shape, (num_rows, num_columns)), self.rate
            )
        return self.mean + self.scale * slots.normals(key, num_rows, num_columns, self.scale.dtype)

    @staticmethod
    def positive_gammas(key: Key, shape: Array, rate: Array) -> Array:
        """Gamma(shape, rate) draws (K, L), each from a separate key."""

        def one(row: Array, column: Array, shape: Array) -> Array:
            cell_key = jax.random.fold_in(jax.random.fold_in(key, row), column)
            return loggamma(cell_key, shape)

        rows, columns = jnp.arange(shape.shape[0]), jnp.arange(shape.shape[1])
        over_columns = jax.vmap(one, in_axes=(None, 0, 0))
        drawn = jax.vmap(over_columns, in_axes=(0, None, 0))(rows, columns, shape)
        # a Gamma of small shape may round to zero, whose log density is not finite
        tiny = jnp.finfo(shape.dtype).tiny
        return jnp.maximum(jnp.exp(drawn) / rate, tiny).astype(shape.dtype)

    def there(self, row_exists: Array, column_exists: Array) -> Array:
        """(K, L) bool: the weights that are part of the model."""
        pairs = row_exists[:, None] & column_exists
        if self.diagonal:
            pairs = pairs & jnp.eye(pairs.shape[0], dtype=bool)
        return pairs

    def log_density(self, weights: Array, there: Array) -> Array:
        """() float, log density of the weights that are there."""
        if self.positive:
            safe = jnp.where(there, weights, 1)
            each = (
                self.shape * jnp.log(self.rate)
                - gammaln(self.shape)
                + (self.shape - 1) * jnp.log(safe)
                - self.rate * safe
            )
        else:
            each = -0.5 * ((weights - self.mean) / self.scale) ** 2 - jnp.log(
                self.scale * jnp.sqrt(2 * jnp.pi)
            )
        return jnp.sum(jnp.where(there, each, 0))
