"""Text files as other programs write them: what is read, what is refused, what is warned of."""

import gzip
import warnings
import zipfile

import numpy as np
import pytest
from scipy import io, sparse

from jaxmf.data import (
    read_columns,
    read_entries,
    read_features,
    read_matrix,
    read_ones,
    read_series,
    read_tokens,
)
from jaxmf.data.headings import roles
from jaxmf.data.text_tables import numbered_lines

USERS, FILMS, VALUES = ["007", "012", "007", "101"], ["a", "b", "b", "a"], [4.25, 1.5, 3.0, 1234.5]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def table(separator, values, head=True, between="\n"):
    lines = [separator.join(line) for line in zip(USERS, FILMS, values, strict=True)]
    return between.join(["user" + separator + "film" + separator + "rating"] * head + lines) + "\n"


def check_same(path, warns=None):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = read_entries(path)
    assert found.row_names.tolist() == ["007", "012", "101"]
    assert found.column_names.tolist() == ["a", "b"]
    np.testing.assert_allclose(found.values, VALUES)
    assert [str(each.message) for each in heard if warns is None or warns not in str(each)] == []
    assert warns is None or len(heard) == 1


POINT, COMMA = ["4.25", "1.5", "3", "1234.5"], ["4,25", "1,5", "3", "1234,5"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", table(";", POINT)),
        ("a.csv", table(";", COMMA)),
        ("a.csv", table(";", COMMA, head=False)),
        ("a.csv", table("\t", POINT)),
        ("a.csv", table("|", COMMA)),
        ("a.csv", table("::", POINT, head=False)),
        ("a.csv", "sep=;\r\n" + table(";", COMMA)),
        ("a.csv", table(",", ['"4,25"', '"1,5"', "3", '"1234,5"'])),
        ("a.csv", table(",", ["4.25", "1.5", "3", '"1,234.5"'])),
        ("a.csv", table(";", ["4,25", "1,5", "3", "1.234,5"])),
        ("a.csv", table(";", ["4.25", "1.5", "3", "1'234.5"])),
        ("a.csv", table(";", ["4,25", "1,5", "3", "1\u202f234,5"])),
        ("a.csv", table(",", POINT, between="\r\n")),
        ("a.csv", table(",", POINT, between="\r")),
        ("a.csv", table(",", POINT).replace("a", '"a"')),
        ("a.txt", table("\t", POINT)),
        ("a.dat", table(" ", POINT)),
        ("a.data", table("\t", POINT, head=False)),
    ],
)
def test_the_same_table_in_other_writings(name, text, tmp_path):
    check_same(write(tmp_path / name, text))


@pytest.mark.parametrize(("name", "sign"), [("percent", "%"), ("euro", "€"), ("dollar", "$")])
def test_signs_of_all_numbers_are_left_out_with_a_warning(name, sign, tmp_path):
    path = write(tmp_path / f"{name}.csv", table(";", [value + " " + sign for value in COMMA]))
    check_same(path, warns=f"without their {sign!r}")
    mixed = write(tmp_path / "mixed.csv", table(";", [COMMA[0] + sign, *COMMA[1:]]))
    with pytest.raises(
        ValueError, match=f"value '4,25{'[$]' if sign == '$' else sign}' of line 2, column 3"
    ):
        read_entries(mixed)


ACCOUNTS = """firm,Revenue,EBIT,Net income,Margin,Debt
a,"6,203,558,937","(37,324,127)","230,266,946",4.4%,0.62
b,"456,328,460","75,652,178","(154,646,298)",(14.8%),0.21
c,"328,460","(2,178)",n/a,-5.5%,(1.5)
"""


def test_numbers_in_parentheses_are_negative(tmp_path):
    path = write(tmp_path / "a.csv", ACCOUNTS)
    with pytest.warns(UserWarning, match="read (as|without)") as heard:
        found = read_matrix(path)
    np.testing.assert_allclose(
        found.values,
        [
            [6203558937, -37324127, 230266946, 4.4, 0.62],
            [456328460, 75652178, -154646298, -14.8, 0.21],
            [328460, -2178, np.nan, -5.5, -1.5],
        ],
    )
    assert [str(each.message).removeprefix(f"{path}: ") for each in heard] == [
        "the numbers of column 'Margin' are read without their '%'.",
        "numbers in parentheses are read as negative, in columns 'EBIT', 'Net income', 'Margin', "
        "...; if they are errors or notes, leave their lines out.",
    ]
    rated = write(tmp_path / "b.csv", table(";", ["(4,25)", "1,5", "3", "1234,5"]))
    with pytest.warns(UserWarning, match="negative, in column 'rating'"):
        values = read_entries(rated).values
    np.testing.assert_allclose(values, [-4.25, 1.5, 3, 1234.5])


def test_a_column_that_is_all_in_parentheses_may_be_errors_or_notes(tmp_path):
    path = write(tmp_path / "a.csv", "id,b,se\nr1,1.5,(0.5)\nr2,2.5,(0.4)\nr3,3,(0.1)\n")
    with pytest.raises(ValueError, match=r"stand for a minus, write -0\.5"):
        read_matrix(path)


def test_a_column_of_dates_is_no_column_of_a_matrix(tmp_path):
    path = write(tmp_path / "a.csv", "id,b,end\nr1,1.5,08.09.2023\nr2,2,07.02.2023\nr3,3,\n")
    with pytest.raises(ValueError, match=r"Dates are no numbers of a matrix\. To read the fil"):
        read_matrix(path)


