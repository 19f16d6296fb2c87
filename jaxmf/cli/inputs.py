"""What `fit` reads from files, and what it hides of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.cli.options import read_ids, read_names, read_recode
from jaxmf.registry.entry import Entry

if TYPE_CHECKING:
    from jaxmf.data import Container, Dense, Entries, Features
    from jaxmf.results import Posterior
    from jaxmf.types import Names, PyTree

    SidesNames = tuple[Names | None, Names | None]

RUN = "the run"
"""What has ids that no file brings."""


def read_data(
    path: Path,
    container: Any,
    model: object,
    reading: dict[str, Any],
    noted: dict[str, object] | None = None,
) -> Any:
    """The data of a file; `reading` holds the options that say how, None where not given.

    Args: noted: receives how the file was read, so that others can be read in the same way.
    """
    from jaxmf import data as containers

    form = ("form", "columns", "drop", "key")
    what, takes = {
        containers.SparseBinary: ("ones", (*form, "recode", "headings", "mask", "items")),
        containers.SparseSeries: ("a series", ("headings", "columns")),
        containers.Entries: ("ratings", (*form, "recode")),
        containers.Tokens: ("documents and words", (*form, "vocab")),
    }.get(container, ("a matrix of numbers", (*form[1:], "recode")))
    for name, value in reading.items():
        if value is not None and name not in takes:
            raise ValueError(
                f"--{name} is not for files of {what}, as this model takes; leave it out"
            )
    options = {name: reading.get(name) for name in takes}
    files = [str(options[name]) for name in ("mask", "vocab") if options.get(name) is not None]
    if "columns" in options:
        options["use_columns"] = read_names(options.pop("columns"))
    if "drop" in options:
        options["drop_columns"] = read_names(options.pop("drop")) or ()
    recode = options.get("recode")
    if recode is not None:
        options["recode"] = read_recode(recode)
    try:
        return _read(path, container, model, options, noted)
    except (TypeError, ValueError) as error:
        if path.name in str(error) or any(name in str(error) for name in files):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{path}: {str(error).removeprefix('data: ')}") from None


def first_few(texts: list[str]) -> str:
    """The first of some ids, for a message."""
    return ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def _read(
    path: Path,
    container: Any,
    model: Any,
    options: dict[str, Any],
    noted: dict[str, object] | None,
) -> Container:
    """The data of a file, by the reader of its container."""
    from jaxmf import data as containers

    if container is containers.SparseBinary:
        return containers.read_ones(path, **options, noted=noted)
    if container is containers.SparseSeries:
        return containers.read_series(path, **options)
    if container is containers.Entries:
        return containers.read_entries(path, **options, noted=noted)
    if container is containers.Tokens:
        columns, real = model.token_columns()
        vocabulary = options.pop("vocab")
        return containers.read_tokens(
            path, columns=columns, real=real, vocabulary=vocabulary, **options, noted=noted
        )
    return containers.as_container(containers.read_matrix(path, **options), container)


def describe(data: Container) -> str:
    """The data as they were read, to be compared with the file."""
    from jaxmf.data import Dense, Entries, SparseBinary, Tokens

    if isinstance(data, Tokens):
        sides = (
            f"{size:,} {label}s{_examples(data.names.get(label))}"
            for label, size in data.sizes.items()
        )
        return f"{data.num_tokens:,} tokens of {', '.join(sides)}"
    if not isinstance(data, (Dense, Entries, SparseBinary)):
        return str(data)
    rows, columns = data.shape
    size = (
        f"{rows:,} rows{_examples(data.row_names)} and {columns:,} columns"
        f"{_examples(data.column_names)}"
    )
    if isinstance(data, SparseBinary):
        return f"{len(data.rows):,} ones in {size}"
    values = np.asarray(data.values)
    if isinstance(data, Entries):
        return f"{len(values):,} values from {values.min():g} to {values.max():g} in {size}"
    known = np.ones(values.shape, bool) if data.observed is None else np.asarray(data.observed)
    there = values[known]
    gaps = f"{known.size - known.sum():,} of {known.size:,} cells missing"
    return f"{size}, {gaps}, values from {there.min():g} to {there.max():g}"


def describe_features(name: str, features: Features, data: Container) -> str:
    """Side information as it was read, and whether it has lines about what is not in the data.

    Args: name: the setting that it is for, row_features or column_features.
    """
    side = name.partition("_")[0]
    text = f"features of {features.num_rows:,} {side}s: {first_few(list(features.labels[:8]))}"
    in_data = getattr(data, f"{side}_names", None)
    if features.ids is None or in_data is None:
        return text
    others = sorted(set(features.ids.tolist()) - set(in_data.tolist()), key=str)
    if not others:
        return text
    some = first_few([repr(each) for each in others[:4]])
    return f"{text}; left out, as the data lacks them: {some} ({len(others):,} in all)"


def _examples(names: Names | None) -> str:
    return "" if names is None else f" ({first_few([str(name) for name in names[:4].tolist()])})"


def read_titles(path: Path, data: Container) -> dict[object, str]:
    """Titles by the ids that columns, or words, have in a run.

    Raises:
        ValueError: a file with one column, or whose first line is no headings; ids that the run
            does not have.
    """
    from jaxmf.data import Tokens, read_columns
    from jaxmf.data.headed_tables import read_headings
    from jaxmf.data.headings import column_of_ids

    headings = read_headings(path)
    headings = headings[column_of_ids(headings) :]
    if len(headings) < 2:
        raise ValueError(f"--titles {path}: two columns are needed, ids and titles")
    if isinstance(data, Tokens):
        known = data.names.get("word")
    else:
        known = data.column_names
    texts = {} if known is None else {str(name): name for name in known.tolist()}
    if headings[0] in texts:
        raise ValueError(
            f"--titles {path}: its first line is {headings}, a title already; write a line of "
            "headings above it, such as id,title"
        )
    heading = next((each for each in headings if each.lower() == "title"), headings[1])
    columns = read_columns(path, (headings[0], heading))
    pairs = zip(columns[headings[0]].tolist(), columns[heading].tolist(), strict=True)
    found = {texts.get(str(name), name): str(title) for name, title in pairs}
    if known is not None and not any(name in found for name in known.tolist()):
        raise ValueError(
            f"--titles {path}: the run has none of its ids, {first_few(list(map(str, found)))}; "
            f"those of the run are {first_few(list(texts))}"
        )
    return found


def read_cells(
    path: Path, data: Any, names: SidesNames | None = None, chosen: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of cells from a file with headings, by id where the data has ids.

    Args:
        path: the file.
        data: of the run.
        names: ids of the rows and columns that the cells are in; None for those of the data.
        chosen: the columns that data like these are read from, row and column first.
    Raises:
        ValueError: a file without headings; ids that cannot be those of the data.
    """
    from jaxmf.data import Dense, read_columns
    from jaxmf.data.headed_tables import read_headings
    from jaxmf.data.headings import roles
    from jaxmf.data.text_tables import is_numeric

    sides = ("row", "column")
    names = names or (data.row_names, data.column_names)
    headings = read_headings(path)
    named = (read_names(chosen) or [])[:2]
    if len(named) == 2 and not isinstance(data, Dense) and set(named) <= set(headings):
        sides = (named[0], named[1])
    elif not any(side in headings for side in sides) and len(headings) > 1:
        # headings of one's own, such as those of the ratings: the first two columns
        for text, known in zip(headings, names, strict=False):
            is_cell = is_numeric(text) if known is None else text in set(map(str, known.tolist()))
            if is_cell:
                raise ValueError(
                    f"{path}: its first line is {headings}, a cell; write a line of headings above "
                    "it, such as row,column"
                )
        # a matrix was not read by headings
        stated = None if isinstance(data, Dense) else roles(headings, with_value=False)
        first, second = (0, 1) if stated is None else stated[:2]
        sides = (headings[first], headings[second])
    columns = read_columns(path, sides)
    found = [
        read_ids([str(each) for each in columns[heading]], known, word)
        for heading, known, word in zip(sides, names, ("row", "column"), strict=True)
    ]
    return found[0], found[1]


