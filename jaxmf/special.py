"""Draws that jax.random lacks, or is slow to compile."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.random import threefry_2x32
from jax.scipy.special import erfinv, gammaln

from jaxmf.devices import block_size
from jaxmf.fusion import fused_on_cpu


def poisson(key: Array, rate: Array) -> Array:
    """A Poisson draw as the number of unit exponential gaps that fit into `rate`.

    Exact at every rate, in time proportional to it; `jax.random.poisson` takes seconds to
    compile.

    Args:
        key: typed PRNG key.
        rate: () float.

    Returns:
        () int32.
    """

    def gap(count: Array) -> Array:
        return jax.random.exponential(jax.random.fold_in(key, count), dtype=rate.dtype)

    def arrive(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, time = carry
        return count + 1, time + gap(count + 1)

    first = jnp.asarray(0, jnp.int32)
    count, _ = jax.lax.while_loop(lambda carry: carry[1] < rate, arrive, (first, gap(first)))
    return count


def loggamma(key: Array, shape: Array) -> Array:
    """The logarithm of a Gamma(shape, 1) draw.

    One call of the random number generator an attempt, of which hardly more than one is needed;
    `jax.random.loggamma` makes seven, each of which takes its time to compile.

    Args:
        key: typed PRNG key.
        shape: () float, positive.

    Returns:
        () float; NaN where the shape is negative or not finite.

    Reference:
        G. Marsaglia and W. W. Tsang, A simple method for generating gamma variables, ACM
        Transactions on Mathematical Software 26 (2000).
    """
    return _loggamma_fused(key, shape)


def _loggamma(key: Array, shape: Array) -> Array:
    # shapes below one: a draw of shape + 1 times U^(1 / shape)
    is_small = shape < 1
    centre = jnp.where(is_small, shape + 1, shape) - 1 / 3
    width = 1 / jnp.sqrt(9 * centre)

    def attempt(count: Array) -> tuple[Array, Array, Array]:
        uniforms = jax.random.uniform(jax.random.fold_in(key, count), (3,), shape.dtype)
        normal = as_normals(uniforms[0])
        cube = (1 + width * normal) ** 3
        log_cube = jnp.log(jnp.where(cube > 0, cube, 1))
        bound = normal**2 / 2 + centre * (1 - cube + log_cube)
        accepted = (cube > 0) & accepts(uniforms[1], bound)
        return log_cube, accepted, jnp.log1p(-uniforms[2])

    def again(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        return carry[0] + 1, *attempt(carry[0])

    nothing = jnp.zeros((), shape.dtype)
    # no attempt at a shape that is none would ever succeed
    is_shape = jnp.isfinite(shape) & (shape >= 0)
    start = (jnp.asarray(0, jnp.int32), nothing, ~is_shape, nothing)
    _, log_cube, _, log_uniform = jax.lax.while_loop(lambda carry: ~carry[2], again, start)
    drawn = jnp.log(centre) + log_cube + jnp.where(is_small, log_uniform / shape, 0)
    return jnp.where(is_shape, drawn, jnp.nan)


_loggamma_fused = fused_on_cpu(_loggamma)


def loggammas(key: Array, shapes: Array) -> Array:
    """Logarithms of Gamma(shape, 1) draws, as `loggamma` makes one, all at the same time.

    More shapes at the end of the first axis leave the draws of the others as they are.

    Args:
        key: typed PRNG key.
        shapes: (...) float, positive.

    Returns:
        (...) float; NaN where a shape is negative or not finite.
    """
    dtype = jnp.result_type(float, shapes)
    is_small = shapes < 1
    centre = jnp.where(is_small, shapes + 1, shapes).astype(dtype) - 1 / 3
    width = 1 / jnp.sqrt(9 * centre)

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, log_cube, done = carry
        uniforms = jax.random.uniform(jax.random.fold_in(key, count), (*shapes.shape, 2), dtype)
        normal = as_normals(uniforms[..., 0])
        cube = (1 + width * normal) ** 3
        log_new = jnp.log(jnp.where(cube > 0, cube, 1))
        bound = normal**2 / 2 + centre * (1 - cube + log_new)
        accepted = (cube > 0) & accepts(uniforms[..., 1], bound)
        return count + 1, jnp.where(done, log_cube, log_new), done | accepted

    # no attempt at a shape that is none would ever succeed
    is_shape = jnp.isfinite(shapes) & (shapes >= 0)
    start = (jnp.asarray(1, jnp.int32), jnp.zeros_like(centre), ~is_shape)
    _, log_cube, _ = jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), attempt, start)
    uniform = jax.random.uniform(jax.random.fold_in(key, 0), shapes.shape, dtype)
    boost = jnp.where(is_small, jnp.log1p(-uniform) / shapes, 0)
    return jnp.where(is_shape, jnp.log(centre) + log_cube + boost, jnp.nan)


def log_rising(start: Array, amount: Array | float) -> Array:
    """log Gamma(start + amount) / Gamma(start), also where both are too large to subtract.

    In float32 the logarithm of Gamma(1e6) is known to the nearest 1; the ratio here to 1e-6 of
    itself, by Stirling's series of both in one.

    Args:
        start: float, positive.
        amount: float, not negative; of a shape that goes with it.

    Returns:
        Float, of the common shape.
    """
    first = 20.0  # from here on the series is exact to the last digit of float64
    large = jnp.maximum(start, first)
    ratio = (large - 0.5) * jnp.log1p(amount / large) + amount * (jnp.log(large + amount) - 1)
    ratio = ratio + _stirling_rest(large + amount) - _stirling_rest(large)
    small = jnp.minimum(start, first)
    return jnp.where(start > first, ratio, gammaln(small + amount) - gammaln(small))


def _stirling_rest(x: Array) -> Array:
    """log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, for x of at least 20."""
    square = 1 / (x * x)
    inner = 1 / 1260 - square * (1 / 1680 - square / 1188)
    return (1 / 12 - square * (1 / 360 - square * inner)) / x


def accepts(uniform: Array, log_probability: Array) -> Array:
    """Whether something of a given log probability happens: a Metropolis-Hastings move, above all.

    By 1 - u rather than u: uniforms are in [0, 1), and log(0) would let through a move of
    probability zero, once in 2^23.

    Args:
        uniform: in [0, 1).
        log_probability: of the same shape; above zero it happens, where it is NaN it does not.

    Returns:
        Bool, of that shape.
    """
    return jnp.log1p(-uniform) <= log_probability


def as_normals(uniforms: Array) -> Array:
    """Standard normals from uniforms in [0, 1), as `jax.random.normal` makes them."""
    smallest = jnp.nextafter(jnp.asarray(-1, uniforms.dtype), jnp.asarray(0, uniforms.dtype))
    centred = jnp.maximum(smallest, smallest + uniforms * (1 - smallest))
    return jnp.sqrt(jnp.asarray(2, uniforms.dtype)) * erfinv(centred)


def uniforms(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers in [0, 1), in half the time of `jax.random.uniform` where there are many.

    A threefry block gives two words; that one throws the second away. Other generators, and other
    floats than those of 32 bits, are left to it.

    Args:
        key: typed PRNG key, used for nothing else.
        shape: of the result.

    Returns:
        Array of the default float.
    """
    dtype = jnp.result_type(float)
    if dtype != jnp.float32 or jax.random.key_impl(key) != "threefry2x32":
        return jax.random.uniform(key, shape, dtype)
    size, data = math.prod(shape), jax.random.key_data(key)
    block = block_size("table entries")
    if size <= block:
        counters = jnp.arange(size, dtype=jnp.uint32)
        return _as_uniforms(threefry_2x32(data, counters)).reshape(shape)

    def piece(index: Array, drawn: Array) -> Array:
        # the last one begins inside the one before: counters follow positions, none is used twice
        start = jnp.minimum(index * block, size - block)
        counters = start.astype(jnp.uint32) + jnp.arange(block, dtype=jnp.uint32)
        new = _as_uniforms(threefry_2x32(data, counters))
        return jax.lax.dynamic_update_slice_in_dim(drawn, new, start, 0)

    nothing = jnp.zeros((size,), dtype)
    return jax.lax.fori_loop(0, -(-size // block), piece, nothing).reshape(shape)


def _as_uniforms(words: Array) -> Array:
    # 23 bits as the fraction of a number in [1, 2)
    fraction = (words >> 9) | jnp.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(fraction, jnp.float32) - 1
