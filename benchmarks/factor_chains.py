"""Chains of BPMF, of SMURFF and of myFM that are stepped from outside, with running predictions.

All see ratings less their mean. SMURFF has AdaptiveNoise, without which it is no match; myFM has
user and item as its two groups. Each uses one thread.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxmf as mf
from jaxmf.data import Entries


@dataclass(frozen=True)
class Split:
    """Ratings to learn from and cells to predict.

    Args:
        train: the training ratings.
        rows, columns: (M,) positions of the cells to predict.
        values: (M,) their ratings.
    """

    train: Entries
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @property
    def mean(self) -> float:
        """Of the training ratings."""
        return float(np.mean(np.asarray(self.train.values)))

    def error(self, predicted: np.ndarray) -> float:
        """Root mean squared error of predictions between the lowest and the highest rating."""
        clipped = np.clip(predicted, self.values.min(), self.values.max())
        return float(np.sqrt(np.mean((clipped - self.values) ** 2)))


def split(data: Entries, is_test: np.ndarray) -> Split:
    """By a mask over the ratings."""
    rows, columns, values = (np.asarray(x) for x in (data.rows, data.columns, data.values))
    kept = ~is_test
    names = (data.row_names, data.column_names)
    train = Entries(rows[kept], columns[kept], values[kept], data.shape, *names)
    return Split(train, rows[is_test], columns[is_test], values[is_test].astype(float))


def random_split(data: Entries, seed: int, *, share: float = 0.1) -> Split:
    """A share of the ratings held out at random."""
    return split(data, np.random.default_rng([seed, 7]).random(data.num_entries) < share)


class Ours:
    """A chain of BPMF; what it compiles is timed by whoever takes the first step."""

    name = "jaxmf"

    def __init__(self, model: mf.BPMF, data: Split, *, seed: int = 0):
        self.data = data
        model = model.matched(data.train)
        self.algorithm = model.sampler(keep_factors=False)
        self.model, self.key, self.number = model, jax.random.key(seed), 0
        self.prepared = self.algorithm.prepare(data.train)
        self.state = jax.jit(self.algorithm.init)(self.key, self.prepared)
        self.cells = jnp.asarray(data.rows), jnp.asarray(data.columns)

    def sweep(self) -> Any:
        """One step."""
        self.number += 1
        key = jax.random.fold_in(self.key, self.number)
        self.state, _ = _step(self.algorithm, key, self.state, self.prepared)
        return self.state

    def predicted(self) -> np.ndarray:
        """Means of the cells to predict, given where the chain is."""
        return np.asarray(_predicted(self.model, self.state, self.data.train, *self.cells), float)


def advance(algorithm: Any, key: Any, state: Any, data: Any) -> Any:
    """One step of a chain, to be compiled."""
    return algorithm.step(key, state, data, jnp.ones(()))


_step = jax.jit(advance)


@jax.jit
def _predicted(model: Any, state: Any, data: Any, rows: Any, columns: Any) -> Any:
    draw = {"u": state.u, "v": state.v} | model.noise_draw(state.noise)
    return model.predict_cells(draw, data, rows, columns)[0]


class Smurff:
    """A training session of SMURFF with normal priors."""

    name = "SMURFF"

    def __init__(self, num_factors: int, data: Split, *, seed: int = 0, num_sweeps: int = 200):
        import smurff

        shape = data.train.shape
        matrix = sparse.coo_matrix(data.train.to_scipy().astype(float))
        matrix.data = matrix.data - data.mean
        test = sparse.coo_matrix((data.values - data.mean, (data.rows, data.columns)), shape=shape)
        self.data, self.order = data, np.lexsort((data.columns, data.rows))
        self.session = smurff.TrainSession(
            priors=["normal", "normal"], num_latent=num_factors, num_threads=1, burnin=0,
            nsamples=num_sweeps, seed=seed + 1, verbose=0, save_freq=0,
        )  # fmt: skip
        noise = smurff.AdaptiveNoise()
        self.session.addTrainAndTest(matrix, test, noise, is_scarce=True)
        self.session.init()

    def sweep(self) -> Any:
        """One step; it predicts the cells on the way."""
        self.session.step()

    def predicted(self) -> np.ndarray:
        """Means of the cells to predict, given where the chain is."""
        found = self.session.getTestPredictions()
        keys = np.array([each.coords for each in found])
        last = np.array([each.pred_1sample for each in found])
        result = np.empty(len(last))
        result[self.order] = last[np.lexsort((keys[:, 1], keys[:, 0]))]
        return result + self.data.mean


class MyFM:
    """A regressor of myFM, whose sweeps are seen through its callback."""

    name = "myFM"

    def __init__(self, num_factors: int, data: Split, *, seed: int = 0):
        import myfm

        self.data = data
        self.model = myfm.MyFMRegressor(rank=num_factors, random_seed=seed + 1)
        self.train = self._design(np.asarray(data.train.rows), np.asarray(data.train.columns))
        self.test = self._design(data.rows, data.columns)

    def _design(self, rows: np.ndarray, columns: np.ndarray) -> Any:
        num_rows, num_columns = self.data.train.shape
        lines = np.arange(len(rows))
        both = np.concatenate([rows, num_rows + columns])
        ones = (np.ones(2 * len(rows)), (np.tile(lines, 2), both))
        return sparse.csr_matrix(ones, shape=(len(rows), num_rows + num_columns))

    def run(self, num_sweeps: int, look: Callable[[int, np.ndarray], None] | None = None) -> None:
        """So many sweeps from the start; after each the predictions are looked at."""
        shape = list(self.data.train.shape)

        def callback(number: int, model: Any, *others: Any) -> tuple[bool, None]:
            if look is not None:
                look(number, np.asarray(model.predict_score(self.test, [])))
            return False, None

        values = np.asarray(self.data.train.values, float)
        with contextlib.redirect_stderr(io.StringIO()):  # its progress
            self.model.fit(
                self.train, values, n_iter=num_sweeps, n_kept_samples=1, group_shapes=shape,
                callback=callback,
            )  # fmt: skip


def has(package: str) -> bool:
    """Whether a peer is installed."""
    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True)
class Path:
    """How a chain's averaged predictions came along.

    Args:
        errors: (S,) of the averages after each sweep that counts.
        seconds: (S,) CPU seconds until then, burn-in and predictions included.
        first: CPU seconds of the first sweep, in which ours compiles.
        mean: (M,) the predictions in the end.
    """

    errors: np.ndarray
    seconds: np.ndarray
    first: float
    mean: np.ndarray


def _sweeps_of(chain: Any, number: int) -> Iterator[Callable[[], np.ndarray]]:
    for _ in range(number):
        jax.block_until_ready(chain.sweep())
        yield chain.predicted


def run(chain: Any, *, num_warmup: int, num_draws: int) -> Path:
    """Warm-up, then draws whose predictions are averaged."""
    total = np.zeros(len(chain.data.values))
    errors: list[float] = []
    seconds: list[float] = []
    first, began = [], time.process_time()

    def look(number: int, predicted: Callable[[], np.ndarray]) -> None:
        nonlocal total
        if not first:
            predicted()
            first.append(time.process_time() - began)
        if number < num_warmup:
            return
        total = total + predicted()
        errors.append(chain.data.error(total / (len(errors) + 1)))
        seconds.append(time.process_time() - began)

    if isinstance(chain, MyFM):
        chain.run(num_warmup + num_draws, lambda number, found: look(number, lambda: found))
    else:
        for number, predicted in enumerate(_sweeps_of(chain, num_warmup + num_draws)):
            look(number, predicted)
    return Path(np.array(errors), np.array(seconds), first[0], total / len(errors))
