"""Porteous (2010), 6.2, on MovieLens: BPMF with side information and with Dirichlet processes.

Table 6.2 (plain, DP, side information, both; as many free factors fewer as side information has
numbers), baselines, Figures 6.18 and 6.19, Table 6.3, and the error and the coverage by predicted
standard deviation. Settings were fixed beforehand; the first 20 sweeps are left out of averages.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import loads
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmf as mf
from benchmarks.factor_chains import Split, split
from benchmarks.factors import ratings, side_information, tenth
from benchmarks.harness import Stopwatch
from benchmarks.records import Paper

NUM_WARMUP = 20
NUM_FACTORS = 36
DATA = {"ml-100k": 100, "ml-1m": 40}  # draws after warm-up
KINDS = ("baselines", "plain", "DP", "SI", "DP, SI")
NORMAL_90 = 1.6449


@jax.jit
def _moments(model: Any, draw: Any, data: Any, rows: Any, columns: Any) -> Any:
    return model.predict_cells(draw, data, rows, columns)


def moments_by_draw(posterior: Any, data: Split) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (S, M) of the held-out cells given every draw of one chain."""
    cells = jnp.asarray(data.rows), jnp.asarray(data.columns)
    number = len(posterior.draws["u"][0])
    found = []
    for position in range(number):
        draw = {name: jnp.asarray(values[0][position]) for name, values in posterior.draws.items()}
        found.append(_moments(posterior.model, draw, posterior.data, *cells))
    means, variances = zip(*found, strict=True)
    return np.stack(means), np.stack(variances)


def curves(means: np.ndarray, data: Split) -> dict[str, list[float]]:
    """Errors of single draws, of their running average, and of that after warm-up (Figure 6.18)."""
    later = means[NUM_WARMUP:]

    def average(found: np.ndarray) -> list[float]:
        sums = np.cumsum(found, axis=0) / np.arange(1, len(found) + 1)[:, None]
        return [data.error(one) for one in sums]

    return {
        "single": [data.error(one) for one in means],
        "running": average(means),
        "after_warmup": average(later),
    }


def by_sd(means: np.ndarray, variances: np.ndarray, data: Split, *, parts: int = 10) -> dict:
    """Error and coverage of 90 % intervals, in parts of equal size by predicted sd."""
    later = slice(NUM_WARMUP, None)
    mean = means[later].mean(axis=0)
    sd = np.sqrt(variances[later].mean(axis=0) + means[later].var(axis=0))
    off = mean - data.values
    within = np.abs(off) <= NORMAL_90 * sd
    order = np.array_split(np.argsort(sd), parts)
    return {
        "sd": [float(sd[each].mean()) for each in order],
        "error": [float(np.sqrt(np.mean(off[each] ** 2))) for each in order],
        "coverage": [float(within[each].mean()) for each in order],
        "coverage_of_all": float(within.mean()),
    }


def coefficients(posterior: Any) -> dict[str, Any]:
    """Means and variances of the entries of users' and movies' vectors (Figure 6.19)."""
    draws = {name: np.asarray(posterior.draws[name][0][NUM_WARMUP:]) for name in ("u", "v")}
    model = posterior.model
    cells = () if model.cell_features is None else model.cell_features.labels
    known = {
        "u": () if model.column_features is None else model.column_features.labels,
        "v": () if model.row_features is None else model.row_features.labels,
    }
    free = [f"factor {k + 1}" for k in range(model.num_factors)] + ["bias"]
    return {
        name: {
            "labels": [*free, *known[name], *cells],
            "mean": values.mean(axis=(0, 1)).tolist(),
            "variance": values.var(axis=1).mean(axis=0).tolist(),
        }
        for name, values in draws.items()
    }


def clusters(posterior: Any, titles: np.ndarray, *, largest: int = 12) -> list[dict[str, Any]]:
    """Groups of movies of one draw, each by its five movies with the most ratings (Table 6.3)."""
    table = posterior.top_entries("column", n=5, titles=titles)
    return [
        {"share": float(share), "movies": [str(title) for title in entries]}
        for share, entries in zip(table.shares[:largest], table.entries, strict=False)
    ]


# --- what it is compared with ---------------------------------------------------------------------


def means_of(data: Split, side: str, *, shrink: float = 5.0) -> np.ndarray:
    """The mean rating of each user, or of each movie, drawn towards that of all."""
    own = np.asarray(data.train.rows if side == "user" else data.train.columns)
    size = data.train.shape[0 if side == "user" else 1]
    counts = np.bincount(own, minlength=size)
    off = np.bincount(own, np.asarray(data.train.values) - data.mean, minlength=size)
    asked = data.rows if side == "user" else data.columns
    return data.mean + (off / (counts + shrink))[asked]


