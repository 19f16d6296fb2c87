"""The commands about a finished run, and the demo."""

from __future__ import annotations

import csv
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import numpy as np
import typer

from jaxmf.arguments import check_folder
from jaxmf.cli.fitting import check_out
from jaxmf.cli.inputs import check_known, read_cells, read_titles, say_dropped
from jaxmf.cli.new_rows import New, NewFiles, check_options, read_new, reading_of
from jaxmf.cli.options import (
    At,
    ColumnFeatures,
    Columns,
    Drop,
    Folder,
    Form,
    Headings,
    Key,
    MissingFeatures,
    NewRows,
    Recode,
    RowFeatures,
    Shape,
    Titles,
    as_options,
    read_ids,
    read_levels,
    read_shape,
    start_compilation_cache,
)

if TYPE_CHECKING:
    from jaxmf.data import Container, Positions
    from jaxmf.results import Posterior
    from jaxmf.types import Names


def show(
    folder: Folder,
    documents: Annotated[
        bool,
        typer.Option(
            "--documents",
            help="The topics of each document instead, as CSV: shares, then standard deviations.",
        ),
    ] = False,
    new_rows: Annotated[
        Path | None,
        typer.Option(
            help="New documents, or rows, as `fit` reads them: their topics, features, groups or "
            "factors instead, as CSV."
        ),
    ] = None,
    unknown: Annotated[
        str,
        typer.Option(help="Of words and columns of --new-rows that the run lacks: error, drop."),
    ] = "error",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="CSV file of --documents or --new-rows; prints if none."),
    ] = None,
) -> None:
    """Show the summary and the facts of a run, and the topics that it has."""
    if out is not None and not documents and new_rows is None:
        raise ValueError(
            "--out is the file of --documents or --new-rows; give one of them, or leave it out"
        )
    if documents and new_rows is not None:
        raise ValueError(
            "--documents is of the run's texts, --new-rows of others; give one of them"
        )
    if unknown != "error" and new_rows is None:
        raise ValueError("--unknown is of ids in --new-rows; give these, or leave it out")
    if new_rows is not None:
        files = NewFiles(new_rows, None, None)
        posterior, new, _ = _open(folder, None, files, unknown, "refuse", {})
        shares = posterior.transform(new.rows, unknown=unknown)
        _hand_over(shares.table(), out, f"{shares.side}s")
        return
    posterior = _load(folder)
    if documents:
        found = posterior.document_topics()
        columns = {found.column: found.documents}
        for name, parts in (("topic {}", found.mean), ("sd of topic {}", found.sd)):
            columns |= {name.format(k): each for k, each in enumerate(parts.astype(float).T)}
        _hand_over(columns, out, "documents")
        return
    from jaxmf.posterior.topic_draws import has_topics

    print(as_options(str(posterior)))
    print()
    facts = posterior.facts()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}", flush=True)
    if has_topics(posterior):
        print(f"\n{posterior.topics()}")


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of two finished runs or more, of the same data.")
    ],
    criterion: Annotated[
        str | None,
        typer.Option(
            help="loo (each observed cell given all others), or waic; by default the cells that "
            "fit --hold-out hid, where all runs hold out the same ones, and else loo. "
            "squared_error is of the hidden cells and also compares Gaussian with Ordinal."
        ),
    ] = None,
) -> None:
    """Compare runs of the same data by how well they predict single cells of it.

    By cells that all of them hold out (fit --hold-out), if there are such.
    """
    if len({folder.absolute() for folder in folders}) < max(2, len(folders)):
        raise ValueError(f"two folders or more, each once, are compared; got {len(folders)}")
    import jaxmf as mf

    runs = {str(folder): _load(folder) for folder in folders}
    by_error = criterion == "squared_error"
    hidden = _held_out_by_all(runs) if criterion is None or by_error else None
    if hidden is not None:
        cells, values = hidden
        table = mf.compare(runs, held_out=values, cells=cells, criterion=criterion or "loo")
        print("By the cells that all runs hold out; --criterion loo is by the observed ones.")
    elif by_error:
        raise ValueError(
            "--criterion squared_error: these runs do not hold out the same cells; fit them to the "
            "same file with the same --hold-out and --seed"
        )
    else:
        table = mf.compare(runs, criterion=criterion or "loo")
    table.caption = textwrap.fill(as_options(" ".join(table.caption.split())), 88)
    print(table)


