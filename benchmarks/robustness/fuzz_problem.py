"""One fuzzed problem: fit, ask everything, save, load, and say what came of it.

Run as a program it does one after the other, each under a limit of the system's clocks, and
writes a line of JSON before and after each; whoever started it sees from the last line where it
ended. ``python -m benchmarks.robustness.fuzz_problem NAME FILE ...``, as `fuzz` does.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks.robustness.bad_calls import CLEAR, is_raised_by_jaxmf
from benchmarks.robustness.fuzz_models import SUBJECTS, Subject
from jaxmf import engine
from jaxmf.engine.algorithm import GrowthError
from jaxmf.posterior.categories import has_categories

SEED = 15
WALL_LIMIT = 900  # seconds, for one that waits for ever; a busy machine takes as long for 60 s
EVERY_SMALLEST = 4
EVERY_SAVED = 5


def generator_of(name: str, number: int) -> np.random.Generator:
    """The generator of one problem of one model."""
    return np.random.default_rng([SEED, zlib.crc32(name.encode()), number])


def solve(name: str, number: int, *, smallest: bool) -> tuple[str, str]:
    """What came of one problem, and the words of it.

    Returns:
        "answered"; "refused", where the data or the fit end in an error of jaxmf that says why;
        "non-finite error", which says that too, of a problem that should have been solved;
        "silent", with what is not finite or impossible in an answer; "crash", any other error, and
        every one of a question about a fit.
    """
    subject = SUBJECTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = subject.data(generator_of(name, number), smallest)
            post = getattr(mf, subject.verb)(
                subject.model(data), data, seed=number, progress=False, **subject.options
            )
        except engine.NonFiniteError as error:
            return "non-finite error", f"{error}"[:300]
        except Exception as error:  # every kind is what is asked about
            is_clear = isinstance(error, (*CLEAR, GrowthError)) and is_raised_by_jaxmf(error)
            return "refused" if is_clear else "crash", _words(error)
        try:
            faults = [*faults_of(post, subject)]
            if number % EVERY_SAVED == 0:
                faults += faults_of_saving(post)
        except Exception as error:
            return "crash", _words(error)
    return ("silent", "; ".join(faults)[:600]) if faults else ("answered", "")


def _words(error: Exception) -> str:
    lines = traceback.format_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__}: {error}"[:400] + "\n" + "".join(lines)


# --- what an answer must be ----------------------------------------------------------------------


def faults_of(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    """What is not finite or impossible in the draws and in the answers to all questions."""
    for name, values in post.draws.items():
        yield from _not_finite(f"draws[{name}]", values)
        # where nothing is assigned some draws say -1
        least = int(values.min(initial=0)) if values.dtype.kind in "iu" else 0
        if least < (0 if name.startswith("num") else -1):
            yield f"draws[{name}] is {least}"
    table = post.summary()
    # a fitted distribution has no sd of some quantities
    yield from _not_finite("summary", table.values[:, : 1 if post.is_variational else 2])
    if post.evidence is not None:
        yield from _not_finite("log evidence", np.asarray(post.log_evidence))
    for question in questions(post.model, post.draws):
        yield from _QUESTIONS[question](post, subject)


def questions(model: Any, draws: Any) -> tuple[str, ...]:
    """What a model can be asked, beside its draws and their summary."""
    asked = {
        "num_features": "num_features" in draws,
        "features": hasattr(model, "features"),
        "predict": hasattr(model, "predict_cells"),
        "scores": hasattr(model, "score_cells"),
        "probabilities": has_categories(model),
        "transform": hasattr(model, "transform_rows") or hasattr(model, "transform_tokens"),
        "completion": hasattr(model, "word_probabilities"),
    }
    return tuple(question for question, can in asked.items() if can)


def _num_features(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    yield from _probabilities("num_features", post.num_features().probabilities)


def _features(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    found = post.features()
    yield from _moments("features", found.mean, found.sd)
    if np.any((found.counts < 1) | (found.counts > post.data.num_rows)):
        yield f"features.counts is {found.counts}"
    yield from _not_finite("cooccurrence", post.cooccurrence())


def _cells(post: mf.Posterior) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.indices(np.minimum((post.data.num_rows, post.data.num_columns), 2))
    return rows.ravel(), columns.ravel()


def _predict(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    found = post.predict(_cells(post))
    yield from _moments("predict", found.mean, found.sd)
    yield from _not_finite("predict.draws", found.draws)
    yield from _not_finite("predict.quantiles", found.quantiles)
    if (np.diff(found.quantiles, axis=0) < 0).any():
        yield "predict.quantiles fall"
    lowest, highest = _RANGES[subject.cells]
    for part, values in (("mean", found.mean), ("draws", found.draws)):
        slack = 1e-5 * (part == "mean")
        if np.min(values) < lowest - slack or np.max(values) > highest + slack:
            yield f"predict.{part} is {np.min(values)} to {np.max(values)}"
    if subject.cells != "real" and (found.draws != np.round(found.draws)).any():
        yield "predict.draws are no whole numbers"


def _scores(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    found = post.scores(_cells(post))
    yield from _moments("scores", found.mean, found.sd)
    yield from _probabilities("scores.probability", found.probability, whole=False)
    yield from _probabilities("scores.plain_probability", found.plain_probability, whole=False)
    best = post.recommend([0], n=2)
    yield from _not_finite("recommend", best.scores.mean[best.columns >= 0])


def _category_probabilities(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    for row in post.probabilities(_cells(post)):
        yield from _probabilities("probabilities", row)


def _transform(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    """New rows: those of the data once more."""
    found = post.transform(post.data)
    yield from _not_finite("transform", found)
    is_share = "z" in post.draws or hasattr(post.model, "transform_tokens")
    if is_share and np.any((found < -1e-6) | (found > 1 + 1e-5)):
        yield f"transform is {found.min()} to {found.max()}"


def _completion(post: mf.Posterior, subject: Subject) -> Iterator[str]:
    words = post.data.columns["document"]
    if np.bincount(np.asarray(words)).max() >= 2:  # else there is no half to be completed
        yield from _not_finite("completion", post.document_completion(post.data, num_draws=2).mean)


_RANGES = {"real": (-np.inf, np.inf), "binary": (0, 1), "counts": (0, np.inf), "ratings": (1, 5)}
_QUESTIONS = {
    "num_features": _num_features,
    "features": _features,
    "predict": _predict,
    "scores": _scores,
    "probabilities": _category_probabilities,
    "transform": _transform,
    "completion": _completion,
}


def faults_of_saving(post: mf.Posterior) -> Iterator[str]:
    """What a saved posterior has that is other than this one's."""
    with tempfile.TemporaryDirectory() as folder:
        again = mf.load(post.save(Path(folder) / "run"))
    for name, values in post.draws.items():
        if not np.array_equal(values, again.draws[name], equal_nan=True):
            yield f"draws[{name}] is another one once loaded"
    if again.data.fingerprint() != post.data.fingerprint():
        yield "data are others once loaded"


