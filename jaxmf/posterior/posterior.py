"""The posterior: draws, and the questions they answer."""

from __future__ import annotations

import dataclasses
import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxmf import diagnostics, registry
from jaxmf.arguments import check_count, check_flag, check_number, check_seed
from jaxmf.diagnostics import HeldOutScore, Summary
from jaxmf.model import CompletesDocuments, KnowsTime, TransformsDocuments, TransformsRows
from jaxmf.posterior import alarms, leave_one_out, tables, transposed
from jaxmf.posterior import cells as cell_questions
from jaxmf.posterior.alarms import Alarm
from jaxmf.posterior.leave_one_out import Comparison
from jaxmf.posterior.prediction import Prediction
from jaxmf.posterior.records import Evidence, Features, Meta, NumFeatures, NumGroups
from jaxmf.programs import jit

if TYPE_CHECKING:
    from jaxmf.engine import Run
    from jaxmf.plot import Plots
    from jaxmf.posterior.ranking import Recommendations, Scores
    from jaxmf.posterior.row_groups import RowGroups
    from jaxmf.posterior.side_groups import GroupWeights
    from jaxmf.posterior.topics import TopEntries


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws of a posterior, with the model and the data they belong to.

    Made by `jaxmf.fit`, `sample`, `particle_filter` and `load`. Labels of features mean nothing
    across draws, so `summary`, `predict`, `cooccurrence` and `num_features` average over all draws,
    while `features` and `transform` speak of one draw: the reference draw, the one with the highest
    log joint.

    Args:
        model: the description.
        data: the container.
        draws: name -> (chains, draws, ...) array; a filter's are (runs, particles, ...).
        meta: the facts of the run.
        run: the finished run with its last state, from which it can go on.
        averages: name -> (chains, ...) running means, where asked for.
        particle_log_weights: (runs, particles) of a filter, comparable across runs.
        evidence: of a filter.
        trace: name -> (chains, steps) scalars of every step of a filter, for pictures.
        predicted_at: "rows" and "columns" of the cells named by predict_at, (M,) int each, if any.
    """

    model: Any
    data: Any
    draws: dict[str, np.ndarray]
    meta: Meta
    run: Run | None = None
    averages: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    particle_log_weights: np.ndarray | None = None
    evidence: Evidence | None = None
    trace: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    predicted_at: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    # --- shape and weights -----------------------------------------------------------------------

    @property
    def num_chains(self) -> int:
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def num_draws(self) -> int:
        """Draws a chain, or particles a run."""
        return int(next(iter(self.draws.values())).shape[1])

    @property
    def is_weighted(self) -> bool:
        return self.particle_log_weights is not None

    @property
    def is_variational(self) -> bool:
        """Whether the one draw holds the parameters of a fitted law."""
        return self.meta.method == "variational"

    @property
    def weights(self) -> np.ndarray:
        """(chains, draws) probabilities that sum to one; equal ones unless it is a filter's.

        Raises:
            ValueError: the run ended in its warm-up and kept no draw. So do all questions whose
                answer needs one.
        """
        self.require_draws()
        if self.particle_log_weights is None:
            return np.full(
                (self.num_chains, self.num_draws), 1 / (self.num_chains * self.num_draws)
            )
        return diagnostics.normalise(self.particle_log_weights)

    @property
    def log_weights(self) -> np.ndarray:
        """(runs, particles) log weights of a filter; those of several runs include the evidence."""
        if self.particle_log_weights is None:
            raise ValueError(
                f"draws of {self.meta.method} are equally weighted and have no log_weights; "
                "jaxmf.particle_filter gives weighted particles"
            )
        return self.particle_log_weights

    @property
    def log_evidence(self) -> float:
        """Estimate of log p(X), the log of an unbiased estimate of p(X).

        Where scales or an offset were left open, their priors are taken from the data (empirical
        Bayes): this is then no evidence of a model that was fixed before, and is compared with that
        of another model only where the settings are the same. Fix them to compare models.
        """
        return self._evidence().value

    @property
    def log_evidence_error(self) -> float:
        """Standard error of `log_evidence`."""
        return self._evidence().standard_error

    def _evidence(self) -> Evidence:
        if self.evidence is None:
            raise ValueError(
                f"a posterior from {self.meta.method} has no log evidence; "
                "jaxmf.particle_filter(model, data) estimates it"
            )
        return self.evidence

    def flat_draws(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All draws on one axis, (S, ...), and their weights (S,); weightless ones left out."""
        weights = self.weights.ravel()
        flat = {name: x.reshape(weights.size, *x.shape[2:]) for name, x in self.draws.items()}
        kept = np.flatnonzero(weights)
        if kept.size == weights.size:
            return flat, weights
        return {name: x[kept] for name, x in flat.items()}, weights[kept]

    def reference(self) -> tuple[int, int]:
        """(chain, draw) of the reference draw: the one with the highest log joint.

        Of a filter that keeps no log joint, the heaviest particle.
        """
        self.require_draws()
        score = self.draws.get("log_joint")
        if score is None:
            score = self.weights
        chain, draw = np.unravel_index(int(np.argmax(score)), score.shape)
        return int(chain), int(draw)

    def reference_draw(self) -> dict[str, np.ndarray]:
        """The arrays of the reference draw."""
        chain, draw = self.reference()
        return {name: values[chain, draw] for name, values in self.draws.items()}

    def require_draws(self) -> None:
        """Refuse a posterior without draws.

        Raises:
            ValueError: the run ended in its warm-up and kept none.
        """
        if self.num_draws == 0:
            raise ValueError(alarms.NO_DRAWS)

    # --- tables ----------------------------------------------------------------------------------

    def quantities(self, *, num_pairs: int = 3) -> dict[str, np.ndarray]:
        """Label-free scalars of every draw: name -> (chains, draws).

        The scalars of the draws but for the model's fixed numbers, and for latent features
        `num_pairs` entries of ZZ', the number of features that two rows share.
        """
        return tables.quantities(self, check_count("num_pairs", num_pairs, 0))

    def summary(self) -> Summary:
        """Mean, sd, 5 % and 95 % of quantities that do not depend on labels.

        For chains also R-hat and effective sample size. ``shared[i, j]`` is the number of features
        that rows i and j have in common, an entry of ZZ'.

        Returns:
            A table, which prints itself: `table["alpha", "mean"]` is one number of it.
        """
        return tables.summary(self)

    def alarms(self) -> tuple[Alarm, ...]:
        """Why this run should not be trusted as it stands, and what to do.

        Chains that disagree or drift (R-hat above 1.05), no feature or one group in use, noise
        above the sd of the data, a free energy that still changes, an evidence without a credible
        error, observed cells that simple means of the other cells predict better (see
        `leave_one_out`), intervals that leave the scale of the data.

        Returns:
            An `Alarm` (kind, sentence) for each; empty if nothing was seen.
        """
        return alarms.alarms(self)

    def leave_one_out(self) -> Comparison | None:
        """Up to 256 observed cells, each predicted from all others, beside simple means.

        The draws are weighted to those given the other cells (Pareto-smoothed importance sampling);
        nothing is hidden from the run. Cells whose weights are unreliable are left out. The means
        are those of rows and columns, of 0 and 1 the frequencies of columns. Kept once computed.

        Returns:
            Losses of both with `.excess`, the mean difference, and its `.standard_error`; None for
            models without cells or with groups of them, for fewer than 100 draws or 40 cells, and
            where the weights of more than half of the cells are unreliable.
        """
        return self._leave_one_out

    @cached_property
    def _leave_one_out(self) -> Comparison | None:
        return leave_one_out.compare(self)

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

    def cooccurrence(self, rows: Any = None) -> np.ndarray:
        """E[ZZ' | X]: the expected number of features that two rows share.

        Of a mixture sampled with ``keep="assignments"`` the probability that they are in one group.

        Args:
            rows: (R,) ids of rows, `mf.Positions(rows)`, or positions where the data has no ids;
                all by default.
        Returns:
            (R, R) float.
        """
        return tables.cooccurrence(self, rows)

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
            >>> post.groups().counts
            array([3, 2])
        """
        from jaxmf.posterior import row_groups

        return row_groups.groups(self)

    def features(self) -> Features:
        """The features of the reference draw (highest log joint), most frequent first.

        Labels mean nothing across draws, so features are not averaged over draws; what the spread
        over draws is, `predict` and `cooccurrence` say.

        Returns:
            Posterior mean and sd of the features given that draw's Z, and how many rows have them.
        """
        return tables.features(self)

    # --- predictions -----------------------------------------------------------------------------

    def predict(
        self,
        cells: Any = None,
        *,
        new_rows: Any = None,
        new_columns: Any = None,
        row_features: Any = None,
        column_features: Any = None,
        unknown: str = "error",
        quantiles: tuple[float, ...] = (0.05, 0.95),
        num_draws: int | None = None,
        seed: int = 0,
    ) -> Prediction:
        """Predict cells: the missing ones, those asked for, or those of new rows or columns.

        The predictive law is the mixture over draws, noise included. Draws that keep no factors
        know that of the cells named by predict_at, which then are the default.

        Args:
            cells: (rows, columns), an (M, 2) array, or a boolean matrix; by default the missing
                cells. With `new_rows` they lie in these. They are named by id where the data has
                ids, else by position; `mf.Positions(rows, columns)` are positions always.
            new_rows: data with the same columns, which are matched by id where both sides have
                ids, else by position. By default its missing cells are predicted, given its
                observed ones, and all of them when none is missing.
            new_columns: data with the same rows, likewise, of models whose two sides are alike.
            row_features: `Features` of the new rows, of models that have such; without `new_rows`
                they are rows of which no cell is known.
            column_features: those of new columns, likewise.
            unknown: of ids that the data lacks: "error"; "drop" to leave out the cells that have
                them, or the columns of new rows; "prior" to predict `cells` with them from the
                prior of rows and columns, of models that have such (BPMF).
            quantiles: levels between 0 and 1.
            num_draws: predictive draws kept for each cell (quantiles are taken from them); by
                default as many as there are posterior draws, fewer when the cells are many.
            seed: of these draws.
        Returns:
            Mean, sd, quantiles and draws for each cell.
        Raises:
            ValueError: nothing is missing and no cells are named, or cells lie outside the data.
        """
        cell_questions.check_cells(self)
        settings: dict[str, Any] = {
            "unknown": unknown,
            "quantiles": cell_questions.check_levels(quantiles),
            "num_draws": None if num_draws is None else check_count("num_draws", num_draws),
            "seed": check_seed("seed", seed),
        }
        if new_columns is None and column_features is None:
            return cell_questions.predict(
                self, cells, new_rows=new_rows, row_features=row_features, **settings
            )
        if new_rows is not None or row_features is not None:
            raise ValueError("new rows and new columns: predict one of them at a time")
        return transposed.prediction_of_columns(
            self, cells, new_columns, features=column_features, **settings
        )

    def probabilities(self, cells: Any) -> np.ndarray:
        """The probability of every value that a cell may have, of a model of ratings.

        Args:
            cells: which cells, as in `predict`.
        Returns:
            (M, V) float, the values in the order of the model's `values`.
        Raises:
            ValueError: the model's cells are not of a finite set.
        """
        return cell_questions.probabilities(self, cells)

    def top_entries(self, column: str, n: int = 10, *, titles: Any = None) -> TopEntries:
        """The heaviest entries of every group of the reference draw (highest log joint).

        Args:
            column: an observed column of categories, such as "word": the most probable values of
                every topic; or a column that indicators are partitioned by, such as "item": the
                levels with the most tokens in every group. Of a matrix with groups of rows and of
                columns "row" or "column": the members of every group with the most cells.
            n: entries a group, at most: those that it has a token of.
            titles: of rows or columns, shown in the place of their ids: id -> title, or one for
                each in the order of the data.
        Returns:
            Groups by size, with their entries; `.to_pandas()` is the table.
        Raises:
            ValueError: the model has no groups, or the network no such column.
        """
        from jaxmf.posterior import side_groups, topics

        check_count("n", n)
        if side_groups.has_groups(self):
            return side_groups.members(self, column, n, titles)
        if titles is not None:
            raise ValueError("titles: are of rows and columns; names of tokens are Tokens(names=)")
        return topics.top_entries(self, column, n)

    def preferences(self, side: str = "row", n: int = 10, *, titles: Any = None) -> TopEntries:
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
        from jaxmf.posterior import side_groups

        check_count("n", n)
        if not side_groups.has_groups(self):
            raise ValueError(f"{type(self.model).__name__} has no groups of rows; see top_entries")
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
        from jaxmf.posterior import side_groups

        if not side_groups.has_groups(self):
            raise ValueError(f"{type(self.model).__name__} has no groups of rows; see top_entries")
        return side_groups.weights(self, side)

    def document_completion(
        self, new_documents: Any, *, unknown: str = "error", num_draws: int = 10, seed: int = 0
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
            its standard error.
        Raises:
            ValueError: the model has no words of documents, or no document has two words.
        """
        from jaxmf.posterior import topics

        check_count("num_draws", num_draws)
        check_seed("seed", seed)
        if not isinstance(self.model, CompletesDocuments):
            raise ValueError(f"{type(self.model).__name__} is no model of words of documents")
        new = self.container(new_documents, "new_documents", unknown=unknown)
        return topics.document_completion(self, new, num_draws=num_draws, seed=seed)

    def scores(self, cells: Any) -> Scores:
        """Scores of cells: mean, sd, and the probability of a one with and without that sd.

        Args:
            cells: which cells, as in `predict`.
        Raises:
            ValueError: the model has no scores.
        """
        from jaxmf.posterior import ranking

        return ranking.scores(self, cells)

    def recommend(
        self,
        rows: Any = None,
        *,
        n: int = 10,
        by: str | None = None,
        include_known: bool = False,
        new_rows: Any = None,
        row_features: Any = None,
        unknown: str = "error",
        seed: int = 0,
    ) -> Recommendations:
        """The n best columns of some rows, without those that a row is known to have.

        Of 0/1 data a row has its ones; of other ratings all that it rated. Models of ratings rank
        by the predictive mean, averaged over draws; of ratings 0 and 1 that is the probability of a
        1.

        Args:
            rows: ids of rows, or positions, as in `cooccurrence`; all by default. With `new_rows`
                they are of these.
            n: how many; a row that has almost everything gets fewer.
            by: "score", the mean of the score or rating, or "probability" of a one, which weighs
                the uncertainty of the score too. None takes the probability where a model has
                scores and their uncertainty, as it ranks better in rows of few ones, else the mean.
            include_known: whether to rank what rows are known to have too.
            new_rows: rows that are not in the data, by their first entries, as in `predict`. All
                their cells are predicted at once.
            row_features: `Features` of the new rows, as in `predict`.
            unknown: of ids that the data lacks: "error"; "drop" to leave out such rows, or columns
                of new rows; "prior" to rank for unknown `rows` by the prior of rows, of models that
                have such (BPMF).
            seed: of what is drawn for new or unknown rows.
        Returns:
            Columns best first, with their scores, sd and probabilities, or mean and sd of ratings.
        Raises:
            ValueError: the model ranks no columns, or takes no new rows; the rows are not in the
                data.
        """
        from jaxmf.posterior import recommendations

        cell_questions.check_draws(self)
        return recommendations.recommend(
            self,
            rows,
            new_rows=new_rows,
            row_features=row_features,
            unknown=unknown,
            n=n,
            by=by,
            include_known=include_known,
            seed=seed,
        )

    def at(self, time: float) -> Posterior:
        """The posterior at one time of a series: one of its times, between two, or after the last.

        What is asked of the whole posterior is of its last time; what is asked of this one is of
        that time. Columns that a row is known to have are those of that time, if it is observed.

        Args:
            time: a number, in the unit of the times of the data.
        Returns:
            A posterior of the same rows and columns at that time alone.
        Raises:
            ValueError: the model knows no times, or this posterior is of one time already.
        Example:
            >>> import jaxmf as mf
            >>> model, data = mf.registry.get("sparse-binary-series").example()
            >>> post = mf.fit(model, data, num_epochs=3, progress=False)
            >>> post.at(3.5).scores(([0, 1], [2, 2])).mean.shape
            (2,)
        """
        whole = registry.entry_of(self.model).container
        if not (isinstance(self.model, KnowsTime) and isinstance(self.data, whole)):
            raise ValueError(f"{type(self.model).__name__} knows no times; leave at() out")
        check_number("time", time)
        draw, data = self.model.at_time(self.reference_draw(), self.data, time)
        draws = {name: np.asarray(value)[None, None] for name, value in draw.items()}
        return dataclasses.replace(self, draws=draws, data=data)

    def reconstruction(self, rows: Any = None) -> np.ndarray:
        """Posterior mean of the noise-free matrix at some rows: features added up.

        Args:
            rows: (R,) ids of rows, or positions, as in `cooccurrence`; all by default.
        Returns:
            (R, D) float.
        """
        return cell_questions.reconstruction(self, rows)

    def transform(
        self, new_rows: Any, *, row_features: Any = None, unknown: str = "error", seed: int = 0
    ) -> np.ndarray:
        """Latent representation of rows not seen in training: probability of each feature.

        Features are those of the reference draw (highest log joint), in the order of `features`. Of
        a model with real factors their posterior means, which may be any number.

        Args:
            new_rows: data with the same columns; missing cells are summed out. Columns, items and
                words are matched by id where both sides have ids, else by position. Documents and
                baskets may use a part of the words or items.
            row_features: `Features` of the new rows, of models that have such.
            unknown: of columns, items and words that the data lacks: "error", or "drop" to leave
                them out.
            seed: of the chain over features where they are too many to sum over.
        Returns:
            (N_new, K) float between 0 and 1.
        Raises:
            ValueError: the model has no representation of new rows; a column that the data lacks.
        """
        check_seed("seed", seed)
        if not isinstance(self.model, TransformsRows | TransformsDocuments):
            raise ValueError(
                f"{type(self.model).__name__} has no latent representation of new rows; fit it to "
                "all rows"
            )
        target = self.container(new_rows, "new_rows", unknown=unknown)
        if isinstance(self.model, TransformsDocuments):
            if row_features is not None:
                raise ValueError(
                    f"row_features: {type(self.model).__name__} takes none; leave them out"
                )
            from jaxmf.posterior import topics

            return topics.transform(self, target, seed)
        cell_questions.check_draws(self)
        key = jax.random.key(seed)
        model = transposed.model_of_new(self, target, row_features)
        probabilities = _transform(model, key, self.reference_draw(), self.data, target)
        if "z" not in self.draws:
            return np.asarray(probabilities)
        return np.asarray(probabilities)[:, self.features().slots]

    def held_out_log_likelihood(self, values: Any, cells: Any = None) -> HeldOutScore:
        """Log posterior predictive density of cells whose values are now known.

        Each cell's density is averaged over the posterior draws before the log is taken.

        Args:
            values: the whole matrix (N, D), of which the cells missing in training are scored, its
                rows and columns matched by id where both sides have ids; or with `cells` one value
                a cell, (M,).
            cells: which cells, as in `predict`.
        Returns:
            The log density of each cell (M,), their mean, and its standard error over cells.
        """
        return cell_questions.held_out_log_likelihood(self, values, cells)

    def container(
        self, new_rows: Any, name: str, *, unknown: str = "error", can_drop: bool = True
    ) -> Any:
        """Rows like those of the data, as a container with its columns.

        Args:
            new_rows: a container, or what one is made of.
            name: what the errors call them.
            unknown: of columns, items or words that the data lacks: "error" or "drop".
            can_drop: whether errors may advise the latter.
        Returns:
            The rows; columns, items and words are matched by id where both sides have ids.
        Raises:
            ValueError: an unknown column; other sizes where one side has no ids.
        """
        from jaxmf.data import Tokens, as_container

        target: Any = as_container(new_rows, registry.entry_of(self.model).container, name)
        target = target.align_columns(self.data, argument=name, unknown=unknown, can_drop=can_drop)
        # of rows of which no cell is known there is nothing to check
        has_cells = getattr(target, "num_entries", 1) > 0
        if has_cells and not isinstance(target, Tokens):
            registry.check_data(self.model, target, name)
        return target

    # --- going on, writing, showing --------------------------------------------------------------

    def extend(
        self, new_rows: Any = None, *, num_samples: int | None = None, **run: Any
    ) -> Posterior:
        """Go on where the run stopped.

        A filter takes more rows, with the same result as one run over all of them (after annealing
        they are taken at the full feature scale). What the model took from the data, an offset and
        priors of scales that were left open, stays that of the first rows: set them for the same
        result. A sampler draws `num_samples` more a chain.

        Args:
            new_rows: data with the same columns, for a filter; they are matched by id where both
                sides have ids. Ids 0, 1, 2, ... of rows, as a table has them by default, continue
                those of the data.
            num_samples: more draws a chain, for a sampler.
            **run: settings of the run loop, such as progress.
        Returns:
            A new posterior; this one is unchanged.
        Raises:
            ValueError: the method cannot go on in that way, or the last state was not kept.
        """
        from jaxmf.posterior import assemble

        return assemble.extend(self, new_rows, num_samples=num_samples, settings=run)

    def save(self, folder: str | Path, *, data: bool = True) -> Path:
        """Write the posterior to a folder: arrays as npz, the rest as JSON, no pickle.

        Args:
            folder: made if it does not exist; a posterior in it is replaced.
            data: whether the data is written too. Without it `load` has to be given the data.
        Returns:
            The folder.
        Raises:
            TypeError: something that JSON cannot hold, before anything is written: a function of
                one's own in the model or an option, an id that is neither text nor number. A run
                with a checkpoint is refused for that before it starts.
        """
        from jaxmf.posterior import saving

        return saving.save(self, folder, include_data=check_flag("data", data))

    def to_arviz(self) -> Any:
        """The draws as an `xarray.DataTree` for ArviZ (extra `arviz`).

        Group ``posterior`` holds the arrays of the draws, ``sample_stats`` the log joint as ``lp``,
        ``observed_data`` the matrix. A filter's particles are resampled to equal weights.

        Raises:
            ModuleNotFoundError: arviz-base is not installed.
        """
        from jaxmf.posterior.arviz_export import to_arviz

        return to_arviz(self)

    @property
    def plot(self) -> Plots:
        """Pictures: `features(image_shape=)`, `trace()`, `cooccurrence()`, `reconstruction()`."""
        from jaxmf.plot import Plots

        return Plots(self)

    def report(
        self,
        path: str | Path,
        *,
        image_shape: tuple[int, int] | None = None,
        truth: Any = None,
        title: str | None = None,
    ) -> Path:
        """Write one self-contained HTML page: summary, pictures, facts of the run.

        Args:
            path: the HTML file.
            image_shape: (height, width) if rows are images.
            truth: (N, D) the complete matrix, if the values of missing cells are known.
            title: heading of the page.
        Returns:
            The path.
        """
        from jaxmf.report import report

        return report(self, path, image_shape=image_shape, truth=truth, title=title)

    def facts(self) -> dict[str, str]:
        """The facts of the run in words, for tables."""
        return tables.facts(self)

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.summary()!r}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._headline())}</p>{self.summary()._repr_html_()}"

    def _headline(self) -> str:
        size = self.data.size()
        stopped = "" if self.meta.complete else ", interrupted"
        return (
            f"Posterior of {type(self.model).__name__} on {size} data, by {self.meta.method} "
            f"in {self.meta.wall_seconds:.1f} s{stopped}"
        )


@jit
def _transform(model: Any, key: Any, draw: Any, data: Any, new_data: Any) -> Any:
    return model.transform_rows(key, draw, data, new_data)
