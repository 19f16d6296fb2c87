"""What the command line says of files and runs: what was read, warnings, advice as options."""

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxmf as mf
from benchmarks.robustness.bad_calls import Reached, nothing_runs
from jaxmf import cli, registry
from jaxmf.cli.inputs import describe, read_cells, read_titles
from jaxmf.cli.options import as_options, read_recode
from jaxmf.cli.settings import read_settings


@pytest.mark.filterwarnings("default")
def test_fit_says_what_it_read_and_warns_in_a_line(tmp_path, capsys):
    path = tmp_path / "r.csv"
    path.write_text("time;user;film;stars\n7;u1;f1;4,5\n8;u2;f1;NA\n9;u2;f2;1,5\n")
    with nothing_runs(), pytest.raises(Reached):
        cli.run(["fit", "bpmf", str(path), "--out", str(tmp_path / "run")])
    printed = capsys.readouterr()
    assert printed.out == (
        f"{path}: 2 values from 1.5 to 4.5 in 2 rows (u1, u2) and 2 columns (f1, f2)\n"
    )
    assert printed.err == (
        f"jaxmf: warning: {path}: 1 of 3 lines have no value, such as ['u2', 'f1', 'NA', '8']; "
        "they are left out.\n"
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_ids_that_the_output_has_no_letters_for_are_written_as_escapes(
    tmp_path, monkeypatch, encoding
):
    path = tmp_path / "r.csv"
    path.write_text("user;film;stars\nŽluť;f1;4,5\nu2;f2;1,5\n", encoding="utf-8")
    printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", printed)
    with nothing_runs(), pytest.raises(Reached):
        cli.main(["fit", "bpmf", str(path), "--out", str(tmp_path / "run")])
    assert b"lu\\u0165, u2" in printed.buffer.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_an_output_that_is_full_is_said(capsys, monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.run(["models"]) == 2
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert capsys.readouterr().err == "jaxmf: No space left on device\n"


def test_every_kind_of_data_is_described():
    matrix = mf.data.Dense.from_array([[1.0, np.nan], [2.0, 4.0]], column_names=["a", "b"])
    assert describe(matrix) == (
        "2 rows and 2 columns (a, b), 1 of 4 cells missing, values from 1 to 4"
    )
    ones = mf.data.SparseBinary.from_baskets([["tea"], ["tea", "milk", "jam", "rum", "ale"]])
    assert describe(ones) == "6 ones in 2 rows and 5 columns (tea, milk, jam, ...)"
    tokens = mf.data.Tokens.from_lists([["tea", "cup"], ["tea"]])
    assert describe(tokens) == "3 tokens of 2 documents, 2 words (tea, cup)"


def test_advice_names_options_that_the_command_line_reads():
    words = as_options(
        "Try num_warmup=1000,\n  num_samples=800. Then num_epochs=20. "
        "likelihood=mf.Ordinal(levels=(1, 2, 3)) keeps to it."
    )
    assert words == (
        "Try --warmup 1000\n  --samples 800. Then --epochs 20. "
        "--set 'likelihood=Ordinal(levels=(1, 2, 3))' keeps to it."
    )
    stated = "likelihood=Ordinal(levels=(1, 2, 3))"
    values, _ = read_settings(registry.get("bpmf"), "sample", [stated])
    assert values["likelihood"] == mf.Ordinal(levels=(1, 2, 3))
    words = as_options("densities too high; score held_out\ndocuments.")
    assert "held_out=documents" in words
    assert "--hold-out" not in words  # which hides cells, not words
    words = as_options("codes begin at 0, so of answers 1 to V pass answer - 1")
    assert words == "codes begin at 0, so of answers 1 to V pass --recode 1=0,2=1,... up to V"
    words = as_options(
        'use "error" or "drop", or new_rows= with what is known of the row. For a row without ones '
        'pass new_rows=SparseBinary.from_baskets({"its id": ["x"]}) and unknown="drop".'
    )
    assert words == (
        "use error or drop, or --new-rows with what is known of the row. For a customer without "
        "items write a line with the id and a comma (`id,`) in a file of --new-rows with "
        "--form baskets."
    )


def test_titles_are_found_behind_line_numbers(tmp_path):
    data = mf.Entries([0, 1], [0, 1], [3.0, 4.0], (2, 2), [1, 2], [0, 1])
    path = tmp_path / "films.csv"
    path.write_bytes(
        "Unnamed: 0;movieId;year;Title\n0;1;1999;Käse\n1;0;2000;Tee\n".encode("cp1252")
    )
    with pytest.warns(UserWarning, match="Windows-1252"):
        assert read_titles(path, data) == {1: "Käse", 0: "Tee"}


def test_cells_are_found_by_headings_in_any_order(tmp_path):
    data = mf.Entries([0, 1], [0, 1], [3.0, 4.0], (2, 2), [1, 2], [2, 1])
    path = tmp_path / "cells.csv"
    for text in ("time,userId,movieId\n9,1,2\n9,2,2\n", "movieId,userId\n2,1\n2,2\n"):
        path.write_text(text)
        rows, columns = read_cells(path, data)
        assert (rows.tolist(), columns.tolist()) == ([1, 2], [2, 2])


def test_cells_of_a_matrix_are_not_swapped_by_headings(tmp_path):
    data = mf.Dense(np.ones((2, 2)), row_names=[1, 2], column_names=[2, 1])
    path = tmp_path / "cells.csv"
    path.write_text("movie,user\n1,2\n2,2\n")
    rows, columns = read_cells(path, data)
    assert (rows.tolist(), columns.tolist()) == ([1, 2], [2, 2])


def test_advice_about_settings_is_that_of_the_command_line():
    words = as_options("Try num_warmup=500, num_samples=500 or split_merge=5")
    assert words == "Try --warmup 500 --samples 500 or --set split_merge=5"
    assert as_options("split_merge=5 or bias=True, which") == (
        "--set split_merge=5 or --set bias=true, which"
    )
    words = as_options("or go on\n  from its checkpoint with resume=True if it has one.")
    assert words == "or go on\n  from its checkpoint with --resume."
    words = as_options("HDPLDA(word_concentration=dist.Gamma(1, 10)), which is\n  learned")
    assert words == "--set 'word_concentration=Gamma(1, 10)', which is\n  learned"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("agree=4, Not at all=1,abs=", {"agree": 4, "Not at all": 1, "abs": None}),
        ("x=1,=0", {"x": 1, "": 0}),
        ('"a, b=2",99=,-1=', {"a, b": 2, "99": None, "-1": None}),
    ],
)
def test_words_are_recoded_as_they_are_written(text, found):
    assert read_recode(text) == found


