"""Several posteriors of the same data, ordered by how well they predict: `jaxmf.compare`.

The expected log predictive density of a cell of the rows in training whose other cells are known,
by Pareto-smoothed leave-one-out (Vehtari, Gelman & Gabry 2017), WAIC (Watanabe 2010) or held-out
data. Differences are paired: by cell, with the standard error of their sum.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxmf import diagnostics
from jaxmf.arguments import check_object, check_word, checks_call
from jaxmf.column_units import units_of
from jaxmf.diagnostics import Summary, weights_effective_size
from jaxmf.engine.progress import Display, ProgressReport
from jaxmf.model import CompletesDocuments, category_columns
from jaxmf.posterior import cells as cell_questions
from jaxmf.posterior import left_out_losses, pareto, pointwise, same_data
from jaxmf.posterior.pointwise import Units
from jaxmf.results.posterior import Posterior

CRITERIA = ("loo", "waic", "squared_error")
_FEWEST_DRAWS = 25  # of which a tail can be smoothed
_FEWEST_EFFECTIVE = 100  # particles
_MOST_DRAWS = 1_000
_MOST_UNITS = 20_000
_MOST_VALUES = 2**28
_FEWEST_UNITS = 100  # of which a standard error is known well enough
_LARGEST_SHARE = 0.01  # of cells whose weights are unreliable
_LARGEST_VARIANCE = 0.4  # of a log density, above which WAIC is unreliable
_ERRORS = 2.0
_LEAST_DIFFERENCE = 4.0  # nats, below which its standard error says little
_CHAIN_ALARMS = ("R-hat", "drift")
_COLUMNS = ("elpd", "se", "difference", "se of difference", "parameters", "high k", "log evidence")
_ALWAYS_SHOWN = 4

Cells = tuple[np.ndarray, np.ndarray]


class Score(NamedTuple):
    """Log predictive densities of M cells or words under one posterior.

    Attributes:
        each: (M,) log predictive density.
        shapes: (M,) Pareto k of the weights of the draws; None if draws were not weighted.
        num_parameters: (M,) summands of the effective number of parameters; None for held-out data.
        largest_shape: the k up to which weights are reliable.
    """

    each: np.ndarray
    shapes: np.ndarray | None = None
    num_parameters: np.ndarray | None = None
    largest_shape: float = 0.7

    @property
    def unreliable_share(self) -> float:
        """The share of cells whose weights are unreliable; NaN where there are none."""
        if self.shapes is None:
            return np.nan
        return float(np.mean(~(self.shapes <= self.largest_shape)))

    @property
    def large_variance_share(self) -> float:
        """For WAIC, the share of cells with a posterior variance above 0.4; else NaN."""
        if self.shapes is not None or self.num_parameters is None:
            return np.nan
        return float(np.mean(~(self.num_parameters <= _LARGEST_VARIANCE)))

    @property
    def num_not_finite(self) -> int:
        """How many cells have no finite density."""
        return int(np.sum(~np.isfinite(self.each)))


class Scored(NamedTuple):
    """The scores of all posteriors, and of what cells or words they are."""

    scores: dict[str, Score]  # name -> score of the same M cells or words
    cells: Cells | None  # their rows and columns, (M,) int each; None of held-out rows and words
    num_units: int  # how many there are, of which M are scored
    kind: str  # "cells", "tokens", "rows", "held-out cells", "held-out rows" or "held-out words"
    is_of_errors: bool = False  # scores are squared errors of the cells, their signs turned
    unit: str = ""  # of the errors, where columns have units of their own


class ModelComparison(Summary):
    """Posteriors in the order of their expected log predictive density, the best first.

    ``table["name", "difference"]`` is one number, `to_pandas` has all of them. Columns: ``elpd``,
    the sum over cells, and ``se``, its standard error; ``difference`` to the best posterior, zero
    or negative, and its standard error, paired by cell; ``parameters``, their effective number;
    ``high k``, the share of cells whose importance weights are unreliable; ``log evidence``, of
    particle filters and `jaxmf.smc`, where its error is credible. A column that no posterior has is
    left out. By squared errors ``squared error`` is there instead of ``elpd``, the mean over cells,
    and the differences are zero or positive.

    Attributes:
        conclusion: which posteriors are distinguishable, and which checks say not to trust this.
        is_reliable: whether all checks were passed.
        differences: name -> (M,) difference of each scored cell to the best posterior.
        cells_scored: their rows and columns, (M,) int each; None of held-out rows and words.
    """

    conclusion: str
    is_reliable: bool
    differences: dict[str, np.ndarray]
    cells_scored: Cells | None


@checks_call
def compare(
    posteriors: Mapping[str, Posterior],
    *,
    held_out: object = None,
    cells: object = None,
    criterion: str = "loo",
    progress: bool | Callable[[ProgressReport], None] | None = None,
) -> ModelComparison:
    """Which of several models of the same data predicts best, and whether that can be known.

    By default every observed cell (word of a topic model, row of a mixture) is predicted from all
    other cells. The draws of a run were made with the cell, so Pareto-smoothed importance sampling
    weights them to draws made without it; no run is repeated. Latent variables of rows and columns
    count as parameters, see `Posterior.log_likelihood`: the question is how well one more cell of a
    known row is predicted, and not a new row. A random 20,000 cells are scored if there are more,
    and 1,000 draws are used if there are more (of weighted draws a systematic sample).

    Errors of cells in one row or column are correlated. So the standard error is the largest of
    three, with cells, rows or columns as units (rows and columns from twenty on). Two posteriors
    are called distinguishable if their difference is above two standard errors and above 4 nats
    (Sivula, Magnusson, Matamoros & Vehtari 2020). The conclusion says that it should not be trusted
    where weights of more than 1 % of the cells are unreliable (with WAIC: where the posterior
    variance of more than 1 % of the log densities is above 0.4; Vehtari, Gelman & Gabry 2017),
    a density is not finite, chains have not converged, or there are fewer than 100 cells.

    Args:
        posteriors: name -> posterior, two or more, of the same data.
        held_out: values that the runs did not see, which are scored instead: a whole matrix,
            `Entries` of the known cells, or one value for each cell, as in
            `Posterior.held_out_log_likelihood`; new rows for mixtures; new documents for topic
            models.
        cells: the cells to score, named as in `Posterior.predict`: observed cells, or with
            `held_out` missing ones; by default all.
        criterion: ``"loo"``, or ``"waic"`` for models whose cells are independent given a draw; or
            ``"squared_error"`` of the predicted means of `held_out` cells, averaged over cells,
            which also compares models of densities with models of probabilities (`Gaussian` with
            `Ordinal`). Errors are in units of the columns if a model has these.
        progress: whether to show a bar, as in `jaxmf.sample`.
    Returns:
        A table that prints itself and ends in a conclusion.
    Raises:
        TypeError: `posteriors` is no mapping of names to posteriors.
        ValueError: there are fewer than two posteriors; they are of different data; some have
            densities and others probabilities; one has no likelihood, or fewer than 25 draws.
    Example:
        >>> import numpy as np, jaxmf as mf
        >>> X = np.random.default_rng(0).normal(size=(30, 4))
        >>> run = {"num_warmup": 50, "num_samples": 50, "num_chains": 1, "progress": False}
        >>> posts = {f"noise {s}": mf.sample(mf.LinearGaussianIBP(noise_scale=s), X, **run)
        ...          for s in (1.0, 3.0)}
        >>> mf.compare(posts).names
        ['noise 1.0', 'noise 3.0']
    """
    posts = _check(posteriors)
    check_word("criterion", criterion, CRITERIA)
    if held_out is not None and criterion == "waic":
        raise ValueError("criterion: held_out data are scored as they are; leave criterion out")
    if held_out is None and criterion == "squared_error":
        raise ValueError(
            'criterion: "squared_error" is of cells that runs did not see; pass held_out'
        )
    with Display(progress) as display:
        if criterion == "squared_error":
            scored = _score_errors(posts, held_out, cells, display)
        elif held_out is None:
            scored = _score_observed(posts, cells, criterion, display)
        else:
            scored = _score_held_out(posts, held_out, cells, display)
    return _table(posts, scored, _worries(posts, scored))


def _check(posteriors: object) -> dict[str, Posterior]:
    """The posteriors by name; refuses those of different data."""
    if not isinstance(posteriors, Mapping):
        raise TypeError(
            f'posteriors must be a dict, such as {{"two": post2, "three": post3}}, got '
            f"{type(posteriors).__name__}"
        )
    for name, posterior in posteriors.items():
        if not isinstance(name, str):
            raise TypeError(f"posteriors: the name {name!r} must be a text")
        check_object(f"posteriors[{name!r}]", posterior, Posterior, "mf.sample(model, data)")
        posterior.require_draws()
    if len(posteriors) < 2:
        raise ValueError(f"posteriors: there must be two or more, got {len(posteriors)}")
    same_data.check(posteriors)
    return dict(posteriors)


class _Steps:
    """Draws that were scored, of all posteriors, for the progress bar."""

    def __init__(self, display: Display, sizes: Mapping[str, int]) -> None:
        self._display, self._total = display, sum(sizes.values())
        self._step, self._ends = 0, dict(zip(sizes, np.cumsum([*sizes.values()]), strict=True))
        self._began = time.perf_counter()

    def add(self, name: str) -> None:
        """One more draw of a posterior."""
        self._show(name, self._step + 1)

    def end(self, name: str) -> None:
        """All draws of a posterior."""
        self._show(name, int(self._ends[name]))

    def _show(self, name: str, step: int) -> None:
        if step == self._step:
            return
        self._step = step
        left = (time.perf_counter() - self._began) / step * (self._total - step)
        report = ProgressReport(step, self._total, 0, left, {}, repr(name))
        self._display.show(report, "comparing")


def _score_observed(
    posts: dict[str, Posterior], cells: object, criterion: str, display: Display
) -> Scored:
    """Leave-one-out or WAIC of the same cells, or tokens, of all posteriors."""
    units = {name: pointwise.units_of(posterior) for name, posterior in posts.items()}
    first = next(iter(units))
    for name, unit in units.items():
        _check_measure(posts, first, name)
        if unit.kind != units[first].kind:
            raise ValueError(
                f"posteriors: {name!r} has a likelihood of {unit.kind}s and {first!r} of "
                f"{units[first].kind}s, which cannot be compared"
            )
        if len(unit.values) != len(units[first].values):
            raise ValueError(f"posteriors: {name!r} is of other {unit.kind}s than {first!r}")
        if criterion == "waic" and unit.dependence != "independent":
            raise ValueError(
                f"criterion: cells of {name!r} depend on each other given a draw, and WAIC is of "
                'independent ones; use criterion="loo"'
            )
    work = max(
        _draws_used(posts[name])[0].size * pointwise.num_combinations(posts[name], unit)
        for name, unit in units.items()
    )
    chosen = {name: pointwise.chosen_units(posts[name], units[name], cells) for name in posts}
    if cells is None:
        # cells by row and column, so that those of containers of several kinds are the same ones
        chosen |= {n: np.lexsort((u.columns, u.rows)) for n, u in units.items() if u.is_of_cells}
    num_units = chosen[first].size
    size = min(_MOST_UNITS, max(_FEWEST_UNITS, _MOST_VALUES // work))
    if num_units > size:
        subset = np.sort(np.random.default_rng(0).choice(num_units, size, replace=False))
        chosen = {name: index[subset] for name, index in chosen.items()}
    for name, posterior in posts.items():
        num_draws = _draws_used(posterior)[0].size
        if num_draws < _FEWEST_DRAWS:
            raise ValueError(
                f"posteriors: {name!r} has {num_draws} draws, and {criterion} needs "
                f"{_FEWEST_DRAWS} at least; a larger num_samples has more"
            )
    display.say("comparing")
    steps, scores = _Steps(display, {n: _draws_used(post)[0].size for n, post in posts.items()}), {}
    for name, posterior in posts.items():
        after_draw = partial(steps.add, name)
        scores[name] = _score(posterior, units[name], chosen[name], criterion, after_draw)
        steps.end(name)
    scored_cells = units[first].rows[chosen[first]], units[first].columns[chosen[first]]
    return Scored(scores, scored_cells, num_units, f"{units[first].kind}s")


def _draws_used(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Positions of at most 1,000 draws among all with weight, and their weights.

    Of weighted ones a systematic sample by weight: the heaviest alone would be another
    distribution.
    """
    weights = posterior.weights.ravel()
    if posterior.is_weighted:
        return diagnostics.fewer_draws(weights, _MOST_DRAWS)
    kept = diagnostics.evenly_spread(weights.size, _MOST_DRAWS)
    return kept, weights[kept]