@pytest.mark.parametrize("separator", [";", ","])
def test_numbers_with_two_readings_are_refused(separator, tmp_path):
    texts = ['"4,250"', '"1,500"', "300", '"1,234"']
    path = write(tmp_path / "a.csv", table(separator, texts))
    with pytest.raises(ValueError, match=r"'1,234', which may be 1\.234 or 1234"):
        read_entries(path)
    # a number below one, or another column, says what is meant
    known = write(tmp_path / "b.csv", table(separator, ['"0,250"', *texts[1:]]))
    np.testing.assert_allclose(read_entries(known).values, [0.25, 1.5, 300, 1.234])
    other = write(tmp_path / "c.csv", 'p;q\n"4,25";"1,250"\n"4,5";"2,125"\n')
    np.testing.assert_allclose(read_matrix(other).values, [[4.25, 1.25], [4.5, 2.125]])


def test_points_are_decimals_where_commas_stand_between_cells(tmp_path):
    path = write(tmp_path / "a.csv", 'p,q,r\n1.234,"a,b",7\n5.678,c,8\n')
    assert [line for _, line in numbered_lines(path)][1:] == [
        ["1.234", "a,b", "7"],
        ["5.678", "c", "8"],
    ]


def test_encodings(tmp_path):
    text = table(",", POINT)
    check_same(write(tmp_path / "bom.csv", "\ufeff" + text))
    check_same(write(tmp_path / "sixteen.csv", text, "utf-16"))
    latin = write(tmp_path / "latin.csv", "film,price\nKäse,1\nBrot,2\n", "latin-1")
    with pytest.warns(UserWarning, match=r"Latin-1\): line 2 is 'Käse,1'"):
        assert read_columns(latin, ["film"])["film"].tolist() == ["Käse", "Brot"]


