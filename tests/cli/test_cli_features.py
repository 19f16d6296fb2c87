"""Side information on the command line."""

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import cli
from jaxmf.cli.inputs import describe_features
from jaxmf.cli.new_rows import NewFiles, read_new
from jaxmf.data import read_features


def written(tmp_path):
    generator = np.random.default_rng(0)
    lines = [
        f"u{user},{item},{generator.integers(1, 6)}"
        for user in range(8)
        for item in range(10, 16)
        if generator.random() < 0.7
    ]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    users = [f"u{user},{20 + user},{'FM'[user % 2]}" for user in reversed(range(9))]
    (tmp_path / "users.csv").write_text("user,age,sex\n" + "\n".join(users) + "\n")
    genres = ["War|Drama", "War", "Drama", "Drama|Comedy", "Comedy", "War"]
    items = [f"{item},{genre}" for item, genre in zip(range(10, 16), genres, strict=True)]
    (tmp_path / "movies.csv").write_text("movie,genres\n" + "\n".join(items) + "\n")
    return [str(tmp_path / name) for name in ("ratings.csv", "users.csv", "movies.csv")]


def fit(tmp_path, *arguments):
    return cli.run(["fit", *arguments, "--out", str(tmp_path / "run"), "--no-progress"])


@pytest.mark.exhaustive
def test_features_of_users_and_items_are_read_matched_and_kept(tmp_path, capsys):
    ratings, users, movies = written(tmp_path)
    more = ["--chains", "1", "--samples", "3", "--warmup", "1", "--set", "num_factors=1"]
    files = ["--user-features", users, "--item-features", movies]
    assert fit(tmp_path, "bpmf", ratings, *files, *more) == 0
    post = mf.load(tmp_path / "run")
    assert post.model.row_features.labels == ("age", "sex=F", "sex=M")
    assert post.model.column_features.labels == ("genres=Comedy", "genres=Drama", "genres=War")
    position = post.data.row_names.tolist().index("u3")
    assert post.model.row_features.to_array()[position, 1:].tolist() == [0, 1]
    table = tmp_path / "cells.csv"
    table.write_text("row,column\nu3,11\nu4,10\n")
    capsys.readouterr()
    assert cli.run(["predict", str(tmp_path / "run"), str(table)]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    new, run = tmp_path / "new.csv", str(tmp_path / "run")
    new.write_text("movie,genres\n77,Comedy\n78,War\n10,Drama\n")
    table.write_text("user,movie\nu3,78\nu4,77\n")
    features = ["--item-features", str(new)]
    assert cli.run(["predict", run, str(table), *features]) == 0
    printed = capsys.readouterr()
    assert "1 of 3 columns are in the run too; they are taken as new ones" in printed.err
    lines = list(csv.reader(printed.out.splitlines()))[1:]
    films = post.model.column_features.encode(
        {"genres": ["Comedy", "War", "Drama"]}, ids=[77, 78, 10]
    )
    found = post.predict((["u3", "u4"], [78, 77]), column_features=films)
    assert [line[:2] for line in lines] == [["u3", "78"], ["u4", "77"]]
    np.testing.assert_allclose([float(line[2]) for line in lines], found.mean, rtol=1e-4)
    assert cli.run(["recommend", run, "u3", *features]) == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    assert sorted(line[2] for line in lines) == ["10", "77", "78"]
    assert lines[0][2] == str(post.recommend(["u3"], column_features=films).column_names[0, 0])
    asked = ["u3", "nobody"]
    assert cli.run(["recommend", run, *asked, "-n", "1", *features, "--unknown", "prior"]) == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    best = post.recommend(asked, n=1, column_features=films, unknown="prior")
    assert [line[2] for line in lines] == list(map(str, best.column_names[:, 0]))
    table.write_text("user,movie\nu3,12\n")
    assert cli.run(["predict", run, str(table), *features]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"no column has the id 12; the file of --column-features, {new}, has columns 77" in said


def small_run(tmp_path):
    """A run with features of users, of each kind: numbers, levels that are numbers, and lists."""
    ratings, users, _ = written(tmp_path)
    kinds = [f"u{user},{20 + user},{user % 2},{'a|b' if user % 3 else 'b'}" for user in range(8)]
    Path(users).write_text("user,age,job,likes\n" + "\n".join(kinds) + "\n")
    features = read_features(users, categorical=["job"])
    model = mf.BPMF(1, row_features=features)
    options = {"num_warmup": 1, "num_samples": 4, "num_chains": 1, "progress": False}
    post = mf.sample(model, mf.data.read_entries(ratings), **options)
    post.save(tmp_path / "run")
    return post, str(tmp_path / "run")


@pytest.mark.slow
def test_features_of_new_users_are_read_as_those_in_training(tmp_path, capsys):
    post, run = small_run(tmp_path)
    new, cells, first = (tmp_path / name for name in ("new.csv", "cells.csv", "first.csv"))
    # alone they would be numbers and a level: no job is a text, no cell has the separator
    new.write_text("user,likes,job,age\n7,b,1,30\n8,a,0,20\n")
    table = {"user": [7, 8], "age": [30, 20], "job": [1, 0], "likes": ["b", "a"]}
    expected = post.model.row_features.encode(table, ids=[7, 8])
    cells.write_text("user,item\n7,10\n8,12\n")
    assert cli.run(["predict", run, str(cells), "--row-features", str(new)]) == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    assert [line[:2] for line in lines] == [["7", "10"], ["8", "12"]]
    found = post.predict(([7, 8], [10, 12]), row_features=expected)
    np.testing.assert_allclose([float(line[2]) for line in lines], found.mean, rtol=1e-4)
    # with ratings, among whose ids are texts
    first.write_text("user,item,rating\n7,10,5\nann,11,1\n8,10,1\n")
    more = ["--new-rows", str(first), "--user-features", str(new)]
    assert cli.run(["recommend", run, "7", "-n", "2", *more]) == 2
    assert "no line has the id 'ann'" in capsys.readouterr().err
    assert cli.run(["recommend", run, "7", "-n", "2", *more, "--missing-features", "zero"]) == 0
    assert [line[:2] for line in capsys.readouterr().out.splitlines()[1:]] == ["7,", "7,"]


def test_features_without_ratings_are_named(tmp_path):
    ratings, users, movies = written(tmp_path)
    data = mf.data.read_entries(ratings)
    assert describe_features("column_features", read_features(movies), data) == (
        "features of 6 columns: genres=Comedy, genres=Drama, genres=War"
    )
    assert describe_features("row_features", read_features(users), data) == (
        "features of 9 rows: age, sex=F, sex=M; left out, as the data lacks them: 'u8' (1 in all)"
    )


@pytest.mark.slow
def test_features_of_new_users_that_cannot_be_are_refused(tmp_path, capsys):
    post, run = small_run(tmp_path)
    with pytest.raises(ValueError, match=r"row_features= from what is known of the row$"):
        post.predict((["ann"], [10]))
    with pytest.raises(ValueError, match=r"cells that are known of the row$"):
        post.predict((["u1"], [99]))  # columns have no features
    new = tmp_path / "new.csv"
    new.write_text("user,age,job,likes\nann,30,7,a\n")
    ask = ["recommend", run, "-n", "1"]
    for options, says in (
        (["--row-features", str(new)], "have the level 'job=7' of 'ann', which those in training"),
        (["--row-features", str(new), "--unknown", "prior"], "--unknown prior: nothing can be"),
        (["--missing-features", "zero"], "--missing-features says what is done where"),
        (["--row-features", str(new), "--form", "triples"], "--form says how the file of --new-"),
        (["--column-features", str(new)], "the run was fitted without features of the columns"),
        (["--column-features", str(new), "--row-features", str(new)], "ask about one of them at"),
    ):
        assert cli.run([*ask, *options]) == 2
        assert says in " ".join(capsys.readouterr().err.split())
    new.write_text("user,age\nann,30\n")
    assert cli.run([*ask, "--row-features", str(new)]) == 2
    assert "have no column 'job=0', which those in training have" in capsys.readouterr().err
    plain = SimpleNamespace(model=mf.LDA(2))
    with pytest.raises(ValueError, match="--row-features: the run was fitted without features"):
        read_new(plain, NewFiles(None, new, None), missing="refuse", reading={})
    with pytest.raises(ValueError, match="--column-features: the run was fitted without features"):
        read_new(plain, NewFiles(None, None, new), missing="refuse", reading={})


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_column_of_the_features_names_classes(tmp_path):
    ratings, users, _ = written(tmp_path)
    more = ["--chains", "1", "--samples", "3", "--warmup", "1", "--set", "num_factors=1"]
    groups = ["--set", "row_classes=sex", "--set", "mixture=(HDP(), none)", "--set", "capacity=12"]
    assert fit(tmp_path, "bpmf", ratings, "--user-features", users, *more, *groups) == 0
    post = mf.load(tmp_path / "run")
    assert post.model.row_features.labels == ("age",)
    assert post.group_weights("row").classes == ("F", "M", None)
    position = post.data.row_names.tolist().index("u3")
    assert post.model.row_classes.levels()[position] == 1


def test_mistakes_are_said_in_a_line(tmp_path, capsys):
    ratings, users, movies = written(tmp_path)
    assert fit(tmp_path, "bi-lda", ratings, "--row-features", users) == 2
    assert "--row-features: bi-lda takes no side information" in capsys.readouterr().err
    few = (tmp_path / "users.csv").read_text().splitlines()[:4]
    (tmp_path / "users.csv").write_text("\n".join(few) + "\n")
    assert fit(tmp_path, "bpmf", ratings, "--row-features", users, "--set", "num_factors=1") == 2
    assert f"--row-features {users}: no line has the id" in capsys.readouterr().err
    assert fit(tmp_path, "bpmf", ratings, "--item-features", movies, "--missing-features", "x") == 2
    assert "--missing-features must be refuse or zero" in capsys.readouterr().err


def test_none_is_a_level_and_the_advice_names_the_option(tmp_path, capsys):
    path = tmp_path / "users.csv"
    path.write_text("user,job,age\nu1,none,20\nu2,writer,30\nu3,none,25\n")
    assert read_features(path).labels == ("job=none", "job=writer", "age")
    ratings, _, _ = written(tmp_path)
    path.write_text("user,job\nu1,\nu2,writer\n")
    assert fit(tmp_path, "bpmf", ratings, "--user-features", str(path)) == 2
    printed = capsys.readouterr().err
    assert "column 'job': the value in line 2, of 'u1', is missing" in printed
    assert "say --missing-features zero" in printed
    assert "missing=" not in printed
