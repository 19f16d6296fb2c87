"""Linear algebra that LAPACK does less well: many small problems, in a loop or at once."""

from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.types import Array

AnyArray = TypeVar("AnyArray", Array, np.ndarray)


def eliminate(matrix: Array, side: Array, corner: Array) -> tuple[Array, Array]:
    """log|A| and c - b'A^-1 b of positive definite A, by elimination without pivots.

    As a loop over columns it can be fused with what stands around it (`fusion`), which a call into
    LAPACK cannot.

    Args: matrix (..., K, K) float, A, symmetric positive definite; side (..., K) float, b; corner
    (...) float, c.
    Returns two arrays (...) float.

    Example:
      >>> log_determinant, rest = eliminate(2 * jnp.eye(2), jnp.ones(2), jnp.array(3.0))
      >>> float(rest)
      2.0
    """
    column = side[..., None]
    below = jnp.concatenate([side, corner[..., None]], axis=-1)[..., None, :]
    whole = jnp.concatenate([jnp.concatenate([matrix, column], axis=-1), below], axis=-2)

    def step(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        whole, log_determinant = carry
        line = jax.lax.dynamic_index_in_dim(whole, index, whole.ndim - 2, keepdims=False)
        pivot = jax.lax.dynamic_index_in_dim(line, index, line.ndim - 1, keepdims=True)
        whole = whole - line[..., :, None] * (line / pivot)[..., None, :]
        return whole, log_determinant + jnp.log(pivot[..., 0])

    start = (whole, jnp.zeros_like(corner))
    whole, log_determinant = jax.lax.fori_loop(0, side.shape[-1], step, start)
    return log_determinant, whole[..., -1, -1]


def first_direction(cells: AnyArray, num_steps: int) -> AnyArray:
    """The first right singular vector (J,), about, of length one, by steps of the power method.

    Of cells that are all zero it is any vector.

    Args: cells (I, J) float, numpy's or jax's, whose fourth powers stay in the range of floats.
    """
    # no data set has this very vector at a right angle to its first singular vector
    start = np.cos(np.arange(1, cells.shape[1] + 1) ** 2)
    direction = cast(AnyArray, start.astype(cells.dtype))
    for _ in range(num_steps):
        longer = cells.T @ (cells @ direction)
        length = (longer @ longer) ** 0.5
        is_zero = length == 0
        direction = longer / (length + is_zero) + is_zero * direction
    return direction


def after(value: Array, *first: Array) -> Array:
    """The value, to be had only once `first` are there.

    Batched decompositions that do not wait for each other may run at the same time on a CPU, and
    jaxlib 0.10 then waits for ever where each holds one of its threads, of which there are as many
    as cores.

    Args: value (...) float; first: floats of any shape, not empty and finite.
    """
    # floats are not folded: zero times infinity is none
    for each in first:
        value = value + jnp.zeros((), value.dtype) * each.ravel()[0]
    return value