def test_compressed_files(tmp_path):
    text = table(";", COMMA).encode()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    check_same(tmp_path / "a.csv.gz")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/a.csv", text)
    check_same(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        for name in ("__MACOSX/", "__MACOSX/._a.csv", "b/.DS_Store"):
            archive.writestr(name, b"")
    check_same(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        archive.writestr("b.csv", text)
    with pytest.raises(ValueError, match=r"has 2 files \(folder/a.csv, b.csv\)"):
        read_entries(tmp_path / "a.zip")
    (tmp_path / "b.csv.gz").write_bytes(text)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        read_entries(tmp_path / "b.csv.gz")


def test_matrix_market(tmp_path):
    matrix = sparse.coo_array(np.array([[0.0, 2.5], [1.0, 0.0]]))
    io.mmwrite(tmp_path / "a.mtx", matrix)
    np.testing.assert_array_equal(
        read_matrix(tmp_path / "a.mtx").values.toarray(), matrix.toarray()
    )


@pytest.mark.parametrize(
    ("headings", "expected"),
    [
        ("userId,movieId,rating,timestamp", (0, 1, 2)),
        ("timestamp,userId,movieId,rating", (1, 2, 3)),
        ("rating,movieId,userId,timestamp", (2, 1, 0)),
        ("userId,movieId,timestamp,rating", (0, 1, 3)),
        (",userId,movieId,rating", (1, 2, 3)),
        ("Unnamed: 0,user_id,item_id,rating", (1, 2, 3)),
        ("id,userId,movieId,rating", (1, 2, 3)),
        ("Bewertung,Kunde,Artikel", (1, 2, 0)),
        ("date,who,what,stars", (1, 2, 3)),
        ("user,thing,stars", (0, 1, 2)),
        ("user,item,weight", (0, 1, 2)),
        ("row,column,value", (0, 1, 2)),
    ],
)
def test_headings_say_what_is_what(headings, expected, tmp_path):
    assert roles(headings.split(","))[:3] == expected
    cells = np.full((6, len(headings.split(","))), "981109092", dtype=object)
    for index, column in zip(expected, ("556677", "abbcca", "123451"), strict=True):
        cells[:, index] = list(column)
    path = write(tmp_path / "a.csv", "\n".join([headings, *map(",".join, cells)]) + "\n")
    found = read_entries(path)
    assert (found.row_names.tolist(), found.column_names.tolist()) == ([5, 6, 7], ["a", "b", "c"])
    np.testing.assert_array_equal(found.values, [1, 2, 3, 4, 5, 1])


@pytest.mark.parametrize("headings", ["a,b,c", "user,user,rating", "order,film,3", "x,y,z,rating"])
def test_headings_that_say_nothing(headings):
    assert roles(headings.split(",")) is None


def test_names_beside_ids_are_no_ids():
    assert roles(["userId", "userName", "movieId", "title", "rating"])[:3] == (0, 2, 4)


@pytest.mark.parametrize("headings", ["date,who,amount", "a,b,c,rating", "who,when,timestamp"])
def test_values_and_times_elsewhere_are_refused(headings, tmp_path):
    line = ",".join("1234"[: headings.count(",") + 1])
    path = write(tmp_path / "a.csv", f"{headings}\n{line}\n")
    with pytest.raises(ValueError, match="stands elsewhere"):
        read_entries(path)


def test_series_and_side_tables_by_their_headings(tmp_path):
    lines = "978300760,1,7\n978300761,2,8\n978300860,2,7\n"
    found = read_series(write(tmp_path / "a.csv", "timestamp,movieId,userId\n" + lines))
    assert (found.row_names.tolist(), found.column_names.tolist()) == ([7, 8], [1, 2])
    with pytest.raises(ValueError, match="ids of rows look like times"):
        read_series(write(tmp_path / "b.csv", lines))
    about = read_features(
        write(tmp_path / "c.csv", ",user,age;".replace(";", "\n0,u1,23\n1,u2,40\n"))
    )
    assert (about.labels, about.ids.tolist()) == (("age",), ["u1", "u2"])


def test_a_matrix_of_stars_that_is_zero_where_nothing_was_rated(tmp_path):
    text = "id,a,b,c,d,e,f,g\nr,1,0,0,0,2,0,0\ns,0,0,3,0,0,0,5\n"
    with pytest.warns(UserWarning, match="10 of 14 cells are 0"):
        read_entries(write(tmp_path / "a.csv", text))


def test_ratings_from_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = {"rating": [5.0, None, 3.0], "userId": ["a", "a", "b"], "movieId": [1, 2, 1]}
    pd.DataFrame(table).to_parquet(tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="1 of 3 lines have no value"):
        found = read_entries(tmp_path / "a.parquet")
    assert (found.row_names.tolist(), found.column_names.tolist()) == (["a", "b"], [1])


def test_times_and_line_numbers_are_no_ratings(tmp_path):
    times = "".join(f"{k % 4},{k // 4},{978300760 + k},{k % 5}\n" for k in range(12))
    with pytest.warns(
        UserWarning, match="'1' as rows, '2' as columns, '4' as values, '3' as times"
    ):
        found = read_entries(write(tmp_path / "a.csv", times))
    np.testing.assert_array_equal(found.values, np.arange(12) % 5)
    few = "".join(times.splitlines(keepends=True)[:4])
    with pytest.raises(ValueError, match=r"look like times.*--columns 1,2,4"):
        read_entries(write(tmp_path / "d.csv", few))
    # the same numbers are values where a heading says so
    found = read_entries(write(tmp_path / "b.csv", "user,item,value,x\n" + times))
    assert found.values[0] == np.float32(978300760)
    numbered = "".join(f"{k},{k % 4},{k // 4},{k % 5}\n" for k in range(12))
    with pytest.warns(UserWarning, match="no two lines have the same row"):
        read_entries(write(tmp_path / "c.csv", numbered))


def test_lines_without_a_value_and_totals_are_left_out(tmp_path):
    text = "user,item,rating\na,p,3\na,q,NA\nb,p,-\nb,q,4\nc,p,\n"
    with pytest.warns(UserWarning, match=r"3 of 5 lines have no value, such as \['a', 'q', 'NA'\]"):
        found = read_entries(write(tmp_path / "a.csv", text))
    assert (found.shape, found.values.tolist()) == ((2, 2), [3, 4])
    with pytest.raises(ValueError, match="no line has a value"):
        read_entries(write(tmp_path / "b.csv", "user,item,rating\na,p,NA\n"))
    repeated = "user,item,rating\na,p,3\na,q,4\na,p,3\n"
    with pytest.warns(UserWarning, match="1 of 3 lines repeat an earlier one"):
        assert read_entries(write(tmp_path / "d.csv", repeated)).values.tolist() == [3, 4]
    with pytest.raises(ValueError, match="Give it once"):
        read_entries(write(tmp_path / "e.csv", repeated.replace("p,3", "p,5", 1)))
    total = "user,item,rating\na,p,3\nb,q,4\nTotal,,7\n"
    with pytest.warns(UserWarning, match="the last line, .* is a total"):
        assert read_entries(write(tmp_path / "c.csv", total)).shape == (2, 2)


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_last_line_without_ids_is_a_total_to_all_readers(tmp_path):
    sales = "date;customer;item;price\n" + "".join(
        f"0{1 + k % 9}.02.2024;c{k % 6 + 1};i{k % 4 + 900};{k % 5},5\n" for k in range(24)
    )
    path = write(tmp_path / "a.csv", sales + "Gesamt;;;50,3\n")
    for read in (read_ones, read_tokens, read_entries):
        with pytest.warns(UserWarning, match="the last line, .* has no ids"):
            data = read(path)
        assert (data.sizes["document"] if read is read_tokens else data.shape[0]) == 6


def test_a_total_of_a_database_is_left_out(tmp_path):
    ids = [f"s{k}" for k in range(12)]
    rows = [f"{name},{k},{2 * k},{3 * k}" for k, name in enumerate(ids)]
    path = write(tmp_path / "a.csv", "\n".join(["id,p,q,r", *rows, "NULL,66,132,198"]))
    with pytest.warns(UserWarning, match="the last row, 'NULL', holds the sums"):
        assert read_matrix(path).values.shape == (12, 3)


def matrix(first, heading, last=None):
    values = np.arange(1, 25).reshape(12, 2) % 7 + 0.5
    lines = [f"{each},{a},{b}" for each, (a, b) in zip(first, values, strict=True)]
    return "\n".join([f"{heading},p,q", *lines, *([] if last is None else [last])]) + "\n"


@pytest.mark.parametrize(
    ("first", "heading", "are_ids"),
    [
        ([f"{k:03d}" for k in range(12)], "x", True),
        (range(12), "Pat.-Nr.", True),
        (range(100, 40, -5), "Kunde", True),
        ([3, 1, 2, 9, 8, 7, 4, 5, 6, 0, 11, 10], "user", True),
        ([3, 1, 2, 9, 8, 7, 4, 5, 6, 0, 11, 10], "sample", True),
        ([3, 1, 2, 9, 8, 7, 4, 5, 6, 0, 11, 11], "user", False),
        ([0.5 + k for k in range(12)], "x", False),
    ],
)
def test_first_columns_that_hold_ids(first, heading, are_ids, tmp_path):
    path = write(tmp_path / "a.csv", matrix(first, heading))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*is read as ids of rows")
        found = read_matrix(path)
    assert found.values.shape == (12, 2 if are_ids else 3)
    if are_ids:
        assert list(map(str, found.row_names)) == list(map(str, first))


@pytest.mark.parametrize("first", [range(100, 220, 10), range(1990, 2002), range(11, -1, -1)])
def test_a_first_column_that_rises_is_data_unless_it_counts_the_lines(first, tmp_path):
    with pytest.warns(UserWarning, match="first column, 'dose', all differ"):
        found = read_matrix(write(tmp_path / "a.csv", matrix(first, "dose")))
    assert found.values[:, 0].tolist() == list(first)
    with pytest.warns(UserWarning, match="numbers, which are those of the lines"):
        found = read_matrix(write(tmp_path / "b.csv", matrix(range(1, 13), "dose")))
    assert found.row_names.tolist() == list(range(1, 13))


@pytest.mark.parametrize("heading", ["sessions", "customers", "Number", "order", "key", "accounts"])
def test_headings_of_counts_and_measures_name_no_rows(heading, tmp_path):
    found = read_matrix(write(tmp_path / "a.csv", f"{heading},p,q\n5,1,2\n3,2,1\n9,4,4\n"))
    assert found.column_names.tolist() == [heading, "p", "q"]
    assert found.values[:, 0].tolist() == [5, 3, 9]


@pytest.mark.parametrize("word", ["order", "user", "sessions"])
def test_words_are_no_headings_of_ids(word, tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*'user', all differ; they are read as data")
        found = read_tokens(write(tmp_path / "a.csv", f"{word},tea,coffee\n5,1,2\n3,2,1\n"))
    assert sorted(found.names["word"]) == sorted([word, "tea", "coffee"])
    assert found.num_tokens == 14


def test_a_heading_that_names_rows_is_warned_of(tmp_path):
    path = write(tmp_path / "a.csv", "user,p,q\n5,1,2\n3,2,1\n9,4,4\n")
    with pytest.warns(UserWarning, match="'user', is read as ids of rows, by its heading"):
        assert read_matrix(path).row_names.tolist() == [5, 3, 9]


def test_zeros_before_numbers_that_repeat_are_no_ids(tmp_path):
    found = read_matrix(write(tmp_path / "a.csv", "p,q\n01,4\n2,5\n2,6\n"))
    assert found.values.tolist() == [[1, 4], [2, 5], [2, 6]]


def test_letters_for_answers_are_no_ids(tmp_path):
    with pytest.warns(UserWarning, match="n as 0, y as 1"):
        found = read_matrix(write(tmp_path / "a.csv", "q1,q2\nY,N\nN,Y\n"))
    assert (found.values.tolist(), found.row_names) == ([[1, 0], [0, 1]], None)


@pytest.mark.parametrize(
    ("text", "headings", "warns"),
    [
        ("country,1990,1991\nDE,1,2\nFR,3,4\n", [1990, 1991], "is read as headings"),
        (",1990,1991\nDE,1,2\nFR,3,4\n", [1990, 1991], None),
        (",1990,1991\n0,1,2\n1,3,4\n", [1990, 1991], None),
        ("user_id,10,30,20\n7,1,2,3\n8,3,4,5\n", [10, 30, 20], None),
        ("DE,1,2\nFR,3,4\n", None, "is read as data"),
        ("DE,1,7,2\nFR,3,4,9\n", None, None),
        (",1990,1991\n3,1,2\n4,3,4\n", None, None),
    ],
)
def test_headings_that_are_numbers(text, headings, warns, tmp_path):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = read_matrix(write(tmp_path / "a.csv", text))
    names = None if found.column_names is None else found.column_names.tolist()
    assert (names, len(found.values)) == (headings, text.count("\n") - (headings is not None))
    assert [warns in str(each.message) for each in heard] == [True] * (warns is not None)


def test_last_lines_of_empty_cells_are_left_out(tmp_path):
    path = write(tmp_path / "a.csv", "p,q\n1,2\n,\n3,4\n,\n , \n")
    with pytest.warns(UserWarning, match="the last 2 lines have nothing but empty cells"):
        found = read_matrix(path).values
    np.testing.assert_array_equal(found, [[1, 2], [np.nan, np.nan], [3, 4]])
    kept = read_matrix(write(tmp_path / "b.csv", "id,p\na,1\nb,\n"))
    assert kept.row_names.tolist() == ["a", "b"]


def test_a_total_below_numbers_of_a_first_column(tmp_path):
    path = write(tmp_path / "a.csv", "store,q1,q2\n4,2,3\n2,3,4\nTotal,5,7\n")
    with pytest.warns(UserWarning, match="the last row, 'Total', holds the sums or means"):
        assert read_matrix(path).values.tolist() == [[4, 2, 3], [2, 3, 4]]
    with pytest.raises(ValueError, match="holds numbers, but 'Total'"):
        read_matrix(write(tmp_path / "b.csv", "store,q1,q2\n4,2,3\n2,3,4\nTotal,5,8\n"))
    ratings = "user,item,rating\nx,p,3\ny,q,4\nall,all,5\n"
    assert read_entries(write(tmp_path / "c.csv", ratings)).row_names.tolist() == ["x", "y", "all"]


def test_points_before_three_digits_are_decimal_ones_where_all_have_one(tmp_path):
    values = np.array([[7.512, 1.25], [2.125, 3.75]])
    np.savetxt(tmp_path / "a.txt", values, fmt="%.3f")
    with pytest.warns(UserWarning, match="the points in the numbers of column 1 are read as"):
        np.testing.assert_array_equal(read_matrix(tmp_path / "a.txt").values, values)
    for text in ("p;q\n7.512;1\n300;2\n", "p;q\n7.512;1,5\n2.125;2,5\n"):
        path = write(tmp_path / "b.csv", text)
        if "300" in text:
            with pytest.raises(ValueError, match=r"may be 7\.512 or 7512"):
                read_matrix(path)
        else:  # as the other column says
            assert read_matrix(path).values.tolist() == [[7512, 1.5], [2125, 2.5]]
    ids = write(tmp_path / "c.csv", "user;film;rating\n1.234;a;2\n12.345;b;3\n")
    assert read_entries(ids).row_names.tolist() == ["1.234", "12.345"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas_without_headings(separator, tmp_path):
    path = write(tmp_path / "a.csv", f"1,5{separator}2,5\n2,5{separator}3,5\n")
    assert read_matrix(path).values.tolist() == [[1.5, 2.5], [2.5, 3.5]]


def test_a_matrix_of_ones_with_headings_of_items(tmp_path):
    path = write(tmp_path / "a.csv", "customer,book,pen,milk\na,1,0,1\nb,0,1,1\nc,1,1,0\n")
    found = read_ones(path)
    assert ones(found) == [
        (0, "book"), (0, "milk"), (1, "milk"), (1, "pen"), (2, "book"), (2, "pen"),
    ]  # fmt: skip
    assert found.row_names.tolist() == ["a", "b", "c"]
    log = write(tmp_path / "b.csv", "user,item,date\na,1,2020\nb,0,2021\n")
    with pytest.warns(UserWarning, match="'user' and 'item' are read, as pairs"):
        assert sorted(read_ones(log).column_names) == [0, 1]


def test_a_matrix_of_counts_with_all_words_of_a_long_table(tmp_path):
    text = "document,word,count,tea\n1,0,2,3\n0,1,2,1\n"
    with pytest.warns(UserWarning, match="'document', all differ; they are read as data"):
        found = read_tokens(write(tmp_path / "a.csv", text))
    assert (found.sizes["word"], found.num_tokens) == (4, 10)
    long = write(tmp_path / "b.csv", ",document,word,count\n0,7,0,2\n1,7,1,3\n")
    assert read_tokens(long).names["document"].tolist() == [7]


def test_a_second_heading_of_values_behind_the_first(tmp_path):
    found = read_entries(write(tmp_path / "a.csv", "user,item,rating,votes\na,p,3,8\nb,q,4,9\n"))
    assert found.values.tolist() == [3, 4]


def test_signs_within_cells_stand_between_none(tmp_path):
    lines = [f"m{k},A|B|C|D,x;y;z;w" for k in range(30)]
    path = write(tmp_path / "a.csv", "\n".join(["id,kinds,tags", *lines]) + "\n")
    assert {len(line) for _, line in numbered_lines(path)} == {3}


def test_a_first_column_that_may_hold_ids(tmp_path):
    path = write(tmp_path / "a.csv", matrix([3, 1, 2, 9, 8, 7, 4, 5, 6, 0, 11, 10], "weight"))
    with pytest.warns(UserWarning, match="first column, 'weight', all differ"):
        assert read_matrix(path).values.shape == (12, 3)


def test_totals_of_a_matrix(tmp_path):
    ids = [f"s{k}" for k in range(12)]
    values = read_matrix(write(tmp_path / "a.csv", matrix(ids, "id"))).values
    sums, means = values.sum(axis=0), values.mean(axis=0)
    for name, row in (("Total", sums), ("mean", means)):
        path = write(tmp_path / "b.csv", matrix(ids, "id", f"{name},{row[0]},{row[1]}"))
        with pytest.warns(UserWarning, match=f"the last row, '{name}', holds the sums or means"):
            np.testing.assert_array_equal(read_matrix(path).values, values)
    named = write(tmp_path / "c.csv", matrix(ids, "id", "Total,1,2"))
    with pytest.warns(UserWarning, match="neither the sums nor the means"):
        assert read_matrix(named).values.shape == (13, 2)
    columns = np.c_[values, values * 2, values.sum(axis=1) * 3]
    text = "a,b,c,d,Total\n" + "\n".join(",".join(map(str, line)) for line in columns) + "\n"
    with pytest.warns(UserWarning, match="the last column, 'Total', holds"):
        assert read_matrix(write(tmp_path / "d.csv", text)).column_names.tolist() == list("abcd")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([1, 2, 3, 4, 5, 9, 9], 9),
        ([1, 2, 3, 4, 5, -1, -1], -1),
        ([0, 1, 0, 1, 9, 9, 1], 9),
        ([1.5, 2.5, -3.5, -999, -999, 0.1, 7], -999),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 9], None),
        ([0, 1, 2, 3, 5, 9, 9], None),
        ([1, 2, 3, 4, 5, 9], None),
        ([-1, 0, 1, -1, 1, 0], None),
        ([1, 1, 9, 9], None),
    ],
)
def test_codes_of_missing_cells(values, code, tmp_path):
    lines = [f"u{k % 3},i{k},{value}" for k, value in enumerate(values)]
    path = write(tmp_path / "a.csv", "user,item,rating\n" + "\n".join(lines) + "\n")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        read_entries(path)
    assert [f"cells are {code}," in str(each.message) for each in heard] == [True] * (
        code is not None
    )


