"""Which rows, or columns, share features or a group, over all draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import ArrayAnswer, Lines
from jaxmf.arguments import check_word
from jaxmf.data.names import ids_or_positions
from jaxmf.model import CompletesDocuments, HasBiclusters, HasRowGroups, lacks
from jaxmf.posterior import named_cells, row_groups
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.quantities import feature_bits

MEASURES = ("expected", "probability")
SIDES = ("row", "column")

_MANY_ROWS = 20_000
_SHOWN = 8


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Cooccurrence(ArrayAnswer):
    """Co-occurrence of pairs of R rows, or columns; it may be used as an array.

    ``found[i, j]`` is by position in ``names``. By id: name the rows in the question,
    ``post.cooccurrence(["ann", "bob"])[0, 1]``, or ask ``found.to_pandas()``, a line a pair.

    Args:
        values: (R, R) float, the expected number of shared features, or a probability.
        names: (R,) ids, or positions.
        side: "row" or "column".
        measure: "expected" or "probability".
    """

    values: np.ndarray
    names: np.ndarray
    side: str
    measure: str

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a pair, each pair once."""
        first, second = np.triu_indices(self.names.size, 1)
        pair = {self.side: self.names[first], f"other {self.side}": self.names[second]}
        return {**pair, self.measure: self.values[first, second]}

    def coordinates(self) -> dict[str, object]:
        return {self.side: self.names, f"other_{self.side}": self.names}

    def variables(self) -> dict[str, tuple[Sequence[str], np.ndarray]]:
        return {self.measure: ((self.side, f"other_{self.side}"), self.values)}

    def lines(self) -> Lines:
        names = [str(name) for name in self.names[:_SHOWN]]
        rows = zip(names, self.values[:_SHOWN, :_SHOWN], strict=True)
        return [("", *names), *((name, *(f"{x:.2f}" for x in row)) for name, row in rows)]

    def footer(self) -> str:
        what = "expected number of features that two {}s share"
        if self.measure == "probability":
            what = "probability that two {}s share a feature, or are in one group"
        hidden = f"; the first {_SHOWN} of {self.names.size:,}"
        return what.format(self.side) + hidden * (self.names.size > _SHOWN)


def cooccurrence(
    posterior: Draws, rows: object = None, *, side: str = "row", measure: str | None = None
) -> Cooccurrence:
    """E[ZZ' | X]: the expected number of features that two rows share.

    Of a mixture sampled with ``keep="assignments"`` the probability that they are in one group.

    Args:
        rows: (R,) ids of rows, `mf.Positions(rows)`, or positions where the data has no ids;
            all by default.
        side: "column" for columns, and ids of such, of models with features of columns.
        measure: "expected", or "probability" that two rows share one feature or more.
    Returns:
        (R, R) numbers with the ids of the rows, an array for numpy; `.to_pandas()` has one
        line a pair, `.to_xarray()` the matrix with its ids.
    Raises:
        ValueError: a model without such features or groups; ids that the data lacks.
    """
    check_word("side", side, SIDES)
    if measure is not None:
        check_word("measure", measure, MEASURES)
    data, has_groups = posterior.data, isinstance(posterior.model, HasRowGroups)
    if has_groups and side == "column":
        raise ValueError(f"side: {type(posterior.model).__name__} has groups of rows alone")
    if has_groups and measure == "expected":
        raise ValueError("measure: of groups there is the probability alone; leave it out")
    if isinstance(posterior.model, CompletesDocuments):
        raise ValueError(
            "cooccurrence is of binary features and groups; documents have proportions of topics, "
            "and post.similar_documents(document) lists those with similar ones"
        )
    bits = None
    if side == "row" and not has_groups:
        bits = feature_bits(posterior)
    elif not has_groups:
        if not isinstance(posterior.model, HasBiclusters):
            raise lacks(posterior.model, HasBiclusters, 'cooccurrence(side="column")')
        bits = posterior.draws["v"][..., posterior.model.num_bias_features()[1] :]
    size = data.num_rows if side == "row" else data.num_columns
    if rows is None and size > _MANY_ROWS:
        call = "" if side == "row" else ', side="column"'
        raise ValueError(
            f"cooccurrence of all {size:,} {side}s is a matrix of "
            f"{size**2:,} entries; name the {side}s that matter: "
            f"cooccurrence({side}s{call})"
        )
    names = ids_or_positions(data.row_names if side == "row" else data.column_names, size)
    index = (
        np.arange(size) if rows is None else named_cells.read_index(rows, data, side, f"{side}s")
    )
    if bits is None:
        values = row_groups.probability_of_one_group(posterior, index)
        return Cooccurrence(values, names[index], side, "probability")
    weights = posterior.weights.ravel()
    flat = bits.reshape(-1, *bits.shape[2:])
    measure = measure or "expected"
    is_expected = measure == "expected"
    share = diagnostics.shared_features if is_expected else diagnostics.probability_of_sharing
    return Cooccurrence(share(flat, weights, index), names[index], side, measure)
