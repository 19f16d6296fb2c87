"""Products with features, on the device: what kernels need of them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import ChecksNames
from jaxmf.types import Array


class FeatureProducts(ChecksNames):
    """The part of `Features` that multiplies: dense (N, F), or the list of what is not zero."""

    values: Array
    rows: Array | None
    columns: Array | None
    shape: tuple[int, int]

    def times(self, weights: Array) -> Array:
        """(N, K): the features times weights (F, K)."""
        if self.rows is None:
            return self.values @ weights
        terms = self.values[:, None] * weights[self.columns]
        return jax.ops.segment_sum(terms, self.rows, self.shape[0])

    def transpose_times(self, x: Array) -> Array:
        """(F, K): the transposed features times x (N, K)."""
        if self.rows is None:
            return self.values.T @ x
        assert self.columns is not None
        terms = self.values[:, None] * x[self.rows]
        return jax.ops.segment_sum(terms, self.columns, self.shape[1])

    def take(self, positions: Array) -> Array:
        """(M, F): whole lines at positions (M,)."""
        return self._dense()[positions]

    def take_columns(self, positions: Sequence[int]) -> Array:
        """(N, M): whole columns at positions, as a dense array."""
        if self.rows is None:
            return self.values[:, np.asarray(positions, np.int32)]
        assert self.columns is not None
        # a column that is not asked for goes beyond the end, where nothing is written
        found = np.full(self.shape[1], len(positions), np.int32)
        found[np.asarray(positions, np.int32)] = np.arange(len(positions))
        empty = jnp.zeros((self.shape[0], len(positions)), self.values.dtype)
        indices = jnp.asarray(found)[self.columns]
        return empty.at[self.rows, indices].set(self.values, mode="drop")

    def levels(self) -> Array:
        """(N,) int32: which column is not zero in each line; F where none is.

        Of indicators of the levels of one heading, see `Features.separate`.
        """
        if self.rows is None:
            first = jnp.argmax(self.values != 0, axis=1).astype(jnp.int32)
            return jnp.where(jnp.any(self.values != 0, axis=1), first, self.shape[1])
        none = jnp.full((self.shape[0],), self.shape[1], jnp.int32)
        assert self.columns is not None
        return none.at[self.rows].min(self.columns.astype(jnp.int32))

    def gram(self, weights: Array | None = None) -> Array:
        """(F, F): the products of the columns with each other, of lines with weights (N,)."""
        if self.rows is None:
            left = self.values if weights is None else weights[:, None] * self.values
            return left.T @ self.values

        def products(unit: Array) -> Array:
            lines = self.times(unit[:, None])
            return self.transpose_times(lines if weights is None else weights[:, None] * lines)[
                :, 0
            ]

        # a few columns at a time: as a dense matrix the features may be too large
        units = jnp.eye(self.shape[1], dtype=self.values.dtype)
        return jax.lax.map(products, units, batch_size=8)

    def _dense(self) -> Array:
        if self.rows is None:
            return self.values
        empty = jnp.zeros(self.shape, self.values.dtype)
        return empty.at[self.rows, self.columns].set(self.values)
