"""The chain rule of a prior of features or of partitions: conditionals against the density."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from jaxmf.arguments import checks_call
from jaxmf.priors.features import RowByRowPrior
from jaxmf.priors.partition_prior import CountCache, PartitionPrior
from jaxmf.programs import jit
from jaxmf.testing.report import Comparison, Report
from jaxmf.types import Array

_NUM_CASES = 8
_NUM_ORDERS = 3
_NUM_SLOTS = 6  # of a prior whose features or groups come and go
_NUM_ROWS = 6
_BATCHES = np.array([0, 0, 2, 0, 1, 2, 2, 0, 1])  # of items; batch 3 is empty
_NUM_BATCHES = 4


@checks_call
def check_chain_rule(prior: RowByRowPrior | PartitionPrior, *, seed: int = 0) -> Report:
    """Checks that the conditionals of a prior multiply to its density, in any order.

    Samplers take the conditionals, updates of hyperparameters and log joints the density; a prior
    in which they are of two distributions gives wrong answers that nothing else would show. Small
    matrices and partitions, among them empty rows, equal features and empty batches, are gone
    through row by row or item by item in several random orders.

    Args:
        prior: of features, a `jaxmf.priors.features.RowByRowPrior` with `log_prob`: its `exists`,
            `log_odds` and `new_rate`, with numbers for its parameters. Or a `jaxmf.PartitionPrior`:
            its `weights`, at the means of the priors of its hyperparameters.
        seed: of the matrices or partitions, and of the orders.
    Returns:
        A `Report` with one exact comparison for each matrix or partition and order.
    Raises:
        AssertionError: a product of conditionals differs from `log_prob`; it says of which sizes.
        TypeError: it is neither, it has no `log_prob`, a parameter is a distribution, or it is one
            of partitions whose items do not follow from `weights` alone (`sequential` is False, or
            hyperparameters that change as items join, as those of `jaxmf.HDP`).
    Example:
        >>> import jaxmf as mf
        >>> check_chain_rule(mf.IndianBuffet(2.0)).passed
        True
    """
    generator = np.random.default_rng(seed)
    title = f"chain rule of {type(prior).__name__}"
    is_class = isinstance(prior, type)
    if isinstance(prior, PartitionPrior):
        pairs = _partition_pairs(prior, generator)
    elif not is_class and all(
        callable(getattr(prior, name, None)) for name in ("exists", "log_odds", "new_rate")
    ):
        _check_hyperparameters(prior)
        pairs = _matrix_pairs(prior, generator)
    else:
        raise TypeError(
            f"check_chain_rule: prior must be one of features, with exists, log_odds and new_rate, "
            f"or a subclass of jaxmf.PartitionPrior, got {prior!r}"
            + ("; pass an object of the class" if is_class else "")
        )
    return Report(title, tuple(_exact(*pair) for pair in pairs)).require()


def _check_hyperparameters(prior: RowByRowPrior) -> None:
    for name, value in vars(prior).items():
        if callable(getattr(value, "log_prob", None)):
            raise TypeError(
                f"check_chain_rule: {name} of {type(prior).__name__} must be a number, got "
                f"{value!r}; pass one value of it"
            )


def _exact(name: str, density: Array, product: Array) -> Comparison:
    expected, found = float(density), float(product)
    tolerance = 5_000 * float(jnp.finfo(jnp.result_type(float)).eps) * max(1.0, abs(expected))
    agree = abs(found - expected) <= tolerance  # not so of what is not a number
    return Comparison(name, "chain rule", expected, found, 0.0, float(agree))


def _matrix_pairs(
    prior: RowByRowPrior, generator: np.random.Generator
) -> list[tuple[str, Array, Array]]:
    """Names, densities and products of conditionals."""
    density_of = getattr(prior, "log_prob", None)
    if not callable(density_of):
        raise TypeError(
            f"check_chain_rule: {type(prior).__name__} has no method "
            "log_prob(counts, gram, num_rows), which its conditionals are compared with; define it"
        )
    num_slots = max(_NUM_SLOTS, getattr(prior, "num_features", 0) + 1)
    fixed = np.asarray(prior.exists(jnp.zeros(num_slots)))
    may_have = fixed | (float(prior.new_rate(1)) > 0)
    shares = generator.random((_NUM_CASES, 1, num_slots))
    z = (generator.random((_NUM_CASES, _NUM_ROWS, num_slots)) < shares) & may_have
    z[0] = False
    z[1, 2] = False
    z[2:4, :, 1] = z[2:4, :, 0] & may_have[1]
    z[3, :, 2] = z[3, :, 0] & may_have[2]
    z = np.concatenate([z[:, generator.permutation(_NUM_ROWS)] for _ in range(_NUM_ORDERS)])

    both = jit(jax.vmap(lambda one: _matrix_density(prior, density_of, one, fixed)))
    density, product = both(jnp.asarray(z))
    sizes = [f"counts {one.sum(0).tolist()}" for one in z]
    return list(zip(sizes, density, product, strict=True))


def _matrix_density(
    prior: RowByRowPrior, density_of: Callable[..., Array], z: Array, fixed: np.ndarray
) -> tuple[Array, Array]:
    """log p(Z) by `log_prob`, and as the product over rows."""
    ones = z.astype(jnp.result_type(float))
    counts, gram = jnp.sum(ones, axis=0), ones.T @ ones

    def add_row(before: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        bits, num_rows = row
        exists = prior.exists(before)
        log_odds = prior.log_odds(before, num_rows)
        log_bits = jax.nn.log_sigmoid(jnp.where(bits, log_odds, -log_odds))
        num_new, rate = jnp.sum(bits & ~exists), prior.new_rate(num_rows)
        new = xlogy(num_new, rate) - rate
        return before + bits, jnp.sum(jnp.where(exists, log_bits, 0)) + new

    rows = z, jnp.arange(1, z.shape[0] + 1)
    _, each = jax.lax.scan(add_row, jnp.zeros_like(counts), rows)
    came = (counts > 0) & ~fixed
    equal = (gram == counts) & (gram == counts[:, None]) & came & came[:, None]
    rank = jnp.maximum(jnp.sum(jnp.tril(equal), axis=1), 1)
    product = jnp.sum(each) - jnp.sum(jnp.log(rank.astype(counts.dtype)))
    return density_of(counts, gram, z.shape[0]), product


def _partition_pairs(
    prior: PartitionPrior, generator: np.random.Generator
) -> list[tuple[str, Array, Array]]:
    """Names, densities and products of conditionals."""
    if not prior.sequential:
        raise TypeError(
            f"check_chain_rule: items drawn one after the other by {type(prior).__name__}.weights "
            "do not follow its distribution (sequential = False), so they have no chain rule"
        )
    num_slots = prior.num_groups(_NUM_SLOTS)
    batches, groups = [], []
    for _ in range(_NUM_CASES):
        labels = generator.integers(min(num_slots, _NUM_SLOTS), size=len(_BATCHES))
        for _ in range(_NUM_ORDERS):
            order = generator.permutation(len(_BATCHES))
            batches.append(_BATCHES[order])
            groups.append(_lowest_free(prior, batches[-1], labels[order]))

    all_of = jit(jax.vmap(partial(_partition_density, prior, num_slots)))
    density, product, stayed = all_of(jnp.asarray(batches), jnp.asarray(groups))
    if not np.all(stayed):
        raise TypeError(
            f"check_chain_rule: hyperparameters of {type(prior).__name__} change as items join, so "
            "that its density is not the product of `weights` alone"
        )
    sizes = [f"group sizes {np.bincount(one, minlength=num_slots).tolist()}" for one in groups]
    return list(zip(sizes, density, product, strict=True))


def _lowest_free(prior: PartitionPrior, batches: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The labels that items get which come in this order: the lowest free one for a new group."""
    if not prior.grows:
        return groups
    known: dict[int, dict[int, int]] = {}
    labels = []
    for batch, group in zip(batches.tolist(), groups.tolist(), strict=True):
        slots = known.setdefault(0 if prior.labels_shared else batch, {})
        labels.append(slots.setdefault(group, len(slots)))
    return np.array(labels)


def _partition_density(
    prior: PartitionPrior, num_slots: int, batches: Array, groups: Array
) -> tuple[Array, Array, Array]:
    """Log density by `log_prob`, as the product over items, and whether hyperparameters stayed."""
    start = prior.start(num_slots)
    nothing = jnp.zeros((_NUM_BATCHES, num_slots), jnp.int32)

    def add_item(cache: CountCache, item: tuple[Array, Array]) -> tuple[CountCache, Array]:
        batch, group = item
        weights, _ = prior.weights(cache, batch)
        log_prob = jnp.log(weights[group]) - jnp.log(jnp.sum(weights))
        return prior.assign(cache, batch, group, jnp.asarray(0.5)), log_prob

    cache, each = jax.lax.scan(
        add_item, prior.begin(nothing, start, with_sizes=False), (batches, groups)
    )
    counts, hyperparameters = prior.end(cache)
    same = [jnp.all(start[name] == hyperparameters[name]) for name in start]
    return prior.log_prob(counts, hyperparameters), jnp.sum(each), jnp.all(jnp.asarray(same))
