"""Some rows in the report: what they have, and the columns that are best for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxmf.data import Entries, Positions, Tokens
from jaxmf.model import RanksWords
from jaxmf.posterior import kept_cells, ranking
from jaxmf.posterior.ranking import ExpectedRatings, NextWords, Recommendations, Scores
from jaxmf.posterior.topic_draws import has_topics, topic_blocks
from jaxmf.report.parts import Interval, Row, Section, Table, short

if TYPE_CHECKING:
    from jaxmf.posterior.answers import Answers

_NUM_COLUMNS = 8  # in lists of a row
_Z = 1.645  # of a 90 % interval


def recommendations(posterior: Answers) -> Section | None:
    """Some rows: what they have, and the columns that are best for them, with intervals."""
    model = posterior.model
    is_of_words = isinstance(model, RanksWords) and has_topics(posterior)
    can_rank = ranking.can_recommend(model) and not kept_cells.lacks(model, posterior.draws)
    if not (is_of_words or can_rank):
        return None
    known = _known(posterior)
    rows = _typical_counts(np.bincount(known.rows))
    top = posterior.recommend(Positions(rows), n=_NUM_COLUMNS)
    bounds = np.stack(intervals(posterior, top))
    if not np.isfinite(bounds).any():
        return None
    value, unit = "expected", 1
    if not isinstance(top.scores, ExpectedRatings):
        value, unit = "probability, %", 100
    bounds = unit * bounds
    ends = float(np.nanmin(bounds)), float(np.nanmax(bounds))
    kind = f"± {_Z} sd" if isinstance(top.scores, NextWords) else "90 %"
    heading = ("word" if is_of_words else "column", value, kind, "")
    columns = top.columns if top.column_names is None else top.column_names
    shares = posterior.document_topics(Positions(rows)).mean if is_of_words else None
    parts = []
    for index, row in enumerate(rows):
        lines = [
            (name, short(each[1]), f"{short(each[0])}–{short(each[2])}", Interval(each, ends, kind))
            for name, each in zip(columns[index], bounds[:, index].T, strict=True)
            if np.isfinite(each[1])
        ]
        has = _has(known, row) + ("" if shares is None else _topics_of(shares[index]))
        parts.append(Row(_row_id(posterior, top, index), has, Table(heading, lines)))
    scale = f"Lines on the right are drawn from {short(ends[0])} to {short(ends[1])}."
    words = f"{_words_of(top.scores)} {scale}"
    title = "Some rows, and the highest of what they lack"
    if is_of_words:
        title = "Some documents, their topics and likely next words"
    return Section(title, words, parts)


def _words_of(scores: Scores | ExpectedRatings | NextWords) -> str:
    kind = (
        "that they do not have yet, for three rows: with few entries (the 10 % quantile of their "
        "number), with the median number and with the largest"
    )
    if isinstance(scores, NextWords):
        return (
            f"Words, or items, {kind}. The probability of being the next one is averaged over "
            f"draws; {_Z} standard deviations of it to each side say how sure it is."
        )
    if isinstance(scores, Scores):
        return (
            f"The columns with the largest probability of a one {kind}. The probability itself is "
            "uncertain: it lies in its interval with 90 % under the fitted distribution."
        )
    return (
        f"The columns with the largest expected value {kind}. A value lies in its interval with "
        "90 %."
    )


class _Known(NamedTuple):
    """The cells that rows have: positions, ids of columns or None, values or None."""

    rows: np.ndarray
    columns: np.ndarray
    names: np.ndarray | None
    values: np.ndarray | None = None


def _known(posterior: Answers) -> _Known:
    data = posterior.data
    if isinstance(data, Tokens):
        blocks = topic_blocks(posterior)
        rows, columns = (np.asarray(data.columns[name]) for name in (blocks.document, blocks.word))
        return _Known(rows, columns, data.names.get(blocks.word))
    if isinstance(data, Entries):
        rows, columns, values = map(np.asarray, (data.rows, data.columns, data.values))
        return _Known(rows, columns, data.column_names, values)
    ones = data.to_scipy().tocoo()
    return _Known(ones.row, ones.col, data.column_names)


def _typical_counts(counts: np.ndarray) -> np.ndarray:
    """Rows at the 10 % quantile, the median and the maximum of the number of entries."""
    some = np.flatnonzero(counts)
    order = some[np.argsort(counts[some], kind="stable")]
    chosen: np.ndarray = order[[order.size // 10, order.size // 2, order.size - 1]]
    return np.unique(chosen)


def _row_id(posterior: Answers, top: Recommendations, index: int) -> str:
    word = topic_blocks(posterior).document if isinstance(posterior.data, Tokens) else "row"
    if top.row_names is None:
        return f"{word} {top.rows[index]}"
    return str(top.row_names[index])


def _has(known: _Known, row: int) -> str:
    """Description of a row: its highest values, or most frequent words."""
    here = np.flatnonzero(known.rows == row)
    columns, index, counts = np.unique(known.columns[here], return_inverse=True, return_counts=True)
    values = counts if known.values is None else np.bincount(index, known.values[here])
    has_values = known.values is not None or values.max(initial=0) > 1
    names = columns if known.names is None else known.names[columns]
    shown = [
        f"{names[best]} ({values[best]:g})" if has_values else str(names[best])
        for best in np.argsort(-values, kind="stable")[:_NUM_COLUMNS]
    ]
    more = f", and {columns.size - len(shown)} more" if columns.size > len(shown) else ""
    return f"has {', '.join(shown)}{more}"


def _topics_of(shares: np.ndarray) -> str:
    """The topics of a document with the largest parts, as a sentence."""
    best = np.argsort(-np.nan_to_num(shares), kind="stable")[:3]
    parts = [f"{topic} ({shares[topic]:.0%})" for topic in best if shares[topic] > 0.05]
    return f"; topics {', '.join(parts)}" if parts else ""


def intervals(
    posterior: Answers, top: Recommendations
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower end, value and upper end of 90 % intervals of recommendations, (R, n) each.

    NaN where a row has fewer left.
    """
    scores = top.scores
    if isinstance(scores, Scores):
        model = posterior.model
        none = np.zeros_like(scores.sd)
        ends = (scores.mean + sign * _Z * scores.sd for sign in (-1, 1))
        low, high = (np.asarray(model.probability(end, none), float) for end in ends)
        return low, np.asarray(scores.probability, float), high
    if isinstance(scores, NextWords):
        middle = np.asarray(scores.probability, float)
        low, high = (np.clip(middle + sign * _Z * scores.sd, 0, 1) for sign in (-1, 1))
        return low, middle, high
    there = top.columns >= 0
    rows = np.broadcast_to(top.rows[:, None], there.shape)[there]
    found = np.full((3, *there.shape), np.nan)
    if rows.size:
        prediction = posterior.predict(Positions(rows, top.columns[there]), quantiles=(0.05, 0.95))
        found[:, there] = prediction.quantiles[0], prediction.mean, prediction.quantiles[1]
    return found[0], found[1], found[2]