def _held_out_by_all(runs: Mapping[str, Posterior]) -> tuple[Positions, np.ndarray] | None:
    """The hidden cells of all runs (M,), and their values; None where they are not the same."""
    from jaxmf.data import Entries, Positions
    from jaxmf.model import PredictsCells
    from jaxmf.report import read_notes

    hidden = []
    for folder, posterior in runs.items():
        truth = read_notes(Path(folder))[1]
        if truth is None or not isinstance(posterior.model, PredictsCells):
            return None
        if isinstance(truth, Entries):
            rows, columns, values = map(np.asarray, (truth.rows, truth.columns, truth.values))
        else:
            rows, columns = posterior.data.missing_cells()
            values = truth[rows, columns]
        order = np.lexsort((columns, rows))
        order = order[np.isfinite(values[order])]  # those that the file has
        hidden.append((rows[order], columns[order], values[order].astype(np.float32)))
    if not all(
        np.array_equal(*pair) for each in hidden for pair in zip(each, hidden[0], strict=True)
    ):
        return None
    rows, columns, values = hidden[0]
    return Positions(rows, columns), values


def predict(
    folder: Folder,
    cells: Annotated[
        Path | None,
        typer.Argument(
            help="CSV with columns row and column, or such as user and item, or these two first; "
            "else the missing cells. With --new-rows, --row-features or --column-features they are "
            "in these."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file; prints if none.")
    ] = None,
    quantiles: Annotated[str, typer.Option(help="Levels, separated by commas.")] = "0.05,0.95",
    unknown: Annotated[
        str,
        typer.Option(
            help="What to do with cells whose row or column is not known: error, drop (leave them "
            "out), or (of bpmf) prior (answer by the prior). Rows of --new-rows and --row-features "
            "and columns of --column-features are known by these files; error or drop are for "
            "the others."
        ),
    ] = "error",
    new_rows: NewRows = None,
    row_features: RowFeatures = None,
    column_features: ColumnFeatures = None,
    missing_features: MissingFeatures = "refuse",
    form: Form = None,
    headings: Headings = None,
    key: Key = None,
    columns: Columns = None,
    drop: Drop = None,
    recode: Recode = None,
    at: At = None,
) -> None:
    """Predict cells: mean, sd and quantiles of each."""
    from jaxmf.posterior.cells import check_cells

    levels = read_levels(quantiles)
    files = NewFiles(new_rows, row_features, column_features)
    stated = {"form": form, "headings": headings, "key": key, "columns": columns, "drop": drop}
    stated["recode"] = recode
    posterior, new, reading = _open(folder, at, files, unknown, missing_features, stated)
    check_cells(posterior)
    chosen = None
    if cells is not None:
        names = new.names(posterior.data)
        chosen = read_cells(cells, posterior.data, names, str(reading.get("columns") or ""))
        sources = files.sources()
        check_known(chosen, posterior, cells, unknown=unknown, names=names, sources=sources)
    found = posterior.predict(
        chosen,
        new_rows=new.rows,
        row_features=new.row_features,
        column_features=new.column_features,
        quantiles=levels,
        unknown=unknown,
    )
    _hand_over(found.table(), out, "predictions")


def recommend(
    folder: Folder,
    rows: Annotated[
        list[str] | None, typer.Argument(help="Ids (or positions) of rows; all if none.")
    ] = None,
    count: Annotated[int, typer.Option("-n", help="How many columns a row.")] = 10,
    by: Annotated[
        str | None, typer.Option(help="score, or probability; the better one of the model if none.")
    ] = None,
    unknown: Annotated[
        str,
        typer.Option(
            help="What to do with ids of rows that the run lacks: error, drop (leave them out), or "
            "(of bpmf) prior (recommend by the prior). With --new-rows of columns that the run "
            "lacks: error, or drop."
        ),
    ] = "error",
    new_rows: NewRows = None,
    row_features: RowFeatures = None,
    column_features: ColumnFeatures = None,
    missing_features: MissingFeatures = "refuse",
    form: Form = None,
    headings: Headings = None,
    key: Key = None,
    columns: Columns = None,
    drop: Drop = None,
    recode: Recode = None,
    titles: Titles = None,
    at: At = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file; prints if none.")
    ] = None,
) -> None:
    """The best columns of rows, without those they are known to have.

    With --column-features the best among these new columns.
    """
    files = NewFiles(new_rows, row_features, column_features)
    stated = {"form": form, "headings": headings, "key": key, "columns": columns, "drop": drop}
    stated["recode"] = recode
    posterior, new, _ = _open(folder, at, files, unknown, missing_features, stated)
    names = _row_names(posterior.data if new.rows is None else new.rows)
    chosen = read_ids(rows, names) if rows else None
    if unknown == "drop" and chosen is not None:
        say_dropped("rows", chosen, names)
    columns_of = posterior.data if new.columns is None else new.columns
    named = None if titles is None else read_titles(titles, columns_of)
    found = posterior.recommend(
        chosen,
        n=count,
        by=by,
        unknown=unknown,
        new_rows=new.rows,
        row_features=new.row_features,
        column_features=new.column_features,
        titles=named,
    )
    _hand_over(found.table(), out, "recommendations")


