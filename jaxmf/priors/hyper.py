"""Hyperparameters: positive numbers and probabilities, fixed or with a numpyro prior.

Whether one is fixed is known when a program is traced. The updates are in `samplers/hyper.py`.
"""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import check_numbers
from jaxmf.data.names import series_as_mapping
from jaxmf.types import Array, PyTree

if TYPE_CHECKING:
    import numpyro.distributions as dist

    from jaxmf.data import MatrixContainer

Hyperparameter: TypeAlias = Any  # a number, or a numpyro.distributions.Distribution

_NUM_MEDIAN_DRAWS = 1_001


def is_fixed(prior: Hyperparameter) -> bool:
    """Whether a hyperparameter is a number, rather than a distribution with `log_prob`."""
    return not hasattr(prior, "log_prob")


def initial_value(prior: Hyperparameter) -> Array:
    """The number itself; of a distribution its mean, or its median where the mean cannot be used.

    That is where the mean is infinite or has no finite density, and where it lies so far in a tail
    that its density is below a tenth of the median's: of LogNormal(0, 10) the mean is 5e21. The
    densities compared are those of log v for positive numbers, of the log odds between bounds. A
    prior with an attribute `start` has that instead.

    Returns () float, or one for each of a batch of priors.
    """
    dtype = jnp.result_type(float)
    if is_fixed(prior):
        return jnp.asarray(prior, dtype)
    if (start := getattr(prior, "start", None)) is not None:
        return jnp.asarray(start, dtype)
    # arrays for parameters: the mean of InverseGamma(1.0, 1.0) would divide a float by zero
    prior = jax.tree.map(jnp.asarray, prior)
    median = jnp.asarray(_median(prior), dtype)
    try:
        mean = jnp.asarray(prior.mean, dtype)
    except NotImplementedError:
        return median
    inside = [jnp.isfinite(value) & prior.support(value) for value in (mean, median)]
    values = jnp.stack([jnp.where(inside[0], mean, median), jnp.where(inside[1], median, mean)])
    mean_density, median_density = _unbounded_log_density(prior, values)
    in_tail = jnp.isfinite(median_density) & (mean_density < median_density - math.log(10))
    return jnp.where(inside[0] & jnp.isfinite(mean_density) & ~in_tail, mean, median)


def spread(prior: Hyperparameter) -> Array:
    """Standard deviation of a prior; 0 of a number, and where it is infinite or has no formula."""
    if is_fixed(prior):
        return jnp.zeros(())
    try:
        # arrays for parameters: the variance of InverseGamma(2.0, 1.0) would divide a float by zero
        sd = jnp.sqrt(jnp.asarray(jax.tree.map(jnp.asarray, prior).variance))
    except NotImplementedError:
        return jnp.zeros(())
    return jnp.where(jnp.isfinite(sd), sd, 0)


def _median(prior: Hyperparameter) -> Array:
    """About the median of a prior; the mean of families for which `initial_value` takes that.

    By a formula where there is one: draws of a Gamma distribution alone take a second to compile.
    """
    import numpyro.distributions as dist

    family = type(prior)
    if family is dist.ExpandedDistribution:
        return jnp.broadcast_to(_median(prior.base_dist), prior.batch_shape)
    if family in (dist.Gamma, dist.Exponential, dist.Beta):
        # of the density on the scale without bounds the mean is the mode: it can only be rounded
        # to a bound
        limits = jnp.finfo(jnp.result_type(float))
        largest = 1 - limits.eps if family is dist.Beta else limits.max
        return jnp.clip(prior.mean, limits.tiny, largest)
    if family is dist.InverseGamma:
        # the mode on the scale without bounds: of small shapes the median is beyond all floats
        return prior.rate / prior.concentration
    if family is dist.LogUniform:
        return jnp.sqrt(prior.low) * jnp.sqrt(prior.high)
    if family in (dist.HalfCauchy, dist.HalfNormal, dist.LogNormal, dist.Normal, dist.Uniform):
        return prior.icdf(0.5)
    # The quantile function of several distributions needs a further package: use draws instead.
    draws = prior.sample(jax.random.key(0), (_NUM_MEDIAN_DRAWS,))
    return jnp.median(draws, axis=0)


