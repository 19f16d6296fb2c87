"""Factors of sparse zeros and ones as a transformer that recommends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jaxmf import api
from jaxmf.arguments import check_count, check_number
from jaxmf.data import SparseBinary
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.models.sparse_binary_mf import SparseBinaryMF
from jaxmf.sklearn.base import column_names, likelihood_of, read_matrix, seed_of, to_ones

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from jaxmf.posterior.ranking import Recommendations

_LIKELIHOODS: dict[str, Callable[[], Bernoulli | Gaussian]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
}


@dataclass(eq=False, repr=False)
class SparseBinaryRecommender(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Gaussian factors of a sparse matrix of zeros and ones, by variational Bayes.

    Rows are users or baskets, columns items; a one is a purchase or a click, every other cell a
    zero. `transform` returns factors of rows, `recommend` the best columns of rows.

    Args:
        n_components: number of factors.
        binarize: a value above it is a one; None where X holds zeros and ones already, and other
            values are an error.
        likelihood: "bernoulli", or "gaussian", which is faster; or `jaxmf.Bernoulli`,
            `jaxmf.Gaussian` with other settings.
        num_epochs: passes over the data, at most.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        components_: (K, D) float, means of the factors of the columns.
        n_components_: K.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.kron(np.eye(2), np.ones((6, 4)))
        >>> estimator = SparseBinaryRecommender(2, num_epochs=3, random_state=0)
        >>> estimator.fit_transform(X).shape
        (12, 2)
    """

    n_components: int = SparseBinaryMF.num_factors
    _: KW_ONLY
    binarize: float | None = 0.0
    likelihood: object = "bernoulli"
    num_epochs: int = 50
    random_state: object = None

    def fit(self, X: object, y: object = None) -> Self:
        """Fit the factors of rows and columns of X.

        Args:
            X: (N, D), dense or sparse.
            y: ignored.
        Returns:
            The estimator.
        Raises:
            ValueError: X is no matrix of two rows or more, or has no ones; a setting is out of
                range.
        """
        ones = self._read(X, reset=True)
        if not ones.nnz:
            raise ValueError("X: has no ones; a value counts as one if it is above binarize")
        model = SparseBinaryMF(
            num_factors=check_count("n_components", self.n_components),
            likelihood=likelihood_of(self.likelihood, _LIKELIHOODS),
        )
        self.posterior_ = api.variational(
            model,
            SparseBinary.from_scipy(ones, column_names=column_names(self)),
            num_epochs=check_count("num_epochs", self.num_epochs),
            seed=seed_of(self.random_state),
            progress=False,
        )
        self.components_ = self.posterior_.reference_draw()["column_mean"].T.astype(float)
        self.n_components_ = self._n_features_out = self.components_.shape[0]
        return self

    def transform(self, X: object) -> np.ndarray:
        """Means of the factors of rows of X, as further rows.

        Args:
            X: (N, D), dense or sparse.
        Returns:
            (N, K) float.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        factors = self.posterior_.transform(_with_a_one(values))
        return factors[: values.shape[0]].astype(values.dtype)

    def recommend(self, X: object, *, n: int = 10) -> Recommendations:
        """The n best columns of rows of X, as further rows, without those that they have.

        Args:
            X: (N, D), dense or sparse: what the rows have.
            n: how many columns a row.
        Returns:
            Columns best first with their probabilities; `.to_pandas()` is the table. Columns are
            named as in the DataFrame of the fit.
        """
        check_is_fitted(self)
        return self._ranked(self._read(X, reset=False), n)

    def score(self, X: object, y: object = None) -> float:
        """How well one hidden one of each row of X is ranked: the mean of 1 / log2(1 + rank).

        Args:
            X: (N, D), dense or sparse; rows with fewer than two ones say nothing.
            y: ignored.
        Returns:
            A number up to 1, which is reached where every hidden one is ranked first.
            `random_state` says which ones are hidden.
        Raises:
            ValueError: no row has two ones.
        """
        check_is_fitted(self)
        ones = self._read(X, reset=False)
        counts = np.diff(ones.indptr)
        rows = np.flatnonzero(counts >= 2)
        if not rows.size:
            raise ValueError("X: no row has two ones, so there is none to hide")
        generator = np.random.default_rng(seed_of(self.random_state))
        hidden = ones.indptr[rows] + generator.integers(0, counts[rows])
        columns = ones.indices[hidden]
        rest = ones.copy()
        rest.data[hidden] = 0
        rest.eliminate_zeros()
        ranked = self._ranked(rest[rows], self.n_features_in_).columns
        rank = 1 + np.argmax(ranked == columns[:, None], axis=1)
        return float(np.mean(1 / np.log2(1 + rank)))

    def _ranked(self, ones: scipy.sparse.csr_array, n: int) -> Recommendations:
        rows = np.arange(ones.shape[0])
        return self.posterior_.recommend(rows, new_rows=_with_a_one(ones), n=n)

    def _read(self, X: object, *, reset: bool) -> scipy.sparse.csr_array:
        """Zeros and ones as a sparse matrix."""
        values = read_matrix(self, X, reset=reset, accept_sparse="csr")
        if not scipy.sparse.issparse(values):
            return scipy.sparse.csr_array(to_ones(values, self.binarize))
        if self.binarize is not None and check_number("binarize", self.binarize) < 0:
            raise ValueError(
                f"binarize is {self.binarize:g}: below zero all zeros of a sparse X would be ones"
            )
        ones = scipy.sparse.csr_array(values, copy=True)
        ones.sum_duplicates()  # of a cell that is stored twice the sum is the value
        ones.data = to_ones(ones.data, self.binarize)
        ones.eliminate_zeros()
        return ones

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _with_a_one(ones: scipy.sparse.csr_array) -> SparseBinary:
    """Rows as data; where none has a one, a row with one is put below them."""
    if not ones.nnz:
        last = scipy.sparse.csr_array(([1.0], ([0], [0])), shape=(1, ones.shape[1]))
        ones = scipy.sparse.vstack([ones, last], format="csr")
    return SparseBinary.from_scipy(ones)
