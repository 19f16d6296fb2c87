"""Bad files through the command line: one line that names the file, status 2, no traceback.

Good files of every form that `jaxmf fit` reads are damaged one way at a time. A refusal is clear
where the error is raised by a line of jaxmf (see `bad_calls`), the one line printed names the file,
and the status is 2. Nothing is run: a file that is accepted is a fault.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse

from benchmarks.harness import Row
from benchmarks.robustness.bad_calls import Outcome, Reached, judge_error, nothing_runs, rows_of

BEFORE = {"accepted": 20, "foreign kind": 17, "foreign origin": 12, "names no argument": 21}
"""How the same files ended at a96d6f3."""
NUM_BEFORE = 185
Content = bytes | Callable[[Path], None] | None


class Form(NamedTuple):
    """A good text file and how it is read.

    Args:
        model: the model's name.
        text: the file.
        option: the option that names the file; empty for the data themselves.
        numbers: whether its last column holds numbers.
        ids: the columns of ids, by position.
        ragged: whether lines of different lengths mean something.
        headings: whether a first line of headings is needed or seen.
    """

    model: str
    text: str
    option: str = ""
    numbers: bool = True
    ids: tuple[int, ...] = (0,)
    ragged: bool = False
    headings: bool = True


_RATINGS = "user,item,stars\nu1,i1,4\nu2,i2,5\nu1,i2,3\n"
_PAIRS = "user,item\nu1,i1\nu2,i2\nu1,i2\n"
FORMS = {
    "matrix": Form("linear-gaussian-ibp", "id,a,b\nr1,1,2\nr2,3,4\nr3,0,1\n"),
    "ratings": Form("bpmf", _RATINGS, ids=(0, 1)),
    "rating-matrix": Form("bi-lda", "id,a,b,c,d\nr1,1,2,3,4\nr2,3,4,5,5\n"),
    # a line without a word is that of a document without one
    "tokens": Form("lda", "document,word\nd1,x\nd2,y\nd1,y\n", numbers=False, ids=(0,)),
    "counts": Form("lda", "id,x,y\nd1,1,2\nd2,0,3\n"),
    "pairs": Form("sparse-binary", _PAIRS, numbers=False, ids=(0, 1), ragged=True, headings=False),
    "series": Form(
        "sparse-binary-series", "row,column,time\nr1,c1,0\nr2,c2,1\nr1,c2,1\n", ids=(0, 1)
    ),
    "features": Form("bpmf", "user,age\nu1,20\nu2,30\n", "--row-features", numbers=False),
}
SETTINGS = {
    "lda": ("--set", "num_topics=2"),
    "bi-lda": ("--set", "num_user_groups=2", "--set", "num_item_groups=2"),
}
DATA = {"--row-features": ("ratings.csv", _RATINGS)}


class File(NamedTuple):
    """One bad file: its name, what is in it (None for no file), and the command that reads it."""

    case: str
    name: str
    content: Content
    model: str
    option: str = ""
    more: tuple[str, ...] = ()


def _cell(text: str, line: int, column: int, cell: str) -> bytes:
    """A text file with another cell."""
    lines = [line.split(",") for line in text.splitlines()]
    lines[line][column] = cell
    return ("\n".join(",".join(line) for line in lines) + "\n").encode()


def text_files() -> Iterator[File]:
    """Damaged text files of every form."""
    for kind, form in FORMS.items():
        for damage, content in _damages(form):
            yield File(f"{kind}/{damage}", "bad.csv", content, form.model, form.option)
        good = form.text.encode()
        yield File(f"{kind}/extension", "bad.xls", good, form.model, form.option)


def _damages(form: Form) -> Iterator[tuple[str, Content]]:
    text, good = form.text, form.text.encode()
    yield "none", None
    yield "folder", lambda path: path.mkdir()
    yield "empty", b""
    yield "blank", b"\n \n\n"
    yield "no letter", _cell(text, 1, 0, "r?").replace(b"?", b"\x81")
    yield "utf-16 without its mark", text.encode("utf-16-le")
    yield "binary", bytes(range(256)) * 4
    yield "long cell", _cell(text, 1, 0, "x" * 200_000)
    yield "open quote", _cell(text, 1, 0, '"r') + b"x" * 200_000
    if form.headings:
        yield "header only", good.splitlines()[0] + b"\n"
        heading = text.splitlines()[0].split(",")[0]
        yield "heading twice", _cell(text, 0, 1, heading)
    if not form.ragged:
        yield "short line", good + b"x\n"
        yield "long line", good + b"x,1,2,3,4,5,6,7\n"
    for column in form.ids:
        yield f"empty id {column}", _cell(text, 1, column, "")
    if form.numbers:
        for name, cell in (
            ("word", "many"), ("underscore", "1_000"), ("arabic", "\u0661\u0662"), ("inf", "inf"),
            ("overflow", "1e999"), ("thousands", '"1,000"'), ("date", "2020-01-01"),
        ):  # fmt: skip
            yield name, _cell(text, 2, -1, cell)


def _arrays(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def _array(array: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, array, allow_pickle=True)


def _sparse(**changes: Any) -> Callable[[Path], None]:
    """A matrix in scipy's format with other arrays in it."""

    def write(path: Path) -> None:
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(np.eye(3)))
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **arrays | changes)

    return write


