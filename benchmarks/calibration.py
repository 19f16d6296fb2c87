"""Simulation-based calibration of every model of matrices, with its default sampler.

Parameters are drawn from the prior and a small matrix given them; the ranks of the true
hyperparameters, of the number of features and of the log joint among the draws of a whole run must
be uniform. One false alarm in a thousand is admitted for all models together.
"""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import Any

import numpyro.distributions as dist

import jaxmf as mf
from benchmarks.harness import Stopwatch
from benchmarks.records import Paper

SHAPE = (10, 6)
RUN = {"num_replicates": 400, "num_warmup": 300, "num_samples": 31, "thin": 10}
QUICK = {"num_replicates": 50, "num_warmup": 50, "num_samples": 7, "thin": 5}
LEVEL = 1e-3
SCALE = dist.Gamma(4.0, 4.0)  # of noise, features and weights: mean 1, sd 1/2


def models() -> dict[str, mf.Model]:
    """Every model whose matrices can be simulated, its hyperparameters with priors."""
    alpha = dist.Gamma(2.0, 2.0)
    finite = mf.BetaBernoulli(1.0, 1.0, 2)
    sides: dict[str, Any] = {"row_prior": finite, "column_prior": finite, "weight_scale": SCALE}
    normal = dist.Normal(0.0, 1.0).expand([SHAPE[1]]).to_event(1)
    positive = dist.Gamma(2.0, 1.0).expand([SHAPE[1]]).to_event(1)

    def features(likelihood: mf.Likelihood, prior: dist.Distribution) -> mf.Model:
        return mf.FeatureModel(
            likelihood=likelihood, feature_prior=prior, prior=mf.IndianBuffet(alpha)
        )

    return {
        "LinearGaussianIBP": mf.LinearGaussianIBP(
            alpha=alpha, noise_scale=SCALE, feature_scale=SCALE
        ),
        "NoisyOrIBP": mf.NoisyOrIBP(alpha=alpha),
        "BinaryMF, Gaussian": mf.BinaryMF(likelihood=mf.Gaussian(SCALE), **sides),
        "BinaryMF, logistic": mf.BinaryMF(likelihood=mf.Bernoulli(), **sides),
        "FeatureModel, Poisson": features(mf.Poisson(dist.Gamma(2.0, 4.0)), positive),
        "FeatureModel, Student-t": features(mf.StudentT(4.0, SCALE), normal),
        "FeatureModel, logistic": features(mf.Bernoulli(), normal),
        "BPMF": mf.BPMF(2, scale=1.0, offset=0.0),
    }


def run(*, quick: bool = False, json: Path | None = None, only: str = "") -> dict[str, Any]:
    """The ranks of all models, printed, and written to `json`."""
    settings = QUICK if quick else RUN
    chosen = {name: model for name, model in models().items() if only in name}
    sizes = {"shape": SHAPE, "level": LEVEL, **settings}
    paper = Paper("calibration", sizes, quick=quick, json=json)
    ranks: dict[str, Any] = {}
    if json is not None and json.exists():  # of a part that was run before
        ranks = loads(json.read_text()).get("models", {})
    for name, model in chosen.items():
        with Stopwatch() as watch:
            table = mf.simulation_based_calibration(
                model, *SHAPE, **settings, level=LEVEL / len(models()), seed=0
            )
        ranks[name] = {
            "model": repr(model),
            "table": {each: dict(zip(table.columns, row, strict=True))
                      for each, row in zip(table.names, table.values.tolist(), strict=True)},
            "passed": table.passed,
            "seconds": watch.seconds,
        }  # fmt: skip
        paper.say(f"{name}: {table.conclusion}")
        paper.save(models=ranks)
    failed = [name for name, each in ranks.items() if not each["passed"]]
    conclusion = f"not uniform: {', '.join(failed)}" if failed else "all ranks are uniform"
    summary = f"{len(ranks)} models, {settings['num_replicates']} replicates each: {conclusion}"
    return paper.end([summary])
