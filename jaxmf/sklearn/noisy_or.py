"""Hidden causes of zeros and ones as a transformer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.results import Posterior
from jaxmf.sklearn.base import FeatureTransformer, count_or_none, to_ones


@dataclass(eq=False, repr=False)
class NoisyOrTransformer(FeatureTransformer):
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
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
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

    n_components: int | None = None
    _: KW_ONLY
    binarize: float | None = 0.0
    alpha: object = None
    cause_probability: object = None
    efficacy: object = None
    leak: object = None

    def _posterior(self, values: np.ndarray) -> Posterior:
        model = NoisyOrIBP(
            alpha=self.alpha,
            cause_probability=self.cause_probability,
            efficacy=self.efficacy,
            leak=self.leak,
            num_features=count_or_none("n_components", self.n_components),
        )
        return self._sample(model, values)

    def score(self, X: object, y: object = None) -> float:
        """Mean log probability of a tenth of the cells of X, given the other cells of their rows.

        Args:
            X: (N, D), NaN for missing cells; rows are taken for further ones.
            y: ignored.
        Returns:
            A number below 0; higher is better. `random_state` says which cells are scored.
        """
        mean, values = self._predict_hidden(X)
        probability = np.where(values == 1, mean, 1 - mean)
        return float(np.mean(np.log(np.maximum(probability, np.finfo(float).tiny))))

    def _read(self, X: object, *, reset: bool) -> np.ndarray:
        return to_ones(super()._read(X, reset=reset), self.binarize)
