"""Mixtures of rows: each row belongs to one group, the groups have a family's parameters.

    z_i ~ pi,  pi ~ Dirichlet or a Dirichlet process
    x_i ~ f(theta_{z_i})

Source: Porteous (2010), sections 2 and 4.1; Neal (2000), Markov chain sampling methods for
Dirichlet process mixture models, algorithm 3.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp

from jaxmf.blocks import Block, Network
from jaxmf.blocks.model import NetworkModel
from jaxmf.blocks.prediction import (
    Draw,
    family_statistics,
    predict_moments,
    predictive_groups,
    probabilities,
)
from jaxmf.blocks.values import draw_in_parts, draw_places, log_mixture
from jaxmf.data import Dense, Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.family import Family, check_family
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.priors.flexible import FlexiblePrior, check_flexible
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import Dirichlet, DirichletProcess, PitmanYor
from jaxmf.types import Array, Key, PyTree


class _Mixture(NetworkModel):
    """Rows of a complete matrix as tokens, with one indicator each.

    Attributes:
        predicts_its_rows: whether `predict_cells` is of the rows of the data; it is of a further
            row.
    """

    predicts_its_rows = False
    family: Family

    @abstractmethod
    def _prior(self) -> PartitionPrior:
        """Of the groups."""

    def network(self) -> Network:
        return Network(group=Block(self._prior()), x=Block(self.family, by="group", observed=True))

    def tokens(self, data: Dense) -> Tokens:
        values = data.values
        if not isinstance(self.family, NormalInverseWishart):
            values = values[:, 0]
        nothing = jnp.zeros((values.shape[0],), jnp.int32)
        # a column is what says how many tokens there are
        return bare(
            Tokens, columns={"all": nothing}, sizes={"all": 1}, values={"x": values}, names={}
        )

    def check_data(self, data: Dense, name: str) -> None:
        """Refuses missing cells, and more columns than the family takes."""
        if data.observed is not None:
            raise ValueError(
                f"{name}: {data.num_missing} cells are missing; a mixture of rows takes complete "
                "rows. Drop or fill them"
            )
        wide = isinstance(self.family, NormalInverseWishart)
        if not wide and data.num_columns != 1:
            raise ValueError(
                f"{name}: has {data.num_columns} columns; {type(self.family).__name__} takes one "
                "number a row. NormalInverseWishart() takes rows of any length"
            )
        super().check_data(data, name)

    def predict_rows_of_draw(self, draw: Draw, data: Dense, x: Array) -> tuple[Array, Array]:
        """Log predictive density of further rows, and the probabilities of their groups.

        Args:
            draw: what a chain records.
            data: the training data.
            x: (M, D) float.

        Returns:
            (M,) and (M, K) float; of a growing prior the lowest free slot is a new group.
        """
        network, _ = self.over(data)
        if not isinstance(self.family, NormalInverseWishart):
            x = x[:, 0]
        return predictive_groups(network, draw, "group", "x", x)

    def transform_rows(self, key: Array, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities of the groups of rows not seen in training: (M, K) float."""
        del key
        return self.predict_rows_of_draw(draw, data, new_data.values)[1]

    def predict_cells(
        self, draw: Draw, data: Dense, rows: Array, columns: Array
    ) -> tuple[Array, Array]:
        """Mean and variance of the cells of a further row: the same for all rows."""
        network, tokens = self.over(data)
        mean, variance = predict_moments(network, draw, "x", tokens, {"all": rows * 0})
        if mean.ndim == 1:
            return mean, variance
        places = jnp.arange(rows.shape[0])
        return mean[places, columns], variance[places, columns]

    def cell_log_density(
        self, draw: Draw, data: Dense, rows: Array, columns: Array, values: Array
    ) -> Array:
        """Log predictive density of cells of a further row, each by itself: (M,) float."""
        weights, law, statistics = self._of_entries(draw, data)
        working = law.begin(statistics, {})
        parts = jnp.arange(weights.size)[None, :] * data.num_columns + columns[:, None]
        of_cell = partial(log_mixture, law, working)
        return jax.vmap(of_cell, (0, None, 0))(parts, weights, values)

    def draw_cells(self, key: Key, draw: Draw, data: Dense, rows: Array, columns: Array) -> Array:
        """A draw from the predictive law of every cell, each by itself: (M,) float."""
        weights, law, statistics = self._of_entries(draw, data)
        of_group, of_value = jax.random.split(key)
        groups = draw_places(of_group, jnp.broadcast_to(weights, (rows.size, weights.size)))
        parts = groups * data.num_columns + columns
        return draw_in_parts(law, of_value, statistics, {}, parts)

    def _of_entries(self, draw: Draw, data: Dense) -> tuple[Array, Family, PyTree]:
        """Probabilities of the groups, and the law of single entries of a row."""
        network, _ = self.over(data)
        weights = probabilities(network, draw, "group")
        law, statistics = network.blocks["x"].law, family_statistics(network, draw, "x")[0]
        if isinstance(law, NormalInverseWishart):
            law, statistics = law.of_entries(statistics)
        return weights, law, statistics


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["concentration", "family"],
    meta_fields=["num_components"],
)
@dataclass(frozen=True)
class MixtureOfGaussians(_Mixture):
    """A mixture of a given number of Gaussians, with means and covariances of their own.

    Args:
        num_components: K.
        concentration: of each component's probability; a number, K numbers, or a numpyro
            distribution.
        family: `NormalInverseWishart` for rows of any length, with settings on the scale of the
            data; `NormalInverseGamma` for single numbers.

    Raises:
        TypeError, ValueError: settings that are no such thing.

    Example:
        >>> import jaxmf as mf
        >>> mf.MixtureOfGaussians(3).network().indicators
        ('group',)
    """

    num_components: int
    concentration: Hyperparameter = 1.0
    family: Family = field(default_factory=NormalInverseWishart)

    def __post_init__(self) -> None:
        Dirichlet(self.num_components, self.concentration)
        check_family(self.family)

    def _prior(self) -> PartitionPrior:
        return Dirichlet(self.num_components, self.concentration)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["concentration", "discount", "family"],
    meta_fields=[],
)
@dataclass(frozen=True)
class DPMixture(_Mixture):
    """A mixture with as many components as the rows need: a Dirichlet process mixture.

    Args:
        concentration: alpha, a number or a numpyro distribution; by default Gamma(1, 1).
        discount: None, or d of a Pitman-Yor process in its place; a number or a numpyro
            distribution.
        family: of the rows: `NormalInverseWishart` for rows of any length, with settings on the
            scale of the data; `NormalInverseGamma`, `GammaPoisson` for single numbers.

    Raises:
        TypeError, ValueError: settings that are no such thing.

    Example:
        >>> import jaxmf as mf
        >>> mf.DPMixture(concentration=1.0).network().children("group")
        ('x',)
    """

    concentration: Hyperparameter = None
    discount: Hyperparameter | None = None
    family: Family = field(default_factory=NormalInverseWishart)

    def __post_init__(self) -> None:
        object.__setattr__(self, "concentration", self._prior().concentration)
        check_family(self.family)

    def _prior(self) -> DirichletProcess | PitmanYor:
        if self.discount is None:
            return DirichletProcess(self.concentration)
        return PitmanYor(self.concentration, self.discount)


@partial(jax.tree_util.register_dataclass, data_fields=["prior", "family"], meta_fields=[])
@dataclass(frozen=True)
class FlexibleMixture(_Mixture):
    """A mixture whose groups have sizes as a flexible prior says (Figure 7.2).

    Args:
        prior: `FlexiblePrior` of as many items as there are rows, with those unobserved; from
            expected counts of groups by `match_moments`, from data by `contrastive_divergence`.
        family: of the rows: `NormalInverseWishart` for rows of any length, with settings on the
            scale of the data; `NormalInverseGamma`, `GammaPoisson` for single numbers.

    Raises:
        TypeError: a prior that is no flexible one.

    Example:
        >>> import jaxmf as mf
        >>> prior = mf.FlexiblePrior([0.0, 1.0, 2.0])
        >>> FlexibleMixture(prior).network().indicators
        ('group',)
    """

    prior: FlexiblePrior
    family: Family = field(default_factory=NormalInverseWishart)

    def __post_init__(self) -> None:
        check_flexible("prior", self.prior)
        check_family(self.family)

    def _prior(self) -> PartitionPrior:
        return self.prior
