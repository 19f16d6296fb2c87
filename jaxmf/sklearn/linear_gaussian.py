"""Binary features that add up, as a transformer.

``transform`` returns the probability that a row has each feature, ``inverse_transform`` adds
features up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted

from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.results import Posterior
from jaxmf.sklearn.base import FeatureTransformer


@dataclass(eq=False, repr=False, kw_only=True)
class LinearGaussianIBPTransformer(FeatureTransformer):
    """Hidden binary features of real data, their number inferred.

    Rows are sums of features: X = Z Y + noise, Z from an Indian buffet process. NaN is a missing
    cell. Everything that is said about features is said about the reference draw, the one with the
    highest log joint.

    Args:
        alpha: expected number of features a row; a number or a numpyro distribution; None for the
            default of `jaxmf.LinearGaussianIBP`, which learns it.
        noise_scale: sd of the noise, likewise; None to learn it, in the unit of the data.
        feature_scale: sd of the features, likewise. Where it is None, or with a bias, the columns
            are centred; otherwise features add up from zero.
        concentration: second parameter of the Indian buffet process.
        num_features: None for an unbounded number.
        bias: whether every row also has one shared feature; None as for `LinearGaussianIBP`.
        column_noise: whether each column has noise of its own; likewise.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        components_: (K, D) features, the bias first if there is one.
        offset_: (D,) what rows without features are about; the bias has it in itself.
        n_components_: K.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(20, 4))
        >>> estimator = LinearGaussianIBPTransformer(num_warmup=5, num_samples=5, random_state=0)
        >>> Z = estimator.fit_transform(X)
        >>> Z.shape == (20, estimator.n_components_)
        True
    """

    alpha: object = None
    noise_scale: object = None
    feature_scale: object = None
    concentration: object = 1.0
    num_features: int | None = None
    bias: bool | None = None
    column_noise: bool | None = None

    def _posterior(self, values: np.ndarray) -> Posterior:
        model = LinearGaussianIBP(
            alpha=self.alpha,
            noise_scale=self.noise_scale,
            feature_scale=self.feature_scale,
            concentration=self.concentration,
            num_features=self.num_features,
            bias=self.bias,
            column_noise=self.column_noise,
        )
        return self._sample(model, values)

    def _take(self) -> None:
        super()._take()
        posterior = self.posterior_
        offset = 0.0 if posterior.model.has_bias_feature else posterior.model.offset
        self.offset_ = np.broadcast_to(np.asarray(offset, float), (posterior.data.num_columns,))

    def inverse_transform(self, X: object) -> np.ndarray:
        """Rows from features: their sum, and the offset.

        Args:
            X: (N, K), as `transform` gives it.
        Returns:
            (N, D) float.
        """
        check_is_fitted(self)
        features = np.asarray(X)
        if features.ndim != 2 or features.shape[1] != self.n_components_:
            raise ValueError(
                f"X has shape {features.shape}; the estimator has {self.n_components_} features"
            )
        return features @ self.components_ + self.offset_
