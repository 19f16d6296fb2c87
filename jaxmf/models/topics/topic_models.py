"""Topic models: every word of a document has a topic, the topics are shared by all documents.

Each is a few blocks over tokens with the columns document and word:

    DirichletCompoundMultinomial   word by document
    LDA                            topic by document (Dirichlet), word by topic
    HDPLDA                         topic by document (HDP), word by topic
    PAM                            level 1 by document, level 2 by document and level 1, ...,
                                   word by the last level

Source: Porteous (2010), section 2; Blei, Ng & Jordan (2003) for LDA; Teh et al. (2006) for the HDP;
Li & McCallum (2006), Pachinko allocation, for PAM.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from jaxmf.arguments import assign, check_count
from jaxmf.blocks import Block, Network
from jaxmf.blocks.folding import fold_in
from jaxmf.blocks.left_to_right import log_probability
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.prediction import Draw, category_probabilities, predict_categories
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.priors import hyper
from jaxmf.priors.hdp import HDP
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.occurring import OccurringWords
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import Dirichlet
from jaxmf.types import STATIC, Array, Key

_SHORT_DOCUMENT = 4
"""Mean number of words of a document below which they hardly say how alike topics are."""


def words_by_default() -> Hyperparameter:
    """The prior of the concentration of words of a vocabulary from elsewhere."""
    import numpyro.distributions as dist

    return dist.Gamma(1.0, 10.0)


def word_counts(data: Tokens) -> np.ndarray:
    """How often each word stands in all documents: (V,) int, on the host."""
    if data.elsewhere is not None:
        return np.asarray(data.elsewhere.column_counts)
    return np.bincount(np.asarray(data.columns["word"]), minlength=data.sizes["word"])


def document_lengths(data: Tokens) -> np.ndarray:
    """How many words each document has: (D,) int, on the host."""
    if data.elsewhere is not None:
        return np.asarray(data.elsewhere.row_counts)
    return np.bincount(np.asarray(data.columns["document"]), minlength=data.sizes["document"])


class WordModel(NetworkModel[Tokens]):
    """Words by an indicator.

    Attributes:
        last: the indicator that the words hang on.
    """

    last = "topic"
    word_concentration: Hyperparameter

    def check_words(self) -> None:
        """The default concentration of words; refuses one that is none, by the name it has here."""
        if self.word_concentration is None:
            assign(self, word_concentration=words_by_default())
        hyper.validate_concentrations(self.word_concentration, None, "word_concentration")

    def words_by(self, by: str) -> Block:
        """The block of the words."""
        concentration = self.word_concentration
        if concentration is None:
            concentration = words_by_default()
        return Block(DirichletMultinomial(concentration=concentration), by, observed=True)

    def tokens(self, data: Tokens) -> Tokens:
        return data

    def entries(self, draw: Draw, data: Tokens) -> Array:
        """E[phi]: the probabilities of the words in every topic, (K, V) float."""
        network, _ = self.over(data)
        return category_probabilities(network, draw, "word")

    def shown_columns(self) -> tuple[str, ...]:
        """Distributions whose heaviest entries a report shows."""
        return ("word",)

    def shares(self, draw: Draw, data: Tokens) -> Array:
        return draw["word_totals"].astype(float)


class _TopicModel(WordModel):
    """Words by an indicator of documents, of which new ones can be folded in."""

    takes_process_rows = "sample"

    def fold(self, key: Key, draw: Draw, data: Tokens, new: Tokens) -> dict[str, Array]:
        network, _ = self.over(data)
        return fold_in(network, key, draw, new, "document")

    def transform_tokens(self, key: Key, draw: Draw, data: Tokens, new: Tokens) -> Array:
        folded = self.fold(key, draw, data, new)
        shares = folded[self.network().indicators[0]]
        for name in self.network().indicators[1:]:
            shares = (shares[:, None, :] @ folded[name])[:, 0]
        return shares

    def word_probabilities(
        self, draw: Draw, data: Tokens, new: Tokens, folded: dict[str, Array]
    ) -> Array:
        probabilities = self.next_words(draw, data, new.columns["document"], folded)
        return probabilities[jax.numpy.arange(probabilities.shape[0]), new.columns["word"]]

    def next_words(
        self, draw: Draw, data: Tokens, documents: Array, folded: dict[str, Array]
    ) -> Array:
        network, _ = self.over(data)
        return predict_categories(network, draw, "word", data, {"document": documents}, folded)

    def log_probability_of_documents(
        self,
        key: Key,
        draw: Draw,
        data: Tokens,
        words: Array,
        lengths: Array,
        *,
        documents: Array,
        num_particles: int,
    ) -> Array:
        """log p(words | draw) of documents: (M,) float; see `jaxmf.blocks.left_to_right`."""
        network, _ = self.over(data)
        return log_probability(
            network, key, draw, words, lengths, documents=documents, num_particles=num_particles
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DirichletCompoundMultinomial(NetworkModel[Tokens]):
    """Words of documents with probabilities of each document's own: no indicator at all.

    Args:
        word_concentration: of each word; a number, or a numpyro distribution.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> DirichletCompoundMultinomial(0.1).network().indicators
        ()
    """

    word_concentration: Hyperparameter = 0.1

    def __post_init__(self) -> None:
        hyper.validate_concentrations(self.word_concentration, None, "word_concentration")
        DirichletMultinomial(concentration=self.word_concentration)

    def network(self) -> Network:
        words = DirichletMultinomial(concentration=self.word_concentration)
        return Network(word=Block(words, by="document", observed=True))

    def tokens(self, data: Tokens) -> Tokens:
        return data


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LDA(_TopicModel):
    """Latent Dirichlet allocation: a fixed number of topics.

    theta_d ~ Dirichlet(a), phi_k ~ Dirichlet(b); a word has a topic k ~ theta_d and is w ~ phi_k.

    Args:
        num_topics: K.
        topic_concentration: a, that of each topic (total K a); a number or K numbers, or a numpyro
            distribution of one number for all topics, or a batch of K to learn which topics are
            common: `Gamma(1, 1).expand([K])`.
        word_concentration: b, that of each word; likewise. Learned by default, with the prior
            Gamma(1, 10). For documents of less than four words on average (empty ones not counted),
            in which every word of the vocabulary occurs and most of them once, the prior is
            conditional on every word occurring: `OccurringWords`.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> LDA(num_topics=50).network().children("topic")
        ('word',)
    """

    num_topics: int = field(metadata=STATIC)
    topic_concentration: Hyperparameter = 0.1
    word_concentration: Hyperparameter = None

    def __post_init__(self) -> None:
        check_count("num_topics", self.num_topics)
        hyper.validate_concentrations(
            self.topic_concentration, self.num_topics, "topic_concentration"
        )
        if self.word_concentration is not None:
            self.check_words()
        self.network()

    def matched(self, data: Tokens) -> LDA:
        """The model with the prior of words for this vocabulary, see the class."""
        is_open = self.word_concentration is None and {"document", "word"} <= data.columns.keys()
        if not is_open or isinstance(data.columns["word"], jax.core.Tracer):
            return self
        counts = word_counts(data)
        is_short = counts.sum() < _SHORT_DOCUMENT * np.sum(document_lengths(data) > 0)
        if not (is_short and counts.all() and np.mean(counts == 1) > 0.5):
            return replace(self, word_concentration=words_by_default())
        prior = OccurringWords(counts.size, int(counts.sum()), self.num_topics)
        return replace(self, word_concentration=prior)

    def network(self) -> Network:
        prior = Dirichlet(self.num_topics, self.topic_concentration)
        return Network(topic=Block(prior, by="document"), word=self.words_by("topic"))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HDPLDA(_TopicModel):
    """Topics, as many as the documents need: a hierarchical Dirichlet process over words.

    Args:
        topic_concentration: alpha of a document around the shared weights of the topics; a number
            or a numpyro distribution, by default Gamma(1, 1).
        base_concentration: gamma of the shared weights; likewise.
        word_concentration: of each word; a number, or a numpyro distribution, by default
            Gamma(1, 10). The number of topics depends on it: if topics have more words than a fixed
            concentration expects, each is split into several, see the page of topic models.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> HDPLDA().network().blocks["topic"].distribution.grows
        True
    """

    topic_concentration: Hyperparameter = None
    base_concentration: Hyperparameter = None
    word_concentration: Hyperparameter = None

    def __post_init__(self) -> None:
        for name in ("topic_concentration", "base_concentration"):
            if getattr(self, name) is not None:
                hyper.validate(name, getattr(self, name))
        self.check_words()
        prior = self.network().distributions["topic"]
        assign(
            self,
            topic_concentration=prior.concentration,
            base_concentration=prior.base_concentration,
        )

    def network(self) -> Network:
        prior = HDP(self.topic_concentration, self.base_concentration)
        return Network(topic=Block(prior, by="document"), word=self.words_by("topic"))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PAM(_TopicModel):
    """Pachinko allocation: a path of topics for every word, from general to special.

    The first level is drawn from a distribution of the document, each further one from a
    distribution of that document and the topic before; the last level has the words.
    Paths are drawn jointly.

    Args:
        num_topics: the numbers of topics of the levels, such as (10, 50).
        level_concentration: of each topic of a level, in a document; a number or a numpyro
            distribution for all levels, or a tuple with one for each level, the first one first: a
            number, as many numbers as the level has topics, or a distribution (also a batch,
            `Gamma(1, 1).expand([K])`).
        word_concentration: of each word; likewise.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> PAM((2, 5)).network().indicators
        ('level_1', 'level_2')
    """

    num_topics: tuple[int, ...] = field(metadata=STATIC)
    level_concentration: Hyperparameter | tuple[Hyperparameter, ...] = 0.1
    word_concentration: Hyperparameter = 0.01

    def __post_init__(self) -> None:
        sizes: Any = self.num_topics
        if not isinstance(sizes, tuple | list) or not sizes:
            raise TypeError(f"num_topics must be several numbers, such as (10, 50), got {sizes!r}")
        for size in sizes:
            check_count("num_topics", size)
        assign(self, num_topics=tuple(sizes))
        if isinstance(self.level_concentration, list):
            assign(self, level_concentration=tuple(self.level_concentration))
        for level, concentration in enumerate(self._concentrations()):
            name = "level_concentration"
            if isinstance(self.level_concentration, tuple):
                name = f"{name}[{level}]"
            hyper.validate_concentrations(concentration, sizes[level], name)
        self.check_words()
        self.network()

    @property
    def last(self) -> str:  # type: ignore[override]
        """The level that the words hang on."""
        return f"level_{len(self.num_topics)}"

    @property
    def joint(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]
        """The path of a word."""
        return (tuple(f"level_{position + 1}" for position in range(len(self.num_topics))),)

    def _concentrations(self) -> tuple[Hyperparameter, ...]:
        """One for each level."""
        concentrations, num_levels = self.level_concentration, len(self.num_topics)
        if not isinstance(concentrations, tuple):
            return (concentrations,) * num_levels
        if len(concentrations) != num_levels:
            raise ValueError(
                f"level_concentration: has {len(concentrations)} entries for {num_levels} levels; "
                "pass one for each level, or a single one for all"
            )
        return concentrations

    def network(self) -> Network:
        blocks: dict[str, Block] = {}
        above: tuple[str, ...] = ()
        for position, size in enumerate(self.num_topics):
            prior: PartitionPrior = Dirichlet(size, self._concentrations()[position])
            name = f"level_{position + 1}"
            blocks[name] = Block(prior, by=("document", *above))
            above = (name,)
        return Network(blocks, word=self.words_by(self.last))
