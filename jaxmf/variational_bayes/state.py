"""What an ascent carries from epoch to epoch, and the data in the form it needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.types import Array, Draw, PyTree, Seed, is_key
from jaxmf.variational_bayes import batches
from jaxmf.variational_bayes.batches import Batches
from jaxmf.variational_bayes.held_out import HeldOut, Unknowing, choose, leave_out
from jaxmf.variational_bayes.parameters import Normal, Parameters, Priors
from jaxmf.variational_bayes.pieces import Layout, lay_out
from jaxmf.variational_bayes.shares import SharedOnes, lay_out_shares, lay_out_shares_of_processes


class Validation(NamedTuple):
    """Rows that lost one of their ones, to be ranked among what they do not have."""

    row: Array  # (V,) int32
    column: Array  # (V,) int32, the one it lost
    known: Array  # (V, M) int32, its other ones; the number of columns in the padding


class PreparedOnes(NamedTuple):
    """The data of an ascent."""

    layout: Layout  # the matrix; those of a series below each other
    validation: Validation | None  # see `Validation`; None without
    batches: Batches | None = None  # see `Batches`; None without
    # (T, T) float, how far apart the times of a series are; None for one matrix
    gaps: Array | None = None
    held_out: HeldOut | None = None  # see `HeldOut`; None without


class Best(NamedTuple):
    """Parameters of the best validation score, for an ascent that was validated."""

    parameters: object  # see `jaxmf.variational_bayes.Parameters`
    free_energy: Array  # () float, theirs
    score: Array  # () float, their validation score


class AscentState(NamedTuple):
    """The state of an ascent."""

    parameters: Any  # see `jaxmf.variational_bayes.Parameters`, or those of a series
    best: Best | None  # see `Best`; None without validation
    optimizer: Any  # states of optax transformations, or None
    sample_key: Array  # (W,) uint32, words of the key of samples that stay the same
    epoch: Array  # () int32, epochs done
    free_energy: Array  # () float, as evaluated last
    score: Array  # () float, validation score as evaluated last; zero without validation
    stalled: Array  # () int32, evaluations without progress, one after the other
    done: Array  # () bool; the remaining epochs change nothing
    unknowing: Unknowing | None = None  # see `Unknowing`; None where no ones are held out


def prepare(
    data: SparseBinary,
    *,
    num_validation: int,
    batch_size: int | None,
    seed: Seed,
    hold_out: int = 0,
    num_devices: int = 1,
) -> PyTree:
    """Data laid out, and one of the ones of some rows taken away as if it had not been observed.

    Args:
      num_validation: rows that lose a one; at most the rows with two or more.
      batch_size: rows of a batch; None for no batches.
      hold_out: rows that lose a one until most of the epochs are done; see `held_out`.
      num_devices: of how many each is to have its rows, without batches.
    Returns:
      `PreparedOnes`, or of several devices `SharedOnes`.
    Raises:
      ValueError: fewer rows have two ones, or the devices cannot have equally many rows.
    """
    words = np.asarray(jax.random.key_data(seed)) if is_key(seed) else [int(seed) % 2**64]
    generator = np.random.default_rng([*np.ravel(words).tolist(), 7])
    if data.elsewhere is not None:
        if num_validation:
            raise ValueError(
                "num_validation: the rows lie in several processes, which do not rank them; leave "
                "it out, or hold ones out (hold_out=)"
            )
        index = choose(data.row_counts, num_held_out=hold_out, generator=generator)
        layout, held_out = lay_out_shares_of_processes(
            data, held_out=index, num_devices=num_devices
        )
        return SharedOnes(PreparedOnes(layout, None, held_out=held_out), num_devices)
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    gaps, validation = data.missing_cells(), None
    if num_validation:
        validation, index = _take_away(data, num_validation, generator)
        gaps = np.append(gaps[0], rows[index]), np.append(gaps[1], columns[index])
        rows, columns = np.delete(rows, index), np.delete(columns, index)
    batched = None
    if batch_size is not None:
        batched = batches.make(
            rows,
            columns,
            shape=data.shape,
            missing=gaps,
            batch_size=min(batch_size, data.num_rows),
            generator=generator,
        )
    index = np.zeros(0, int)
    if hold_out:
        counts = np.bincount(rows, minlength=data.num_rows)
        index = choose(counts, num_held_out=hold_out, generator=generator)
    cells: dict[str, Any] = {"shape": data.shape, "missing": gaps}
    if num_devices > 1:
        cells |= {"held_out": index, "num_devices": num_devices}
        layout, held_out = lay_out_shares(rows, columns, **cells)
        return SharedOnes(PreparedOnes(layout, validation, held_out=held_out), num_devices)
    layout, held_out = lay_out(rows, columns, **cells), None
    if index.size:
        layout, held_out = leave_out(layout, rows[index], columns[index])
    return PreparedOnes(layout, validation, batched, held_out=held_out)


def _take_away(
    data: SparseBinary, num_taken: int, generator: np.random.Generator
) -> tuple[Validation, np.ndarray]:
    """Validation rows, and where among the ones those lie that they lost."""
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    counts = np.bincount(rows, minlength=data.num_rows)
    able = np.flatnonzero(counts >= 2)
    if able.size < num_taken:
        raise ValueError(
            f"num_validation={num_taken}: only {able.size} rows have two ones or more, of "
            "which one can be taken away; ask for at most as many"
        )
    chosen = np.sort(generator.choice(able, num_taken, replace=False))
    starts = np.searchsorted(rows, np.arange(data.num_rows))
    index = starts[chosen] + generator.integers(0, counts[chosen])
    known = np.full((num_taken, int(counts[chosen].max()) - 1), data.num_columns)
    for line, row in enumerate(chosen):
        cells_of_row = np.arange(starts[row], starts[row] + counts[row])
        others = columns[cells_of_row[cells_of_row != index[line]]]
        known[line, : others.size] = others
    parts = (jnp.asarray(part, jnp.int32) for part in (chosen, columns[index], known))
    return Validation(*parts), index


def as_draw(parameters: Parameters) -> Draw:
    """Parameters as a draw keeps them, by name."""
    p = parameters
    named = {"row": p.rows, "column": p.columns, "row_bias": p.row_bias}
    named |= {"column_bias": p.column_bias, "intercept": p.intercept}
    draw = {}
    for name, normal in named.items():
        if normal is not None:
            is_scalar = name.endswith(("bias", "intercept"))
            draw[name if is_scalar else f"{name}_mean"] = normal.mean
            draw[f"{name}_variance"] = normal.variance
    for name, prior in (("row", p.priors.rows), ("column", p.priors.columns)):
        draw |= {f"{name}_prior_mean": prior.mean, f"{name}_prior_scale": jnp.sqrt(prior.variance)}
    if p.row_bias is not None:
        draw["row_bias_prior_scale"] = jnp.sqrt(p.priors.row_bias)
        draw["column_bias_prior_scale"] = jnp.sqrt(p.priors.column_bias)
    scales = {
        "intercept_prior_scale": jnp.sqrt(p.priors.intercept),
        "noise_scale": jnp.sqrt(p.noise),
    }
    return draw | scales


def from_draw(draw: Draw) -> Parameters:
    """The parameters that `as_draw` wrote down."""

    def normal(name: str, mean: str) -> Normal:
        return Normal(jnp.asarray(draw[mean]), jnp.asarray(draw[f"{name}_variance"]))

    def square(name: str) -> Array:
        return jnp.asarray(draw[name]) ** 2

    def prior(name: str) -> Normal:
        return Normal(jnp.asarray(draw[f"{name}_mean"]), square(f"{name}_scale"))

    intercept_prior = square("intercept_prior_scale")
    has_biases = "row_bias" in draw
    return Parameters(
        rows=normal("row", "row_mean"),
        columns=normal("column", "column_mean"),
        row_bias=normal("row_bias", "row_bias") if has_biases else None,
        column_bias=normal("column_bias", "column_bias") if has_biases else None,
        intercept=normal("intercept", "intercept"),
        priors=Priors(
            rows=prior("row_prior"),
            columns=prior("column_prior"),
            row_bias=square("row_bias_prior_scale") if has_biases else intercept_prior,
            column_bias=square("column_bias_prior_scale") if has_biases else intercept_prior,
            intercept=intercept_prior,
        ),
        noise=square("noise_scale"),
    )
