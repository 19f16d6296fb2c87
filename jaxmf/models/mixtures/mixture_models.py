"""Mixtures of rows: each row belongs to one group, the groups have a family's parameters.

    z_i ~ pi,  pi ~ Dirichlet or a Dirichlet process
    x_i ~ f(theta_{z_i})

Source: Porteous (2010), sections 2 and 4.1; Neal (2000), Markov chain sampling methods for
Dirichlet process mixture models, algorithm 3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Self

import jax
import jax.numpy as jnp

from jaxmf.arguments import assign
from jaxmf.blocks import Block, Network
from jaxmf.blocks.annealed import annealed
from jaxmf.blocks.network_model import MOST_KEPT_TOKENS, NetworkModel
from jaxmf.blocks.prediction import (
    Draw,
    family_statistics,
    hyperparameters_of,
    left_out_density,
    predict_moments,
    predictive_groups,
    probabilities,
)
from jaxmf.blocks.simulation import simulate_more
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.values import draw_in_parts, draw_indices, log_mixture
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Dense, Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.categories import BetaBinary, DirichletMultinomial
from jaxmf.likelihoods.families.columns import IndependentColumns
from jaxmf.likelihoods.families.family import Family
from jaxmf.likelihoods.families.mixed_columns import MixedColumns
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.model import GroupMoments, Pair
from jaxmf.models.mixtures import mixture_checks
from jaxmf.priors import hyper
from jaxmf.priors.flexible import FlexiblePrior, check_flexible
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior, is_kind
from jaxmf.priors.partitions import Dirichlet, DirichletProcess, PitmanYor
from jaxmf.samplers.annealed_smc import AnnealedModel
from jaxmf.types import STATIC, Array, Key, PyTree


class _Mixture(NetworkModel[Dense]):
    """Rows of a matrix as tokens, with one indicator each."""

    family: Family | None

    @property
    def predicts_its_rows(self) -> bool:
        """Whether `predict_cells` is of the rows of the data, and not of one further row.

        It is if columns are independent given the group, since then cells may be missing.
        """
        return self.family is not None and self.family.takes_missing

    @abstractmethod
    def _prior(self) -> PartitionPrior:
        """The prior of the groups."""

    @property
    def _takes_rows(self) -> bool:
        """Whether the family is of rows of any length, and not of single numbers."""
        if self.family is None:  # `network` takes NormalInverseWishart
            return True
        return isinstance(self.family, NormalInverseWishart) or self.family.takes_missing

    def network(self) -> Network:
        family = NormalInverseWishart() if self.family is None else self.family
        return Network(group=Block(self._prior()), x=Block(family, by="group", observed=True))

    def over(self, data: Dense) -> tuple[Wiring, Tokens]:
        """The network with its sizes, the family on the scale of the data, and the tokens."""
        tokens = self.tokens(data)
        return self.network().known_from(tokens).at(tokens), tokens

    def matched(self, data: Dense) -> Self:
        """The model with the number of categories of each column from the data, if left open."""
        model: Any = self
        family = mixture_checks.with_levels(self.family, data)
        found: Self = self if family is self.family else replace(model, family=family)
        return found

    def rows(self, data: Dense) -> Array:
        """The rows as the family takes them: (N, D) float, NaN where a cell is missing."""
        if data.observed is None:
            return data.values
        return jnp.where(data.observed, data.values, jnp.nan)

    def tokens(self, data: Dense) -> Tokens:
        values = self.rows(data)
        if not self._takes_rows:
            values = values[:, 0]
        nothing = jnp.zeros((values.shape[0],), jnp.int32)
        # a column is what says how many tokens there are
        return bare(
            Tokens, columns={"all": nothing}, sizes={"all": 1}, values={"x": values}, names={}
        )

    def simulate_more(
        self, key: Key, state: NetworkState, data: Dense
    ) -> tuple[NetworkState, Dense, dict[str, Array]]:
        if mixture_checks.is_of_data(self.family):
            kind = NormalInverseWishart if self.family is None else type(self.family)
            stated = f"{kind.__name__}(...) with all of its settings"
            raise ValueError(
                f"{type(self).__name__} takes the family of its groups from the data: state it to "
                f"simulate more, family={stated}"
            )
        network, tokens = self.over(data)
        state, both, overflow = simulate_more(network, key, state, tokens)
        x = both.values["x"].reshape(2 * data.num_rows, -1)
        return state, data.with_more(x[data.num_rows :]), overflow

    def device_options(
        self, options: Mapping[str, object], *, platform: str, data: Dense | None = None
    ) -> dict[str, object]:
        """The sweep; and for few rows that draws keep the group of every row."""
        found = super().device_options(options, platform=platform, data=data)
        if "keep" not in options and data is not None and data.num_rows <= MOST_KEPT_TOKENS:
            found["keep"] = "assignments"
        return found

    def check_data(self, data: Dense, name: str) -> None:
        """Refuses cells that are missing, and more columns than the family takes."""
        mixture_checks.check_table(self.family, data, name, takes_rows=self._takes_rows)
        super().check_data(data, name)
        if isinstance(self.family, NormalInverseWishart):
            family: Any = self.over(data)[0].distributions["x"]
            family.check_distances(data.values, name)

    def predict_rows_of_draw(self, draw: Draw, data: Dense, x: Array) -> tuple[Array, Array]:
        """Log predictive density of further rows, and the probabilities of their groups.

        Args: x (M, D) float.
        Returns (M,) and (M, K) float; of a growing prior the lowest free slot is a new group.
        """
        network, _ = self.over(data)
        if not self._takes_rows:
            x = x[:, 0]
        return predictive_groups(network, draw, "group", "x", x)

    def transform_rows(self, key: Array, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """Probabilities of the groups of rows not seen in training: (M, K) float."""
        del key
        return self.predict_rows_of_draw(draw, data, self.rows(new_data))[1]

    def predict_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Pair:
        """Mean and variance (N', D) of cells of further rows, given the observed cells of each row.

        For an observed cell they are those of the same cell in another row of its groups.
        """
        del key
        shares = self.predict_rows_of_draw(draw, data, self.rows(new_data))[1]
        mean, variance = (leaf.reshape(shares.shape[1], -1) for leaf in self._moments(draw, data))
        centre = jnp.mean(mean, axis=0)
        # squares of what is left of the mean: nothing cancels
        first = shares @ (mean - centre)
        second = shares @ (variance + (mean - centre) ** 2)
        return centre + first, jnp.maximum(second - first**2, 0)

    def draw_rows(self, key: Key, draw: Draw, data: Dense, new_data: Dense) -> Array:
        """One value of every cell of further rows, (N', D) float, each row in one group."""
        shares = self.predict_rows_of_draw(draw, data, self.rows(new_data))[1]
        group_key, value_key = jax.random.split(key)
        drawn = self._drawn_rows(value_key, draw, data, draw_indices(group_key, shares))
        return drawn.reshape(shares.shape[0], -1)

    def _moments(self, draw: Draw, data: Dense) -> tuple[Array, Array]:
        """Mean and variance of the next row of every group, (K,) or (K, D) each."""
        distribution, statistics, hyperparameters = self._family_of(draw, data)
        return distribution.moments(statistics, hyperparameters)

    def _family_of(self, draw: Draw, data: Dense) -> tuple[Family, PyTree, dict[str, Array]]:
        """The family of the rows, and the statistics and hyperparameters of a draw's groups."""
        network, _ = self.over(data)
        statistics = family_statistics(network, draw, "x")[0]
        hyperparameters = hyperparameters_of(network, draw, "x")
        return network.distributions["x"], statistics, hyperparameters

    def _drawn_rows(self, key: Key, draw: Draw, data: Dense, groups: Array) -> Array:
        """A row of each of the groups (M,), whose parameters are drawn anew."""
        distribution, statistics, hyperparameters = self._family_of(draw, data)
        parameters_key, value_key = jax.random.split(key)
        parameters = distribution.sample_parameters(parameters_key, statistics, hyperparameters)
        return distribution.sample(value_key, parameters, groups)

    def _shares_of_rows(self, draw: Draw, data: Dense, rows: Array) -> Array:
        """Probabilities of the groups of rows of the data, (M, K) float.

        One or zero if the draw keeps the groups of all rows; else those of a further row with the
        same cells.
        """
        num_groups = draw["group_counts"].size
        if "group_of_tokens" in draw:
            return jax.nn.one_hot(draw["group_of_tokens"][rows], num_groups)
        return self.predict_rows_of_draw(draw, data, self.rows(data)[rows])[1]

    def predict_cells(self, draw: Draw, data: Dense, rows: Array, columns: Array) -> Pair:
        if self.predicts_its_rows:
            shares = self._shares_of_rows(draw, data, rows)
            means, variances = self._moments(draw, data)
            mean = jnp.sum(shares * means[:, columns].T, axis=1)
            between = (means[:, columns].T - mean[:, None]) ** 2
            return mean, jnp.sum(shares * (variances[:, columns].T + between), axis=1)
        network, tokens = self.over(data)
        mean, variance = predict_moments(network, draw, "x", tokens, {"all": rows * 0})
        if mean.ndim == 1:
            return mean, variance
        positions = jnp.arange(rows.shape[0])
        return mean[positions, columns], variance[positions, columns]

    def cell_log_density(
        self, draw: Draw, data: Dense, rows: Array, columns: Array, values: Array
    ) -> Array:
        """Log predictive density of cells, each by itself: (M,) float.

        Cells of a further row, or of rows of the data if columns are independent given the group.
        """
        if self.predicts_its_rows:
            return self._log_density_in_rows(draw, data, rows, columns, values)
        weights, distribution, statistics = self._entry_mixture(draw, data)
        cache = distribution.begin(statistics, {})
        parts = jnp.arange(weights.size)[None, :] * data.num_columns + columns[:, None]
        log_density = partial(log_mixture, distribution, cache)
        return jax.vmap(log_density, (0, None, 0))(parts, weights, values)

    def draw_cells(self, key: Key, draw: Draw, data: Dense, rows: Array, columns: Array) -> Array:
        """A draw from the predictive distribution of every cell: (M,) float.

        Each by itself; if there are more cells (filled up to few sizes, at least 16) than rows,
        groups are drawn of rows instead, which is less work, and the cells of a row share its
        group. Cells of one group and column share its parameters.
        """
        if self.predicts_its_rows:
            group_key, parameters_key, value_key = jax.random.split(key, 3)
            if rows.shape[0] > data.num_rows:
                shares = self._shares_of_rows(draw, data, jnp.arange(data.num_rows))
                groups = draw_indices(group_key, shares)[rows]
            else:
                groups = draw_indices(group_key, self._shares_of_rows(draw, data, rows))
            family, statistics, hyperparameters = self._family_of(draw, data)
            parameters = family.sample_parameters(parameters_key, statistics, hyperparameters)
            return family.sample_cells(value_key, parameters, groups, columns)
        weights, distribution, statistics = self._entry_mixture(draw, data)
        group_key, value_key = jax.random.split(key)
        groups = draw_indices(group_key, jnp.broadcast_to(weights, (rows.size, weights.size)))
        parts = groups * data.num_columns + columns
        return draw_in_parts(distribution, value_key, statistics, {}, parts)

    def _log_density_in_rows(
        self, draw: Draw, data: Dense, rows: Array, columns: Array, values: Array
    ) -> Array:
        logs = self._log_density_by_group(draw, data, columns, values)
        return jax.nn.logsumexp(logs, axis=1, b=self._shares_of_rows(draw, data, rows))

    def new_cell_log_density(
        self, draw: Draw, data: Dense, new_data: Dense, rows: Array, columns: Array, values: Array
    ) -> Array:
        """Log density (M,) of cells of further rows, which have the groups of their cells."""
        shares = self.predict_rows_of_draw(draw, data, self.rows(new_data))[1]
        logs = self._log_density_by_group(draw, data, columns, values)
        return jax.nn.logsumexp(logs, axis=1, b=shares[rows])

    def column_values(self, column: int) -> tuple[float, ...] | None:
        """0 to V - 1 for a column of V categories, 0 and 1 for a binary column; else None."""
        family: Any = self.family
        if isinstance(family, MixedColumns):
            family = family.families[column]
        elif isinstance(family, IndependentColumns):
            family = family.family
        is_known = isinstance(family, BetaBinary | DirichletMultinomial) and family.size is not None
        return tuple(map(float, range(family.size))) if is_known else None

    def group_moments(self, draw: Draw, data: Dense) -> GroupMoments:
        """Sizes, probabilities and means of the groups given a draw.

        With a conjugate prior worth n_0 values, a share 1 / (n_0 + n + 1) of the predictive
        variance of a group of n is the variance of its mean, and the rest that of values about it.
        """
        distribution, statistics, hyperparameters = self._family_of(draw, data)
        mean, variance = distribution.moments(statistics, hyperparameters)
        counts = draw["group_counts"].reshape(-1)
        weights = probabilities(self.over(data)[0], draw, "group")
        mean, variance = mean.reshape(counts.size, -1), variance.reshape(counts.size, -1)
        known = mixture_checks.prior_count(distribution, counts, statistics)
        share = 1 / (known + 1)
        return GroupMoments(
            counts=counts,
            weights=weights,
            weight_sd=jnp.sqrt(weights * (1 - weights) / (self._total_weight(draw) + 1)),
            mean=mean,
            mean_sd=jnp.sqrt(variance * share),
            sd=jnp.sqrt(variance * (1 - share)),
            level_probabilities=self._level_probabilities(draw, data),
        )

    def _level_probabilities(self, draw: Draw, data: Dense) -> dict[int, Array]:
        """By column of categories, of more than zeros and ones: (K, V) float in every group."""
        known = {column: self.column_values(column) for column in range(data.num_columns)}
        levels = {column: found for column, found in known.items() if found and found != (0, 1)}
        if not levels:
            return {}
        sizes = [len(found) for found in levels.values()]
        columns = jnp.repeat(
            jnp.array(list(levels)), jnp.array(sizes), total_repeat_length=sum(sizes)
        )
        values = jnp.concatenate([jnp.asarray(found) for found in levels.values()])
        every = jnp.exp(self._log_density_by_group(draw, data, columns, values)).T
        ends = list(accumulate(sizes))[:-1]
        return dict(zip(levels, jnp.split(every, ends, axis=1), strict=True))

    def _log_density_by_group(
        self, draw: Draw, data: Dense, columns: Array, values: Array
    ) -> Array:
        """Log predictive density of cells (M,), each by itself, in every group: (M, K) float."""
        family, statistics, hyperparameters = self._family_of(draw, data)
        return family.log_predictive_of_cells(statistics, hyperparameters, columns, values)

    def _total_weight(self, draw: Draw) -> Array:
        """Rows and concentration together; NaN for priors whose weights have no Beta marginals."""
        prior: Any = self._prior()
        if not is_kind(prior, Dirichlet, DirichletProcess, PitmanYor):
            return jnp.full((), jnp.nan)
        concentration = draw.get("group_concentration", hyper.initial_value(prior.concentration))
        num_rows = jnp.sum(draw["group_counts"])
        if prior.grows:
            return num_rows + concentration
        return num_rows + jnp.sum(jnp.broadcast_to(concentration, draw["group_counts"].shape))

    def _entry_mixture(self, draw: Draw, data: Dense) -> tuple[Array, Family, PyTree]:
        """Probabilities of the groups, and the distribution of single entries of a row."""
        weights = probabilities(self.over(data)[0], draw, "group")
        distribution, statistics, _ = self._family_of(draw, data)
        if isinstance(distribution, NormalInverseWishart):
            distribution, statistics = distribution.entry_marginals(statistics)
        return weights, distribution, statistics


class _SequentialMixture(_Mixture):
    """A mixture whose prior says the group of one row given those of all others."""

    def row_log_density(self, draw: Draw, data: Dense, rows: Array) -> tuple[Array, Array]:
        """Log predictive density of rows of the data given all others, and of one more of each.

        Args: draw: what a chain with ``keep="assignments"`` records; rows (M,) int32.
        Returns (M,) float each.
        """
        network, tokens = self.over(data)
        x, groups = tokens.values["x"][rows], draw["group_of_tokens"][rows]
        without = left_out_density(network, draw, ("group", "x"), groups, x)
        return without, predictive_groups(network, draw, "group", "x", x)[0]

    def annealed(
        self,
        data: Dense,
        *,
        split_merge: int = 0,
        keep: str = "assignments",
        capacity: int | None = None,
    ) -> AnnealedModel:
        """One state for `jaxmf.smc`, with density p(z) p(rows | z)^b, the parameters summed out.

        Args:
            data: (N, D).
            split_merge: as in `sampler`.
            keep: as in `sampler`; by default the groups of all rows too, which `post.groups` and
                `jaxmf.compare` need.
            capacity: slots of a growing number of groups to begin with; they double when a state
                needs more.
        Raises:
            ValueError: an option out of its range, or a family whose hyperparameters are learned.
        """
        del data
        return annealed(self, split_merge=split_merge, keep=keep, capacity=capacity)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MixtureOfGaussians(_SequentialMixture):
    """A mixture of a given number of Gaussians, with means and covariances of their own.

    Args:
        num_components: K.
        concentration: of each component's probability; a number, K numbers, or a numpyro
            distribution.
        family: by default `NormalInverseWishart.from_data` of the rows, whatever their units;
            or one with settings of your own, `NormalInverseGamma` for single numbers, and
            `IndependentColumns` where cells are missing. `DirichletMultinomial()` and
            `BetaBinary()` are of columns of categories (codes 0, 1, ...) and of zeros and ones,
            independent within a group: latent classes.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> import jaxmf as mf
        >>> mf.MixtureOfGaussians(3).network().indicators
        ('group',)
    """

    num_components: int = field(metadata=STATIC)
    concentration: Hyperparameter = 1.0
    family: Family | None = None

    def __post_init__(self) -> None:
        Dirichlet(self.num_components, self.concentration)
        assign(self, family=mixture_checks.family_of_rows(self.family))

    def _prior(self) -> PartitionPrior:
        return Dirichlet(self.num_components, self.concentration)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DPMixture(_SequentialMixture):
    """A mixture with as many components as the rows need: a Dirichlet process mixture.

    Args:
        concentration: alpha, a number or a numpyro distribution; by default Gamma(1, 1).
        discount: None, or d of a Pitman-Yor process instead; a number or a numpyro
            distribution.
        family: of the rows; by default `NormalInverseWishart.from_data` of them, whatever their
            units; or one with settings of your own, `NormalInverseGamma`, `GammaPoisson` for
            single numbers, and `IndependentColumns` where cells are missing.
            `DirichletMultinomial()` and `BetaBinary()` are of columns of categories (codes 0, 1,
            ...) and of zeros and ones, independent within a group: latent classes.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> import jaxmf as mf
        >>> mf.DPMixture(concentration=1.0).network().children("group")
        ('x',)
    """

    concentration: Hyperparameter = None
    discount: Hyperparameter | None = None
    family: Family | None = None

    def __post_init__(self) -> None:
        assign(self, concentration=self._prior().concentration)
        assign(self, family=mixture_checks.family_of_rows(self.family))

    def _prior(self) -> DirichletProcess | PitmanYor:
        if self.discount is None:
            return DirichletProcess(self.concentration)
        return PitmanYor(self.concentration, self.discount)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FlexibleMixture(_Mixture):
    """A mixture whose groups have sizes as a flexible prior says (Figure 7.2).

    Args:
        prior: `FlexiblePrior` of as many items as there are rows, with those unobserved; from
            expected counts of groups by `match_moments`, from data by `contrastive_divergence`.
        family: of the rows; by default `NormalInverseWishart.from_data` of them, whatever their
            units; or one with settings of your own, `NormalInverseGamma`, `GammaPoisson` for
            single numbers, and `IndependentColumns` where cells are missing.
            `DirichletMultinomial()` and `BetaBinary()` are of columns of categories (codes 0, 1,
            ...) and of zeros and ones, independent within a group: latent classes.
    Raises:
        TypeError: `prior` is no `FlexiblePrior`.
    Example:
        >>> import jaxmf as mf
        >>> prior = mf.FlexiblePrior([0.0, 1.0, 2.0])
        >>> FlexibleMixture(prior).network().indicators
        ('group',)
    """

    prior: FlexiblePrior
    family: Family | None = None

    def __post_init__(self) -> None:
        check_flexible("prior", self.prior)
        assign(self, family=mixture_checks.family_of_rows(self.family))

    def _prior(self) -> PartitionPrior:
        return self.prior
