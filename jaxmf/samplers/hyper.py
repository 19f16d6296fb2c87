"""Gibbs updates of hyperparameters.

A fixed value is left alone by all of them, so that models call them without asking; whether it
is fixed is known when the program is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import loggamma, loggammas
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, harmonic
from jaxmf.priors.hyper import Hyperparameter, is_fixed, log_prior
from jaxmf.samplers.slice import slice_sample
from jaxmf.types import Array

NUM_WIDTH_DRAWS = 64  # by which the first width of a slice is chosen


def update_rate(
    key: Array, prior: Hyperparameter, value: Array, *, power: Array, total: Array
) -> Array:
    """Gibbs update of a rate v whose likelihood is v^power exp(-v total), or of several.

    v | . ~ Gamma(a + power, rate b + total) under a Gamma(a, rate b) prior; a slice update under
    any other prior.

    Args: prior: a number, or a numpyro distribution with a batch of the shape of the value; value
    () or (K,) float, the present value; power, total () or (K,) float, not negative.
    Returns float of the shape of the value, unchanged if the rate is fixed.
    """
    if is_fixed(prior):
        return value
    import numpyro.distributions as dist

    if isinstance(prior, dist.ExpandedDistribution):
        prior = prior.base_dist
    if isinstance(prior, dist.Gamma):
        shape = jnp.broadcast_to(prior.concentration + power, value.shape).astype(value.dtype)
        log_draw = loggammas(key, shape) if value.ndim else loggamma(key, shape)
        # a vague prior alone would round to zero, where no density is finite
        draw = (jnp.exp(log_draw) / (prior.rate + total)).astype(value.dtype)
        return jnp.maximum(draw, jnp.finfo(value.dtype).tiny)
    return update_scale(key, prior, value, lambda rate: power * jnp.log(rate) - rate * total)


def update_scale(
    key: Array, prior: Hyperparameter, value: Array, log_density_fn: Callable[[Array], Array]
) -> Array:
    """Slice update of a positive hyperparameter, on the log scale.

    Leaves the density proportional to prior(v) exp(log_density_fn(v)) invariant.

    Args:
        value: () float, the present value; or several, independent of each other.
        log_density_fn: v -> log likelihood of v, of the same shape; the prior is added here.
    Returns:
        float of the shape of the value, unchanged if the hyperparameter is fixed.
    """
    if is_fixed(prior):
        return value

    start = jnp.log(value)

    def log_density(log_value: Array) -> Array:
        # exp(log(v)) may lie beyond a bound of the prior where v does not
        scale = jnp.where(log_value == start, value, jnp.exp(log_value))
        return log_density_fn(scale) + log_prior(prior, scale) + log_value

    moved = jnp.exp(slice_sample(key, log_density, start, width=1.0)).astype(value.dtype)
    return jnp.where(prior.support(moved), moved, value)


def update_scales_in_turn(
    key: Array,
    priors: tuple[Hyperparameter, ...],
    values: tuple[Array, ...],
    log_density_fn: Callable[[Array, Array], Array],
) -> tuple[Array, ...]:
    """`update_scale` of several hyperparameters, one after the other, the i-th by fold_in(key, i).

    In one loop: what a likelihood makes of its scales is compiled once, not once a scale.

    Args:
        priors: S of them; values: S numbers, () float of one dtype, the present ones.
        log_density_fn: from S values to S values of which one may differ, (S,) float each, the
            change of the log likelihood; the priors are added here.
    Returns:
        S numbers, () float; fixed ones unchanged.
    """
    free = [index for index, prior in enumerate(priors) if not is_fixed(prior)]
    if not free:
        return values
    indices = jnp.asarray(free)

    def turn(which: Array, values: Array) -> Array:
        def chosen(function: Callable[[Hyperparameter], Array]) -> Array:
            return jnp.stack([function(priors[index]) for index in free])[which]

        here = jnp.arange(len(priors)) == indices[which]
        value = values[indices[which]]
        start = jnp.log(value)

        def log_density(log_value: Array) -> Array:
            # see `update_scale`
            scale = jnp.where(log_value == start, value, jnp.exp(log_value))
            change = log_density_fn(values, jnp.where(here, scale, values))
            return change + chosen(lambda prior: log_prior(prior, scale)) + log_value

        turn_key = jax.random.fold_in(key, indices[which])
        moved = jnp.exp(slice_sample(turn_key, log_density, start, width=1.0)).astype(value.dtype)
        return jnp.where(here & chosen(lambda prior: prior.support(moved)), moved, values)

    return tuple(jax.lax.fori_loop(0, len(free), turn, jnp.stack(values)))


def update_probability(
    key: Array, prior: Hyperparameter, value: Array, log_density_fn: Callable[[Array], Array]
) -> Array:
    """Slice update of a probability, on the scale of its log odds.

    Leaves the density proportional to prior(v) exp(log_density_fn(v)) invariant.

    Args:
        prior: a number or a numpyro distribution over numbers between 0 and 1.
        log_density_fn: v () -> () log likelihood of v; the prior is added here.
    Returns:
        () float, unchanged if the hyperparameter is fixed.
    """
    if is_fixed(prior):
        return value
    # At the ends of what floats can tell from 0 and 1 the log odds are not finite.
    tiny, eps = jnp.finfo(value.dtype).tiny, jnp.finfo(value.dtype).eps
    clipped = jnp.clip(value, tiny, 1 - eps)
    start = jax.scipy.special.logit(clipped)

    def log_density(log_odds: Array) -> Array:
        # see `update_scale`
        probability = jnp.where(log_odds == start, clipped, jax.nn.sigmoid(log_odds))
        log_jacobian = -jax.nn.softplus(log_odds) - jax.nn.softplus(-log_odds)
        inside = (probability >= tiny) & (probability <= 1 - eps)
        density = log_density_fn(probability) + log_prior(prior, probability) + log_jacobian
        return jnp.where(inside, density, -jnp.inf)

    moved = jax.nn.sigmoid(slice_sample(key, log_density, start, width=2.0)).astype(value.dtype)
    return jnp.where(prior.support(moved), moved, value)


def update_parameter(
    key: Array, prior: Hyperparameter, value: Array, log_density_fn: Callable[[Array], Array]
) -> Array:
    """Slice update of a real hyperparameter under a prior with any support, unconstrained.

    Leaves the density proportional to prior(v) exp(log_density_fn(v)) invariant. The value is moved
    on the scale u with v = T(u), T the bijection of numpyro for the support of the prior: log v of
    a positive one, log odds of one between bounds, v itself of any number.

    Returns () float, unchanged if the hyperparameter is fixed.
    """
    if is_fixed(prior):
        return value
    from numpyro.distributions import biject_to

    bijection = biject_to(prior.support)
    draws = prior.sample(jax.random.key(0), (NUM_WIDTH_DRAWS,))
    width = slice_widths(bijection.inv(draws)).astype(value.dtype)
    start = bijection.inv(value) / width

    def log_density(u: Array) -> Array:
        # T(T^-1(v)) may lie beyond a bound of the prior where v does not
        moved = jnp.where(u == start, value, bijection(u * width)).astype(value.dtype)
        log_jacobian = bijection.log_abs_det_jacobian(u * width, moved)
        return log_density_fn(moved) + log_prior(prior, moved) + log_jacobian

    u = slice_sample(key, log_density, start)
    moved = bijection(u * width).astype(value.dtype)
    return jnp.where(jnp.isfinite(u) & prior.support(moved), moved, value)


def slice_widths(draws: Array) -> Array:
    """Spreads (...) of unconstrained draws (M, ...) from a prior, the first widths of slices.

    One where the draws have no spread.
    """
    spread = jnp.std(draws, axis=0)
    return jnp.where(jnp.isfinite(spread) & (spread > 0), spread, 1)


def update_bernoulli_probability(
    key: Array, prior: Hyperparameter, value: Array, num_ones: Array, num_zeros: Array
) -> Array:
    """Gibbs update of the probability of independent zeros and ones.

    p | ones, zeros ~ Beta(a + ones, b + zeros) under a Beta(a, b) prior; a slice update under any
    other prior.

    Args: prior: a number or a numpyro distribution over numbers between 0 and 1; value () float,
    the present value.
    Returns () float, unchanged if the probability is fixed.
    """
    if is_fixed(prior):
        return value
    import numpyro.distributions as dist

    if isinstance(prior, dist.Beta):
        shapes = (prior.concentration1 + num_ones, prior.concentration0 + num_zeros)
        first, second = jax.vmap(loggamma)(
            jax.random.split(key), jnp.asarray(jnp.stack(shapes), value.dtype)
        )
        return jax.nn.sigmoid(first - second).astype(value.dtype)
    return update_probability(
        key, prior, value, lambda p: num_ones * jnp.log(p) + num_zeros * jnp.log1p(-p)
    )


def update_feature_prior(
    key: Array,
    features: IndianBuffet | BetaBernoulli,
    *,
    alpha_prior: Hyperparameter,
    concentration_prior: Hyperparameter,
    counts: Array,
    num_rows: Array | int,
) -> tuple[Array, Array]:
    """Updates the mass and then the concentration of a prior of features, given the counts.

    Args: counts (K,) counts of all N rows.
    Returns alpha () and concentration () float.
    """
    alpha_key, concentration_key = jax.random.split(key)
    alpha = jnp.asarray(features.alpha, jnp.result_type(float))
    concentration = jnp.asarray(features.concentration, jnp.result_type(float))

    def log_density(alpha: Array, concentration: Array) -> Array:
        prior = replace(features, alpha=alpha, concentration=concentration)
        return prior.log_prob_labelled(counts, num_rows)

    if isinstance(features, BetaBernoulli):
        # Not conjugate: features that no row has count as well.
        alpha = update_scale(
            alpha_key, alpha_prior, alpha, lambda value: log_density(value, concentration)
        )
    else:
        # alpha | Z ~ Gamma(a + K, rate b + sum_i beta / (beta + i - 1)), K features some row has
        num_features = jnp.sum(features.exists(counts))
        total = harmonic(num_rows, concentration)
        alpha = update_rate(alpha_key, alpha_prior, alpha, power=num_features, total=total)
    concentration = update_scale(
        concentration_key,
        concentration_prior,
        concentration,
        lambda value: log_density(alpha, value),
    )
    return alpha, concentration
