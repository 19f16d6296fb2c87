"""Which columns of a table are read: by what they hold, or as somebody names them."""

import warnings

import numpy as np
import pytest

from jaxmf.data import read_entries, read_matrix, read_ones, read_series, read_tokens
from jaxmf.data.dates import dates_of, days
from jaxmf.data.table_columns import roles_by_content

CELLS = [(n % 5, n % 3, 1 + n % 4) for n in range(15)]


def write(path, headings, line, *, encoding="utf-8", newline="\n"):
    """A file of the cells of CELLS, each written by a format of row, column, value, day."""
    lines = [line.format(u=u, b=b, v=v, d=1 + n) for n, (u, b, v) in enumerate(CELLS)]
    path.write_bytes(newline.join([*headings, *lines, ""]).encode(encoding))
    return path


@pytest.mark.parametrize(
    ("heading", "line", "encoding"),
    [
        ("Leser;Buch;Datum;Note", "u{u};b{b};{d:02d}.11.2022;{v},5", "latin-1"),
        ("note;utilisateur;film;créé", "{v},5;u{u};b{b};{d:02d}/11/2022 12:30", "latin-1"),
        ("fecha\tquién\tqué\tcuánto", "2022-11-{d:02d}\tu{u}\tb{b}\t{v}.5", "utf-16"),
        ("評価,利用者,商品,日付", "{v}.5,u{u},b{b},2022/11/{d:02d} 10:00:00 AM", "utf-8-sig"),
        ("n;kto;čo;;", "{v},5;u{u};b{b};;", "utf-8"),
        (None, "16690{d:02d}000,u{u},b{b},{v}.5", "utf-8"),
    ],
    ids=["German", "French", "Spanish", "Japanese", "Slovak", "no headings"],
)
@pytest.mark.filterwarnings("ignore:.*(Windows-1252|by what they hold)")
def test_ratings_are_read_by_what_their_columns_hold(heading, line, encoding, tmp_path):
    headings = [] if heading is None else [heading]
    path = write(tmp_path / "a.csv", headings, line, encoding=encoding, newline="\r\n")
    found = read_entries(path)
    assert found.row_names.tolist() == [f"u{u}" for u in range(5)]
    assert found.column_names.tolist() == ["b0", "b1", "b2"]
    np.testing.assert_array_equal(found.values, [value + 0.5 for *_, value in CELLS])


def test_how_columns_were_read_is_said_with_what_names_others(tmp_path):
    path = write(tmp_path / "a.csv", ["who,it,when,much"], "{u},{b},2022-11-{d:02d},{v}")
    with pytest.warns(UserWarning, match="'who' as rows.*--columns who,it,much,when") as said:
        read_entries(path)
    assert len(said) == 1
    assert read_entries(path, use_columns=["it", "who", "much"]).shape == (3, 5)
    assert read_entries(path, use_columns=["2", "1", "4", "3"]).shape == (3, 5)
    for names, problem in ((["who", "x", "much"], "'x' is not there"), (["1", "1", "4"], "twice")):
        with pytest.raises(ValueError, match=problem):
            read_entries(path, use_columns=names)


def test_loans_have_no_ratings_but_are_ones_a_series_and_words(tmp_path):
    line = "{d};u{u};b{b};{d:02d}.11.2022"
    path = write(tmp_path / "a.csv", ["id;Wer;Was;Wann"], line)
    with pytest.raises(ValueError, match=r"'Wann' dates such as '01\.11\.2022'.*sparse-binary"):
        read_entries(path)
    with pytest.warns(UserWarning, match="'Wer' and 'Was' are read"):
        assert read_ones(path).shape == (5, 3)
    with pytest.warns(UserWarning, match=r"--columns Wer,Was,Wann|days since 1970") as said:
        assert read_series(path).shape == (5, 15, 3)
    assert len(said) == 2
    with pytest.warns(UserWarning, match="as documents and words"):
        assert read_tokens(path).num_tokens == 15
    names = {"use_columns": ["Was", "Wer"]}
    assert read_ones(path, **names).shape == (3, 5)
    assert read_tokens(path, **names).sizes == {"document": 3, "word": 5}


def test_texts_of_a_questionnaire_are_left_out_by_what_the_error_says(tmp_path):
    headings = ["id,Q1,Q2,Comment"]
    path = write(tmp_path / "a.csv", headings, '{d},{v},{b},"good, {d} times"')
    with pytest.raises(ValueError, match=r"column 4 \('Comment'\).*line 2.*--drop Comment"):
        read_matrix(path)
    found = read_matrix(path, drop_columns=["Comment"])
    assert found.column_names.tolist() == ["Q1", "Q2"]
    assert found.row_names.tolist() == list(range(1, 16))
    assert read_matrix(path, use_columns=["id", "Q2"]).values.shape == (15, 1)
    words = write(tmp_path / "b.csv", ["id,Q1,Q2"], "{d},level {v},{b}")
    with pytest.raises(ValueError, match=r"4 answers, 'level 1', .* numbers in their order"):
        read_matrix(words)
    slip = write(tmp_path / "c.csv", headings[:1], "{d},{v},{b},{u}")
    slip.write_text(slip.read_text().replace("7,3,0,1", "7,3,O,1"))
    with pytest.raises(ValueError, match=r"'Q2'.* holds numbers, but 'O' in line 8"):
        read_matrix(slip)


def test_last_columns_of_empty_cells_are_left_out(tmp_path):
    path = write(tmp_path / "a.csv", ["id;a;b;;"], "{d};{v};{b};;")
    with pytest.warns(UserWarning, match="last 2 columns have nothing"):
        assert read_matrix(path).values.shape == (15, 2)


