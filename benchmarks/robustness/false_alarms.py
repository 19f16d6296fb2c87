"""False alarms about predictions: data from a model's own prior, fitted by that model.

Predictions of observed cells, each from all others (`Posterior.leave_one_out`), are compared with
row and column means, or with the frequencies of columns. On data from the prior the model is the
truth, so that an alarm which calls it worse than these is false; at most 2 % may be. Alarms about
convergence are not counted: they may be right. JAXMF_FALSE_ALARM_RUNS is another number of runs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

import jaxmf as mf
from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from jaxmf.posterior import leave_one_out

SEED = 16
NUM_RUNS = 100
NUM_QUICK = 3
SHAPE = (20, 8)
RUN = {"num_warmup": 150, "num_samples": 150, "num_chains": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "linear-gaussian-ibp": mf.LinearGaussianIBP,
    "noisy-or-ibp": mf.NoisyOrIBP,
}


class Count(NamedTuple):
    """Runs of one model: those that were compared at all, and those with a false alarm."""

    num_runs: int
    num_compared: int
    num_false: int


def count(name: str, num_runs: int) -> Count:
    """False alarms in so many runs, each on data of its own."""
    model = MODELS[name]()
    num_compared = num_false = 0
    for number in range(num_runs):
        key = jax.random.fold_in(jax.random.key(SEED), number)
        _, data = model.simulate(key, *SHAPE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post = mf.sample(model, data, seed=number, progress=False, **RUN)
        num_compared += leave_one_out.compare(post) is not None
        num_false += any(alarm.kind == "prediction" for alarm in post.alarms())
    return Count(num_runs, num_compared, num_false)


def measure(quick: bool) -> list[Row]:
    """A row a model."""
    stated = os.environ.get("JAXMF_FALSE_ALARM_RUNS")
    num_runs = NUM_QUICK if quick else int(stated or NUM_RUNS)
    rows = []
    for name in MODELS:
        found = count(name, num_runs)
        note = (
            f"alarms that predictions are worse than simple means, on {SHAPE[0]} x {SHAPE[1]} data "
            f"from the prior; seed {SEED}; {RUN['num_warmup']} + {RUN['num_samples']} sweeps of "
            f"one chain, else defaults; compared {found.num_compared}; at most 2 % are asked for"
        )
        rows.append(
            fault_row(
                f"false_alarms/{name}", found.num_false, found.num_runs, before=None, note=note
            )
        )
    return rows