def test_answers_in_words(tmp_path):
    text = "id,q1,q2,q3\nr1,yes,no,?\nr2,No,YES,n/a\nr3,yes,yes,no\n"
    with pytest.warns(UserWarning, match="no as 0, yes as 1"):
        found = read_matrix(write(tmp_path / "a.csv", text))
    np.testing.assert_array_equal(found.values, [[1, 0, np.nan], [0, 1, np.nan], [1, 1, 0]])
    found = read_matrix(write(tmp_path / "b.csv", "q1,q2\nTRUE,FALSE\nFALSE,FALSE\n"))
    np.testing.assert_array_equal(found.values, [[1, 0], [0, 0]])
    beside = "x,smokes,sex,ill\n1.5,yes,0,y\n,no,1,\n7e3,,1,n\n"
    with pytest.warns(UserWarning, match="n as 0, no as 0, y as 1, yes as 1"):
        found = read_matrix(write(tmp_path / "d.csv", beside))
    nan = np.nan
    expected = [[1.5, 1, 0, 1], [nan, 0, 1, nan], [7000, nan, 1, 0]]
    np.testing.assert_array_equal(found.values, expected)
    unclear = write(tmp_path / "c.csv", text.replace("r3,yes", "r3,don't know"))
    with (
        pytest.warns(UserWarning, match="no as 0, yes as 1"),
        pytest.raises(ValueError, match=r"'q1'.* holds no numbers: 'yes'"),
    ):
        read_matrix(unclear)


