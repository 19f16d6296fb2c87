"""Which zeros an epoch goes through, and how far its steps go where they are drawn anew."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.types import Array, Key
from jaxmf.variational_bayes.contracts import AscentPlan, CellSettings
from jaxmf.variational_bayes.pieces import Layout, num_others
from jaxmf.variational_bayes.state import AscentState
from jaxmf.variational_bayes.zeros import All, Exact, Zeros, draw_shared, draw_zeros

LAST_STEP = 0.2


class EpochZeros(NamedTuple):
    """The zeros that the sums of one epoch go through."""

    key: Key  # typed PRNG key, of the samples of this epoch
    by_side: tuple[Zeros, Zeros]  # in the sums of the rows, and in those of the columns
    evaluation: Zeros  # of the free energy that is watched, the same in every epoch


def choose_zeros(
    plan: AscentPlan, settings: CellSettings, key: Key, *, state: AscentState, layout: Layout
) -> EpochZeros:
    """The zeros of an epoch.

    Args: plan: has `num_evaluation`; settings: a model's description: its `zeros` and `likelihood`;
    state: whose `sample_key` serves samples that stay the same.
    """
    fixed_key = jax.random.wrap_key_data(state.sample_key, impl=jax.random.key_impl(key))
    draw_key = key if resamples(settings) else fixed_key
    zeros = (
        draw_zeros(jax.random.fold_in(draw_key, 0), settings.zeros, layout.rows),
        draw_zeros(jax.random.fold_in(draw_key, 1), settings.zeros, layout.columns, over_rows=True),
    )
    if isinstance(settings.likelihood, Gaussian) or isinstance(settings.zeros, Exact):
        return EpochZeros(draw_key, zeros, All())
    num_samples = min(plan.num_evaluation, num_others(layout.rows))
    evaluation = draw_shared(jax.random.fold_in(fixed_key, 2), layout.rows, num_samples)
    return EpochZeros(draw_key, zeros, evaluation)


def resamples(settings: CellSettings) -> bool:
    """Whether zeros are drawn anew in every epoch."""
    return not isinstance(settings.zeros, Exact) and settings.zeros.resample


def lateness(plan: AscentPlan, settings: CellSettings, state: AscentState) -> Array:
    """How far the second half of the epochs is, 0 to 1, where zeros are drawn anew; otherwise 0.

    Steps shorten with it, so that the means become averages over the samples of many epochs.
    """
    share = 2 * state.epoch.astype(state.free_energy.dtype) / plan.num_epochs - 1
    return jnp.clip(share, 0, 1) if resamples(settings) else jnp.zeros_like(share)