def surprise(data: Split, name: str) -> np.ndarray | None:
    """Predictions of scikit-surprise with its defaults, or None where it is not installed."""
    try:
        import pandas as pd
        import surprise as package
    except ImportError:
        return None
    train = data.train
    frame = pd.DataFrame(
        {"u": np.asarray(train.rows), "i": np.asarray(train.columns), "r": np.asarray(train.values)}
    )
    reader = package.Reader(rating_scale=(1, 5))
    loaded = package.Dataset.load_from_df(frame, reader).build_full_trainset()
    fitted = getattr(package, name)(random_state=0).fit(loaded)
    pairs = zip(data.rows.tolist(), data.columns.tolist(), strict=True)
    return np.array([fitted.predict(user, movie).est for user, movie in pairs])


# --- all of it ------------------------------------------------------------------------------------


def held_out(name: str) -> tuple[Split, np.ndarray]:
    """Split u1 of MovieLens-100K, or the first tenth of myFM's ten folds of 1M; and its mask."""
    known = ratings(name)
    is_test = known.test["u1"] if name == "ml-100k" else tenth(known.data.num_entries)
    return split(known.data, is_test), is_test


def variants(
    name: str, data: Split, is_test: np.ndarray, *, num_factors: int
) -> dict[str, mf.BPMF]:
    """The four models of Table 6.2, all with as many entries a vector on the users' side."""
    side = side_information(name, data, is_test)
    known = sum(features.width for features in side.values())
    fewer = max(num_factors - known, 2)
    mixture = mf.DirichletProcess(1.0)
    return {
        "plain": mf.BPMF(num_factors),
        "DP": mf.BPMF(num_factors, mixture=mixture),
        "SI": mf.BPMF(fewer, **side),
        "DP, SI": mf.BPMF(fewer, mixture=mixture, **side),
    }


def baselines(data: Split, *, slow: bool) -> dict[str, float | None]:
    """Errors of means, and of scikit-surprise where it is installed."""
    found: dict[str, np.ndarray | None] = {
        "mean of all": np.full(len(data.values), data.mean),
        "user means": means_of(data, "user"),
        "movie means": means_of(data, "movie"),
        "surprise SVD": surprise(data, "SVD"),
    }
    if slow:
        found["surprise SVD++"] = surprise(data, "SVDpp")
    return {name: None if guess is None else data.error(guess) for name, guess in found.items()}


def one_model(name: str, kind: str, model: mf.BPMF, data: Split, num_draws: int) -> dict[str, Any]:
    """Every figure and table of one model."""
    with Stopwatch() as watch:
        posterior = mf.sample(
            model, data.train, num_chains=1, num_warmup=0, num_samples=NUM_WARMUP + num_draws,
            seed=0, progress=False,
        )  # fmt: skip
    means, variances = moments_by_draw(posterior, data)
    part: dict[str, Any] = {
        "curves": curves(means, data),
        "by_sd": by_sd(means, variances, data),
        "num_factors": posterior.model.num_factors,
        "seconds": watch.seconds,
    }
    if "SI" in kind:
        part["coefficients"] = coefficients(posterior)
    if "DP" in kind:
        part["movie_groups"] = clusters(posterior, ratings(name).titles)
    return part | {"error": part["curves"]["after_warmup"][-1]}


def run(*, quick: bool = False, json: Path | None = None, only: str = "") -> dict[str, Any]:
    """All data sets and models whose ``set/model/`` holds `only`; `json` keeps the others.

    The baselines are one of the models.
    """
    num_factors = 28 if quick else NUM_FACTORS
    sizes = {"num_factors": num_factors, "num_warmup": NUM_WARMUP, "num_draws": DATA}
    paper = Paper("recommender", sizes, quick=quick, json=json)
    results: dict[str, Any] = {}
    if only and json is not None and json.exists():
        results = loads(json.read_text())["results"]
    for name, num_draws in DATA.items():
        chosen = [kind for kind in KINDS if only in f"{name}/{kind}/"]
        if not chosen or (quick and name != "ml-100k"):
            continue
        data, is_test = held_out(name)
        found = results.setdefault(name, {})
        for kind in chosen:
            if kind == "baselines":
                found[kind] = baselines(data, slow=not quick)
                paper.say(f"{name}: baselines {found[kind]}")
            else:
                model = variants(name, data, is_test, num_factors=num_factors)[kind]
                draws = 10 if quick else num_draws
                found[kind] = one_model(name, kind, model, data, draws)
                error, seconds = found[kind]["error"], found[kind]["seconds"]
                paper.say(f"{name}, {kind}: {error:.4f} in {seconds:.0f} CPU s")
            results[name] = {kind: found[kind] for kind in KINDS if kind in found}
            paper.save(results=results)
    return paper.end(verdict(results))


def verdict(results: Mapping[str, Any]) -> list[str]:
    """The table in words."""
    words = []
    for name, found in results.items():
        errors = {kind: part["error"] for kind, part in found.items() if kind != "baselines"}
        guesses = found.get("baselines", {})
        errors |= {kind: error for kind, error in guesses.items() if error is not None}
        table = "; ".join(f"{kind} {error:.4f}" for kind, error in errors.items())
        covered = [
            f"{kind} {part['by_sd']['coverage_of_all']:.1%}"
            for kind, part in found.items()
            if kind != "baselines"
        ]
        words.append(f"{name}: {table}; 90 % intervals hold {', '.join(covered)}")
    return words
