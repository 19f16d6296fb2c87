"""Rows of a matrix cut into batches of one size and laid out; `batch_pass.py` goes through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.devices import block_size
from jaxmf.types import Array, PyTree
from jaxmf.variational_bayes.pieces import Layout, Pieces, lay_out


class Batches(NamedTuple):
    """Rows in batches of one size."""

    rows: Array  # (M, B) int32; the last batch is filled up with rows of the first
    layouts: Layout  # `Layout` of each batch, stacked: (M, ...)


def make(
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    shape: tuple[int, int],
    missing: tuple[np.ndarray, np.ndarray],
    batch_size: int,
    generator: np.random.Generator,
) -> Batches:
    """Rows of a matrix cut into random batches, on the host; arguments as in `lay_out`."""
    order = generator.permutation(shape[0])
    num_batches = -(-shape[0] // batch_size)
    members = order[np.arange(num_batches * batch_size) % shape[0]].reshape(num_batches, -1)
    layouts = []
    for chosen in members:
        index = np.full(shape[0], -1)
        index[chosen] = np.arange(batch_size)
        kept, gaps = index[rows] >= 0, index[missing[0]] >= 0
        layouts.append(
            lay_out(
                index[rows[kept]],
                columns[kept],
                shape=(batch_size, shape[1]),
                missing=(index[missing[0][gaps]], missing[1][gaps]) if missing[0].size else None,
                chunk_pieces=block_size("sparse pieces"),
            )
        )
    return Batches(jnp.asarray(members, jnp.int32), jax.tree.map(jnp.asarray, stack(layouts)))


def stack(layouts: list[Layout], largest: Callable[[int], int] = int) -> Layout:
    """Layouts of one shape as one of numpy's arrays, filled up with empty pieces.

    Args: largest: of a length, where others stack layouts to the same one.
    """

    def level(leaves: list[Array], value: int = 0) -> PyTree:
        longest = largest(max(leaf.shape[0] for leaf in leaves))
        return np.stack([fill(leaf, longest, value) for leaf in leaves])

    def pieces(parts: list[Pieces], num_lines: int) -> Pieces:
        return Pieces(
            indices=level([part.indices for part in parts]),
            line=level([part.line for part in parts], num_lines),
            counts=level([part.counts for part in parts]),
        )

    def table(parts: list[PyTree]) -> PyTree:
        num_lines = parts[0].starts.shape[0] - 1
        gaps = [part.missing for part in parts]
        return parts[0]._replace(
            ones=pieces([part.ones for part in parts], num_lines),
            missing=None if gaps[0] is None else pieces(gaps, num_lines),
            starts=np.stack([part.starts for part in parts]),
            taken=level([part.taken for part in parts]),
            order=np.stack([part.order for part in parts]),
        )

    return Layout(
        rows=table([layout.rows for layout in layouts]),
        columns=table([layout.columns for layout in layouts]),
        num_ones=level([layout.num_ones[None] for layout in layouts])[:, 0],
        num_observed=level([layout.num_observed[None] for layout in layouts])[:, 0],
    )


def fill(leaf: Array | np.ndarray, length: int, value: int) -> PyTree:
    """An array (n, ...) filled up to a length with a value."""
    padding = [(0, length - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
    return np.pad(np.asarray(leaf), padding, constant_values=value)
