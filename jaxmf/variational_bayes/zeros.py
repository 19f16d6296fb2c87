"""Which zeros a sum over the zeros goes through: all, one sample for all lines, or one a line.

With weights c_j whose mean is one,

    sum over the zeros of f = sum_j c_j f(x_ij = -1) - sum over the ones of c_j f(x_ij = -1)

in expectation, so a sample of columns shared by all rows needs no masks and turns into products of
matrices; the second sum goes through the ones, which are gone through anyway. Missing cells are
left out in the same way.

Samples are stratified: n strata of (nearly) equal size, one draw of each, weighted by the size. A
sample of everything is everything, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jaxmf import row_shards
from jaxmf.arguments import check_count, check_flag
from jaxmf.readable import Readable
from jaxmf.types import Array, Key
from jaxmf.variational_bayes.pieces import PieceTable, num_lines, num_others

# beyond it indices of samples would not be exact in 32 bits
MAX_SAMPLES = 2**24


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Exact(Readable):
    """All zeros: in the time of the ones for Gaussian cells, by blocks of products for others."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class SharedSample(Readable):
    """One sample of columns for all rows, and one of rows for all columns.

    Strata are of columns with similar numbers of ones.

    Args:
      num_samples: how many lines; where a side has fewer, all of them are taken.
      resample: whether to draw anew every epoch.
    """

    num_samples: int
    resample: bool = True

    def __post_init__(self) -> None:
        _check(self)


@jax.tree_util.register_static
@dataclass(frozen=True)
class RowSample(Readable):
    """Zeros sampled for every row, and for every column, by itself, as in the paper.

    The rows' samples and the columns' belong to two objectives, so no one free energy descends.

    Args:
      num_samples: zeros of each line; where a line has fewer, all of them are taken.
      resample: whether to draw anew every epoch; the paper keeps the first.
    """

    num_samples: int
    resample: bool = False

    def __post_init__(self) -> None:
        _check(self)


def _check(zeros: SharedSample | RowSample) -> None:
    name, num_samples = type(zeros).__name__, zeros.num_samples
    num_samples = check_count(f"{name}: num_samples", num_samples)
    if num_samples > MAX_SAMPLES:
        raise ValueError(
            f"{name}: num_samples must lie between 1 and {MAX_SAMPLES}, got {num_samples}; "
            "mf.Exact() takes all zeros"
        )
    check_flag(f"{name}: resample", zeros.resample)


ZerosSpec: TypeAlias = Exact | SharedSample | RowSample


class All(NamedTuple):
    """Every zero."""


class Shared(NamedTuple):
    """Others that stand for all, for every line."""

    indices: Array  # (n,) int32
    weight: Array  # (n,) float, c at these; it sums to the number of others


class PerLine(NamedTuple):
    """Zeros of each line that stand for all of its zeros."""

    indices: Array  # (N, n) int32
    weight: Array  # (N, n) float; it sums to the number of zeros of the line


Zeros = All | Shared | PerLine


def draw_zeros(key: Key, spec: ZerosSpec, table: PieceTable, *, over_rows: bool = False) -> Zeros:
    """The zeros that a sum seen from one side goes through.

    Args: over_rows: whether the others are rows, which may be spread over devices.
    """
    if isinstance(spec, Exact):
        return All()
    if isinstance(spec, SharedSample):
        return draw_shared(key, table, spec.num_samples, over_rows=over_rows)
    return _draw_per_line(key, table, spec.num_samples)


def draw_shared(
    key: Key, table: PieceTable, num_samples: int, *, over_rows: bool = False
) -> Shared:
    """A stratified sample of the others, in strata of similar numbers of ones."""
    num_all = num_others(table) * (row_shards.num_shares() if over_rows else 1)
    rank, weight = _strata(key, jnp.asarray(num_all, jnp.int32), min(num_samples, num_all))
    order = table.order
    indices = row_shards.rows_of_all(order, rank) if over_rows else order[rank]
    return Shared(indices=indices, weight=weight)


def _draw_per_line(key: Key, table: PieceTable, num_samples: int) -> PerLine:
    """Zeros of every line by their rank among its zeros, which needs no rejection."""
    num_zeros = num_others(table) - jnp.diff(table.starts)
    num_samples = min(num_samples, num_others(table))
    keys = jax.vmap(lambda line: jax.random.fold_in(key, line))(jnp.arange(num_lines(table)))
    rank, weight = jax.vmap(lambda key, size: _strata(key, size, num_samples))(keys, num_zeros)
    index = jax.vmap(partial(_zero_of_rank, table.taken))(rank, table.starts[:-1], table.starts[1:])
    return PerLine(indices=jnp.where(weight > 0, index, 0), weight=weight)


def _strata(key: Key, size: Array, num_samples: int) -> tuple[Array, Array]:
    """One of each of n strata of 0..size-1, and the strata's sizes, (n,) int32 and (n,) float.

    The first strata are larger by one; with fewer members than strata the last are empty.
    """
    stratum = jnp.arange(num_samples, dtype=jnp.int32)
    quotient, remainder = size // num_samples, size % num_samples
    start = stratum * quotient + jnp.minimum(stratum, remainder)
    width = quotient + (stratum < remainder)
    uniform = jax.random.uniform(key, (num_samples,))
    step = jnp.minimum((uniform * width).astype(jnp.int32), jnp.maximum(width - 1, 0))
    return jnp.minimum(start + step, jnp.maximum(size - 1, 0)), width.astype(uniform.dtype)


def _zero_of_rank(taken: Array, rank: Array, start: Array, end: Array) -> Array:
    """The zeros of a line that have `rank` (n,) zeros before them.

    Of the cells that are taken, the one at position t has taken[t] - t zeros before it; the zero of
    rank r stands behind the first ones for which that is at most r.
    """

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) // 2
        cell = taken[jnp.minimum(middle, taken.shape[0] - 1)]
        before = (middle < high) & (cell - (middle - start) <= rank)
        return jnp.where(before, middle + 1, low), jnp.where(before, high, middle)

    steps = max(1, int(taken.shape[0]).bit_length() + 1)
    low = jnp.broadcast_to(start, rank.shape)
    high = jnp.broadcast_to(end, rank.shape)
    low, _ = jax.lax.fori_loop(0, steps, halve, (low, high))
    return rank + (low - start)


def weights_of_others(
    zeros: Zeros, table: PieceTable, dtype: DTypeLike, *, over_rows: bool = False
) -> Array:
    """c (D,) float: how often each of the others is counted among the zeros of every line.

    Args: over_rows: whether the others are rows; of rows over devices, c of those of this device.
    """
    if isinstance(zeros, All):
        return jnp.ones((num_others(table),), dtype)
    nothing = jnp.zeros((num_others(table),), dtype)
    if isinstance(zeros, PerLine):
        return nothing
    indices, weight = zeros.indices, zeros.weight.astype(dtype)
    if not (over_rows and row_shards.is_share()):
        return nothing.at[indices].set(weight)
    here = indices - row_shards.first_row(nothing.shape[0])
    outside = nothing.shape[0]  # where a negative index would count from the end
    return nothing.at[jnp.where(here < 0, outside, here)].set(weight, mode="drop")
