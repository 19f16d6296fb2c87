"""The public API as `bad_calls` sees it: every verb, model, part, container and question.

`tests/test_bad_calls.py` holds that nothing public is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks.robustness.bad_calls import Target
from jaxmf import registry
from jaxmf.posterior import Meta

_DATA = dict.fromkeys(("values", "x", "matrix", "counts", "frame"), ("data",))


def verbs() -> Iterator[Target]:
    """`fit`, `sample`, `particle_filter` and `variational`, with the options of every model."""
    arguments = {
        "sample": {"num_warmup": 1, "num_samples": 1, "num_chains": 1},
        "particle_filter": {"num_particles": 2},
        "variational": {"num_epochs": 1},
    }
    seen: set[Any] = set()
    for entry in registry.ENTRIES:
        for verb in entry.methods:
            options = tuple(s.name for s in registry.method_settings(entry, verb))
            function = getattr(mf, verb)
            own = (getattr(entry.model, entry.methods[verb]), verb)
            if own in seen:  # blocks share one sampler
                continue
            seen.add(own)
            model, data = entry.example()
            good = {"model": lambda m=model: m, "data": lambda d=data: d}
            good |= {n: (lambda v=v: v) for n, v in arguments[verb].items()}
            first = not any(verb == name for _, name in seen - {own})
            kinds: dict[str, str | None] = {}
            if not first:  # the verb's arguments are the same for all models
                kinds = dict.fromkeys(_arguments_of(function))
            also = tuple(name for name in options if name not in _arguments_of(function))
            yield Target(f"{verb}[{entry.name}]", function, good, kinds, also=also)
    model, data = registry.get("linear-gaussian-ibp").example()
    yield Target("fit", mf.fit, {"model": lambda: model, "data": lambda: data} | {
        n: (lambda v=v: v) for n, v in arguments["sample"].items()})  # fmt: skip


def _arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    import inspect

    return tuple(n for n in inspect.signature(function).parameters if n != "options")


def models() -> Iterator[Target]:
    """The models and the parts that they are made of."""
    prior = mf.FlexiblePrior([0.0, 1.0, 2.0])
    good: dict[Any, dict[str, Any]] = {
        mf.BiLDA: {"num_user_groups": 2, "num_item_groups": 2},
        mf.URP: {"num_user_groups": 2},
        mf.LDA: {"num_topics": 2},
        mf.PAM: {"num_topics": (2, 3)},
        mf.MixtureOfGaussians: {"num_components": 2},
        mf.FlexibleMixture: {"prior": prior},
        mf.FlexiblePrior: {"log_weights": [0.0, 1.0, 2.0]},
        mf.HFP: {"table_prior": prior},
        mf.MultiLDA: {"num_groups": {"author": 2, "year": 2}},
        mf.MultiHDP: {"modalities": ("author", "year")},
        mf.Dirichlet: {"num_components": 2},
        mf.BetaBernoulli: {"alpha": 1.0},
        mf.IndianBuffet: {"alpha": 1.0},
        mf.OccurringWords: {"num_words": 3, "num_tokens": 9, "num_topics": 2},
        mf.RootInverseGamma: {"concentration": 2.0, "rate": 1.0},
        mf.MixedColumns: {"families": [mf.NormalInverseGamma()]},
        mf.IndependentColumns: {"family": mf.NormalInverseGamma()},
        mf.SharedSample: {"num_samples": 2},
        mf.RowSample: {"num_samples": 2},
        mf.FeatureModel: {"log_likelihood": lambda *a: 0.0, "feature_prior": _normal()},
    }
    kinds: dict[Any, dict[str, str | None]] = {
        mf.BinaryMF: {
            "row_prior": "feature prior", "column_prior": "feature prior",
            "change_basis": "count from 0 or none",
        },
        mf.PAM: {"num_topics": "sizes", "word_concentration": "concentrations"},
        mf.LDA: {"word_concentration": "concentrations"},
        mf.HDPLDA: {"word_concentration": "concentrations"},
        mf.HFP: {"word_concentration": "concentrations"},
        mf.DirichletCompoundMultinomial: {"word_concentration": "concentrations"},
        mf.DirichletMultinomial: {"concentration": "concentrations"},
        mf.MultiLDA: {"num_groups": "object", "observed": "heading"},
        mf.MultiHDP: {"modalities": "object", "observed": "heading"},
        mf.FeatureModel: {
            "log_likelihood": "function", "feature_prior": "function", "moments": "function",
            "cell_distribution": "word", "sample_row": "function", "parameters": "object",
            "columns_independent": "flag",
        },
        mf.GammaPoisson: {"shape": "positive"},
        mf.OccurringWords: {"num_words": "count", "num_tokens": "count"},
        mf.NormalInverseGamma: {"shape": "positive"},
        mf.NormalInverseWishart: {
            "degrees": "positive", "scale": "no scale", "location": "no location"
        },
        mf.IndependentColumns: {
            "family": "object", "scale": "no scale", "location": "no location"
        },
        mf.MixedColumns: {"families": "object", "normal": None, "kinds": None},
        mf.BPMF: {"num_factors": "count from 0", "link": "flag or none", "offset": "number"},
        mf.Ordinal: {"levels": "values", "thresholds": None},
        mf.LinearGaussianIBP: {"bias": "flag or none", "column_noise": "flag or none"},
        mf.SparseBinaryMF: {"bias": "word"},
        mf.SparseBinarySeries: {"bias": "word"},
        mf.BetaBernoulli: {"num_features": "count"},
        mf.FlexiblePrior: {
            "log_weights": "numbers", "features": "function", "feature_weights": None,
            "num_unobserved": "number of items", "log_steps": None,
        },
        mf.Block: {"distribution": "object", "by": "word or names", "observed": "flag", "rho":
        "function",
                   "per": "word or names"},
    }  # fmt: skip
    good[mf.Block] = {"distribution": mf.Dirichlet(2), "by": "document"}
    for kind in (
        mf.BPMF, mf.Bernoulli, mf.BetaBernoulli, mf.BetaBinary, mf.BiHDP, mf.BiLDA, mf.BinaryMF,
        mf.Block,
        mf.DPMixture, mf.Dirichlet, mf.DirichletCompoundMultinomial, mf.DirichletMultinomial,
        mf.DirichletProcess, mf.FeatureModel, mf.FlexibleMixture, mf.FlexiblePrior,
        mf.GammaPoisson, mf.Gaussian, mf.HDP, mf.HDPLDA, mf.HFP, mf.IndependentColumns,
        mf.IndianBuffet, mf.LDA,
        mf.LinearGaussianIBP, mf.MixedColumns, mf.MixtureOfGaussians, mf.MultiHDP, mf.MultiLDA,
        mf.NegativeBinomial,
        mf.NoisyOr, mf.NoisyOrIBP,
        mf.NormalInverseGamma, mf.NormalInverseWishart, mf.OccurringWords, mf.Ordinal, mf.PAM,
        mf.PitmanYor,
        mf.Poisson, mf.RootInverseGamma, mf.StudentT,
        mf.RowSample, mf.SharedSample, mf.SparseBinaryMF, mf.SparseBinarySeries, mf.URP,
    ):  # fmt: skip
        right = {n: (lambda v=v: v) for n, v in good.get(kind, {}).items()}
        yield Target(kind.__name__, kind, right, kinds.get(kind, {}))


def _normal() -> Any:
    import numpyro.distributions as dist

    return dist.Normal(0.0, 1.0).expand([5]).to_event(1)


def containers() -> Iterator[Target]:
    """The containers and what makes them."""
    import pandas as pd
    import scipy.sparse

    matrix = np.arange(10.0).reshape(2, 5)
    ones = (matrix % 2).astype(int)
    pair = {"rows": lambda: [0, 1], "columns": lambda: [1, 0], "shape": lambda: (2, 5)}
    names = {"row_names": None}  # of two rows; those of five columns are tried
    frame = pd.DataFrame({"user": [1, 2], "item": [3, 4], "stars": [4.0, 5.0]})
    column = {"row": "word", "column": "word", "value": "word", "frame": "mapping"}
    yield Target("Dense", mf.Dense, {"values": lambda: matrix}, names | {"values": "matrix"}, _DATA)
    yield Target("Dense.from_array", mf.Dense.from_array, {"x": lambda: matrix}, names, _DATA)
    yield Target(
        "Entries", mf.Entries, pair | {"values": lambda: [1.0, 2.0]}, names | {"values": "numbers"}
    )
    yield Target("Entries.from_array", mf.Entries.from_array, {"x": lambda: matrix}, names, _DATA)
    yield Target(
        "Entries.from_pandas", mf.Entries.from_pandas,
        {"frame": lambda: frame, "row": lambda: "user", "column": lambda: "item",
         "value": lambda: "stars"},
        names | column | {"column_names": None}, _DATA,
    )  # fmt: skip
    yield Target(
        "Entries.from_scipy", mf.Entries.from_scipy,
        {"matrix": lambda: scipy.sparse.csr_array(matrix)}, names, _DATA,
    )  # fmt: skip
    missing = {"missing_rows": "index", "missing_columns": "index"}
    yield Target("SparseBinary", mf.SparseBinary, pair, names | dict.fromkeys(missing))
    yield Target(
        "SparseBinary.from_array", mf.SparseBinary.from_array, {"x": lambda: ones}, names, _DATA
    )
    yield Target(
        "SparseBinary.from_scipy", mf.SparseBinary.from_scipy,
        {"matrix": lambda: scipy.sparse.csr_array(ones)}, names, _DATA,
    )  # fmt: skip
    yield Target(
        "SparseBinary.from_baskets", mf.SparseBinary.from_baskets,
        {"baskets": lambda: [["a", "b"], ["c", "d", "e"]]},
        names | {"baskets": "baskets", "column_names": None},
    )  # fmt: skip
    yield Target(
        "SparseBinary.from_pairs", mf.SparseBinary.from_pairs,
        {"pairs": lambda: [("a", "x"), ("b", "y")]},
        names | {"pairs": "baskets", "column_names": None},
    )  # fmt: skip
    yield Target(
        "SparseSeries", mf.SparseSeries,
        {"rows": lambda: [0, 1], "steps": lambda: [0, 1], "columns": lambda: [1, 0],
         "times": lambda: [0.0, 1.0], "shape": lambda: (2, 2, 5)},
        names | {"steps": "index", "times": "times", "missing_rows": None, "missing_steps": None,
                 "missing_columns": None},
    )  # fmt: skip
    yield Target(
        "SparseSeries.from_matrices", mf.SparseSeries.from_matrices,
        {"matrices": lambda: [ones, ones], "times": lambda: [0.0, 1.0]},
        names | {"matrices": "baskets", "times": "times"},
    )  # fmt: skip
    yield Target(
        "SparseSeries.from_triples", mf.SparseSeries.from_triples,
        {"triples": lambda: [("a", "x", 0.0), ("b", "y", 1.0)]},
        names | {"triples": "baskets", "column_names": None, "times": "times"},
    )  # fmt: skip
    yield Target(
        "Tokens", mf.Tokens,
        {"columns": lambda: {"document": [0, 1], "word": [1, 0]},
         "sizes": lambda: {"document": 2, "word": 2}},
        {"columns": "mapping", "sizes": "mapping", "values": "optional mapping",
         "names": "optional mapping"},
    )  # fmt: skip
    yield Target(
        "Tokens.from_columns", mf.Tokens.from_columns,
        {"columns": lambda: {"document": ["a", "b"], "word": ["x", "y"]}},
        {"columns": "mapping", "values": "optional mapping", "names": "optional mapping"},
    )  # fmt: skip
    yield Target(
        "Tokens.from_counts", mf.Tokens.from_counts, {"counts": lambda: ones},
        names | {"counts": "matrix", "row": "heading", "column": "heading"}, _DATA,
    )  # fmt: skip
    yield from _features()


def _features() -> Iterator[Target]:
    import pandas as pd

    table = {"age": [1.0, 2.0], "sex": ["m", "f"]}
    of_table = {
        "table": "mapping", "categorical": "headings", "lists": "optional mapping",
        "standardise": "flag", "sparse": "flag", "missing": "word", "ids": "names",
    }  # fmt: skip
    yield Target(
        "Features", mf.Features, {"matrix": lambda: np.ones((5, 2))},
        {"columns": None, "missing": "word"}, {"matrix": ("features",)},
    )  # fmt: skip
    yield Target(
        "Features.from_columns", mf.Features.from_columns, {"table": lambda: table}, of_table
    )
    yield Target(
        "Features.from_pandas", mf.Features.from_pandas, {"frame": lambda: pd.DataFrame(table)},
        {"frame": "mapping", "id": "object"}, _DATA,
    )  # fmt: skip
    yield Target(
        "CellFeatures", mf.CellFeatures,
        {"rows": lambda: [0, 1], "columns": lambda: [1, 0], "shape": lambda: (2, 5),
         "features": lambda: mf.Features(np.ones((2, 1)))},
        {"features": "object", "row_names": None},
    )  # fmt: skip


@cache
def empty_posterior(name: str, verb: str) -> mf.Posterior:
    """A posterior of a model's example whose draws are zeros of the right shapes: no run."""
    entry = registry.get(name)
    model, data = entry.example()
    algorithm = entry.builder(model, verb)()
    key = jax.random.key(0)
    prepared = data
    if verb == "variational":
        prepared = model.prepare(data, num_validation=0, seed=0)

        def draw(key: Any) -> Any:
            return model.draw_of(algorithm.init(key, prepared))
    else:
        if algorithm.prepare is not None:
            prepared = algorithm.prepare(data)

        def draw(key: Any) -> Any:
            return algorithm.record(key, algorithm.init(key, prepared), prepared)

    shapes = jax.eval_shape(draw, key)
    draws = {n: np.zeros((1, 2, *leaf.shape), leaf.dtype) for n, leaf in shapes.items()}
    fields = {"seconds": 0.0, "wall_seconds": 0.0, "complete": True, "capacity": {}}
    run = {"num_chains": 1, "num_samples": 2, "thin": 1, "num_warmup": 0, "chain_method": "auto"}
    meta = Meta(method=verb, seed=0, run=run, options={}, versions={}, device="none", **fields)
    return mf.Posterior(model=model, data=data, draws=draws, meta=meta)


