"""Priors of binary feature matrices: the Indian buffet process and its finite counterpart.

Both are written in the two-parameter form of Ghahramani, Griffiths and Sollich (2007): with
mass `alpha` and `concentration` beta (1 is the ordinary process), a row has Poisson(alpha)
features, and beta says how widely they are shared. Counts m_k are the numbers of rows that have
feature k; slots are padded, see `jaxmf.slots`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import scipy.special
from jax.scipy.special import betaln, digamma

from jaxmf import slots
from jaxmf._kernels.special import poisson
from jaxmf.arguments import MOST_SLOTS, check_count
from jaxmf.priors import hyper
from jaxmf.programs import jit
from jaxmf.readable import Readable
from jaxmf.types import STATIC, Array


def harmonic(num_rows: Array | int, concentration: Array | float) -> Array:
    """The sum over rows i = 1, ..., N of concentration / (concentration + i - 1).

    alpha times it is the expected number of features of N rows; it is the harmonic number for a
    concentration of one.

    Args: num_rows () N, a Python integer where it is static.
    Returns () float.

    Example:
        >>> float(harmonic(2, 1.0))
        1.5
    """
    concentration = jnp.asarray(concentration, jnp.result_type(float))
    if isinstance(num_rows, int):
        earlier_rows = jnp.arange(num_rows, dtype=concentration.dtype)
        return jnp.sum(concentration / (concentration + earlier_rows))
    last, first = digamma(jnp.stack([concentration + num_rows, concentration]))
    return concentration * (last - first)


_NUM_DRAWS = 200_000


def slots_of_prior(
    alpha: hyper.Hyperparameter, concentration: hyper.Hyperparameter, num_rows: int
) -> int:
    """Slots that suffice for 200,000 draws of N rows from the Indian buffet process.

    `jaxmf.smc` starts near the prior, and a particle that needs more slots makes it compile its
    program anew, which costs more than slots that are not used. The next multiple of 8 above two
    numbers of features: the expected one for an alpha ln(200,000) standard deviations above its
    mean (about the largest of 200,000 draws, if alpha is exponential), and the one that a single
    draw in 200,000 exceeds for the mean alpha, as the number is a Poisson variable.

    Args: alpha, concentration: numbers or priors; num_rows: N.

    Example:
        >>> slots_of_prior(1.0, 1.0, 40), slots_of_prior(8.0, 1.0, 40)
        (16, 64)
    """
    mean, log_draws = hyper.initial_value(alpha), math.log(_NUM_DRAWS)
    large = mean + log_draws * hyper.spread(alpha)
    features_per_alpha = float(harmonic(num_rows, hyper.initial_value(concentration)))
    most = scipy.special.pdtrik(1 - 1 / _NUM_DRAWS, float(mean) * features_per_alpha)
    most = max(most, float(large) * features_per_alpha)
    return int(min(8 * math.ceil(most / 8), MOST_SLOTS))


class RowByRowPrior(Protocol):
    """A prior of Z that goes row by row; `IndianBuffet` and `BetaBernoulli` are two.

    One's own must be a pytree: a frozen dataclass with `jax.tree_util.register_dataclass`. Rows are
    counted from 1: `num_rows` is the number of rows with the one that is asked about, i for row i
    given rows 1, ..., i - 1, and N for any row given all others. Slots are padded: arrays have as
    many entries as there are slots, whichever of them are features.

    A prior with a fixed number of features says so by an attribute `num_features`. Markov chains
    need a method `log_prob(counts, gram, num_rows)`, () float, log p(Z) from the counts (K,) of all
    rows and Z'Z (K, K): the product of these conditionals, of left-ordered classes of matrices.
    That is, with features that come as rows have them first at `new_rate` r_i, with K_i new ones of
    row i and K_h features of history h (the same column of Z),

        log p(Z) = sum_i (log P(bits of row i) + K_i log r_i - r_i) - sum_h log K_h!

    Sweeps over rows take `log_odds` and `new_rate` as the conditionals of any row given all others,
    which is right where rows are exchangeable. `jaxmf.testing.check_chain_rule` tries both.
    """

    def exists(self, counts: Array) -> Array:
        """(K,) bool: which slots are features that a row may have."""

    def log_odds(self, counts_without_row: Array, num_rows: Array | int) -> Array:
        """(K,) float: log odds that a row has each feature, given the others.

        Args:
            counts_without_row: (K,) float, how many of the other rows have the feature of a slot.
            num_rows: () number of rows, this one included: 1 for the first.
        """

    def new_rate(self, num_rows: Array | int) -> Array:
        """() float: Poisson rate of the features that a row has and none of the others.

        Args: num_rows: () number of rows, this one included: 1 for the first.
        """


def sample_by_rows(
    prior: RowByRowPrior, key: Array, num_rows: int, capacity: int, *, earlier: Array | None = None
) -> tuple[Array, Array]:
    """Rows one after another, each given the counts of those before it (Algorithm 1).

    Args: earlier: (N', capacity) bool, rows before the first one; none by default.
    Returns z (N, K) bool, and overflow () bool, whether more slots were needed.
    """
    if earlier is None:
        earlier = jnp.zeros((0, capacity), bool)
    return _rows_after(prior, key, earlier, num_rows)


# outside of programs a loop is compiled at every call
@partial(jit, inline=True, static_argnames="num_rows")
def _rows_after(
    prior: RowByRowPrior, key: Array, earlier: Array, num_rows: int
) -> tuple[Array, Array]:
    num_earlier, capacity = earlier.shape

    def add_row(carry: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], Array]:
        counts, overflow = carry
        bits_key, new_key = jax.random.split(jax.random.fold_in(key, row))
        exists = prior.exists(counts)
        log_odds = prior.log_odds(counts, num_earlier + row + 1)
        bits = exists & (jax.random.uniform(bits_key, (capacity,)) < jax.nn.sigmoid(log_odds))
        num_new = poisson(new_key, prior.new_rate(num_earlier + row + 1))
        claim = slots.claim(exists, num_new)
        bits = bits | claim.claimed
        return (counts + bits, overflow | claim.overflow), bits

    start = (jnp.sum(earlier, axis=0, dtype=jnp.result_type(float)), jnp.asarray(False))
    (_, overflow), z = jax.lax.scan(add_row, start, jnp.arange(num_rows))
    return z, overflow


class _TwoParameters(Readable):
    """Base of the priors with a mass and a concentration."""

    alpha: Array | float
    concentration: Array | float

    def __post_init__(self) -> None:
        for name in ("alpha", "concentration"):
            value = getattr(self, name)
            if not isinstance(value, jax.Array):  # arrays of a state are not looked at
                hyper.validate(name, value)

    def sample(
        self: RowByRowPrior, key: Array, num_rows: int, capacity: int
    ) -> tuple[Array, Array]:
        """Draws a matrix row by row (Algorithm 1), probabilities of features summed out.

        Args:
            key: typed PRNG key.
            num_rows: N.
            capacity: K, the number of slots.
        Returns:
            z (N, K) bool, features in the order in which they appear, and overflow () bool,
            whether more slots were needed.
        """
        return sample_by_rows(self, key, num_rows, capacity)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class IndianBuffet(_TwoParameters):
    """The Indian buffet process with numbers of features without bound.

    The first row has Poisson(alpha) features; row i has feature k of the rows before it with
    probability m_k / (beta + i - 1), and Poisson(alpha beta / (beta + i - 1)) new ones.

    Args:
        alpha: () float, mass.
        concentration: () float, beta.
    """

    alpha: Array | float
    concentration: Array | float = 1.0

    def exists(self, counts: Array) -> Array:
        """(K,) bool: the slots that are features, those some row has."""
        return counts > 0

    def log_odds(self, counts_without_row: Array, num_rows: Array | int) -> Array:
        """Log odds that a row has each feature: m_k / (beta + N - 1 - m_k).

        Args:
            counts_without_row: (K,) counts among the other N - 1 rows.
            num_rows: () N, this row included; i for row i = 1, 2, ... of a filter.
        Returns:
            (K,) float; -inf for a feature that no other row has.
        """
        counts = counts_without_row.astype(jnp.result_type(float))
        return jnp.log(counts) - jnp.log(self.concentration + (num_rows - 1) - counts)

    def new_rate(self, num_rows: Array | int) -> Array:
        """() float: Poisson rate of the features that only this row of N rows has."""
        return jnp.asarray(
            self.alpha * self.concentration / (self.concentration + (num_rows - 1)),
            jnp.result_type(float),
        )

    def probability_parameters(self, counts: Array, num_rows: Array | int) -> tuple[Array, Array]:
        """(K,) floats a, b: given its column, the probability of a feature is Beta(a, b).

        a = m_k and b = N - m_k + beta; free slots, which have no column, get a = 1.
        """
        counts = counts.astype(jnp.result_type(float))
        return jnp.where(counts > 0, counts, 1), num_rows - counts + self.concentration

    def log_prob(self, counts: Array, gram: Array, num_rows: Array | int) -> Array:
        """Log probability of a left-ordered class of matrices.

        log P = K log(alpha beta) - alpha sum_i beta / (beta + i - 1)
                + sum_k log B(m_k, N - m_k + beta) - sum_h log K_h!
        with K_h the number of features of history h (equation 2 of Wood and Griffiths for
        beta = 1). Columns k, l are equal exactly if m_k = m_l = (Z'Z)_kl, which finds the K_h.

        Args:
            counts: (K,) counts of all N rows.
            gram: (K, K) the matrix Z'Z.
            num_rows: () N.
        Returns:
            () float.
        """
        equal = (gram == counts) & (gram == counts[:, None]) & (counts > 0)
        rank = jnp.sum(jnp.tril(equal), axis=1)
        log_orders = jnp.sum(jnp.log(jnp.maximum(rank, 1).astype(jnp.result_type(float))))
        return self.log_prob_labelled(counts, num_rows) - log_orders

    def log_prob_labelled(self, counts: Array, num_rows: Array | int) -> Array:
        """Log density of labelled features, the class probability times prod_h K_h!.

        This is the density under which features are points of a Poisson process over
        histories; it is all that updates of `alpha` and `concentration` need.

        Args:
            counts: (K,) counts of all N rows.
            num_rows: () N.
        Returns:
            () float.
        """
        dtype = jnp.result_type(float)
        occupied = counts > 0
        safe_counts = jnp.where(occupied, counts, 1).astype(dtype)
        log_beta = betaln(safe_counts, num_rows - safe_counts + self.concentration)
        num_features = jnp.sum(occupied).astype(dtype)
        return (
            num_features * jnp.log(jnp.asarray(self.alpha * self.concentration, dtype))
            - self.alpha * harmonic(num_rows, self.concentration)
            + jnp.sum(jnp.where(occupied, log_beta, 0.0))
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BetaBernoulli(_TwoParameters):
    """The finite model whose limit for many features is the Indian buffet process.

    pi_k ~ Beta(alpha beta / K, beta); z_nk ~ Bernoulli(pi_k), with pi integrated out. The first
    `num_features` slots are features whether a row has them or not.

    Args:
        alpha: () float, mass.
        concentration: () float, beta.
        num_features: K, static.
    """

    alpha: Array | float
    concentration: Array | float = 1.0
    num_features: int = field(default=1, metadata=STATIC)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_features", self.num_features, most=MOST_SLOTS)

    @property
    def _pseudo_count(self) -> Array:
        return jnp.asarray(
            self.alpha * self.concentration / self.num_features, jnp.result_type(float)
        )

    def exists(self, counts: Array) -> Array:
        """(K,) bool: the slots that are features, the first `num_features`."""
        return jnp.arange(counts.shape[0]) < self.num_features

    def log_odds(self, counts_without_row: Array, num_rows: Array | int) -> Array:
        """Log odds that a row has each feature: (m_k + alpha beta / K) / (beta + N - 1 - m_k).

        Arguments as in `IndianBuffet.log_odds`. (K,) float; -inf at slots that are not features.
        """
        counts = counts_without_row.astype(jnp.result_type(float))
        log_odds = jnp.log(counts + self._pseudo_count) - jnp.log(
            self.concentration + (num_rows - 1) - counts
        )
        return jnp.where(self.exists(counts), log_odds, -jnp.inf)

    def new_rate(self, num_rows: Array | int) -> Array:
        """() float: zero, the number of features is fixed."""
        return jnp.zeros((), jnp.result_type(float))

    def probability_parameters(self, counts: Array, num_rows: Array | int) -> tuple[Array, Array]:
        """(K,) floats a, b: given its column, the probability of a feature is Beta(a, b)."""
        counts = counts.astype(jnp.result_type(float))
        return counts + self._pseudo_count, num_rows - counts + self.concentration

    def log_prob(self, counts: Array, gram: Array, num_rows: Array | int) -> Array:
        """Log probability of the labelled matrix; see `log_prob_labelled`. `gram` is not used."""
        return self.log_prob_labelled(counts, num_rows)

    def log_prob_labelled(self, counts: Array, num_rows: Array | int) -> Array:
        """Log probability of the labelled matrix.

        log P = sum_k log B(m_k + alpha beta / K, N - m_k + beta) - log B(alpha beta / K, beta)

        Arguments as in `IndianBuffet.log_prob_labelled`. () float.
        """
        dtype = jnp.result_type(float)
        counts = counts.astype(dtype)
        concentration = jnp.asarray(self.concentration, dtype)
        log_prob = betaln(counts + self._pseudo_count, num_rows - counts + concentration)
        log_prob = log_prob - betaln(self._pseudo_count, concentration)
        return jnp.sum(jnp.where(self.exists(counts), log_prob, 0.0))

    def sample(self, key: Array, num_rows: int, capacity: int) -> tuple[Array, Array]:
        """As `IndianBuffet.sample`; overflow is always False.

        Raises:
            ValueError: if `capacity` is smaller than `num_features`.
        """
        if capacity < self.num_features:
            raise ValueError(
                f"capacity {capacity} is smaller than num_features {self.num_features}"
            )
        return super().sample(key, num_rows, capacity)