def _score(
    posterior: Posterior,
    units: Units,
    chosen: np.ndarray,
    criterion: str,
    after_draw: Callable[[], None] = lambda: None,
) -> Score:
    """The score of some units by one posterior."""
    index, weights = _draws_used(posterior)
    draws = {
        name: values.reshape(-1, *values.shape[2:])[index]
        for name, values in posterior.draws.items()
    }
    log_density, log_replicate = pointwise.evaluate(
        posterior, units, draws, chosen, after_draw=after_draw
    )
    log_weights = np.log(weights / weights.sum())[:, None]
    expected = np.logaddexp.reduce(log_weights + log_replicate, axis=0)
    if criterion == "waic":
        mean = np.sum(np.exp(log_weights) * log_density, axis=0)
        variance = np.sum(np.exp(log_weights) * (log_density - mean) ** 2, axis=0)
        variance *= index.size / (index.size - 1)
        return Score(expected - variance, None, variance)
    smoothed, shapes = pareto.smoothed_weights(log_weights - log_density)
    with np.errstate(divide="ignore"):
        each = np.logaddexp.reduce(np.log(smoothed) + log_density, axis=0)
    return Score(each, shapes, expected - each, pareto.largest_shape(index.size))


def _score_held_out(
    posts: dict[str, Posterior], held_out: object, cells: object, display: Display
) -> Scored:
    """The scores of data that the runs did not see."""
    first = next(iter(posts))
    for name in posts:
        _check_measure(posts, first, name)
    if all(isinstance(posterior.model, CompletesDocuments) for posterior in posts.values()):
        if cells is not None:
            raise ValueError("cells: held-out documents have words and no cells; leave it out")
        scores = _scores(
            posts, display, lambda post: post.document_completion(held_out).log_likelihood
        )
        return Scored(scores, None, scores[first].each.size, "held-out words")
    scores = _scores(
        posts,
        display,
        lambda post: (
            cell_questions.score_held_out(post, held_out, cells, argument="held_out").log_likelihood
        ),
    )
    if cell_questions.is_of_rows(posts[first], cells):
        return Scored(scores, None, scores[first].each.size, "held-out rows")
    where, _ = cell_questions.held_out_cells(posts[first], held_out, cells, argument="held_out")
    return Scored(scores, where, where[0].size, "held-out cells")


