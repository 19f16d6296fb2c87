"""Side information on the command line."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import cli
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


@pytest.mark.slow
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
    assert "row_features: no line has the id" in capsys.readouterr().err
    assert fit(tmp_path, "bpmf", ratings, "--item-features", movies, "--missing-features", "x") == 2
    assert 'missing: must be "refuse" or "zero"' in capsys.readouterr().err


def test_none_is_a_level_and_the_advice_names_the_option(tmp_path, capsys):
    path = tmp_path / "users.csv"
    path.write_text("user,job,age\nu1,none,20\nu2,writer,30\nu3,none,25\n")
    assert read_features(path).labels == ("job=none", "job=writer", "age")
    ratings, _, _ = written(tmp_path)
    path.write_text("user,job\nu1,\nu2,writer\n")
    assert fit(tmp_path, "bpmf", ratings, "--user-features", str(path)) == 2
    printed = capsys.readouterr().err
    assert "column 'job': is missing in line 2" in printed
    assert "say --missing-features zero" in printed
    assert "missing=" not in printed
