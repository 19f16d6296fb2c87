"""What a fit says: scores, probabilities, scalars; and `ScoredCells`, models with scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.model import Pair
from jaxmf.types import Array, Draw, Key
from jaxmf.variational_bayes.contracts import CellSettings, Likelihood
from jaxmf.variational_bayes.parameters import Normal, half
from jaxmf.variational_bayes.pieces import PieceTable, cut
from jaxmf.variational_bayes.state import from_draw
from jaxmf.variational_bayes.sums import gathered_moments, gatherer, shared_moments

_NUM_NODES = 32
# Factors weaker than this share of the strongest, or of the sd of a cell's noise, count as unused.
_LEAST_SHARE, _LEAST_STRENGTH = 1e-3, 1e-3


def score_cells(draw: Draw, rows: Array, columns: Array) -> tuple[Array, Array]:
    """Mean and variance under Q of the scores of cells (M,): (M,) each."""
    view = half(from_draw(draw), "rows")
    factors = Normal(view.factors.mean[rows], view.factors.variance[rows])
    others = gatherer(view.others)(columns[:, None])
    mean, variance = gathered_moments(factors, others, view.intercept)
    return mean[:, 0], variance[:, 0]


def score_rows(draw: Draw, factors: Normal) -> tuple[Array, Array]:
    """Mean and variance of the scores of lines (M, L) with all columns: (M, D) each."""
    view = half(from_draw(draw), "rows")
    return shared_moments(factors, view.others, view.intercept)


def factors_of_rows(draw: Draw, rows: Array) -> Normal:
    """Factors of some rows with their biases, as `score_rows` takes them: (M, L) each."""
    view = half(from_draw(draw), "rows")
    return Normal(view.factors.mean[rows], view.factors.variance[rows])


def probability(likelihood: Likelihood, mean: Array, variance: Array) -> Array:
    """Probability of a one, E[sigma(m)] over a Gaussian score by Gauss-Hermite quadrature.

    Gaussian cells have no probability: theirs is the mean of the cell as 0 or 1, clipped to [0, 1].
    """
    if isinstance(likelihood, Gaussian):
        return jnp.clip(_cell_mean(mean), 0, 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    weights = weights / weights.sum()
    spread = jnp.sqrt(variance)

    def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        return total + node[1] * jax.nn.sigmoid(mean + spread * node[0]), None

    pairs = (jnp.asarray(nodes, mean.dtype), jnp.asarray(weights, mean.dtype))
    return jax.lax.scan(add, jnp.zeros_like(mean), pairs)[0]


def _cell_mean(mean: Array) -> Array:
    """The mean of a Gaussian cell that is 0 or 1, from that of its score, which is -1 or 1."""
    return (1 + mean) / 2


def cell_moments(
    likelihood: Likelihood, draw: Draw, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """Mean and variance of cells as 0 or 1, from those of their scores.

    The mean of a Gaussian cell may lie outside of 0 and 1.
    """
    if isinstance(likelihood, Gaussian):
        return _cell_mean(mean), (variance + draw["noise_scale"] ** 2) / 4
    expected = probability(likelihood, mean, variance)
    return expected, expected * (1 - expected)


def table_of_new_rows(
    rows: Array, columns: Array, missing: tuple[Array, Array] | None, *, shape: tuple[int, int]
) -> PieceTable:
    """Rows to be folded in, as their sums go through them; traced or not.

    Args:
      rows: (T,) int32, rows of the ones, in increasing order.
      columns: (T,) int32.
      missing: rows and columns of the cells that were not observed, likewise; None where all were.
      shape: (M, D).
    """
    gaps = None if missing is None else cut(*missing, num_lines=shape[0])
    return PieceTable(
        ones=cut(rows, columns, num_lines=shape[0]),
        missing=gaps,
        starts=jnp.zeros((shape[0] + 1,), jnp.int32),
        taken=columns,
        order=jnp.arange(shape[1], dtype=jnp.int32),
    )


def summary(settings: CellSettings, draw: Draw) -> dict[str, tuple[float, float]]:
    """Scalars of a fit by name: mean and sd, which is NaN for scalars that are point estimates.

    The strength of a factor is the root mean square of its part of the scores over all cells.
    Unused factors, of next to no strength, are left out.
    """
    nothing = float("nan")
    rows = {"free_energy": (float(draw["free_energy"]), nothing)}
    if "validation_score" in draw:
        rows["validation_score"] = (float(draw["validation_score"]), nothing)
    if settings.bias != "none":
        rows["intercept"] = (float(draw["intercept"]), float(np.sqrt(draw["intercept_variance"])))
    if isinstance(settings.likelihood, Gaussian):
        rows["noise_scale"] = (float(draw["noise_scale"]), nothing)
    in_use = _strengths_in_use(draw)
    rows["factors_in_use"] = (float(in_use.size), nothing)
    for index, value in enumerate(in_use):
        rows[f"strength[{index}]"] = (float(value), nothing)
    return rows


def _strengths_in_use(draw: Draw) -> np.ndarray:
    """Root mean square parts of the scores of the factors that are in use, strongest first."""
    strength = np.sqrt(np.mean(draw["row_mean"] ** 2, 0) * np.mean(draw["column_mean"] ** 2, 0))
    ordered = np.sort(strength)[::-1]
    noise = float(draw["noise_scale"])
    return ordered[ordered > max(_LEAST_SHARE * ordered[0], _LEAST_STRENGTH * noise)]


def alarms(settings: CellSettings, draw: Draw) -> list[tuple[str, str]]:
    """Kind and sentence: all factors are unused, or recommendations no better than popularity."""
    if _strengths_in_use(draw).size:
        return _beside_popularity(draw)
    if settings.bias == "rows_columns":
        then = "scores and recommendations are by the popularity of columns alone"
    else:
        then = (
            "all columns of a row have one score and recommendations have no meaning; "
            "bias='rows_columns' ranks by popularity"
        )
    cure = "Use fewer factors, a larger column_scale, or more data"
    return [("no factors", f"No factor is in use: {then}. {cure}")]


def _beside_popularity(draw: Draw) -> list[tuple[str, str]]:
    """An alarm where ones held out are not ranked better, by a standard error, than by counts."""
    if "held_out_score" not in draw:
        return []
    ours, popularity = (
        np.asarray(draw[name], float) for name in ("held_out_score", "held_out_popularity")
    )
    gains = ours - popularity
    if gains.mean() > gains.std(ddof=1) / np.sqrt(gains.size):
        return []
    return [
        (
            "popularity",
            f"Recommendations are no better than popularity: {gains.size} ones that the fit did "
            "not know are ranked no higher by it than by the counts of the columns (mean of "
            f"1 / log2(1 + rank) {ours.mean():.3f} against {popularity.mean():.3f}). Rows of more "
            "ones or fewer factors may help; if not, recommend the columns with most ones",
        )
    ]


class ScoredCells(CellSettings, ABC):
    """Base of models of zeros and ones given their scores."""

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given its score, by the name that predictions know."""
        return "normal" if isinstance(self.likelihood, Gaussian) else "bernoulli"

    @abstractmethod
    def score_cells(self, draw: Draw, rows: Array, columns: Array) -> Pair:
        """Mean and variance of the scores m of cells (M,): (M,) each."""

    def predict_cells(self, draw: Draw, data: object, rows: Array, columns: Array) -> Pair:
        """Mean and variance of cells as 0 or 1, the uncertainty of their scores included."""
        del data
        mean, variance = self.score_cells(draw, rows, columns)
        return cell_moments(self.likelihood, draw, mean, variance)

    @abstractmethod
    def score_new_rows(self, draw: Draw, new_data: Any) -> Pair:
        """Mean and variance of the scores of further rows: (M, D) each."""

    def predict_rows(self, key: Key, draw: Draw, data: object, new_data: object) -> Pair:
        """Mean and variance of the cells of further rows: (M, D) each."""
        del key, data
        return cell_moments(self.likelihood, draw, *self.score_new_rows(draw, new_data))

    def probability(self, mean: Array, variance: Array) -> Array:
        return probability(self.likelihood, mean, variance)