BASKETS = [["tea", "milk"], ["tea"], ["milk", "jam", "tea"], ["jam", "tea"]] * 3


def ones(data):
    rows, columns = np.asarray(data.rows), np.asarray(data.columns)
    return sorted(zip(rows.tolist(), data.column_names[columns].tolist(), strict=True))


EXPECTED = sorted((k, item) for k, basket in enumerate(BASKETS) for item in basket)


@pytest.mark.parametrize(
    ("name", "lines", "warns"),
    [
        ("a.csv", [";".join(each) for each in BASKETS], None),
        ("a.txt", [" ".join(each) for each in BASKETS], None),
        ("a.csv", ["items", *map(",".join, BASKETS)], "'items' is read as a heading"),
        ("a.csv", ["item1,item2,item3", *map(",".join, BASKETS)], "is read as headings"),
        ("a.csv", [f"T{k}," + ",".join(each) for k, each in enumerate(BASKETS)], "read as ids"),
        (
            "a.csv",
            ["id,items", *(f'{k},"{", ".join(each)}"' for k, each in enumerate(BASKETS))],
            "read as ids",
        ),
        (
            "a.csv",
            [
                "customer,date,item,price",
                *(
                    f"{k},2020-01-{k % 9 + 1},{x},2.5"
                    for k, each in enumerate(BASKETS)
                    for x in each
                ),
            ],
            "'customer' and 'item' are read",
        ),
        (
            "a.csv",
            [
                "tea,milk,jam",
                *(",".join(str(x in each) for x in ("tea", "milk", "jam")) for each in BASKETS),
            ],
            None,
        ),
    ],
)
def test_baskets_as_others_send_them(name, lines, warns, tmp_path):
    path = write(tmp_path / name, "\n".join(lines) + "\n")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        data = read_ones(path)
    assert ones(data) == EXPECTED
    assert [warns in str(each.message) for each in heard] == [True] * (warns is not None)


