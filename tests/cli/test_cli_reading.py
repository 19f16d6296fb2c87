"""How a file was read is kept with the run, and said where new files are left out or odd."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import cli
from jaxmf.cli.inputs import check_known, read_cells
from jaxmf.cli.new_rows import keep_reading, read_like, reading_of


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """The folder of a run on a table whose columns were named."""
    patch = pytest.MonkeyPatch()
    patch.setenv("JAXMF_CACHE", "off")
    folder = tmp_path_factory.mktemp("loans")
    random = np.random.default_rng(0)
    lines = [
        f"{random.integers(1, 6)};b{book};u{reader}\n" for reader in range(12) for book in range(6)
    ]
    (folder / "loans.csv").write_text("Note;Buch;Leser\n" + "".join(lines))
    options = ["--chains", "1", "--samples", "3", "--warmup", "1", "--set", "num_factors=1"]
    options += ["--columns", "Leser,Buch,Note"]
    fit = ["fit", "bpmf", str(folder / "loans.csv"), "--out", str(folder / "run"), *options]
    assert cli.run(fit) == 0
    patch.undo()
    return folder, fit


@pytest.mark.filterwarnings("default")
def test_new_files_are_read_as_that_of_the_run(loans, capsys):
    run = str(loans[0] / "run")
    new, cells = loans[0] / "new.csv", loans[0] / "cells.csv"
    new.write_text("Note;Buch;Leser\n45;b1;ann\n4;b2;ann\n3;b77;ann\n")
    cells.write_text("Buch;Leser\nb3;ann\nb88;ann\nb4;bo\n")
    ask = ["predict", run, str(cells), "--new-rows", str(new)]
    assert cli.run([*ask, "--unknown", "drop"]) == 0
    printed = capsys.readouterr()
    assert [line[:2] for line in csv.reader(printed.out.splitlines())][1:] == [["ann", "b3"]]
    for says in (
        f"warning: --new-rows {new}: the cell of row 'ann' and column 'b1' is 45",
        "1 of 3 columns of the new rows are not in the run and are left out: 'b77'",
        f"1 of 2 rows of the cells are not in the file of --new-rows, {new} and are left out: 'bo'",
        "1 of 3 columns of the cells are not in the run and are left out: 'b88'",
    ):
        assert says in printed.err
    assert cli.run(ask) == 2
    assert f"{cells}: no row has the id 'bo'; the file of --new-rows" in capsys.readouterr().err
    assert cli.run(["predict", run, "--new-rows", str(new)]) == 2
    assert f"--new-rows {new}: the column 'b77'" in capsys.readouterr().err
    assert cli.run(["recommend", run, "u1", "u99", "-n", "1", "--unknown", "drop"]) == 0
    assert "1 of 2 rows are not in the run and are left out: 'u99'" in capsys.readouterr().err


def test_resuming_says_what_differs_in_words(loans, capsys):
    _, fit = loans
    other = [argument.replace("num_factors=1", "num_factors=2") for argument in fit]
    assert cli.run([*other, "--resume", "--seed", "3"]) == 2
    says = capsys.readouterr().err
    assert "seed was 0 and is now 3; model settings num factors was 1 and is now 2. Use" in says
    shorter = loans[0] / "fewer.csv"
    shorter.write_text("".join((loans[0] / "loans.csv").read_text().splitlines(True)[:-6]))
    assert cli.run([*fit[:2], str(shorter), *fit[3:], "--resume"]) == 2
    says = capsys.readouterr().err
    assert "data size was '12 rows, 6 columns, 72 cells observed' and is now '11 rows," in says
    assert "data differ in a value or an id" in says


def test_what_is_kept_gives_way_to_what_is_said_and_to_what_is_there(tmp_path):
    keep_reading(tmp_path, {"form": None, "headings": False, "columns": "a,'b'", "mask": "m.csv"})
    assert reading_of(tmp_path, {"columns": None}, None) == {"headings": False, "columns": "a,'b'"}
    assert reading_of(tmp_path, {"columns": "1,2"}, None)["columns"] == "1,2"
    new = tmp_path / "new.csv"
    for drop, kept in (("name,'x, y'", "name"), ("'x, y'", None), ("2", "2"), ("9", None)):
        keep_reading(tmp_path, {"drop": drop.replace("'", '"')})
        new.write_text("id,name,q1\n1,ann,2\n")
        assert reading_of(tmp_path, {}, new).get("drop") == kept
    note = tmp_path / "reading.json"
    for damage in ({"drop": 3}, {"mask": "m.csv"}):
        keep_reading(tmp_path, {})
        written = json.loads(note.read_text()) | damage
        note.write_text(json.dumps(written))
        with pytest.raises(ValueError, match=r"reading\.json"):
            reading_of(tmp_path, {}, None)
    note.unlink()
    assert reading_of(tmp_path, {"form": "matrix", "key": None}, None) == {"form": "matrix"}


@pytest.mark.parametrize(
    ("model", "side", "is_offered"),
    [
        (mf.BPMF(2), "row", True),
        (mf.BPMF(2), "column", True),
        (mf.BPMF(2, column_unit=[1.0, 2.0]), "row", True),
        (mf.BPMF(2, column_unit=[1.0, 2.0]), "column", False),
        (mf.URP(2), "row", False),
    ],
)
def test_unknown_prior_is_offered_where_the_model_takes_it(tmp_path, model, side, is_offered):
    data = mf.Entries([0, 1], [0, 1], [3.0, 4.0], (2, 2), ["a", "b"], ["x", "y"])
    posterior = SimpleNamespace(model=model.matched(data), data=data)
    cells = [np.array([each], object) for each in (("c", "x") if side == "row" else ("a", "z"))]
    with pytest.raises(ValueError, match=f"no {side} has the id") as raised:
        check_known(
            cells, posterior, tmp_path, unknown="error", names=(data.row_names, data.column_names)
        )
    assert ("--unknown prior" in str(raised.value)) == is_offered


def test_of_a_second_file_it_is_said_what_to_do(capsys):
    assert cli.run(["fit", "bpmf", "a.csv", "b.csv", "--out", "run"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(
        "and b.csv is further; of several make one first, with one line of headings"
    )


def test_a_basket_of_two_items_is_read_in_the_form_of_the_run(tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("tea,milk\n")
    data = mf.SparseBinary.from_baskets([["tea", "milk"], ["jam", "tea", "rum"]])
    run = SimpleNamespace(data=data, model=None)
    assert read_like(new, run, {"form": "baskets"}).num_ones == 2


def test_customers_without_items_may_stand_alone_in_a_file(tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("K1,\nK2,\n")
    run = SimpleNamespace(data=mf.SparseBinary.from_baskets({"K0": ["tea", "milk"]}), model=None)
    with pytest.warns(UserWarning, match="'K1', 'K2', all differ; they are read as ids"):
        found = read_like(new, run, {"form": "baskets"})
    assert (found.row_names.tolist(), found.num_ones) == (["K1", "K2"], 0)


def test_cells_are_found_by_the_columns_of_the_run(tmp_path):
    data = mf.Entries([0, 1], [0, 1], [3.0, 4.0], (2, 2), ["x", "y"], ["x", "y"])
    path = tmp_path / "cells.csv"
    path.write_text("b,a\nx,y\n")
    assert [each.tolist() for each in read_cells(path, data)] == [["x"], ["y"]]
    assert [each.tolist() for each in read_cells(path, data, None, "a,b,c")] == [["y"], ["x"]]


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_few_new_sales_are_read_by_the_columns_of_the_run(tmp_path):
    lines = [f"0{1 + k % 9}.02.2024;{k % 6 + 1};{k % 4 + 900};1;{k},99" for k in range(24)]
    heading, loans, new = "Datum;Kunde;Produkt;Menge;Betrag", tmp_path / "a.csv", tmp_path / "b.csv"
    loans.write_text("\n".join([heading, *lines]))
    new.write_text(f"{heading}\n01.02.2024;77;901;1;1,0\n01.02.2024;77;903;1;1,0\n")
    noted = {}
    known = mf.data.read_ones(loans, noted=noted)
    assert noted == {"form": "pairs", "columns": "Kunde,Produkt"}
    keep_reading(tmp_path, noted)
    like = SimpleNamespace(data=known, model=mf.SparseBinaryMF())
    found = read_like(new, like, reading_of(tmp_path, {}, new))
    assert (found.row_names.tolist(), found.column_names.tolist()) == ([77], [901, 903])


def test_new_documents_stand_in_a_folder_where_those_of_the_run_did(tmp_path):
    for name, text in {"a": "tea and milk", "b": "tea, unheard of"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    run = SimpleNamespace(model=mf.LDA(2), data=mf.Tokens.from_lists([["tea", "milk", "and"]]))
    (tmp_path / ".run").mkdir()
    keep_reading(tmp_path / ".run", {})
    found = read_like(tmp_path, run, reading_of(tmp_path / ".run", {}, tmp_path))
    assert found.names["document"].tolist() == ["a", "b"]
    assert found.num_tokens == 6
