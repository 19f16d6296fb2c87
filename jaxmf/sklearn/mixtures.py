"""Mixtures of rows as a clusterer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from jaxmf.data import Dense
from jaxmf.diagnostics import evenly_spread
from jaxmf.models.mixtures import DPMixture, MixtureOfGaussians
from jaxmf.programs import jit
from jaxmf.sklearn.base import SampledEstimator, count_or_none, read_matrix
from jaxmf.types import Array, Draw, PyTree

if TYPE_CHECKING:
    from sklearn.utils import Tags

_MOST_DRAWS = 10


@dataclass(eq=False, repr=False)
class MixtureClusterer(ClusterMixin, SampledEstimator):
    """Clusters of real rows, as many as the data need: a Dirichlet process mixture.

    Clusters are those of the reference draw, the one with the highest log joint, the largest first.
    Their means and covariances are summed out. How sure the partition is,
    ``posterior_.cooccurrence()`` and ``posterior_.num_groups()`` say.

    Args:
        n_clusters: None for as many as the data need; a number for a finite mixture.
        concentration: of the Dirichlet process (by default Gamma(1, 1)), or of each cluster of a
            finite mixture (by default 1): a number or a numpyro distribution.
        family: of the rows; None for Gaussians of any mean and covariance, on the scale of the data
            (`jaxmf.NormalInverseWishart.from_data`); `jaxmf.IndependentColumns()` for Gaussians
            whose columns are independent, with which cells may be missing (NaN), and
            `jaxmf.MixedColumns` for columns of several kinds; or
            `jaxmf.NormalInverseWishart` with other settings, and for one column
            `jaxmf.NormalInverseGamma` or `jaxmf.GammaPoisson`.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        labels_: (N,) int, the cluster of every row in the reference draw, 0 for the largest.
        means_: (G, D) float, expected mean of each cluster.
        weights_: (G,) float, probability that a further row is of the cluster; what is missing to
            one is that of a new cluster.
        n_clusters_: G, clusters with rows.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
        >>> clusterer = MixtureClusterer(num_warmup=20, num_samples=20, random_state=0)
        >>> clusterer.fit_predict(X).shape
        (6,)
    """

    n_clusters: int | None = None
    _: KW_ONLY
    concentration: object = None
    family: object = None

    def fit(self, X: object, y: object = None) -> Self:
        """Draw from the posterior given X.

        Args:
            X: (N, D) finite numbers; NaN for missing cells with `IndependentColumns`.
            y: ignored.
        Returns:
            The estimator.
        Raises:
            ValueError: X is no finite matrix of two rows or more, or a setting is out of range.
        """
        values = self._read(X, reset=True)
        num_clusters = count_or_none("n_clusters", self.n_clusters)
        settings: dict[str, Any] = {"family": self.family}
        if self.concentration is not None:
            settings["concentration"] = self.concentration
        model: Any = (
            DPMixture(**settings)
            if num_clusters is None
            else MixtureOfGaussians(num_clusters, **settings)
        )
        self.posterior_ = self._sample(model, values, keep="assignments")
        groups = self.posterior_.groups()
        self.labels_ = groups.labels.astype(np.int64)
        self.means_, self.weights_ = groups.mean.astype(float), groups.weights.astype(float)
        self.n_clusters_ = groups.counts.size
        return self

    def predict_proba(self, X: object) -> np.ndarray:
        """Probability of each cluster for rows of X, as further rows.

        Args:
            X: (N, D) finite numbers.
        Returns:
            (N, G) float; what is missing to one is the probability of a new cluster.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        return self.posterior_.transform(values)[:, : self.n_clusters_].astype(float)

    def predict(self, X: object) -> np.ndarray:
        """The most probable cluster of rows of X, as further rows.

        Rows of the training data are taken for further ones too, so that ``predict(X)`` may differ
        from ``labels_`` where a row could be of several clusters.

        Args:
            X: (N, D) finite numbers.
        Returns:
            (N,) int.
        """
        return np.argmax(self.predict_proba(X), axis=1)

    def score_samples(self, X: object) -> np.ndarray:
        """Log predictive density of rows of X, averaged over up to ten draws before the log.

        Args:
            X: (N, D) finite numbers.
        Returns:
            (N,) float.
        """
        check_is_fitted(self)
        values = jax.numpy.asarray(Dense(self._read(X, reset=False)).to_array())
        draws, weights = self.posterior_.flat_draws()
        chosen = evenly_spread(weights.size, _MOST_DRAWS)
        model, data = self.posterior_.model, self.posterior_.data
        densities = []
        for index in chosen:
            draw = {name: each[index] for name, each in draws.items()}
            densities.append(np.asarray(_log_density(model, draw, data, values), float))
        return logsumexp(densities, axis=0) - np.log(chosen.size)

    def score(self, X: object, y: object = None) -> float:
        """Mean log predictive density of rows of X; higher is better.

        Args:
            X: (N, D) finite numbers.
            y: ignored.
        """
        return float(np.mean(self.score_samples(X)))

    def _read(self, X: object, *, reset: bool) -> np.ndarray:
        """X (N, D) float; `reset` says whether this is the fit."""
        finite: Any = "allow-nan" if self._takes_missing else True
        try:
            return read_matrix(self, X, reset=reset, ensure_all_finite=finite)
        except ValueError as error:
            first = str(error).partition("\n")[0]
            if "NaN" not in first:
                raise
            raise ValueError(
                f"{first} With family=jaxmf.IndependentColumns() the clusterer takes missing cells"
            ) from None

    @property
    def _takes_missing(self) -> bool:
        return bool(getattr(self.family, "takes_missing", False))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags


@jit
def _log_density(model: PyTree, draw: Draw, data: Dense, values: jax.Array) -> Array:
    """Log predictive density of rows (N, D), one after another: (N,) float.

    So rounding does not depend on how many rows there are; a loop over one row alone would be
    unrolled, and round in another way.
    """

    def one(row: Array) -> Array:
        return model.predict_rows_of_draw(draw, data, row[None])[0][0]

    num_rows = values.shape[0]
    padded = jax.numpy.pad(values, ((0, int(num_rows == 1)), (0, 0)))
    return jax.lax.map(one, padded)[:num_rows]