def test_a_table_is_no_list_of_baskets(tmp_path):
    lines = [f"k{k % 5},{k % 3}.1.2020,{'xyz'[k % 3]}" for k in range(12)]
    path = write(tmp_path / "a.csv", "\n".join(["kasse,tag,was", *lines]) + "\n")
    with pytest.raises(ValueError, match="is a table, not baskets: "):
        read_ones(path)
    assert read_ones(path, form="baskets").shape[0] == 13


def test_pairs_that_repeat_count_once(tmp_path):
    path = write(tmp_path / "a.csv", "user,item\na,p\na,q\na,p\nb,p\n")
    with pytest.warns(UserWarning, match="1 of 4 lines repeat"):
        assert len(read_ones(path).rows) == 3


@pytest.mark.parametrize(
    "times",
    [
        ("9", "10", "8"),
        ("2020-01-02", "2020-11-01", "2019-12-31"),
        ("2020-01-01T10:00:00+02:00", "2020-01-01T09:30:00+00:00", "2020-01-01T11:00:00+09:00"),
        ("2020-01-01 10:00:00", "2020-01-01 10:00:00.5", "2020-01-01 09:00:00"),
    ],
)
def test_of_a_cell_that_is_rated_again_the_last_rating_counts(times, tmp_path):
    lines = [f"a,p,{stars},{time}" for stars, time in zip((1, 2, 3), times, strict=True)]
    text = "\n".join(["user,item,rating,timestamp", *lines, f"b,p,5,{times[0]}", ""])
    with pytest.warns(UserWarning, match="2 of 4 lines have a row and a column of another"):
        found = read_entries(write(tmp_path / "a.csv", text))
    assert found.row_names.tolist() == ["a", "b"]
    assert found.values.tolist() == [2, 5]


