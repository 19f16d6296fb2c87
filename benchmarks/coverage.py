"""How often intervals hold the truth: the default priors on data sets that are not from them.

Of each model a hundred small data sets (forty of `BinaryMF`) are simulated from a truth that a user
might have, with missing cells, and of some from the model's prior. Every one is run with no option
set but a short chain, and asked what a user asks: cells that were hidden, cells of rows that were
not seen, the noise, the number of features, proportions of topics. A truth is held by the interval
of a level if its rank among the posterior's draws is; where cells are whole numbers ties are split
at random, so that 90 % is what a right answer has there too. The standard error is over data sets,
whose cells share a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from json import loads
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats
from scipy.optimize import linear_sum_assignment

import jaxmf as mf
from benchmarks.harness import Stopwatch
from benchmarks.records import Paper

LEVELS = (0.8, 0.9)
SHAPE = (24, 8)
NUM_HIDDEN = 24
NEW_ROWS = 4
RUN = {"num_warmup": 200, "num_samples": 200, "num_chains": 2, "progress": False}
NUM_SETS = 100
BMF_SETS = 40  # a run and its answers take twelve seconds
QUICK_SETS = 3

Asked = dict[str, np.ndarray]  # quantity -> ranks of the truth between 0 and 1


class Truth(NamedTuple):
    """A matrix drawn from a known truth, and numbers that a posterior may know."""

    cells: np.ndarray  # (N + NEW_ROWS, D)
    values: dict[str, float] = {}  # noqa: RUF012


class Study(NamedTuple):
    """What is simulated, run and asked."""

    model: Callable[[], mf.Model]
    data_set: Callable[[np.random.Generator], Any]
    ask: Callable[..., tuple[mf.Posterior, Asked]]
    num_sets: int = NUM_SETS


def ranks(draws: np.ndarray, truth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The share of draws (S, M) below each truth (M,), ties split at random."""
    below, ties = np.mean(draws < truth, axis=0), np.mean(draws == truth, axis=0)
    return below + ties * generator.random(np.shape(truth))


def held(asked: np.ndarray, level: float) -> np.ndarray:
    """Whether intervals of a level, as long on either side, hold the truth."""
    return np.abs(asked - 0.5) < level / 2


# --- data sets ------------------------------------------------------------------------------------


def _binary(generator: np.random.Generator, num_features: int, chance: float) -> np.ndarray:
    """(N + NEW_ROWS, K), each feature in two rows of the first N at least."""
    z = generator.random((SHAPE[0] + NEW_ROWS, num_features)) < chance
    z[: 2 * num_features] |= np.tile(np.eye(num_features, dtype=bool), (2, 1))
    return z.astype(float)


def feature_cells(generator: np.random.Generator) -> Truth:
    """Three features of loadings N(0, 1.5^2) about 2, noise 0.5."""
    y = 1.5 * generator.normal(size=(3, SHAPE[1]))
    mean = 2 + _binary(generator, 3, 0.4) @ y
    return Truth(
        mean + 0.5 * generator.normal(size=mean.shape), {"noise_scale": 0.5, "num_features": 3}
    )


def factor_cells(generator: np.random.Generator) -> Truth:
    """Two factors of signal 1, biases 0.5, noise 0.7, about 3.5."""
    rows, columns = SHAPE[0] + NEW_ROWS, SHAPE[1]
    mean = generator.normal(size=(rows, 2)) @ generator.normal(size=(2, columns)) / np.sqrt(2)
    mean += 0.5 * (generator.normal(size=(rows, 1)) + generator.normal(size=(1, columns))) + 3.5
    return Truth(mean + 0.7 * generator.normal(size=mean.shape), {"noise_scale": 0.7})


def stars(generator: np.random.Generator) -> Truth:
    """The same, rounded to 1, ..., 5."""
    return Truth(np.clip(np.round(factor_cells(generator).cells), 1, 5))


def cause_cells(generator: np.random.Generator) -> Truth:
    """Three causes of efficacy 0.9, each in a third of the columns, leak 0.05."""
    y = generator.random((3, 3 * SHAPE[1])) < 0.33
    chance = 1 - 0.95 * 0.1 ** (_binary(generator, 3, 0.4) @ y)
    cells = (generator.random(chance.shape) < chance).astype(float)
    return Truth(cells, {"leak": 0.05, "efficacy": 0.9})


def bicluster_cells(generator: np.random.Generator) -> Truth:
    """Two features of rows by two of columns, weights N(0, 2^2), noise 0.5."""
    columns = (generator.random((2, SHAPE[1])) < 0.5) | np.eye(2, SHAPE[1], dtype=bool)
    mean = _binary(generator, 2, 0.4) @ (2 * generator.normal(size=(2, 2))) @ columns
    return Truth(mean + 0.5 * generator.normal(size=mean.shape), {"noise_scale": 0.5})


def count_cells(generator: np.random.Generator) -> Truth:
    """Two features of Gamma(2, 1/2) rates over a base rate of 0.5, all of it learned."""
    y = generator.gamma(2.0, 2.0, size=(2, SHAPE[1]))
    return Truth(generator.poisson(0.5 + _binary(generator, 2, 0.4) @ y).astype(float))


