"""The standard normal distribution on an interval: its mass, its slopes, and exact draws from it.

All of it holds wherever the interval lies, in float32 too: intervals left of zero are reflected,
and beyond a cut tails are taken by Mills' ratio, the tail over the density, whose continued
fraction converges fast there.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import erfc, ndtr, ndtri

from jaxmf.types import Array

_CUT = 4.0  # from here on by Mills' ratio
_WIDEST = 100.0  # nothing of a normal lies so far beyond an end
_ROOT_2_PI = math.sqrt(2 * math.pi)


class _Reflected(NamedTuple):
    """An interval [near, far] whose end `near` is the nearer to zero from the left or beyond."""

    is_left: Array
    near: Array
    far: Array


def log_mass(lower: Array, upper: Array) -> Array:
    """log P(lower < z < upper) of a standard normal z.

    Returns float of the common shape.
    """
    interval = _reflect(lower, upper)
    central = jnp.log(_central_mass(interval))
    near = _beyond_cut(interval)
    tail = jnp.log(_mills(near) / _ROOT_2_PI) - near**2 / 2 + jnp.log1p(-_rest(interval))
    return jnp.where(interval.near < _CUT, central, tail)


def mass(lower: Array, upper: Array) -> Array:
    """P(lower < z < upper) of a standard normal z, to the digits that its tails have.

    Far out, where `log_mass` still has digits, it is zero; it takes a fifth of the time.
    """
    is_left = lower + upper < 0  # of two tails on one side the smaller ones keep their digits
    near, far = jnp.where(is_left, -upper, lower), jnp.where(is_left, -lower, upper)
    return 0.5 * (erfc(near / math.sqrt(2)) - erfc(far / math.sqrt(2)))


def slopes(lower: Array, upper: Array) -> tuple[Array, Array]:
    """The density at both ends over the mass: -d/dlower and d/dupper of `log_mass`.

    Returns floats of the common shape, at lower and at upper.
    """
    interval = _reflect(lower, upper)
    mass = _central_mass(interval)
    near = _beyond_cut(interval)
    width = _width(interval)
    hazard = 1 / _mills(near) / (1 - _rest(interval))
    is_central = interval.near < _CUT
    at_near = jnp.where(is_central, _density(interval.near) / mass, hazard)
    at_far = jnp.where(
        is_central, _density(interval.far) / mass, hazard * jnp.exp(-width * (near + width / 2))
    )
    swapped = interval.is_left
    return jnp.where(swapped, at_far, at_near), jnp.where(swapped, at_near, at_far)


def truncated_normals(uniforms: Array, mean: Array, lower: Array, upper: Array) -> Array:
    """Draws from N(mean, 1) between lower and upper, by inversion: one uniform a draw.

    Near the mean the distribution function is inverted as it stands, in the lower tail, where it
    keeps its digits; beyond the cut the distance from the nearer end is found by Newton's method
    on the logarithm of the ratio of tails, from the draw that a Rayleigh distribution would give.
    Nothing is ever rejected.

    Args: uniforms: in [0, 1).
    Returns floats of the common shape, between lower and upper.
    """
    interval = _reflect(lower - mean, upper - mean)
    # The tail beyond the draw, from that of `near` down to that of `far`. At one it would be
    # infinitely far away, which uniforms of 2^-23 each would reach far too often.
    low, high = ndtr(-interval.far), ndtr(-interval.near)
    tail = jnp.clip(low + (1 - uniforms) * (high - low), None, 1 - jnp.finfo(low.dtype).epsneg)
    central = jnp.clip(-ndtri(tail), interval.near, interval.far)
    near_mean = mean + jnp.where(interval.is_left, -central, central)
    distance = _distance(uniforms, interval)
    beyond = jnp.where(interval.is_left, upper - distance, lower + distance)
    return jnp.clip(jnp.where(interval.near < _CUT, near_mean, beyond), lower, upper)


def _distance(uniforms: Array, interval: _Reflected) -> Array:
    """How far from the nearer end a draw lies, where that end is beyond the cut."""
    near = _beyond_cut(interval)
    log_tail = jnp.log1p(-uniforms * (1 - _rest(interval)))
    distance = -2 * log_tail / (near + jnp.sqrt(near**2 - 2 * log_tail))
    ratio = _mills(near)
    # the start is right to 1 / near^2, and every turn squares that
    for _ in range(2 if near.dtype == jnp.float32 else 4):
        next_ratio = _mills(near + distance)
        excess = jnp.log(next_ratio / ratio) - distance * (near + distance / 2) - log_tail
        distance = distance + excess * next_ratio
    return jnp.maximum(distance, 0)


def _reflect(lower: Array, upper: Array) -> _Reflected:
    is_left = lower + upper < 0
    near = jnp.where(is_left, -upper, lower)
    far = jnp.where(is_left, -lower, upper)
    # finite ends, so that derivatives are finite too
    near = jnp.maximum(near, -_WIDEST)
    return _Reflected(is_left, near, jnp.minimum(far, jnp.abs(near) + _WIDEST))


def _beyond_cut(interval: _Reflected) -> Array:
    """The nearer end where it lies beyond the cut, which stands for the others."""
    return jnp.where(interval.near < _CUT, _CUT, interval.near)


def _central_mass(interval: _Reflected) -> Array:
    """The mass of an interval whose nearer end lies before the cut; of others something."""
    is_central = interval.near < _CUT
    near = jnp.where(is_central, interval.near, _CUT)
    far = jnp.where(is_central, interval.far, _CUT + 1)
    return ndtr(-near) - ndtr(-far)


def _width(interval: _Reflected) -> Array:
    return jnp.where(interval.near < _CUT, 1, interval.far - interval.near)


def _rest(interval: _Reflected) -> Array:
    """The tail beyond the far end over that beyond the near one, both beyond the cut."""
    near = _beyond_cut(interval)
    width = _width(interval)
    ratio = _mills(near + width) / _mills(near)
    return ratio * jnp.exp(-width * (near + width / 2))


def _mills(x: Array) -> Array:
    """The upper tail over the density: 1 / (x + 1 / (x + 2 / (x + ...))), for x beyond the cut."""
    # as many terms as the last digit needs at the cut; erfcx of jax is 0 from 9.2 on in float32
    num_terms = 9 if x.dtype == jnp.float32 else 30
    rest = x
    for k in range(num_terms, 0, -1):
        rest = x + k / rest
    return 1 / rest


def _density(x: Array) -> Array:
    return jnp.exp(-(x**2) / 2) / _ROOT_2_PI
