"""Checks of the settings of `SparseBinaryMF`."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxmf.arguments import check_count, check_number, check_word
from jaxmf.data import SparseBinary
from jaxmf.models.sparse_binary_mf.sparse_binary_mf_spec import SparseBinaryMFSpec
from jaxmf.variational_bayes import fit_checks
from jaxmf.variational_bayes.contracts import AscentPlan
from jaxmf.variational_bayes.epoch_zeros import resamples
from jaxmf.variational_bayes.held_out import default_num_held_out
from jaxmf.variational_bayes.newton import PartialNewtonState
from jaxmf.variational_bayes.zeros import RowSample

UPDATES = ("block", "partial_newton", "gradient")


def settings(model: SparseBinaryMFSpec) -> dict[str, object]:
    """The settings of a model, classes made objects.

    Raises:
      TypeError, ValueError: see `SparseBinaryMF`.
    """
    found = fit_checks.cell_settings(model)
    fit_checks.check_per_factor(model, "row_mean", positive=False)
    fit_checks.check_per_factor(model, "row_scale", positive=True)
    if model.row_scale is None and model.column_scale is None:
        raise ValueError(
            "row_scale and column_scale are both None: a factor may be scaled up on one side "
            "and down on the other, so learn one of them and hold the other, such as "
            "row_scale=1.0"
        )
    return found


def options(
    plan: AscentPlan, *, power: float | None, step_size: float | None, batch_size: int | None
) -> None:
    """Refuses options of the ascent: those of its plan as passed, before an optimiser is chosen.

    Raises:
      TypeError, ValueError: an option of a wrong type or out of range.
    """
    fit_checks.check_stopping(plan)
    update = check_word("update", plan.update, UPDATES)
    if plan.optimizer is not None and update not in ("partial_newton", "gradient"):
        raise ValueError(
            "optimizer is given, but block updates have none; use update='gradient', or "
            "update='partial_newton' for one that takes the curvature"
        )
    for name, value in (("power", power), ("step_size", step_size)):
        if value is None:
            continue
        check_number(name, value, above=0)
        if update != "partial_newton" or plan.optimizer is not None:
            raise ValueError(
                f"{name} is given, but only update='partial_newton' without an optimizer goes by "
                f"it; leave {name} out"
            )
    if plan.optimizer is not None and update == "partial_newton":
        _check_curvature(plan.optimizer)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if not isinstance(plan.decay, (int, float)) or not 0.5 < plan.decay <= 1:
        raise ValueError(
            "decay must lie above 1/2 and be at most 1, where decaying steps end in a minimum, "
            f"got {plan.decay!r}"
        )


def not_spread(model: SparseBinaryMFSpec, options: Mapping[str, object]) -> list[str]:
    """Settings that keep the rows of a fit from being spread over devices."""
    found = ["zeros=RowSample"] if isinstance(model.zeros, RowSample) else []
    found += [name for name in ("batch_size", "optimizer") if options.get(name) is not None]
    return found + ["update='gradient'"] * (options.get("update") == "gradient")


def hold_out(
    model: SparseBinaryMFSpec, data: SparseBinary, num_held_out: int | None, *, by_itself: bool
) -> int:
    """How many ones are held out.

    Args:
      num_held_out: as stated; None for the default.
      by_itself: whether there are neither batches nor validation.
    Raises:
      TypeError, ValueError: see `jaxmf.variational`.
    """
    if num_held_out is None:
        return default_num_held_out(data.num_ones) if by_itself and resamples(model) else 0
    num_held_out = check_count("hold_out", num_held_out, 0)
    if num_held_out and not by_itself:
        raise ValueError(
            "hold_out goes neither with batch_size nor with num_validation, which ranks ones that "
            "are left out too; state one of them"
        )
    num_able = int(np.sum(data.row_counts >= 2))
    if num_held_out > num_able:
        raise ValueError(
            f"hold_out={num_held_out}: only {num_able} rows have two ones or more, of which one "
            "can be left out; ask for at most as many"
        )
    return num_held_out


def _check_curvature(optimizer: optax.GradientTransformationExtraArgs) -> None:
    """Refuses an optax transformation that does not go by the curvature."""
    point = jnp.ones(1)
    state = optimizer.init(point)
    if any(isinstance(part, PartialNewtonState) for part in _parts(state)):
        return
    try:
        steps = [
            optimizer.update(point, state, point, curvature=scale * point, value=jnp.ones(()))[0]
            for scale in (1.0, 2.0)
        ]
    except TypeError:
        steps = [point, point]
    if steps[0] == steps[1]:
        raise ValueError(
            "optimizer takes no curvature, which update='partial_newton' gives it; write a chain "
            "with jaxmf.variational_bayes.partial_newton() in it, or update='gradient'"
        )


def _parts(state: object) -> list[object]:
    return jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, PartialNewtonState))