def group_cells(generator: np.random.Generator) -> Truth:
    """Rows of three columns from three groups of sd 0.7 with means N(0, 2^2)."""
    groups = generator.integers(0, 3, 3 * SHAPE[0] + NEW_ROWS)
    means = 2 * generator.normal(size=(3, 3))
    return Truth(means[groups] + 0.7 * generator.normal(size=(groups.size, 3)))


class Baskets(NamedTuple):
    """Ones drawn from known logits."""

    ones: np.ndarray
    logits: np.ndarray


def baskets(generator: np.random.Generator) -> Baskets:
    """200 rows of 40 items, about 5 ones a row, two factors."""
    logits = 1.5 * generator.normal(size=(200, 2)) @ generator.normal(size=(2, 40)) / np.sqrt(2)
    logits += generator.normal(size=40) - 2.5
    return Baskets(generator.random(logits.shape) < 1 / (1 + np.exp(-logits)), logits)


class Documents(NamedTuple):
    """Counts (M, V) of words drawn from known topics."""

    counts: np.ndarray
    proportions: np.ndarray
    words: np.ndarray


def documents(generator: np.random.Generator, num_tokens: int = 60) -> Documents:
    """40 documents of 60 words of 30; three topics of ten words each, and a tenth of any word."""
    words = 0.9 * np.kron(np.eye(3), np.ones(10)) / 10 + 0.1 / 30
    proportions = generator.dirichlet(3 * [0.5], size=40)
    counts = generator.multinomial(num_tokens, proportions @ words)
    return Documents(counts, proportions, words)


# --- questions ------------------------------------------------------------------------------------


def _scalars(post: mf.Posterior, values: dict[str, float], generator: Any) -> Asked:
    return {
        name: ranks(post.draws[name].reshape(-1, 1), np.array([truth]), generator)
        for name, truth in values.items()
    }


def ask_dense(model: mf.Model, truth: Truth, generator: Any, seed: int) -> Any:
    """A matrix with hidden cells, and rows of which half is seen."""
    seen, new = truth.cells[:-NEW_ROWS].copy(), truth.cells[-NEW_ROWS:].copy()
    cells = np.divmod(generator.permutation(seen.size)[:NUM_HIDDEN], seen.shape[1])
    seen[cells] = np.nan
    post = mf.sample(model, seen, seed=seed, **RUN)
    asked = {"cells": ranks(post.predict(cells).draws, truth.cells[cells], generator)}
    if isinstance(model, mf.model.TakesNewRows):
        new[:, ::2] = np.nan
        found = post.predict(new_rows=new)
        where = found.rows - found.rows.min(), found.columns
        asked["new rows"] = ranks(found.draws, truth.cells[-NEW_ROWS:][where], generator)
    return post, asked | _scalars(post, truth.values, generator)


def ask_ratings(model: mf.Model, truth: Truth, generator: Any, seed: int) -> Any:
    """The same as a list of ratings."""
    num_rows, num_columns = len(truth.cells) - NEW_ROWS, truth.cells.shape[1]
    order = generator.permutation(num_rows * num_columns)
    hidden, seen = (
        np.divmod(part, num_columns) for part in (order[:NUM_HIDDEN], order[NUM_HIDDEN:])
    )
    data = mf.Entries(*seen, truth.cells[seen], (num_rows, num_columns))
    post = mf.sample(model, data, seed=seed, **RUN)
    asked = {"cells": ranks(post.predict(hidden).draws, truth.cells[hidden], generator)}
    new = truth.cells[-NEW_ROWS:].copy()
    new[:, ::2] = np.nan
    where = np.nonzero(np.isnan(new))
    rows = mf.Entries.from_array(new)
    found = post.predict(where, new_rows=rows)
    asked["new rows"] = ranks(found.draws, truth.cells[-NEW_ROWS:][where], generator)
    return post, asked | _scalars(post, truth.values, generator)


def ask_mixture(model: mf.Model, truth: Truth, generator: Any, seed: int) -> Any:
    """Complete rows, and one cell of a row not seen."""
    post = mf.sample(model, truth.cells[:-NEW_ROWS], seed=seed, **RUN)
    cells = np.divmod(np.arange(3 * NEW_ROWS), 3)
    found = post.predict(cells)
    return post, {"new rows": ranks(found.draws, truth.cells[-NEW_ROWS:][cells], generator)}


def ask_documents(model: mf.Model, truth: Documents, generator: Any, seed: int) -> Any:
    """Proportions of the true topics, matched by their words, by Beta intervals."""
    post = mf.sample(model, mf.Tokens.from_counts(truth.counts), seed=seed, **RUN)
    found, answer = post.topics().word_probabilities, post.document_topics()
    rows, columns = linear_sum_assignment(-np.sqrt(truth.words) @ np.sqrt(found).T)
    mean, sd = (np.clip(each[:, columns], 1e-6, None) for each in (answer.mean, answer.sd))
    mean = np.minimum(mean, 1 - 1e-6)
    size = np.maximum(mean * (1 - mean) / sd**2 - 1, 1e-3)
    at = stats.beta.cdf(truth.proportions[:, rows], mean * size, (1 - mean) * size)
    return post, {"topics of documents": at.ravel()}