def _not_finite(name: str, values: Any) -> Iterator[str]:
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        yield f"{name} is not finite"


def _moments(name: str, mean: Any, sd: Any) -> Iterator[str]:
    yield from _not_finite(f"{name}.mean", mean)
    yield from _not_finite(f"{name}.sd", sd)
    if np.size(sd) and np.min(sd) < 0:
        yield f"{name}.sd is {np.min(sd)}"


def _probabilities(name: str, values: Any, *, whole: bool = True) -> Iterator[str]:
    values = np.asarray(values)
    yield from _not_finite(name, values)
    if values.size and (values.min() < 0 or values.max() > 1 + 1e-5):
        yield f"{name} is {values.min()} to {values.max()}"
    if whole and abs(values.sum() - 1) > 1e-3:
        yield f"{name} adds up to {values.sum()}"


# --- one after the other, as a program -----------------------------------------------------------


def main() -> None:
    """Solve problems until the time is over, from the first that the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SUBJECTS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--stop", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--one-size", action="store_true")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    with given.file.open("a") as file:
        for number in range(given.first, given.stop):
            if time.monotonic() > end:
                break
            smallest = not given.one_size and number % EVERY_SMALLEST == EVERY_SMALLEST - 1
            print(json.dumps({"number": number, "verdict": "begun"}), file=file, flush=True)
            _limit(given.limit, WALL_LIMIT)
            began = time.process_time()
            verdict, words = solve(given.name, number, smallest=smallest)
            seconds = time.process_time() - began
            _limit(0, 0)
            line = {
                "number": number,
                "verdict": verdict,
                "words": words,
                "seconds": round(seconds, 2),
            }
            print(json.dumps(line), file=file, flush=True)


def _limit(seconds: float, wall_seconds: float) -> None:
    """The system ends the process by a signal after so many seconds; 0 for no end."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
