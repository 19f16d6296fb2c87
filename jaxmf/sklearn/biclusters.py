"""Binary matrix factorisation as a biclustering estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BiclusterMixin

from jaxmf.arguments import check_count
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf import BinaryMF
from jaxmf.priors.features import BetaBernoulli
from jaxmf.results import Posterior
from jaxmf.sklearn.base import CellsEstimator, likelihood_of

_LIKELIHOODS: dict[str, Callable[[], Gaussian | Bernoulli | Poisson]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
}


@dataclass(eq=False, repr=False)
class BiclusterMF(BiclusterMixin, CellsEstimator):
    """Overlapping biclusters: binary features of rows and of columns, and weights between them.

    A bicluster is a row feature and a column feature whose weight is beyond its uncertainty; rows
    and columns may be in several, or in none. NaN is a missing cell. Biclusters are those of the
    reference draw, the one with the highest log joint, the surest first.

    Args:
        n_row_features: None for an unbounded number of row features (Indian buffet process); a
            number for a finite model.
        n_column_features: those of columns, likewise.
        likelihood: of a cell: "gaussian" for real numbers, "bernoulli" for zeros and ones,
            "poisson" for counts, or one of `jaxmf.Gaussian`, `jaxmf.Bernoulli`, `jaxmf.Poisson`
            with other settings.
        num_sd: how many standard deviations the weight of a bicluster is away from zero.
        sweep: of the sampler: "auto", or "whole_rows", which mixes better with up to 12 features on
            either side and Gaussian cells.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`; `posterior_.biclusters()` has probabilities of members.
        rows_: (B, N) bool, the rows of every bicluster.
        columns_: (B, D) bool, its columns.
        biclusters_: both.
        weights_: (B,) float, mean of the weight of each.
        weight_sd_: (B,) float, its standard deviation.
        n_biclusters_: B, which may be 0.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.kron([[1.0, 0.0], [0.0, -1.0]], np.ones((4, 3)))
        >>> estimator = BiclusterMF(
        ...     2, 2, sweep="whole_rows", num_warmup=5, num_samples=5, random_state=0
        ... )
        >>> rows, columns = estimator.fit(X).biclusters_
        >>> rows.shape == (estimator.n_biclusters_, 8)
        True
    """

    n_row_features: int | None = None
    n_column_features: int | None = None
    _: KW_ONLY
    likelihood: object = "gaussian"
    num_sd: float = 2.0
    sweep: str = "auto"

    def _posterior(self, values: np.ndarray) -> Posterior:
        priors: dict[str, Any] = {
            f"{side}_prior": BetaBernoulli(1.0, 1.0, check_count(f"n_{side}_features", count))
            for side, count in (("row", self.n_row_features), ("column", self.n_column_features))
            if count is not None
        }
        model = BinaryMF(likelihood=likelihood_of(self.likelihood, _LIKELIHOODS), **priors)
        return self._sample(model, values, sweep=self.sweep)

    def _take(self) -> None:
        found = self.posterior_.biclusters(num_sd=self.num_sd)
        self.rows_, self.columns_ = found.rows, found.columns
        self.weights_, self.weight_sd_ = found.weights.astype(float), found.weight_sd.astype(float)
        self.n_biclusters_ = len(found)
