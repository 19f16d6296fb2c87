"""What models of binary features from an Indian buffet process, or of a fixed number, share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import slots
from jaxmf.arguments import MOST_SLOTS, assign, check_count, check_word
from jaxmf.data import Dense
from jaxmf.devices import AUTO, choose_sweep, default_platform
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.model import Model
from jaxmf.priors import hyper
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.readable import Readable
from jaxmf.types import Array, Key, PyTree

if TYPE_CHECKING:
    import numpyro.distributions as dist


class SimulatedModel(Readable, Model[Dense], ABC):
    """A model of binary features whose states and matrices can be drawn from its prior."""

    @abstractmethod
    def simulate_matrix(
        self, key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[PyTree, Dense, Array]:
        """A state from the prior, complete data, and whether `capacity` was too small."""

    def simulate(
        self, key: Key, num_rows: int, num_columns: int, *, capacity: int = 32
    ) -> tuple[PyTree, Dense]:
        """A state from the prior and complete data from it.

        Args:
          key: typed PRNG key.
          num_rows: N.
          num_columns: D.
          capacity: slots for features (on either side where both have some); raised to what the
            model needs where that is more.
        Returns:
          State and Dense (N, D). Nothing says so when `capacity` was too small: the last features
          are then missing from Z. Its chance is negligible at a few times alpha log N.
        """
        state, data, _ = self.simulate_matrix(key, (num_rows, num_columns), capacity)
        return state, data


class BuffetModel(SimulatedModel):
    """A frozen dataclass with `alpha`, `concentration` and `num_features` among its fields.

    Attributes:
      hyperparameter_names: fields with numbers or priors, as states and draws have them.
      sweeps: names of the sweeps of its sampler.
      kind: the name by which `devices` knows what its sweeps cost.
    """

    hyperparameter_names: ClassVar[tuple[str, ...]]
    sweeps: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]

    alpha: Hyperparameter
    concentration: Hyperparameter
    num_features: int | None

    def take_likelihood(self, likelihood: object, family: type[Likelihood]) -> None:
        """Sets the hyperparameters of the cells from a likelihood object, where there is one.

        Raises:
          TypeError: it is of another family.
          ValueError: one of its hyperparameters was passed too.
        """
        if likelihood is None:
            return
        if not isinstance(likelihood, family):
            expected = f"likelihood of {type(self).__name__} must be an mf.{family.__name__} object"
            remedy = (
                f"; use FeatureModel(likelihood={likelihood!r}, feature_prior=...), which takes any"
                if isinstance(likelihood, Likelihood)
                else f", such as {family()!r}"
            )
            raise TypeError(f"{expected}, got {likelihood!r}{remedy}")
        for name in family.hyperparameters:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} follows from likelihood={likelihood!r}; leave it out")
            assign(self, **{name: getattr(likelihood, name)})

    def check_buffet(self) -> None:
        """Sets the default prior of alpha; refuses hyperparameters of Z out of their range."""
        if self.alpha is None:
            assign(self, alpha=_default_alpha())
        for name in ("alpha", "concentration"):
            hyper.validate(name, getattr(self, name))
        if self.num_features is not None:
            check_count("num_features", self.num_features, most=MOST_SLOTS)

    def prior(self, state: PyTree) -> IndianBuffet | BetaBernoulli:
        """The prior of Z at the hyperparameters of a state or a particle."""
        return self.feature_prior(state.alpha, state.concentration)

    def feature_prior(self, alpha: Array, concentration: Array) -> IndianBuffet | BetaBernoulli:
        """The prior of Z at given hyperparameters."""
        if self.num_features is None:
            return IndianBuffet(alpha, concentration)
        return BetaBernoulli(alpha, concentration, self.num_features)

    def first_slot(self) -> int:
        """The slot of the first feature: 0."""
        return 0

    def num_slots(self, capacity: int | None = None) -> int:
        """Slots for a wished capacity, fixed features and all of a finite model held."""
        if capacity is not None:
            capacity = check_count("capacity", capacity, most=MOST_SLOTS)
        if self.num_features is not None:
            return self.num_features + self.first_slot()
        return (slots.FIRST_SLOTS if capacity is None else capacity) + self.first_slot()

    def trimmed(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `TrimsDraws`; the slots of a finite model are all features."""
        if self.num_features is not None:
            return dict(draws)
        return slots.trimmed(draws, "z", {"z": -1, "y": 2}, least=self.first_slot())

    def log_hyperprior(self, state: PyTree) -> Array:
        """Log prior density of the hyperparameters, () float; fixed ones add nothing."""
        terms = [
            hyper.log_prior(getattr(self, name), getattr(state, name))
            for name in self.hyperparameter_names
        ]
        return sum(terms[1:], terms[0])

    @abstractmethod
    def simulate_state(
        self, z_key: Key, hyper_key: Key, shape: tuple[int, int], capacity: int
    ) -> tuple[PyTree, Array]:
        """A state from the prior for data of a shape, and whether `capacity` was too small."""

    def chosen_sweep(self, sweep: str, data: Dense | None = None) -> str:
        """The sweep, that of the device for "auto".

        Raises:
          ValueError: it is unknown; the message names those there are.
        """
        known = check_word("sweep", sweep, (AUTO, *self.sweeps))
        if known == AUTO:
            options = self.device_options({}, platform=default_platform(), data=data)
            return str(options["sweep"])
        return known

    def device_options(
        self, options: Mapping[str, object], *, platform: str, data: Dense | None = None
    ) -> dict[str, object]:
        """The sweep: see `Model`."""
        if options.get("sweep", AUTO) != AUTO:
            return {}
        num_rows = None if data is None else data.num_rows
        return {"sweep": choose_sweep(self.kind, platform, num_rows)}


class HasSlots(Protocol):
    """A plan that says how many slots there are to begin with."""

    @property
    def num_slots(self) -> int: ...


def draw_from_prior(
    plan: HasSlots, model: BuffetModel, key: Key, data: Dense, sizes: dict[str, int] | None
) -> tuple[PyTree, dict[str, Array]]:
    """A state from the prior: `AnnealedModel.init`."""
    num_slots = plan.num_slots if sizes is None else sizes["features"]
    z_key, hyper_key = jax.random.split(key)
    shape = (data.num_rows, data.num_columns)
    capacity = num_slots - model.first_slot()
    state, overflow = model.simulate_state(z_key, hyper_key, shape, capacity)
    dtype = data.values.dtype
    values = {n: jnp.asarray(getattr(state, n), dtype) for n in model.hyperparameter_names}
    return state._replace(**values), {"features": overflow}


def _default_alpha() -> dist.Distribution:
    import numpyro.distributions as dist

    return dist.Gamma(1.0, 1.0)
