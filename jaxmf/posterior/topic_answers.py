"""Questions about topics: their words, the documents, coherence."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from jaxmf.arguments import check_count, check_number
from jaxmf.posterior import (
    coherence,
    document_topics,
    tables,
    topic_draws,
    topic_table,
    topics_over,
)
from jaxmf.posterior.coherence import Coherence
from jaxmf.posterior.document_topics import DocumentTopics, SimilarDocuments
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import NumTopics
from jaxmf.posterior.topic_draws import MatchedTopics
from jaxmf.posterior.topic_table import Topics
from jaxmf.posterior.topics_over import TopicsOver


class TopicAnswers(Draws):
    """The part of `Posterior` that shows topics.

    Answers are averaged over up to 100 draws of all chains, with the topics of every draw matched
    to those of the reference draw (highest log joint); see `jaxmf.posterior.topic_draws`.
    """

    @cached_property
    def _matched_topics(self) -> MatchedTopics:
        return topic_draws.match(self)

    def topics(self, n: int = 10, *, relevance: float = 0.6) -> Topics:
        """The topics with their words, averaged over draws and chains.

        Topics of different draws are matched by their words with those of the reference draw
        (highest log joint): one to one, with the largest sum of similarities. `found` is the part
        of the draws that have a topic (a match of at least 0.5), `similarity` how alike its matches
        are, `nearest` how alike the most similar other topic is.

        Args:
            n: words a topic, at most: those that it has a token of.
            relevance: lambda of Sievert & Shirley (2014): 1 ranks relevant words by probability,
                0 by probability over frequency in the data.
        Returns:
            Topics in the order of their size in the reference draw, with words by probability,
            relevance and exclusivity. It prints itself; `.to_pandas()` is the table,
            `.word_table()` the probabilities of all words.
        Raises:
            ValueError: the model has no topics, or the draws are scalars.
        Example:
            >>> import jaxmf as mf
            >>> texts = 3 * [["tea", "milk", "tea"], ["king", "queen", "king"]]
            >>> model = mf.LDA(2, topic_concentration=0.1, word_concentration=0.1)
            >>> post = mf.sample(model, mf.Tokens.from_lists(texts), num_samples=20, progress=False)
            >>> sorted(post.topics(n=1).lists())
            [['king'], ['tea']]
        """
        check_count("n", n)
        relevance = check_number("relevance", relevance, least=0, most=1)
        return topic_table.topics(self, self._matched_topics, n=n, relevance=relevance)

    def document_topics(self, documents: object = None) -> DocumentTopics:
        """The proportions of the topics in every document of the data, or in some of them.

        Topics as in `topics`. The proportions theta_d are what the topics of the tokens are drawn
        from; given a draw they have a Dirichlet distribution, with mean (n_dk + a_k) / (n_d + a),
        n_dk the tokens of a topic and a_k what the prior adds, with the hyperparameters of the draw
        (`LDA`: the concentrations, `HDPLDA`: topic_concentration times the weight of a topic,
        `PAM`: products of such proportions along the levels). The standard deviations have the
        variance within a draw and that between draws. `transform` has the means for new documents.

        The prior of an `HFP` has no proportions: its answer is of the parts of a document's tokens
        (`is_of_tokens` says so), whose standard deviations are too small for proportions.

        Args:
            documents: ids of documents (positions where the data has none), or `Positions`; all by
                default.
        Returns:
            Means and standard deviations by document; `.to_pandas()` is a table with the ids of the
            documents, `.table()` one line for each document and topic.
        Raises:
            ValueError: the model has no topics, or the draws are scalars; an unknown document.
            MemoryError: the answer for all these documents does not fit.
        """
        return document_topics.document_topics(self, self._matched_topics, documents)

    def topics_over(self, values: object, *, num_bins: int = 10) -> TopicsOver:
        """What part of the documents is of which topic over time, or another number they have.

        The parts of their tokens, averaged over the documents of a bin in every draw.

        Args:
            values: a number or date of every document, such as its year: a mapping or pandas Series
                by id of the document, or a list in their order. Documents with NaN or NaT are
                left out.
            num_bins: bins of equal width; one for each value where there are no more values.
        Returns:
            Means with posterior standard deviations by bin; `.to_pandas()` is the table.
        Raises:
            TypeError: a value that is no number, and dates beside other values.
            ValueError: a document without a value, all of them missing; the model has no topics.
        """
        check_count("num_bins", num_bins)
        return topics_over.topics_over(self, self._matched_topics, values, num_bins)

    def similar_documents(self, document: object, n: int = 10) -> SimilarDocuments:
        """The documents of the data whose topics are most like those of one of them.

        By the parts of their tokens, compared draw by draw, so that labels of topics do not matter.

        Args:
            document: its id, or its position where the data has no ids.
            n: how many.
        Returns:
            Documents with their similarity (0 to 1) and its standard deviation.
        Raises:
            ValueError: an unknown document or one without tokens; the model has no topics.
        """
        check_count("n", n)
        return document_topics.similar_documents(self, document, n)

    def num_topics(self) -> NumTopics:
        """Posterior distribution of the number of topics that have tokens.

        Returns:
            values and probabilities, with `.mean` and `.mode`.
        Raises:
            ValueError: the model has no topics.
        """
        blocks = topic_draws.topic_blocks(self)
        return NumTopics(*tables.num_used(self, f"{blocks.word}_totals"))

    def topic_coherence(
        self,
        measure: str = "npmi",
        *,
        n: int = 10,
        reference: object = None,
        window: int | None = None,
    ) -> Coherence:
        """How often the most probable words of each topic are together in documents.

        Args:
            measure: "npmi", the mean normalised pointwise mutual information of pairs, "c_v", the
                mean cosine of each word's vector of it with that of all words (Roeder, Both &
                Hinneburg 2015), or "u_mass", the mean log of the part of the documents with the
                more probable word of a pair that have the other too, one document added to the
                latter (Mimno and others 2011).
            n: words a topic.
            reference: the corpus that counts: `Tokens`, or lists of words (of a mapping its
                values); the documents of the data by default. Words that it lacks are left out.
            window: of lists of words in their order: pairs count in windows of this many words. The
                paper takes 10 for NPMI and 110 for C_v. Whole documents by default.
        Returns:
            A value for each topic, in the order of `topics`, and their mean.
        Raises:
            ValueError: another measure, a window without lists, a reference with none of the words
                of the topics; the model has no topics.
            TypeError: the reference is no corpus, or a document of it no list of words.
        """
        check_count("n", n, 2)
        if window is not None:
            check_count("window", window, 2)
        best = self._best_words(n)
        return coherence.coherence(self, best, measure=measure, reference=reference, window=window)

    def topic_diversity(self, n: int = 25) -> float:
        """The part of different words among the n most probable ones of all topics.

        1 where no word is shared, 1/K where all K topics have the same words (Dieng, Ruiz & Blei
        2020).

        Args:
            n: words a topic.
        Raises:
            ValueError: the model has no topics.
        """
        check_count("n", n)
        return coherence.diversity(self._best_words(n))

    def _best_words(self, n: int) -> np.ndarray:
        """(G, n) positions of the most probable words of every topic, -1 where it has fewer."""
        from jaxmf.posterior.topic_table import best_words

        phi, has_word = self._matched_topics.word_probabilities, self._matched_topics.has_word
        best, is_entry = best_words(lambda topic, words: phi[topic, words], has_word, n)
        return np.where(is_entry, best, -1)
