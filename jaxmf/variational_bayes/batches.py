"""Rows of a matrix cut into batches of one size and laid out; `batch_pass.py` goes through them."""

from __future__ import annotations

from typing import NamedTuple

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
    """Rows of a matrix cut into random batches, on the host; arguments as of `lay_out`."""
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
    return Batches(jnp.asarray(members, jnp.int32), _stack(layouts))


def _stack(layouts: list[Layout]) -> Layout:
    """Layouts of one shape as one, filled up with empty pieces."""

    def level(leaves: list[Array]) -> Array:
        longest = max(leaf.shape[0] for leaf in leaves)
        return jnp.stack([_fill(leaf, longest, 0) for leaf in leaves])

    def pieces(parts: list[Pieces], num_lines: int) -> Pieces:
        longest = max(part.line.shape[0] for part in parts)
        return Pieces(
            indices=level([part.indices for part in parts]),
            line=jnp.stack([_fill(part.line, longest, num_lines) for part in parts]),
            counts=level([part.counts for part in parts]),
        )

    def table(parts: list[PyTree]) -> PyTree:
        num_lines = parts[0].starts.shape[0] - 1
        gaps = [part.missing for part in parts]
        return parts[0]._replace(
            ones=pieces([part.ones for part in parts], num_lines),
            missing=None if gaps[0] is None else pieces(gaps, num_lines),
            starts=jnp.stack([part.starts for part in parts]),
            taken=level([part.taken for part in parts]),
            order=jnp.stack([part.order for part in parts]),
        )

    return Layout(
        rows=table([layout.rows for layout in layouts]),
        columns=table([layout.columns for layout in layouts]),
        num_ones=jnp.stack([layout.num_ones for layout in layouts]),
        num_observed=jnp.stack([layout.num_observed for layout in layouts]),
    )


def _fill(leaf: Array, length: int, value: int) -> Array:
    padding = [(0, length - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, padding, constant_values=value)