def questions() -> Iterator[Target]:
    """What is asked of a posterior."""
    cells = {"row_features": None, "column_features": None}
    for name, verb, asked in (
        ("linear-gaussian-ibp", "sample", ("predict", "quantities", "cooccurrence", "transform",
            "reconstruction", "held_out_log_likelihood", "extend", "save", "report")),
        ("bpmf", "sample", ("predict", "recommend", "transform", "held_out_log_likelihood")),
        ("bi-lda", "sample", ("probabilities", "recommend", "top_entries", "predict")),
        ("lda", "sample", ("top_entries", "document_completion", "transform")),
        ("sparse-binary", "variational", ("scores", "recommend", "predict", "transform")),
        ("sparse-binary-series", "variational", ("at",)),
        ("dp-mixture", "sample", ("predict", "transform")),
    ):  # fmt: skip
        posterior = empty_posterior(name, verb)
        for question in asked:
            yield Target(
                f"{name}.{question}", getattr(posterior, question), _good(question, posterior),
                cells | _KINDS_OF.get(question, {}), _ALIASES,
                also=("num_chains", "thin", "num_warmup", "data") if question == "extend" else (),
            )  # fmt: skip


_ALIASES = {"new_rows": ("data",), "new_columns": ("data",), "new_documents": ("data",)}
_KINDS_OF: dict[str, dict[str, str | None]] = {
    "cooccurrence": {"rows": "ids"},
    "reconstruction": {"rows": "ids"},
    "recommend": {"rows": "ids"},
    "transform": {"row_features": "object", "new_rows": "matrix"},
    "held_out_log_likelihood": {"values": "matrix"},
    "extend": {"new_rows": "object", "num_samples": "count", "num_chains": "count", "thin": "count",
               "num_warmup": "count", "data": "object"},
    "save": {"data": "flag"},
    "report": {"truth": "matrix or none"},
    "quantities": {"num_pairs": "count from 0"},
    "document_completion": {"num_draws": "count"},
}  # fmt: skip