def check_known(
    cells: tuple[np.ndarray, np.ndarray],
    posterior: Posterior,
    path: Path,
    *,
    unknown: str,
    names: SidesNames,
    sources: tuple[str, str] = (RUN, RUN),
) -> None:
    """Refuses cells whose row or column is not known, or says which are left out.

    Args: path: of the file of cells; unknown: error, drop or prior; names: ids of the rows and
    columns that the cells are in; sources: what has these, the run or a file.
    Raises ValueError: the file of cells has such an id, and is not to drop it.
    """
    from jaxmf.posterior.unknown_ids import answers_unknown

    sides = zip(cells, ("row", "column"), names, sources, strict=True)
    for ids, word, known, where in sides:
        if unknown == "drop":
            say_dropped(f"{word}s of the cells", ids, known, where.rstrip(","))
        lacking = _lacking(ids, known)
        if lacking and (unknown == "error" or (unknown == "prior" and where != RUN)):
            remedy = ", --unknown prior answers them by the prior"
            remedy *= (sources[0], where) == (RUN, RUN) and answers_unknown(posterior, word)
            there = [] if known is None else [repr(name) for name in known[:4].tolist()]
            raise ValueError(
                f"{path}: no {word} has the id {lacking[0]!r}; {where} has {word}s "
                f"{first_few(there)}. Correct it; --unknown drop leaves such cells out{remedy}"
            )


def say_dropped(
    what: str, ids: np.ndarray | None, known: np.ndarray | None, where: str = RUN
) -> None:
    """Says which ids are left out because they are not known, if any."""
    lacking = _lacking(ids, known)
    if ids is not None and lacking:
        count = f"{len(lacking):,} of {len(set(ids.tolist())):,} {what}"
        shown = ", ".join(map(repr, lacking[:5])) + ", ..." * (len(lacking) > 5)
        print(f"jaxmf: {count} are not in {where} and are left out: {shown}", file=sys.stderr)


