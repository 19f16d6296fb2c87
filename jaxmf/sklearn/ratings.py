"""Ratings of items by users as a regressor."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from jaxmf.arguments import check_count, check_word
from jaxmf.data import Entries
from jaxmf.data.frames import as_pandas
from jaxmf.data.names import is_missing_id
from jaxmf.models.bpmf import BPMF
from jaxmf.sklearn.base import SampledEstimator, check_ratings

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from jaxmf.posterior.ranking import Recommendations

Ids = list[Hashable]


@dataclass(eq=False, repr=False)
class RatingRecommender(RegressorMixin, SampledEstimator):
    """Ratings of items by users: Bayesian probabilistic matrix factorisation.

    A row of X is a rating's user and item, y the rating. Rows of X are names, not measurements:
    scikit-learn's own checks of estimators, which bring columns of numbers that repeat or do not,
    as they come, do not apply. Get and set parameters, clone, pipelines and searches do.

    Args:
        n_components: number of factors of a user and of an item.
        likelihood: of a rating; None for `jaxmf.Gaussian()`, whose noise is learned.
        unknown: of users and items that were not in the fit: "prior" to predict them from the prior
            of users and items, "error" to refuse them.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`; rows are users, columns items, with their ids.
        n_features_in_: 2.
    Example:
        >>> X = [["ann", "tea"], ["ann", "milk"], ["bob", "tea"], ["bob", "jam"]]
        >>> y = [5.0, 1.0, 4.0, 2.0]
        >>> ratings = RatingRecommender(2, num_warmup=5, num_samples=5, random_state=0)
        >>> ratings.fit(X, y).predict([["ann", "jam"], ["eve", "tea"]]).shape
        (2,)
    """

    n_components: int = BPMF.num_factors
    _: KW_ONLY
    likelihood: object = None
    unknown: str = "prior"

    def fit(self, X: object, y: object) -> Self:
        """Draw from the posterior given ratings.

        Args:
            X: (n, 2) ids of user and item: numbers, text, in any kind of table.
            y: (n,) ratings.
        Returns:
            The estimator.
        Raises:
            TypeError: X is a mapping.
            ValueError: a row of X is no pair, an id is missing, a user rates an item twice; y is
                no list of as many finite numbers.
        """
        self._check_unknown()
        users, items = self._ids(X, reset=True)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        ratings = check_ratings(y)
        check_consistent_length(users, ratings)
        _refuse_repeats(users, items)
        rows, user_ids = _positions(users)
        columns, item_ids = _positions(items)
        shape = len(user_ids), len(item_ids)
        data = Entries(rows, columns, ratings, shape, user_ids, item_ids)
        settings: dict[str, Any] = {}
        if self.likelihood is not None:
            settings["likelihood"] = self.likelihood
        model = BPMF(num_factors=check_count("n_components", self.n_components, 0), **settings)
        self.posterior_ = self._sample(model, data)
        return self

    def predict(
        self, X: object, *, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Expected ratings.

        Args:
            X: (n, 2) ids of user and item.
            return_std: whether to return standard deviations beside them, noise included.
        Returns:
            (n,) float, or a pair of these.
        Raises:
            ValueError: an id that was not in the fit, with ``unknown="error"``.
        """
        check_is_fitted(self)
        self._check_unknown()
        cells = tuple(self._ids(X, reset=False))
        if self.unknown == "error":
            self._refuse_unknown(*cells)
        found = self.posterior_.predict(cells, unknown=self.unknown, num_draws=1)
        mean = np.asarray(found.mean, float)
        return (mean, np.asarray(found.sd, float)) if return_std else mean

    def recommend(self, users: object, *, n: int = 10) -> Recommendations:
        """The n best items of some users, without those that they rated.

        Args:
            users: ids; of users that were not in the fit by the prior, with ``unknown="prior"``.
            n: how many items a user.
        Returns:
            Items best first with expected ratings and their sd; `.to_pandas()` is the table.
        """
        check_is_fitted(self)
        self._check_unknown()
        return self.posterior_.recommend(users, n=n, unknown=self.unknown)

    def _check_unknown(self) -> None:
        check_word("unknown", self.unknown, ("prior", "error"))

    def _ids(self, X: object, *, reset: bool) -> tuple[Ids, Ids]:
        """Users and items, as plain objects.

        Raises:
            TypeError: X is a mapping.
            ValueError: a row of X is no pair, or an id is missing.
        """
        if isinstance(X, Mapping):
            raise TypeError(
                f"X: is a {type(X).__name__}; pass a table with a row for each rating, such as "
                "pandas.DataFrame(X)"
            )
        table: Any = as_pandas(X)
        validate_data(self, table, reset=reset, skip_check_array=True)
        if hasattr(table, "iloc"):
            columns = [table.iloc[:, index].tolist() for index in range(table.shape[1])]
        else:
            array = np.asarray(table if hasattr(table, "dtype") else _objects(table))
            if array.ndim != 2:
                raise ValueError(
                    f"X: has shape {array.shape}; a row of X is a pair of user and item"
                )
            columns = [column.tolist() for column in array.T]
        if len(columns) != 2:
            raise ValueError(f"X: has {len(columns)} columns; give two, ids of users and of items")
        if not columns[0]:
            raise ValueError("X: has 0 rows; at least one rating is needed")
        for column, ids in enumerate(columns):
            for row, each in enumerate(ids):
                if is_missing_id(each):
                    raise ValueError(f"X: the id at row {row}, column {column} is missing")
        return columns[0], columns[1]

    def _refuse_unknown(self, users: Ids, items: Ids) -> None:
        data = self.posterior_.data
        sides = (users, data.row_names, "user"), (items, data.column_names, "item")
        for ids, names, word in sides:
            known = set() if names is None else set(names.tolist())
            for row, each in enumerate(ids):
                if each not in known:
                    raise ValueError(
                        f"X: {word} {each!r} at row {row} was not in the fit; leave it out, or "
                        'pass unknown="prior"'
                    )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _objects(rows: Iterable[object]) -> np.ndarray:
    """A list of pairs as an array whose entries keep their types."""
    pairs: list[tuple[object, ...]] = []
    for row, pair in enumerate(rows):
        if isinstance(pair, str | bytes) or not isinstance(pair, Iterable):
            raise ValueError(f"X: row {row} is {pair!r}; a row of X is a pair of user and item")
        pairs.append(tuple(pair))
    for row, pair in enumerate(pairs):
        if len(pair) != len(pairs[0]):
            raise ValueError(
                f"X: row {row} has {len(pair)} entries, row 0 has {len(pairs[0])}; a row of X "
                "is a pair of user and item"
            )
    array = np.empty((len(pairs), len(pairs[0]) if pairs else 0), object)
    for row, pair in enumerate(pairs):
        array[row] = pair
    return array


def _positions(ids: Ids) -> tuple[np.ndarray, Ids]:
    """The position of each id among the different ones, and these in order of appearance."""
    seen: dict[Hashable, int] = {}
    positions = np.array([seen.setdefault(each, len(seen)) for each in ids])
    return positions, list(seen)


def _refuse_repeats(users: Ids, items: Ids) -> None:
    first: dict[tuple[Hashable, Hashable], int] = {}
    for row, pair in enumerate(zip(users, items, strict=True)):
        if pair in first:
            raise ValueError(
                f"X: rows {first[pair]} and {row} are both of user {pair[0]!r} and item "
                f"{pair[1]!r}; keep one rating of a pair, or their mean"
            )
        first[pair] = row
