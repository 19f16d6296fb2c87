"""Questions about all draws together: summaries, features, groups."""

from __future__ import annotations

from jaxmf.arguments import check_number, check_word
from jaxmf.diagnostics import Summary
from jaxmf.posterior import certain_features, cooccurrence, pointwise, tables
from jaxmf.posterior.alarms import Alarmed
from jaxmf.posterior.certain_features import CertainFeatures
from jaxmf.posterior.cooccurrence import Cooccurrence
from jaxmf.posterior.pointwise import LogLikelihood
from jaxmf.posterior.records import DrawFeatures, NumFeatures, NumGroups


class Summaries(Alarmed):
    """The part of `Posterior` that sums draws up."""

    def summary(self) -> Summary:
        """Mean, sd, 5 % and 95 % of quantities that do not depend on labels.

        For chains also R-hat and effective sample size. ``shared[i, j]`` is the number of features
        that the rows with ids i and j have in common, an entry of ZZ' (positions i and j where the
        data has no ids); `cooccurrence` has it of other rows.

        Returns:
            A table, which prints itself: `table["alpha", "mean"]` is one number of it.
        """
        return tables.summary(self)

    def log_likelihood(self, cells: object = None) -> LogLikelihood:
        """The log likelihood of every observed cell, or word, given every draw.

        What it is conditional on: everything that a draw has, the latent variables of the cell's
        row (its features, factors or groups) and column among it. These are parameters here as the
        hyperparameters are, so that leave-one-out by these numbers is about a cell of a row of
        which the other cells are known, and not about a new row. Of `BPMF`, `NoisyOrIBP`,
        `BinaryMF` of counts and `FeatureModel(likelihood=)` cells are independent given a draw, and
        the numbers sum to the log likelihood of the data. `LinearGaussianIBP` and `BinaryMF` of
        real values sum weights out of their draws: a cell's density is given the draw and all
        other cells. So it is of words and ratings of groups, whose token is taken out of the counts
        of its groups, which are known by their probabilities only (exact where they are clear). Of
        mixtures of rows it is of whole rows, each taken out of its group exactly; the run needs
        ``keep="assignments"``.
        Leave-one-out by importance sampling is right for all of these, WAIC for the first kind.

        Args:
            cells: observed cells, as in `predict`; by default all of them, in the order of the
                data. Of words and of whole rows all, always.
        Returns:
            `values` (chains, draws, M) float, with `rows` and `columns` (M,) int and their ids,
            `row_names` and `column_names`, where the data has ids.
        Raises:
            ValueError: a model whose draws do not say it (`PAM`, `HFP`), a
                variational fit, draws without factors, missing cells, or more than 2^27 numbers.
        Example:
            >>> import numpy as np, jaxmf as mf
            >>> X = np.random.default_rng(0).normal(size=(8, 3))
            >>> post = mf.fit(mf.LinearGaussianIBP(alpha=1.0), X, num_warmup=5, num_samples=5)
            >>> post.log_likelihood().values.shape
            (4, 5, 24)
        """
        return pointwise.log_likelihood(self, cells)

    def num_features(self) -> NumFeatures:
        """Posterior distribution of the number of features.

        Returns:
            values and probabilities, with `.mean` and `.mode`.
        """
        return tables.num_features(self)

    def num_groups(self, block: str | None = None) -> NumGroups:
        """Posterior distribution of the number of groups, such as topics, that have tokens.

        Args:
            block: the indicator that they are the values of; needed where several grow.
        Returns:
            values and probabilities, with `.mean` and `.mode`.
        Raises:
            ValueError: the model has no groups whose number is learned, or several and no name.
        """
        return tables.num_groups(self, block)

    def cooccurrence(
        self, rows: object = None, *, side: str = "row", measure: str | None = None
    ) -> Cooccurrence:
        """E[ZZ' | X]: the expected number of features that two rows share.

        Of a mixture sampled with ``keep="assignments"`` the probability that they are in one group.

        Args:
            rows: (R,) ids of rows, `mf.Positions(rows)`, or positions where the data has no ids;
                all by default.
            side: "column" for columns, and ids of such, of models with features of columns.
            measure: "expected", or "probability" that two rows share one feature or more.
        Returns:
            (R, R) numbers with the ids of the rows, an array for numpy; `.to_pandas()` has one
            line a pair, `.to_xarray()` the matrix with its ids.
        Raises:
            ValueError: a model without such features or groups; ids that the data lacks.
        """
        check_word("side", side, cooccurrence.SIDES)
        if measure is not None:
            check_word("measure", measure, cooccurrence.MEASURES)
        return cooccurrence.cooccurrence(self, rows, side=side, measure=measure)

    def features(self) -> DrawFeatures:
        """The features of the reference draw (highest log joint), most frequent first.

        Labels mean nothing across draws, so features are not averaged over draws; what the spread
        over draws is, `predict` and `cooccurrence` say.

        Returns:
            Posterior mean and sd of the features given that draw's Z, and how many rows have them.
        """
        return tables.features(self)

    def certain_features(self, min_probability: float = 0.5) -> CertainFeatures:
        """The features that draws of all chains agree on, with their rows and what they look like.

        Features of at most 100 draws, evenly spread over the chains, are matched by the rows that
        have them: a feature belongs to a cluster where their rows overlap by half or more (Jaccard
        index). So one answer speaks of all chains, where `features` is of one draw.

        Args:
            min_probability: the share of draws that must have a feature for it to be listed.
        Returns:
            Probabilities of features, over all draws and by chain; of every row to have each; mean
            and sd of what they look like; how many others a draw has, and how many of those are of
            one row alone. It prints itself; `to_pandas`, `members` and `values` are tables.
        Raises:
            ValueError: the model has no features, or min_probability is not between 0 and 1.
        """
        check_number("min_probability", min_probability, above=0)
        if min_probability > 1:
            raise ValueError(f"min_probability must be at most 1, got {min_probability}")
        return certain_features.certain_features(self, float(min_probability))

    def facts(self) -> dict[str, str]:
        """The facts of the run by name, for tables."""
        return tables.facts(self)
