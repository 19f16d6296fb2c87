"""Figure 5 of Meeds et al. (2006): leukemia samples of Golub et al., genes by patients.

The thousand genes that vary most, standardised. Two groups of patients are made from the posterior
and compared with ALL and AML, which no choice is made by: priors are chosen by the predictive
density of cells that were held out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import AgglomerativeClustering, SpectralCoclustering
from sklearn.metrics import adjusted_rand_score

import jaxmf as mf
from benchmarks.harness import Stopwatch
from benchmarks.records import Paper, bit_strings
from jaxmf import datasets

NUM_GENES = 1000
NUM_CHAINS = 4
RUN = {"num_warmup": 300, "num_samples": 200}
SHARE_HELD_OUT = 0.05


def levels(num_genes: int) -> tuple[np.ndarray, np.ndarray]:
    """The genes that vary most, standardised (G, 38), and which patients have AML (38,)."""
    golub = datasets.golub()
    x = np.asarray(golub.data.values)
    x = x[np.argsort(-x.var(axis=1))[:num_genes]]
    return (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True), golub.is_aml


def models() -> dict[str, mf.BinaryMF]:
    """What is tried: the scales of noise and weights known, or inferred."""

    def finite(number: int, **numbers: Any) -> mf.BinaryMF:
        prior = mf.BetaBernoulli(2.0, 1.0, number)
        return mf.BinaryMF(row_prior=prior, column_prior=prior, **numbers)

    return {
        "8 features, noise 0.8, weights 1": finite(
            8, likelihood=mf.Gaussian(0.8), weight_scale=1.0
        ),
        "8 features, scales inferred": finite(8),
    }


def sampled(model: mf.BinaryMF, x: np.ndarray, num_chains: int, steps: dict) -> Any:
    """The posterior with the weights kept."""
    return mf.sample(
        model, x, weights="explicit", num_chains=num_chains, seed=0, progress=False, **steps
    )


def distances(posterior: Any) -> dict[str, np.ndarray]:
    """How far patients are apart, on average over all draws: each (J, J).

    By features: how many column features two differ in. By profile: the squared distance of their
    expected expression, which does not mind features that say the same thing twice.
    """
    draws, _ = posterior.flat_draws()
    by_feature, by_profile = 0.0, 0.0
    for u, v, weights in zip(draws["z"], draws["v"], draws["weights"], strict=True):
        v = v.astype(float)
        by_feature = by_feature + _squared(v @ v.T)
        profile = u.astype(float) @ weights
        by_profile = by_profile + _squared(v @ (profile.T @ profile) @ v.T)
    return {"features": by_feature / len(draws["v"]), "profiles": by_profile / len(draws["v"])}


def _squared(products: np.ndarray) -> np.ndarray:
    own = np.diag(products)
    return np.maximum(own[:, None] + own - 2 * products, 0)


def two_groups(apart: np.ndarray) -> np.ndarray:
    """Two groups by average linkage."""
    cut = AgglomerativeClustering(2, metric="precomputed", linkage="average")
    return cut.fit_predict(apart)


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Everything of Figure 5, printed, and written to `json`."""
    num_genes, num_chains = (100, 1) if quick else (NUM_GENES, NUM_CHAINS)
    steps = {"num_warmup": 30, "num_samples": 20} if quick else RUN
    x, is_aml = levels(num_genes)
    about = {"rows": num_genes, "columns": x.shape[1], "chains": num_chains, **steps,
             "share_held_out": SHARE_HELD_OUT}  # fmt: skip
    paper = Paper("genes", about, quick=quick, json=json)
    spectral = SpectralCoclustering(2, random_state=0).fit(np.exp(x)).column_labels_
    products = x.T @ x
    rand = {
        "spectral co-clustering": adjusted_rand_score(is_aml, spectral),
        "average linkage of the data": adjusted_rand_score(is_aml, two_groups(_squared(products))),
    }
    shown = np.where(np.random.default_rng(0).random(x.shape) < SHARE_HELD_OUT, np.nan, x)
    tried: dict[str, dict[str, float]] = {}
    best = None
    for name, model in models().items():
        with Stopwatch() as watch:
            posterior = sampled(model, shown, num_chains, steps)
        found = {"held_out": posterior.held_out_log_likelihood(x).mean, "seconds": watch.seconds}
        for kind, apart in distances(posterior).items():
            found[f"rand_by_{kind}"] = adjusted_rand_score(is_aml, two_groups(apart))
        tried[name] = found
        paper.say(f"{name}: {found}")
        paper.save(tried=tried, adjusted_rand=rand)
        if best is None or found["held_out"] > tried[best[0]]["held_out"]:
            best = name, posterior
    name, posterior = best  # type: ignore[misc]
    draw = posterior.reference_draw()
    row_features, column_features = (
        np.argsort(-bits.sum(axis=0), kind="stable")[: bits.any(axis=0).sum()]
        for bits in (draw["z"], draw["v"])
    )
    weights = draw["weights"][np.ix_(row_features, column_features)]
    paper.save(
        chosen=name,
        figure_5={
            "u": bit_strings(draw["z"][:, row_features]),
            "v": bit_strings(draw["v"][:, column_features]),
            "weights": np.round(weights, 2).tolist(),
        },
    )
    words = [f"{method}: adjusted Rand index {value:.2f}" for method, value in rand.items()]
    words += [
        f"binary matrix factorisation, {one}: {found['held_out']:.3f} nats a held-out cell, "
        f"adjusted Rand index {found['rand_by_features']:.2f} by features, "
        f"{found['rand_by_profiles']:.2f} by profiles"
        for one, found in tried.items()
    ]
    return paper.end([*words, f"chosen by held-out cells: {name}"])