def ask_baskets(model: mf.Model, truth: Baskets, generator: Any, seed: int) -> Any:
    """Scores of cells, normal with the mean and sd of the answer."""
    post = mf.fit(model, mf.SparseBinary.from_array(truth.ones), seed=seed, progress=False)
    cells = np.divmod(generator.permutation(truth.ones.size)[:200], truth.ones.shape[1])
    found = post.scores(cells)
    return post, {"scores of cells": stats.norm.cdf(truth.logits[cells], found.mean, found.sd)}


def studies() -> dict[str, Study]:
    """Every model, its truth, and what it is asked."""
    return {
        "BPMF, Gaussian": Study(partial(mf.BPMF, 2), factor_cells, ask_ratings),
        "LinearGaussianIBP": Study(mf.LinearGaussianIBP, feature_cells, ask_dense),
        "LDA": Study(partial(mf.LDA, 3, word_concentration=0.01), documents, ask_documents),
        "SparseBinaryMF": Study(partial(mf.SparseBinaryMF, 2), baskets, ask_baskets),
        "BPMF, Ordinal": Study(
            partial(mf.BPMF, 2, likelihood=mf.Ordinal((1, 2, 3, 4, 5))), stars, ask_ratings
        ),
        "MixtureOfGaussians": Study(partial(mf.MixtureOfGaussians, 3), group_cells, ask_mixture),
        "NoisyOrIBP": Study(mf.NoisyOrIBP, cause_cells, ask_dense),
        "NoisyOrIBP, from its prior": Study(
            mf.NoisyOrIBP, partial(from_prior, mf.NoisyOrIBP), ask_dense
        ),
        "HDPLDA": Study(mf.HDPLDA, documents, ask_documents),
        "BinaryMF": Study(mf.BinaryMF, bicluster_cells, ask_dense, BMF_SETS),
        "FeatureModel, Poisson": Study(
            partial(mf.FeatureModel, likelihood=mf.Poisson()), count_cells, ask_dense
        ),
    }


def from_prior(make: Callable[[], mf.Model], generator: np.random.Generator) -> Truth:
    """A matrix from the prior of a model, of 24 columns."""
    key = jax.random.key(int(generator.integers(2**31)))
    state, data = make().simulate(key, SHAPE[0] + NEW_ROWS, 3 * SHAPE[1])
    return Truth(
        np.asarray(data.values),
        {name: float(getattr(state, name)) for name in ("leak", "efficacy", "cause_probability")},
    )


# --- the whole ------------------------------------------------------------------------------------


def _asked(study: Study, num_sets: int, seed: int) -> Iterator[tuple[Asked, int]]:
    for index in range(num_sets):
        generator = np.random.default_rng([seed, index])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            truth = study.data_set(generator)
            post, asked = study.ask(study.model(), truth, generator, index)
            yield asked, len(post.alarms())


def described(data_set: Any) -> str:
    """What data sets are drawn from: the first words of a function, with arguments held or not."""
    return " ".join((getattr(data_set, "func", data_set).__doc__ or "").split())


def table_of(answers: list[Asked]) -> dict[str, dict[str, float]]:
    """Quantity -> the share that intervals of each level hold, and its standard error."""
    table: dict[str, dict[str, float]] = {}
    for name in answers[0]:
        table[name] = {}
        for level in LEVELS:
            shares = [float(held(each[name], level).mean()) for each in answers]
            label = f"{100 * level:.0f} %"
            table[name][label] = float(np.mean(shares))
            table[name][f"{label}, s.e."] = float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
    return table


def run(*, quick: bool = False, json: Path | None = None, only: str = "") -> dict[str, Any]:
    """The coverage of all models, printed, and written to `json`."""
    chain = {name: value for name, value in RUN.items() if name != "progress"}
    sizes = {"shape": SHAPE, "hidden_cells": NUM_HIDDEN, "new_rows": NEW_ROWS, **chain}
    paper = Paper("coverage", sizes, quick=quick, json=json)
    found: dict[str, Any] = {}
    if json is not None and json.exists():  # of a part that was run before
        found = loads(json.read_text()).get("models", {})
    for name, study in studies().items():
        if only not in name:
            continue
        num_sets = QUICK_SETS if quick else study.num_sets
        with Stopwatch() as watch:
            answers, alarms = zip(*_asked(study, num_sets, seed=0), strict=True)
        table = table_of(list(answers))
        found[name] = {
            "truth": described(study.data_set),
            "data_sets": num_sets,
            "held": table,
            "runs_with_an_alarm": sum(map(bool, alarms)),
            "seconds": watch.seconds,
        }
        for quantity, row in table.items():
            paper.say(f"{name}, {quantity}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items()))
        paper.save(models=found)
    verdict = [
        f"{name}, {quantity}: 90 % intervals hold {row['90 %']:.3f} +- {row['90 %, s.e.']:.3f}"
        for name, each in found.items()
        for quantity, row in each["held"].items()
    ]
    return paper.end(verdict)
