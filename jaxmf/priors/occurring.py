"""The prior of the concentration of words where the vocabulary is that of the documents."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from jaxmf.arguments import check_count
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array, Key

_LEAST, _MOST = 0.01, 30.0
_NUM_POINTS = 129
_RATE = 10.0
_NUM_HALVINGS = 60


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OccurringWords(Readable):
    """A concentration b of words all of which occur: Gamma(1, 10), given that they do.

    p(b) is proportional to exp(-10 b) / P(all V words occur | b), between .01 and 30. With less
    than .01 words hardly leave the topics that they started in.

    A vocabulary that was collected from the documents has no word without a token. The likelihood
    of b takes that for evidence of words that are alike, which a large b has; divided by the
    probability that all V words occur among T tokens it is the likelihood given that they do. The
    probability is that of counts n_w ~ NegativeBinomial(K b, x), all above zero, given their sum T,
    by the saddle point x of the generating function ((1 - x)^(-K b) - 1)^V: its logarithm is within
    .1 of the exact one (1 to 30 words, b K from .01 to 30).

    Args:
        num_words: V.
        num_tokens: T, not less than V.
        num_topics: K, taken to be of equal sizes.
    Raises:
        TypeError, ValueError: an argument is not a positive integer, fewer tokens than words.
    Example:
        >>> prior = OccurringWords(num_words=1_000, num_tokens=2_000, num_topics=20)
        >>> bool(prior.log_prob(0.01) > prior.log_prob(0.1))
        True
    """

    num_words: int = field(metadata=STATIC)
    num_tokens: int = field(metadata=STATIC)
    num_topics: int = field(metadata=STATIC)

    # what `validate` asks of a distribution
    batch_shape = event_shape = ()
    is_discrete = False
    start = 0.02
    """Where a chain starts: most of the prior lies at its lower end."""

    def __post_init__(self) -> None:
        for name in ("num_words", "num_tokens", "num_topics"):
            check_count(name, getattr(self, name))
        if self.num_tokens < self.num_words:
            raise ValueError(
                f"num_tokens: {self.num_words} words cannot all occur among {self.num_tokens} "
                "tokens; pass the number of all tokens"
            )

    def support(self, value: Array | float) -> Array | bool:
        """Whether values lie between the bounds, of their shape."""
        return (value >= _LEAST) & (value <= _MOST)

    def log_prob(self, value: Array | float) -> Array:
        """Log density of concentrations, of their shape; linear in log b between 129 points."""
        points, log_density = self._table
        logs = jnp.log(jnp.asarray(value, jnp.result_type(float)))
        return jnp.interp(logs, jnp.asarray(points), jnp.asarray(log_density)) - logs

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Array:
        """Concentrations, float of the shape asked for."""
        points, log_density = self._table
        width = points[1] - points[0]
        rises = np.diff(log_density)
        interval_key, position_key = jax.random.split(key)
        logits = jnp.asarray(log_density[:-1] + _log_mean_exp(rises))
        interval = jax.random.categorical(interval_key, logits, shape=sample_shape)
        rise = jnp.asarray(np.where(np.abs(rises) < 1e-6, 1e-6, rises))[interval]
        position = (
            jnp.log1p(jax.random.uniform(position_key, sample_shape) * jnp.expm1(rise)) / rise
        )
        logs = jnp.asarray(points)[interval] + width * jnp.clip(position, 0, 1)
        return jnp.clip(jnp.exp(logs), _LEAST, _MOST)

    @property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        return _table(self.num_words, self.num_tokens, self.num_topics)


@functools.lru_cache(maxsize=32)
def _table(num_words: int, num_tokens: int, num_topics: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of log b, and the normalised log density of log b there: (129,) float64 each."""
    points = np.linspace(math.log(_LEAST), math.log(_MOST), _NUM_POINTS)
    b = np.exp(points)
    log_density = points - _RATE * b - log_all_occur(num_topics * b, num_words, num_tokens)
    log_density -= log_density.max()
    masses = log_density[:-1] + _log_mean_exp(np.diff(log_density))
    whole = np.logaddexp.reduce(masses) + math.log(points[1] - points[0])
    return points, log_density - whole


def log_all_occur(concentration: np.ndarray, num_words: int, num_tokens: int) -> np.ndarray:
    """Log probability that V words of a Dirichlet-multinomial all occur, by a saddle point.

    Args: concentration: a of each word, any shape, positive.
    Returns float64 of that shape, at most 0.
    """
    a, v, t = np.asarray(concentration, float), num_words, num_tokens
    log_free = gammaln(v * a + t) - gammaln(v * a) - gammaln(t + 1)
    if t == v:
        return np.minimum(v * np.log(a) - log_free, 0)
    # l = -log(1 - x): V log(exp(a l) - 1) - T log(1 - exp(-l)) is least
    low, high = np.full(a.shape, -40.0), np.full(a.shape, 7.0)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        l_ = np.exp(middle)
        is_above = v * a / -np.expm1(-a * l_) > t / np.expm1(np.minimum(l_, 700))
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    with_all = np.exp((low + high) / 2)
    log_of_all = a * with_all + np.log(-np.expm1(-a * with_all))
    # of the sum of counts above zero, each with the mean T / V
    variance = t * ((1 + a) * np.expm1(with_all) - (t - v) / v)
    found = v * log_of_all - t * np.log(-np.expm1(-with_all))
    found -= np.log(2 * np.pi * variance) / 2 + log_free
    return np.minimum(found, 0)


def _log_mean_exp(rises: np.ndarray) -> np.ndarray:
    """Log of the mean of exp over a line from 0 to each rise."""
    near = np.where(np.abs(rises) < 1e-6, 1e-6, rises)
    return np.log(np.expm1(near) / near)