@pytest.mark.parametrize(
    "times",
    [
        ("9", "9"),
        ("", "9"),
        ("nan", "9"),
        ("monday", "friday"),
        ("01/02/2020", "02/01/2020"),
        ("2020-01-01T10:00:00Z", "2020-01-01T11:00:00"),
    ],
)
def test_ratings_of_a_cell_whose_last_is_not_known_are_refused(times, tmp_path):
    text = f"user,item,rating,time\na,p,1,{times[0]}\na,p,2,{times[1]}\nb,q,1,{times[1]}\n"
    with pytest.raises(ValueError, match=r"duplicate cell.*drop_duplicates"):
        read_entries(write(tmp_path / "a.csv", text))


def test_equal_ratings_at_times_that_cannot_be_ordered_count_once(tmp_path):
    text = "user,item,rating,time\na,p,1,monday\na,p,1,friday\nb,q,2,friday\n"
    with pytest.warns(UserWarning, match="1 of 3 lines repeat"):
        assert read_entries(write(tmp_path / "a.csv", text)).num_entries == 2


def test_columns_of_fractions_are_a_matrix_and_no_ids(tmp_path):
    path = write(tmp_path / "a.csv", "p,q,r\n0.5,1.25,3\n2.5,0.75,4\n1.5,-2.5,1\n")
    assert read_entries(path).shape == (3, 3)
    path = write(tmp_path / "b.csv", "p,q,r\n1.0,2.0,3\n2.0,1.0,4\n")
    assert read_entries(path).row_names.tolist() == ["1.0", "2.0"]


@pytest.mark.parametrize("headings", ["doc,word,tea", "id,text,tea"])
def test_a_matrix_of_counts_may_have_these_words(headings, tmp_path):
    data = read_tokens(write(tmp_path / "a.csv", f"{headings}\nd1,1,2\nd2,3,1\n"))
    assert (data.num_tokens, data.names["word"].tolist()) == (7, headings.split(",")[1:])


def test_words_and_counts(tmp_path):
    def counted(text, name="a.csv"):
        data = read_tokens(write(tmp_path / name, text))
        table = np.zeros((data.sizes["document"], data.sizes["word"]), int)
        np.add.at(
            table, (np.asarray(data.columns["document"]), np.asarray(data.columns["word"])), 1
        )
        order = np.argsort(data.names["word"])
        return table[:, order].tolist(), data.names["word"][order].tolist()

    expected = [[2, 1], [0, 3]], ["cup", "tea"]
    assert counted("document,word,count\na,cup,2\na,tea,1\nb,tea,3\n") == expected
    assert counted("n,doc_id,term\n2,a,cup\n1,a,tea\n3,b,tea\n") == expected
    assert counted("doc,word\na,cup\na,cup\na,tea\nb,tea\nb,tea\nb,tea\n") == expected
    sales = "customer,date,item\na,1 May,cup\na,2 May,cup\na,2 May,tea\n" + "b,1 May,tea\n" * 3
    with pytest.warns(UserWarning, match="the others, 'date', do not count"):
        assert counted(sales) == expected
    assert counted("customer,item,count\na,cup,2\na,tea,1\nb,tea,3\n") == expected
    assert counted("A cup, Tea: a cup!\ntea; tea? Tea.\n", "a.txt") == expected
    table = 'id,title,text\n7,x,"A cup, tea: a cup!"\n8,y,"tea;\ntea? Tea."\n'
    assert counted(table) == expected
    assert read_tokens(tmp_path / "a.csv").names["document"].tolist() == [7, 8]
    with pytest.raises(ValueError, match="fractional count"):
        counted("doc,word,count\na,cup,0.5\n")


def test_a_matrix_of_counts_with_words_such_as_user_and_item_is_no_table_of_sales(tmp_path):
    path = write(tmp_path / "a.csv", "tea,user,item\n2,1,0\n2,0,1\n")
    assert read_tokens(path).names["word"].tolist() == ["tea", "user", "item"]
    path = write(tmp_path / "b.csv", "name,user,item,tea\nd1,1.0,2.0,0.0\nd2,0.0,1.0,3.0\n")
    assert read_tokens(path).sizes == {"document": 2, "word": 3}


def test_reviews_with_their_text_are_no_table_of_sales(tmp_path):
    lines = "user,product,text\nu1,p1,good dog food\nu2,p1,bad food\n"
    words = read_tokens(write(tmp_path / "a.csv", lines)).names["word"]
    assert sorted(words) == ["bad", "dog", "food", "good"]


