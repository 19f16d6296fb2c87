"""Batches of rows: columns follow scaled sums over a few rows with steps that decay.

At step t the factors of a batch of rows are updated as ever; what the columns and the bias would be
by the sums over that batch, scaled up to all rows, they approach by a share rho_t = (1 + t)^-kappa,
which by the conditions of Robbins and Monro ends in a minimum.

Source: Hoffman, Blei & Bach (2010), Online learning for latent Dirichlet allocation; the paper on
sparse binary matrices leaves it to future work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.types import Array, Key
from jaxmf.variational import updates as closed
from jaxmf.variational.parameters import Normal, Parameters, half, with_half
from jaxmf.variational.pieces import CHUNK_PIECES, Layout, Pieces, lay_out
from jaxmf.variational.sums import Sums, side_sums
from jaxmf.variational.zeros import draw_zeros


class Batches(NamedTuple):
    """Rows in batches of one size.

    Attributes:
      rows: (M, B) int32; the last batch is filled up with rows of the first.
      layouts: `Layout` of each batch, stacked: (M, ...).
    """

    rows: Array
    layouts: Layout


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
        place = np.full(shape[0], -1)
        place[chosen] = np.arange(batch_size)
        kept, gaps = place[rows] >= 0, place[missing[0]] >= 0
        layouts.append(
            lay_out(
                place[rows[kept]],
                columns[kept],
                shape=(batch_size, shape[1]),
                missing=(place[missing[0][gaps]], missing[1][gaps]) if missing[0].size else None,
                chunk_pieces=CHUNK_PIECES,
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
            place=level([part.place for part in parts]),
            line=jnp.stack([_fill(part.line, longest, num_lines) for part in parts]),
            number=level([part.number for part in parts]),
        )

    def table(parts: list[Any]) -> Any:
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


def one_pass(
    model: Any, key: Key, parameters: Parameters, batches: Batches, *, first: Array, decay: Array
) -> Parameters:
    """One pass over all batches.

    Args:
      model: its description.
      key: typed PRNG key, of the samples of zeros.
      parameters: as they are.
      batches: see `Batches`.
      first: () int32, steps done before.
      decay: () float, kappa, between 1/2 and 1.
    """

    def one_batch(carry: tuple[Parameters, Array], batch: Batches) -> tuple[Any, None]:
        parameters, step = carry
        share = (1 + step).astype(parameters.noise.dtype) ** -decay
        # by the place of the batch: samples that stay the same do so from epoch to epoch
        key_here = jax.random.fold_in(key, step - first)
        return (_update(model, key_here, parameters, batch, share), step + 1), None

    (parameters, _), _ = jax.lax.scan(one_batch, (parameters, first), batches)
    return parameters


def _update(
    model: Any, key: Key, parameters: Parameters, batch: Batches, share: Array
) -> Parameters:
    """The rows of a batch, then columns and bias a share of the way."""
    whole, rows, layout = parameters, batch.rows, batch.layouts
    part = jax.tree.map(lambda leaf: leaf[rows], (whole.rows, whole.row_offset))
    here = whole._replace(rows=part[0], row_offset=part[1])
    scale = whole.rows.mean.shape[0] / rows.shape[0]
    for place, side in enumerate(("rows", "columns")):
        table = (layout.rows, layout.columns)[place]
        view = half(here, side)
        sums = side_sums(
            view,
            table,
            draw_zeros(jax.random.fold_in(key, place), model.zeros, table),
            likelihood=model.likelihood,
            noise=here.noise,
            block=True,
        )
        of_all = scaled(sums, scale)
        # a row has all of its cells in the batch, a column has not
        sums, step = (sums, jnp.ones_like(share)) if side == "rows" else (of_all, share)
        if model.offsets != "none":
            wanted = closed.new_bias(view, of_all, here.priors.bias)
            view, sums = closed.after_bias(view, sums, _approach(view.bias, wanted, share))
        found = closed.slopes(view, sums, block=True)
        wanted = Normal(
            view.mine.mean - closed.newton_step(view, sums, found),
            closed.new_variances(view, found),
        )
        mine = _approach(view.mine, wanted, step)
        here = with_half(here, side, mine, view.bias)

    def put_back(old: Array, new: Array) -> Array:
        return old.at[rows].set(new)

    before, after = (whole.rows, whole.row_offset), (here.rows, here.row_offset)
    factors, offset = jax.tree.map(put_back, before, after)
    return here._replace(rows=factors, row_offset=offset)


def scaled(sums: Sums, scale: float) -> Sums:
    """Sums over a batch as an estimate of those over all rows."""
    return Sums(*(scale * part for part in sums))


def _approach(old: Normal, wanted: Normal, share: Array) -> Normal:
    """Means, and precisions, a share of the way; a variance of zero stays."""
    held = wanted.variance == 0
    precision = (1 - share) / jnp.where(held, 1, old.variance)
    precision += share / jnp.where(held, 1, wanted.variance)
    return Normal(
        mean=old.mean + share * (wanted.mean - old.mean),
        variance=jnp.where(held, 0, 1 / precision),
    )
