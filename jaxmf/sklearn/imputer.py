"""Real factors of rows and columns, as a transformer that fills missing cells."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jaxmf.arguments import check_count
from jaxmf.data import Entries
from jaxmf.models.bpmf import BPMF
from jaxmf.results import Posterior
from jaxmf.sklearn.base import CellsEstimator, column_names

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(eq=False, repr=False)
class FactorImputer(OneToOneFeatureMixin, TransformerMixin, CellsEstimator):
    """Fills missing cells by Bayesian probabilistic matrix factorisation.

    Cells are a level of their row, one of their column, and the product of the factors of the two.
    Ratings of users and items as a table with a line for each rating are for `RatingRecommender`.

    Args:
        n_components: number of factors of a row and of a column.
        likelihood: of a cell; None for `jaxmf.Gaussian()`, whose noise is learned. With
            `jaxmf.Ordinal` for answers on a scale, cells are filled with expected values, too.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.add.outer(np.arange(8.0), np.arange(4.0))
        >>> X[2, 3] = np.nan
        >>> imputer = FactorImputer(1, num_warmup=5, num_samples=5, random_state=0)
        >>> filled = imputer.fit_transform(X)
        >>> bool(np.isfinite(filled).all()), float(filled[2, 2])
        (True, 4.0)
    """

    n_components: int = BPMF.num_factors
    _: KW_ONLY
    likelihood: object = None

    def _posterior(self, values: np.ndarray) -> Posterior:
        settings: dict[str, Any] = {}
        if self.likelihood is not None:
            settings["likelihood"] = self.likelihood
        model = BPMF(check_count("n_components", self.n_components, 0), **settings)
        return self._sample(model, self._entries(values))

    def transform(self, X: object) -> np.ndarray:
        """X with the expected values of its missing cells, given the others of their row.

        Args:
            X: (N, D), NaN for missing cells; rows are taken for further ones.
        Returns:
            (N, D) float.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False).copy()
        cells = np.nonzero(np.isnan(values))
        if cells[0].size:
            values[cells] = self._predict_cells(cells, values)
        return values

    def _entries(self, values: np.ndarray) -> Entries:
        rows, columns = np.nonzero(~np.isnan(values))
        known, names = values[rows, columns], column_names(self)
        return Entries(rows, columns, known, values.shape, column_names=names)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
