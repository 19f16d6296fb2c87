"""Univariate slice sampling (Neal 2003): stepping out, then shrinking."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.types import Array

_START, _LEFT, _RIGHT, _SHRINK, _DONE = range(5)
_MAX_SHRINKS = 200  # float64 cannot halve an interval this often


class _Search(NamedTuple):
    phase: Array
    point: Array  # where the density is needed next
    level: Array  # log height of the slice
    left: Array
    right: Array
    left_budget: Array
    right_budget: Array
    num_evaluations: Array


def slice_sample(
    key: Array,
    log_density_fn: Callable[[Array], Array],
    x: Array | float,
    *,
    width: float = 1.0,
    max_steps: int = 50,
) -> Array:
    """One slice-sampling update of a real number, which leaves exp(log_density_fn) invariant.

    Several at once where these are independent of each other.

    log y = log f(x) - Exponential(1); an interval of length `width` placed uniformly around x is
    stepped out until both ends lie outside the slice, with `max_steps` shared between the two
    ends at random (Neal 2003, figure 3), then points are drawn and the interval shrunk to them
    (figure 5). All of it is one loop that evaluates the density once a turn: it is compiled once,
    and under vmap a turn costs the same for every chain.

    Args:
        log_density_fn: x () -> log density () up to a constant; -inf outside the support. Of
            arrays (...) -> (...), the density of each value.
        x: () or (...) float, the present value.
        max_steps: the interval grows to at most `max_steps * width`.
    Returns:
        float of the shape of x, the new value.

    Reference:
        R. M. Neal, Slice sampling, Annals of Statistics 31 (2003).
    """
    x = jnp.asarray(x, jnp.result_type(float, x))
    start_key, shrink_key = jax.random.split(key)
    # one call for three uniforms: each call of the generator takes its time to compile
    height, offset, limit = jax.random.uniform(start_key, (3, *x.shape), x.dtype)
    drop = -jnp.log1p(-height)
    left = x - width * offset
    left_budget = jnp.floor(limit * max_steps).astype(int)
    last_evaluation = max_steps + _MAX_SHRINKS

    def turn(search: _Search) -> _Search:
        phase = search.phase
        value = jnp.asarray(log_density_fn(search.point), x.dtype)
        inside = value >= search.level
        level = jnp.where(phase == _START, value - drop, search.level)

        goes_left = (phase == _LEFT) & inside & (search.left_budget > 0)
        goes_right = (phase == _RIGHT) & inside & (search.right_budget > 0)
        rejected = (phase == _SHRINK) & ~inside
        below = rejected & (search.point < x)
        left = jnp.where(below, search.point, search.left - jnp.where(goes_left, width, 0.0))
        right = search.right + jnp.where(goes_right, width, 0.0)
        right = jnp.where(rejected & ~below, search.point, right)

        # of several values, those that are drawn wait for the others
        stays = goes_left | goes_right | rejected | (phase == _DONE)
        phase = jnp.where(stays, phase, phase + 1)
        uniform = jax.random.uniform(
            jax.random.fold_in(shrink_key, search.num_evaluations), x.shape, x.dtype
        )
        ends = jnp.where(phase == _LEFT, left, right)
        inner = left + uniform * (right - left)
        point = jnp.where(phase == _SHRINK, inner, ends)
        point = jnp.where(phase == _DONE, search.point, point)
        # A density that is NaN at x accepts nothing: keep x, the run loop reports it.
        exhausted = (phase != _DONE) & (search.num_evaluations >= last_evaluation)
        return _Search(
            phase=jnp.where(exhausted, _DONE, phase),
            point=jnp.where(exhausted, x, point),
            level=level,
            left=left,
            right=right,
            left_budget=search.left_budget - goes_left,
            right_budget=search.right_budget - goes_right,
            num_evaluations=search.num_evaluations + 1,
        )

    start = _Search(
        phase=jnp.full(x.shape, _START),
        point=x,
        level=jnp.zeros_like(x),
        left=left,
        right=left + width,
        left_budget=left_budget,
        right_budget=max_steps - 1 - left_budget,
        num_evaluations=jnp.asarray(0),
    )
    return jax.lax.while_loop(lambda search: jnp.any(search.phase != _DONE), turn, start).point
