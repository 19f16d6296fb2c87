"""The partial-Newton step as an optax transformation that takes the curvature."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxmf.arguments import check_number
from jaxmf.types import Array, PyTree


class PartialNewtonState(NamedTuple):
    """State of a partial-Newton search."""

    step_size: Array  # () float, gamma
    value: Array  # () float, the objective at the last step that passed it


# one object for one setting, so that a second fit finds the program of the first
@cache
def partial_newton(
    power: float = 1.0,
    step_size: float = 0.5,
    *,
    shrink: float = 0.5,
    growth: float = 1.05,
    max_step_size: float = 1.0,
) -> optax.GradientTransformationExtraArgs:
    """Updates -gamma h^(-alpha) g from gradients g and the diagonal h of second derivatives.

    The update function takes `curvature`, a pytree like the gradients, and may be passed the
    objective as `value`: gamma then shrinks where it rose and grows where it fell. Chains with any
    other optax transformation; scale-free ones are best put after it.

    Args:
      power: alpha; 0 is gradient descent, 1 diagonal Newton.
      shrink: factor of gamma where the objective rose; 1 for none.
      growth: factor of gamma where it did not.
    Returns:
      An optax transformation with extra arguments.
    Raises:
      ValueError: a setting out of its range.

    Reference:
      T. Raiko, A. Ilin and J. Karhunen, Principal component analysis for large scale problems with
      lots of missing values (2007).
    Example:
      >>> step = partial_newton(step_size=1.0)
      >>> x = jnp.array([3.0])
      >>> update, _ = step.update(4 * x, step.init(x), x, curvature=jnp.array([4.0]))
      >>> optax.apply_updates(x, update).tolist()
      [0.0]
    """
    check_number("power", power, least=0, most=1)
    check_number("step_size", step_size, above=0)
    check_number("shrink", shrink, above=0, most=1)
    check_number("growth", growth, least=1)
    check_number("max_step_size", max_step_size, least=step_size)

    def init(params: PyTree) -> PartialNewtonState:
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return PartialNewtonState(
            step_size=jnp.asarray(step_size, dtype), value=jnp.asarray(jnp.finfo(dtype).max, dtype)
        )

    def update(
        updates: PyTree,
        state: PartialNewtonState,
        params: PyTree = None,
        *,
        curvature: PyTree,
        value: Array | None = None,
        **others: object,
    ) -> tuple[PyTree, PartialNewtonState]:
        del params, others
        if value is not None:
            known = jnp.asarray(value, state.value.dtype)
            rose = known > state.value
            factor = jnp.where(rose, shrink, jnp.where(known < state.value, growth, 1.0))
            state = PartialNewtonState(
                step_size=jnp.minimum(state.step_size * factor, max_step_size).astype(
                    state.step_size.dtype
                ),
                value=known,
            )

        def scale(gradient: Array, second: Array) -> Array:
            return -state.step_size * second ** (-power) * gradient

        return jax.tree.map(scale, updates, curvature), state

    return optax.GradientTransformationExtraArgs(init, update)