def _score_errors(
    posts: dict[str, Posterior], held_out: object, cells: object, display: Display
) -> Scored:
    """The squared errors of the means of cells that the runs did not see, their signs turned.

    If any model has categories in a cell, its error is 1 where the category is wrong, else 0.
    """
    for posterior in posts.values():
        cell_questions.check_cells(posterior)
    first = next(iter(posts.values()))
    where, known = cell_questions.held_out_cells(first, held_out, cells, argument="held_out")
    # the same units for all of them
    units = [units_of(posterior.model, where[1]) for posterior in posts.values()]
    is_category = np.zeros(known.size, bool)
    for posterior in posts.values():
        is_category |= category_columns(posterior.model, posterior.data.num_columns)[where[1]]
    unit = next((each for each in units if np.ptp(each)), np.ones(known.size))

    def score(posterior: Posterior) -> np.ndarray:
        mean, _ = cell_questions.moments(posterior, where, None, seed=0)
        wrong = np.rint(mean) != known
        return -np.where(is_category, wrong, ((mean - known) / unit) ** 2)

    words = " in units of the columns" if np.ptp(unit) else ""
    scores = _scores(posts, display, score)
    return Scored(scores, where, known.size, "held-out cells", is_of_errors=True, unit=words)


def _scores(
    posts: dict[str, Posterior], display: Display, score: Callable[[Posterior], np.ndarray]
) -> dict[str, Score]:
    """The scores of held-out data by each posterior."""
    display.say("comparing")
    steps, scores = _Steps(display, dict.fromkeys(posts, 1)), {}
    for name, posterior in posts.items():
        scores[name] = Score(score(posterior))
        steps.end(name)
    return scores


