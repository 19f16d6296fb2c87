"""Probabilities of the groups of sets of tokens, of tokens or of rows, over all draws.

Labels of groups mean nothing across draws and chains. So the groups of each draw are matched one to
one with those of the reference draw, the one with the highest log joint: the assignment that puts
the most sets into the same groups (Kuhn 1955, the Hungarian method).

Source: Papastamoulis & Iliopoulos (2010), An artificial allocations based solution to the label
switching problem in Bayesian analysis of mixtures of distributions (ECR, with this draw as pivot).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, data_frame, long_table
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasGroups, HasRowGroups, TransformsDocuments
from jaxmf.posterior.draws import Draws

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10  # sets that are printed
_GROUPS_SHOWN = 4


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GroupProbabilities(Answer):
    """How probable the groups of an indicator are, for every set of tokens that has one value.

    Groups are those of the reference draw, matched in all other draws.

    Args:
        ids: of the M sets by column, (M,) each: ids, or positions where there are none.
        groups: (G,) int, labels of the groups, the one with the most sets first: of a mixture as
            `Posterior.groups` has them, else as `Posterior.top_entries` has.
        probabilities: (M, G) float, the part of the draws in which a set is in a group.
        unmatched: (M,) float, the part of the draws in which it is in a group that the reference
            draw has no counterpart of; it adds up to one with those of the groups.
        similarity: (G,) float, mean over draws of n_both / sqrt(n_reference n_draw), of sets in a
            group of the reference draw and in the match of it: 1 where it is the same in all draws.
        indicator: its name.
    """

    ids: dict[str, np.ndarray]
    groups: np.ndarray
    probabilities: np.ndarray
    unmatched: np.ndarray
    similarity: np.ndarray
    indicator: str

    _axes: ClassVar = {
        "probabilities": "set group",
        "unmatched": "set",
        "similarity": "group",
    }

    def coordinates(self) -> dict[str, object]:
        ids = self._ids_beside("group", *self._axes)
        return {"group": self.groups} | {name: ("set", each) for name, each in ids.items()}

    @property
    def most_probable(self) -> np.ndarray:
        """(M,) int: the label of the most probable group of every set."""
        found: np.ndarray = self.groups[np.argmax(self.probabilities, axis=1)]
        return found

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each set and group."""
        ids = self._ids_beside("probability")
        taken = {"probability", *ids}
        name = f"{self.indicator} (group)" if self.indicator in taken else self.indicator
        return long_table(ids, {name: self.groups}, {"probability": self.probabilities})

    def _ids_beside(self, *taken: str) -> dict[str, np.ndarray]:
        """The ids under names that differ from others of a table or of axes and arrays."""
        return {f"{name} (id)" if name in taken else name: ids for name, ids in self.ids.items()}

    def to_pandas(self) -> pd.DataFrame:
        """The probabilities as a pandas DataFrame: a row a set, a column a group."""
        several = list(self.ids.values())
        index = several if len(several) > 1 else several[0]
        frame = data_frame("to_pandas", self.probabilities, index=index, columns=self.groups)
        return frame.rename_axis(index=list(self.ids), columns=self.indicator)

    def lines(self) -> Lines:
        lines: Lines = [(*self.ids, self.indicator)]
        for index, each in enumerate(self.probabilities[:_SHOWN]):
            best = np.argsort(-each, kind="stable")[:_GROUPS_SHOWN]
            shown = [f"{self.groups[k]}: {each[k]:.0%}" for k in best if each[k] >= 0.005]
            names = (str(ids[index]) for ids in self.ids.values())
            lines.append((*names, ", ".join(shown) or "unmatched"))
        return lines

    def footer(self) -> str:
        hidden = len(self.probabilities) - _SHOWN
        return f"and {hidden:,} more" if hidden > 0 else ""