@pytest.mark.parametrize("text", ["agree", "=", "agree=four", "agree=4;no=1"])
def test_what_recodes_nothing_is_refused(text):
    with pytest.raises(ValueError, match=r"--recode '.*': write WORD=NUMBER, or WORD= for a"):
        read_recode(text)


def test_advice_and_odd_arguments_are_in_the_words_of_the_command_line(tmp_path, capsys):
    words = "Say so (recode={'99': None, 'a': None}, --recode '99=,a=')."
    assert as_options(words) == "Say so (--recode '99=,a=')."
    assert as_options("headings=False, --no-headings") == "--no-headings"
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("green tea and black tea")
    texts = sorted(map(str, tmp_path.glob("*.txt")))
    assert cli.run(["fit", "lda", *texts, "--out", str(tmp_path / "run")]) == 2
    assert "a folder of .txt files), and" in capsys.readouterr().err
    fit = ["--out", str(tmp_path / "run"), "--set", "num_topics=2"]
    with nothing_runs(), pytest.raises(Reached):
        cli.run(["fit", "lda", str(tmp_path), *fit])
    assert "15 tokens of 3 documents (a, b, c), 4 words" in capsys.readouterr().out
    assert cli.run(["fit", "bpmf", str(tmp_path), "--out", str(tmp_path / "other")]) == 2
    assert f"{tmp_path}: is a folder, a file is needed" in capsys.readouterr().err
    assert cli.run(["fit", "lda", texts[0], *fit, "--recode", "a=1", "--overwrite"]) == 2
    assert "--recode is not for files of documents and words" in capsys.readouterr().err
