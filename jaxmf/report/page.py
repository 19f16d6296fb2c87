"""Writes the page: its order, facts of the run, and pictures of how it went."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from jaxmf import diagnostics
from jaxmf.arguments import check_path, check_text
from jaxmf.data import Entries
from jaxmf.data.convert import complete_matrix
from jaxmf.engine import files
from jaxmf.plot import Plots, check_image_shape
from jaxmf.posterior.quantities import agreed_answers
from jaxmf.posterior.records import sweep_note
from jaxmf.posterior.topic_draws import has_topics
from jaxmf.report import rows, user_data
from jaxmf.report.parts import Picture, RunFacts, Section, Tiles, templates
from jaxmf.samplers import move_schedule

if TYPE_CHECKING:
    from jaxmf.diagnostics import HeldOutError, Summary
    from jaxmf.posterior.answers import Answers

_NOTES = "notes.json"
_TRUTH = "held_out.npz"
_CELLS = ("rows", "columns", "values", "shape")


def report(
    posterior: Answers,
    path: str | Path,
    *,
    image_shape: tuple[int, int] | None = None,
    truth: object = None,
    title: str | None = None,
    titles: object = None,
) -> Path:
    """Write a page with the summary, pictures and facts of a run.

    The page needs no other file: pictures are inside it.

    Args:
        posterior: what the page is about.
        path: the HTML file to write.
        image_shape: (height, width) if rows are images.
        truth: (N, D) the complete matrix, or `Entries` with cells that are missing in the data,
            if their values are known.
        title: heading of the page.
        titles: of columns, or of words, shown instead of their ids: a mapping from ids to
            titles (a Series is read by its index), or one for each in the order of the data.
    Returns:
        The path.
    Raises:
        ValueError: `path` is a folder, an argument does not fit the data, or the run kept no draw.
        OSError: the file cannot be written; an earlier report of this name is as it was.
    """
    target = check_path("path", path)
    if title is not None:
        check_text("title", title)
    if target.is_dir():
        raise ValueError(f"{target} is a folder; name the HTML file to write")
    page = render(posterior, image_shape=image_shape, truth=truth, title=title, titles=titles)
    target.parent.mkdir(parents=True, exist_ok=True)
    files.replace(target, lambda file: file.write(page.encode()))
    return target


def render(
    posterior: Answers,
    *,
    image_shape: tuple[int, int] | None = None,
    truth: object = None,
    title: str | None = None,
    titles: object = None,
) -> str:
    """The page of `report` as a string."""
    posterior.require_draws()
    if image_shape is not None:
        check_image_shape(image_shape, posterior.data.num_columns)
    if truth is not None and not isinstance(truth, Entries):
        truth = complete_matrix(truth, posterior.data, argument="truth")
    error = None
    if truth is not None and posterior.data.num_missing:
        error = diagnostics.held_out_error(posterior, truth)
    summary = posterior.summary()
    name = title or f"{type(posterior.model).__name__}"
    shown = user_data.with_titles(posterior, titles)
    parts = [
        _tiles(posterior, error, summary),
        _summary(posterior, summary),
        user_data.completed(shown, image_shape, truth),
        _features(shown, image_shape),
        user_data.biclusters(shown),
        user_data.topics(shown),
        *user_data.groups(shown),
        user_data.factors(shown),
        rows.recommendations(shown),
        user_data.calibration(posterior, truth, error),
        _traces(posterior),
        _num_features(posterior),
        _cooccurrence(posterior),
        Section("Run", "What is needed to do it again.", [RunFacts(posterior.facts())]),
    ]
    written = datetime.now().strftime("%Y-%m-%d %H:%M")
    method = posterior.meta.method.replace("_", " ")
    moves = move_schedule.describe(posterior.meta.run.get("moves", {}))
    sweep = "".join(f", {note}" for note in (sweep_note(posterior.meta.options), moves) if note)
    lead = f"{posterior.data.describe()}, {method} with {_effort(posterior)}{sweep}"
    return (
        templates()
        .get_template("page.html")
        .render(name=name, lead=lead, parts=parts, written=written)
    )


def write_notes(folder: Path, *, image_shape: tuple[int, int] | None, truth: object) -> None:
    """Keep beside a saved run what a report of it needs and the posterior does not hold."""
    (folder / _NOTES).write_text(json.dumps({"image_shape": image_shape}), encoding="utf-8")
    if truth is None:
        (folder / _TRUTH).unlink(missing_ok=True)
    elif isinstance(truth, Entries):
        cells: dict[str, Any] = {name: np.asarray(getattr(truth, name)) for name in _CELLS}
        np.savez_compressed(folder / _TRUTH, **cells)
    else:
        np.savez_compressed(folder / _TRUTH, truth=np.asarray(truth))


def read_notes(
    folder: Path,
) -> tuple[tuple[int, int] | None, Entries | np.ndarray | None]:
    """Notes of `write_notes`: image shape, and complete matrix or hidden cells; None for none."""
    shape, truth = None, None
    if (folder / _NOTES).exists():
        kept = json.loads((folder / _NOTES).read_text(encoding="utf-8"))["image_shape"]
        shape = None if kept is None else (int(kept[0]), int(kept[1]))
    if (folder / _TRUTH).exists():
        with np.load(folder / _TRUTH, allow_pickle=False) as file:
            is_cells = "truth" not in file.files
            truth = Entries(*(file[name] for name in _CELLS)) if is_cells else file["truth"]
    return shape, truth


def _effort(posterior: Answers) -> str:
    if posterior.is_weighted:
        return f"{posterior.weights.size:,} particles"
    if posterior.is_variational:
        return f"{int(posterior.draws['num_epochs'][0, 0]):,} epochs"
    chains = f"{posterior.num_chains} chain" + ("s" if posterior.num_chains > 1 else "")
    return f"{chains} of {posterior.num_draws:,} draws"


def _tiles(posterior: Answers, error: HeldOutError | None, summary: Summary) -> Tiles:
    tiles = []
    if "num_features" in posterior.draws:
        distribution = posterior.num_features()
        levels = (0.05, 0.95)
        low, high = diagnostics.weighted_quantile(*distribution, levels).tolist()
        count = f"{low}" if low == high else f"{low}–{high}"
        tiles.append((count, "features, 90 % of the posterior"))
    if error is not None and error.num_categories:
        tiles.append(
            (
                f"{error.accuracy:.0%}",
                f"of {error.num_categories:,} held-out categories right; by the most common one of "
                f"the column {error.common_accuracy:.0%}",
            )
        )
    if error is not None and error.num_real:
        less = 100 * (1 - error.rmse / error.column_mean_rmse)
        better = f"{less:.0f} % less" if less >= 0 else f"{-less:.0f} % more"
        tiles.append(
            (
                f"{error.rmse:.3g}",
                f"error on {error.num_real:,} held-out cells{error.unit}; column means: "
                f"{error.column_mean_rmse:.3g} ({better})",
            )
        )
    if posterior.evidence is not None:
        error_text = posterior.evidence.error_text
        tiles.append((f"{posterior.log_evidence:,.1f}", f"log evidence, {error_text}"))
    if not (posterior.is_weighted or posterior.is_variational):
        values = summary.values[:, summary.columns.index("R-hat")]
        if not np.isnan(values).all():
            rhat = float(np.nanmax(values))
            words = "chains agree" if rhat < 1.05 else "chains disagree: see the traces"
            if rhat >= 1.05 and (found := agreed_answers(posterior)):
                words = f"chains agree on {found.subject}, not on every number inside the model"
            tiles.append((f"{rhat:.2f}" if rhat < 10 else "> 10", f"largest R-hat; {words}"))
    where = f"wall time with compilation, on {posterior.meta.device}"
    tiles.append((_duration(posterior.meta.wall_seconds), where))
    return Tiles(tiles)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _summary(posterior: Answers, summary: Summary) -> Section:
    parts = "topics" if has_topics(posterior) else "features"
    words = Markup("Quantities that do not depend on the labels of {}. ").format(parts)
    if "z" in posterior.draws:
        words += Markup(
            "<code>shared[i, j]</code> is the number of features rows i and j have in common, "
            "<code>differ[i, j]</code> of those that one of them alone has. "
        )
    if not (posterior.is_weighted or posterior.is_variational):
        words += "R-hat near 1 says that the chains agree; ESS is the effective number of draws."
    table = Markup(summary._repr_html_())
    return Section("Summary", words, [Markup('<div class="scroll">{}</div>').format(table)])


def _features(posterior: Answers, image_shape: tuple[int, int] | None) -> Section | None:
    if "z" not in posterior.draws:
        return None
    words = (
        "Posterior means of the features in the draw with the highest log joint, most frequent "
        "first, with the share of rows that have each."
    )
    figure = Plots(posterior).features(image_shape=image_shape)
    counts = posterior.features().counts
    described = f"Posterior means of {len(counts)} features in {posterior.data.num_columns} columns"
    if len(counts):
        described += f"; the most frequent is in {counts[0] / posterior.data.num_rows:.0%} of rows"
    content = [Picture(figure, described), *user_data.certain_features(posterior)]
    return Section("Features", words, content)


def _traces(posterior: Answers) -> Section:
    words = (
        "Every draw, one colour a chain. Lines that overlap without drifting are what a chain that "
        "has forgotten its start looks like."
        if not posterior.is_weighted
        else "The filter on its way through the rows. A low effective sample size means that few "
        "particles carry the weight."
    )
    if posterior.is_variational:
        words = "The free energy, an upper bound of -log p(X), after every epoch."
    figure = Plots(posterior).trace()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    described = f"Lines of {', '.join(filter(None, titles))} along the run of {_effort(posterior)}"
    return Section("Traces", words, [Picture(figure, described)])


def _num_features(posterior: Answers) -> Section | None:
    if "num_features" not in posterior.draws:
        return None
    words = "Posterior distribution of the number of features that at least one row has."
    values, probabilities = posterior.num_features()
    described = "Bars: " + ", ".join(
        f"{value} features with probability {probability:.2f}"
        for value, probability in zip(values, probabilities, strict=True)
    )
    bars = Picture(Plots(posterior).num_features(), described)
    return Section("Number of features", words, [bars])


def _cooccurrence(posterior: Answers) -> Section | None:
    if "z" not in posterior.draws:
        return None
    words = (
        "E[ZZ'] over all draws: how many features two rows share. It does not depend on labels; "
        "rows are sorted by the features they have in the reference draw."
    )
    described = (
        f"Heat map: expected number of features that each two of {posterior.data.num_rows} rows "
        "share; blocks are rows with the same features"
    )
    shared = Picture(Plots(posterior).cooccurrence(), described)
    return Section("Shared features", words, [shared])
