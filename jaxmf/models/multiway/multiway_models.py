"""Any number of modalities: every token has a group for each, and a value that hangs on all.

    z^m by modality m, for each m;  x by (z^1, ..., z^M)

Tokens have one column a modality, and the observed column: ratings of a user, an item and a day, or
words of an author and a year.

Source: Porteous (2010), sections 6.1.6 to 6.1.10.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxmf.arguments import assign, check_count
from jaxmf.blocks import Block, Network
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.prediction import Draw, category_probabilities
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.likelihoods.families.family import Family, check_family
from jaxmf.priors import hyper
from jaxmf.priors.hdp import HDP
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import STATIC, Array


def _check_heading(argument: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{argument}: {name!r} is no heading of a column; columns have texts")


class _Multiway(NetworkModel[Tokens]):
    observed: str
    family: Family

    def _check_values(self, modalities: Sequence[str]) -> None:
        """Refuses a column of values that is none, or is a modality, and a family that is none."""
        _check_heading("observed", self.observed)
        if self.observed in modalities:
            raise ValueError(
                f"observed: {self.observed!r} is one of the modalities; name the column of values"
            )
        check_family(self.family)

    @abstractmethod
    def _priors(self) -> dict[str, PartitionPrior]:
        """The priors of the groups of each modality."""

    def network(self) -> Network:
        groups = {f"{name}_group": Block(p, by=name) for name, p in self._priors().items()}
        below = {self.observed: Block(self.family, by=tuple(groups), observed=True)}
        return Network({**groups, **below})

    def tokens(self, data: Tokens) -> Tokens:
        return data

    def shown_columns(self) -> tuple[str, ...]:
        """Distributions whose heaviest entries a report shows."""
        return tuple(self._priors())

    def entries(self, draw: Draw, data: Tokens) -> Array:
        """E[phi] of a family of categories: (K_1, ..., K_M, V) float."""
        network, _ = self.over(data)
        return category_probabilities(network, draw, self.observed)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MultiLDA(_Multiway):
    """A given number of groups for every modality.

    Args:
        num_groups: column of the tokens -> how many groups it has, such as
            {"author": 20, "year": 5}; or pairs of the two.
        observed: the column of the values.
        concentration: of each group of every modality; a number, or a numpyro distribution.
        family: of the values of a combination of groups.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> MultiLDA({"author": 20, "year": 5}, observed="word").network().columns
        ('author', 'year', 'word')
    """

    num_groups: Any = field(metadata=STATIC)
    observed: str = field(default="rating", metadata=STATIC)
    concentration: Hyperparameter = 0.5
    family: Family = field(default_factory=DirichletMultinomial)

    def __post_init__(self) -> None:
        counts = self.num_groups
        is_pairs = isinstance(counts, tuple | list) and all(
            isinstance(pair, tuple | list) and len(pair) == 2 for pair in counts
        )
        if not counts or not (is_pairs or isinstance(counts, Mapping)):
            raise TypeError(
                "num_groups must be a mapping from columns to numbers of groups, such as "
                f'{{"author": 20, "year": 5}}, got {counts!r}'
            )
        pairs = tuple(counts.items() if isinstance(counts, Mapping) else map(tuple, counts))
        for name, size in pairs:
            _check_heading("num_groups", name)
            check_count(f"num_groups[{name!r}]", size)
            hyper.validate_concentrations(self.concentration, size)
        assign(self, num_groups=pairs)
        self._check_values([name for name, _ in pairs])
        self.network()

    def _priors(self) -> dict[str, PartitionPrior]:
        return {name: Dirichlet(size, self.concentration) for name, size in self.num_groups}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MultiHDP(_Multiway):
    """As many groups for every modality as the tokens need.

    Args:
        modalities: columns of the tokens, such as ("author", "year").
        observed: the column of the values.
        concentration: alpha of every modality's HDP; a number or a numpyro distribution, by default
            Gamma(1, 1).
        base_concentration: gamma of them; likewise.
        family: of the values of a combination of groups.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> MultiHDP(("author", "year"), observed="word").network().indicators
        ('author_group', 'year_group')
    """

    modalities: tuple[str, ...] = field(metadata=STATIC)
    observed: str = field(default="rating", metadata=STATIC)
    concentration: Hyperparameter = None
    base_concentration: Hyperparameter = None
    family: Family = field(default_factory=DirichletMultinomial)

    def __post_init__(self) -> None:
        if not isinstance(self.modalities, tuple | list) or not self.modalities:
            raise TypeError(
                f"modalities must be names of columns, such as ('user', 'item'), got "
                f"{self.modalities!r}"
            )
        for name in self.modalities:
            _check_heading("modalities", name)
        assign(self, modalities=tuple(self.modalities))
        self._check_values(self.modalities)
        prior = HDP(self.concentration, self.base_concentration)
        assign(self, concentration=prior.concentration, base_concentration=prior.base_concentration)
        self.network()

    def _priors(self) -> dict[str, PartitionPrior]:
        return {name: HDP(self.concentration, self.base_concentration) for name in self.modalities}
