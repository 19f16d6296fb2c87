"""Restricted Gibbs scans: the rows of two columns of Z shared out between them, all else as it is.

Step 3 of the move of `split_merge.py`, with the probability of what the last pass did. Written for
any likelihood that keeps statistics of two columns: `PairLikelihood`. Open `run_passes` first.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxmf.samplers.feature_layout import FeaturePrior
from jaxmf.types import Array, Key, PyTree


class LabelledPrior(FeaturePrior, Protocol):
    """Methods of a prior of Z that the move calls; `IndianBuffet` and `BetaBernoulli` have them."""

    def log_prob_labelled(self, counts: Array, num_rows: Array | int) -> Array:
        """() float, a sum over columns of log Lambda or log p, up to a constant in the counts."""


class PairLikelihood(Protocol):
    """The likelihood of data given Z while two columns change and the others stay.

    `GaussianColumns` is one. A setting is the bits (2,) float of a row in the two columns.
    """

    def start(self, rest: Array) -> PyTree:
        """Everything that depends only on Z without the two columns, (N, K) bool."""

    def at(self, fixed: PyTree, pair: Array) -> PyTree:
        """Statistics of the two columns (N, 2) float, from nothing."""

    def log_likelihood(self, fixed: PyTree, statistics: PyTree) -> Array:
        """() float, log p(data | Z) up to what does not depend on the two columns."""

    def log_likelihoods(
        self, fixed: PyTree, statistics: PyTree, row: Array, setting: Array, candidates: Array
    ) -> Array:
        """(C,) float, the same with the row's setting changed to each candidate (C, 2)."""

    def change(
        self, fixed: PyTree, statistics: PyTree, row: Array, setting: Array, new: Array
    ) -> PyTree:
        """Statistics after the row has gone from one setting to another; 00 removes it."""


class ColumnPair(NamedTuple):
    """The two columns that a proposal is about."""

    splits: Array  # () bool, whether a split is proposed; else a merge
    slots: Array  # (2,) int32, the columns picked; equal for a split
    now: Array  # (N, 2) bool, the columns as they are; for a split the second is empty
    held: Array  # (N, 2) bool, the bits that the picked ones hold: (i, a) and (j, b)
    rest: Array  # (N, K) bool, Z with the two columns emptied

    @property
    def rows(self) -> Array:
        """(N,) bool, the rows that have one of the two."""
        return jnp.any(self.now, axis=1)


class Passes(NamedTuple):
    """The pair (N, 2) float after the last pass, and the log of its probability () float."""

    pair: Array
    log_proposal: Array


class Columns(NamedTuple):
    """The two columns while a pass goes over their rows."""

    bits: Array  # (N, 2) float
    counts: Array  # (2,) float, the ones of each
    statistics: PyTree  # of the likelihood


# The settings that a row of a split column can have.
SETTINGS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))


def random_row_order(key: Key, rows: Array) -> tuple[Array, Array]:
    """The rows (N,) bool in a random order, the others behind them, and how many there are."""
    position = jax.random.uniform(key, rows.shape)
    order = jnp.argsort(jnp.where(rows, position, 2.0)).astype(jnp.int32)
    return order, jnp.sum(rows, dtype=jnp.int32)


def run_passes(
    key: Key,
    pair: ColumnPair,
    fixed: PyTree,
    order: Array,
    num_visits: Array,
    *,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
    num_scans: int,
) -> Passes:
    """The passes of step 3; for a merge the last one is led to the columns as they are."""
    num_rows = pair.now.shape[0]
    dtype = jnp.result_type(float)
    held = pair.held.astype(dtype)

    def one_pass(index: Array, carry: tuple[Columns, Array]) -> tuple[Columns, Array]:
        columns, _ = carry
        return pass_over_rows(
            columns,
            held=held,
            target=pair.now.astype(dtype),
            led=~pair.splits & (index == num_scans),
            order=order,
            num_visits=num_visits,
            uniforms=jax.random.uniform(jax.random.fold_in(key, index), (num_rows,), dtype),
            fixed=fixed,
            prior=prior,
            likelihood=likelihood,
        )

    start = Columns(held, jnp.sum(held, axis=0), likelihood.at(fixed, held))
    columns, log_proposal = jax.lax.fori_loop(
        0, num_scans + 1, one_pass, (start, jnp.zeros((), dtype))
    )
    return Passes(pair=columns.bits, log_proposal=log_proposal)


def pass_over_rows(
    columns: Columns,
    *,
    held: Array,
    target: Array,
    led: Array,
    order: Array,
    num_visits: Array,
    uniforms: Array,
    fixed: PyTree,
    prior: LabelledPrior,
    likelihood: PairLikelihood,
) -> tuple[Columns, Array]:
    """Every row of the pair drawn given the others, or led to its target; and log q, () float.

    Args:
      columns: before the pass.
      held: (N, 2) float, bits that stay on.
      target: (N, 2) float, where a pass that is led ends.
      led: () bool, whether this one is.
      order: (N,) int32, the rows to visit in front.
      num_visits: () int32, how many they are.
      uniforms: (N,) float, decides each row.
    """
    bits, dtype = columns.bits, columns.bits.dtype
    candidates = jnp.asarray(SETTINGS, dtype)
    num_rows = jnp.asarray(bits.shape[0], dtype)

    def visit(step: Array, carry: tuple[Columns, Array]) -> tuple[Columns, Array]:
        (after, counts, statistics), log_proposal = carry

        def at(array: Array) -> Array:
            return jax.lax.dynamic_index_in_dim(array, row, keepdims=False)

        row = jax.lax.dynamic_index_in_dim(order, step, keepdims=False)
        # each row is visited once: read from the columns as they came, written to others
        setting, bound = at(bits), at(held)
        odds = prior.log_odds(counts - setting, num_rows).astype(dtype)
        # a bit that is held is the same in all candidates that are allowed
        odds = jnp.where(bound > 0, 0, odds)
        log_weights = jnp.sum(jnp.where(candidates > 0, odds, 0), axis=1)
        log_weights = log_weights + likelihood.log_likelihoods(
            fixed, statistics, row, setting, candidates
        )
        log_weights = jnp.where(jnp.all(candidates >= bound, axis=1), log_weights, -jnp.inf)
        weights = jnp.exp(log_weights - jnp.max(log_weights))
        first, second, third = weights[0], weights[1], weights[2]
        whole = first + second + third
        threshold = at(uniforms) * whole
        drawn = jnp.where(
            threshold < first,
            candidates[0],
            jnp.where(threshold < first + second, candidates[1], candidates[2]),
        )
        new = jnp.where(led, at(target), drawn)
        chosen = jnp.sum(jnp.where(jnp.all(candidates == new, axis=1), weights, 0))
        columns = Columns(
            bits=jax.lax.dynamic_update_index_in_dim(after, new, row, 0),
            counts=counts + new - setting,
            statistics=likelihood.change(fixed, statistics, row, setting, new),
        )
        return columns, log_proposal + jnp.log(chosen) - jnp.log(whole)

    return jax.lax.fori_loop(0, num_visits, visit, (columns, jnp.zeros((), dtype)))
