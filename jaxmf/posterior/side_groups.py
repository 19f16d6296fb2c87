"""Groups of rows and of columns behind a matrix: who is in them, what they prefer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, long_table
from jaxmf.arguments import check_count
from jaxmf.data.names import titled
from jaxmf.model import HasSideGroups
from jaxmf.posterior import cells, topics
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topics import TopEntries, named_entries
from jaxmf.programs import jit_method

SIDES = ("row", "column")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GroupWeights(Answer):
    """How probable the groups of one draw are, for one more row of every class.

    Args:
        classes: C names; the last is None, of a row of no class.
        groups: (G,) int, labels of the groups in use, the largest first.
        weights: (C, G) float; what is missing to one is the weight of a new group.
    """

    classes: tuple[object, ...]
    groups: np.ndarray
    weights: np.ndarray

    _axes: ClassVar = {"weights": "class group"}

    def coordinates(self) -> dict[str, object]:
        return {"class": self._names(), "group": self.groups}

    def _names(self) -> np.ndarray:
        names = np.empty(len(self.classes), object)
        names[:] = self.classes
        return names

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a class and group."""
        rows, columns = {"class": self._names()}, {"group": self.groups}
        return long_table(rows, columns, {"weight": self.weights})

    def lines(self) -> Lines:
        names = ["(none)" if name is None else str(name) for name in self.classes]
        body = zip(names, self.weights, strict=True)
        heading = ("class", *(f"group {group}" for group in self.groups))
        return [heading, *((name, *(f"{x:.1%}" for x in weights)) for name, weights in body)]


def top_entries(posterior: Draws, column: str, n: int = 10, *, titles: object = None) -> TopEntries:
    """The heaviest entries of every group of the reference draw (highest log joint).

    Args:
        column: an observed column of categories, such as "word": the most probable values of
            every topic; or a column that indicators are partitioned by, such as "item": the
            levels with the most tokens in every group. Of a matrix with groups of rows and of
            columns "row" or "column": the members of every group with the most cells.
        n: entries a group, at most: those that it has a token of.
        titles: of rows or columns, shown instead of their ids: id -> title (a Series
            is read by its index), or one for each in the order of the data.
    Returns:
        Groups by size, with their entries; `.to_pandas()` is the table.
    Raises:
        ValueError: the model has no groups, or the network lacks the column.
    """
    check_count("n", n)
    if isinstance(posterior.model, HasSideGroups):
        return _members(posterior, column, n, titles)
    if titles is not None:
        raise ValueError("titles: are of rows and columns; names of tokens are Tokens(names=)")
    return topics.top_entries(posterior, column, n)


def _members(posterior: Draws, side: str, n: int, titles: object) -> TopEntries:
    """The members of every group with the most cells, the group with the most members first.

    Weights are the parts of the group's cells that they have.
    """
    draw = _checked(posterior, side)
    groups, data = draw[f"{side}_groups"], posterior.data
    indices = np.asarray(data.rows if side == "row" else data.columns)
    num_lines = groups.size
    cells = np.bincount(indices, minlength=num_lines).astype(float)
    order, sizes = _by_size(groups)
    entries, weights = [], []
    for group in order:
        inside = np.flatnonzero(groups == group)
        best = inside[np.argsort(-cells[inside], kind="stable")[:n]]
        # smaller groups end in entries that are none
        short = n - best.size
        entries.append(np.pad(best, (0, short), constant_values=-1))
        shares = cells[best] / max(cells[inside].sum(), 1.0)
        weights.append(np.pad(shares, (0, short), constant_values=np.nan))
    return TopEntries(
        groups=order,
        shares=sizes / num_lines,
        entries=_titled(np.array(entries), getattr(data, f"{side}_names"), titles, num_lines),
        weights=np.array(weights),
    )


def group_weights(posterior: Draws, side: str = "row") -> GroupWeights:
    """How probable each group of the reference draw is for one more row of every class.

    Args:
        side: "row", or "column" for groups and classes of columns.
    Returns:
        Weights of the groups in use, the largest group first; what is missing to one is the
        weight of a new group.
    Raises:
        ValueError: the model has no groups of that side.
    """
    draw = _checked(posterior, side)
    order, _ = _by_size(draw[f"{side}_groups"])
    found = np.atleast_2d(draw[f"{side}_group_weights"])[:, order]
    model = posterior.model
    classes = model.row_classes if side == "row" else model.column_classes
    names = () if classes is None else tuple(column.level for column in classes.described)
    return GroupWeights((*names, None), order, found)


def preferences(
    posterior: Draws, side: str = "row", n: int = 10, *, titles: object = None
) -> TopEntries:
    """The columns with the highest expected values in each group of rows of the reference draw.

    Args:
        side: "row", or "column" for what groups of columns are liked by.
        n: entries a group.
        titles: of the entries, as in `top_entries`.
    Returns:
        Groups by size; weights are expected values (Porteous, section 6.2.7).
    Raises:
        ValueError: the model has no groups of that side.
    """
    check_count("n", n)
    cells.check_draws(posterior)
    draw = _checked(posterior, side)
    order, sizes = _by_size(draw[f"{side}_groups"])
    model, other = posterior.model, "column"
    if side == "column":
        model, other, draw = model.transpose(), "row", model.transpose_draws(draw)
    expected = np.asarray(_group_means(model, draw, posterior.data))[order]
    best = np.argsort(-expected, axis=1, kind="stable")[:, :n]
    return TopEntries(
        groups=order,
        shares=sizes / sizes.sum(),
        entries=_titled(best, getattr(posterior.data, f"{other}_names"), titles, expected.shape[1]),
        weights=np.take_along_axis(expected, best, axis=1),
    )


_group_means = jit_method(HasSideGroups.group_means)


def _checked(posterior: Draws, side: str) -> dict[str, np.ndarray]:
    """The reference draw of a model with groups of that side."""
    if not isinstance(posterior.model, HasSideGroups):
        raise ValueError(f"{type(posterior.model).__name__} has no groups of rows; see top_entries")
    if side not in SIDES:
        raise ValueError(f"column: groups are of 'row' or of 'column', got {side!r}")
    draw = posterior.reference_draw()
    if f"{side}_groups" not in draw:
        raise ValueError(
            f"there is one group of {side}s; fit {type(posterior.model).__name__} with "
            "mixture=DirichletProcess() for more"
        )
    return draw


def _by_size(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups by their num_lines of members, and these numbers."""
    sizes = np.bincount(groups)
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    return order, sizes[order]


def _titled(
    positions: np.ndarray, names: np.ndarray | None, titles: object, num_lines: int
) -> np.ndarray:
    """Ids of positions, or their titles: a mapping of ids, or one for each in order."""
    if names is None and titles is None:
        return positions
    return named_entries(positions, titled(names, titles, num_lines))
