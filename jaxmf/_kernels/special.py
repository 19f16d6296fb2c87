"""Draws that jax.random lacks, or is slow to compile."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jax.scipy.special import erfinv, gammaln
from jax.typing import DTypeLike

from jaxmf._kernels import tables
from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.devices import block_size, default_platform
from jaxmf.programs import jit
from jaxmf.types import Array


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

    # from before the first gap, which the loop makes too: one generator is compiled
    start = (jnp.asarray(-1, jnp.int32), jnp.zeros_like(rate))
    count, _ = jax.lax.while_loop(lambda carry: (carry[0] < 0) | (carry[1] < rate), arrive, start)
    return count


def binomial(key: Array, num_trials: Array, share: Array) -> Array:
    """Binomial draws, certain ones included.

    Those of a mean up to ten, of what is rarer, ones or zeros, by counting up the probabilities
    against one uniform; the others by `jax.random.binomial`, in a loop that is not entered where
    there are none: it makes uniforms for all of the draws at every attempt.

    Args: num_trials (...) float, whole numbers; share (...) float, 0 to 1.
    Returns float of the shape of `num_trials`.
    """
    rarer = jnp.minimum(share, 1 - share)
    is_few = num_trials * rarer <= _MOST_COUNTED
    uniform = jax.random.uniform(jax.random.fold_in(key, 0), num_trials.shape, num_trials.dtype)
    few_trials = jnp.where(is_few, num_trials, 0)
    odds, mean = rarer / (1 - rarer), few_trials * rarer
    smallest = jnp.finfo(num_trials.dtype).eps / 16

    def count_up(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, probability, left = carry
        # rounded probabilities may add up to less than the uniform: then this far tail is the end
        is_end = (count > mean) & (probability < smallest)
        beyond = (left >= probability) & (count < few_trials) & ~is_end
        left = jnp.where(beyond, left - probability, -1)
        probability = probability * odds * (few_trials - count) / (count + 1)
        return jnp.where(beyond, count + 1, count), probability, left

    start = (jnp.zeros_like(few_trials), jnp.exp(few_trials * jnp.log1p(-rarer)), uniform)
    count, _, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2] >= 0), count_up, start)

    def draw_many(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        drawn = jax.random.binomial(
            jax.random.fold_in(key, 1),
            jnp.where(is_few, 1, num_trials),
            jnp.where(is_few, 0.5, rarer),
            dtype=num_trials.dtype,
        )
        return jnp.asarray(True), jnp.where(is_few, carry[1], drawn)

    _, count = jax.lax.while_loop(lambda carry: ~carry[0], draw_many, (jnp.all(is_few), count))
    return jnp.where(share > 0.5, num_trials - count, count)


def loggamma(key: Array, shape: Array) -> Array:
    """The logarithm of a Gamma(shape, 1) draw.

    One call of the random number generator an attempt, of which hardly more than one is needed;
    `jax.random.loggamma` makes seven, each of which takes its time to compile.

    Args: shape () float, positive.
    Returns () float; NaN where the shape is negative or not finite.

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


@partial(jit, inline=True)  # outside of programs a loop is compiled at every call
def loggammas(keys: Array, shapes: Array) -> Array:
    """Logarithms of Gamma(shape, 1) draws, as `loggamma` makes one, all at the same time.

    One attempt for all, then further ones for those that were rejected, about a twentieth. One
    block of the random number generator an attempt: where a shape below one needs a second uniform,
    it is the one that the attempt was accepted with, over the probability to be accepted, which
    given that it was is uniform again and independent of the draw. `jax.random.loggamma` takes
    some twenty times as long on a CPU core.

    More shapes at the end of the first axis leave the draws of the others as they are.

    Args: keys: one, or (R,), and row r of the shapes (R, ...) is drawn from key r alone; `vmap`
    over keys takes longer, as it tries all rows again until the last one is accepted; shapes (...)
    float, positive.
    Returns (...) float; NaN where a shape is negative or not finite.
    """
    flat = shapes.astype(jnp.result_type(float, shapes)).ravel()
    size, length = flat.shape[0], flat.shape[0] // max(keys.size, 1)
    words = jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys.ravel())
    drawn_by = _Generators(words, length)
    everyone = drawn_by.everywhere()
    if size <= _FEW:
        drawn = _until_accepted(*everyone, flat, jnp.zeros((size,), bool), count=0)
    else:
        first, done = _attempt(*everyone, jnp.asarray(0, jnp.uint32), flat)
        drawn = _redrawn(drawn_by, flat, first, done)
    return drawn.reshape(shapes.shape)


