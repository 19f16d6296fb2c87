"""Hidden causes of binary data: what is believed of them, its density and its simulations.

    alpha ~ its prior,  Z ~ IBP(alpha)                                            eq 2
    y_kd ~ Bernoulli(cause_probability)
    P(x_nd = 1 | Z, Y) = 1 - (1 - leak) (1 - efficacy)^(sum_k z_nk y_kd)          eq 8

A row of the data is an observed variable, a column a trial or case; a row of Y says in which
columns a hidden cause is active, Z which rows it can turn on. Z is the adjacency matrix of a
bipartite causal graph. Y is part of the state. Missing cells have no factor in the likelihood.

Source: Wood & Griffiths (2006), Particle filtering for nonparametric Bayesian matrix factorization,
section 5; Wood, Griffiths & Ghahramani (2006), A non-parametric Bayesian method for inferring
hidden causes.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import assign
from jaxmf.data import Dense, checks
from jaxmf.feature_models import BuffetModel
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.cells.noisy_or import NoisyOr
from jaxmf.likelihoods.noisy_or import NoisyOrParameters, Tally
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet, sample_by_rows
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.samplers.move_schedule import MoveSchedule
from jaxmf.types import STATIC, Array, Key

HYPERPARAMETERS = ("alpha", "concentration", "cause_probability", "efficacy", "leak")


class NoisyOrState(NamedTuple):
    """Where a chain is."""

    z: Array  # (N, K) bool, which rows a cause can turn on
    y: Array  # (K, D) bool, in which columns it is active; False in free slots
    # alpha, concentration, cause_probability, efficacy, leak: () float
    alpha: Array
    concentration: Array
    cause_probability: Array
    efficacy: Array
    leak: Array
    schedule: MoveSchedule = None  # of optional moves; None where all of them are made


def parameters_of(draw: object) -> NoisyOrParameters:
    """The parameters of the likelihood, of a state or a draw."""
    names = NoisyOrParameters._fields
    if isinstance(draw, dict):
        return NoisyOrParameters(*(draw[name] for name in names))
    return NoisyOrParameters(*(getattr(draw, name) for name in names))


def active_counts(
    prior: IndianBuffet | BetaBernoulli, counts: Array, y: Array
) -> tuple[Array, Array]:
    """How many entries of Y are ones, and zeros, among the causes there are: () float each.

    Args: counts (K,) float, ones of each column of Z; y (K, D) bool.
    """
    exists = prior.exists(counts)
    ones = jnp.sum(y & exists[:, None], dtype=jnp.int32).astype(counts.dtype)
    return ones, jnp.sum(exists, dtype=counts.dtype) * y.shape[1] - ones


def _default_priors() -> dict[str, object]:
    import numpyro.distributions as dist

    return {
        "cause_probability": dist.Beta(1.0, 1.0),
        "efficacy": dist.Beta(1.0, 1.0),
        "leak": dist.Beta(1.0, 9.0),
    }


@dataclass(frozen=True, kw_only=True)
class NoisyOrSpec(BuffetModel):
    """The fields of `NoisyOrIBP`, and what follows from them alone."""

    alpha: Hyperparameter = None
    cause_probability: Hyperparameter = None
    efficacy: Hyperparameter = None
    leak: Hyperparameter = None
    concentration: Hyperparameter = 1.0
    num_features: int | None = field(default=None, metadata=STATIC)
    likelihood: InitVar[NoisyOr | None] = None

    cell_distribution = "bernoulli"
    cells_given_draw = "independent"

    hyperparameter_names = HYPERPARAMETERS
    sweeps = ("sequential", "parallel", "particle_gibbs")
    kind = "noisy_or"

    def __post_init__(self, likelihood: NoisyOr | None) -> None:
        self.take_likelihood(likelihood, NoisyOr)
        self.check_buffet()
        if any(getattr(self, name) is None for name in HYPERPARAMETERS):
            for name, default in _default_priors().items():
                if getattr(self, name) is None:
                    assign(self, **{name: default})
        hyper.validate_probability("cause_probability", self.cause_probability)
        hyper.validate_probability("efficacy", self.efficacy, zero=True, one=True)
        hyper.validate_probability("leak", self.leak, zero=True)

    def check_data(self, data: Dense, name: str) -> None:
        """Refuses observed values other than 0 and 1.

        Args: name: what the user calls it, for the message.

        Raises:
          ValueError: there is another value; the first is shown.
        """
        values = np.asarray(data.values)
        other = (values != 0) & (values != 1)
        if data.observed is not None:
            other &= np.asarray(data.observed)
        if other.any():
            raise checks.offence(
                name,
                values,
                other,
                "must hold 0 and 1 only (NaN where a cell is missing)",
                checks.as_zeros_and_ones(
                    values if data.observed is None else values[np.asarray(data.observed)]
                ),
            )

    def log_joint(self, state: NoisyOrState, data: Dense) -> Array:
        """log p(Z, Y, observed X, hyperparameters).

        Causes are labelled: they are points of a Poisson process over histories and activities,
        and no factor counts causes that are the same. Fixed hyperparameters add nothing.

        Args:
          state: of data with N rows.
          data: (N, D).
        Returns:
          () float.
        """
        counts = noisy_or.tally(state.z, state.y, data.values, data.observed)
        return self.log_joint_of(state, counts)

    def log_joint_of(self, state: NoisyOrState, counts: Tally) -> Array:
        """The same, from how many ones and zeros have how many active causes."""
        prior = self.prior(state)
        features = jnp.sum(state.z, axis=0, dtype=state.alpha.dtype)
        ones, zeros = active_counts(prior, features, state.y)
        parameters = parameters_of(state)
        log_activity = ones * parameters.log_odds + (ones + zeros) * parameters.log_inactive
        return (
            prior.log_prob_labelled(features, state.z.shape[0])
            + log_activity
            + noisy_or.log_likelihood(counts, parameters)
            + self.log_hyperprior(state)
        )

    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[NoisyOrState, Dense, Array]:
        z_key, hyper_key, x_key = jax.random.split(key, 3)
        state, overflow = self.simulate_state(z_key, hyper_key, shape, capacity)
        return state, Dense(self.simulate_data(x_key, state)), overflow

    def simulate_state(
        self, z_key: Key, hyper_key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[NoisyOrState, Array]:
        num_rows, num_columns = shape
        values = {
            name: hyper.sample_prior(jax.random.fold_in(hyper_key, index), getattr(self, name))
            for index, name in enumerate(HYPERPARAMETERS)
        }
        num_slots = max(capacity, self.num_features or 1)
        state = NoisyOrState(
            z=jnp.zeros((num_rows, num_slots), bool),
            y=jnp.zeros((num_slots, num_columns), bool),
            **values,
            schedule=None,
        )
        row_key, y_key = jax.random.split(z_key)
        z, overflow = self.prior(state).sample(row_key, num_rows, num_slots)
        y = jax.random.uniform(y_key, state.y.shape) < state.cause_probability
        exists = self.prior(state).exists(jnp.sum(z, axis=0))
        return state._replace(z=z, y=y & exists[:, None]), overflow

    def simulate_data(self, key: Key, state: NoisyOrState) -> Array:
        """X (N, D) of zeros and ones, given a state."""
        dtype = state.leak.dtype
        eta = noisy_or.num_active(state.z, state.y, dtype)
        uniforms = jax.random.uniform(key, eta.shape, dtype)
        return (uniforms < noisy_or.probability(eta, parameters_of(state))).astype(dtype)

    def simulate_more(
        self, key: Key, state: NoisyOrState, data: Dense
    ) -> tuple[NoisyOrState, Dense, dict[str, Array]]:
        z_key, y_key, x_key = jax.random.split(key, 3)
        prior = self.prior(state)
        more, overflow = sample_by_rows(prior, z_key, *state.z.shape, earlier=state.z)
        z = jnp.concatenate([state.z, more])
        existed, exists = (prior.exists(jnp.sum(each, axis=0)) for each in (state.z, z))
        new_y = jax.random.uniform(y_key, state.y.shape) < state.cause_probability
        y = jnp.where(existed[:, None], state.y, new_y & exists[:, None])
        state = state._replace(z=z, y=y)
        x = self.simulate_data(x_key, state)[data.num_rows :]
        return state, data.with_more(x), {"features": overflow}
