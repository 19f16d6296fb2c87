"""Ratings of items by users: every rating has a group of its user and a group of its item.

    BiLDA   user_group by user, item_group by item (Dirichlet), rating by both groups
    BiHDP   the same with an HDP on either side
    URP     user_group by user, rating by the user's group and the item itself

A user belongs to several groups, one for each of his ratings; so does an item. With the groups and
their distributions of ratings summed out an unseen rating has the distribution (eq 6.8 to 6.11)

    p(r | u, i) = sum_jk E[pi_u]_j E[pi_i]_k E[phi_jk]_r

Source: Porteous (2010), section 6.1; Marlin (2003) for URP.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import assign, check_count, check_numbers, check_object
from jaxmf.blocks import Block, Network
from jaxmf.blocks.folding import fold_in
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.open_families import known_families, notes_of_families
from jaxmf.blocks.prediction import (
    Draw,
    category_probabilities,
    family_statistics,
    hyperparameters_of,
    predict_categories,
    predict_moments,
    probabilities,
)
from jaxmf.blocks.values import draw_values, log_density
from jaxmf.data import Entries, Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.categories import BetaBinary, DirichletMultinomial
from jaxmf.likelihoods.families.family import Family
from jaxmf.likelihoods.families.normal import NormalInverseGamma
from jaxmf.model import Pair
from jaxmf.priors import hyper
from jaxmf.priors.hdp import HDP
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import STATIC, Array, Key, Names


class _Ratings(NetworkModel[Entries]):
    """Observed cells as tokens with the columns user, item and rating.

    Attributes:
        family: of the ratings.
        values: the values that a rating may have, in order; None for real values.
    """

    family: Family
    values: tuple[float, ...] | None

    def _checked(self) -> None:
        """The family and its values go together; the network can be built."""
        is_real = isinstance(self.family, NormalInverseGamma)
        if not is_real and not isinstance(self.family, DirichletMultinomial | BetaBinary):
            raise TypeError(
                f"family: ratings are DirichletMultinomial(), BetaBinary() or "
                f"NormalInverseGamma(), got {type(self.family).__name__}"
            )
        for name in ("num_user_groups", "num_item_groups"):
            if hasattr(self, name):
                check_count(name, getattr(self, name))
        for name in ("user_concentration", "item_concentration"):
            if hasattr(self, name):
                size = getattr(self, f"num_{name.removesuffix('_concentration')}_groups")
                hyper.validate_concentrations(getattr(self, name), size, name)
        values = self.values
        if is_real:
            values = None
        elif isinstance(self.family, BetaBinary):
            values = (0.0, 1.0)
        elif values is None:
            raise ValueError("values: name the values of a rating, such as (1, 2, 3, 4, 5)")
        if values is not None:
            values = tuple(check_numbers("values", values).tolist())
            if len(values) < 2 or not np.all(np.isfinite(values)) or np.any(np.diff(values) <= 0):
                raise ValueError(
                    f"values must be two or more finite numbers that rise, each once, got {values}"
                )
        assign(self, values=values)
        self.network()

    def matched(self, data: Entries) -> Self:
        """The model with what its family of real ratings leaves open taken from them."""
        known = known_families(self.network(), self.tokens(data))
        model: Any = self
        found: Self = dataclasses.replace(model, family=known["rating"]) if known else self
        return found

    def notes(self, data: Entries) -> tuple[str, ...]:
        """Choices that `matched` took from the ratings."""
        return notes_of_families(self.network(), self.tokens(data))

    def tokens(self, data: Entries) -> Tokens:
        """A token a rating; values as positions in `values`."""
        columns = {"user": data.rows, "item": data.columns}
        sizes = {"user": data.num_rows, "item": data.num_columns}
        if self.values is None:
            return bare(
                Tokens, columns=columns, sizes=sizes, values={"rating": data.values}, names={}
            )
        levels = jnp.asarray(self.values, data.values.dtype)
        columns["rating"] = jnp.searchsorted(levels, data.values).astype(jnp.int32)
        sizes["rating"] = len(self.values)
        return bare(Tokens, columns=columns, sizes=sizes, values={}, names={})

    def check_data(self, data: Entries, name: str) -> None:
        """Refuses ratings outside the declared values."""
        if self.values is not None:
            values = np.asarray(data.values)
            unknown = ~np.isin(values, np.asarray(self.values, values.dtype))
            if unknown.any():
                first = int(np.argmax(unknown))
                raise ValueError(
                    f"{name}: {values[first]:g} in row {int(data.rows[first])}, column "
                    f"{int(data.columns[first])} is not one of the values {self.values}; name all "
                    "that there are: values=(...)"
                )
        super().check_data(data, name)

    def names(self, data: Entries, column: str) -> Names | None:
        """The ids of users or items, or the values of ratings."""
        if column == "rating":
            return None if self.values is None else np.asarray(self.values)
        return data.row_names if column == "user" else data.column_names

    def known_cells(self, data: Entries) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of what users have: what they rated, of ratings 0 and 1 the ones."""
        rows, columns = np.asarray(data.rows), np.asarray(data.columns)
        if self.values != (0.0, 1.0):
            return rows, columns
        has = np.asarray(data.values) == 1
        return rows[has], columns[has]

    def shown_columns(self) -> tuple[str, ...]:
        """Distributions whose heaviest entries a report shows."""
        network = self.network()
        parents = [network.blocks[name].by[0] for name in network.indicators]
        return tuple(parents)

    def predict_cells(self, draw: Draw, data: Entries, rows: Array, columns: Array) -> Pair:
        if self.values is None:
            network, tokens = self.over(data)
            where = {"user": rows, "item": columns}
            moments = predict_moments(network, draw, "rating", tokens, where)
            return moments.mean, moments.variance
        shares = self.cell_probabilities(draw, data, rows, columns)
        levels = jnp.asarray(self.values, shares.dtype)
        mean = shares @ levels
        return mean, jnp.sum(shares * (levels - mean[:, None]) ** 2, axis=1)

    def cell_log_density(
        self, draw: Draw, data: Entries, rows: Array, columns: Array, values: Array
    ) -> Array:
        network, tokens = self.over(data)
        where = {"user": rows, "item": columns}
        return log_density(network, draw, "rating", tokens, where, values)

    def draw_cells(self, key: Key, draw: Draw, data: Entries, rows: Array, columns: Array) -> Array:
        """A draw from the predictive distribution of every cell, of real values: (M,) float."""
        network, tokens = self.over(data)
        return draw_values(network, key, draw, "rating", tokens, {"user": rows, "item": columns})

    def cell_probabilities(self, draw: Draw, data: Entries, rows: Array, columns: Array) -> Array:
        network, tokens = self.over(data)
        where = {"user": rows, "item": columns}
        return predict_categories(network, draw, "rating", tokens, where)

    def new_cell_probabilities(
        self, key: Array, draw: Draw, data: Entries, new_data: Entries, rows: Array, columns: Array
    ) -> Array:
        network, tokens = self.over(data)
        folded = fold_in(network, key, draw, self.tokens(new_data), "user")
        where = {"user": rows, "item": columns}
        return predict_categories(network, draw, "rating", tokens, where, folded)

    def transform_rows(self, key: Array, draw: Draw, data: Entries, new_data: Entries) -> Array:
        """The groups of users not seen in training: (M, J) float, summing to one."""
        network, _ = self.over(data)
        return fold_in(network, key, draw, self.tokens(new_data), "user")["user_group"]

    def group_table(self, draw: Draw, data: Entries) -> Array:
        """Mean rating of every pair of groups (of group and item, of URP): (J, K) float."""
        network, _ = self.over(data)
        if self.values is None:
            family = network.distributions["rating"]
            statistics, shape = family_statistics(network, draw, "rating")
            hyperparameters = hyperparameters_of(network, draw, "rating")
            return family.moments(statistics, hyperparameters)[0].reshape(shape)
        return category_probabilities(network, draw, "rating") @ jnp.asarray(self.values)

    def memberships(self, draw: Draw, data: Entries, side: str) -> Array:
        """E[pi] of every user or item: (N, K) float."""
        network, _ = self.over(data)
        return probabilities(network, draw, f"{side}_group")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiLDA(_Ratings):
    """Fixed numbers of groups of users and of items, and a distribution of ratings for every pair.

    Args:
        num_user_groups, num_item_groups: J and K.
        user_concentration, item_concentration: of each group; numbers, or numpyro distributions.
        family: of the ratings of a pair of groups: `DirichletMultinomial()`, `BetaBinary()` for 0
            and 1, `NormalInverseGamma()` for real values.
        values: of the ratings, in order; only with `DirichletMultinomial`.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range, or settings that
            contradict each other.
    Example:
        >>> BiLDA(20, 50).network().blocks["rating"].by
        ('user_group', 'item_group')
    """

    num_user_groups: int = field(metadata=STATIC)
    num_item_groups: int = field(metadata=STATIC)
    user_concentration: Hyperparameter = 0.5
    item_concentration: Hyperparameter = 0.5
    family: Family = DirichletMultinomial()  # noqa: RUF009
    values: Any = field(default=(1.0, 2.0, 3.0, 4.0, 5.0), metadata=STATIC)

    def __post_init__(self) -> None:
        self._checked()

    def network(self) -> Network:
        return Network(
            user_group=Block(Dirichlet(self.num_user_groups, self.user_concentration), by="user"),
            item_group=Block(Dirichlet(self.num_item_groups, self.item_concentration), by="item"),
            rating=Block(self.family, by=("user_group", "item_group"), observed=True),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiHDP(_Ratings):
    """As many groups of users and of items as the ratings need.

    Args:
        users, items: `HDP` of either side, with its concentrations.
        family: of the ratings of a pair of groups, as in `BiLDA`.
        values: of the ratings, in order; only with `DirichletMultinomial`.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range, or settings that
            contradict each other.
    Example:
        >>> BiHDP().network().indicators
        ('user_group', 'item_group')
    """

    users: HDP = None  # type: ignore[assignment]
    items: HDP = None  # type: ignore[assignment]
    family: Family = DirichletMultinomial()  # noqa: RUF009
    values: Any = field(default=(1.0, 2.0, 3.0, 4.0, 5.0), metadata=STATIC)

    def __post_init__(self) -> None:
        for name in ("users", "items"):
            if getattr(self, name) is None:
                assign(self, **{name: HDP()})
            if not hyper.is_placeholder(getattr(self, name)):
                check_object(name, getattr(self, name), PartitionPrior, "HDP(1.0, 1.0)")
        self._checked()

    def network(self) -> Network:
        return Network(
            user_group=Block(self.users, by="user"),
            item_group=Block(self.items, by="item"),
            rating=Block(self.family, by=("user_group", "item_group"), observed=True),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class URP(_Ratings):
    """The user rating profile model: groups of users, a distribution of ratings for every item.

    It is `BiLDA` with every item a group of its own.

    Args:
        num_user_groups: J.
        user_concentration: of each group; a number, or a numpyro distribution.
        family: of the ratings of a group and an item, as in `BiLDA`.
        values: of the ratings, in order; only with `DirichletMultinomial`.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range, or settings that
            contradict each other.
    Example:
        >>> URP(10).network().blocks["rating"].by
        ('user_group', 'item')
    """

    num_user_groups: int = field(metadata=STATIC)
    user_concentration: Hyperparameter = 0.5
    family: Family = DirichletMultinomial()  # noqa: RUF009
    values: Any = field(default=(1.0, 2.0, 3.0, 4.0, 5.0), metadata=STATIC)

    def __post_init__(self) -> None:
        self._checked()

    def network(self) -> Network:
        return Network(
            user_group=Block(Dirichlet(self.num_user_groups, self.user_concentration), by="user"),
            rating=Block(self.family, by=("user_group", "item"), observed=True),
        )
