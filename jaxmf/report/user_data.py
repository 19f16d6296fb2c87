"""The parts of the report that show the user's data: what rows have, and what the model adds."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from jaxmf.answers import listed_ids, shortened
from jaxmf.arguments import assign
from jaxmf.data import Entries, Tokens
from jaxmf.data.names import ids_or_positions, titled
from jaxmf.diagnostics import HeldOutError
from jaxmf.model import HasFeatures, HasRowGroups, ShowsColumns
from jaxmf.plot import Plots
from jaxmf.plot.panels import matrix
from jaxmf.plot.topic_map import scale, squared_distances
from jaxmf.posterior.records import largest_columns
from jaxmf.posterior.row_groups import RowGroups
from jaxmf.posterior.topic_draws import has_topics, topic_blocks, word_counts
from jaxmf.posterior.topic_table import NOT_MIXED
from jaxmf.report.parts import Picture, Section, Table, TopicMap, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxmf.posterior.answers import Answers
    from jaxmf.posterior.topic_table import Topics

_SHOWN = 30  # groups, factors, biclusters in a table
_MAPPED = 60  # topics of the map
_NUM_WORDS = 20  # of a topic beside the map
_LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SMALLEST = 0.05  # of a factor's size, beside the largest
_MOST_ROWS = 10_000  # of draws that are compared by their rows
_NUM_IDS = 20  # in lists of a feature or bicluster
_NUM_COLUMNS = 8  # in lists of a factor or group


def with_titles(posterior: Answers, titles: object) -> Answers:
    """The posterior with titles instead of the ids of columns, or words.

    Two columns with one title keep their ids behind it.
    """
    if titles is None:
        return posterior
    data = copy.copy(posterior.data)
    if isinstance(data, Tokens):
        if not has_topics(posterior):
            raise ValueError(
                f"titles: a {type(posterior.model).__name__} of tokens has no words to be named"
            )
        label = topic_blocks(posterior).word
        assign(
            data,
            names=data.names | {label: _unique(data.names.get(label), titles, data.sizes[label])},
        )
    else:
        assign(data, column_names=_unique(data.column_names, titles, data.num_columns))
    return dataclasses.replace(posterior, data=data)


def _unique(names: np.ndarray | None, titles: object, size: int) -> np.ndarray:
    """Titles as texts of which none stands twice."""
    texts = [str(title) for title in titled(names, titles, size).tolist()]
    known, counts = np.unique(np.array(texts, str), return_counts=True)
    twice = set(known[counts > 1].tolist())
    ids = ids_or_positions(names, size).tolist()
    pairs = zip(texts, ids, strict=True)
    return np.array([f"{text} ({name})" if text in twice else text for text, name in pairs], object)


# --- topics and groups ----------------------------------------------------------------------------


def topics(posterior: Answers) -> Section | None:
    """The map of the topics, and their words, of a topic model."""
    if not has_topics(posterior):
        return None
    found = posterior.topics()
    columns = (found.shares, found.share_sd, found.found, found.lists("distinction"))
    lines = [
        (topic, f"{share:.1%} ± {sd:.1%}", f"{part:.0%}", listed_ids(words))
        for topic, (share, sd, part, words) in enumerate(zip(*columns, strict=True))
    ]
    words = (
        f"{len(found):,} topics, averaged over draws. On the map topics with like words are near "
        "each other, and those with many tokens are large. Choose a topic to see its words; a word "
        "under the pointer gives the circles the sizes that the topics have in it. Below, of each "
        "topic: its share of the tokens with its standard deviation over draws, the share of the "
        "draws that have it, and its most relevant words of those that set it apart from others."
    )
    if not found.has_mixed:
        words += f" But {NOT_MIXED}."
    first = listed_ids(found.lists("distinction")[0])
    described = f"Map of {len(found)} topics; topic 0 has {found.shares[0]:.1%} of tokens: {first}"
    still = Picture(Plots(posterior).topics(), described)
    heading = ("topic", "share", "draws", "distinctive words")
    listed = Table(heading, lines[:_SHOWN], "left")
    return Section("Topics", words, [TopicMap(still, _map_data(posterior, found)), listed])


def _map_data(posterior: Answers, found: Topics) -> dict[str, object]:
    """Data of the topic map for the page's script: positions of topics, and words to list."""
    shown = min(len(found), _MAPPED)
    counts = word_counts(posterior, found.words.size)
    phi, shares = found.word_probabilities[:shown], found.shares[:shown]
    log_phi = np.log(np.maximum(phi, np.finfo(float).tiny))
    log_frequency = np.log(np.maximum(counts, 1) / counts.sum())
    # smoothing gives every word to every topic; half a token is the least that is listed
    is_listed = (phi * shares[:, None] * counts.sum() >= 0.5) & (counts > 0)
    candidates = np.zeros(phi.shape, bool)
    for weight in _LAMBDAS:
        score = np.where(is_listed, log_phi - (1 - weight) * log_frequency, -np.inf)
        best = np.argsort(-score, axis=1, kind="stable")[:, :_NUM_WORDS]
        np.put_along_axis(candidates, best, True, axis=1)
    candidates &= is_listed
    joint = phi * shares[:, None]
    kept = candidates | (joint >= 0.02 * joint.sum(axis=0))
    words = [
        {
            "word": str(found.words[word]),
            "count": int(counts[word]),
            "topics": [[int(topic), float(f"{phi[topic, word]:.3g}")] for topic in topics_of_word],
        }
        for word in np.flatnonzero(candidates.any(axis=0))
        for topics_of_word in [np.flatnonzero(kept[:, word])]
    ]
    return {
        "positions": np.round(scale(squared_distances(phi)).positions, 4).tolist(),
        "shares": np.round(shares, 5).tolist(),
        "labels": found.labels()[:shown],
        "words": words,
        "numTokens": int(counts.sum()),
        "numWords": _NUM_WORDS,
        "relevance": found.relevance,
    }