def initial_value_near(prior: Hyperparameter, guess: Array) -> Array:
    """The number itself; of a distribution a guess, or `initial_value` outside its support.

    Args:
        prior: a number or a numpyro distribution over positive numbers.
        guess: () float, from the data; not positive where the data know nothing.
    Returns:
        () float, of a distribution inside its support.
    """
    value = initial_value(prior)
    if is_fixed(prior):
        return value
    return jnp.where((guess > 0) & prior.support(guess), guess, value)


def _unbounded_log_density(prior: dist.Distribution, values: Array) -> Array:
    """Log density of values on numpyro's scale without bounds for the support of the prior.

    Not finite for values outside the support.
    """
    from numpyro.distributions import biject_to

    try:
        bijection = biject_to(prior.support)
    except NotImplementedError:
        return log_prior(prior, values)
    unbounded = bijection.inv(values)
    return log_prior(prior, values) + bijection.log_abs_det_jacobian(unbounded, values)


def sample_prior(key: Array, prior: Hyperparameter) -> Array:
    """A draw from the prior; the number itself if it is fixed.

    Returns () float.
    """
    value = prior if is_fixed(prior) else prior.sample(key)
    return jnp.asarray(value, jnp.result_type(float))


def log_prior(prior: Hyperparameter, value: Array) -> Array:
    """Log prior density of a value; zero if the hyperparameter is fixed.

    Args: value () float, or a number for each of a batch of priors.
    Returns float of the shape of the value, -inf outside the support.
    """
    dtype = jnp.result_type(float)
    if is_fixed(prior):
        return jnp.zeros((), dtype)
    # Some distributions return finite densities outside their support.
    inside = prior.support(value)
    return jnp.where(inside, _log_density(prior, value), -jnp.inf).astype(dtype)


def _log_density(prior: dist.Distribution, value: Array) -> Array:
    """`prior.log_prob`, of an inverse Gamma distribution by its own formula.

    numpyro takes the logarithm of the squared value: of a variance the fourth power of the scale
    of the data, which is no 32-bit float for scales above 4e9 or below 2e-10.
    """
    import numpyro.distributions as dist

    if type(prior) is not dist.InverseGamma:
        return prior.log_prob(value)
    shape, rate = jnp.asarray(prior.concentration), jnp.asarray(prior.rate)
    constant = shape * jnp.log(rate) - jax.scipy.special.gammaln(shape)
    return constant - (shape + 1) * jnp.log(value) - rate / value


def validate(name: str, prior: Hyperparameter) -> None:
    """Refuses what cannot be a positive hyperparameter. Values inside jit are not looked at.

    Raises TypeError: if it is neither a number nor a numpyro distribution. ValueError: if it is not
    positive and finite, or a distribution over anything else than one positive real number.
    """
    leaves = jax.tree.leaves(prior)
    if any(is_placeholder(leaf) for leaf in leaves):
        return  # the model is being rebuilt inside a transformation
    if is_fixed(prior):
        _validate_positive(name, prior)
    else:
        _validate_distribution(name, prior)


def validate_probability(
    name: str, prior: Hyperparameter, *, zero: bool = False, one: bool = False
) -> None:
    """Refuses what cannot be a probability. Values inside jit are not looked at.

    Args: zero, one: whether the numbers 0 and 1 themselves are allowed.

    Raises:
        TypeError: if it is neither a number nor a numpyro distribution.
        ValueError: if it is no number between 0 and 1, or a distribution over anything else than
            one real number between 0 and 1.
    """
    if any(is_placeholder(leaf) for leaf in jax.tree.leaves(prior)):
        return  # the model is being rebuilt inside a transformation
    if not is_fixed(prior):
        _validate_real(name, prior)
        if any(bool(prior.support(value)) for value in (-1e6, -0.5, -1e-6, 1 + 1e-6, 1.5, 1e6)):
            raise ValueError(
                f"the prior of {name} must be over numbers between 0 and 1, "
                f"{type(prior).__name__} allows others; try Beta or Uniform(0, 1)"
            )
        return
    value = _as_real(name, prior, "a probability")
    words = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    if not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        raise ValueError(f"{name} must be a probability in {words}, got {value}")