def say_known(what: str, ids: np.ndarray | None, known: np.ndarray | None) -> None:
    """Says how many new rows or columns have an id of the run, if any."""
    new, there = (set() if each is None else set(each.tolist()) for each in (ids, known))
    if new & there:
        print(
            f"jaxmf: {len(new & there):,} of {len(new):,} {what} are in the run too; they are "
            "taken as new ones, of which nothing but features is known",
            file=sys.stderr,
        )


def _lacking(ids: np.ndarray | None, known: np.ndarray | None) -> list[object]:
    """The ids that are not known, each once; none where one of the sides has no ids."""
    if ids is None or known is None:
        return []
    there = set(known.tolist())
    return [each for each in dict.fromkeys(ids.tolist()) if each not in there]


def read_features(entry: Entry, files: dict[str, Path | None], missing: str) -> dict[str, Features]:
    """Side information by the setting of the model that it is for."""
    from jaxmf import registry
    from jaxmf.data import read_features

    passed = {name: path for name, path in files.items() if path is not None}
    known = {each.name for each in registry.model_settings(entry)}
    for name in passed:
        if name not in known:
            raise ValueError(
                f"--{name.replace('_', '-')}: {entry.name} takes no side information; leave it out"
            )
    return {name: read_features(path, missing=missing) for name, path in passed.items()}


def check_shape(shape: tuple[int, int] | None, data: Any) -> None:
    """Refuses images with more or fewer cells than a row has.

    Raises:
        ValueError: height times width is not the number of columns.
    """
    if shape is not None and shape[0] * shape[1] != data.num_columns:
        raise ValueError(
            f"--image-shape {shape[0]}x{shape[1]} has {shape[0] * shape[1]} cells, "
            f"the data has {data.num_columns} columns"
        )


def check_hold_out(container: type[Container], share: float) -> None:
    """Refuses to hide cells of data that has none to hide.

    Raises:
        ValueError: it is no share; data of that kind.
    """
    if not 0 <= share < 1:
        raise ValueError(f"--hold-out {share}: a share between 0 and 1")
    from jaxmf.data import Dense, Entries, SparseBinary, SparseSeries, Tokens

    if share and container not in (Dense, Entries):
        other = "; use --validation ROWS" if container in (SparseBinary, SparseSeries) else ""
        if container is Tokens:
            other = (
                "; leave documents out of the file, and score them in Python by "
                "post.document_completion(documents) or mf.compare(posts, held_out=documents)"
            )
        raise ValueError(
            "--hold-out hides cells of a matrix or ratings, not of "
            f"{container.__name__} data{other}"
        )


def hide(data: Any, share: float, seed: int) -> tuple[Container, PyTree]:
    """Hide a share of the observed cells, the same ones of a matrix and of the list of its cells.

    Returns:
        The data; and the matrix as it was, of ratings the hidden ones as `Entries`. None where
        nothing is hidden.
    """
    check_hold_out(type(data), share)
    if share == 0:
        return data, None
    from jaxmf.data import Dense, Entries

    if not isinstance(data, Entries):
        truth = data.to_array()
        values, (rows, columns) = truth.copy(), np.nonzero(np.isfinite(truth))
        chosen = _chosen_cells(data, rows, columns, share, seed)
        values[rows[chosen], columns[chosen]] = np.nan
        return Dense(values, row_names=data.row_names, column_names=data.column_names), truth
    rows, columns, values = map(np.asarray, (data.rows, data.columns, data.values))
    hidden = _chosen_cells(data, rows, columns, share, seed)
    kept = np.delete(np.arange(data.num_entries), hidden)
    parts = []
    for some in (kept, hidden):
        names = {"row_names": data.row_names, "column_names": data.column_names}
        parts.append(Entries(rows[some], columns[some], values[some], data.shape, **names))
    return parts[0], parts[1]


def _chosen_cells(
    data: Dense | Entries, rows: np.ndarray, columns: np.ndarray, share: float, seed: int
) -> np.ndarray:
    """Positions of a share of the cells at random, whatever their order and that of ids: ascending.

    A list has its ids in the order of its lines, a matrix in that of its rows and columns.
    """
    num_hidden = round(share * rows.size)
    if not 0 < num_hidden < rows.size:
        raise ValueError(
            f"--hold-out {share}: hides {num_hidden} of {rows.size} observed cells; at least one "
            "has to be hidden, and one to be left"
        )
    chosen = np.random.default_rng([seed, 5]).permutation(rows.size)[:num_hidden]
    by_id = np.lexsort(
        (_ranks_by_id(data.column_names, columns), _ranks_by_id(data.row_names, rows))
    )
    return np.sort(by_id[chosen])


def _ranks_by_id(names: np.ndarray | None, positions: np.ndarray) -> np.ndarray:
    """Ranks of the ids at some positions, as texts; the positions where there are no ids."""
    if names is None:
        return positions
    ranks: np.ndarray = np.unique(np.asarray(names).astype(str), return_inverse=True)[1]
    return ranks[positions]
