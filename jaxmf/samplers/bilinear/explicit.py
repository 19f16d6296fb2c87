"""Sweeps over the binary features of X ~ f(U W V') given W, all rows at once.

Given W and V a row of X has the distribution f(u_i Y) with Y = W V', so that the rows are
independent once the probabilities of the features are drawn. Everything is written for U; V is
drawn by the same functions with X and W transposed and U and V exchanged.

- `draw_bits`: every bit of every row from its conditional.
- `draw_several`: several bits of a row at once, proposed from the prior (section 3.3).
- `singletons.draw_singletons`: the features that only one row has, with their rows of W.

A change that would leave a column empty is refused in the first two, the last makes and removes
features; together they leave the Indian buffet process invariant.

Source: Meeds, Ghahramani, Neal & Roweis (2006), sections 3.1 to 3.3.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmf._kernels.special import accepts
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.samplers.bilinear.side import BilinearSide
from jaxmf.samplers.bilinear.singletons import draw_singletons
from jaxmf.samplers.bilinear.weight_prior import WeightPrior
from jaxmf.samplers.feature_layout import (
    FeaturePrior,
    RowDraws,
    Scales,
    row_prior,
)
from jaxmf.samplers.parallel_bits import flip_bits_of_all_rows, spread_draws
from jaxmf.samplers.parallel_sweep import draw_all_bits, draw_log_odds
from jaxmf.types import Array, Key, PyTree

_MEAN_SEVERAL = 2.5


def explicit_sweep(
    key: Key,
    side: BilinearSide,
    *,
    prior: FeaturePrior,
    likelihood: Likelihood,
    weight_prior: WeightPrior,
    column_exists: Array,
    num_fixed: int = 0,
    num_proposals: int = 1,
    grows: bool = True,
) -> tuple[Array, Array, Array]:
    """One pass over U and the weights of features of one row, given V and the other weights.

    Args:
      column_exists: (L,) bool, the slots of V that are features, whether a column has them or not.
      num_fixed: the first `num_fixed` slots of U hold fixed features.
      num_proposals: after the bits, this many proposals to change several bits of a row at once.
      grows: whether the prior has an unbounded number of features.
    Returns:
      u, weights, and () int32: how many more slots were needed at least.
    """
    settings: dict[str, Any] = {"prior": prior, "likelihood": likelihood, "num_fixed": num_fixed}
    log_odds = feature_log_odds(jax.random.fold_in(key, 3), side.u, prior)
    side = side._replace(u=draw_bits(jax.random.fold_in(key, 0), side, log_odds, **settings))
    if num_proposals:
        several_key = jax.random.fold_in(key, 1)

        def propose(index: Array, u: Array) -> PyTree:
            proposal_key = jax.random.fold_in(several_key, index)
            return draw_several(proposal_key, side._replace(u=u), log_odds, **settings)

        side = side._replace(u=jax.lax.fori_loop(0, num_proposals, propose, side.u))
    if not grows:
        return side.u, side.weights, jnp.zeros((), jnp.int32)
    return draw_singletons(
        jax.random.fold_in(key, 2),
        side,
        weight_prior=weight_prior,
        column_exists=column_exists,
        **settings,
    )


def feature_log_odds(key: Key, u: Array, prior: FeaturePrior) -> Array:
    """Log odds (K,) of the probabilities of the features, drawn given U (I, K)."""
    dtype = jnp.result_type(float)
    counts = jnp.sum(u, axis=0, dtype=dtype)
    return draw_log_odds(key, prior, counts, jnp.asarray(u.shape[0], dtype))


def draw_bits(
    key: Key,
    side: BilinearSide,
    log_odds: Array,
    *,
    prior: FeaturePrior,
    likelihood: Likelihood,
    num_fixed: int = 0,
) -> Array:
    """U (I, K) with every bit drawn, each row in its own random order, no column left empty.

    `log_odds` (K,) are those of the probabilities of the features.
    """
    u, _, _, x, observed = side
    draws = spread_draws(key, u, None, x.dtype)
    if isinstance(likelihood, Gaussian):
        return draw_all_bits(
            log_odds,
            draws,
            u,
            x,
            observed,
            side.basis,
            prior=prior,
            scales=Scales(noise=likelihood.noise_scale, feature=likelihood.noise_scale),
            num_fixed=num_fixed,
        )
    return _draw_bits_by_cells(
        log_odds, draws, side, prior=prior, likelihood=likelihood, num_fixed=num_fixed
    )


def _draw_bits_by_cells(
    log_odds: Array,
    draws: RowDraws,
    side: BilinearSide,
    *,
    prior: FeaturePrior,
    likelihood: Likelihood,
    num_fixed: int,
) -> Array:
    """The bits where the likelihood is a sum over cells: O(I J) a visit, K visits."""
    u, _, _, x, observed = side
    basis = side.basis

    def propose(
        k: Array, on: Array, sign: Array, state: tuple[Array, Array]
    ) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
        del on
        eta, log_likelihood = state
        proposed = eta + sign[:, None] * basis[k]
        proposed_likelihood = likelihood.log_kernel_of_rows(x, proposed, observed)
        odds = sign * log_odds[k] + proposed_likelihood - log_likelihood
        return odds, lambda flip: (
            jnp.where(flip[:, None], proposed, eta),
            jnp.where(flip, proposed_likelihood, log_likelihood),
        )

    eta = u.astype(x.dtype) @ basis
    start = eta, likelihood.log_kernel_of_rows(x, eta, observed)
    return flip_bits_of_all_rows(draws, u, start, propose=propose, prior=prior, num_fixed=num_fixed)


def draw_several(
    key: Key,
    side: BilinearSide,
    log_odds: Array,
    *,
    prior: FeaturePrior,
    likelihood: Likelihood,
    num_fixed: int = 0,
) -> Array:
    """U (I, K) after a proposal to every row to change several of its bits together.

    A random set of columns, two or three on average, is forgotten in each row and drawn from the
    prior given the probabilities of the features; the row accepts by the ratio of its likelihoods.
    If a column would be left empty, all rows stay as they are.
    """
    u, _, _, x, observed = side
    num_rows = jnp.asarray(u.shape[0], x.dtype)
    counts = jnp.sum(u, axis=0, dtype=x.dtype)
    movable = row_prior(prior, counts, num_rows, num_fixed=num_fixed).movable
    draws = spread_draws(key, u, None, x.dtype)
    share = _MEAN_SEVERAL / jnp.maximum(jnp.sum(movable, dtype=x.dtype), 1)
    chosen = movable & (draws.order < share)
    proposed = jnp.where(chosen, draws.bits < jax.nn.sigmoid(log_odds), u)
    basis = side.basis
    log_kernels = [
        likelihood.log_kernel_of_rows(x, bits.astype(x.dtype) @ basis, observed)
        for bits in (proposed, u)
    ]
    gain = log_kernels[0] - log_kernels[1]
    after = jnp.where(accepts(draws.num_new, gain)[:, None], proposed, u)
    # Rows are independent, so all their steps together are one reversible step; where it would
    # leave the states without an empty column it is refused, as a proposal of no probability.
    kept = row_prior(
        prior, jnp.sum(after, axis=0, dtype=x.dtype), num_rows, num_fixed=num_fixed
    ).movable
    return jnp.where(jnp.any(movable & ~kept), u, after)