def test_columns_that_may_be_several_things_are_not_guessed():
    def seen(line, **options):
        lines = [line.format(u=u, b=b, v=v, n=n) for n, (u, b, v) in enumerate(CELLS)]
        return roles_by_content([["p", "q", "r"], *(x.split(",") for x in lines)], **options)

    assert seen("u{u},{v},b{b}").value == 1
    assert seen("{u},{v},b{b}") is None  # two columns may hold the values
    assert seen("{v},u{u},text {n}") is None  # the third holds no ids
    assert seen("u{u},b{b},c{v}", with_value=False) is None


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["23.11.2022", "1.2.2022"], ["2022-11-23", "2022-02-01"]),
        (["23/11/2022", "01/02/2022"], ["2022-11-23", "2022-02-01"]),
        (["11/23/2022", "01/02/2022"], ["2022-11-23", "2022-01-02"]),
        (["01/02/2022", "03/03/2022"], None),  # of February or of January
        (["01/01/2022", "03/03/2022"], ["2022-01-01", "2022-03-03"]),
        (
            ["2022-11-23 1:05 PM", "2022-11-23T12:30:00 am"],
            ["2022-11-23T13:05", "2022-11-23T00:30"],
        ),
        (["31/02/2022"], None),
        (["2022-11-23", "soon"], None),
    ],
)
def test_dates(texts, expected):
    found = dates_of(texts)
    if expected is None:
        assert found is None
    else:
        assert np.array(found, "datetime64[us]").tolist() == [
            np.datetime64(one, "us").item() for one in expected
        ]
        assert np.isnan(days(np.array([*texts, ""], object))[-1])


def test_dates_of_which_day_and_month_cannot_be_told_apart_are_no_ids(tmp_path):
    lines = [f"r{k // 2};Os Maias {k % 2};0{k % 5 + 1}/02/2025;{k % 4 + 1},5" for k in range(12)]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(["quem;obra;quando;quanto", *lines]) + "\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="columns are read by what they hold"):
        data = read_entries(path)
    assert data.shape == (6, 2)
    assert sorted(np.unique(data.values)) == [1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize("read", [read_entries, read_matrix])
@pytest.mark.parametrize(
    ("headings", "line", "says"),
    [
        (["userid,itemid"], "{u},{b}", "a pair of 'userid' and 'itemid', .*fit sparse-binary"),
        (["Leser,Buch,Note"], "{u},{b},{v}", "a pair of 'Leser' and 'Buch' with a value, .*bpmf"),
        (["pupil_id,task_id"], "{u},{b}", "each line is a pair of 'pupil_id' and 'task_id'"),
        (["pupil,task"], "{u},{b}", "may be a pair of 'pupil' and 'task'.* name them .*pupil,task"),
        ([], "{u},{b}", "may be a pair of two ids, .*--columns 1,2"),
    ],
)
def test_a_list_of_pairs_is_no_matrix(tmp_path, read, headings, line, says):
    path = write(tmp_path / "a.csv", headings, line)
    if read is read_entries and "{v}" in line:
        assert read(path).num_entries == len(CELLS)
    elif read is read_matrix and "may be" in says:
        with pytest.warns(UserWarning, match=says):
            assert read(path).values.shape == (15, 2)
    else:
        with pytest.raises(ValueError, match=says):
            read(path)
    if "may be" in says:
        assert np.shape(read_matrix(path, use_columns=["1", "2"]).values) == (15, 2)


@pytest.mark.parametrize("headings", [["age,height"], ["customer,sessions"], ["id,book"], []])
def test_two_columns_of_a_matrix_are_none(tmp_path, headings):
    path = tmp_path / "a.csv"
    lines = [f"{20 + k},{150 + 7 * k % 40}" for k in range(15)]
    path.write_text("\n".join([*headings, *lines, ""]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ids
        assert np.shape(read_matrix(path).values)[0] == 15


def test_headings_that_stand_twice_are_named_by_their_columns(tmp_path):
    path = tmp_path / "a.csv"
    lines = "".join(f"u{u},i{b},9,{v}\n" for u, b, v in CELLS)
    path.write_text("user,item,item,stars\n" + lines)
    above = "the heading 'item' stands twice in its first line, above columns 2 and 3. Rename one"
    with pytest.raises(ValueError, match=f"{above}, or name .* --columns 1,2,4."):
        read_entries(path)
    assert read_entries(path, use_columns=["1", "2", "4"]).num_entries == len(CELLS)
    with pytest.raises(ValueError, match=r"Name the row and the column .*--columns user,2"):
        read_ones(path)
    assert read_ones(path, use_columns=["user", "2"]).shape == (5, 3)
    path.write_text("id,a,b,a\n1,2,3,4\n2,3,4,5\n")
    above = "the heading 'a' stands twice in its first line, above columns 2 and 4. Rename one"
    with pytest.raises(ValueError, match=f"{above}, or leave one out .*--drop 4"):
        read_matrix(path)
    assert read_matrix(path, drop_columns=["4"]).values.shape == (2, 2)
    assert read_matrix(path, use_columns=["1", "3", "4"]).values.shape == (2, 2)
    with pytest.raises(ValueError, match=above):
        read_matrix(path, use_columns=["1", "2", "4"])
    path.write_text("row,row,time\na,b,1\na,c,2\n")
    with pytest.raises(ValueError, match=r"'row' stands twice .*--columns"):
        read_series(path)
    path.write_text("user,item\n")
    with pytest.raises(ValueError, match="triples have three cells a line"):
        read_series(path)
