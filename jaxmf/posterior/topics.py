"""Questions to models of groups of tokens: what is in a group, new documents, perplexity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import Answer, Lines, listed_ids, long_table
from jaxmf.arguments import check_count, check_seed
from jaxmf.blocks.kept_counts import is_table
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Container, Tokens, as_container
from jaxmf.data.names import ids_or_positions
from jaxmf.diagnostics import HeldOutScore
from jaxmf.model import CompletesDocuments, HasGroups, HasRowGroups, TransformsDocuments
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.representation import Representation
from jaxmf.programs import jit, jit_method
from jaxmf.types import Array, Draw, Key


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TopEntries(Answer):
    """The heaviest entries of groups, the largest group first.

    Args:
        groups: (G,) int, labels of the groups. Of topic models 0, 1, ..., by which `topics`,
            `transform` and `document_topics` name them too; else those of the reference draw.
        shares: (G,) float, what part of the tokens they have.
        entries: (G, n) ids of the entries, or positions where there are no ids. A group with fewer
            than n of them ends in None, or -1.
        weights: (G, n) float: the probability of a value in the group, or the part of the group's
            tokens that a level of a column has; NaN where there is no entry.
        parents: of a block with several parents, the value of each in every group, (G,) ids or
            labels by name; else empty.
    """

    groups: np.ndarray
    shares: np.ndarray
    entries: np.ndarray
    weights: np.ndarray
    parents: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    _axes: ClassVar = {"shares": "group", "entries weights": "group rank"}

    def coordinates(self) -> dict[str, object]:
        return {"group": self.groups, "rank": 1 + np.arange(self.entries.shape[1])}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line an entry."""
        table = long_table(
            {"group": self.groups, "share": self.shares} | self._parents_beside("group", "share"),
            {"rank": 1 + np.arange(self.entries.shape[1])},
            {"entry": self.entries, "weight": self.weights},
        )
        return {name: column[~np.isnan(table["weight"])] for name, column in table.items()}

    def lists(self) -> list[list[object]]:
        """The entries of every group, as many as it has."""
        kept = ~np.isnan(self.weights)
        return [entries[here].tolist() for entries, here in zip(self.entries, kept, strict=True)]

    def lines(self) -> Lines:
        parents = self._parents_beside("share", "entries")
        body = zip(self.shares, *parents.values(), self.lists(), strict=True)
        return [
            ("share", *parents, "entries"),
            *(
                (f"{share:.1%}", *map(str, values), listed_ids(entries))
                for share, *values, entries in body
            ),
        ]

    def _parents_beside(self, *taken: str) -> dict[str, np.ndarray]:
        """The parents under headings that differ from others of a table."""
        others = {*taken, "rank", "entry", "weight"}
        return {
            f"{name} (parent)" if name in others else name: values
            for name, values in self.parents.items()
        }


def top_entries(posterior: Draws, column: str, n: int) -> TopEntries:
    """See `Posterior.top_entries`."""
    model = _model_of_groups(posterior)
    draw = posterior.reference_draw()
    network = model.over(posterior.data)[0]
    by: tuple[str, ...] = ()
    sizes_by: tuple[int, ...] = ()
    if column in network.observed and f"{column}_cells" in draw:
        cells = np.asarray(draw[f"{column}_cells"])
        counts = cells.reshape(cells.shape[0], -1)
        by, sizes_by = network.blocks[column].by, cells.shape[1:]
        weights = np.asarray(model.category_table(draw, posterior.data, column))
        weights = weights.reshape(-1, weights.shape[-1])
    else:
        over = [name for name in network.indicators if column in network.blocks[name].by]
        if not over:
            raise ValueError(_no_entries(network, draw, column))
        if not is_table(draw, over[0]):
            raise ValueError(
                f"column: {column!r} has too many levels for a table of their groups; "
                "document_topics(documents=[...]) has those of some"
            )
        counts = np.asarray(draw[f"{over[0]}_counts"])
        counts = counts.reshape(counts.shape[0], -1)
        weights = (counts / np.maximum(counts.sum(axis=0), 1)).T
    sizes = counts.sum(axis=0)
    groups = np.argsort(-sizes, kind="stable")
    groups = groups[sizes[groups] > 0]
    # entries that the group has no token of would be listed by the order of their ids alone
    there = counts.T[groups] > 0
    heaviest = np.where(there, weights[groups], -np.inf)
    best = np.argsort(-heaviest, axis=1, kind="stable")[:, :n]
    is_entry = np.take_along_axis(there, best, axis=1)
    by_rank = isinstance(model, TransformsDocuments)
    return TopEntries(
        groups=np.arange(groups.size) if by_rank else groups,
        shares=sizes[groups] / sizes.sum(),
        entries=named_entries(np.where(is_entry, best, -1), model.names(posterior.data, column)),
        weights=np.where(is_entry, np.take_along_axis(weights[groups], best, axis=1), np.nan),
        parents=_parents(model, posterior.data, by, sizes_by, groups),
    )


def _no_entries(network: Wiring, draw: Mapping[str, np.ndarray], column: str) -> str:
    """Why a column has no entries by group, and which have."""
    known = [name for name in network.observed if f"{name}_cells" in draw]
    for name in network.indicators:
        known += [each for each in network.blocks[name].by if each not in network.indicators]
    why = (
        f"column: {column!r} is neither an observed block of categories nor a column that "
        f"partitions an indicator; ask {', '.join(map(repr, dict.fromkeys(known))) or 'no other'}"
    )
    for name in network.indicators:
        if column in network.blocks[name].per:
            return f"{why}; group_probabilities({name!r}) has the groups of each {column}"
    if f"{column}_number" not in draw:
        return why
    return (
        f"{why}. It has numbers: reference_draw() has the posterior of their mean in every group, "
        f"{column}_location, and how many there are, {column}_number"
    )


