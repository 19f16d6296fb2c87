"""Hidden causes of zeros and ones as a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.sklearn.base import (
    SampledEstimator,
    count_or_none,
    hide_cells,
    read_matrix,
    seed_of,
    to_ones,
)

if TYPE_CHECKING:
    from sklearn.utils import Tags


class NoisyOrTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SampledEstimator):
    """Hidden causes of zeros and ones, their number inferred: noisy-OR.

    A row has some of the causes, a cause is active in some of the columns, and a cell is one with
    probability 1 - (1 - leak) (1 - efficacy)^(causes of the row active in the column). NaN is a
    missing cell. Causes are those of the reference draw, the one with the highest log joint.

    Args:
        n_components: None for an unbounded number of causes (Indian buffet process); a number for
            a finite model.
        binarize: a value above it is a one; None where X holds zeros and ones already, and other
            values are an error.
        alpha: expected number of causes of a row: a number or a numpyro distribution. So are the
            next three; None for the defaults of `jaxmf.NoisyOrIBP`.
        cause_probability: that a cause is active in a column.
        efficacy: that an active cause makes a cell of its rows one.
        leak: that a cell is one without a cause.
        num_warmup: steps thrown away.
        num_samples: draws kept of each chain.
        num_chains: independent chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        components_: (K, D) float, probability that each cause is active in each column; the cause
            that most rows have comes first.
        n_components_: K.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.kron(np.eye(2), np.ones((4, 3)))
        >>> estimator = NoisyOrTransformer(2, num_warmup=5, num_samples=5, random_state=0)
        >>> estimator.fit_transform(X).shape == (8, estimator.n_components_)
        True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        binarize: float | None = 0.0,
        alpha: object = None,
        cause_probability: object = None,
        efficacy: object = None,
        leak: object = None,
        num_warmup: int = 200,
        num_samples: int = 100,
        num_chains: int = 1,
        random_state: object = None,
    ) -> None:
        self.n_components = n_components
        self.binarize = binarize
        self.alpha = alpha
        self.cause_probability = cause_probability
        self.efficacy = efficacy
        self.leak = leak
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.num_chains = num_chains
        self.random_state = random_state

    def fit(self, X: object, y: object = None) -> Self:
        """Draw from the posterior given X.

        Args:
            X: (N, D), NaN for missing cells.
            y: ignored.
        Returns:
            The estimator.
        Raises:
            ValueError: X is no matrix of two rows or more, or a setting is out of range.
        """
        values = self._read(X, reset=True)
        model = NoisyOrIBP(
            alpha=self.alpha,
            cause_probability=self.cause_probability,
            efficacy=self.efficacy,
            leak=self.leak,
            num_features=count_or_none("n_components", self.n_components),
        )
        self.posterior_ = self._sample(model, values)
        self.components_ = self.posterior_.features().mean.astype(float)
        self.n_components_ = self._n_features_out = self.components_.shape[0]
        return self

    def transform(self, X: object) -> np.ndarray:
        """Probability of each cause for each row of X, as a further row.

        All combinations of up to ten causes are summed over; more of them by a short chain, and
        then the last digits of a row depend on its position in X.

        Args:
            X: (N, D), NaN for missing cells.
        Returns:
            (N, K) float between 0 and 1.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        return self.posterior_.transform(values).astype(values.dtype)

    def score(self, X: object, y: object = None) -> float:
        """Mean log probability of a tenth of the cells of X, given the other cells of their rows.

        Args:
            X: (N, D), NaN for missing cells; rows are taken for further ones.
            y: ignored.
        Returns:
            A number below 0; higher is better. `random_state` says which cells are scored.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        rest, cells = hide_cells(values, seed_of(self.random_state))
        mean = self.posterior_.predict(cells, new_rows=rest, num_draws=1).mean
        probability = np.where(values[cells] == 1, mean, 1 - mean)
        return float(np.mean(np.log(np.maximum(probability, np.finfo(float).tiny))))

    def _read(self, X: object, *, reset: bool) -> np.ndarray:
        values = read_matrix(self, X, reset=reset, ensure_all_finite="allow-nan")
        return to_ones(values, self.binarize)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
