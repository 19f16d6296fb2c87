"""Exact draws from the Polya-Gamma law PG(1, z), many at once.

PG(1, z) makes logistic likelihoods Gaussian: exp(x eta) / (1 + exp(eta)) is the mean of
exp((x - 1/2) eta - omega eta^2 / 2) / 2 over omega ~ PG(1, 0), and omega | eta ~ PG(1, eta).

PG(1, z) = J / 4 with J of density proportional to exp(-(z/2)^2 x / 2) f(x), where f is that of
Jacobi's J*(1): f(x) = sum_n (-1)^n a_n(x), a_n falling. Candidates come from the envelope a_0,
Levy's law tilted, or the inverse Gaussian, left of 0.64 and an exponential right of it, and are
accepted with probability f / a_0 = 1 - 3 q + 5 q^3 - 7 q^6 + ..., q = exp(-4 / x) on the left and
exp(-pi^2 x) on the right. As q < 0.002 four terms are exact beyond double precision.

Source: Devroye (2009), On exact simulation algorithms for some distributions related to Jacobi
theta functions; Polson, Scott & Windle (2013), Bayesian inference for logistic models using
Polya-Gamma latent variables, section 4.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from jaxmf.types import Array, Key

_CUT = 0.64
_SHARE_AGAIN = 4  # unfinished draws are gathered in buffers of this share of all


def polya_gamma(key: Key, z: Array) -> Array:
    """Independent draws from PG(1, z).

    Args:
      key: typed PRNG key.
      z: float, any shape, any sign.

    Returns:
      Positive floats of that shape.
    """
    half = jnp.abs(z).ravel() / 2
    first_key, again_key = jax.random.split(key)
    draws, done = _attempt(first_key, half)
    if half.size <= _SHARE_AGAIN:
        return _finish(again_key, half, draws, done).reshape(z.shape) / 4
    size = -(-half.size // _SHARE_AGAIN)

    def unfinished(carry):
        _, done, _ = carry
        return ~jnp.all(done)

    # the first attempt succeeds for most; what is left is packed, so that few are drawn in vain
    def again(carry):
        draws, done, step = carry
        places = jnp.nonzero(~done, size=size, fill_value=half.size)[0]
        new, accepted = _attempt(
            jax.random.fold_in(again_key, step), half.at[places].get(mode="fill", fill_value=0)
        )
        kept = jnp.where(accepted, places, half.size)
        return draws.at[kept].set(new, mode="drop"), done.at[kept].set(True, mode="drop"), step + 1

    draws, _, _ = jax.lax.while_loop(unfinished, again, (draws, done, 0))
    return draws.reshape(z.shape) / 4


def _finish(key: Key, half: Array, draws: Array, done: Array) -> Array:
    def again(carry):
        draws, done, step = carry
        new, accepted = _attempt(jax.random.fold_in(key, step), half)
        return jnp.where(done, draws, new), done | accepted, step + 1

    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), again, (draws, done, 0))[0]


def _attempt(key: Key, half: Array) -> tuple[Array, Array]:
    """A candidate for each of J*(1, half) (T,), and whether it is accepted."""
    uniform = jax.random.uniform(key, (4, *half.shape), half.dtype)
    normal = jax.random.normal(jax.random.fold_in(key, 1), half.shape, half.dtype)
    rate = jnp.pi**2 / 8 + half**2 / 2
    is_wide = half * _CUT < 1  # the inverse Gaussian would mostly fall right of the cut
    levy_tail = ndtr(jnp.asarray(-1 / jnp.sqrt(_CUT), half.dtype))
    log_left = jnp.where(is_wide, jnp.log(4 * levy_tail), jnp.log(2.0) - half)
    log_right = jnp.log(jnp.pi / 2) - jnp.log(rate) - rate * _CUT
    from_left = uniform[0] < jax.nn.sigmoid(log_left - log_right)

    right = _CUT - jnp.log1p(-uniform[1]) / rate
    levy = ndtri((1 - uniform[1]) * levy_tail) ** -2
    inverse_gaussian = _inverse_gaussian(uniform[2], normal, 1 / jnp.where(is_wide, 1, half))
    left = jnp.where(is_wide, jnp.minimum(levy, _CUT), inverse_gaussian)
    # Levy's law is tilted by rejection, the inverse Gaussian is tilted but may be too large
    kept = jnp.where(is_wide, uniform[2] < jnp.exp(-(half**2) * left / 2), inverse_gaussian < _CUT)
    x = jnp.where(from_left, left, right)
    q = jnp.exp(jnp.where(from_left, -4 / left, -(jnp.pi**2) * right))
    accepted = (uniform[3] < 1 - 3 * q + 5 * q**3 - 7 * q**6) & (~from_left | kept)
    return x, accepted


def _inverse_gaussian(uniform: Array, normal: Array, mean: Array) -> Array:
    """Inverse Gaussian draws of shape 1 (Michael, Schucany & Haas 1976), without cancellation."""
    w = mean * normal**2 / 2
    smaller = mean / (1 + w + jnp.sqrt(w * (w + 2)))
    return jnp.where(uniform * (mean + smaller) < mean, smaller, mean**2 / smaller)