def validate_number(name: str, prior: Hyperparameter) -> None:
    """Refuses what cannot be a hyperparameter of any sign. Values inside jit are not looked at.

    Raises TypeError: if it is neither a number nor a numpyro distribution. ValueError: if it is not
    finite, or a distribution over anything else than one real number.
    """
    if any(is_placeholder(leaf) for leaf in jax.tree.leaves(prior)):
        return  # the model is being rebuilt inside a transformation
    if not is_fixed(prior):
        _validate_real(name, prior)
    elif not math.isfinite(value := _as_real(name, prior, "a number")):
        raise ValueError(f"{name} must be finite, got {value}")


def validate_concentrations(
    value: Hyperparameter, size: int | None, name: str = "concentration"
) -> Hyperparameter:
    """One concentration for all or one for each, as it is kept.

    Args: value: a number, `size` numbers, a numpyro distribution of one number for all, or a batch
    of `size` of them; size: None where it is not known yet.
    Raises TypeError, ValueError: not positive, or not as many as asked for.
    """
    if is_placeholder(value) or any(is_placeholder(leaf) for leaf in jax.tree.leaves(value)):
        return value
    if not is_fixed(value):
        shape = getattr(value, "batch_shape", ())
        is_batch = len(shape) == 1 and size in (None, *shape)
        _validate_distribution(name, value, shape if is_batch else ())
        return value
    if not isinstance(value, list | tuple) and np.ndim(value) == 0:
        validate(name, value)
        return value
    array = np.asarray(value) if hasattr(value, "shape") else check_numbers(name, value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be positive numbers, got an array of {array.dtype}")
    array = array.astype(float)
    if array.ndim != 1 or not array.size or size not in (None, array.size):
        raise ValueError(
            f"{name} must be one number or "
            f"{f'{size} of them' if size else 'one for each'}, got shape {array.shape}"
        )
    if not np.all(np.isfinite(array) & (array > 0)):
        first = int(np.argmin(np.isfinite(array) & (array > 0)))
        raise ValueError(
            f"{name} must be positive and finite, got {array[first]} at position {first}"
        )
    return jnp.asarray(array, jnp.result_type(float))


def noise_prior(unit: float, least: float = 0.01) -> dist.Distribution:
    """Prior of a noise scale: even on the log scale, `least` units to two units.

    Args: unit: root mean square of the data about its offset.
    """
    import numpyro.distributions as dist

    return dist.LogUniform(least * unit, 2.0 * unit)


def effect_prior(unit: float) -> dist.Distribution:
    """Prior of the scale of features or weights: InverseGamma(2, 2 units).

    Rarely below a quarter of a unit, where rows would take very many small features; a long upper
    tail.

    Args: unit: root mean square of the data about its offset.
    """
    import numpyro.distributions as dist

    return dist.InverseGamma(2.0, 2.0 * unit)


def base_rate_prior(mean: float) -> dist.Distribution:
    """Prior of the mean of a count without features: exponential with the mean of the data."""
    import numpyro.distributions as dist

    return dist.Gamma(1.0, 1.0 / (mean or 1.0))


def validate_columns(name: str, value: object, *, is_positive: bool = False) -> None:
    """Refuses what is no number, and no vector of numbers, one a column."""
    if value is None or is_placeholder(value):
        return
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        array = None
    if array is None or isinstance(value, (bool, str)):
        raise TypeError(f"{name} must be a number or (D,) one a column, got {value!r}")
    if array.ndim > 1 or not array.size:
        raise ValueError(f"{name} must be a number or (D,) one a column, got shape {array.shape}")
    array = np.atleast_1d(array)
    is_right = np.isfinite(array) & ((array > 0) | (not is_positive))
    if not is_right.all():
        first = int(np.argmin(is_right))
        needed = "positive and finite" if is_positive else "finite"
        hint = ". A column of equal cells has no unit: give 1" if array[first] == 0 else ""
        raise ValueError(f"{name} must be {needed}, got {array[first]} at position {first}{hint}")


def by_column(name: str, value: Any, data: MatrixContainer) -> np.ndarray | float | None:
    """A number as it is, or one a column in the order of the data: those of a Series by id.

    Raises ValueError: other than one number a column, with both numbers; a Series that has an id
    twice or lacks one of the data.
    """
    if hasattr(value, "to_dict") and data.column_names is not None:
        found: Any = series_as_mapping(name, value)
        ids = data.column_names.tolist()
        lacking = next((label for label in ids if label not in found), None)
        if lacking is not None:
            raise ValueError(
                f"{name}: the index of this Series lacks {lacking!r}, a column of the data; give "
                "one number a column, or pass an array in the order of the data"
            )
        return np.array([found[label] for label in ids], float)
    if np.ndim(value) and np.shape(value) != (data.num_columns,):
        raise ValueError(
            f"{name} has {np.shape(value)[0]} numbers, data has {data.num_columns} columns; one a "
            "column is needed"
        )
    return np.asarray(value) if hasattr(value, "to_dict") else value


def is_placeholder(leaf: PyTree) -> bool:
    """Whether jax put something else in place of a number: a tracer, its shape, its sharding."""
    if isinstance(leaf, jax.core.Tracer) or type(leaf) is object:
        return True
    is_from_jax = type(leaf).__module__.partition(".")[0] in ("jax", "jaxlib")
    return is_from_jax and not isinstance(leaf, jax.Array)


def _validate_positive(name: str, value: object) -> None:
    value = _as_real(name, value, "a positive number")
    if math.isnan(value) or math.isinf(value) or value <= 0:
        raise ValueError(f"{name} must be positive and finite, got {value}")


def _as_real(name: str, value: Hyperparameter, what: str) -> float:
    """The number behind a value; `what` it must be, for the message."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
    if isinstance(value, bool) or not (is_array or isinstance(value, numbers.Real)):
        raise TypeError(
            f"{name} must be {what} or a numpyro distribution, "
            f"got {value!r} of type {type(value).__name__}"
        )
    if is_array and value.shape != ():
        raise ValueError(f"{name} must be one number, got an array of shape {value.shape}")
    if is_array and not np.issubdtype(value.dtype, np.number):
        raise TypeError(f"{name} must be {what}, got an array of {value.dtype}")
    return float(value)


def _validate_distribution(
    name: str, prior: dist.Distribution, shape: tuple[int, ...] = ()
) -> None:
    _validate_real(name, prior, shape)
    if any(bool(np.any(prior.support(value))) for value in (-1e-6, -0.5, -1.0, -1e6)):
        raise ValueError(
            f"the prior of {name} must be over positive numbers, {type(prior).__name__} allows "
            "negative ones; try Gamma, LogNormal, InverseGamma or HalfNormal"
        )


def _validate_real(name: str, prior: dist.Distribution, shape: tuple[int, ...] = ()) -> None:
    """A distribution over one real number, or a batch of such, with finite parameters."""
    label = type(prior).__name__
    if not hasattr(prior, "support") or not hasattr(prior, "sample"):
        raise TypeError(f"{name} must be a number or a numpyro distribution, got {label}")
    if prior.batch_shape != shape or prior.event_shape != ():
        raise ValueError(
            f"the prior of {name} must be over one number, got {label} with batch shape "
            f"{prior.batch_shape} and event shape {prior.event_shape}"
        )
    if prior.is_discrete:
        raise ValueError(f"the prior of {name} must be continuous, {label} is discrete")
    parameters = jax.tree.leaves(prior)
    if not all(np.all(np.isfinite(np.asarray(leaf, float))) for leaf in parameters):
        raise ValueError(f"the prior of {name}, {label}, has a parameter that is not finite")
