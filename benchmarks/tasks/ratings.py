"""What will users give next, with what error and intervals? MovieLens 100K, the last tenth."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import numpy as np
    import pandas as pd

    import jaxmf as mf

    films = mf.datasets.movielens_100k()
    data, order = films.data, np.argsort(films.time, kind="stable")
    genres = ["|".join(films.genre_names[row]) for row in films.genres]
    users = {"user": [f"u{n}" for n in range(943)], "age": films.user_age}
    users |= {"sex": np.where(films.user_is_male, "M", "F"), "occupation": films.user_occupation}
    ids = {
        "user": [f"u{n}" for n in data.rows[order]],
        "film": [f"f{n}" for n in data.columns[order]],
    }
    table = pd.DataFrame(ids | {"stars": np.asarray(data.values)[order].astype(int)})
    table[:90_000].to_csv(folder / "train.csv", index=False)
    table[90_000:].to_csv(folder / "test.csv", index=False)
    pd.DataFrame(users).to_csv(folder / "users.csv", index=False)
    columns = {"film": [f"f{n}" for n in range(1682)], "title": films.titles, "genres": genres}
    pd.DataFrame(columns).to_csv(folder / "films.csv", index=False)


def jaxmf(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd

    import jaxmf as mf

    train, test, users, films = (
        pd.read_csv(f"{folder}/{name}.csv") for name in ("train", "test", "users", "films")
    )
    ratings = mf.Entries.from_pandas(
        train,
        row="user",
        column="film",
        value="stars",
        row_names=users.user,
        column_names=films.film,
    )
    about_users = mf.Features.from_pandas(users, id="user")
    about_films = mf.Features.from_pandas(
        films.drop(columns="title"), id="film", lists={"genres": "|"}
    )
    model = mf.BPMF(
        8,
        row_features=about_users,
        column_features=about_films,
        likelihood=mf.Ordinal((1, 2, 3, 4, 5)),
    )
    post = mf.sample(model, ratings, num_warmup=100, num_samples=100, num_chains=2, seed=0)
    answer = post.predict((test.user, test.film))
    rmse = float(np.sqrt(np.mean((answer.mean - test.stars.values) ** 2)))
    low, high = np.asarray(answer.quantiles)
    inside = float(np.mean((low <= test.stars.values) & (test.stars.values <= high)))
    return {"rmse": rmse, "inside": inside}


def surprise(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    train, test = (pd.read_csv(f"{folder}/{name}.csv") for name in ("train", "test"))
    data = Dataset.load_from_df(train, Reader(rating_scale=(1, 5))).build_full_trainset()
    algorithm = SVD(random_state=0).fit(data)
    answer = np.array(
        [algorithm.predict(u, i).est for u, i in zip(test.user, test.film, strict=True)]
    )
    rmse = float(np.sqrt(np.mean((answer - test.stars) ** 2)))
    return {"rmse": rmse}


def myfm(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd
    from myfm import MyFMRegressor
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    train, test, users, films = (
        pd.read_csv(f"{folder}/{name}.csv") for name in ("train", "test", "users", "films")
    )
    wide = [table.merge(users, on="user").merge(films, on="film") for table in (train, test)]
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["user", "film", "sex", "occupation"]),
        (StandardScaler(), ["age"]),
        (CountVectorizer(token_pattern=r"[^|]+", binary=True), "genres"),
        sparse_threshold=1.0,
    )
    X = encode.fit_transform(wide[0]).tocsr()
    fm = MyFMRegressor(rank=8, random_seed=0).fit(
        X, wide[0].stars.values.astype(float), n_iter=200, n_kept_samples=100
    )
    answer = fm.predict(encode.transform(wide[1]).tocsr())
    return {"rmse": float(np.sqrt(np.mean((answer - wide[1].stars) ** 2)))}


if __name__ == "__main__":
    run("ratings", prepare, ("jaxmf", "surprise", "myfm"))
