"""Figure 4 of Meeds et al. (2006): USPS digits 1, 2 and 3, the bottom halves of 16 completed.

A hundred of each, pixels above zero ones, logistic cells, a bias on either side. Every method sees
the complete rows and the top halves; its settings, those of the factorisation too, are chosen on
complete rows whose bottom halves are held out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import jaxmf as mf
from benchmarks.completion import BASELINES, score, tuned
from benchmarks.harness import Stopwatch
from benchmarks.records import Paper, bit_strings, whole_percent
from jaxmf import datasets

LABELS = (1, 2, 3)
NUM_EACH, NUM_HIDDEN = 100, 16
NUM_PIXELS, TOP = 256, 128
NUM_SPLITS = 3
NUM_CHAINS = 4
RUN = {"num_warmup": 300, "num_samples": 200}
# features a side, standard deviation of the weights
SETTINGS = ((12, 2.0), (24, 2.0), (24, 1.0))


def images(num_each: int = NUM_EACH) -> np.ndarray:
    """The first so many of each digit: (N, 256) of zeros and ones."""
    usps = datasets.usps()
    chosen = [np.flatnonzero(usps.train_labels == label)[:num_each] for label in LABELS]
    return (usps.train[np.concatenate(chosen)] > 0).astype(float)


def model_of(num_features: int, weight_scale: float) -> mf.BinaryMF:
    """The factorisation with so many features on either side."""
    prior = mf.BetaBernoulli(num_features / 3, 1.0, num_features)
    return mf.BinaryMF(
        row_prior=prior, column_prior=prior, likelihood=mf.Bernoulli(), weight_scale=weight_scale,
        row_bias=True, column_bias=True,
    )  # fmt: skip


def completed(truth: np.ndarray, hidden: np.ndarray, settings: tuple, seed: int, run: dict) -> Any:
    """The posterior of all rows but the bottom halves of some."""
    shown = truth.copy()
    shown[hidden, TOP:] = np.nan
    return mf.sample(model_of(*settings), shown, seed=seed, progress=False, **run)


def chosen_settings(truth: np.ndarray, hidden: np.ndarray, run: dict) -> tuple[tuple, list[dict]]:
    """The settings that complete best a tenth of the rows that are not to be scored later."""
    rest = np.setdiff1d(np.arange(len(truth)), hidden)
    out = np.random.default_rng(100).choice(rest, len(rest) // 10, replace=False)
    tried = []
    for settings in SETTINGS:
        with Stopwatch() as watch:
            posterior = completed(truth, np.concatenate([hidden, out]), settings, 0, run)
        shown = posterior.data.to_array()[out]
        found = score(truth[out], shown, posterior.reconstruction(out)).mean()
        tried.append({"features": settings[0], "weight_scale": settings[1],
                      "validation": float(found), "seconds": watch.seconds})  # fmt: skip
    best = int(np.argmax([one["validation"] for one in tried]))
    return SETTINGS[best], tried


def figure_4(posterior: Any, truth: np.ndarray, hidden: np.ndarray, near: np.ndarray) -> dict:
    """Its rows: images as shown and complete, means, neighbours, and the features of a draw."""
    draw = posterior.reference_draw()
    u, v, weights = draw["z"], draw["v"], draw["weights"]
    rows, columns = (np.argsort(-bits.sum(axis=0), kind="stable") for bits in (u, v))
    rows, columns = rows[u.any(axis=0)[rows]], columns[v.any(axis=0)[columns]]
    values = posterior.data.to_array()
    average = [np.nanmean(values[u[:, k]], axis=0) for k in rows]
    return {
        "complete": bit_strings(truth[hidden]),
        "mean_of_bottom": whole_percent(posterior.reconstruction(hidden)[:, TOP:]),
        "neighbour_of_bottom": bit_strings(near),
        "average_images": whole_percent(np.asarray(average)),
        "basis_images": np.round((weights @ v.T)[rows], 1).tolist(),
        "pixel_features": bit_strings(v[:, columns].T),
    }


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Everything of Figure 4, printed, and written to `json`."""
    truth = images(30 if quick else NUM_EACH)
    num_splits = 1 if quick else NUM_SPLITS
    steps = {"num_warmup": 30, "num_samples": 20} if quick else RUN
    steps = steps | {"num_chains": 1 if quick else NUM_CHAINS}
    about = {
        "rows": len(truth), "columns": NUM_PIXELS, "rows_with_missing_halves": NUM_HIDDEN,
        "splits": num_splits, **steps,
    }  # fmt: skip
    paper = Paper("digits", about, quick=quick, json=json)
    splits = [
        np.random.default_rng(seed).choice(len(truth), NUM_HIDDEN, replace=False)
        for seed in range(num_splits)
    ]
    scores: dict[str, list[list[float]]] = {}
    settings: dict[str, list[Any]] = {}
    nearest = None
    for hidden in splits:
        shown = truth[hidden].copy()
        shown[:, TOP:] = np.nan
        rest = np.delete(truth, hidden, axis=0)
        for name, (method, choices) in BASELINES.items():
            best, probability = tuned(method, choices, rest, shown)
            scores.setdefault(name, []).append(score(truth[hidden], shown, probability).tolist())
            settings.setdefault(name, []).append(best)
            if name == "nearest neighbour" and nearest is None:
                nearest = method(rest, shown, (1, 0.0))[:, TOP:]
    paper.say("baselines")
    paper.save(scores=scores, settings=settings)
    mine, tried = chosen_settings(truth, splits[0], steps)
    paper.say(f"binary matrix factorisation: {tried}")
    settings["binary matrix factorisation"] = [list(mine)]
    for seed, hidden in enumerate(splits):
        posterior = completed(truth, hidden, mine, seed, steps)
        shown = posterior.data.to_array()[hidden]
        found = score(truth[hidden], shown, posterior.reconstruction(hidden)).tolist()
        scores.setdefault("binary matrix factorisation", []).append(found)
        if seed == 0:
            paper.save(figure_4=figure_4(posterior, truth, hidden, nearest))
        paper.say(f"split {seed + 1} of {num_splits}: {np.mean(found):.3f}")
        paper.save(scores=scores, settings=settings, tried=tried)
    return paper.end(verdict(scores))


def verdict(scores: dict[str, list[list[float]]]) -> list[str]:
    """Held-out log likelihood of every method, and its difference to the factorisation."""
    words = []
    ours = np.ravel(scores["binary matrix factorisation"])
    for name, found in sorted(scores.items(), key=lambda item: -np.mean(item[1])):
        each = np.ravel(found)
        line = f"{name}: {each.mean():.3f} nats a pixel"
        if name != "binary matrix factorisation":
            apart = ours - each
            error = apart.std(ddof=1) / np.sqrt(apart.size)
            line += f"; binary matrix factorisation {apart.mean():+.3f} ± {error:.3f} to it"
        words.append(line)
    return words