def _parents(
    model: HasGroups[Container],
    data: Container,
    by: tuple[str, ...],
    sizes: tuple[int, ...],
    part: np.ndarray,
) -> dict[str, np.ndarray]:
    """The value of each of several parents in some parts, (G,) ids or labels by name."""
    if len(by) < 2 or len(sizes) != len(by):
        return {}
    positions = zip(by, np.unravel_index(part, sizes), strict=True)
    names = {name: (model.names(data, name), position) for name, position in positions}
    return {
        name: position if ids is None else np.asarray(ids)[position]
        for name, (ids, position) in names.items()
    }


def named_entries(positions: np.ndarray, names: np.ndarray | None) -> np.ndarray:
    """Ids of entries by position, None for -1; without ids the positions themselves."""
    if names is None:
        return positions
    found: np.ndarray = np.asarray(names)[positions]
    if (positions < 0).any():
        found = found.astype(object)
        found[positions < 0] = None
    return found


def transform(posterior: Draws, new: Tokens, seed: int) -> Representation:
    """The groups of new documents, in the order of `top_entries`: see `Posterior.transform`.

    Slots of no topic, which models that learn their number keep for further ones, are left out.
    """
    key, draw = jax.random.key(seed), posterior.reference_draw()
    shares = np.asarray(_transform(posterior.model, key, draw, posterior.data, new))
    sizes = np.asarray(posterior.model.shares(draw, posterior.data))
    order = np.argsort(-sizes, kind="stable")
    # an empty topic of a stated number has its share by the prior
    values = shares[:, order[((sizes > 0) | (shares > 0).any(axis=0))[order]]]
    names = ids_or_positions(new.names.get("document"), len(values))
    return Representation(values, names, "document", "topic", "proportion")


def document_completion(
    posterior: Draws,
    new_documents: object,
    *,
    unknown: str = "error",
    num_draws: int = 10,
    seed: int = 0,
) -> HeldOutScore:
    """Log predictive probability of held-out words of new documents, and so the perplexity.

    Half of the words of every document (one more where their number is odd) say what it is
    about, the others are scored: p(w) is averaged over draws before the log is taken.

    Args:
        new_documents: tokens or counts; words are matched by id where both sides have ids,
            and need not be all that there are.
        unknown: of words that the data lacks: "error", or "drop" to leave them out.
        num_draws: posterior draws used, evenly spread.
        seed: of the halves, and of the sampling of the documents' topics.
    Returns:
        The log probability of each scored word, their mean (the perplexity is exp(-mean)), and
        its standard error; `num_dropped` tokens were left out.
    Warns:
        UserWarning: more than half of the tokens are left out, or all those of a document.
    Raises:
        ValueError: the model has no words of documents, or no document has two words.
    """
    check_count("num_draws", num_draws)
    check_seed("seed", seed)
    if not isinstance(posterior.model, CompletesDocuments):
        raise ValueError(f"{type(posterior.model).__name__} is no model of words of documents")
    tokens = as_container(new_documents, Tokens, "new_documents")
    new = posterior.container(tokens, "new_documents", unknown=unknown)
    known, rest = halves(new, seed)
    draws, weights = posterior.flat_draws()
    chosen = diagnostics.evenly_spread(weights.size, num_draws)
    total, mass = np.zeros(rest.num_tokens), weights[chosen].sum()
    for index in chosen:
        key = jax.random.fold_in(jax.random.key(seed), int(index))
        draw = {name: values[index] for name, values in draws.items()}
        found = _word_probabilities(posterior.model, key, draw, posterior.data, known, rest)
        total += weights[index] / mass * np.asarray(found)
    score = diagnostics.held_out_score(np.log(total))
    return score._replace(num_dropped=tokens.num_tokens - new.num_tokens)


def halves(tokens: Tokens, seed: int) -> tuple[Tokens, Tokens]:
    """Every document's tokens in two random halves, the first not the smaller one.

    Documents of a single token have nothing to be scored by.

    Raises ValueError: no document has two tokens.
    """
    documents = np.asarray(tokens.columns["document"])
    order = np.lexsort((np.random.default_rng(seed).random(documents.size), documents))
    sizes = np.bincount(documents, minlength=tokens.sizes["document"])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.empty(documents.size, int)
    rank[order] = np.arange(documents.size) - np.repeat(starts, sizes)
    is_first = rank < (sizes[documents] + 1) // 2
    if is_first.all():
        raise ValueError("no document has two tokens, so there is nothing to score")
    return _subset(tokens, is_first), _subset(tokens, ~is_first)


def _subset(tokens: Tokens, kept: np.ndarray) -> Tokens:
    columns = {name: np.asarray(column)[kept] for name, column in tokens.columns.items()}
    return Tokens(columns, tokens.sizes, names=tokens.names)


def _model_of_groups(posterior: Draws) -> Any:
    if isinstance(posterior.model, HasRowGroups):
        raise ValueError(
            f"{type(posterior.model).__name__} has groups of rows, which have no entries; see "
            "groups()"
        )
    if not isinstance(posterior.model, HasGroups):
        raise ValueError(
            f"{type(posterior.model).__name__} has no groups of tokens; see features()"
        )
    return posterior.model


_transform = jit_method(TransformsDocuments.transform_tokens)


@jit
def _word_probabilities(
    model: CompletesDocuments[Container],
    key: Key,
    draw: Draw,
    data: Container,
    known: Container,
    rest: Container,
) -> Array:
    folded = model.fold(key, draw, data, known)
    return model.word_probabilities(draw, data, rest, folded)
