"""Cells of ordered levels: the ordered probit model."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.special import as_normals, uniforms
from jaxmf.arguments import assign, check_number, check_numbers
from jaxmf.likelihoods import thresholds as kernels
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.likelihoods.intervals import log_mass, mass
from jaxmf.priors import hyper
from jaxmf.types import STATIC, Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Cells of ordered levels, such as ratings of one to five stars: the ordered probit model.

    p(level c | eta) = Phi(t_c - eta) - Phi(t_{c-1} - eta), with as many thresholds t as there are
    steps between levels; how far apart levels are is learned. No threshold is fixed: their prior,
    independent N(0, threshold_scale^2) in ascending order, is proper, and they carry the general
    level, which factors alone cannot express.

    Args:
        levels: L ascending numbers.
        threshold_scale: standard deviation of the prior, in units of the noise.
        thresholds: (L-1,) ascending numbers, known; None, as `BPMF` needs it, to learn them.
    Raises:
        ValueError: fewer than two levels, or not ascending; a scale that is not positive;
            thresholds of another number or not ascending.
    Example:
        >>> import jax.numpy as jnp, jaxmf as mf
        >>> likelihood = mf.Ordinal(levels=(1, 2, 3), thresholds=(-1.0, 1.0))
        >>> likelihood.probabilities(jnp.array([0.0])).round(3).tolist()
        [[0.159..., 0.683..., 0.159...]]
    """

    levels: tuple[float, ...] = field(default=(1, 2, 3, 4, 5), metadata=STATIC)
    threshold_scale: float = 10.0
    thresholds: Array | tuple[float, ...] | None = None

    remedy = "Give all levels that occur, or round them"

    @property
    def support(self) -> str:  # type: ignore[override]
        """The levels, for messages."""
        return f"one of the levels {', '.join(f'{level:g}' for level in self.levels)}"

    def __post_init__(self) -> None:
        if not isinstance(self.levels, tuple):
            levels = [self.levels] if np.ndim(self.levels) == 0 else self.levels
            assign(self, levels=tuple(check_numbers("levels", levels).tolist()))
        are_numeric = all(isinstance(level, (int, float)) for level in self.levels)
        ascend = are_numeric and np.isfinite(self.levels).all() and (np.diff(self.levels) > 0).all()
        if len(self.levels) < 2 or not ascend:
            raise ValueError(
                f"levels: must be two or more ascending numbers, are {self.levels!r}; for ratings "
                "of stars in parentheses, Ordinal((1, 2, 3, 4, 5))."
            )
        # inside jax the scale may be an array, of which nothing can be said
        is_traced = hyper.is_placeholder(self.threshold_scale)
        if not is_traced and not isinstance(self.threshold_scale, jax.Array):
            check_number("threshold_scale", self.threshold_scale, above=0)
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        leaves = jax.tree.leaves(self.thresholds)
        if self.thresholds is None or any(hyper.is_placeholder(leaf) for leaf in leaves):
            return
        thresholds = check_numbers("thresholds", self.thresholds)
        if thresholds.shape != (len(self.levels) - 1,) or not (np.diff(thresholds) > 0).all():
            raise ValueError(
                f"thresholds must be {len(self.levels) - 1} ascending numbers, one between any two "
                f"of the {len(self.levels)} levels, got {self.thresholds!r}"
            )

    def in_support(self, values: np.ndarray) -> np.ndarray:
        return np.isin(values, np.asarray(self.levels).astype(np.result_type(values, np.float32)))

    def codes(self, values: Array) -> Array:
        """Indices of values among the levels, int32 of their shape."""
        levels = np.asarray(self.levels, float)
        middles = jnp.asarray((levels[1:] + levels[:-1]) / 2, values.dtype)
        return (values[..., None] > middles).sum(axis=-1, dtype=jnp.int32)

    def log_density(self, x: Array, eta: Array) -> Array:
        lower, upper = kernels.bounds(self._known_thresholds(eta), self.codes(x))
        return log_mass(lower - eta, upper - eta)

    def sample(self, key: Key, eta: Array) -> Array:
        latent = eta + as_normals(uniforms(key, eta.shape))
        indices = (latent[..., None] > self._known_thresholds(eta)).sum(axis=-1)
        return jnp.asarray(self.levels, eta.dtype)[indices]

    def probabilities(self, eta: Array, variance: Array | float = 0.0) -> Array:
        """(..., L) probabilities of the levels where eta is normal about its mean."""
        scale = jnp.sqrt(1 + jnp.asarray(variance, eta.dtype))
        codes = jnp.arange(len(self.levels))
        lower, upper = kernels.bounds(self._known_thresholds(eta), codes)
        mean, scale = eta[..., None], jnp.broadcast_to(scale, eta.shape)[..., None]
        return mass((lower - mean) / scale, (upper - mean) / scale)

    def mean(self, eta: Array) -> Array:
        return self.probabilities(eta) @ jnp.asarray(self.levels, eta.dtype)

    def variance(self, eta: Array) -> Array:
        shares, levels = self.probabilities(eta), jnp.asarray(self.levels, eta.dtype)
        mean = shares @ levels
        return jnp.sum(shares * (levels - mean[..., None]) ** 2, axis=-1)

    def _known_thresholds(self, eta: Array) -> Array:
        if self.thresholds is None:
            raise ValueError(
                "Ordinal: thresholds are not known here; give Ordinal(levels, thresholds=...), or "
                "use BPMF, which learns them"
            )
        return jnp.asarray(self.thresholds, eta.dtype)
