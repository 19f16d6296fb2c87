"""The collapsed Gibbs sweep of binary matrix factorisation: the rows of U, W summed out.

Given V, X turns into L independent linear-Gaussian columns (`likelihoods/bilinear_rows.py`), so a
row costs O(L K^2) beyond the product of X with the turned columns. The same sweep with X' for X and
the roles of U and V exchanged updates V. Source: Meeds, Ghahramani, Neal & Roweis (2006), sections
3.1 to 3.3.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf._kernels.special import accepts
from jaxmf.likelihoods import bilinear_rows, gaussian
from jaxmf.likelihoods.bilinear_rows import Turned, TurnedPosterior
from jaxmf.samplers import feature_rows
from jaxmf.samplers.bilinear import rows as rows_of_bits
from jaxmf.samplers.bilinear.draws import (
    BilinearDraws,
    ProposalDraws,
    bilinear_draws,
    proposed_bits,
)
from jaxmf.samplers.bilinear.rows import BilinearRowFit, PartialRow
from jaxmf.samplers.collapsed_rows import DrawnRow, sweep_collapsed_rows
from jaxmf.samplers.feature_layout import FeaturePrior, RowDraws, RowPrior
from jaxmf.types import Array, Key


class CollapsedPlan(NamedTuple):
    """How a row is drawn; static.

    Whether from all its 2^K settings at once; and after the bits, drawn one at a time, how many
    proposals of several bits at once.
    """

    whole_rows: bool
    num_proposals: int


class _BilinearCells(NamedTuple):
    """Turned cells (R, L), and the cells (R, J) themselves where some are missing."""

    turned: Array
    values: Array | None


class _Seen(NamedTuple):
    """For rows with missing cells: which are observed (R, J) bool, and B_o'B_o (R, L, L)."""

    observed: Array
    gram: Array


class _BilinearRows(NamedTuple):
    """Rows of U given V; `observed` is None where nothing is missing. See `CollapsedRows`."""

    x: Array
    turned_x: Array
    observed: Array | None
    turned: Turned
    noise_scale: Array
    num_slots: int
    plan: CollapsedPlan

    def draws(self, key: Key, rows: Array) -> BilinearDraws:
        return bilinear_draws(
            key,
            rows,
            num_slots=self.num_slots,
            num_turned=self.turned_x.shape[1],
            num_columns=None if self.observed is None else self.x.shape[1],
            num_proposals=self.plan.num_proposals,
            dtype=self.x.dtype,
        )

    def block(self, start: Array, size: int) -> tuple[_BilinearCells, _Seen | None]:
        turned = jax.lax.dynamic_slice_in_dim(self.turned_x, start, size)
        if self.observed is None:
            return _BilinearCells(turned, None), None
        values = jax.lax.dynamic_slice_in_dim(self.x, start, size)
        observed = jax.lax.dynamic_slice_in_dim(self.observed, start, size)
        grams = bilinear_rows.observed_grams(observed, self.turned.basis)
        return _BilinearCells(turned, values), _Seen(observed, grams)

    def targets(self, cells: _BilinearCells) -> Array:
        return cells.turned

    def values(self, cells: _BilinearCells) -> Array | None:
        return cells.values

    def posterior(self, gram: Array, cross: Array) -> TurnedPosterior:
        return bilinear_rows.turned_posterior(gram, cross, self.turned)

    def remove(
        self,
        posterior: TurnedPosterior,
        z: Array,
        empty: Array,
        cells: _BilinearCells,
        others: Callable[[Array], tuple[Array, Array]],
    ) -> TurnedPosterior:
        alone = jnp.where(empty, z, 0)
        posterior = bilinear_rows.remove_row(posterior, z, alone, cells.turned, self.turned, others)
        return bilinear_rows.reset_slots(posterior, empty, self.turned)

    def draw(
        self,
        draws: BilinearDraws,
        posterior: TurnedPosterior,
        z: Array,
        cells: _BilinearCells,
        seen: _Seen | None,
        conditional: RowPrior,
        num_singletons: Array,
    ) -> DrawnRow:
        partial = None
        if seen is not None and cells.values is not None:
            partial = PartialRow(cells.values, seen.observed, seen.gram)
        fit = rows_of_bits.row_fit(posterior, z, cells.turned, self.turned, partial)
        fit, num_new, cut_off = draw_row(
            draws.row, draws.proposals, fit, conditional, self.turned,
            num_singletons=num_singletons, noise_variance=self.noise_scale**2, plan=self.plan,
        )  # fmt: skip
        drawn = None
        if partial is not None and draws.cells is not None:
            values = rows_of_bits.draw_cells(
                draws.cells, fit, num_new, self.turned,
                partial=partial, noise_scale=self.noise_scale,
            )  # fmt: skip
            drawn = _BilinearCells(values @ self.turned.basis, values)
        return DrawnRow(fit.z, num_new, cut_off, drawn)

    def add(
        self, posterior: TurnedPosterior, z: Array, empty: Array, cells: _BilinearCells
    ) -> TurnedPosterior:
        alone = jnp.where(empty, z, 0)
        return bilinear_rows.add_row(posterior, z, alone, cells.turned, self.turned)


