"""The weights of a flexible prior: their form, and checks of those that a user passes.

They are kept as steps, lambda_i - lambda_{i-1} with lambda_0 = 0: of many items the differences of
large values would lose their digits.

`Representatives` is the prior of the groups of tables, which come and go with their tables.

Source: Porteous (2010), section 7.4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxmf._kernels import tables
from jaxmf.arguments import check_numbers
from jaxmf.priors.hyper import is_placeholder
from jaxmf.priors.partition_prior import Hyperparameters, PartitionPrior
from jaxmf.types import Array, PyTree

WIDEST = 60.0
"""By how many nats weights of two sizes may differ; more does not fit a float in a sweep."""


def gamma_steps(a: Array | float, b: Array | float, c: Array | float, *, num_items: int) -> Array:
    """lambda_i - lambda_{i-1} where lambda_i = a + b log Gamma(i + c): (L,) float.

    Args: a, b, c () float each, c above -1.
    """
    sizes = jnp.arange(num_items, dtype=jnp.result_type(float))
    first = a + b * gammaln(1.0 + c)
    # where nothing is added the logarithm of the first would not be finite
    return jnp.where(sizes > 0, b * jnp.log(jnp.where(sizes > 0, sizes + c, 1.0)), first)


def steps_of(log_weights: Any) -> Array | np.ndarray:
    """Differences, in double precision where the values are known."""
    if is_placeholder(log_weights):
        return jnp.diff(log_weights, prepend=0.0)
    array = _checked_table("log_weights", log_weights)
    return checked_steps(np.diff(array, prepend=0.0))


def _checked_table(name: str, values: object) -> np.ndarray:
    array = np.asarray(values) if hasattr(values, "shape") else check_numbers(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be numbers, got an array of {array.dtype}")
    array = array.astype(float)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"{name} must be an array of one weight for every size of a group, from 1 up; got "
            f"shape {array.shape}"
        )
    if not np.all(np.isfinite(array)):
        first = int(np.argmin(np.isfinite(array)))
        raise ValueError(
            f"{name} must be finite, got {array[first]} for groups of {first + 1}; a size that "
            f"should not occur gets a low weight, at most {WIDEST:g} below the others"
        )
    return array


def checked_steps(log_steps: Any) -> Array:
    """Steps (L,) float.

    Raises ValueError: not finite, or too far apart for a sweep.
    """
    if is_placeholder(log_steps):
        return log_steps
    array = _checked_table("log_steps", log_steps)
    spread = float(np.max(array) - np.min(array))
    if spread > WIDEST:
        low, high = int(np.argmin(array)) + 1, int(np.argmax(array)) + 1
        raise ValueError(
            f"log_weights: a group's growing to {high} items and to {low} lie {spread:.0f} nats "
            f"apart, and a sweep can tell {WIDEST:g}; bring their differences closer together"
        )
    return jnp.asarray(array, jnp.result_type(float))


def checked_num_unobserved(num_unobserved: object) -> int | tuple[int, ...] | None:
    """An int, a tuple of ints, or None."""
    if num_unobserved is None or isinstance(num_unobserved, int | np.integer):
        if isinstance(num_unobserved, bool) or (num_unobserved is not None and num_unobserved < 0):
            raise ValueError(f"num_unobserved must be a number of items, got {num_unobserved!r}")
        return None if num_unobserved is None else int(num_unobserved)
    is_list = hasattr(num_unobserved, "shape") or isinstance(num_unobserved, list | tuple)
    array = np.asarray(num_unobserved) if is_list else np.zeros(())
    if (
        array.ndim != 1
        or not array.size
        or not np.issubdtype(array.dtype, np.integer)
        or np.any(array < 0)
    ):
        raise ValueError(
            f"num_unobserved must be a number of items, or one for every batch; "
            f"got {num_unobserved!r}"
        )
    return tuple(int(one) for one in array)


class FlexibleCache(NamedTuple):
    """Counts as a sweep works on them."""

    counts: Array  # (G, K) float, items of batch g in group k
    joining: Array  # (G, K) float, the weight of every group for one more item; 0 where it has none
    weights: Array  # (L + 1,) float, that of a group of 0 to L items
    hyperparameters: Hyperparameters  # what else the state holds
    # (G, K) float, items that no data belong to; None where there are none
    unobserved: Array | None


def joined(cache: PyTree, batch: Array, group: Array) -> PyTree:
    """The weight of a group after its size has changed."""
    total = tables.entry(cache.counts, batch, group)
    if cache.unobserved is not None:
        total = total + tables.entry(cache.unobserved, batch, group)
    weight = tables.row(cache.weights, total.astype(jnp.int32))
    weight = jnp.where(total > 0, weight, jnp.zeros_like(weight))
    return cache._replace(joining=tables.put_entry(cache.joining, batch, group, weight))


class RepresentativeCache(NamedTuple):
    """How many representatives of each group are at tables, and how many at none."""

    counts: Array  # (1, K) float
    unobserved: Array  # (1, K) float


class Representatives(PartitionPrior):
    """Tables are opened by representatives who have a group already, and closed without losing it.

    Of N representatives those of empty tables are the unobserved items; a table is as likely to be
    opened by each, so the weight of a group is the number of them who have it, and the distribution
    of all groups stays as it is (Figure 7.4).
    """

    hyperparameters = ()

    def begin(self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool) -> PyTree:
        del with_sizes
        dtype = jnp.result_type(float)
        return RepresentativeCache(
            counts.astype(dtype), hyperparameters["unobserved"].astype(dtype)
        )

    def end(self, cache: PyTree) -> tuple[Array, Hyperparameters]:
        unobserved = cache.unobserved.astype(jnp.int32)
        return cache.counts.astype(jnp.int32), {"unobserved": unobserved}

    def weights(self, cache: PyTree, batch: Array) -> tuple[Array, Array]:
        return tables.row(cache.unobserved, batch), jnp.ones((), bool)

    def move(self, cache: PyTree, batch: Array, group: Array, amount: Array | int) -> PyTree:
        return RepresentativeCache(
            tables.add_entry(cache.counts, batch, group, amount),
            tables.add_entry(cache.unobserved, batch, group, -amount),
        )

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        """Every choice of the representatives at tables is as likely as any other."""
        del hyperparameters
        return jnp.zeros((), jnp.result_type(float)) * jnp.sum(counts)