def groups(posterior: Answers) -> list[Section]:
    """The heaviest entries of every group, of a model of groups of tokens or rows."""
    if isinstance(posterior.model, HasRowGroups) and "group_counts" in posterior.draws:
        return [_row_groups(posterior)]
    if not isinstance(posterior.model, ShowsColumns) or has_topics(posterior):
        return []
    sections = []
    for column in posterior.model.shown_columns():
        top = posterior.top_entries(column, n=_NUM_COLUMNS)
        lines = [
            (group, f"{share:.1%}", listed_ids(entries))
            for group, (share, entries) in enumerate(zip(top.shares, top.lists(), strict=True))
        ]
        words = (
            "The groups of the draw with the highest log joint, largest first, with their share of "
            f"the tokens and what is heaviest in each. {len(lines):,} in all."
        )
        shown = Table(("group", "share", f"{column}s"), lines[:_SHOWN], "left")
        sections.append(Section(f"Groups by {column}", words, [shown]))
    return sections


def _row_groups(posterior: Answers) -> Section:
    """Sizes, typical rows and means of the groups of rows of a mixture."""
    found = posterior.groups()
    heading, *lines = found.lines()
    typical = typical_rows(posterior, found)
    shown = [
        (group, rows, weight, listed_ids(ids), *means)
        for (group, rows, weight, *means), ids in zip(lines, typical, strict=True)
    ]
    words = (
        "The groups of the draw with the highest log joint, largest first: rows, probability of a "
        "further row, the rows nearest to the mean of the group, and means with their standard "
        f"deviations. {len(lines):,} in all. The picture has the means of columns, less the mean "
        "of all rows, in standard deviations of the column."
    )
    values = posterior.data.to_array()
    spread = np.nanstd(values, axis=0)
    centred = (found.mean - np.nanmean(values, axis=0)) / np.where(spread > 0, spread, 1)
    titles = [f"{group}: {int(count)} rows" for group, count in enumerate(found.counts[:_SHOWN])]
    described = f"Heat map: means of {len(titles)} groups of rows in {values.shape[1]} columns"
    means = Picture(
        matrix(centred[:_SHOWN], titles, "group", posterior.data.column_names), described
    )
    cells = Table(
        ("group", "rows", "probability", "typical rows", *heading[3:]), shown[:_SHOWN], "left"
    )
    return Section("Groups of rows", words, [means, cells])


