"""What the estimators share: reading X, the seed, running a model, cells hidden for a score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from jaxmf import api
from jaxmf.arguments import check_count, check_number, check_word
from jaxmf.data import Dense, Positions
from jaxmf.model import SomeModel
from jaxmf.results import Posterior

if TYPE_CHECKING:
    from sklearn.utils import Tags

T = TypeVar("T")

_HIDDEN_SHARE = 0.1


@dataclass(eq=False, repr=False, kw_only=True)
class SampledEstimator(BaseEstimator):
    """An estimator of a model that is fitted by Markov chains."""

    num_warmup: int = 200
    num_samples: int = 100
    num_chains: int = 1
    random_state: object = None

    def _sample(self, model: SomeModel, X: object, **options: object) -> Posterior[SomeModel]:
        """The posterior of a model given X, a container or an array (N, D).

        Raises:
            ValueError: values that the model does not have; the message speaks of X.
        """
        container: Any = X
        settings: dict[str, Any] = {**options}
        if isinstance(X, np.ndarray):
            container = Dense(X, column_names=column_names(self))
        model.check_data(container, "X")
        return api.sample(
            model,
            container,
            num_warmup=self.num_warmup,
            num_samples=self.num_samples,
            num_chains=self.num_chains,
            seed=seed_of(self.random_state),
            progress=False,
            **settings,
        )


class CellsEstimator(SampledEstimator, ABC):
    """An estimator of a matrix whose cells may be missing, scored by cells that it predicts."""

    posterior_: Posterior

    def fit(self, X: object, y: object = None) -> Self:
        """Draw from the posterior given X.

        Args:
            X: (N, D), NaN for missing cells.
            y: ignored.
        Returns:
            The estimator.
        Raises:
            ValueError: X is no matrix of two rows or more, or has values that the model does not
                have; a setting is out of range.
        """
        self.posterior_ = self._posterior(self._read(X, reset=True))
        self._take()
        return self

    @abstractmethod
    def _posterior(self, values: np.ndarray) -> Posterior:
        """The posterior of the model with the settings of this estimator, given X (N, D)."""

    def _take(self) -> None:
        """Sets the attributes that are read from the posterior."""

    def _read(self, X: object, *, reset: bool) -> np.ndarray:
        """X (N, D) float, NaN for missing cells; `reset` says whether this is the fit."""
        return read_matrix(self, X, reset=reset, ensure_all_finite="allow-nan")

    def score(self, X: object, y: object = None) -> float:
        """Minus the mean squared error of a tenth of the cells of X, given the others.

        Args:
            X: (N, D), NaN for missing cells; rows are taken for further ones.
            y: ignored.
        Returns:
            A number of at most 0; higher is better. `random_state` says which cells are scored.
        Raises:
            ValueError: fewer than two cells of X are observed.
        """
        mean, values = self._predict_hidden(X)
        return -float(np.mean((mean - values) ** 2))

    def _predict_hidden(self, X: object) -> tuple[np.ndarray, np.ndarray]:
        """Expected values of a tenth of the cells of X, (M,), and what they are."""
        check_is_fitted(self)
        values = self._read(X, reset=False)
        rest, cells = hide_cells(values, seed_of(self.random_state))
        return self._predict_cells(cells, rest), values[cells]

    def _predict_cells(self, cells: tuple[np.ndarray, ...], new_rows: np.ndarray) -> np.ndarray:
        """Expected values (M,) of cells of further rows (N, D), NaN for missing cells."""
        positions = Positions(*cells)  # the columns of the fit may have ids
        return self.posterior_.predict(positions, new_rows=new_rows, num_draws=1).mean

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class FeatureTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CellsEstimator):
    """A transformer of rows into the probabilities of their hidden binary features."""

    def _take(self) -> None:
        self.components_ = self.posterior_.features().mean.astype(float)
        self.n_components_ = self._n_features_out = self.components_.shape[0]

    def transform(self, X: object) -> np.ndarray:
        """Probability of each feature, or cause, for each row of X, as a further row.

        All combinations of up to ten of them are summed over; more by a short chain, and then the
        last digits of a row depend on its position in X.

        Args:
            X: (N, D), NaN for missing cells.
        Returns:
            (N, K) float between 0 and 1.
        """
        check_is_fitted(self)
        values = self._read(X, reset=False)
        return self.posterior_.transform(values).astype(values.dtype)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def seed_of(random_state: object) -> int:
    """A seed from what scikit-learn takes for one: None, a number, a RandomState."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def column_names(estimator: object) -> list[str] | None:
    """The names of the columns of X in the fit, which answers of the posterior then have."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else names.tolist()


def read_matrix(
    estimator: BaseEstimator, X: object, *, reset: bool, **options: object
) -> np.ndarray:
    """X as scikit-learn reads it: names and number of columns checked, floats kept.

    With ``accept_sparse`` a sparse matrix stays one.

    Args:
        estimator: to be fitted (reset) or fitted.
        X: (N, D).
        reset: whether this is the fit, which needs two rows.
        **options: of `sklearn.utils.check_array`.
    """
    settings: dict[str, Any] = {"dtype": [np.float64, np.float32]}
    settings["ensure_min_samples"] = 2 if reset else 1
    return validate_data(estimator, X, reset=reset, **settings | options)


def to_ones(values: np.ndarray, binarize: object) -> np.ndarray:
    """Zeros and ones: 1 where a value is above `binarize`, NaN where it is missing.

    Args:
        binarize: the threshold; None where the values are zeros and ones already.
    Raises:
        ValueError: None, and a value that is neither.
    """
    if binarize is not None:
        above = values > check_number("binarize", binarize)
        return np.where(np.isnan(values), np.nan, above).astype(values.dtype)
    other = (values != 0) & (values != 1) & ~np.isnan(values)
    if other.any():
        raise ValueError(
            f"X: {values[other][0]:g} is neither 0 nor 1; pass binarize=, above which a value "
            "counts as one"
        )
    return values


def hide_cells(values: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """A copy without a tenth of the observed cells, one at least, and which these are.

    Args: values (N, D) float, NaN for missing cells.
    Raises ValueError: fewer than two cells are observed.
    """
    rows, columns = np.nonzero(~np.isnan(values))
    if rows.size < 2:
        raise ValueError(f"X: has {rows.size} observed cells; a score needs two")
    num_hidden = max(1, round(_HIDDEN_SHARE * rows.size))
    chosen = np.sort(np.random.default_rng(seed).permutation(rows.size)[:num_hidden])
    cells = rows[chosen], columns[chosen]
    hidden = values.copy()
    hidden[cells] = np.nan
    return hidden, cells


def count_or_none(name: str, value: object) -> int | None:
    """None, or a count of at least one."""
    return None if value is None else check_count(name, value)


def likelihood_of(likelihood: object, known: Mapping[str, Callable[[], T]]) -> T:
    """A likelihood by its name, or the one that was passed.

    Raises ValueError: an unknown name.
    """
    if not isinstance(likelihood, str):
        return cast(T, likelihood)
    return known[check_word("likelihood", likelihood, known)]()


def check_ratings(y: object) -> np.ndarray:
    """y (n,) float, finite.

    Raises ValueError: another shape, or values that are NaN or infinite.
    """
    values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array of ratings, got shape {values.shape}")
    return values