def _good(question: str, posterior: mf.Posterior) -> dict[str, Callable[[], Any]]:
    data: Any = posterior.data
    good: dict[str, dict[str, Callable[[], Any]]] = {
        "predict": {"cells": lambda: [[0, 1], [1, 2]]},
        "transform": {"new_rows": lambda: data},
        "held_out_log_likelihood": {
            "values": lambda: [1.0, 2.0], "cells": lambda: [[0, 1], [1, 2]]
        },
        "probabilities": {"cells": lambda: [[0, 1]]},
        "scores": {"cells": lambda: [[0, 1]]},
        "top_entries": {"column": lambda: "word" if hasattr(data, "sizes") else "item"},
        "document_completion": {"new_documents": lambda: data},
        "at": {"time": lambda: 1.0},
        "save": {"folder": lambda: "/nonexistent/folder"},
        "report": {"path": lambda: "/nonexistent/report.html"},
    }  # fmt: skip
    return good.get(question, {})


def pictures() -> Iterator[Target]:
    """The pictures of a posterior, and the estimator of scikit-learn."""
    matrix = np.zeros((12, 5))
    truth = {"truth": lambda: matrix}
    shapes = {"image_shape": lambda: (2, 3)}
    for name, asked in (
        ("linear-gaussian-ibp", {"features": {}, "trace": {}, "cooccurrence": {},
            "reconstruction": {}, "held_out": truth}),
        ("binary-mf", {"column_features": {}, "average_images": shapes, "completed": shapes}),
        ("noisy-or-ibp", {"causal_graph": {}}),
    ):  # fmt: skip
        plot = empty_posterior(name, "sample").plot
        for picture, good in asked.items():
            yield Target(
                f"{name}.plot.{picture}", getattr(plot, picture), good,
                {"max_features": "count", "max_rows": "count", "max_cells": "count",
                 "rows": "ids", "names": "headings", "chain": "draw", "draw": "draw",
                 "others": None, "truth": "matrix" if good is truth else "matrix or none"},
            )  # fmt: skip
    from jaxmf.sklearn import LinearGaussianIBPTransformer

    def fitted(**settings: Any) -> Any:
        return LinearGaussianIBPTransformer(**settings).fit(matrix + np.eye(12, 5))

    few = {n: (lambda: 1) for n in ("num_warmup", "num_samples")}
    settings = _arguments_of(LinearGaussianIBPTransformer)
    kinds = {"loudly": None, "random_state": None}
    yield Target("sklearn.fit", fitted, few, kinds, also=settings)


def functions() -> Iterator[Target]:
    """Further functions."""
    yield Target("use_compilation_cache", mf.use_compilation_cache, {}, {"folder": "path or none"})
    yield Target("load", mf.load, {"folder": lambda: "/nonexistent/folder"}, {"data": None})
    counts = {"expected_counts": lambda: [1.0, 0.5]}
    kinds: dict[str, str | None] = {"expected_counts": "numbers"}
    yield Target("match_moments", mf.match_moments, counts, kinds)
    yield Target("match_moments_by_sampling", mf.match_moments_by_sampling, counts, kinds)
    flexible = {"num_items": lambda: 3}
    for name, more in (
        ("dirichlet_process", {"concentration": lambda: 1.0}),
        ("pitman_yor", {"concentration": lambda: 1.0, "discount": lambda: 0.5}),
    ):
        yield Target(
            f"FlexiblePrior.{name}",
            getattr(mf.FlexiblePrior, name),
            flexible | more,
            {"concentration": "number"},
        )


GROUPS: dict[str, Callable[[], Iterator[Target]]] = {
    "verbs": verbs,
    "models": models,
    "containers": containers,
    "questions": questions,
    "pictures": pictures,
    "functions": functions,
}