def _check_measure(posts: dict[str, Posterior], first: str, name: str) -> None:
    """Refuses densities beside probabilities."""
    words = {True: "probabilities", False: "densities"}
    are_discrete = [pointwise.is_discrete(posts[each]) for each in (first, name)]
    if are_discrete[0] != are_discrete[1]:
        raise ValueError(
            f"posteriors: the cells of {first!r} have {words[are_discrete[0]]} and those of "
            f"{name!r} {words[are_discrete[1]]}, which cannot be compared; compare their errors "
            'at cells that all runs hold out: held_out=truth, criterion="squared_error"'
        )


def _worries(posts: dict[str, Posterior], scored: Scored) -> list[str]:
    """Why the comparison should not be trusted, one clause each."""
    found = []
    takes_documents = all(isinstance(each.model, CompletesDocuments) for each in posts.values())
    better = "score held_out documents" if takes_documents else "score held_out data"
    shares = {name: score.unreliable_share for name, score in scored.scores.items()}
    high = [f"{100 * s:.1f} % by {name!r}" for name, s in shares.items() if s > _LARGEST_SHARE]
    if high:
        found.append(
            f"importance weights of some {scored.kind} are unreliable, {', '.join(high)}, and "
            f"their densities too high; {better}"
        )
    shares = {name: score.large_variance_share for name, score in scored.scores.items()}
    large = [f"{100 * s:.1f} % by {name!r}" for name, s in shares.items() if s > _LARGEST_SHARE]
    if large:
        found.append(
            f"log densities of some {scored.kind} have a posterior variance above "
            f"{_LARGEST_VARIANCE}, {', '.join(large)}, where WAIC is unreliable; use "
            f'criterion="loo" or {better}'
        )
    infinite = [repr(name) for name, score in scored.scores.items() if score.num_not_finite]
    if infinite:
        found.append(
            f"densities of {', '.join(infinite)} are not finite, and sums with them say nothing of "
            f"the other {scored.kind}"
        )
    alarmed = [
        f"{name!r} ({kinds[0]})"
        for name in scored.scores
        if (kinds := [a.kind for a in posts[name].alarms() if a.kind in _CHAIN_ALARMS])
    ]
    if alarmed:
        found.append(f"the chains of {', '.join(alarmed)} have not converged")
    for name in scored.scores:
        if posts[name].is_weighted:
            size = weights_effective_size(posts[name].log_weights)
            if size < _FEWEST_EFFECTIVE:
                found.append(
                    f"{name!r} has an effective number of {size:.0f} particles (more particles)"
                )
    if next(iter(scored.scores.values())).each.size < _FEWEST_UNITS:
        found.append(f"standard errors of fewer than {_FEWEST_UNITS} {scored.kind} are rough")
    return found


