"""Topics of documents whose words sit at tables: hierarchical flexible priors.

Source: Porteous (2010), section 7.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.arguments import assign
from jaxmf.blocks import Block, Network
from jaxmf.blocks.franchise import topics_of_new_documents, word_probabilities
from jaxmf.blocks.prediction import Draw
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.unobserved import num_hidden
from jaxmf.data import Tokens
from jaxmf.data.names import ids_or_positions
from jaxmf.models.topics.topic_models import WordModel
from jaxmf.priors.flexible import FlexiblePrior, check_flexible
from jaxmf.priors.hyper import Hyperparameter, is_placeholder
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import DirichletProcess
from jaxmf.types import Array, Key


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HFP(WordModel):
    """Hierarchical flexible priors: the words of a document at tables, the tables with topics.

    Z_d ~ FP(lambda_d), the words of document d at tables; R ~ FP_0, all tables in groups, the
    topics; phi_k ~ Dirichlet(b); a word of a table with topic k is w ~ phi_k. With the weights of a
    Dirichlet process at both levels this is the HDP, as a franchise of restaurants.

    Words move from table to table, tables with all their words from topic to topic. Where the topic
    prior is flexible each word has a representative: those of empty tables have topics too, which
    the sampler keeps (Figure 7.4). A Dirichlet process needs none, as its distribution for fewer
    tables is that of more with some left out.

    Args:
        table_prior: `FlexiblePrior` of the tables of a document; it covers the longest one. Words
            of a document that are held out are its `num_unobserved`.
        topic_prior: of all tables: `DirichletProcess`, by default with a concentration of
            Gamma(1, 1), `PitmanYor`, or a `FlexiblePrior` that covers all words.
        word_concentration: b, of each word; a number, or a numpyro distribution.
    Raises:
        TypeError, ValueError: a setting of a wrong type or out of range.
    Example:
        >>> HFP(FlexiblePrior.parametric(-2.0, 1.0, 0.5, num_items=100)).network().indicators
        ('table', 'topic')
    """

    table_prior: FlexiblePrior
    topic_prior: PartitionPrior | None = None
    word_concentration: Hyperparameter = 0.01

    def __post_init__(self) -> None:
        check_flexible("table_prior", self.table_prior)
        if self.topic_prior is None:
            assign(self, topic_prior=DirichletProcess())
        self.check_words()
        if isinstance(self.topic_prior, PartitionPrior):
            self.network()
        elif not is_placeholder(self.topic_prior):
            raise TypeError(
                "topic_prior must be a prior of partitions such as DirichletProcess or "
                f"FlexiblePrior, got {self.topic_prior!r}"
            )

    def network(self) -> Network:
        return Network(
            table=Block(self.table_prior, by="document"),
            topic=Block(self.topic_prior, per=("document", "table")),
            word=self.words_by("topic"),
        )

    def check_documents(self, new: Tokens, name: str) -> None:
        """Refuses new documents whose words and one more are more than the prior of tables covers.

        Raises:
            ValueError: naming the longest one.
        """
        documents = np.asarray(new.columns["document"])
        lengths = np.bincount(documents, minlength=new.sizes["document"])
        if lengths.max() >= self.table_prior.num_items:
            longest = int(np.argmax(lengths))
            shown = ids_or_positions(new.names.get("document"), new.sizes["document"])[longest]
            raise ValueError(
                f"{name}: the document {shown!r} has {lengths[longest]} words, and table_prior "
                f"covers {self.table_prior.num_items}, where its words and one more are needed; "
                f"give it {lengths[longest] + 1} weights"
            )

    def fold(self, key: Key, draw: Draw, data: Tokens, new: Tokens) -> dict[str, Array]:
        """The topic of one more word of new documents, (M, K) float; see `blocks.franchise`.

        They have their words and that one; `num_unobserved` is of the training data.
        """
        network, _ = self.over(data)
        return {"topic": topics_of_new_documents(network, key, draw, new)}

    def transform_tokens(self, key: Key, draw: Draw, data: Tokens, new: Tokens) -> Array:
        return self.fold(key, draw, data, new)["topic"]

    def word_probabilities(
        self, draw: Draw, data: Tokens, new: Tokens, folded: dict[str, Array]
    ) -> Array:
        words = self.entries(draw, data)[:, new.columns["word"]].T
        return jnp.sum(folded["topic"][new.columns["document"]] * words, axis=1)

    def held_out_probabilities(
        self, state: NetworkState, data: Tokens, documents: Array, words: Array
    ) -> Array:
        """p(word | everything else) of words that were held out: (M,) float.

        Each is one of the `num_unobserved` words of its document; see `jaxmf.blocks.franchise`.

        Args: documents, words (M,) int32.

        Raises:
            ValueError: a document without such words.
        """
        network, tokens = self.over(data)
        if not isinstance(documents, jax.core.Tracer):
            _check_held_out(num_hidden(network, "table", data.sizes["document"]), documents)
        return word_probabilities(network, state, tokens, jnp.asarray(documents), words)


def _check_held_out(num_held_out: np.ndarray, documents: Array) -> None:
    """Refuses documents without words that are held out, given how many each has, (G,) int."""
    positions = np.asarray(documents)
    without = positions[num_held_out[positions] == 0]
    if without.size:
        raise ValueError(
            f"documents: {without[0]} has no words that are held out; count them in the "
            "num_unobserved of table_prior"
        )