_MOST_COUNTED = 10  # the mean of binomial draws that are counted up; the probability of 0 is e^-14
_FEW = 1_024  # draws that are tried all together, by a loop of which every turn is the same


class _Generators(NamedTuple):
    """Generators of random numbers, one for each row of the draws, which lie row after row."""

    words: Array  # (R, 2) uint32, the state of each
    length: int  # draws a row

    def everywhere(self) -> tuple[tuple[Array, Array], Array]:
        """State of the generator and number within the row, of all draws in order."""
        index = jnp.arange(self.length, dtype=jnp.uint32)
        if self.words.shape[0] == 1:
            return (self.words[0, 0], self.words[0, 1]), index
        first, second = (jnp.repeat(self.words[:, which], self.length) for which in range(2))
        return (first, second), jnp.tile(index, self.words.shape[0])

    def at(self, position: Array) -> tuple[tuple[Array, Array], Array]:
        """The same, of the draws at positions (n,) int32."""
        if self.words.shape[0] == 1:
            return (self.words[0, 0], self.words[0, 1]), position.astype(jnp.uint32)
        line, index = jnp.divmod(position, self.length)
        return (self.words[line, 0], self.words[line, 1]), index.astype(jnp.uint32)


def _redrawn(drawn_by: _Generators, shapes: Array, drawn: Array, done: Array) -> Array:
    """Draws with those that are not done replaced, by attempts until they are accepted."""
    size = shapes.shape[0]
    most = size // 18 + _FEW  # so that a second turn is rare
    # in one pass: the compiler would attempt once for the draws and again for what is done
    drawn, done = jax.lax.optimization_barrier((drawn, done))
    flags = tables.as_flags(~done)
    total = jnp.sum(~done, dtype=jnp.int32)

    def replace(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        start, drawn = carry
        position = jnp.minimum(tables.positions_of_flags(flags, start, most), size)
        inside = jnp.minimum(position, size - 1)
        new = _until_accepted(*drawn_by.at(inside), shapes[inside], position == size, count=1)
        return start + most, drawn.at[position].set(new, mode="drop")

    carry = (jnp.zeros((), jnp.int32), drawn)
    if default_platform() != "cpu":  # in `vmap` a loop copies all and chooses between old and new
        carry = replace(carry)
    return jax.lax.while_loop(lambda carry: carry[0] < total, replace, carry)[1]


def _until_accepted(
    words: tuple[Array, Array], index: Array, shapes: Array, done: Array, *, count: int
) -> Array:
    """Draws of these indices, by attempts from `count` on; zero where it is done before."""

    def again(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, old, done = carry
        new, accepted = _attempt(words, index, count, shapes)
        return count + 1, jnp.where(done, old, new), done | accepted

    first = (jnp.asarray(count, jnp.uint32), jnp.zeros_like(shapes), done)
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), again, first)[1]


def _attempt(
    words: tuple[Array, Array], index: Array, count: Array, shapes: Array
) -> tuple[Array, Array]:
    """An attempt at draws of these indices, and which were accepted: of what is no shape NaN."""
    is_none = ~(jnp.isfinite(shapes) & (shapes >= 0))  # no attempt at it would ever succeed
    uniforms, others = pairs_of_uniforms(words, index, count, shapes.dtype)
    is_small = shapes < 1
    centre = jnp.where(is_small, shapes + 1, shapes) - 1 / 3
    normal = as_normals(uniforms)
    cube = (1 + normal / jnp.sqrt(9 * centre)) ** 3
    log_cube = jnp.log(jnp.where(cube > 0, cube, 1))
    bound = jnp.minimum(normal**2 / 2 + centre * (1 - cube + log_cube), 0)
    log_uniform = jnp.log1p(-others)
    boost = jnp.where(is_small, (log_uniform - bound) / shapes, 0)
    drawn = jnp.where(is_none, jnp.nan, jnp.log(centre) + log_cube + boost)
    return drawn, is_none | ((cube > 0) & (log_uniform <= bound))


