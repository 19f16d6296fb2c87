"""`NoisyOrIBP`: the description with its sampler, its filter and the questions it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf.arguments import check_count
from jaxmf.data import Dense
from jaxmf.devices import AUTO
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods import noisy_or
from jaxmf.model import Pair
from jaxmf.models.noisy_or import chain, queries
from jaxmf.models.noisy_or.filter import NoisyOrFilterPlan, draw_of_particle, filter_of_rows
from jaxmf.models.noisy_or.noisy_or_spec import NoisyOrSpec, parameters_of
from jaxmf.priors.features import slots_of_prior
from jaxmf.row_shards import DATA_AXIS
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model, log_ratio_of_powers
from jaxmf.samplers.cloud import TriggerFn
from jaxmf.samplers.feature_particles import refuse_optimal
from jaxmf.samplers.resampling import ResampleFn, systematic
from jaxmf.samplers.smc import particle_filter
from jaxmf.types import Array, Draw, Key, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class NoisyOrIBP(NoisyOrSpec):
    """Hidden causes of unknown number that turn binary variables on (noisy-OR).

    P(x_nd = 1) = 1 - (1 - leak) (1 - efficacy)^(active causes of row n in column d), with the rows
    of each cause from an Indian buffet process, or from the finite beta-Bernoulli model.

    Each hyperparameter is a number or a numpyro distribution.

    Args:
      alpha: mass of the prior of Z, the expected number of causes of a row; positive.
      cause_probability: p, that a cause is active in a column; strictly between 0 and 1.
      efficacy: lambda, that an active cause turns a cell of its rows on; between 0 and 1, both
        allowed (at 1 it always does).
      leak: epsilon, that a cell is on without a cause; from 0, which is allowed, to below 1. At 0
        every one in the data needs a cause, and chains find their way more slowly.
      concentration: beta of the two-parameter process; 1 is the ordinary one.
      num_features: None for the Indian buffet process; a number K for the finite model in which
        cause k has probability Beta(alpha concentration / K, concentration).
      likelihood: `NoisyOr(efficacy, leak)` in place of these two.
    Raises:
      TypeError, ValueError: if a hyperparameter lies outside its range, or its prior is over other
        numbers; if `num_features` is not a positive integer.
    Example:
      >>> import jaxmf as mf
      >>> mf.NoisyOrIBP(alpha=1.0, cause_probability=0.1, efficacy=0.9, leak=0.01).leak
      0.01
    """

    def sampler(
        self,
        *,
        sweep: str = AUTO,
        num_moves: int = 6,
        split_merge: int = 0,
        shared_births: int = 0,
        capacity: int | None = None,
    ) -> Algorithm:
        """Gibbs sampling of Z, Y and hyperparameters, with moves of whole causes.

        Args:
          sweep: "sequential": rows one after another. "parallel": all rows at once. "auto": the
            first on a CPU, the second on accelerators but for few rows. "particle_gibbs": rows one
            after another, the causes that a row shares with others drawn together, then one by one;
            see `samplers/particle_rows.py`. It did not pay where it was measured
            (`mixing/noisy-or` in benchmarks/results).
          num_moves: proposals a step of splitting a cause or merging two, each with one of a birth
            or death of a row's own cause. Without them a good share of chains stays in a poor
            mode; a start with an annealed leak was tried and does not mend that. The finite model
            has none.
          split_merge: proposals a step of splitting a cause or merging two by scans over its rows,
            their activity summed out: for causes of dozens of rows, which those of `num_moves`,
            made blindly, do not move. Off by default: on 250 x 20 cells it brought no more chains
            to the mode.
          shared_births: proposals a step of a birth or death of a cause that several rows share,
            with all its rows at once; see `samplers/shared_births.py`. Off by default: it did not
            pay where it was measured.
            Of these two, a chain keeps after the warm-up those that are accepted often enough for
            what they cost, see `samplers/move_schedule.py`; `post.meta.run["moves"]` says which.
          capacity: slots to begin with; they double when a step needs more.
        Returns:
          Algorithm with the growing axis "features".
        Raises:
          ValueError: an unknown sweep, a negative number of moves, or a capacity below 1.
        """
        plan = self._plan(self.chosen_sweep(sweep), num_moves, split_merge, shared_births, capacity)
        return algorithm(
            init=Partial(chain.init, plan, self),
            step=Partial(chain.step, plan, self),
            **chain.shared(self),
            row_arrays=chain.row_arrays if plan.sweep == "parallel" else None,
        )

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """The parallel sweep spreads rows over "data"; splits by scans and births do not."""
        is_parallel = options.get("sweep") == "parallel" and not _row_by_row(options)
        return (DATA_AXIS,) if is_parallel else ()

    def mesh_advice(self, options: Mapping[str, object]) -> str:
        """Settings that keep rows from being spread over devices; empty if they are spread."""
        names = " and ".join(_row_by_row(options))
        return f"without {names} it spreads rows over {DATA_AXIS!r}" if names else ""

    def annealed(
        self,
        data: Dense,
        *,
        sweep: str = AUTO,
        num_moves: int = 6,
        split_merge: int = 0,
        shared_births: int = 0,
        capacity: int | None = None,
    ) -> AnnealedModel:
        """Kernels and densities of one state for `jaxmf.smc`.

        Args:
          data: (N, D); missing cells have no factor in the likelihood.
          sweep, num_moves, split_merge, shared_births: as in `sampler`.
          capacity: slots to begin with, None for about those that draws from the prior need; they
            double when a state needs more.
        Raises:
          ValueError: as `sampler`.
        """
        sweep = self.chosen_sweep(sweep, data)
        if capacity is None:
            capacity = slots_of_prior(self.alpha, self.concentration, data.num_rows)
        plan = self._plan(sweep, num_moves, split_merge, shared_births, capacity)
        return annealed_model(
            init=Partial(chain.draw_start, plan, self),
            step=Partial(chain.powered_step, plan, self),
            measure=chain.measure,
            log_ratio=log_ratio_of_powers,
            **chain.shared(self),
        )

    def _plan(
        self, sweep: str, num_moves: int, split_merge: int, shared_births: int, capacity: int | None
    ) -> chain.NoisyOrPlan:
        return chain.NoisyOrPlan(
            num_slots=self.num_slots(capacity),
            sweep=sweep,
            num_moves=check_count("num_moves", num_moves, least=0),
            split_merge=check_count("split_merge", split_merge, least=0),
            shared_births=check_count("shared_births", shared_births, least=0),
        )

    def features(self, draw: Draw, data: Dense) -> Pair:
        """Probability that each cause is active in each column, and its sd: each (K, D) float.

        Args:
          draw: what a chain records; the probability is that given Z and the other causes.
        """
        mean = queries.activity(draw["z"], draw["y"], data, parameters_of(draw))
        return mean, jnp.sqrt(mean * (1 - mean))

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        """Predictive mean and variance, each (M,), of the cells (rows[m], columns[m]).

        For a missing cell this is its distribution given the draw; for an observed one that of a
        replicate.
        """
        del data
        eta = jnp.sum(draw["z"][rows] & draw["y"][:, columns].T, axis=1, dtype=draw["leak"].dtype)
        mean = noisy_or.probability(eta, parameters_of(draw))
        return mean, mean * (1 - mean)

    def transform_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities (N_new, K) of the draw's causes in rows not seen in training."""
        del data
        return self._new_rows(key, draw, new_data).probabilities

    def predict_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Pair:
        """Predictive mean and variance, each (N_new, D), of the cells of new rows.

        The causes of each row are drawn given its observed cells, so that a mixture over draws
        is the predictive distribution.
        """
        del data
        rows = self._new_rows(key, draw, new_data)
        eta = noisy_or.num_active(rows.z, draw["y"], draw["leak"].dtype)
        mean = noisy_or.probability(eta, parameters_of(draw), rows.num_new[:, None])
        return mean, mean * (1 - mean)

    def _new_rows(self, key: Key, draw: Draw, new_data: Dense) -> PyTree:
        prior = self.feature_prior(draw["alpha"], draw["concentration"])
        return queries.draw_new_rows(
            key, draw["z"], draw["y"], new_data, prior=prior, parameters=parameters_of(draw)
        )

    def filter(
        self,
        *,
        num_particles: int = 1_000,
        proposal: str = "prior",
        resample_fn: ResampleFn = systematic,
        ess_threshold: float | TriggerFn = 0.5,
        rejuvenate_every: int = 0,
        capacity: int | None = None,
        batch_size: int | None = None,
    ) -> Algorithm:
        """The particle filter of Algorithm 3, a row a step; see `filter.py`.

        Args:
          num_particles: P.
          proposal: "prior": causes of a row from their prior given the earlier rows, as in the
            paper. "informed": bit by bit, each given the row and those before it, with the bits
            still to come and the new causes averaged over in each cell; the number of new causes
            from its exact sum. Better weights for a few times the work.
          resample_fn: scheme of `jaxmf.samplers.resampling`, other than `optimal`.
          ess_threshold: resample when the effective sample size is below this share of P.
          rejuvenate_every: a Gibbs sweep over all rows so far, and Y, every `rejuvenate_every`
            rows; 0 for none.
          capacity: slots for causes to begin with; they double when a particle needs more.
          batch_size: how many particles are worked on at once; None for all.
        Returns:
          Algorithm with the growing axis "features", and "rows" where particles carry the whole Z.
        Raises:
          ValueError: an unknown proposal, or optimal resampling.
        """
        refuse_optimal(resample_fn, "a row has too many here")
        num_slots = self.num_slots(8 if capacity is None else capacity)
        plan = NoisyOrFilterPlan(num_slots, proposal=proposal, rejuvenates=rejuvenate_every > 0)
        return particle_filter(
            filter_of_rows(self, plan),
            num_particles=num_particles,
            resample_fn=resample_fn,
            ess_threshold=ess_threshold,
            rejuvenate_every=rejuvenate_every,
            batch_size=batch_size,
        )

    particle_draw = draw_of_particle


def _row_by_row(options: Mapping[str, object]) -> list[str]:
    """The optional moves of these options that go through rows one after another."""
    return [name for name in ("split_merge", "shared_births") if options.get(name)]