def array_files() -> Iterator[File]:
    """Arrays that are no matrices of numbers."""
    matrix = np.arange(6.0).reshape(3, 2)
    buffer = io.BytesIO()
    np.save(buffer, matrix)
    for name, content in (
        ("objects", _array(np.array([[object(), 1.0]], dtype=object))),
        ("texts", _array(np.array([["a", "b"]]))),
        ("complex", _array(matrix + 1j)),
        ("vector", _array(matrix.ravel())),
        ("deep", _array(matrix[None])),
        ("no rows", _array(matrix[:0])),
        ("all missing", _array(matrix * np.nan)),
        ("infinite", _array(np.where(matrix == 3, np.inf, matrix))),
        ("too large", _array(np.where(matrix == 3, 1e300, matrix))),
        ("cut", buffer.getvalue()[:-9]),
        ("cut header", buffer.getvalue()[:20]),
        ("garbage", b"no array at all"),
    ):
        yield File(f"npy/{name}", "bad.npy", content, "linear-gaussian-ibp")
    model = "linear-gaussian-ibp"
    for name, written in (
        ("two arrays", _arrays(a=matrix, b=matrix)),
        ("no array", _arrays()),
        ("garbage", b"PK\x03\x04 no archive"),
    ):
        yield File(f"npz/{name}", "bad.npz", written, model)
    yield File("npz/key", "bad.npz", _arrays(a=matrix), model, more=("--key", "b"))
    for name, changes in (
        ("beyond", {"indices": np.array([0, 1, 7])}),
        ("negative", {"indices": np.array([0, -1, 2])}),
        ("falling", {"indptr": np.array([0, 3, 1, 3])}),
        ("short indptr", {"indptr": np.array([0, 3])}),
        ("format", {"format": np.array(b"xyz")}),
        ("shape", {"shape": np.array([-3, 3])}),
        ("objects", {"data": np.array([object()] * 3)}),
    ):
        for reader in ("bpmf", "sparse-binary"):
            yield File(f"scipy/{name}/{reader}", "bad.npz", _sparse(**changes), reader)


def files() -> Iterator[File]:
    """All of them."""
    yield from text_files()
    yield from array_files()


def judge(file: File, folder: Path) -> Outcome:
    """Have a bad file read by the command line, and say what came of it."""
    from jaxmf import cli

    path = folder / file.name
    if callable(file.content):
        file.content(path)
    elif file.content is not None:
        path.write_bytes(file.content)
    arguments = ["fit", file.model, str(path), "--out", str(folder / "run"), *file.more]
    arguments += SETTINGS.get(file.model, ())
    if file.option:
        name, text = DATA[file.option]
        (folder / name).write_text(text)
        arguments[2] = str(folder / name)
        arguments += [file.option, str(path)]
    errors: list[Exception] = []
    message = cli._message

    def recorded(error: Exception) -> str:
        errors.append(error)
        return message(error)

    printed = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stderr(printed),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch("jaxmf.cli._message", recorded),
        nothing_runs(),
    ):
        warnings.simplefilter("ignore")
        try:
            status = cli.run(arguments)
        except Reached:
            return Outcome("accepted", "")
        except Exception as error:  # a traceback for the user
            return Outcome("foreign kind", f"{type(error).__name__}: {error}")
    return _judged(file, status, printed.getvalue(), errors)


def _judged(file: File, status: int, printed: str, errors: list[Exception]) -> Outcome:
    if status == 0:
        return Outcome("accepted", printed)
    if status != 2 or len(printed.splitlines()) != 1 or not printed.startswith("jaxmf: "):
        return Outcome("foreign kind", printed)
    if not errors:  # refused by the parser of the command line
        return Outcome("clear" if file.name in printed else "names no argument", printed)
    return judge_error(errors[0], (file.name,))


def outcomes(*, share: int = 1) -> Iterator[tuple[File, Outcome]]:
    """What came of every bad file; of every `share`-th alone."""
    for number, file in enumerate(files()):
        if number % share == 0:
            with tempfile.TemporaryDirectory() as folder:
                yield file, judge(file, Path(folder))


def measure(quick: bool) -> list[Row]:
    """Bad files whose refusal is not clear, by what became of them."""
    os.environ.setdefault("COLUMNS", "200")
    total: Counter[str] = Counter()
    for file, outcome in outcomes(share=3 if quick else 1):
        total[outcome.verdict] += 1
        if outcome.verdict != "clear":
            print(f"{file.case}: {outcome.verdict}: {outcome.words[:200]}", file=sys.stderr)
    return rows_of("bad_files", total, BEFORE, NUM_BEFORE)
