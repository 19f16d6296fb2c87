"""Topic models as a transformer of counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative

from jaxmf.data import Tokens
from jaxmf.models.topics import HDPLDA, LDA
from jaxmf.sklearn.base import SampledEstimator, column_names, count_or_none, read_matrix

if TYPE_CHECKING:
    from sklearn.utils import Tags

_MOST_COUNT = 2**31 - 1


@dataclass(eq=False, repr=False)
class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SampledEstimator):
    """Topics of documents given by counts of words: LDA, or an HDP that finds their number.

    Topics are those of the reference draw, the one with the highest log joint, in the order of
    their size in it.

    Args:
        n_components: number of topics (latent Dirichlet allocation); None for as many as the
            documents need (hierarchical Dirichlet process).
        topic_concentration: of topics in a document: a number or a numpyro distribution; None for
            the default of `jaxmf.LDA` or `jaxmf.HDPLDA`.
        word_concentration: of words in a topic, likewise.
        num_warmup, num_samples, num_chains: steps discarded, draws kept of a chain, and chains.
        random_state: int, RandomState or None, as everywhere in scikit-learn.
    Attributes:
        posterior_: the `jaxmf.Posterior`.
        components_: (K, D) float, probabilities of the words in each topic; rows sum to one.
        n_components_: K.
        n_features_in_: D.
    Example:
        >>> import numpy as np
        >>> X = np.array([[3, 1, 0, 0], [2, 2, 0, 0], [0, 0, 1, 3], [0, 0, 2, 2]])
        >>> topics = TopicModel(2, num_warmup=5, num_samples=5, random_state=0)
        >>> topics.fit_transform(X).shape
        (4, 2)
    """

    n_components: int | None = None
    _: KW_ONLY
    topic_concentration: object = None
    word_concentration: object = None

    def fit(self, X: object, y: object = None) -> Self:
        """Draw from the posterior given X.

        Args:
            X: (N, D) whole numbers, dense or sparse: how often word d is in document n.
            y: ignored.
        Returns:
            The estimator.
        Raises:
            ValueError: X is no matrix of counts, or has no words; a setting is out of range.
        """
        counts = self._read(X, reset=True)
        if not counts.sum():
            raise ValueError("X: all counts are 0; there is no word to learn from")
        num_topics = count_or_none("n_components", self.n_components)
        settings: dict[str, Any] = {
            name: value
            for name in ("topic_concentration", "word_concentration")
            if (value := getattr(self, name)) is not None
        }
        model: Any = HDPLDA(**settings) if num_topics is None else LDA(num_topics, **settings)
        self.posterior_ = self._sample(
            model, Tokens.from_counts(counts, vocabulary=column_names(self))
        )
        draw = self.posterior_.reference_draw()
        sizes = np.asarray(model.shares(draw, self.posterior_.data))
        words = np.asarray(model.entries(draw, self.posterior_.data))
        order = np.argsort(-sizes, kind="stable")
        # slots of an HDP without a word are no topics; topics of LDA are as many as were asked for
        self.n_components_ = int(np.sum(sizes > 0)) if num_topics is None else num_topics
        self.components_ = words[order][: self.n_components_].astype(float)
        self._n_features_out = self.n_components_
        return self

    def transform(self, X: object) -> np.ndarray:
        """Shares of the topics in each document of X, as further documents.

        Topics of the words are sampled given those of the training data, and shares averaged over
        20 sweeps. Those of a document do not depend on the others in X.

        Args:
            X: (N, D) whole numbers, dense or sparse.
        Returns:
            (N, K) float; rows sum to one. A document without words has the shares of the prior.
        """
        check_is_fitted(self)
        counts = self._read(X, reset=False)
        # one further document with one word, as there must be a word
        last = scipy.sparse.csr_array(([1], ([0], [0])), shape=(1, counts.shape[1]))
        counts = scipy.sparse.vstack([counts, last], format="csr")
        shares = self.posterior_.transform(Tokens.from_counts(counts))[:-1, : self.n_components_]
        return (shares / shares.sum(axis=1, keepdims=True)).astype(float)

    def score(self, X: object, y: object = None) -> float:
        """Mean log probability of half of the words of each document of X, given the other half.

        Args:
            X: (N, D) whole numbers, dense or sparse; a document needs two words to be scored.
            y: ignored.
        Returns:
            A number below 0; higher is better.
        Raises:
            ValueError: no document has two words.
        """
        check_is_fitted(self)
        counts = self._read(X, reset=False)
        if counts.sum(axis=1).max() < 2:
            raise ValueError("X: no document has two words, so there is nothing to score")
        return float(self.posterior_.document_completion(Tokens.from_counts(counts)).mean)

    def perplexity(self, X: object) -> float:
        """exp(-score(X)): how many equally probable words would be as hard to guess.

        Args:
            X: (N, D) whole numbers, dense or sparse.
        """
        return float(np.exp(-self.score(X)))

    def _read(self, X: object, *, reset: bool) -> scipy.sparse.csr_array:
        """The counts as a sparse matrix.

        Raises:
            ValueError: counts that are negative, no whole numbers, or too many.
        """
        values = read_matrix(
            self, X, reset=reset, accept_sparse="csr", ensure_min_samples=1, dtype="numeric"
        )
        check_non_negative(values, f"{type(self).__name__} (X holds counts of words)")
        counts = scipy.sparse.csr_array(values)
        rounded = np.floor(counts.data)
        if (counts.data != rounded).any() or (counts.data > _MOST_COUNT).any():
            cells = counts.tocoo()
            worst = int(
                np.argmax((cells.data != np.floor(cells.data)) | (cells.data > _MOST_COUNT))
            )
            raise ValueError(
                f"X: {cells.data[worst]:g} at row {cells.row[worst]}, column {cells.col[worst]} is "
                "no count of words; pass whole numbers, as CountVectorizer makes them, and not "
                "shares or TF-IDF weights"
            )
        return counts.astype(np.int64)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        # whole numbers alone, which is what scikit-learn's own checks then bring
        tags.input_tags.categorical = True
        return tags