def _table(posts: dict[str, Posterior], scored: Scored, worries: list[str]) -> ModelComparison:
    """The numbers, the best posterior first, and the conclusion."""
    scores = scored.scores
    scale, sign = (1, -1) if scored.is_of_errors else (scored.num_units, 1)
    means = {name: np.nan_to_num(scores[name].each.mean(), nan=-np.inf) for name in scores}
    names = sorted(scores, key=lambda name: -means[name])
    best, differences = scores[names[0]].each, {}
    for name in names:
        each = scores[name].each
        with np.errstate(invalid="ignore"):  # zero where both are -inf
            differences[name] = np.where(each == best, 0.0, each - best)
    lines = []
    for name in names:
        score, difference = scores[name], differences[name]
        parameters = np.nan if score.num_parameters is None else score.num_parameters.mean() * scale
        lines.append(
            [
                sign * score.each.mean() * scale,
                _standard_error(score.each, scored.cells) * scale,
                sign * difference.mean() * scale + 0.0,  # the best one has 0, not -0
                _standard_error(difference, scored.cells) * scale,
                parameters,
                score.unreliable_share,
                _credible_evidence(posts[name]),
            ]
        )
    values = np.array(lines)
    is_unknown = np.isnan(values).all(axis=0)
    kept = np.flatnonzero(~is_unknown | (np.arange(len(_COLUMNS)) < _ALWAYS_SHOWN))
    columns = ("squared error", *_COLUMNS[1:]) if scored.is_of_errors else _COLUMNS
    table = ModelComparison(names, [columns[index] for index in kept], values[:, kept])
    table.differences = {name: sign * each for name, each in differences.items()}
    table.cells_scored = scored.cells
    table.is_reliable = not worries
    table.conclusion = _conclusion(table, scored, worries)
    size, num_scored = scored.num_units, differences[names[0]].size
    subset = f", a random {num_scored:,} of them scored" if num_scored < size else ""
    table.caption = textwrap.fill(
        f"{size:,} {scored.kind}{subset}{scored.unit}. {table.conclusion}", 88
    )
    return table