def test_an_id_is_one_however_its_accents_are_written(tmp_path):
    lines = ["reader,book,stars"]
    lines += [f"{reader},b{k},{k}" for k, reader in enumerate(["Jo\u00e3o", "Joa\u0303o"], 3)]
    data = read_entries(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert data.row_names.tolist() == ["Jo\u00e3o"]


MARKS = "Élève;Classe;Français;Chimie\nZoé;3e;13,5;abs\nPál;3e;9,5;12,25\nLéa;3f;11;8\n"


def test_words_and_codes_stand_for_numbers_or_missing_cells(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text(MARKS, encoding="utf-8")
    with pytest.raises(ValueError, match=r"--drop Classe\), or give its 2 answers.*'3e=\?,3f=\?'"):
        read_matrix(path)
    says = r"column 4 \('Chimie'\) holds numbers, but 'abs' in line 2.*--recode abs=\."
    with pytest.raises(ValueError, match=says):
        read_matrix(path, drop_columns=["Classe"])
    table = read_matrix(path, recode={"ABS": None, "3e": 3, "3f": 2.5, "Zoé": 9})
    assert table.row_names.tolist() == ["Zoé", "Pál", "Léa"]
    expected = [[3, 13.5, np.nan], [3, 9.5, 12.25], [2.5, 11, 8]]
    np.testing.assert_array_equal(table.values, expected)
    path = tmp_path / "r.csv"
    path.write_text("user,item,stars\nu1,good,good\nu1,b,abs\nu2,b,1\n")
    with pytest.raises(ValueError, match=r"value 'good' of line 2, .*--recode good="):
        read_entries(path)
    with pytest.warns(UserWarning, match="1 of 3 lines have no value"):
        found = read_entries(path, recode={"good": 5, "abs": None})
    assert np.asarray(found.values).tolist() == [5, 1]
    assert found.column_names.tolist() == ["good", "b"]
    path.write_text("id,a,b\nr,often,never\ns,never,often\n")
    assert read_ones(path, form="matrix", recode={"often": 1, "never": 0}).num_ones == 2
    path.write_text("site;wren;owl\na;x;\nb;;x\nc;X;x\n")
    assert read_ones(path, recode={"x": 1, "": 0}).num_ones == 4
    path.write_text("site;wren;owl\na;x;\nb;;x\nc;x;x\n")
    with pytest.raises(ValueError, match=r"if it is a mark, .*--recode x=1,=0"):
        read_matrix(path)
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match="recode is of words and codes in texts"):
        read_matrix(tmp_path / "x.npy", recode={"a": 1})


def test_a_column_that_is_called_a_mean_and_is_none_is_named(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text("id;a;b;Moyenne\nr;1;2;1,7\ns;3;4;3,1\nt;5;6;5,2\n")
    with pytest.warns(UserWarning, match="'Moyenne', holds neither .*--drop Moyenne"):
        assert read_matrix(path).values.shape == (3, 3)


def test_what_a_table_lacks_is_said_with_the_columns_to_name(tmp_path):
    path = tmp_path / "scans.csv"
    scans = [f"2025-03-{k + 1:02d},B{k % 4},e{k % 3},G{k % 2},{5 + k}" for k in range(20)]
    path.write_text("\n".join(["at,badge,exhibit,gate,dwell", *scans, ""]))
    with pytest.raises(ValueError, match=r"is not known: .*--columns badge,exhibit,at"):
        read_series(path)
    with pytest.raises(ValueError, match=r"matrix of counts.*--columns badge,exhibit"):
        read_tokens(path)
    named = ["badge", "exhibit", "dwell"]
    says = "row 'B0' and column 'e0' is 5 in line 2 and 17 in line 14.*--columns badge,.*,at"
    with pytest.raises(ValueError, match=says):
        read_entries(path, use_columns=named)
    with pytest.warns(UserWarning, match="the last one by time counts"):
        assert read_entries(path, use_columns=[*named, "at"]).num_entries == 12
    with pytest.raises(ValueError, match=r"'Badge' is not there.* Is 'badge' meant"):
        read_entries(path, use_columns=["Badge", "exhibit", "dwell"])


def test_answers_in_words_are_no_baskets(tmp_path):
    path = tmp_path / "answers.csv"
    words = ["agree", "disagree", "neither"]
    lines = [f"2025/01/{k + 1:02d},R{k},{words[k % 3]},{words[k % 2]}" for k in range(20)]
    path.write_text("\n".join(["when,respondent,I like tea,I like jam", *lines, ""]))
    for read in (read_ones, read_tokens):
        with pytest.raises(ValueError, match="is a table, not baskets"):
            read(path)
    with pytest.raises(ValueError, match=r"it first if it holds ids .*--columns 'respondent,I"):
        read_matrix(path)
    one = tmp_path / "one.csv"
    one.write_text("respondent,I like tea\nR9,sometimes\n")
    with pytest.raises(ValueError, match=r"--recode 'sometimes=.'") as refused:
        read_matrix(one)
    assert "if it holds ids" not in str(refused.value)
    table = read_matrix(
        path,
        use_columns=["respondent", "I like tea", "I like jam"],
        recode={"agree": 3, "neither": 2, "disagree": 1},
    )
    assert table.row_names.tolist()[:2] == ["R0", "R1"]
    assert table.values.tolist()[:3] == [[3, 3], [1, 1], [2, 3]]


def test_a_folder_of_texts_is_a_corpus(tmp_path):
    with pytest.raises(ValueError, match=r"the folder has no \.txt file"):
        read_tokens(tmp_path)
    for name, text in (("b", "Green tea,\ngreen cup.\n"), ("a", "Black tea")):
        (tmp_path / f"{name}.txt").write_text(text)
    found = read_tokens(tmp_path)
    assert found.names["document"].tolist() == ["a", "b"]
    assert sorted(found.names["word"].tolist()) == ["black", "cup", "green", "tea"]
    assert found.num_tokens == 6