def group_probabilities(posterior: Draws, indicator: str | None = None) -> GroupProbabilities:
    """How probable each group is for every set of tokens, over all draws.

    A set has one value of an indicator with ``per=``, such as a person with a latent class; in a
    mixture it is a row, else a token. Groups are those of the reference draw (highest log joint),
    with the labels of `groups` for a mixture and of `top_entries` else; those of every other draw
    are matched with them one to one, so that the most sets are in the same groups. Where chains
    have found different groups, `similarity` is low and probabilities are averages of unlike
    groups: look at `alarms`. As the best match is taken, the groups of few sets look more certain
    than they are: with random groups of 10 sets (1,000 draws) the largest probabilities are .59 to
    .66 if there are 2 groups of one size and .48 to .57 if there are 4, and similarity is .56 to
    .67 and .48 to .58.

    Args:
        indicator: name of a latent block; needed where there are several.
    Returns:
        Probabilities (M, G) with the ids of the M sets; `.to_pandas()` is the table.
    Raises:
        ValueError: the model lacks this indicator, its labels differ in meaning from part to part,
            or the draws do not have the groups of tokens: ``keep="assignments"``.
    Example:
        >>> import jaxmf as mf
        >>> columns = {"person": ["a"] * 4 + ["b"] * 4, "answer": ["yes"] * 4 + ["no"] * 4}
        >>> model = mf.Network(
        ...     kind=mf.Block(mf.Dirichlet(2), per="person"),
        ...     answer=mf.Block(mf.DirichletMultinomial(), by="kind", observed=True),
        ... )
        >>> tokens = mf.Tokens.from_columns(columns)
        >>> post = mf.sample(model, tokens, num_samples=20, progress=False)
        >>> post.group_probabilities().probabilities.shape
        (2, 2)
    """
    if not isinstance(posterior.model, HasGroups):
        kind = type(posterior.model).__name__
        raise ValueError(f"group_probabilities: {kind} has no groups of rows or of tokens")
    network, tokens = posterior.model.over(posterior.data)
    name = _checked(network, indicator)
    posterior.require_draws()
    if f"{name}_of_tokens" not in posterior.draws:
        raise ValueError(
            f"group_probabilities: which {name} each token has is not in the draws: sample again "
            'with keep="assignments"'
        )
    ids, first = _sets(posterior, network, tokens, name)
    draws, weights = posterior.flat_draws()
    labels = draws[f"{name}_of_tokens"][:, first].astype(np.int64)
    reference = posterior.reference_draw()[f"{name}_of_tokens"][first].astype(np.int64)
    slots = _in_use(posterior, network, name, reference)
    # mixtures and topic models name groups by their rank; every row or token is a set of theirs
    by_rank = isinstance(posterior.model, HasRowGroups | TransformsDocuments)
    names = np.arange(slots.size) if by_rank else slots
    return GroupProbabilities(ids, names, *_averaged(labels, weights, reference, slots), name)


def _checked(network: Wiring, indicator: str | None) -> str:
    """The name of the indicator that is asked for."""
    known = network.indicators
    if indicator is None and len(known) > 1:
        raise ValueError(f"indicator: there are several, name one of {', '.join(map(repr, known))}")
    name = known[0] if indicator is None and known else indicator
    if name not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise ValueError(f"indicator: {name!r} is no latent block of the model; it has {there}")
    block = network.blocks[name]
    if block.by and not block.distribution.labels_shared:
        raise ValueError(
            f"indicator: {type(block.distribution).__name__} has groups of {name!r} for each "
            f"{' and '.join(block.by)} alone, which are not those of another; HDP and Dirichlet "
            "have shared ones"
        )
    return name


def _sets(
    posterior: Draws, network: Wiring, tokens: Tokens, name: str
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The ids of the sets of an indicator by column, and their first tokens: (M,) each.

    Every token is one where the indicator has no `per`, or sets that change from draw to draw.
    """
    per = network.blocks[name].per
    if not per or any(parent in network.blocks for parent in per):
        is_of_rows = hasattr(posterior.data, "row_names")
        names = posterior.data.row_names if is_of_rows else None
        ids = ids_or_positions(names, tokens.num_tokens)
        return {"row" if is_of_rows else "token": ids}, np.arange(tokens.num_tokens)
    flat = np.zeros(tokens.num_tokens, np.int64)
    for column in per:
        flat = flat * tokens.sizes[column] + np.asarray(tokens.columns[column])
    first = np.unique(flat, return_index=True)[1]
    found = {}
    for column in per:
        names = posterior.model.names(posterior.data, column)
        every = ids_or_positions(names, tokens.sizes[column])
        found[column] = every[np.asarray(tokens.columns[column])[first]]
    return found, first


def _in_use(posterior: Draws, network: Wiring, name: str, reference: np.ndarray) -> np.ndarray:
    """Slots of the groups, the one with the most sets first; all of a stated number."""
    distribution: Any = network.distributions[name]
    stated = 0 if distribution.grows else distribution.num_groups(1)
    sizes = np.bincount(reference, minlength=stated)
    order = np.argsort(-sizes, kind="stable")
    return order if stated else order[sizes[order] > 0]


def _averaged(
    labels: np.ndarray, weights: np.ndarray, reference: np.ndarray, slots: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (M, G), those of other groups (M,), and similarity (G,).

    Args: labels (S, M) of draws; weights (S,); reference (M,); slots (G,) labels in it.
    """
    from scipy.optimize import linear_sum_assignment

    num_labels = 1 + max(labels.max(initial=0), int(slots.max(initial=0)))
    position = np.full(num_labels, -1)
    position[slots] = np.arange(slots.size)
    pivot, sets = position[reference], np.arange(reference.size)
    probabilities = np.zeros((reference.size, slots.size + 1))  # the last of no group of these
    similarity = np.zeros(slots.size)
    for each, weight in zip(labels, weights, strict=True):
        both = np.bincount(each * slots.size + pivot, minlength=num_labels * slots.size)
        both = both.reshape(num_labels, slots.size)
        label, group = linear_sum_assignment(both, maximize=True)
        shared, here, there = both[label, group], both.sum(axis=1)[label], both.sum(axis=0)[group]
        is_match = (shared > 0) | (there == 0)
        match = np.full(num_labels, -1)
        match[label[is_match]] = group[is_match]
        probabilities[sets, match[each]] += weight
        is_empty = (here == 0) & (there == 0)
        similarity[group] += weight * (shared + is_empty) / np.sqrt(np.maximum(here * there, 1))
    return probabilities[:, :-1], probabilities[:, -1], similarity
