"""An annealed start of chains: a weak signal first, few features at a time.

During the first three quarters of the warm-up a factor rises geometrically from a fifth to one.
Models of features of rows alone show their sweeps the scale of the weights times the factor; those
of features of rows and columns the scale of the noise divided by it. What either gains over a plain
start: `ibp/split-merge` and `binary-mf/start` in benchmarks/results. Only at one is the posterior
left invariant.
"""

import jax.numpy as jnp

from jaxmf.priors.hyper import Hyperparameter, is_fixed
from jaxmf.types import Array

ANNEALED_START = 0.2
_SHARE = 0.75


def annealed_factor(progress: Array, start: Array | float = ANNEALED_START) -> Array:
    """The factor on the strength of the signal.

    Args:
      progress: () float, the share of the warm-up that is over.
      start: () float, the factor at progress 0, above 0 and at most 1.

    Returns:
      () float, of the dtype of `progress`; one from three quarters of the warm-up on.
    """
    share = jnp.clip(progress / _SHARE, 0, 1)
    return jnp.exp((1 - share) * jnp.log(jnp.asarray(start, share.dtype)))


def is_annealed(progress: Array) -> Array:
    """() bool, whether the annealing lasts at this share of the warm-up, () float."""
    return progress < _SHARE


def hold_while_annealed(progress: Array, held: Array, free: Array) -> Array:
    """The scale of the weights after its update: `held`, its value before, while annealing lasts.

    A scale that followed the current features would shrink with them and let their number
    run away; it waits for the end of the annealing.

    Args:
      progress: () float, the share of the warm-up that is over.
      held, free: () float, the scale before and after its update.
    """
    return jnp.where(is_annealed(progress), held, free)


def noise_while_annealed(
    progress: Array, prior: Hyperparameter, free: Array, start: Array
) -> Array:
    """The scale of the noise after its update: at least a fifth of its start while annealing.

    The sweeps see weak weights and give a row many features; seen with the whole weights these
    leave little noise, and less noise asks for more features, without end on a few rows of noise.

    Args:
      progress: () float, the share of the warm-up that is over.
      prior: of the scale; a number stays as it is, as does what lies outside the prior's support.
      free: () float, the scale after its update.
      start: () float, where the scale started.
    """
    if is_fixed(prior):
        return free
    floor = ANNEALED_START * start
    bounded = is_annealed(progress) & (floor > 0) & prior.support(floor)
    return jnp.where(bounded, jnp.maximum(free, floor), free)
