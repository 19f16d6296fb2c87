"""A kernel for GPUs: sums over the cells of each row of (w, e)(w, e)'.

w is the vector that a row's factors meet in a cell and e the residual of the cell, so the sums are
all that a draw of the row's factors needs of its cells. In plain JAX the vectors of all cells are
gathered, written, read for the products and these summed by row; here a program has a row, reads
the vectors of its cells some at a time and keeps the sums in registers.

A vector has a power of two of entries in a kernel, so it is taken in two pieces: 64 and 16 entries
for the 67 that 64 factors and a bias make.

Products are of single precision: each is three of tensor cores, of the leading 11 bits and of the
11 bits after these, which leave out less than 2^-21 of it. Written in Pallas for Triton and tried
on the device before it is used, as `token_draw.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import row_shards
from jaxmf._kernels.trial import try_on_device
from jaxmf.devices import default_platform
from jaxmf.programs import jit
from jaxmf.types import Array

CELLS = 32
"""Cells that a program reads at a time; chunks are best as wide."""

MOST_ENTRIES = 144
"""Sums of so many entries, with a residual, stay in registers."""

_PRECISION = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
_ROUNDING = 1e-5  # of the absolute terms of a sum
_PROGRAMS = 1_024  # about as many as a GPU runs side by side
_FEWEST_CELLS, _MOST_CELLS = 512, 4_096  # of a share
_ENTRIES = 1_024  # of the sums of a row, that a program adds up
_LEAST = 16  # entries of a piece that the tensor cores take


class CellInput(NamedTuple):
    """Inputs of the sums of R rows."""

    firsts: Array  # (R,) int32, where the cells of a row start
    ends: Array  # (R,) int32, where they end
    others: Array  # (C,) int32, the column of each cell, which is its line in the table
    cells: Array | None  # (C,) int32, where its target is; None where targets stand as cells do
    targets: Array  # (T,) float
    table: Array  # (M, E + H) float, the vectors of the lines; the last has zeros
    vectors: Array  # (R, E + H) float, of the rows; their product is the mean of a cell


def sums(inputs: CellInput, num_shared: int) -> Array:
    """Sums over the cells of each row of (w, e)(w, e)': (R, E + 1, E + 1) float.

    Args: num_shared: E, how many of the entries are of w. On a CPU it is interpreted.
    """
    num_rows, size = inputs.firsts.shape[0], num_shared + 1
    widths = pieces(inputs.table.shape[1] + 1)
    padding = ((0, 0), (0, sum(widths) - inputs.table.shape[1]))
    shares, starts = _in_shares(inputs.firsts, inputs.ends, inputs.others.shape[0])
    padded = inputs._replace(
        firsts=shares.firsts,
        ends=shares.ends,
        table=jnp.pad(inputs.table, padding),
        vectors=jnp.pad(inputs.vectors, padding),
    )
    arguments = [shares.rows, *(leaf for leaf in padded if leaf is not None)]
    num_shares = shares.rows.shape[0]
    by_share = jax.ShapeDtypeStruct((num_shares, size, size), inputs.table.dtype)
    kernel = functools.partial(_sum_share, num_shared, widths, inputs.cells is not None)
    num_warps = widths[0] // _LEAST
    found = _call(kernel, "cell_products", by_share, (num_shares,), num_warps)(*arguments)
    if num_shares == num_rows:
        return found
    flat = jax.ShapeDtypeStruct((num_shares, size**2), inputs.table.dtype)
    grid, in_place = (num_rows, -(-(size**2) // _ENTRIES)), {1: 0}
    add = _call(_add_shares, "cell_products_of_rows", flat, grid, _ENTRIES // 256, in_place)
    return add(starts, found.reshape(flat.shape))[:num_rows].reshape(num_rows, size, size)


class _Shares(NamedTuple):
    """What programs do: the first part of every row's cells, then what is left of long rows."""

    rows: Array  # (S,) int32
    firsts: Array  # (S,) int32
    ends: Array  # (S,) int32