def _standard_error(values: np.ndarray, cells: Cells | None) -> float:
    """Standard error of the mean over cells; NaN for one cell, or if a value is not finite."""
    if values.size < 2 or not np.isfinite(values).all():
        return np.nan
    if cells is None:
        return float(values.std(ddof=1) / np.sqrt(values.size))
    return left_out_losses.standard_error_of_mean(values, *cells)


def _credible_evidence(posterior: Posterior) -> float:
    """Log evidence of a filter or of `jaxmf.smc` whose error can be trusted, else NaN."""
    evidence = posterior.evidence
    if evidence is None or not np.isfinite(evidence.standard_error):
        return np.nan
    return float(evidence.value)


def _conclusion(table: ModelComparison, scored: Scored, worries: list[str]) -> str:
    """Which posteriors are distinguishable, and whether to trust it."""
    best, *others = table.names
    worse, same = [], []
    least, unit, digits = _LEAST_DIFFERENCE, "nats", ".1f"
    if scored.is_of_errors:
        least, unit, digits = 0.0, "in squared error", ".3g"
    for name in others:
        # 0.0 minus 0 is 0, and -0 would be printed
        difference, error = 0.0 - abs(table[name, "difference"]), table[name, "se of difference"]
        if not np.isfinite(difference):
            count = scored.scores[name].num_not_finite
            worse.append(f"{name!r} has no finite density at {count:,} {scored.kind}")
        elif difference < -max(least, _ERRORS * error):
            errors = f", {-difference / error:.1f} standard errors" if error > 0 else ""
            worse.append(f"{name!r} is worse by {-difference:{digits}} {unit}{errors}")
        else:
            shown = abs(difference) if scored.is_of_errors else difference
            same.append(f"{name!r} ({shown:{digits}} ± {error:{digits}} {unit})")
    parts = [f"{best!r} predicts best" + (f": {'; '.join(worse)}" if worse else "")]
    if same:
        parts.append(
            f"{' and '.join(same)} cannot be distinguished from it: choose the simpler one"
        )
    trust = "No check speaks against this"
    if worries:
        trust = f"Do not trust this as it stands: {'; '.join(worries)}"
    return ". ".join([*parts, trust]) + "."