def _open(
    folder: Path,
    at: float | None,
    files: NewFiles,
    unknown: str,
    missing: str,
    stated: Mapping[str, object],
) -> tuple[Posterior, New, dict[str, object]]:
    """A run, what is new in some files, and how that of new rows is read."""
    check_options(files, unknown, missing, stated)
    posterior = _load(folder, at)
    reading = reading_of(folder, stated, files.rows)
    new = read_new(posterior, files, missing=missing, reading=reading)
    _say_dropped(posterior.data, new.rows, unknown)
    return posterior, new, reading


def _say_dropped(data: Container, new: Container | None, unknown: str) -> None:
    """Which columns, or words, of new rows are left out, as was asked for."""
    from jaxmf.data import Tokens

    if unknown != "drop" or new is None:
        return
    if isinstance(data, Tokens) and isinstance(new, Tokens):
        for label in new.names.keys() - {"document"}:
            say_dropped(f"{label}s of the new rows", new.names[label], data.names.get(label))
    else:
        names, known = (getattr(each, "column_names", None) for each in (new, data))
        say_dropped("columns of the new rows", names, known)


def _row_names(data: Container) -> Names | None:
    """The ids of what is recommended for: rows, or the documents of tokens."""
    from jaxmf.data import Tokens

    return data.names.get("document") if isinstance(data, Tokens) else data.row_names


def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file to write.")] = None,
    image_shape: Shape = None,
    truth: Annotated[
        Path | None, typer.Option(help="The complete matrix, if missing cells are known.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    titles: Titles = None,
) -> None:
    """Write one self-contained HTML page about a run."""
    from jaxmf.data import read_matrix
    from jaxmf.report import read_notes
    from jaxmf.report import report as write_report

    posterior = _load(folder)
    shape, known = read_notes(folder)
    shape = read_shape(image_shape) or shape
    matrix = known if truth is None else read_matrix(truth)
    named = None if titles is None else read_titles(titles, posterior.data)
    path = write_report(
        posterior,
        out or folder / "report.html",
        image_shape=shape,
        truth=matrix,
        title=title,
        titles=named,
    )
    print(path)


def demo(
    out: Annotated[Path, typer.Option(help="Folder the run and its report go to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    progress: Annotated[
        bool | None, typer.Option(help="Show a bar, or lines in a log; --no-progress for none.")
    ] = None,
) -> None:
    """The main job on small images: hidden features, held-out cells predicted, a report."""
    check_out(out, resume=False, overwrite=True)
    from jaxmf.cli import demonstration

    start_compilation_cache()
    path = demonstration.run(out, seed=seed, progress=progress)
    print(f"\nThe report: {path.absolute()}")


def _hand_over(table: dict[str, np.ndarray], out: Path | None, what: str) -> None:
    """A table to a CSV file, or to standard output where there is none."""
    if out is None:
        _write_table(sys.stdout, table)
        return
    with out.open("w", newline="", encoding="utf-8") as file:
        _write_table(file, table)
    print(f"{len(next(iter(table.values()))):,} {what} written to {out}")


def _write_table(file: TextIO, table: dict[str, np.ndarray]) -> None:
    writer = csv.writer(file)
    writer.writerow(table)
    for line in zip(*(column.tolist() for column in table.values()), strict=True):
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line)


def _load(folder: Path, at: float | None = None) -> Posterior:
    """A finished run, at a time of a series."""
    check_folder(folder)  # before JAX is loaded
    import jaxmf as mf

    posterior = mf.load(folder)
    start_compilation_cache()
    return posterior if at is None else posterior.at(at)
