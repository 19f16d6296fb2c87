"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

Folder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
NewRows = Annotated[
    Path | None,
    typer.Option(
        help="New rows, by their first entries: a file as `fit` reads it. A row with an id that "
        "the run has is taken as a new one as well."
    ),
]
RowFeatures = Annotated[
    Path | None,
    typer.Option(
        "--row-features",
        "--user-features",
        help="Side information of the new rows, of a run that was fitted with such: .csv with its "
        "headings, ids first. Without --new-rows they are rows of which no cell is known.",
    ),
]
ColumnFeatures = Annotated[
    Path | None,
    typer.Option(
        "--column-features",
        "--item-features",
        help="Side information of new columns, such as items without a rating, likewise. "
        "Answers are then about these columns.",
    ),
]
MissingFeatures = Annotated[
    str, typer.Option(help="Of ids and cells without features: refuse, or zero.")
]
Form = Annotated[
    str | None,
    typer.Option(
        help="How a .csv is read: of ones and words pairs, baskets or matrix, of ratings triples "
        "or matrix; seen unless given."
    ),
]
Headings = Annotated[
    bool | None,
    typer.Option(help="Whether pairs or triples have a line of headings; seen unless given."),
]
Key = Annotated[str | None, typer.Option(help="Which array of an .npz file.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Which columns of a table are read, by heading or by number from 1, with commas "
        "between: of ratings row, column, value (and time); of a matrix ids and data.",
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Columns of a matrix that are left out, named likewise."),
]
Recode = Annotated[
    str | None,
    typer.Option(
        metavar="WORD=NUMBER,...",
        help="What words or codes in cells of a table of numbers stand for: agree=4,abs=,99= where "
        "no number is a missing cell; =0 of empty cells.",
    ),
]
Titles = Annotated[
    Path | None,
    typer.Option(
        help="CSV with ids of columns (items, words) first and their titles second, or under the "
        "heading title."
    ),
]
At = Annotated[
    float | None,
    typer.Option("--at", help="A time of a series, any number; its last unless given."),
]
Shape = Annotated[
    str | None, typer.Option(help="HEIGHTxWIDTH if rows are images, such as 8x8.", metavar="HxW")
]


def read_shape(text: str | None) -> tuple[int, int] | None:
    """Height and width as they are written, 8x8.

    Raises:
        ValueError: the text is not two counts with an x between them.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)\s*[x×,]\s*(\d+)", text.strip().lower())
    if match is None or 0 in (shape := tuple(map(int, match.groups()))):
        raise ValueError(f"--image-shape {text!r}: write HEIGHTxWIDTH, such as 8x8")
    return shape[0], shape[1]


def read_names(text: str | None) -> list[str] | None:
    """Headings as they are written with commas between; one with a comma in it stands in quotes."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def read_recode(text: str) -> dict[str, float | None]:
    """Numbers that words stand for, as they are written with commas between, a=1,b=.

    Raises:
        ValueError: no word, or what it stands for is no number.
    """
    found: dict[str, float | None] = {}
    for part in read_names(text) or []:
        word, separator, value = part.rpartition("=")
        try:
            found[word.strip()] = float(value) if value.strip() else None
        except ValueError:
            separator = ""
        if not separator or not (word + value).strip() or "=" in word:
            raise ValueError(
                f"--recode {part!r}: write WORD=NUMBER, or WORD= for a missing cell, with commas "
                "between"
            )
    return found


def read_levels(text: str) -> tuple[float, ...]:
    """Levels of quantiles, separated by commas.

    Raises:
        ValueError: no numbers between 0 and 1.
    """
    try:
        levels = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--quantiles {text!r}: write numbers such as 0.05,0.5,0.95") from None
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles {text!r}: levels lie between 0 and 1")
    return levels


def read_ids(texts: list[str], names: np.ndarray | None, word: str = "row") -> np.ndarray:
    """Ids as the data has them, from how they are written; positions where it has none.

    Raises:
        ValueError: an id that the data lacks, of data whose ids are whole numbers; a position that
            is none.
    """
    known = {} if names is None else {str(name): name for name in names.tolist()}
    if names is not None and not all(isinstance(name, int) for name in known.values()):
        found = np.empty(len(texts), object)
        found[:] = [known.get(text, text) for text in texts]
        return found
    try:
        return np.array([int(text) for text in texts])
    except ValueError:
        kind = "ids" if names is not None else "positions, as the data has no ids,"
        raise ValueError(f"{word}s {texts}: the {kind} of {word}s are whole numbers") from None


def start_compilation_cache() -> None:
    """Keeps compiled programs for the next command, in JAX's own folder if it was given one."""
    import jax

    from jaxmf.engine.disk_cache import use_compilation_cache

    if not jax.config.jax_compilation_cache_dir:
        use_compilation_cache()


_AS_OPTIONS = (
    (r"(use|drop)_columns=\[[^\]]*\], --", "--"),
    (r"recode=\{[^}]*\}, --", "--"),
    ("Add it, with NaN where its cells were not", "Add it, with empty cells where nothing was"),
    (
        r"Got unexpected extra arguments? ?(?:\(s\) )?\((\S+)[^)]*\)",
        r"one file is read at a time (or, of texts, a folder of .txt files), and \1 is further; "
        "of several make one first, with one line of headings",
    ),
    ("^n must be", "-n must be"),
    ("of answers 1 to V pass answer - 1", "of answers 1 to V pass --recode 1=0,2=1,... up to V"),
    (r"use \"error\" or \"drop\", or new_rows=", "use error or drop, or --new-rows"),
    (
        r"For a row without ones pass .*$",
        "For a customer without items write a line with the id and a comma (`id,`) in a file of "
        "--new-rows with --form baskets.",
    ),
    (
        "has no cells to predict; see top_entries, transform and document_completion",
        "has no cells to predict; jaxmf show has the topics of --documents and of --new-rows, "
        "jaxmf recommend the likeliest next words",
    ),
    ('criterion="loo"', "--criterion loo"),
    ('held_out=truth, criterion="squared_error"', "--criterion squared_error"),
    (
        r"score\s+held_out\s+documents",
        "score documents that no run has seen (in Python, mf.compare(runs, held_out=documents))",
    ),
    (r"score\s+held_out\s+data", "score cells that all runs hide (fit --hold-out .1)"),
    (r"(?s)unknown='prior' (answers.*?), new_rows= ", r"--unknown prior \1, --new-rows "),
    (r"(row|column)_features= from", r"--\1-features from"),
    ("use_columns", "--columns"),
    ("drop_columns", "--drop"),
    (r'missing="zero"', "--missing-features zero"),
    (r"(from its\s+checkpoint)\s+with\s+resume=True if it has one", r"\1 with --resume"),
    (r'unknown="drop"', "--unknown drop"),
    (r"form='(\w+)'", r"--form \1"),
    ("headings=False, --no-headings", "--no-headings"),
    (r"num_warmup=(\d+),(\s+)num_samples=(\d+)", r"--warmup \1\2--samples \3"),
    (r"^(warning: )?num_(warmup|samples|chains|epochs|particles|runs|validation) ", r"\1--\2 "),
    (r'missing: must be "refuse" or "zero"', "--missing-features must be refuse or zero"),
    (r'^unknown: takes "(\w+)" or "(\w+)" here', r"--unknown takes \1 or \2 here"),
    ("Use what it was started with, or another folder$", r"\g<0> (--out); --overwrite replaces it"),
    (r"num_(warmup|samples|chains|epochs|particles|runs)=(\d+)", r"--\1 \2"),
    (r"\b(bias|column_noise)=True", r"--set \1=true"),
    (r"(split_merge|rejuvenate_every)=(\d+)(, or mf\.sample)?", r"--set \1=\2"),
    (
        r"\w+\((word_concentration)=dist\.(\w+\([^()]*\))\)(,\s+which is\s+learned)",
        r"--set '\1=\2'\3",
    ),
    (r"(\w+)=mf\.(\w+\([^()]*(?:\([^()]*\))?[^()]*\))", r"--set '\1=\2'"),
)


def as_options(words: str, arguments: Sequence[str] = ()) -> str:
    """Messages with the arguments that they name or advise as the command line has them.

    Args: arguments: of the command, of which one that a message is about stands with its file.
    """
    for argument, option in _AS_OPTIONS:
        words = re.sub(argument, option, words)
    for option, value in pairwise(arguments):
        name = option.removeprefix("--").replace("user", "row").replace("item", "column")
        about = rf"^(warning: )?{re.escape(name.replace('-', '_'))}: "
        found = re.match(about, words) if option.startswith("--") else None
        if found is not None:
            words = f"{found[1] or ''}{option} {value}: {words[found.end() :]}"
    return words
