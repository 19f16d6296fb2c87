"""New rows and columns of a run, from files: first cells of rows, and what else is known."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from jaxmf.arguments import check_file
from jaxmf.cli.inputs import RUN, first_few, read_data, say_known
from jaxmf.cli.options import read_names

if TYPE_CHECKING:
    from jaxmf.cli.inputs import SidesNames
    from jaxmf.data import Container, Features
    from jaxmf.results import Posterior
    from jaxmf.types import Names


class New(NamedTuple):
    """What a question is about that the run lacks: new rows, or new columns."""

    rows: Container | None = None
    columns: Container | None = None  # without a cell
    row_features: Features | None = None
    column_features: Features | None = None

    def names(self, data: object) -> SidesNames:
        """Ids of the rows and of the columns that are asked about; data: of the run."""
        rows, columns = (data if each is None else each for each in (self.rows, self.columns))
        return cast("Any", rows).row_names, cast("Any", columns).column_names


class NewFiles(NamedTuple):
    """The files that say so: cells and features of new rows, or features of new columns."""

    rows: Path | None
    row_features: Path | None
    column_features: Path | None

    def sources(self) -> tuple[str, str]:
        """What has the ids of rows, and those of columns, as messages call it."""
        columns = RUN
        if self.column_features is not None:
            columns = f"the file of --column-features, {self.column_features},"
        if self.rows is not None:
            return f"the file of --new-rows, {self.rows},", columns
        if self.row_features is not None:
            return f"the file of --row-features, {self.row_features},", columns
        return RUN, columns


_READING = "reading.json"
_FORMAT = 2
_KEPT = ("form", "headings", "key", "columns", "drop", "recode")


def keep_reading(folder: Path, reading: Mapping[str, object]) -> None:
    """Notes in the folder of a run how its file was read, for files of new rows."""
    from jaxmf.engine import manifest

    kept = {name: reading[name] for name in _KEPT if reading.get(name) is not None}
    manifest.write(folder / _READING, {"format": _FORMAT, **kept})


def reading_of(folder: Path, stated: Mapping[str, object], path: Path | None) -> dict[str, object]:
    """How a file like that of a run is read: as is stated, else as that was.

    Args: path: the file; columns that it lacks need neither be read nor left out.
    Raises ValueError: the note in the folder is damaged.
    """
    from jaxmf.data.headed_tables import read_headings
    from jaxmf.data.table_columns import written
    from jaxmf.data.text_tables import is_text
    from jaxmf.engine import manifest

    options = {name: value for name, value in stated.items() if value is not None}
    note = folder / _READING
    if not note.exists():
        return options
    kept = manifest.read(note, version=_FORMAT)
    fields = dict.fromkeys(_KEPT, manifest.is_text) | {"headings": manifest.is_bool}
    manifest.check_fields(str(note), kept, {"format": manifest.is_count}, optional=fields)
    del kept["format"]
    if path is not None and not path.is_dir() and is_text(check_file(path)):
        headings = read_headings(path)
        there = {*headings, *map(str, range(1, len(headings) + 1))}
        for name in ("columns", "drop"):
            names = read_names(cast("str | None", kept.pop(name, None))) or []
            found = [each for each in names if each in there]
            if found and (name == "drop" or found == names):
                kept[name] = written(found)
    return kept | options


def read_new(
    posterior: Posterior, files: NewFiles, *, missing: str, reading: Mapping[str, object]
) -> New:
    """New rows, or columns, and their features from the files that there are, as the run has them.

    Args:
        files: those of features alone are about rows, or columns, of which no cell is known.
        missing: of ids and cells without features, "refuse" or "zero".
        reading: options that say how the file of cells is read, None where not given.
    Raises:
        ValueError: what the readers say; features of a run that was fitted without.
    """
    from jaxmf.model import TakesNewColumns
    from jaxmf.posterior import transposed

    if files.column_features is not None:
        has_sides = isinstance(posterior.model, TakesNewColumns)
        turned = transposed.posterior(posterior) if has_sides else posterior
        features = _features_like(files.column_features, turned.model, None, missing, "column")
        columns = transposed.rows_without_cells(turned, features, None)
        say_known("columns", features.ids, cast("Any", posterior.data).column_names)
        return New(columns=transposed.transpose(cast("Any", columns)), column_features=features)
    new = None
    if files.rows is not None:
        new = read_like(files.rows, posterior, reading)
    if files.row_features is None:
        return New(new)
    names = None if new is None else cast("Any", new).row_names
    features = _features_like(files.row_features, posterior.model, names, missing, "row")
    rows = transposed.rows_without_cells(posterior, features, new)
    return New(cast("Container", rows), row_features=features)


def _features_like(
    path: Path, model: object, names: Names | None, missing: str, side: str
) -> Features:
    """Features whose columns are read as those in training: as numbers, levels or lists of them.

    Args: model: whose rows they are about; names: ids of the new rows, whose types the ids of the
    features take, None where there are no others; side: row, or column of a model turned around.
    """
    from jaxmf.arguments import assign
    from jaxmf.data import read_features
    from jaxmf.data.headed_tables import read_headings
    from jaxmf.data.names import object_array
    from jaxmf.model import TakesRowFeatures

    training = (
        [model.row_features, model.row_classes] if isinstance(model, TakesRowFeatures) else []
    )
    known = [column for each in training if each is not None for column in each.described]
    if not known:
        raise ValueError(
            f"--{side}-features: the run was fitted without features of the {side}s; leave them out"
        )
    headings = set(read_headings(path))
    levels = {each.name: each for each in known if each.level is not None and each.name in headings}
    lists = {name: each.separator for name, each in levels.items() if each.separator is not None}
    features = read_features(
        path,
        categorical=[name for name in levels if name not in lists],
        lists=[*lists],
        separator=next(iter(lists.values()), "|"),
        missing=missing,
    )
    if names is not None and features.ids is not None:
        texts = {str(name): name for name in names.tolist()}
        ids = object_array([texts.get(str(each), each) for each in features.ids.tolist()])
        assign(features, ids=ids)
    return features


def read_like(path: Path, posterior: Posterior, reading: Mapping[str, object]) -> Container:
    """New rows from a file as `fit` would read it, as data of the kind that a run has.

    Ids of columns, or of words, get the type that they have in the run.

    Raises:
        ValueError: what the reader says; no column of the file is one of the run.
    """
    from jaxmf.arguments import assign
    from jaxmf.data import SparseBinary, Tokens

    known = posterior.data
    if isinstance(known, SparseBinary) and known.row_names is not None:
        reading = {**reading, "items": known.column_names}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"data: \d+ columns have no observed cell")
        data: Any = read_data(path, type(known), posterior.model, dict(reading))
    if isinstance(known, Tokens):
        names = {
            label: ids if label == "document" else _as_in_run(path, ids, known.names.get(label))
            for label, ids in data.names.items()
        }
        assign(data, names=names)
    else:
        assign(data, column_names=_as_in_run(path, data.column_names, known.column_names))
    return cast("Container", data)


def _as_in_run(path: Path, names: Names | None, known: Names | None) -> Names | None:
    """Ids as a run has them: a file with `10` alone means the text 10 where the run has texts.

    Raises:
        ValueError: the run has none of them.
    """
    if names is None or known is None:
        return names
    there = {str(name): name for name in known.tolist()}
    texts = [str(name) for name in names.tolist()]
    if texts and not any(text in there for text in texts):
        raise ValueError(
            f"--new-rows {path}: the run has none of its ids of columns, {first_few(texts)}; those "
            f"of the run are {first_few(list(there))}. If it is read wrongly, give --form, "
            "--headings or --columns as for fit"
        )
    from jaxmf.data.names import object_array

    pairs = zip(texts, names.tolist(), strict=True)
    return object_array([there.get(text, name) for text, name in pairs])


def check_options(
    files: NewFiles, unknown: str, missing: str, reading: Mapping[str, object]
) -> None:
    """Refuses options about files that are not there, and --unknown prior of new rows.

    Args: missing: of features; reading: how the file of new rows is read.
    """
    if files.column_features is not None and (files.rows or files.row_features) is not None:
        other = "--row-features" if files.rows is None else "--new-rows"
        raise ValueError(
            f"--column-features is about new columns, {other} about new rows; ask about one of "
            "them at a time"
        )
    if unknown == "prior" and (files.rows or files.row_features) is not None:
        raise ValueError(
            "--unknown prior: nothing can be said of columns of --new-rows that the run lacks; "
            "write --unknown drop to leave them out"
        )
    if (files.row_features or files.column_features) is None and missing != "refuse":
        raise ValueError(
            "--missing-features says what is done where --row-features or --column-features has "
            "gaps; leave it out, or give that file"
        )
    for name, value in reading.items():
        if value is not None and files.rows is None:
            option = f"--no-{name}" if value is False else f"--{name}"
            raise ValueError(
                f"{option} says how the file of --new-rows is read; leave it out, or give that file"
            )
