"""Exact draws from the Polya-Gamma distribution PG(1, z), many at once.

PG(1, z) makes logistic likelihoods Gaussian: exp(x eta) / (1 + exp(eta)) is the mean of
exp((x - 1/2) eta - omega eta^2 / 2) / 2 over omega ~ PG(1, 0), and omega | eta ~ PG(1, eta).

PG(1, z) = J / 4 with J of density proportional to exp(-(z/2)^2 x / 2) f(x), where f is that of
Jacobi's J*(1): f(x) = sum_n (-1)^n a_n(x), a_n falling. Candidates come from the tilted envelope
a_0, left of 0.64 an inverse Gaussian (Levy's distribution tilted), right of it an exponential, and
are accepted with probability f / a_0 = 1 - 3 q + 5 q^3 - 7 q^6 + ..., q = exp(-4 / x) on the left
and exp(-pi^2 x) on the right. As q < 0.002 four terms are exact beyond double precision.

Source: Devroye (2009), On exact simulation algorithms for some distributions related to Jacobi
theta functions; Polson, Scott & Windle (2013), Bayesian inference for logistic models using
Polya-Gamma latent variables, section 4.
"""

import math

import jax
import jax.numpy as jnp

from jaxmf.types import Array, Key

_CUT = 0.64
_FEWEST_LANES, _MOST_A_LANE = 256, 64
_LEVY_TAIL = math.erfc(1 / math.sqrt(2 * _CUT)) / 2  # standard normal mass beyond 1 / sqrt(cut)
# how often a pair of exponentials gives a draw from Levy's distribution left of the cut
_PAIR_SUCCESS = math.sqrt(2 * math.pi / _CUT) * math.exp(1 / (2 * _CUT)) * _LEVY_TAIL


def polya_gamma(key: Key, z: Array) -> Array:
    """Independent draws from PG(1, z).

    Every lane works through a column of draws, one attempt an iteration, and continues with the
    next where it succeeds; so hardly an attempt is made in vain while others are waited for.

    Returns positive floats of that shape.
    """
    half = jnp.abs(z).ravel() / 2
    depth = min(max(half.size // _FEWEST_LANES, 1), _MOST_A_LANE)
    num_lanes = -(-half.size // depth)
    half = jnp.pad(half, (0, depth * num_lanes - half.size)).reshape(depth, num_lanes)
    lanes = jnp.arange(num_lanes)

    def turn(carry: tuple[Array, Array, int]) -> tuple[Array, Array, int]:
        position, draws, step = carry
        here = half.at[position, lanes].get(mode="fill", fill_value=0)
        new, accepted = _attempt(jax.random.fold_in(key, step), here)
        # a lane that is done writes nowhere
        draws = draws.at[jnp.where(accepted, position, depth), lanes].set(new, mode="drop")
        return position + accepted, draws, step + 1

    start = (jnp.zeros(num_lanes, jnp.int32), jnp.zeros_like(half), 0)
    _, draws, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < depth), turn, start)
    return draws.ravel()[: z.size].reshape(z.shape) / 4


def mean_polya_gamma(z: Array) -> Array:
    """The mean of PG(1, z), tanh(z / 2) / (2 z), of that shape."""
    half = jnp.abs(z) / 2
    safe = jnp.where(half > 0, half, 1)
    return jnp.where(half > 0, jnp.tanh(safe) / safe, 1) / 4


def _attempt(key: Key, half: Array) -> tuple[Array, Array]:
    """A candidate for each of J*(1, half) (T,), and whether it is accepted."""
    uniform = 1 - jax.random.uniform(key, (5, *half.shape), half.dtype)  # never zero
    first, second = -jnp.log(uniform[1]), -jnp.log(uniform[2])
    rate = math.pi**2 / 8 + half**2 / 2
    is_wide = half * _CUT < 1  # the inverse Gaussian would mostly fall right of the cut
    # masses of the envelope, attempts that come to nothing included
    log_left = jnp.where(is_wide, math.log(4 * _LEVY_TAIL / _PAIR_SUCCESS), math.log(2) - half)
    log_right = math.log(math.pi / 2) - jnp.log(rate) - rate * _CUT
    from_left = uniform[0] < jax.nn.sigmoid(log_left - log_right)

    right = _CUT + first / rate
    levy = _CUT / (1 + _CUT * first) ** 2
    # half a squared normal by the method of Box and Muller
    half_square = first * jnp.cos(2 * math.pi * uniform[2]) ** 2
    inverse_gaussian = _inverse_gaussian(uniform[3], half_square, 1 / jnp.where(is_wide, 1, half))
    left = jnp.where(is_wide, levy, inverse_gaussian)
    # Levy's distribution is tilted by rejection; the inverse Gaussian is tilted but may be too
    # large
    levy_kept = (first**2 <= 2 * second / _CUT) & (uniform[3] < jnp.exp(-(half**2) * levy / 2))
    kept = jnp.where(is_wide, levy_kept, inverse_gaussian < _CUT)
    x = jnp.where(from_left, left, right)
    q = jnp.exp(jnp.where(from_left, -4 / left, -(math.pi**2) * right))
    accepted = (uniform[4] < 1 - 3 * q + 5 * q**3 - 7 * q**6) & (~from_left | kept)
    return x, accepted


def _inverse_gaussian(uniform: Array, half_square: Array, mean: Array) -> Array:
    """Inverse Gaussian draws of shape 1 (Michael, Schucany & Haas 1976), without cancellation."""
    w = mean * half_square
    smaller = mean / (1 + w + jnp.sqrt(w * (w + 2)))
    return jnp.where(uniform * (mean + smaller) < mean, smaller, mean**2 / smaller)
