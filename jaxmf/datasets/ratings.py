"""Ratings of movies: MovieLens 100K and 1M, with what is known of users and movies.

GroupLens allows research use, asks to be acknowledged, and does not allow redistribution.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.data import Entries, Features
from jaxmf.data.names import object_array
from jaxmf.datasets import parsers
from jaxmf.datasets.cache import Prepared, Recipe, Source, read

_SPLITS = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
_GENRES_1M = [
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]


class Ratings(NamedTuple):
    """Ratings by users (rows) of items (columns); ids are the numbers of the original files.

    Attributes:
        data: the ratings, T observed cells in the original order.
        time: (T,) seconds since 1970 (100K), or the position among the user's ratings from 1 on, 0
            for items with fewer than five ratings (1M).
        test: for each published split (T,) bool, the ratings held out.
        titles: (D,) texts.
        genres: (D, G) bool.
        genre_names: (G,) texts.
        user_age: (N,) int: years (100K), or the lower end of a range (1M).
        user_is_male: (N,) bool.
        user_occupation: (N,) texts (100K) or codes (1M).
        user_zip: (N,) texts.
    """

    data: Entries
    time: np.ndarray
    test: dict[str, np.ndarray]
    titles: np.ndarray
    genres: np.ndarray
    genre_names: np.ndarray
    user_age: np.ndarray
    user_is_male: np.ndarray
    user_occupation: np.ndarray
    user_zip: np.ndarray

    def user_features(self) -> Features:
        """Age, sex and occupation of users: one numeric column and two sets of indicators."""
        sex = np.where(self.user_is_male, "M", "F").astype(object)
        table = {"age": self.user_age, "sex": sex, "occupation": self.user_occupation}
        return Features.from_columns(table, ids=self.data.row_names, categorical=["occupation"])

    def item_features(self) -> Features:
        """Year and genres of movies: one numeric column, indicators of which several may be set.

        A movie whose title ends in no year gets the average.
        """
        matches = [re.search(r"\((\d{4})\)\s*$", title) for title in self.titles.tolist()]
        year = np.array([float(match[1]) if match else np.nan for match in matches])
        years = Features.from_columns({"year": year}, ids=self.data.column_names, missing="zero")
        genres = Features(self.genres, self.data.column_names, columns=list(self.genre_names))
        return Features.from_blocks({"year": years, "genre": genres})


def _archive_lines(path: Path, folder: str, names: tuple[str, ...]) -> dict[str, list[str]]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: parsers.lines_of(archive.read(f"{folder}/{name}"), encoding="latin-1")
            for name in names
        }


def _ratings(lines: list[str], separator: str) -> np.ndarray:
    """(T, 4) users, items, ratings, timestamps."""
    return np.asarray(parsers.fields(lines, separator, 4), np.int64)


def _build_100k(paths: Mapping[str, Path]) -> Prepared:
    names = ("u.data", "u.item", "u.user", "u.genre", "u.occupation")
    splits = tuple(f"{split}.test" for split in _SPLITS)
    lines = _archive_lines(paths["ml-100k.zip"], "ml-100k", names + splits)
    table = _ratings(lines["u.data"], "\t")
    genres = [line.rpartition("|")[0] for line in lines["u.genre"] if line]
    items = parsers.fields(lines["u.item"], "|", 5 + len(genres))
    users = parsers.fields(lines["u.user"], "|", 5)
    occupations = [line for line in lines["u.occupation"] if line]
    arrays: dict[str, np.ndarray] = {
        "user": (table[:, 0] - 1).astype(np.uint16),
        "item": (table[:, 1] - 1).astype(np.uint16),
        "rating": table[:, 2].astype(np.uint8),
        "timestamp": table[:, 3].astype(np.uint32),
        "item_genre": np.asarray([item[5:] for item in items], int).astype(np.uint8),
        "user_age": np.asarray([user[1] for user in users], int).astype(np.uint8),
        "user_male": np.asarray([user[2] == "M" for user in users], np.uint8),
        "user_occupation": np.asarray([occupations.index(user[3]) for user in users], np.uint8),
    }
    for split in _SPLITS:
        held_out = _ratings(lines[f"{split}.test"], "\t")
        is_test = np.isin(_cell(table), _cell(held_out))
        if is_test.sum() != len(held_out):
            raise ValueError(f"{split}.test: holds ratings that u.data does not")
        arrays[f"test_{split}"] = np.packbits(is_test)
    texts = {
        "genres.txt": genres,
        "occupations.txt": occupations,
        "titles.txt": [f"{item[1]}\t{item[2]}" for item in items],
        "zip.txt": [user[4] for user in users],
    }
    return Prepared(arrays, texts)


def _cell(table: np.ndarray) -> np.ndarray:
    return table[:, 0] * 2**32 + table[:, 1]


ML_100K = Recipe(
    "ml-100k",
    "ml100k.npz",
    ("genres.txt", "occupations.txt", "titles.txt", "zip.txt"),
    (
        Source(
            "ml-100k.zip",
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
            "0e33842e24a9c977be4e0107933c0723",
        ),
    ),
    _build_100k,
)


def movielens_100k() -> Ratings:
    """MovieLens 100K: 100,000 ratings (1 to 5) by 943 users of 1682 movies, seven splits.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Harper, Konstan (2015), The MovieLens datasets: history and context.
    """
    arrays, texts = read(ML_100K)
    num_users, num_items = len(arrays["user_age"]), len(arrays["item_genre"])
    num_ratings = len(arrays["rating"])
    data = Entries(
        arrays["user"],
        arrays["item"],
        arrays["rating"],
        (num_users, num_items),
        np.arange(1, num_users + 1),
        np.arange(1, num_items + 1),
    )
    test = {
        name.removeprefix("test_"): np.unpackbits(array, count=num_ratings).astype(bool)
        for name, array in arrays.items()
        if name.startswith("test_")
    }
    return Ratings(
        data,
        arrays["timestamp"],
        test,
        object_array([line.split("\t")[0] for line in texts["titles.txt"]]),
        arrays["item_genre"].astype(bool),
        object_array(texts["genres.txt"]),
        arrays["user_age"].astype(int),
        arrays["user_male"].astype(bool),
        object_array(texts["occupations.txt"])[arrays["user_occupation"]],
        object_array(texts["zip.txt"]),
    )


def _build_1m(paths: Mapping[str, Path]) -> Prepared:
    lines = _archive_lines(paths["ml-1m.zip"], "ml-1m", ("ratings.dat", "movies.dat", "users.dat"))
    table = _ratings(lines["ratings.dat"], "::")
    movies = parsers.fields(lines["movies.dat"], "::", 3)
    users = parsers.fields(lines["users.dat"], "::", 5)
    genres = [movie[2].split("|") for movie in movies]
    arrays: dict[str, np.ndarray] = {
        "user": (table[:, 0] - 1).astype(np.uint16),
        "movie_id": table[:, 1].astype(np.uint16),
        "rating": table[:, 2].astype(np.uint8),
        "movie_ids_rated": np.unique(table[:, 1]).astype(np.uint16),
        "movies_id": np.asarray([movie[0] for movie in movies], int).astype(np.uint16),
        "movies_genre": np.asarray(
            [[g in row_genres for g in _GENRES_1M] for row_genres in genres], np.uint8
        ),
        "user_male": np.asarray([user[1] == "M" for user in users], np.uint8),
        "user_age_code": np.asarray([user[2] for user in users], int).astype(np.uint8),
        "user_occupation": np.asarray([user[3] for user in users], int).astype(np.uint8),
        "time_rank": _time_ranks(table),
    }
    texts = {
        "genres.txt": list(_GENRES_1M),
        "movies.txt": [f"{movie[0]}\t{movie[1]}" for movie in movies],
        "zip.txt": [user[4] for user in users],
    }
    return Prepared(arrays, texts)


def _time_ranks(table: np.ndarray, *, least: int = 5) -> np.ndarray:
    """(T,) uint16, a rating's position in its user's time order from 1 on; 0 for rare movies."""
    _, movie, counts = np.unique(table[:, 1], return_inverse=True, return_counts=True)
    common = np.flatnonzero(counts[movie] >= least)
    order = common[np.lexsort((common, table[common, 3], table[common, 0]))]
    users = table[order, 0]
    starts = np.searchsorted(users, users, side="left")
    ranks = np.zeros(len(table), np.uint16)
    ranks[order] = np.arange(len(order)) - starts + 1
    return ranks


ML_1M = Recipe(
    "ml-1m",
    "ml1m.npz",
    ("genres.txt", "movies.txt", "zip.txt"),
    (
        Source(
            "ml-1m.zip",
            "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
            "c4d9eecfca2ab87c1945afe126590906",
        ),
    ),
    _build_1m,
)


def movielens_1m() -> Ratings:
    """MovieLens 1M: 1,000,209 ratings (1 to 5) by 6040 users of 3706 movies, no split.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Harper, Konstan (2015), The MovieLens datasets: history and context.
    """
    arrays, texts = read(ML_1M)
    rated = arrays["movie_ids_rated"].astype(int)
    num_users = len(arrays["user_age_code"])
    data = Entries(
        arrays["user"],
        np.searchsorted(rated, arrays["movie_id"]),
        arrays["rating"],
        (num_users, len(rated)),
        np.arange(1, num_users + 1),
        rated,
    )
    listed = np.searchsorted(arrays["movies_id"], rated)
    titles = object_array([line.split("\t")[1] for line in texts["movies.txt"]])
    return Ratings(
        data,
        arrays["time_rank"],
        {},
        titles[listed],
        arrays["movies_genre"][listed].astype(bool),
        object_array(texts["genres.txt"]),
        arrays["user_age_code"].astype(int),
        arrays["user_male"].astype(bool),
        arrays["user_occupation"].astype(int),
        object_array(texts["zip.txt"]),
    )
