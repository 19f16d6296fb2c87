"""Questions about columns: scores of cells, the best columns of a row, the noise of each."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from jaxmf import diagnostics
from jaxmf.answers import Answer
from jaxmf.column_units import units_of
from jaxmf.data import Dense, Entries
from jaxmf.data.names import ids_or_positions, titled
from jaxmf.model import RanksWords
from jaxmf.posterior import cells as cell_questions
from jaxmf.posterior import next_words, ranking, recommendations
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.ranking import Recommendations, Scores
from jaxmf.posterior.topic_draws import topic_blocks


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ColumnNoise(Answer):
    """Standard deviations of the noise of cells, column by column.

    Args:
        mean: (D,) float, over draws.
        sd: (D,) float, likewise.
        bounds: (2, D) float, 5 and 95 % quantiles over draws.
        units: (D,) float, what a column was divided by; 1 where all have one unit.
        column_names: D ids, or positions.
    """

    mean: np.ndarray
    sd: np.ndarray
    bounds: np.ndarray
    units: np.ndarray
    column_names: np.ndarray

    _axes: ClassVar = {"mean sd units": "column", "bounds": "bound column"}

    def coordinates(self) -> dict[str, object]:
        return {"column": self.column_names, "bound": [0.05, 0.95]}

    def __len__(self) -> int:
        return self.mean.size

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each column of the data."""
        ends = {"5%": self.bounds[0], "95%": self.bounds[1]}
        return {"column": self.column_names, "mean": self.mean, "sd": self.sd} | ends


def column_noise(posterior: Draws) -> ColumnNoise:
    """See `Posterior.column_noise`."""
    data, noise = posterior.data, posterior.draws.get("noise_scale")
    if noise is None or noise.ndim != 2 or not isinstance(data, Dense | Entries):
        raise ValueError(
            f"column_noise: this {type(posterior.model).__name__} has no noise_scale; it is for "
            "Gaussian cells of a matrix"
        )
    weights = posterior.weights.ravel()
    factors = posterior.draws.get("noise_factors", np.ones((*noise.shape, 1)))
    scales = (noise[..., None] * factors.astype(float)).reshape(weights.size, -1)
    mean = weights @ scales
    sd = np.sqrt(weights @ (scales - mean) ** 2)
    ends = [diagnostics.weighted_quantile(each, weights, (0.05, 0.95)) for each in scales.T]
    units = units_of(posterior.model, np.arange(data.num_columns))
    names = ids_or_positions(data.column_names, data.num_columns)
    return ColumnNoise(mean * units, sd * units, np.stack(ends, axis=1) * units, units, names)


class ColumnAnswers(Draws):
    """The part of `Posterior` that ranks columns, and says how noisy they are."""

    def scores(self, cells: object) -> Scores:
        """Scores of cells: mean, sd, and the probability of a one with and without that sd.

        Args:
            cells: which cells, as in `predict`.
        Raises:
            ValueError: the model has no scores.
        """
        return ranking.scores(self, cells)

    def column_noise(self) -> ColumnNoise:
        """The standard deviation of the noise of every column, in the unit of the data.

        Where a model takes columns in units of their own (`column_unit`), `noise_scale` is in
        these, and this is their product; with `column_noise=True` times the factor of the column.

        Raises:
            ValueError: the model has no Gaussian noise.
        """
        return column_noise(self)

    def recommend(
        self,
        rows: object = None,
        *,
        n: int = 10,
        by: str | None = None,
        include_known: bool = False,
        new_rows: object = None,
        row_features: object = None,
        unknown: str = "error",
        titles: object = None,
        seed: int = 0,
    ) -> Recommendations:
        """The n best columns of some rows, without those that a row is known to have.

        Of 0/1 data a row has its ones; of other ratings all that it rated. Models of ratings rank
        by the predictive mean, averaged over draws; of ratings 0 and 1 with `Probit` that is the
        probability of a 1.

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
            titles: of columns, shown beside their ids: a mapping from ids to titles (a Series is
                read by its index), or one for each in the order of the data.
            seed: of what is drawn for new or unknown rows.
        Returns:
            Columns best first, with their scores, sd and probabilities, or mean and sd of ratings.
        Of topics of baskets (`LDA`, `HDPLDA`, `PAM` on `Tokens`) rows are documents and columns
        words: `new_rows` are tokens or counts, and words are ranked by the probability of being
        the next one, averaged over draws, with its standard deviation over these.
        Raises:
            ValueError: the model ranks no columns, or takes no new rows; the rows are not in the
                data.
        """
        asked: dict[str, Any] = {"new_rows": new_rows, "unknown": unknown, "n": n, "by": by}
        if isinstance(self.model, RanksWords):
            if row_features is not None:
                raise ValueError(
                    f"row_features: {type(self.model).__name__} takes none; leave them out"
                )
            blocks = topic_blocks(self)
            names, size = self.data.names.get(blocks.word), self.data.sizes[blocks.word]
            shown = None if titles is None else titled(names, titles, size)
            found = next_words.recommend(
                self, rows, include_known=include_known, seed=seed, **asked
            )
        else:
            cell_questions.check_draws(self)
            shown = None
            if titles is not None and ranking.can_recommend(self.model):
                shown = titled(self.data.column_names, titles, self.data.num_columns)
            found = recommendations.recommend(
                self,
                rows,
                row_features=row_features,
                include_known=include_known,
                seed=seed,
                **asked,
            )
        return found if shown is None else found.with_titles(shown)
