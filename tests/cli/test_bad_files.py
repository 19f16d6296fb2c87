"""Bad files: one line that names the file, status 2, no traceback; and what readers take for ids.

Every third file of `benchmarks.robustness.bad_files`.
"""

import numpy as np
import pytest

from benchmarks.robustness import bad_files
from benchmarks.robustness.bad_files import File, judge
from jaxmf.cli import run
from jaxmf.data import read_columns, read_entries, read_matrix


def test_bad_files_end_in_one_line_that_names_them():
    unclear = [
        f"{file.case}: {outcome.verdict}: {outcome.words}"
        for file, outcome in bad_files.outcomes(share=3)
        if outcome.verdict != "clear"
    ]
    assert not unclear, "\n".join(unclear)


def test_the_judge_sees_a_file_that_is_accepted(tmp_path):
    good = File("twin", "bad.csv", b"id,a,b\nr1,1,2\nr2,3,4\n", "linear-gaussian-ibp")
    assert judge(good, tmp_path).verdict == "accepted"


@pytest.mark.parametrize("heading", ["id", "ID", "user_id", "index", "Unnamed: 0", ""])
def test_a_first_column_of_ids_is_taken_as_ids_whatever_they_look_like(tmp_path, heading):
    path = tmp_path / "x.csv"
    path.write_text(f"{heading},a,b\n007,1,2\n012,3,4\n")
    table = read_matrix(path)
    assert table.row_names.tolist() == ["007", "012"]
    assert table.column_names.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("heading", ["age", "idle", "humidity"])
def test_a_first_column_of_numbers_with_another_heading_is_data(tmp_path, heading):
    path = tmp_path / "x.csv"
    path.write_text(f"{heading},a\n7,1\n12,3\n")
    table = read_matrix(path)
    assert table.row_names is None
    assert table.values.tolist() == [[7, 1], [12, 3]]


def test_what_spreadsheets_write_for_missing_cells_is_missing(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,a,b\nr,#N/A,1\ns,2,<NA>\n")
    assert np.isnan(read_matrix(path).values).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("cell", ["1_000", "\u0661\u0662", "1\u00a0000"])
def test_numbers_are_written_in_plain_digits(tmp_path, cell):
    path = tmp_path / "x.csv"
    path.write_text(f"id,a,b\nr,1,2\ns,3,{cell}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.csv: column 3 \('b'\) holds no numbers.*line 3"):
        read_matrix(path)


def test_all_columns_without_numbers_are_named_at_once(tmp_path):
    path = tmp_path / "survey.csv"
    days = [f"2023-01-{k:02d}" for k in range(1, 20)]
    answers = [f"p{k};{day};{k % 5};4;5;{k % 3};{'x' * (k == 1)}" for k, day in enumerate(days)]
    path.write_text("\n".join(["person;day;F1;F2;F3;F4;note", *answers]))
    with pytest.raises(ValueError, match=r"'day'.* nor does 'note'.*--drop day,note") as caught:
        read_entries(path)
    assert "--columns" not in str(caught.value)  # of a day for each person, and of no long table
    few = [f"p{k},{'AB'[k % 2]},{day},{k}" for k, day in enumerate(days)]
    path.write_text("\n".join(["person,batch,day,gene", *few]))
    with pytest.raises(ValueError, match=r"--recode 'A=[?],B=[?]'.*, and .*--drop day"):
        read_matrix(path)


def test_ids_of_rows_that_stand_twice_are_shown_with_their_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,a,b\n7,1,2\n8,1,2\n7,3,4\n")
    with pytest.raises(ValueError, match=r"'7' stands in lines 2 and 4.*'7-1' and '7-2', or av"):
        read_matrix(path)


def test_a_column_that_is_named_twice_is_not_guessed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,user,rating\na,b,1\n")
    with pytest.raises(
        ValueError, match="the heading 'user' stands twice in its first line, above columns 1 and 2"
    ):
        read_columns(path, ["user"])
    with pytest.raises(ValueError, match="the heading 'user' stands twice"):
        read_entries(path)


def test_ratings_without_a_column_of_values_are_told_what_triples_are(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("user,item\nann,tea\nbo,tea\n")
    with pytest.raises(ValueError, match="Triples, a line for each rating, have three cells"):
        read_entries(path)


def test_columns_are_named_as_the_command_line_has_them(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("".join(["nom;note\n", *(f"n{k};bien, {k}\n" for k in range(12))]))
    arguments = ["fit", "linear-gaussian-ibp", str(path), "--out", str(tmp_path / "run")]
    assert run(arguments) == 2
    assert run([*arguments, "--drop", "note,nom"]) == 2
    assert run([*arguments, "--columns", "5"]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "column 2 ('note') holds no numbers: 'bien, 0' in line 2" in first
    assert "--drop leave no column" in second
    assert "--columns: the column '5' is not there" in third