def collapsed_bilinear_sweep(
    key: Key,
    u: Array,
    v: Array,
    x: Array,
    observed: Array | None,
    *,
    prior: FeaturePrior,
    noise_scale: Array,
    weight_scale: Array,
    weight_mean: Array | float = 0.0,
    num_fixed: int = 0,
    whole_rows: bool = False,
    num_proposals: int = 0,
) -> tuple[Array, Array, Array]:
    """One pass over the rows of U; p(U, missing cells | V, observed cells, scales) stays invariant.

    What is done with a row stands in `collapsed_rows.py`. Its missing cells (those of other rows
    stay as they are imputed) are drawn jointly given its features and its observed cells.

    For V call it with x.T, observed.T, u and v exchanged and weight_mean.T.

    Args:
      u, v: (I, K) and (J, L) bool.
      x, observed: (I, J) float, missing cells imputed, and bool, or None when nothing is missing.
      noise_scale, weight_scale: () float, s_X and s_W.
      weight_mean: w0, broadcasts to (K, L). Where features come and go, all slots but the fixed
        ones must have the same mean, as slots carry no meaning then.
      num_fixed: the first `num_fixed` slots of U hold fixed features, which never change.
      whole_rows: draw each row from all its 2^K settings at once, not bit by bit.
      num_proposals: after the bits, this many Metropolis-Hastings proposals of several bits.
    Returns:
      u, x, and () bool: whether a row needed more slots than there are.
    """
    turned = bilinear_rows.turn(
        v,
        noise_scale=noise_scale,
        weight_scale=weight_scale,
        weight_mean=weight_mean,
        num_slots=u.shape[1],
    )
    turned_x = x @ turned.basis
    plan = CollapsedPlan(whole_rows, num_proposals)
    rows = _BilinearRows(x, turned_x, observed, turned, noise_scale, u.shape[1], plan)
    u, drawn, overflow = sweep_collapsed_rows(
        key, u, None if observed is None else x, gaussian.gram_statistics(u, turned_x), rows,
        prior=prior, num_fixed=num_fixed,
    )  # fmt: skip
    return u, x if drawn is None else drawn, overflow


def draw_row(
    draws: RowDraws,
    proposals: ProposalDraws | None,
    fit: BilinearRowFit,
    conditional: RowPrior,
    turned: Turned,
    *,
    num_singletons: Array,
    noise_variance: Array,
    plan: CollapsedPlan,
) -> tuple[BilinearRowFit, Array, Array]:
    """A row drawn anew: its fit, the number of its new features, whether that sum was cut off."""
    if plan.whole_rows:
        patterns, log_weights, beyond = whole_row_log_weights(
            fit, turned, conditional, noise_variance=noise_variance
        )
        pattern = feature_rows.draw_index(draws.bits[0], logsumexp(log_weights, axis=1))
        num_new = feature_rows.draw_index(draws.num_new, log_weights[pattern])
        fit = rows_of_bits.moved(fit, patterns[pattern])
        return fit, num_new, rows_of_bits.is_cut_off(log_weights, beyond)
    singleton_mean = num_singletons * turned.prior_mean[-1]
    fixed = {"extra": num_singletons * turned.strength, "noise_variance": noise_variance}
    fit = rows_of_bits.shifted(fit, singleton_mean)
    fit = rows_of_bits.scan_bits(draws, fit, conditional, **fixed)
    if proposals is not None:
        fit, _ = jax.lax.scan(
            lambda fit, drawn: (propose_bits(drawn, fit, conditional, **fixed), None),
            fit,
            proposals,
        )
    fit = rows_of_bits.shifted(fit, -singleton_mean)
    log_weights, beyond = rows_of_bits.new_feature_log_weights(
        fit, turned, rate=conditional.rate, noise_variance=noise_variance
    )
    num_new = feature_rows.draw_index(draws.num_new, log_weights)
    return fit, num_new, rows_of_bits.is_cut_off(log_weights, beyond)


def propose_bits(
    draws: ProposalDraws,
    fit: BilinearRowFit,
    conditional: RowPrior,
    *,
    extra: Array,
    noise_variance: Array,
) -> BilinearRowFit:
    """Several bits of the row at once, by Metropolis-Hastings (Meeds et al., section 3.3).

    `proposed_bits` says what is proposed.

    Args: fit, conditional, extra, noise_variance: as in `scan_bits`.
    """
    proposal = rows_of_bits.moved(fit, proposed_bits(draws, fit.z, conditional))
    after, before = (
        rows_of_bits.log_likelihood(each, extra, noise_variance) for each in (proposal, fit)
    )
    accepted = accepts(draws.accept, after - before)
    return fit._replace(
        **{
            name: jnp.where(accepted, getattr(proposal, name), getattr(fit, name))
            for name in ("z", "gap", "squares", "m_z", "inflation")
        }
    )


def whole_row_log_weights(
    fit: BilinearRowFit, turned: Turned, conditional: RowPrior, *, noise_variance: Array
) -> tuple[Array, Array, Array]:
    """Log weights of all settings of a row: its bits and the number of its new features.

    Args:
      fit: of the row without singletons, slots that are not movable as they shall stay: settings
        that differ there have weight 0.
      turned, noise_variance: as in `new_feature_log_weights`.
    Returns:
      patterns (2^K, K) bool; log weights (2^K, K + 1), with the factor prod_k P(bit_k = 0) left
      out; () float, the log of a bound on what lies beyond.
    """
    patterns = feature_rows.all_patterns(fit.z.shape[0])
    _, log_prior = feature_rows.log_prior_of_patterns(patterns, fit.z, conditional)

    def weigh(pattern: Array) -> tuple[Array, Array]:
        here = rows_of_bits.moved(fit, pattern)
        return rows_of_bits.new_feature_log_weights(
            here, turned, rate=conditional.rate, noise_variance=noise_variance
        )

    log_weights, beyond = jax.vmap(weigh)(patterns)
    return patterns, log_weights + log_prior[:, None], logsumexp(beyond + log_prior)