def _in_shares(firsts: Array, ends: Array, num_cells: int) -> tuple[_Shares, Array]:
    """Rows of cells in shares of some thousand, so that no program is waited for.

    Returns the shares, and where the further ones of each row start among all, (R + 1,) int32.
    """
    num_rows = firsts.shape[0]
    most = min(_MOST_CELLS, max(_FEWEST_CELLS, num_cells // _PROGRAMS))
    num_more = num_cells // most  # as many as there can be
    more = jnp.maximum(-(-(ends - firsts) // most) - 1, 0)
    starts = num_rows + jnp.concatenate([jnp.zeros_like(more[:1]), jnp.cumsum(more)])
    share = num_rows + jnp.arange(num_more, dtype=jnp.int32)
    row = jnp.searchsorted(starts[1:], share, side="right").astype(jnp.int32)
    row = jnp.minimum(row, num_rows - 1)
    further = jnp.where(
        share < starts[-1], firsts[row] + (share - starts[row] + 1) * most, ends[row]
    )  # those that do not exist have no cells
    shares = _Shares(
        rows=jnp.concatenate([jnp.arange(num_rows, dtype=jnp.int32), row]),
        firsts=jnp.concatenate([firsts, further]),
        ends=jnp.concatenate(
            [jnp.minimum(firsts + most, ends), jnp.minimum(further + most, ends[row])]
        ),
    )
    return shares, starts.astype(jnp.int32)


def _call(
    kernel: Callable[..., None],
    name: str,
    shape: jax.ShapeDtypeStruct,
    grid: tuple[int, ...],
    num_warps: int,
    aliases: dict[int, int] | None = None,
) -> Callable[..., Array]:
    """The kernel as a function of arrays. Args: aliases: inputs that are written to."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    call = pl.pallas_call(
        kernel,
        out_shape=shape,
        grid=grid,
        input_output_aliases=aliases or {},
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=2),
        interpret=default_platform() == "cpu",
        name=name,
    )
    return row_shards.on_its_device(call)


def pieces(num_entries: int) -> tuple[int, int]:
    """The sizes of the two pieces, powers of two, that a vector is taken in."""
    first = max(_LEAST, 1 << (num_entries - 1).bit_length() - 1)
    rest = max(_LEAST, 1 << max(num_entries - first - 1, 0).bit_length())
    return first, rest


def _sum_share(
    num_shared: int, widths: tuple[int, int], has_positions: bool, *refs: jax.Ref
) -> None:
    """A program: the sums of its share of the cells of a row."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, firsts, ends, others, *positions, targets, table, vectors, found = refs
    share = pl.program_id(0)
    row, first, end = rows[share], firsts[share], ends[share]
    num_turns = jnp.maximum(end - first + CELLS - 1, 0) // CELLS
    numbers = jnp.arange(widths[0], dtype=jnp.int32), jnp.arange(widths[1], dtype=jnp.int32)
    lanes = numbers[0], widths[0] + numbers[1]
    vector = [vectors[row, lane] for lane in lanes]
    last, none = table.shape[0] - 1, targets.shape[0] - 1

    def add(turn: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        cell = first + turn * CELLS + jnp.arange(CELLS, dtype=jnp.int32)
        is_cell = cell < end
        line = triton.load(others.at[cell], mask=is_cell, other=last)
        at = cell
        if has_positions:
            at = triton.load(positions[0].at[cell], mask=is_cell, other=none)
        target = triton.load(targets.at[at], mask=is_cell, other=0.0)
        met = [table[line[:, None], lane[None, :]] for lane in lanes]
        means = sum(jnp.sum(m * v[None, :], axis=1) for m, v in zip(met, vector, strict=True))
        residual = (target - means)[:, None]
        # the pieces of (w, e), and zeros after them
        sides = [
            jnp.where(lane < num_shared, m, jnp.where(lane == num_shared, residual, 0.0))
            for lane, m in zip(lanes, met, strict=True)
        ]
        precision = jax.lax.Precision.HIGHEST if default_platform() == "cpu" else _PRECISION
        pairs = (sides[0], sides[0]), (sides[0], sides[1]), (sides[1], sides[1])
        return tuple(
            total
            + jax.lax.dot_general(
                one,
                other,
                (((0,), (0,)), ((), ())),
                precision=precision,
                preferred_element_type=jnp.float32,
            )
            for total, (one, other) in zip(carry, pairs, strict=True)
        )

    sizes = (widths[0], widths[0]), widths, (widths[1], widths[1])
    nothing = tuple(jnp.zeros(size, jnp.float32) for size in sizes)
    first_first, first_rest, rest_rest = jax.lax.fori_loop(0, num_turns, add, nothing)

    def put(rows: Array, columns: Array, value: Array) -> None:
        inside = (rows[:, None] <= num_shared) & (columns[None, :] <= num_shared)
        triton.store(found.at[share, rows[:, None], columns[None, :]], value, mask=inside)

    put(lanes[0], lanes[0], first_first)
    put(lanes[0], lanes[1], first_rest)
    put(lanes[1], lanes[0], first_rest.T)
    put(lanes[1], lanes[1], rest_rest)


def _add_shares(starts: jax.Ref, _: jax.Ref, found: jax.Ref) -> None:
    """A program: some entries of the sums of a row, those of its further shares added."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    row, start, end = pl.program_id(0), starts[pl.program_id(0)], starts[pl.program_id(0) + 1]
    entry = pl.program_id(1) * _ENTRIES + jnp.arange(_ENTRIES, dtype=jnp.int32)
    is_entry = entry < found.shape[1]

    def read(share: Array) -> Array:
        return triton.load(found.at[share, entry], mask=is_entry, other=0.0)

    total = jax.lax.fori_loop(start, end, lambda share, sum_: sum_ + read(share), read(row))
    triton.store(found.at[row, entry], total, mask=is_entry)


# --- whether it is right on a device --------------------------------------------------------------


def trouble(platform: str, num_entries: int) -> str:
    """Why the kernel is not to be used for sums of so many entries: empty where it is right.

    Compiled and run once a process on the first device of the platform, for one chain and for two
    by `vmap`.
    """
    if platform != "gpu":
        return f"it is for GPUs, and this is a {platform}"
    if num_entries > MOST_ENTRIES:
        return f"it takes vectors of {MOST_ENTRIES - 1} entries at most"
    if jnp.result_type(float) != jnp.float32:
        return "it is for single precision"
    if jax.process_count() > 1:
        return "the devices of several processes may not all compile it alike"
    return _tried(platform, num_entries)


@functools.cache
def _tried(platform: str, num_entries: int) -> str:
    def what_is_wrong() -> str:
        error = largest_error(num_entries)
        return "" if error <= _ROUNDING else f"its sums are wrong by {error:.1g} of their terms"

    return try_on_device(platform, what_is_wrong)


def largest_error(num_entries: int) -> float:
    """The largest error of a sum of two trials, alone and together, over that of absolute terms."""
    num_shared = max(num_entries - 2, 1)
    first, second = (trial(num_entries - 1, seed) for seed in (0, 1))
    pairs = [np.stack(pair) for pair in zip(first[4:], second[4:], strict=True)]

    def both(alone: list[Array], pairs: list[Array]) -> tuple[Array, Array]:
        of_chains = jax.vmap(lambda *varying: sums(CellInput(*alone[:4], *varying), num_shared))
        return sums(CellInput(*alone), num_shared), of_chains(*pairs)

    alone, together = jit(both)(first, pairs)
    found = (first, alone), (first, together[0]), (second, together[1])
    return max(_error(problem, num_shared, np.asarray(sums)) for problem, sums in found)


def _error(problem: list[np.ndarray], num_shared: int, found: np.ndarray) -> float:
    """As `largest_error`, of what was found for a problem."""
    largest = 0.0
    firsts, ends, others, cells = problem[:4]
    targets, table, vectors = (part.astype(float) for part in problem[4:])
    for row, (start, end) in enumerate(zip(firsts, ends, strict=True)):
        met, target = table[others[start:end]], targets[cells[start:end]]
        terms = np.c_[target, -met * vectors[row]]
        sides = [np.c_[met[:, :num_shared], terms.sum(1)]]
        sides += [np.abs(np.c_[met[:, :num_shared], np.abs(terms).sum(1)])]
        exact, whole = (side.T @ side for side in sides)
        errors = np.abs(found[row] - exact) / np.maximum(whole, np.finfo(np.float32).tiny)
        largest = max(largest, float(np.nan_to_num(errors, nan=np.inf).max()))
    return largest


def trial(size: int, seed: int) -> list[np.ndarray]:
    """A small problem with vectors of a size; of two seeds the cells are the same.

    Rows of no cell, of one, of a few and of so many that programs share them, in chunks of four.

    Returns what a `CellInput` has.
    """
    counts, num_lines, width = np.asarray([3, 0, 1, 2 * _FEWEST_CELLS + 301, 1, 0, 40]), 6, 4
    varying, shared = np.random.default_rng(seed), np.random.default_rng(7)
    ends = width * np.cumsum(-(-counts // width))
    firsts = np.r_[0, ends[:-1]]
    others, cells = np.full(ends[-1], num_lines), np.full(ends[-1], counts.sum())
    at = np.concatenate([np.arange(f, f + n) for f, n in zip(firsts, counts, strict=True)])
    others[at] = shared.integers(0, num_lines, counts.sum())
    cells[at] = shared.permutation(counts.sum())
    targets = np.r_[varying.normal(size=counts.sum()), 0]
    table = np.r_[varying.normal(size=(num_lines, size)), np.zeros((1, size))]
    vectors = varying.normal(size=(counts.size, size))
    whole, real = (firsts, ends, others, cells), (targets, table, vectors)
    return [*(each.astype(np.int32) for each in whole), *(each.astype(np.float32) for each in real)]