def typical_rows(posterior: Answers, found: RowGroups, n: int = 4) -> list[list[object]]:
    """The ids, or positions, of the rows of each group that are nearest to its mean.

    Nearest by the mean square over known columns of the deviation in standard deviations of the
    group. A row belongs to the group that it is in, or where the run did not keep that, to the
    most probable one.
    """
    values = posterior.data.to_array()
    labels = found.group_of_rows
    if labels is None:
        labels = posterior.transform(posterior.data)[:, : len(found.slots)].argmax(axis=1)
    names = ids_or_positions(posterior.data.row_names, len(values))
    lists = []
    for group, (mean, sd) in enumerate(zip(found.mean, found.sd, strict=True)):
        members = np.flatnonzero(labels == group)
        deviations = (values[members] - mean) / np.where(sd > 0, sd, 1)
        seen = np.isfinite(deviations)
        total = np.where(seen, deviations, 0) ** 2
        distances = total.sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        lists.append(names[members[np.argsort(distances, kind="stable")[:n]]].tolist())
    return lists


# --- matrices -------------------------------------------------------------------------------------


def completed(
    posterior: Answers, image_shape: tuple[int, int] | None, truth: object
) -> Section | None:
    """Rows with missing cells, as they are and filled in; of complete data as reconstructed."""
    model, data = posterior.model, posterior.data
    if posterior.is_variational or not isinstance(model, HasFeatures):
        return None
    size = f"{data.num_rows} x {data.num_columns} matrix"
    figure: Figure
    if data.num_missing:
        words = "Rows with missing cells (grey), and the same rows with their posterior means."
        whole = None if isinstance(truth, Entries) else truth
        figure = Plots(posterior).completed(
            image_shape=image_shape, truth=whole, max_rows=12 if image_shape else 40
        )
        described = f"Rows of the {size} with missing cells, and completed by the model"
        return Section("Given and completed", words, [Picture(figure, described)])
    words = "Some rows as they were observed and the posterior mean of their features added up."
    figure = Plots(posterior).reconstruction(image_shape=image_shape, truth=truth)
    described = f"Rows of the {size} as observed, and as the model reconstructs them"
    return Section("Observed and reconstructed", words, [Picture(figure, described)])


def certain_features(posterior: Answers) -> list[object]:
    """The features that draws agree on, with the rows that have them: words, and a table."""
    if not isinstance(posterior.model, HasFeatures) or posterior.data.num_rows > _MOST_ROWS:
        return []
    found = posterior.certain_features()
    lines = [
        (
            feature,
            f"{found.probabilities[feature]:.2f}",
            f"{found.row_probabilities[feature].sum():.1f}",
            shortened(found.rows(feature), _NUM_IDS),
            largest_columns(found.mean[feature], found.column_names, found.column_units),
        )
        for feature in range(min(len(found), _SHOWN))
    ]
    if not lines:
        return [Markup("<p>No feature is in half of the draws or more.</p>")]
    words = (
        "Features that are in half of the draws of all chains or more: how probable each is, the "
        "rows that have it with a probability above one half, and the columns in which it is "
        "largest."
    )
    heading = ("feature", "probability", "number of rows", "rows", "largest in")
    return [Markup("<p>{}</p>").format(words), Table(heading, lines, "left")]


def biclusters(posterior: Answers) -> Section | None:
    """The matrix sorted by its biclusters, and their rows and columns."""
    if "biclusters" not in Plots(posterior).available():
        return None
    found = posterior.biclusters()
    if len(found) == 0:
        return None
    heading, *lines = found.lines()
    words = (
        "Blocks of rows and columns that belong together, in the draw with the highest log joint. "
        "Listed are blocks whose weight (what they add to a cell) is larger than its uncertainty, "
        f"{len(lines):,} in all, the surest first. Found is the share of all draws that have both "
        "of its features. The numbers in the picture are those of the table."
    )
    _, weight, _, num_rows, num_columns, *_ = lines[0]
    described = (
        f"Heat map of {posterior.data.num_rows} rows and {posterior.data.num_columns} columns "
        f"sorted by {len(lines)} biclusters; the surest has {num_rows} rows and {num_columns} "
        f"columns with weight {weight}"
    )
    heat_map = Picture(Plots(posterior).biclusters(), described)
    listed = [
        (*line[:-2], *(shortened(found.ids(index, side), _NUM_IDS) for side in ("row", "column")))
        for index, line in enumerate(lines[:_SHOWN])
    ]
    return Section("Biclusters", words, [heat_map, Table(heading, listed, "left")])


