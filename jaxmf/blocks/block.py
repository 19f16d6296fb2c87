"""A mixture block: a variable of every token, its family or prior, and what partitions it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxmf.arguments import assign, check_flag, check_function
from jaxmf.likelihoods.families.family import SweptFamily
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.readable import Readable
from jaxmf.types import STATIC

Distribution = Any  # a Family or a PartitionPrior


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class Block(Readable):
    """One variable of a network: a value for every token.

    The tokens are partitioned by the values of the parents; the tokens of a part share the
    parameters of the family or prior, which are summed out.

    Args:
        distribution: of an observed variable a family, such as `DirichletMultinomial`; of a latent
            indicator a prior of partitions, such as `Dirichlet` or `HDP`.
        by: the parents: names of columns of the tokens or of other blocks, one or several; none for
            one part with all tokens. Or the function rho of the thesis: of the parents' values,
            which are named by its arguments, to the index of a part, as arrays of integers.
        observed: whether the tokens have a column with its values.
        per: of a latent indicator: names of columns and of at most one other indicator. There is
            one value for every combination of theirs, not one for every token: with
            per="document" all tokens of a document are in one group, with per=("document", "table")
            all at a table. `by` is of columns among them.
    Raises:
        TypeError, ValueError: `distribution` is neither a family nor a prior of partitions, a name
            is not a string, or the settings contradict each other.
    Example:
        >>> from jaxmf.priors.partitions import Dirichlet
        >>> Block(Dirichlet(3), by="document").by
        ('document',)
    """

    distribution: Distribution
    by: tuple[str, ...] = field(metadata=STATIC)
    observed: bool = field(metadata=STATIC)
    rho: Callable[..., object] | None = field(metadata=STATIC)
    per: tuple[str, ...] = field(metadata=STATIC)

    def __init__(
        self,
        distribution: Distribution,
        by: object = None,
        observed: bool = False,
        rho: Callable[..., object] | None = None,
        per: object = None,
    ) -> None:
        if callable(by):
            rho, by = by, _arguments(by)
        assign(
            self,
            distribution=distribution,
            by=_names(by),
            observed=check_flag("observed", observed),
            rho=check_function("rho", rho),
            per=_names(per, "per"),
        )
        if (
            type(distribution) is not object
        ):  # a placeholder that jax passes when it rebuilds a pytree
            self._check()

    def with_distribution(self, distribution: Distribution) -> Block:
        """The block with another family or prior."""
        return Block(distribution, self.by, self.observed, self.rho, self.per)

    def _check(self) -> None:
        if self.per and (self.observed or self.rho is not None):
            raise ValueError("per: is for latent indicators, and not together with a function `by`")
        missing = [name for name in self.by if self.per and name not in self.per]
        if missing:
            per = ", ".join(map(repr, (*missing, *self.per)))
            raise ValueError(
                f"per: {missing[0]!r} is in `by` but not in `per`; what partitions the sets must "
                f"be the same for all tokens of a set: write per=({per})"
            )
        kind = type(self.distribution).__name__
        if self.observed and isinstance(self.distribution, PartitionPrior):
            raise TypeError(
                f"distribution: {kind} is a prior of partitions, for latent indicators; "
                "an observed block takes a family such as DirichletMultinomial"
            )
        if not self.observed and isinstance(self.distribution, SweptFamily):
            raise TypeError(
                f"distribution: {kind} is a family of observed values; give "
                "observed=True, or a prior of partitions such as Dirichlet for a latent indicator"
            )
        is_known = isinstance(self.distribution, SweptFamily | PartitionPrior)
        if not is_known and not _is_rebuilt(self.distribution):
            raise TypeError(
                f"distribution: {self.distribution!r} is neither a family nor a prior of "
                "partitions; see Block"
            )


def _is_rebuilt(distribution: object) -> bool:
    """Whether jax put a placeholder where the family or prior was."""
    if isinstance(distribution, str | int | float | list | tuple | dict) or callable(distribution):
        return False
    return type(distribution).__module__.partition(".")[0] in ("jax", "jaxlib", "builtins")


def _arguments(rho: Callable[..., object]) -> tuple[str, ...]:
    parameters = inspect.signature(rho).parameters.values()
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(parameter.name for parameter in parameters)
    if not names or any(parameter.kind not in fixed for parameter in parameters):
        raise ValueError(
            "by: the arguments of a function name the parents, one each, such as "
            f"lambda user: user // 2; got {', '.join(names) or 'none'}"
        )
    return names


def _names(by: Any, argument: str = "by") -> tuple[str, ...]:
    names = () if by is None else tuple(by) if isinstance(by, tuple | list) else (by,)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{argument}: {name!r} is no name; write {argument}='document' or "
                f"{argument}=('user', 'item')"
            )
    if len(set(names)) != len(names):
        raise ValueError(f"{argument}: {names} names a parent twice")
    return names
