"""One side of X ~ f(U W V') as its rows see it."""

from typing import NamedTuple

from jaxmf.types import Array


class BilinearSide(NamedTuple):
    """One side of the model, as its rows see it."""

    u: Array  # (I, K) bool, the features of the rows
    v: Array  # (J, L) bool, those of the columns
    weights: Array  # (K, L) float, W, zero where a feature is not there
    x: Array  # (I, J) float
    observed: Array | None  # (I, J) bool, or None when nothing is missing

    @property
    def basis(self) -> Array:
        """Y = W V', (K, J) float."""
        return self.weights @ self.v.T.astype(self.weights.dtype)

    def transpose(self) -> "BilinearSide":
        """The other side."""
        observed = None if self.observed is None else self.observed.T
        return BilinearSide(self.v, self.u, self.weights.T, self.x.T, observed)
