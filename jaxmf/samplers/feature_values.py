"""Moves of the rows of Y of binary features, which ask the likelihood for values alone.

Features are visited one after another in a fresh random order. What is moved of a row of Y follows
from its prior:

- continuous: slice sampling (Neal 2003) of unconstrained values u with y = T(u), T the bijection of
  numpyro for the support of the prior, |det T'| in the density;
- zeros and ones: Gibbs draws of single entries;
- other discrete priors: nothing here; `explicit_rows.replace_features` draws whole rows anew.

Where the cells of a column depend on the entries of Y in this column alone, and these are
independent in the prior, all entries of a row are moved at once, each given all others: they are
independent. Otherwise `MOST_SINGLE` entries, drawn at random, are moved one after another, and then
a continuous row along one random direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf._kernels.special import loggammas
from jaxmf.samplers.hyper import NUM_WIDTH_DRAWS, slice_widths
from jaxmf.samplers.slice import slice_sample
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    import numpyro.distributions as dist

MOST_SINGLE = 16


class Values(NamedTuple):
    """The likelihood as a function of Y, the features being fixed."""

    # y (K, D) -> (D,) log likelihoods of the observed cells of each column, where that of column d
    # depends on y[:, d] alone; None where cells may depend on all of Y
    by_column: Callable[[Array], Array] | None
    total: Callable[[Array], Array]  # y (K, ...) -> () log likelihood of all observed cells


def update_values(
    key: Key, y: Array, exists: Array, values: Values, *, prior: dist.Distribution
) -> Array:
    """Moves the rows of Y of all features; p(Y | Z, X) stays invariant.

    Args: y (K, ...); exists (K,) bool, the slots that are features.
    Returns y, of the same shape and dtype.
    """
    move = _move_of(prior, values)
    if move is None:
        return y
    order = jax.random.uniform(jax.random.fold_in(key, 0), exists.shape, jnp.result_type(float))
    slots_key = jax.random.fold_in(key, 1)

    def visit(k: Array, _: Array, y: Array) -> Array:
        def placed(row: Array) -> Array:
            return y.at[k].set(row.astype(y.dtype))

        return placed(move(jax.random.fold_in(slots_key, k), y[k], placed))

    return slots.visit(visit, y, order=order, allowed=exists)


RowMove = Callable[[Key, Array, Callable[[Array], Array]], Array]
"""(key, row of Y, row -> Y with this row) -> row."""


def independent_entries(prior: dist.Distribution) -> dist.Distribution | None:
    """The distribution of the entries (D,) of a row where they are independent, else None."""
    import numpyro.distributions as dist

    if type(prior) is not dist.Independent:
        return None
    entries = prior.base_dist
    return entries if len(entries.batch_shape) == 1 and entries.event_shape == () else None


def draw_rows(prior: dist.Distribution, key: Key, num_slots: int) -> Array:
    """Rows of Y (K, ...) from their prior; more slots leave the first ones as they are.

    Gamma variables all at once: numpyro's draws take as long as the rest of a sweep over rows.
    """
    import numpyro.distributions as dist

    gamma = prior
    while isinstance(gamma, dist.Independent | dist.ExpandedDistribution):
        gamma = gamma.base_dist
    if isinstance(gamma, dist.Gamma):
        shape = (num_slots, *prior.shape())
        concentration = jnp.broadcast_to(gamma.concentration, shape)
        draws = jnp.exp(loggammas(key, concentration.astype(jnp.result_type(float))))
        # a vague prior alone would round to zero, where no density is finite
        return jnp.maximum(draws / gamma.rate, jnp.finfo(draws.dtype).tiny)
    keys = jax.vmap(lambda slot: jax.random.fold_in(key, slot))(jnp.arange(num_slots))
    return jax.vmap(prior.sample)(keys)


def _move_of(prior: dist.Distribution, values: Values) -> RowMove | None:
    """The move for a prior; None where there is none."""
    entries = independent_entries(prior) if values.by_column is not None else None
    if is_binary(prior):
        return _flip_columns(entries, values) if entries is not None else _flip_some(prior, values)
    if prior.is_discrete:
        return None
    if entries is None:
        return _slice_some(prior, values)
    return _slice_columns(entries, values)


def is_binary(prior: dist.Distribution) -> bool:
    """Whether the entries of a row are zeros and ones."""
    import numpyro.distributions as dist

    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    return isinstance(prior, dist.BernoulliProbs | dist.BernoulliLogits)


def can_shrink(prior: dist.Distribution) -> bool:
    """Whether a row of Y times a factor of zero to one is in the support of its prior."""
    from numpyro.distributions import constraints

    support = prior.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    shrinking = (
        constraints.real,
        constraints.real_vector,
        constraints.positive,
        constraints.nonnegative,
        constraints.unit_interval,
    )
    return not prior.is_discrete and support in shrinking


def _flip_columns(entries: dist.Distribution, values: Values) -> RowMove:
    """All entries of a row of zeros and ones, which are independent given the others."""
    assert values.by_column is not None
    by_column = values.by_column

    def move(key: Key, row: Array, placed: Callable[[Array], Array]) -> Array:
        zeros, ones = jnp.zeros_like(row), jnp.ones_like(row)
        log_odds = by_column(placed(ones)) - by_column(placed(zeros))
        log_odds = log_odds + entries.log_prob(ones) - entries.log_prob(zeros)
        uniforms = jax.random.uniform(key, row.shape, jnp.result_type(float))
        return (uniforms < jax.nn.sigmoid(log_odds)).astype(row.dtype)

    return move


def _flip_some(prior: dist.Distribution, values: Values) -> RowMove:
    """Some entries of a row of zeros and ones, one after another."""

    def move(key: Key, row: Array, placed: Callable[[Array], Array]) -> Array:
        chosen_key, uniform_key = jax.random.split(key)
        chosen = _some(chosen_key, row.size)
        uniforms = jax.random.uniform(uniform_key, chosen.shape, jnp.result_type(float))

        def log_density(flat: Array) -> Array:
            row_now = flat.reshape(row.shape)
            return values.total(placed(row_now)) + prior.log_prob(row_now)

        def flip(flat: Array, draw: tuple[Array, Array]) -> tuple[Array, None]:
            index, uniform = draw
            zero, one = (flat.at[index].set(value) for value in (0, 1))
            log_odds = log_density(one) - log_density(zero)
            return jnp.where(uniform < jax.nn.sigmoid(log_odds), one, zero), None

        flat, _ = jax.lax.scan(flip, row.ravel(), (chosen, uniforms))
        return flat.reshape(row.shape)

    return move


def _slice_columns(entries: dist.Distribution, values: Values) -> RowMove:
    """All entries of a continuous row, which are independent given the others."""
    import numpyro.distributions as dist
    from numpyro.distributions import biject_to

    assert values.by_column is not None
    by_column = values.by_column
    bijection = biject_to(entries.support)
    each = entries.base_dist if isinstance(entries, dist.ExpandedDistribution) else entries
    draws = draw_rows(each, jax.random.key(0), NUM_WIDTH_DRAWS)
    widths = jnp.broadcast_to(slice_widths(bijection.inv(draws)), entries.batch_shape)

    def move(key: Key, row: Array, placed: Callable[[Array], Array]) -> Array:
        start = bijection.inv(row) / widths

        def log_density(u: Array) -> Array:
            scaled = u * widths
            moved = bijection(scaled)
            log_jacobian = bijection.log_abs_det_jacobian(scaled, moved)
            return by_column(placed(moved)) + entries.log_prob(moved) + log_jacobian

        u = slice_sample(key, log_density, start)
        moved = bijection(u * widths)
        return jnp.where(_is_sound(u, start) & entries.support(moved), moved, row)

    return move


def _slice_some(prior: dist.Distribution, values: Values) -> RowMove:
    """Some entries of a continuous row one after another, then the row along a random direction."""
    from numpyro.distributions import biject_to

    bijection = biject_to(prior.support)
    draws = draw_rows(prior, jax.random.key(0), NUM_WIDTH_DRAWS)
    widths = slice_widths(bijection.inv(draws))
    shape, size = widths.shape, math.prod(widths.shape)

    def move(key: Key, row: Array, placed: Callable[[Array], Array]) -> Array:
        chosen_key, direction_key, slice_key = jax.random.split(key, 3)
        start = bijection.inv(row) / widths
        single = jax.nn.one_hot(_some(chosen_key, size), size, dtype=start.dtype)
        drawn = jax.random.normal(direction_key, (1, size), start.dtype)
        directions = jnp.concatenate([single, drawn / jnp.linalg.norm(drawn)])

        def log_density(u: Array) -> Array:
            moved = bijection(u * widths)
            log_jacobian = bijection.log_abs_det_jacobian(u * widths, moved)
            return values.total(placed(moved)) + prior.log_prob(moved) + jnp.sum(log_jacobian)

        def along(u: Array, numbered: tuple[Array, Array]) -> tuple[Array, None]:
            index, flat = numbered
            direction = flat.reshape(shape)
            length = slice_sample(
                jax.random.fold_in(slice_key, index),
                lambda t: log_density(u + t * direction),
                jnp.zeros((), u.dtype),
            )
            return u + length * direction, None

        u, _ = jax.lax.scan(along, start, (jnp.arange(len(directions)), directions))
        moved = bijection(u * widths)
        sound = jnp.all(_is_sound(u, start)) & jnp.all(prior.support(moved))
        return jnp.where(sound, moved, row)

    return move


def _some(key: Key, size: int) -> Array:
    """Indices of at most `MOST_SINGLE` of this many entries, in a random order."""
    return jax.random.permutation(key, size)[:MOST_SINGLE]


def _is_sound(after: Array, before: Array) -> Array:
    """False where an entry lies where rounding has carried it to the end of its support."""
    return jnp.isfinite(after) & jnp.isfinite(before)