def pairs_of_uniforms(
    words: Array | tuple[Array, Array], index: Array, count: Array, dtype: DTypeLike
) -> tuple[Array, Array]:
    """Two uniforms in [0, 1) for each index and attempt, whatever other indices there are.

    Args: words (2,) uint32, or two that are () or (n,); index (n,) uint32; count () uint32.
    """
    size = index.shape[0]

    def block(count: Array) -> tuple[Array, Array]:
        counters = jnp.concatenate([index, jnp.broadcast_to(count, (size,))])
        drawn = threefry_2x32(words, counters)
        return drawn[:size], drawn[size:]

    if dtype != jnp.float64:
        first, second = block(count)
        return _as_uniforms(first).astype(dtype), _as_uniforms(second).astype(dtype)
    pairs = (block(2 * count), block(2 * count + 1))
    high_and_low = [(high.astype(dtype), low >> 11) for high, low in pairs]
    first, second = ((high + low * 2.0**-21) * 2.0**-32 for high, low in high_and_low)
    return first, second


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


def log_rising_over_power(start: Array, amount: Array | float) -> Array:
    """log Gamma(start + amount) / (Gamma(start) start^amount), near 0 where start is large.

    That of `log_rising` less amount log start would lose it in digits: at start = 1e8 and amount =
    10 both are 184, and their difference 5e-7.

    Args: as in `log_rising`. Returns float, of the common shape.
    """
    first = 20.0  # as there
    large = jnp.maximum(start, first)
    ratio = (large + amount - 0.5) * jnp.log1p(amount / large) - amount
    ratio = ratio + _stirling_rest(large + amount) - _stirling_rest(large)
    small = jnp.minimum(start, first)
    exact = gammaln(small + amount) - gammaln(small) - amount * jnp.log(small)
    return jnp.where(start > first, ratio, exact)


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

    Returns array of the default float.
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


def uniforms_at(key: Array, size: int, index: Array) -> Array:
    """The numbers of `uniforms(key, (size,))` at some positions, without making the others.

    At twice the time a number, so that a device can draw those of its rows. Of generators and
    floats that `uniforms` leaves to `jax.random.uniform`, all are made.

    Args: index (...) int, positions below `size`.
    Returns (...), of the default float.
    """
    dtype = jnp.result_type(float)
    if dtype != jnp.float32 or jax.random.key_impl(key) != "threefry2x32":
        return jax.random.uniform(key, (size,), dtype)[index]
    length = min(size, block_size("table entries"))
    half = -(-length // 2)
    flat = index.ravel()
    # a threefry block is made of the counters of two positions, half a piece apart
    start = jnp.where(flat >= size - length, size - length, flat // length * length)
    within = flat - start
    first = within % half
    second = jnp.where(first + half < length, start + first + half, 0)
    pairs = jnp.concatenate([start + first, second]).astype(jnp.uint32)
    words = threefry_2x32(jax.random.key_data(key), pairs).reshape(2, -1)
    return _as_uniforms(jnp.where(within < half, words[0], words[1])).reshape(index.shape)


def plain_uniforms_at(key: Array, size: int, index: Array) -> Array:
    """The numbers of `jax.random.uniform(key, (size,))` at some positions, as `uniforms_at`.

    Args: index (n,) int, positions below `size`.
    """
    dtype, is_by_position = jnp.result_type(float), jax.config.jax_threefry_partitionable
    is_threefry = jax.random.key_impl(key) == "threefry2x32"
    if dtype != jnp.float32 or not (is_threefry and is_by_position):
        return jax.random.uniform(key, (size,), dtype)[index]
    counters = jnp.concatenate([jnp.zeros_like(index), index]).astype(jnp.uint32)
    first, second = threefry_2x32(jax.random.key_data(key), counters).reshape(2, -1)
    return _as_uniforms(first ^ second)


def _as_uniforms(words: Array) -> Array:
    # 23 bits as the fraction of a number in [1, 2)
    fraction = (words >> 9) | jnp.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(fraction, jnp.float32) - 1
