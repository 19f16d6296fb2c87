"""What gradients move: means, and the logarithms of variances, without bounds."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf.types import PyTree
from jaxmf.variational_bayes.parameters import Normal


def unbounded(parts: tuple[Normal | None, ...]) -> PyTree:
    """Means and logarithms of variances; zero for the variance of what is held."""
    return tuple(
        q if q is None else Normal(q.mean, jnp.log(jnp.where(q.variance > 0, q.variance, 1)))
        for q in parts
    )


def bounded(moved: PyTree) -> PyTree:
    """The means and variances that `unbounded` was given."""
    return tuple(q if q is None else Normal(q.mean, jnp.exp(q.variance)) for q in moved)


def bound_intercept(before: Normal, moved: Normal) -> Normal:
    """The intercept where it moves; one of variance zero is held where it is."""
    held = before.variance == 0
    kept: Normal = jax.tree.map(lambda old, new: jnp.where(held, old, new), before, moved)
    return kept
