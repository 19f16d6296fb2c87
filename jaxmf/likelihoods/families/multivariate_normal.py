"""Real vectors: one a token, with a mean and a covariance matrix for every group."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import multigammaln

from jaxmf._kernels import tables
from jaxmf._kernels.special import log_rising, loggammas
from jaxmf._kernels.tables import Lanes
from jaxmf.arguments import assign, check_count, check_number
from jaxmf.devices import default_platform
from jaxmf.likelihoods.families.family import Family, Hyperparameters, check_positive_fields
from jaxmf.likelihoods.families.normal import (
    NormalInverseGamma,
    Normals,
    location_and_variance,
)
from jaxmf.priors import hyper
from jaxmf.types import STATIC, Array, Key


class Wisharts(NamedTuple):
    """The posterior of mean and covariance of every group."""

    number: Array  # (G,) int32, values of the group
    location: Array  # (G, D) float, the mean's
    scale: Array  # (G, D, D) float, that of the inverse-Wishart distribution of the covariance


class _VectorCache(NamedTuple):
    num_values: Array
    location: Array
    inverse: Array  # of the scale
    log_determinant: Array  # of the scale
    prior: Array  # (2,): weight, degrees
    empty: tuple[Array, ...]  # the four above of a group without values


class NormalParameters(NamedTuple):
    """Means (G, D) and lower Cholesky factors (G, D, D) of the covariances."""

    mean: Array
    factor: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalInverseWishart(Family):
    """Real vectors of length D, with a mean and a covariance matrix for every group.

    S_g ~ InverseWishart(degrees, scale), mu_g ~ N(location, S_g / weight), x ~ N(mu_g, S_g). With
    both summed out the next value of a group has a multivariate t distribution.

    Location, weight and scale that are left out a run chooses from the vectors, see `from_data`.
    Without data, as in `Network.simulate`, they are 0, 1 and 1.

    Args:
        size: D; by default the length of the vectors.
        location: prior mean of the means: a number for all entries, or D of them.
        weight: how many values the prior mean counts as; positive.
        degrees: of the inverse-Wishart distribution, above D - 1; by default D + 2, with which the
            prior mean of the covariance is `scale`.
        scale: its matrix: a number for that multiple of the identity, or (D, D), positive definite.
    Raises:
        TypeError, ValueError: `weight`, `degrees` or `scale` is not positive (definite), or the
            length of `location` or `scale` is not `size`.
    Example:
        >>> NormalInverseWishart(2).degrees
        4.0
    """

    size: Any = field(default=None, metadata=STATIC)  # int once it is known
    location: Any = None
    weight: float = None  # type: ignore[assignment]  # left open
    degrees: Any = None
    scale: Any = None

    standard_settings = {"location": 0.0, "weight": 1.0, "scale": 1.0}  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.size is None:
            self._check_single_settings()
            return  # the rest is checked when it is known
        check_count("size", self.size)
        if self.degrees is None:
            assign(self, degrees=float(self.size + 2))
        leaves = jax.tree.leaves((self.location, self.weight, self.degrees, self.scale))
        hidden = [leaf for leaf in leaves if hyper.is_placeholder(leaf)]
        if not hidden:
            self._check_settings()
        elif not all(isinstance(leaf, jax.core.Tracer) for leaf in hidden):
            return  # jax is rebuilding the pytree
        dtype = jnp.result_type(float)
        if self.scale is not None:
            scale = jnp.asarray(self.scale, dtype)
            scale = scale if scale.ndim else scale * jnp.eye(self.size, dtype=dtype)
            assign(self, scale=scale)
        if self.location is not None:
            wide = jnp.broadcast_to(jnp.asarray(self.location, dtype), (self.size,))
            assign(self, location=wide)

    def _check_single_settings(self) -> None:
        """Checks settings as far as possible before the length of the vectors is known."""
        if not hyper.is_placeholder(self.weight):
            check_positive_fields(self, ("weight",))
        if self.degrees is not None and not hyper.is_placeholder(self.degrees):
            check_positive_fields(self, ("degrees",))
        for name in ("location", "scale"):
            value = getattr(self, name)
            leaves = jax.tree.leaves(value)
            if value is None or any(hyper.is_placeholder(leaf) for leaf in leaves):
                continue
            if np.ndim(value) > 0 and np.size(value) > 0:
                continue
            if np.ndim(value) > 0:
                raise ValueError(f"{name} must be a number or one for each column, got {value!r}")
            least = {"above": 0.0} if name == "scale" else {}
            check_number(name, value.item() if hasattr(value, "item") else value, **least)

    def _check_settings(self) -> None:
        check_positive_fields(self, ("weight", "degrees"))
        if self.degrees <= self.size - 1:
            raise ValueError(
                f"degrees must be above size - 1 = {self.size - 1}, got {self.degrees}"
            )
        stated: Any = self.standard_settings | {
            name: value
            for name, value in (("location", self.location), ("scale", self.scale))
            if value is not None
        }
        location, scale = (np.asarray(stated[name], float) for name in ("location", "scale"))
        if location.ndim and location.shape != (self.size,):
            raise ValueError(f"location must be a number or {self.size}, got {location.shape}")
        scale = scale if scale.ndim else scale * np.eye(self.size)
        if scale.shape != (self.size, self.size) or not np.allclose(scale, scale.T):
            raise ValueError(f"scale must be a number or a symmetric matrix, got {scale.shape}")
        if np.min(np.linalg.eigvalsh(scale)) <= 0:
            raise ValueError("scale must be positive definite")

    @classmethod
    def from_data(cls, values: Array, *, num_groups: float = 10) -> NormalInverseWishart:
        """The family on the scale of some data, for this many groups.

        Location and scale follow columns wherever they lie: location is their mean, scale the
        diagonal matrix of their variances over num_groups^(2 / D), weight .01, degrees D + 2. A
        column of one value alone has its square, or 1 for zeros, for a variance.

        Args:
            values: (N, D) float.
            num_groups: how many groups share the data's volume.

        Source: Fraley & Raftery (2007), Bayesian regularization for normal mixture estimation and
        model-based clustering, section 2.
        Example:
            >>> NormalInverseWishart.from_data(jnp.array([[9.0, 5.0], [11.0, 5.0]])).location
            Array([10.,  5.], dtype=float32)
        """
        return cls(values.shape[1]).known_from(values, num_groups=num_groups)

    def settings_from(self, values: Array, *, num_groups: float) -> dict[str, object]:
        location, variance = location_and_variance(values, num_groups)
        scale = jnp.diag(variance)
        if self.degrees is not None:  # other than D + 2 they keep the mean of 1 / covariance
            scale = scale * (self.degrees / (variance.size + 2))
        return {"location": location, "weight": 0.01, "scale": scale}

    def check_distances(self, values: object, name: str) -> None:
        """Refuses vectors so far from the location that sums of their squares hide the scale.

        Raises:
            ValueError: the first vector that lies too far away.
        """
        if self.size == 1:
            return  # no other entry could be lost beside a large one
        prior = self.standard()
        factor = np.linalg.cholesky(np.asarray(prior.scale, float))
        deviation = np.asarray(values, float) - np.asarray(prior.location, float)
        distance = np.sqrt((np.linalg.solve(factor, deviation.T) ** 2).sum(axis=0))
        most = 1 / np.sqrt(float(jnp.finfo(jnp.result_type(float)).eps))
        if np.any(distance > most):
            first = int(np.argmax(distance > most))
            raise ValueError(
                f"{name}: row {first} lies {distance[first]:.3g} times the family's scale away "
                f"from its location; beyond {most:.3g} the covariance is lost in rounding. Leave "
                "family out, which takes both from the data, or give NormalInverseWishart a "
                "location and a scale (of variances) such as the data have"
            )

    def with_size(self, size: int) -> NormalInverseWishart:
        return self if self.size is not None else dataclasses.replace(self, size=size)

    def check(self, values: object, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.ndim != 2 or array.shape[1] != self.size:
            raise ValueError(
                f"{name}: NormalInverseWishart({self.size}) takes vectors of length {self.size}, "
                f"got values of shape {array.shape}"
            )
        return array

    def statistics(self, groups: Array, values: Array, num_groups: int) -> Wisharts:
        known: Any = self.standard()
        shifted = values.astype(jnp.result_type(float)) - known.location
        num_values = jnp.zeros((num_groups,), jnp.int32).at[groups].add(1)
        total = jnp.zeros((num_groups, self.size), shifted.dtype).at[groups].add(shifted)
        mean = total / jnp.maximum(num_values, 1)[:, None]
        deviation = shifted - mean[groups]
        squares = deviation[:, :, None] * deviation[:, None, :]
        spread = (
            jnp.zeros((num_groups, self.size, self.size), shifted.dtype).at[groups].add(squares)
        )
        share = (known.weight * num_values / (known.weight + num_values))[:, None, None]
        return Wisharts(
            number=num_values,
            location=known.location + mean * (num_values / (known.weight + num_values))[:, None],
            scale=known.scale + spread + share * mean[:, :, None] * mean[:, None, :],
        )

    def _no_values(self) -> Array:
        return jnp.zeros((0, self.size), jnp.result_type(float))

    def begin(self, statistics: Wisharts, hyperparameters: Hyperparameters) -> _VectorCache:
        known: Any = self.standard()
        dtype = statistics.scale.dtype
        prior = jnp.stack([jnp.asarray(known.weight), jnp.asarray(self.degrees)])
        scale = jnp.asarray(known.scale, dtype)
        location = jnp.asarray(known.location, dtype)
        none = jnp.zeros((), statistics.number.dtype)
        return _VectorCache(
            statistics.number,
            statistics.location,
            *_inverted(statistics.scale),
            prior=prior.astype(dtype),
            empty=(none, location, *_inverted(scale)),
        )

    def move(self, cache: _VectorCache, group: Array, value: Array, amount: int) -> _VectorCache:
        num_values, location, inverse, log_determinant = (
            tables.row(leaf, group) for leaf in cache[:4]
        )
        weight = cache.prior[0] + num_values
        deviation = value - location
        moved = location + amount * deviation / (weight + amount)
        # the scale changes by c d d', d the deviation: Sherman and Morrison, and the determinant
        # lemma
        share = amount * weight / (weight + amount)
        inverse_deviation = _product(inverse[None], deviation[None])[0]
        # rounding alone brings it to zero, where a value far out leaves
        squared_length = _squared_lengths(inverse[None], deviation[None])[0]
        factor = jnp.maximum(1 + share * squared_length, jnp.finfo(inverse.dtype).eps)
        new = (
            num_values + amount,
            moved,
            inverse - share / factor * inverse_deviation[:, None] * inverse_deviation,
            log_determinant + jnp.log(factor),
        )
        # nothing of the rounding stays behind in a group without values
        is_empty = new[0] == 0
        fields = zip(cache[:4], new, cache.empty, strict=True)
        moved_fields = [
            tables.put(old, group, jnp.where(is_empty, none, value)) for old, value, none in fields
        ]
        return _VectorCache._make([*moved_fields, cache.prior, cache.empty])

    def predictive(self, cache: _VectorCache, lanes: Lanes, value: Array) -> Array:
        num_values, location, inverse, log_determinant = (
            tables.take(leaf, lanes) for leaf in cache[:4]
        )
        weight, degrees = cache.prior[0] + num_values, cache.prior[1] + num_values
        share = weight / (weight + 1)
        deviation = value - location
        distance = _squared_lengths(inverse, deviation)
        level = log_rising((degrees + 1 - self.size) / 2, self.size / 2)
        level += self.size / 2 * (jnp.log(share) - jnp.log(jnp.pi)) - log_determinant / 2
        return level - (degrees + 1) / 2 * jnp.log1p(share * distance)

    def log_marginal(self, statistics: Wisharts, hyperparameters: Hyperparameters) -> Array:
        known: Any = self.standard()
        num_values, size = statistics.number, self.size
        degrees = self.degrees + num_values
        scale = jnp.asarray(known.scale, statistics.scale.dtype)
        before = _log_determinant(jnp.linalg.cholesky(scale))
        after = _log_determinant(jnp.linalg.cholesky(statistics.scale))
        result = multigammaln(degrees / 2, size) - multigammaln(self.degrees / 2, size)
        result += self.degrees / 2 * before - degrees / 2 * after
        result += size / 2 * (jnp.log(known.weight) - jnp.log(known.weight + num_values))
        return result - 0.5 * size * num_values * jnp.log(jnp.pi)

    def sample_parameters(
        self, key: Key, statistics: Wisharts, hyperparameters: Hyperparameters
    ) -> NormalParameters:
        gamma_key, below_key, mean_key = jax.random.split(key, 3)
        shape, dtype = statistics.scale.shape, statistics.scale.dtype
        normals = [
            jax.random.normal(below_key, shape, dtype),
            jax.random.normal(mean_key, statistics.location.shape, dtype)[..., None],
        ]
        log_gammas = loggammas(gamma_key, self.gamma_shapes(statistics.number).astype(dtype))
        return self.parameters_of(statistics, log_gammas, jnp.concatenate(normals, axis=-1))

    def gamma_shapes(self, num_values: Array) -> Array:
        """Shapes of the Gamma draws behind a covariance of groups with this many values: (G, D)."""
        return (self.degrees + num_values[:, None] - jnp.arange(self.size)) / 2

    def parameters_of(
        self, statistics: Wisharts, log_gammas: Array, normals: Array
    ) -> NormalParameters:
        """Parameters of every group as a function of random numbers.

        Args:
            statistics: of G groups.
            log_gammas: (G, D) float, logarithms of Gamma draws of shapes `gamma_shapes`.
            normals: (G, D, D + 1) float, standard normal.
        """
        known: Any = self.standard()
        # Bartlett: with A lower triangular, A A' is Wishart and L A'^-1 a factor of its inverse
        diagonal = jnp.sqrt(2 * jnp.exp(log_gammas))
        identity = jnp.eye(self.size, dtype=normals.dtype)
        bartlett = jnp.tril(normals[..., :-1], -1) + identity * diagonal[:, None, :]
        upper = jnp.linalg.cholesky(statistics.scale)
        # covariance = upper (A A')^-1 upper'; any square root serves, the Cholesky factor is kept
        root = jax.lax.linalg.triangular_solve(
            bartlett, jnp.swapaxes(upper, 1, 2), left_side=True, lower=True
        )
        covariance = jnp.swapaxes(root, 1, 2) @ root
        factor = jnp.linalg.cholesky(covariance)
        spread = jnp.sqrt(known.weight + statistics.number)[:, None]
        deviation = jnp.einsum("gij,gj->gi", factor, normals[..., -1]) / spread
        return NormalParameters(statistics.location + deviation, factor)

    def log_prob(self, parameters: NormalParameters, value: Array) -> Array:
        deviation = (value - parameters.mean)[..., None]
        half = jax.lax.linalg.triangular_solve(
            parameters.factor, deviation, left_side=True, lower=True
        )[..., 0]
        level = self.size * jnp.log(2 * jnp.pi) + _log_determinant(parameters.factor)
        return -0.5 * (jnp.sum(half**2, axis=-1) + level)

    def sample(self, key: Key, parameters: NormalParameters, groups: Array) -> Array:
        normal = jax.random.normal(key, (groups.shape[0], self.size), parameters.mean.dtype)
        deviation = jnp.einsum("tij,tj->ti", parameters.factor[groups], normal)
        return parameters.mean[groups] + deviation

    def moments(
        self, statistics: Wisharts, hyperparameters: Hyperparameters
    ) -> tuple[Array, Array]:
        """The variance is infinite where there are at most D + 1 degrees of freedom."""
        known: Any = self.standard()
        weight, degrees = known.weight + statistics.number, self.degrees + statistics.number
        excess = degrees - self.size - 1
        share = (weight + 1) / (weight * jnp.where(excess > 0, excess, 1))
        variance = jnp.diagonal(statistics.scale, axis1=1, axis2=2) * share[:, None]
        return statistics.location, jnp.where(excess[:, None] > 0, variance, jnp.inf)

    def entry_marginals(self, statistics: Wisharts) -> tuple[NormalInverseGamma, Normals]:
        """The marginals of the entries of a vector: a family, and statistics of G D parts of it.

        Variances of an inverse-Wishart matrix are inverse-Gamma, (degrees - D + 1) / 2 and half of
        the scale's diagonal. Part g D + d is entry d in group g.
        """
        known: Any = self.standard()
        family = NormalInverseGamma(
            0.0, known.weight, shape=(self.degrees - self.size + 1) / 2, rate=1.0
        )
        diagonal = jnp.diagonal(statistics.scale, axis1=1, axis2=2)
        num_values = jnp.repeat(statistics.number, self.size)
        return family, Normals(num_values, statistics.location.ravel(), diagonal.ravel() / 2)


# XLA makes a library call, which no fused loop may hold, of a sum over 4,096 terms or more.
_MOST_SUMMED = 2**11
_SHORT = 8  # vectors shorter than this: in a sum of 64 terms and more each waits for the last


def _is_summed(matrices: Array) -> bool:
    """Whether to sum at once and not row after row, of which whole vectors are added.

    On an accelerator each row would be kernels that the host starts.
    """
    if default_platform() != "cpu":
        return True
    return matrices.shape[1] < _SHORT and matrices.size <= _MOST_SUMMED


def _product(matrices: Array, vectors: Array) -> Array:
    """A x of symmetric matrices (L, D, D) and vectors (L, D)."""
    if _is_summed(matrices):
        return jnp.sum(matrices * vectors[:, None, :], axis=2)

    def add(index: Array, total: Array) -> Array:
        line = jax.lax.dynamic_index_in_dim(matrices, index, 1, keepdims=False)
        return total + line * jax.lax.dynamic_index_in_dim(vectors, index, 1)

    return jax.lax.fori_loop(0, matrices.shape[1], add, jnp.zeros_like(vectors))


def _squared_lengths(matrices: Array, vectors: Array) -> Array:
    """x'A x (L,) of symmetric matrices (L, D, D) and vectors (L, D)."""
    if _is_summed(matrices):
        # One sum over both axes: of a sum of sums for many rows at once XLA of jaxlib 0.10.2 makes
        # a CPU program with wrong results (jax issue 39103).
        return jnp.sum(matrices * vectors[:, None, :] * vectors[:, :, None], axis=(1, 2))
    values = _product(matrices, vectors) * vectors

    def add(index: Array, total: Array) -> Array:
        return total + jax.lax.dynamic_index_in_dim(values, index, 1, keepdims=False)

    return jax.lax.fori_loop(0, values.shape[1], add, jnp.zeros_like(values[:, 0]))


def _inverted(scale: Array) -> tuple[Array, Array]:
    """Inverse and log determinant of matrices (..., D, D)."""
    factor = jnp.linalg.cholesky(scale)
    identity = jnp.broadcast_to(jnp.eye(scale.shape[-1], dtype=scale.dtype), scale.shape)
    half = jax.lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    return jnp.swapaxes(half, -2, -1) @ half, _log_determinant(factor)


def _log_determinant(factor: Array) -> Array:
    """log|A| of a Cholesky factor (..., D, D)."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
