"""An annealed start of chains: a weak signal first, few features at a time.

During the first three quarters of the warm-up a factor rises geometrically from a fifth to one.
Models of features of rows alone show their sweeps the scale of the weights times the factor; those
of features of rows and columns the scale of the noise divided by it. What either gains over a plain
start: `ibp/split-merge` and `binary-mf/start` in benchmarks/results. Only at one is the posterior
left invariant.

Under noise far above what the data show a chain of features of rows and columns learns nothing and
loses the features that it has, so such an annealing starts where the first singular vectors of the
data begin to stand out: a matrix of noise alone has a largest singular value of its standard
deviation times sqrt(I) + sqrt(J).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from jaxmf._kernels.linalg import first_direction
from jaxmf.data import Dense
from jaxmf.priors.hyper import Hyperparameter, is_fixed
from jaxmf.types import Array

if TYPE_CHECKING:
    import numpyro.distributions as dist

ANNEALED_START = 0.2
_SHARE = 0.75
_ENDING = 0.9  # of the annealing, from which on equal features are left out and scales let go
_LEAST_SHARE_KEPT = 0.8
_DISPERSION_RELEASED = 0.9  # of the warm-up: some features begin at its power one
_MOST_DISPERSION = 0.1  # cells spread by a third of their means
# how many features the start of the annealing lets the largest row take
_MOST_NEW_FEATURES = 25
_POWER_STEPS = 6  # the singular value is then known to a few per cent, which is enough here


class LeadingDirection(NamedTuple):
    """The first singular vectors of data, about."""

    rows: Array  # (I,) float, the left one times its singular value
    columns: Array  # (J,) float, the right one
    # () float, the standard deviation of a matrix of noise alone with as large a first singular
    # value
    noise_scale: Array


def annealed_factor(progress: Array, start: Array | float = ANNEALED_START) -> Array:
    """The factor on the strength of the signal.

    Args: progress () float, the share of the warm-up that is over; start () float, the factor at
    progress 0, above 0 and at most 1.
    Returns () float, of the dtype of `progress`; one from three quarters of the warm-up on.
    """
    share = jnp.clip(progress / _SHARE, 0, 1)
    return jnp.exp((1 - share) * jnp.log(jnp.asarray(start, share.dtype)))


def row_mean_squares(data: Dense) -> Array:
    """Mean squares (N,) of the observed cells of each row, 0 where there are none."""
    squares = data.values**2
    if data.observed is None:
        return jnp.sum(squares, axis=1) / data.values.shape[1]
    num_observed = jnp.sum(data.observed, axis=1, dtype=squares.dtype)
    return jnp.sum(jnp.where(data.observed, squares, 0), axis=1) / jnp.maximum(num_observed, 1)


def start_with_few_features(squares: Array, feature_scale: Array) -> Array:
    """Where the factor on features of rows starts: a fifth, or more where rows would be split.

    At the factor f a row with the mean square v takes up to v / (f scale)^2 features; f is at least
    what keeps the largest row to a few, and 1 where the scale itself is smaller than that.

    Args: squares (N,) float, the mean squares of the rows; feature_scale () float, that of the
    entries of a feature.
    """
    needed = jnp.sqrt(jnp.max(squares) / _MOST_NEW_FEATURES) / feature_scale
    return jnp.clip(needed, ANNEALED_START, 1)


def is_annealed(progress: Array) -> Array:
    """() bool, whether the annealing lasts at this share of the warm-up, () float."""
    return progress < _SHARE


def is_ending(progress: Array) -> Array:
    """() bool, whether this is the last tenth of the annealing."""
    return (progress >= _ENDING * _SHARE) & is_annealed(progress)


def hold_while_annealed(progress: Array, held: Array, free: Array) -> Array:
    """A hyperparameter after its update: `held` while annealing lasts.

    A scale of weights that followed the current features would shrink with them and let their
    number run away. Of features of rows and columns it is only bounded: a single feature of one
    side needs larger weights than several that share the work.

    Args: progress () float, the share of the warm-up that is over; held, free () float, its value
    while annealing lasts, and after it.
    """
    return jnp.where(is_annealed(progress), held, free)


def released_as_annealing_ends(progress: Array, held: Array, free: Array) -> Array:
    """A scale after its update: `held`, and in the last tenth of annealing at least .8 of it.

    It starts above what features need. A step of slice sampling from there may lead anywhere below,
    and one sweep at a scale that is too small begins many features.

    Args: progress () float; held, free () float, its value before and after its update.
    """
    annealed = jnp.where(is_ending(progress), jnp.maximum(free, _LEAST_SHARE_KEPT * held), held)
    return jnp.where(is_annealed(progress), annealed, free)


def repeats_left_out(progress: Array, z: Array, *, num_fixed: int) -> Array:
    """Z (N, K) bool without columns that say what an earlier one says, as the annealing ends.

    At a feature scale below the one that holds, several equal features do what one does at that;
    row by row none of them can go later. With a fixed feature of all rows, the rows without a
    feature say the same as those with it. Not exact, as annealing is not.

    Args: progress () float, the share of the warm-up that is over; num_fixed: how many of the first
    slots hold fixed features, which stay.
    """
    dtype = jnp.result_type(float)
    counts = jnp.sum(z, axis=0, dtype=dtype)
    together = z.T.astype(dtype) @ z.astype(dtype)
    repeats = (together == counts) & (together == counts[:, None])
    if num_fixed:
        repeats |= (together == 0) & (counts + counts[:, None] == z.shape[0])
    repeats &= (counts > 0) & (counts[:, None] > 0)
    slots = jnp.arange(z.shape[1])
    earlier = (slots[:, None] < slots) & (slots >= num_fixed)
    return z & ~(is_ending(progress) & jnp.any(repeats & earlier, axis=0))


def noise_while_annealed(
    progress: Array, prior: Hyperparameter, free: Array, *, start: Array, factor: Array | float
) -> Array:
    """The scale of the noise after its update, bounded below while annealing.

    With weak weights and little noise sweeps would give every row features of its own, which leave
    still less noise. So the bound is a fifth of the start over the factor on the weights: it falls
    to a fifth of the start as they rise. Where the prior does not reach as far up, it is a fifth of
    the start all along.

    Args:
      prior: of the scale; a number stays as it is, as does what lies outside the prior's support.
      free: () float, the scale after its update.
      start: () float, where the scale started.
    """
    if is_fixed(prior):
        return free
    lowest = ANNEALED_START * start
    floor = jnp.where(prior.support(lowest / factor), lowest / factor, lowest)
    bounded = is_annealed(progress) & (floor > 0) & prior.support(floor)
    return jnp.where(bounded, jnp.maximum(free, floor), free)


def features_begin(progress: Array) -> Array:
    """() bool, whether features of counts still begin at this share of the warm-up, () float."""
    return progress < _DISPERSION_RELEASED


def bounded_dispersion(prior: dist.Distribution, free: Array, *, shown: Array) -> Array:
    """The dispersion of counts while features begin: at most .1, or what the data show if more.

    A large dispersion explains the variance that features should explain, and a chain begins
    without features: with it free chains end with one feature of three. Bounded near 0 it lets
    features of single large counts begin.

    Args: prior: where it does not reach as far down, the dispersion stays free; free, shown ()
    float: after its update, and of the residuals after the first singular vectors of the data.
    """
    most = jnp.maximum(shown, _MOST_DISPERSION)
    return jnp.where(prior.support(most), jnp.minimum(free, most), free)


def leading_direction(x: Array, observed: Array | None) -> LeadingDirection:
    """The first singular vectors of the observed cells, by a few steps of the power method.

    Args: x (I, J) float, about its offset; observed (I, J) bool, or None when nothing is missing.
    """
    cells = x if observed is None else jnp.where(observed, x, 0)
    share = 1.0 if observed is None else jnp.mean(observed, dtype=x.dtype)
    # squares of squares of very large or small cells would leave the range of floats
    unit = jnp.maximum(jnp.max(jnp.abs(cells)), jnp.finfo(x.dtype).tiny)
    cells = cells / unit
    columns = first_direction(cells, _POWER_STEPS)
    rows = unit * (cells @ columns)
    num_rows, num_columns = x.shape
    noise = jnp.linalg.norm(rows / unit) / (num_rows**0.5 + num_columns**0.5) * unit
    return LeadingDirection(rows, columns, noise / jnp.sqrt(share))


def start_that_shows(direction: LeadingDirection, noise_scale: Array) -> Array:
    """Where the factor on the signal starts: () float, `ANNEALED_START` to one.

    Noise of `noise_scale` over it is what hides the first singular vectors, at most five times
    the scale.

    Args: noise_scale () float, of the state.
    """
    hidden = jnp.where(direction.noise_scale > 0, direction.noise_scale, noise_scale)
    return jnp.clip(noise_scale / hidden, ANNEALED_START, 1)
