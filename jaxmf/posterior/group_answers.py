"""Questions about groups: topics, groups of rows and columns, words of new documents."""

from __future__ import annotations

import dataclasses

from jaxmf.arguments import check_count, check_number, check_seed
from jaxmf.data import Tokens, as_container
from jaxmf.diagnostics import HeldOutScore
from jaxmf.model import CompletesDocuments, HasSideGroups, ScoresDocuments
from jaxmf.posterior import biclusters, factors, left_to_right, row_groups, side_groups, topics
from jaxmf.posterior import cells as cell_questions
from jaxmf.posterior.biclusters import Biclusters
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.factors import Factors
from jaxmf.posterior.left_to_right import DocumentScore
from jaxmf.posterior.row_groups import RowGroups
from jaxmf.posterior.side_groups import GroupWeights
from jaxmf.posterior.topics import TopEntries


class GroupAnswers(Draws):
    """The part of `Posterior` that shows groups of tokens, rows and columns."""

    def top_entries(self, column: str, n: int = 10, *, titles: object = None) -> TopEntries:
        """The heaviest entries of every group of the reference draw (highest log joint).

        Args:
            column: an observed column of categories, such as "word": the most probable values of
                every topic; or a column that indicators are partitioned by, such as "item": the
                levels with the most tokens in every group. Of a matrix with groups of rows and of
                columns "row" or "column": the members of every group with the most cells.
            n: entries a group, at most: those that it has a token of.
            titles: of rows or columns, shown instead of their ids: id -> title (a Series
                is read by its index), or one for each in the order of the data.
        Returns:
            Groups by size, with their entries; `.to_pandas()` is the table.
        Raises:
            ValueError: the model has no groups, or the network lacks the column.
        """
        check_count("n", n)
        if isinstance(self.model, HasSideGroups):
            return side_groups.members(self, column, n, titles)
        if titles is not None:
            raise ValueError("titles: are of rows and columns; names of tokens are Tokens(names=)")
        return topics.top_entries(self, column, n)

    def groups(self) -> RowGroups:
        """The groups of rows of a mixture in the reference draw (highest log joint).

        Labels mean nothing across draws, so groups are not averaged over draws. `num_groups` has
        the distribution of their number, `cooccurrence` the probability that two rows are in one.

        Returns:
            The largest group first: its rows, its probability, the mean of every column with their
            standard deviations. It prints itself; `.to_pandas()` is the table. After
            ``sample(keep="assignments")`` also `.labels` (N,) and `.members()`.
        Raises:
            ValueError: the model has no groups of rows, or the draws are scalars.
        Example:
            >>> import jaxmf as mf
            >>> x = [[0.0], [0.1], [0.2], [9.0], [9.1]]
            >>> post = mf.sample(mf.MixtureOfGaussians(2), x, num_samples=20, progress=False)
            >>> post.groups().counts.tolist()
            [3, 2]
        """
        return row_groups.groups(self)

    def factors(self) -> Factors:
        """The real factors of rows and columns, the largest first, with columns at their ends.

        Returns:
            Sizes, and values of rows and columns with their standard deviations over draws, the
            factors of which are turned to those of the reference draw (highest log joint). It
            prints itself; `.to_pandas()` is the table.
        Raises:
            ValueError: the model has no real factors, or the draws were made without them.
        """
        return factors.factors(self)

    def biclusters(self, *, num_sd: float = 2.0, seed: int = 0) -> Biclusters:
        """Rows and columns that belong together: blocks whose weight is beyond its uncertainty.

        A bicluster is a row feature and a column feature of the reference draw (highest log joint)
        whose weight is more than `num_sd` standard deviations from zero. Biases are left out.
        Features of other draws have other labels: the feature of a draw whose rows overlap most
        with those of one is taken for the same where they share half of the rows that either has.
        The probability that a row belongs to a feature is how often it has that one, and `found`
        in how many draws both features, of rows and of columns, are.

        Args:
            num_sd: how many standard deviations, given the features, a weight is away from zero; 0
                or more.
            seed: of the draws that these are estimated from where cells are not Gaussian.
        Returns:
            The surest bicluster first: its rows and columns with their probabilities, mean and sd
            of its weight, and in how many draws it is found. It prints itself; `.to_pandas()` is a
            table with one line a bicluster, `.members()` one with a line for each of its rows and
            columns.
        Raises:
            ValueError: the model has no weights between features of rows and of columns.
        """
        check_number("num_sd", num_sd, least=0)
        check_seed("seed", seed)
        return biclusters.biclusters(self, num_sd, seed)

    def preferences(self, side: str = "row", n: int = 10, *, titles: object = None) -> TopEntries:
        """What each group of rows of the reference draw likes best: its mean against all columns.

        Args:
            side: "row", or "column" for what groups of columns are liked by.
            n: entries a group.
            titles: of the entries, as of `top_entries`.
        Returns:
            Groups by size; weights are expected values (Porteous, section 6.2.7).
        Raises:
            ValueError: the model has no groups of that side.
        """
        check_count("n", n)
        cell_questions.check_draws(self)
        return side_groups.preferences(self, side, n, titles)

    def group_weights(self, side: str = "row") -> GroupWeights:
        """How probable each group of the reference draw is for one more row of every class.

        Args:
            side: "row", or "column" for groups and classes of columns.
        Returns:
            Weights of the groups in use, the largest group first; what is missing to one is the
            weight of a new group.
        Raises:
            ValueError: the model has no groups of that side.
        """
        return side_groups.weights(self, side)

    def document_completion(
        self, new_documents: object, *, unknown: str = "error", num_draws: int = 10, seed: int = 0
    ) -> HeldOutScore:
        """Log predictive probability of held-out words of new documents, and so the perplexity.

        Half of the words of every document (one more where their number is odd) say what it is
        about, the others are scored: p(w) is averaged over draws before the log is taken.

        Args:
            new_documents: tokens or counts; words are matched by id where both sides have ids,
                and need not be all that there are.
            unknown: of words that the data lacks: "error", or "drop" to leave them out.
            num_draws: posterior draws used, evenly spread.
            seed: of the halves, and of the sampling of the documents' topics.
        Returns:
            The log probability of each scored word, their mean (the perplexity is exp(-mean)), and
            its standard error; `num_dropped` tokens were left out.
        Warns:
            UserWarning: more than half of the tokens are left out, or all those of a document.
        Raises:
            ValueError: the model has no words of documents, or no document has two words.
        """
        check_count("num_draws", num_draws)
        check_seed("seed", seed)
        if not isinstance(self.model, CompletesDocuments):
            raise ValueError(f"{type(self.model).__name__} is no model of words of documents")
        tokens = as_container(new_documents, Tokens, "new_documents")
        new = self.container(tokens, "new_documents", unknown=unknown)
        score = topics.document_completion(self, new, num_draws=num_draws, seed=seed)
        return score._replace(num_dropped=tokens.num_tokens - new.num_tokens)

    def document_log_likelihood(
        self,
        new_documents: object,
        *,
        unknown: str = "error",
        num_draws: int = 10,
        num_particles: int = 20,
        seed: int = 0,
    ) -> DocumentScore:
        """Log probability of whole new documents, by particles from left to right.

        Nothing of a document is used up to find its topics, as `document_completion` does: the
        probability of each word given those before it, topics summed out, is estimated and
        multiplied up (Wallach, Murray, Salakhutdinov & Mimno 2009), without bias for any number of
        particles, and p(document) is averaged over draws. The probabilities of words in topics are
        their means in each draw. Time grows with words, draws, particles and topics.

        Args:
            new_documents: tokens or counts, as `document_completion` takes them.
            unknown: of words that the data lacks: "error", or "drop" to leave them out.
            num_draws: posterior draws used, evenly spread.
            num_particles: of each document in each draw; more of them for long documents.
            seed: of the particles.
        Returns:
            The log probability of each document with its Monte Carlo error over draws, their mean
            by word (the perplexity is exp(-mean)) with its standard error over documents;
            `.to_pandas()` is the table.
        Warns:
            UserWarning: more than half of the tokens are left out, or all those of a document.
        Raises:
            ValueError: the model has no words of documents, or none of the documents has a word.
        """
        check_count("num_draws", num_draws)
        check_count("num_particles", num_particles)
        check_seed("seed", seed)
        if not isinstance(self.model, ScoresDocuments):
            raise ValueError(
                f"{type(self.model).__name__} knows no probability of whole documents; LDA, "
                "HDPLDA and PAM do"
            )
        tokens = as_container(new_documents, Tokens, "new_documents")
        new = self.container(tokens, "new_documents", unknown=unknown)
        score = left_to_right.document_log_likelihood(
            self, new, num_draws=num_draws, num_particles=num_particles, seed=seed
        )
        return dataclasses.replace(score, num_dropped=tokens.num_tokens - new.num_tokens)