def factors(posterior: Answers) -> Section | None:
    """Sizes of real factors, and the columns at their ends."""
    if "factors" not in Plots(posterior).available():
        return None
    found = posterior.factors()
    has_bounds = found.num_draws > 1
    num_used = int((found.sizes >= _SMALLEST * found.sizes.max(initial=0)).sum())
    lines = [
        (
            factor,
            short(found.sizes[factor]),
            *(["–".join(map(short, found.size_bounds[:, factor]))] if has_bounds else []),
            *(listed_ids(ids) for ids in found.ends(factor, _NUM_COLUMNS)),
        )
        for factor in range(min(num_used, _SHOWN))
    ]
    words = (
        "In what rows and columns differ, beside their biases: the principal components of the "
        "products of their vectors, the largest first. The size of a factor is the root mean "
        "square of what it adds to a cell. Rows with a positive value have larger cells in the "
        "columns under highest, rows with a negative one in those under lowest; the sign itself "
        "means nothing."
    )
    if len(lines) < len(found):
        words += f" Listed are {len(lines)} of {len(found)} factors"
        few = num_used <= _SHOWN
        words += f"; the others have less than {_SMALLEST:.0%} of the largest." if few else "."
    described = "Bars: sizes of factors, " + ", ".join(f"{size:.3g}" for size in found.sizes[:8])
    bars = Picture(Plots(posterior).factors(), described)
    heading = ("factor", "size", *["90 %"] * has_bounds, "highest", "lowest")
    return Section("Factors", words, [bars, Table(heading, lines, "left")])


# --- predictions ----------------------------------------------------------------------------------


def calibration(posterior: Answers, truth: object, error: HeldOutError | None) -> Section | None:
    """Predictions against held-out cells, and coverage of these or of the training cells."""
    has_calibration = "calibration" in Plots(posterior).available()
    if error is None and not has_calibration:
        return None
    pictures, bars = [], "Bars"
    if has_calibration:
        bands = "The grey band and bars have 95 % of such shares if the intervals are right"
        bars = f"{bands} (cells taken as independent). Bars of the last picture"
        figure = Plots(posterior).calibration(None if error is None else truth)
        kind = "training" if error is None else "held-out"
        title = figure.axes[0].get_title(loc="left")
        described = f"Calibration on {kind} cells by level and by standard deviation: {title}"
        pictures.append(Picture(figure, described))
    if error is None:
        words: str = Markup(
            "Shares of the training cells inside their predictive intervals. The model has seen "
            "these cells, so this is better than what new cells would have: hide some "
            "(<code>truth=</code>, <code>--hold-out</code>) to know. Few values, such as whole "
            f"stars, make shares larger than their levels. {bands} (cells taken as independent)."
        )
        return Section("Calibration on training cells", words, pictures)
    hidden = f"{error.num_cells:,} cells were hidden from the model. "
    if error.num_categories:
        hidden += f"{error.category_words}. "
    density = f"mean log predictive density {error.log_likelihood:.3g}. "
    if not error.num_real:
        return Section("Held-out cells", hidden + density.capitalize(), pictures)
    words = (
        f"{hidden}Root mean square error {error.rmse:.3g}, of column means "
        f"{error.column_mean_rmse:.3g}{error.unit}; {density}{bars}: 90 % predictive intervals."
    )
    figure = Plots(posterior).held_out(truth)
    described = f"Predictions against values of held-out cells: {figure.axes[0].get_title()}"
    return Section("Held-out cells", words, [*pictures, Picture(figure, described)])
