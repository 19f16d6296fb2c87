"""The noisy-OR likelihood of a binary matrix, from the number of active causes of each cell.

A cell whose row has eta causes that are active in its column, and j more causes whose activity is
summed out, is zero with probability

    P(x = 0; eta, j) = (1 - leak) (1 - efficacy)^eta (1 - efficacy * cause_probability)^j

(equation 8 of Wood & Griffiths (2006) for j = 0, equation 11 for the filter). Its log is linear in
eta and j, so zeros need sums alone; only ones need a transcendental function a cell. All that the
three parameters meet of Z, Y and X is how many zeros and ones have each eta: a `Tally`.

A leak of zero and an efficacy of one are limits that are allowed: they are computed as 1e-35 and
1 - 1e-35, so that every state has a finite density and impossible ones a negligible one.

Open `NoisyOrParameters` first, then `log_zero` and `log_one`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from jaxmf import row_shards
from jaxmf.types import STATIC, Array, PyTree

_LEAST = 1e-35  # a float32 still, and nothing beside one
_CELLS_A_BLOCK = 2**19


class NoisyOrParameters(NamedTuple):
    """The three probabilities of the model."""

    cause_probability: Array  # () float, p, that a cause is active in a column
    efficacy: Array  # () float, lambda, that an active cause makes a cell of its rows one
    leak: Array  # () float, epsilon, that a cell is one without a cause

    @property
    def log_absent(self) -> Array:
        """log P(x = 0) without a cause."""
        return jnp.log1p(-_inside(self.leak))

    @property
    def log_fail(self) -> Array:
        """Contribution of an active cause to log P(x = 0)."""
        return jnp.maximum(jnp.log1p(-self.efficacy), jnp.log(_LEAST))

    @property
    def log_fail_unseen(self) -> Array:
        """Contribution of a cause to log P(x = 0) when its activity is summed out."""
        certain = jnp.log(_LEAST)
        return jnp.maximum(jnp.log1p(-self.efficacy * self.cause_probability), certain)

    @property
    def log_odds(self) -> Array:
        """Prior log odds that a cause is active in a column."""
        return jnp.log(_inside(self.cause_probability)) - self.log_inactive

    @property
    def log_inactive(self) -> Array:
        """Prior log probability that a cause is not active in a column."""
        return jnp.log1p(-_inside(self.cause_probability))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PoweredParameters:
    """Parameters of the likelihood to a power, as on the way from prior to posterior.

    Given its active causes a cell has P(x; eta)^power. Causes whose activity is summed out are no
    longer one factor in a one: of j of them m are active with the binomial probability of m, and
    what is summed is P(x = 1; eta + m)^power. A zero keeps one factor a cause.
    """

    parameters: NoisyOrParameters  # at power one
    power: Array  # () float, above 0
    most_unseen: int = field(metadata=STATIC)  # the most causes that are ever summed out

    @property
    def cause_probability(self) -> Array:
        return self.parameters.cause_probability

    @property
    def leak(self) -> Array:
        return self.parameters.leak

    @property
    def log_absent(self) -> Array:
        return self.power * self.parameters.log_absent

    @property
    def log_fail(self) -> Array:
        return self.power * self.parameters.log_fail

    @property
    def log_fail_unseen(self) -> Array:
        probability = _inside(self.cause_probability)
        return jnp.log1p(probability * jnp.expm1(self.log_fail))

    @property
    def log_odds(self) -> Array:
        return self.parameters.log_odds

    @property
    def log_inactive(self) -> Array:
        return self.parameters.log_inactive

    def log_one(self, eta: Array, unseen: Array | float) -> Array:
        """log of what the causes summed out leave of P(x = 1)^power."""
        if isinstance(unseen, float) and unseen == 0:
            return self.power * log_one(eta, self.parameters)
        most = int(unseen) if isinstance(unseen, float) else self.most_unseen
        log_weights = self._log_weights(most)[jnp.asarray(unseen, jnp.int32)]
        active = jnp.arange(most + 1, dtype=self.leak.dtype)
        log_ones = self.power * log_one(eta[..., None] + active, self.parameters)
        return logsumexp(log_weights + log_ones, axis=-1)

    def log_one_table(self, num_unseen: int, num_eta: int) -> Array:
        """`log_one` of fewer than `num_unseen` causes summed out, and of eta below `num_eta`.

        Returns (num_unseen, num_eta) float. A sum of products of probabilities: cells with as many
        causes in all share a logarithm, and no term is negative, so nothing cancels.
        """
        num_causes = np.arange(num_unseen)[:, None] + np.arange(num_eta)
        eta = jnp.arange(num_unseen + num_eta - 1, dtype=self.leak.dtype)
        ones = jnp.exp(self.power * log_one(eta, self.parameters))
        return jnp.log(jnp.exp(self._log_weights(num_unseen - 1)) @ ones[num_causes])

    def _log_weights(self, most: int) -> Array:
        """log P(m of j causes are active), (most + 1, most + 1) float, j by rows."""
        count = np.arange(most + 1)
        log_factorials = np.cumsum(np.log(np.maximum(count, 1)))
        others = count[:, None] - count
        log_choices = log_factorials[:, None] - log_factorials - log_factorials[others.clip(0)]
        log_choices = jnp.asarray(np.where(others >= 0, log_choices, -np.inf), self.leak.dtype)
        return log_choices + count * self.log_odds + count[:, None] * self.log_inactive


def _inside(probability: Array) -> Array:
    """Away from 0 and from 1, which a draw may reach by rounding."""
    return jnp.clip(probability, _LEAST, 1 - jnp.finfo(probability.dtype).eps)


AnyParameters = NoisyOrParameters | PoweredParameters


class NoisyOrCells(NamedTuple):
    """Where the observed ones and zeros are, bool arrays of one shape; neither where missing."""

    ones: Array
    zeros: Array


class Tally(NamedTuple):
    """How many observed ones and zeros have 0, 1, ..., H - 1 active causes: (H,) float each."""

    ones: Array
    zeros: Array


def cells_of(x: Array, observed: Array | None) -> NoisyOrCells:
    """Ones and zeros of x, an array of zeros and ones; `observed` of its shape, or None for all."""
    on = x > 0.5
    if observed is None:
        return NoisyOrCells(ones=on, zeros=~on)
    return NoisyOrCells(ones=on & observed, zeros=~on & observed)


def log_zero(eta: Array, parameters: AnyParameters, unseen: Array | float = 0.0) -> Array:
    """log P(x = 0) with eta active causes and `unseen` ones summed out (equation 11)."""
    return (
        parameters.log_absent
        + eta * parameters.log_fail
        + jnp.asarray(unseen, parameters.leak.dtype) * parameters.log_fail_unseen
    )


def log_one(eta: Array, parameters: AnyParameters, unseen: Array | float = 0.0) -> Array:
    """log P(x = 1) with eta active causes and `unseen` ones summed out (equation 11)."""
    if isinstance(parameters, PoweredParameters):
        return parameters.log_one(eta, unseen)
    return jnp.log(-jnp.expm1(log_zero(eta, parameters, unseen)))


def probability(eta: Array, parameters: NoisyOrParameters, unseen: Array | float = 0.0) -> Array:
    """P(x = 1) with eta active causes and `unseen` ones summed out (equation 11)."""
    return -jnp.expm1(log_zero(eta, parameters, unseen))


def num_active(z: Array, y: Array, dtype: jnp.dtype) -> Array:
    """eta = Z Y, from z (..., K) and y (K, D), bool or float: (..., D) float."""
    return z.astype(dtype) @ y.astype(dtype)


def gain_table(size: int, parameters: AnyParameters) -> Array:
    """Change of log P(x = 1) by one more active cause, for 0 ... size - 1 of them: (size,) float.

    Numbers of active causes are few, so sweeps look this up instead of taking logs of every cell.
    """
    eta = jnp.arange(size, dtype=parameters.leak.dtype)
    return log_one(eta + 1, parameters) - log_one(eta, parameters)


def look_up(table: Array, index: Array) -> Array:
    """Entries of a table at indices that lie inside it."""
    return table.at[index].get(mode="promise_in_bounds")


def tally_of(eta: Array, cells: NoisyOrCells, size: int) -> Tally:
    """The tally of some cells, eta of their shape, with H = `size` entries."""
    dtype = jnp.result_type(float)

    def count(num_causes: Array) -> tuple[Array, Array]:
        here = eta == num_causes
        return jnp.sum(here & cells.ones, dtype=jnp.int32), jnp.sum(
            here & cells.zeros, dtype=jnp.int32
        )

    ones, zeros = jax.vmap(count)(jnp.arange(size, dtype=eta.dtype))
    return Tally(ones.astype(dtype), zeros.astype(dtype))


def tally(z: Array, y: Array, x: Array, observed: Array | None) -> Tally:
    """The tally of a whole matrix x (N, D) with z (N, K) and y (K, D), H = K + 1."""
    rows: tuple[Array, ...] = (z, x) if observed is None else (z, x, observed)
    return Tally(*row_shards.with_rows(_tally_of_rows, rows, y))


def _tally_of_rows(z: Array, x: Array, *others: PyTree) -> Tally:
    observed, y = (None, *others)[-2:]
    num_rows, num_columns = x.shape
    num_slots = z.shape[1]
    z_float = z.astype(x.dtype)

    def tally_columns(start: Array, first: Array, size: int) -> Tally:
        at = _columns(start, size)
        here = start + jnp.arange(size) >= first
        cells = cells_of(at(x), None if observed is None else at(observed))
        cells = NoisyOrCells(cells.ones & here, cells.zeros & here)
        return tally_of(num_active(z_float, at(y), x.dtype), cells, num_slots + 1)

    size = block_size(num_rows, num_columns)
    nothing = jnp.zeros((num_slots + 1,), x.dtype)

    def add(block: Array, total: Tally) -> Tally:
        first = block * size
        more = tally_columns(jnp.minimum(first, num_columns - size), first, size)
        return jax.tree.map(jnp.add, total, more)

    total = jax.lax.fori_loop(0, -(-num_columns // size), add, Tally(nothing, nothing))
    return Tally(*row_shards.add_over_devices(total))


def log_likelihood(counts: Tally, parameters: NoisyOrParameters) -> Array:
    """log p(X | Z, Y) of the observed cells, () float (equation 8)."""
    eta = jnp.arange(counts.ones.shape[0], dtype=counts.ones.dtype)
    return counts.ones @ log_one(eta, parameters) + counts.zeros @ log_zero(eta, parameters)


def count_table(num_slots: int, num_candidates: int, parameters: AnyParameters) -> Tally:
    """Log probabilities of a one and of a zero: (J, H) float each, H = `num_slots` + 1.

    Entry [j, eta] is for eta active causes and j = 0 ... `num_candidates` - 1 new causes
    of the row, summed out (equation 11). The same for all rows, so a sweep computes it once.
    """
    dtype = parameters.leak.dtype
    num_new = jnp.arange(num_candidates, dtype=dtype)[:, None]
    eta = jnp.arange(num_slots + 1, dtype=dtype)
    zeros = log_zero(eta, parameters, num_new)
    if isinstance(parameters, PoweredParameters):
        return Tally(parameters.log_one_table(num_candidates, num_slots + 1), zeros)
    return Tally(log_one(eta, parameters, num_new), zeros)


def log_likelihood_of_counts(counts: Tally, table: Tally) -> Array:
    """log p(x) of a row with 0 ... J - 1 new causes, summed out: (J,) float.

    Args: counts: of the row, with the causes that it shares; table: of `count_table`.
    """
    return table.ones @ counts.ones + table.zeros @ counts.zeros


def unseen_log_odds(
    eta: Array, cells: NoisyOrCells, parameters: AnyParameters, unseen: Array | float
) -> Array:
    """Log odds that one more cause of a row is active, given x of the row: (D,) float.

    Args: eta (D,) float, active causes of the row in each column without this one; cells (D,) bool,
    of the row; unseen () how many further causes of the row are summed out.
    """
    gain_of_one = log_one(eta + 1, parameters, unseen) - log_one(eta, parameters, unseen)
    gain = jnp.where(cells.ones, gain_of_one, jnp.where(cells.zeros, parameters.log_fail, 0))
    return parameters.log_odds + gain


def block_size(num_rows: int, num_columns: int) -> int:
    """Columns that are worked on at once: what fits a cache, and all of them where they do."""
    return min(num_columns, max(1, _CELLS_A_BLOCK // num_rows))


def map_columns(
    function: Callable[[Callable[[Array], Array]], PyTree],
    num_rows: int,
    num_columns: int,
    *,
    start_value: PyTree,
) -> PyTree:
    """A function of blocks of columns, its results put side by side.

    The last block is moved back to end with the last column; what overlaps is computed twice, so
    the function must not depend on what it returned for other columns.

    Args: function: given `at`, which takes the block out of the last axis of an array, returns
    arrays whose last axis is the block.
    """
    size = block_size(num_rows, num_columns)

    def one(block: Array, result: PyTree) -> PyTree:
        start = jnp.minimum(block * size, num_columns - size)
        return jax.tree.map(
            lambda whole, piece: jax.lax.dynamic_update_slice_in_dim(
                whole, piece, start, axis=whole.ndim - 1
            ),
            result,
            function(_columns(start, size)),
        )

    return jax.lax.fori_loop(0, -(-num_columns // size), one, start_value)


def _columns(start: Array, size: int) -> Callable[[Array], Array]:
    def at(array: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(array, start, size, axis=array.ndim - 1)

    return at
