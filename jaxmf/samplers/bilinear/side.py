"""One side of X ~ f(U W V') as its rows see it."""

from typing import NamedTuple

from jaxmf.types import Array


class Side(NamedTuple):
    """One side of the model, as its rows see it.

    Attributes:
      u: (I, K) bool, the features of the rows.
      v: (J, L) bool, those of the columns.
      weights: (K, L) float, W, zero where a feature is not there.
      x: (I, J) float.
      observed: (I, J) bool, or None when nothing is missing.
    """

    u: Array
    v: Array
    weights: Array
    x: Array
    observed: Array | None

    @property
    def basis(self) -> Array:
        """Y = W V', (K, J) float."""
        return self.weights @ self.v.T.astype(self.weights.dtype)

    def transpose(self) -> "Side":
        """The other side."""
        observed = None if self.observed is None else self.observed.T
        return Side(self.v, self.u, self.weights.T, self.x.T, observed)
