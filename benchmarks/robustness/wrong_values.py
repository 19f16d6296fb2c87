"""Wrong values by the kind of an argument, and the kinds of the arguments by their names.

A value is wrong for every argument of its kind: another type, NaN, negative, zero, huge, empty, of
the wrong length, a text, None, a list, a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jaxmf


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _wrong(**values: Any) -> dict[str, Callable[[], Any]]:
    return {label: (lambda value=value: value) for label, value in values.items()}


_NO_NUMBER = _wrong(text="a", digits="3", list=[1], empty=[], function=_nothing, mapping={})
_NO_WORD = _wrong(unknown="loudly", number=3, empty="", list=["a"], function=_nothing, true=True)
_NO_FLAG = _wrong(yes="yes", two=2, none=None, list=[True], number=0.5, function=_nothing)
_NO_COUNT = _NO_NUMBER | _wrong(fraction=1.5, nan=float("nan"), true=True, negative=-1, none=None)
_NO_AMOUNT = _NO_NUMBER | _wrong(nan=float("nan"), inf=float("inf"), negative=-1.0, true=True)
_NO_NAMES = _wrong(
    text="abcd",
    short=["a"],
    twice=["a", "a", "b", "c", "d"],
    missing=["a", None, "b", "c", "d"],
    nan=[1.0, float("nan"), 2.0, 3.0, 4.0],
    unhashable=[["a"], ["b"], ["c"], ["d"], ["e"]],
    number=3,
    function=_nothing,
)
_NO_MATRIX = _wrong(
    none=None,
    text="matrix.csv",
    mapping={},
    number=3.0,
    function=_nothing,
    empty=[],
    letters=[["a", "b"], ["c", "d"]],
    complex=[[1j, 2.0]],
    infinite=[[1.0, float("inf")]],
    ragged=[[1.0], [1.0, 2.0]],
    deep=np.zeros((2, 2, 2)),
    objects=np.array([[object(), 1.0]]),
)
_NO_INDEX = _wrong(
    fraction=[0.5, 1.0],
    negative=[-1, 0],
    huge=[10**9, 0],
    text="ab",
    letters=["a", "b"],
    none=None,
    function=_nothing,
    number=0.5,
    empty=[],
)
_NO_SHAPE = _wrong(
    text="2x2", number=3, zero=(0, 3), negative=(-1, 3), long=(2, 2, 2, 2), fractions=(1.5, 2)
)

WRONG: dict[str, dict[str, Callable[[], Any]]] = {
    "count": _NO_COUNT | _wrong(zero=0),
    "count or none": {k: v for k, v in _NO_COUNT.items() if k != "none"} | _wrong(zero=0),
    "count from 0": dict(_NO_COUNT),
    "count from 0 or none": {k: v for k, v in _NO_COUNT.items() if k != "none"},
    "huge count or none": {k: v for k, v in _NO_COUNT.items() if k != "none"}
    | _wrong(zero=0, huge=10**12),
    "positive": _NO_AMOUNT | _wrong(zero=0.0),
    "amount": dict(_NO_AMOUNT),
    "share or function": {k: v for k, v in _NO_AMOUNT.items() if k != "function"}
    | _wrong(two=2.0),
    "probability": _NO_AMOUNT | _wrong(two=2.0),
    "number": _NO_NUMBER | _wrong(nan=float("nan"), inf=float("inf"), true=True),
    "no scale": {k: v for k, v in _NO_AMOUNT.items() if k != "list"} | _wrong(zero=0.0),
    "no location": {k: v for k, v in _NO_NUMBER.items() if k != "list"}
    | _wrong(nan=float("nan"), inf=float("inf"), true=True),
    "number of items": {k: v for k, v in _NO_COUNT.items() if k not in ("none", "list")},
    "flag": _NO_FLAG,
    "flag or none": {k: v for k, v in _NO_FLAG.items() if k != "none"},
    "word": _NO_WORD,
    "word or none": _NO_WORD,
    "seed": _wrong(
        text="a", none=None, fraction=1.5, true=True, list=[1], nan=float("nan"), function=_nothing
    ),
    "names": _NO_NAMES,
    "matrix": _NO_MATRIX,
    "data": _NO_MATRIX,
    "index": _NO_INDEX,
    "shape": _NO_SHAPE,
    "object": _wrong(text="a", number=3, list=[1], function=_nothing),
    "feature prior": _wrong(text="a", list=[1], function=_nothing, zero=0.0, true=True),
    "concentrations": _NO_AMOUNT | _wrong(zero=0.0, list=[-1.0], twofold=[[1.0]]),
    "word or names": _wrong(number=3, list=[1], function=_nothing),
    "sizes": _wrong(text="a", number=3, zeros=[0], fractions=[1.5], function=_nothing),
    "matrix or none": {k: v for k, v in _NO_MATRIX.items() if k != "none"},
    "headings or none": _wrong(unknown="nothing", number=3, list=["a"], function=_nothing),
    "function": _wrong(text="no name", number=3, list=[1], mapping={}),
    "model": _wrong(
        none=None, text="LDA", number=3, kind=jaxmf.LDA, data=[[1.0]], function=_nothing
    ),
    "ids": _wrong(
        unknown=["nobody"], fraction=[0.5], negative=[-1], huge=[10**9], empty=[], mapping={},
        function=_nothing,
    ),
    "cells": _wrong(
        fractions=[[0.5, 0.5]], negative=[[-1, 0]], huge=[[0, 10**9]], three=[[1, 2, 3]],
        letters=[["a", "b"]], number=3, text="a", function=_nothing, empty=[],
        unequal=([0, 1], [0]), mask=np.ones((2, 2), bool),
    ),
    "levels": _wrong(
        text="a", number=0.5, zero=(0.0, 0.5), one=(0.5, 1.0), nan=(float("nan"),), none=None,
        letters=("a",), function=_nothing, empty=(),
    ),
    "values": _wrong(
        text="ab", none=None, number=3, one=(1.0,), twice=(1.0, 1.0), nan=(1.0, float("nan")),
        letters=("a", "b"), function=_nothing, empty=(),
    ),
    "no text": _wrong(number=3, list=["a"], function=_nothing, mapping={}),
    "path": _wrong(number=3, none=None, list=["a"], function=_nothing),
    "path or none": _wrong(number=3, list=["a"], function=_nothing, true=True),
    "mapping": _wrong(text="ab", number=3, list=[1], none=None, function=_nothing),
    "optional mapping": _wrong(text="ab", number=3, list=[1], function=_nothing),
    "numbers": _wrong(
        text="ab", none=None, number=3.0, letters=["a", "b"], nan=[1.0, float("nan")],
        infinite=[1.0, float("inf")], deep=[[1.0, 2.0]], function=_nothing, empty=[],
    ),
    "times": _wrong(
        text="ab", number=3.0, letters=["a", "b"], nan=[1.0, float("nan")],
        infinite=[1.0, float("inf")], deep=[[1.0, 2.0]], function=_nothing, empty=[],
        twice=[1.0, 1.0],
    ),
    "baskets": _wrong(text="ab", none=None, number=3, numbers=[1, 2], function=_nothing, empty=[]),
    "draw": _wrong(
        text="a", fraction=0.5, negative=-1, huge=10**9, list=[1], true=True, function=_nothing
    ),
    "heading": _wrong(number=3, none=None, list=["a"], function=_nothing),
    "headings": _wrong(unknown=["nothing"], number=3, function=_nothing),
}  # fmt: skip

KINDS: dict[str, str | None] = {
    "model": "model", "data": "data", "seed": "seed", "mesh": "object", "progress": None,
    "num_warmup": "count from 0", "num_samples": "count", "num_chains": "count", "thin": "count",
    "temper": "count or none",
    "chain_method": "word", "num_particles": "count", "num_runs": "count",
    "num_epochs": "count or none", "num_validation": "count from 0", "analytic": "flag",
    "hold_out": "count from 0 or none",
    # those of the run loop are judged by the tests of the engine
    "checkpoint": None, "checkpoint_seconds": None, "draws_folder": None, "memory_limit": None,
    "resume": None,
    "predict_at": "cells", "method": "word",
    "sweep": "word", "anneal": "flag", "split_merge": "count from 0", "column_noise": "flag",
    "change_basis": "count from 0 or none", "shared_births": "count from 0",
    "capacity": "huge count or none",
    "weights": "word", "several": "count from 0 or none", "num_moves": "count from 0",
    "num_value_moves": "count",
    "keep": "word", "joint": "object", "keep_factors": "flag",
    "proposal": "word", "resample_fn": "function", "ess_threshold": "share or function",
    "rejuvenate_every": "count from 0", "anneal_from": "probability",
    "anneal_steps": "count from 0", "batch_size": "count or none",
    "start": "word", "update": "word", "relaxation": "positive", "power": "positive",
    "step_size": "positive", "optimizer": "object", "decay": "probability",
    "hold_priors": "count from 0", "tolerance": "amount", "patience": "count",
    "evaluate_every": "count", "num_evaluation": "count",
    "alpha": "positive", "noise_scale": "positive", "feature_scale": "positive",
    "concentration": "positive", "base_concentration": "positive",
    "topic_concentration": "positive", "word_concentration": "positive",
    "user_concentration": "positive", "item_concentration": "positive",
    "level_concentration": "positive", "discount": "probability",
    "degrees_of_freedom": "positive", "dispersion": "positive", "bound": "word",
    "cause_probability": "probability", "efficacy": "probability", "leak": "probability",
    "num_features": "huge count or none", "bias": "flag", "num_topics": "count",
    "num_components": "count", "num_user_groups": "count", "num_item_groups": "count",
    "num_factors": "count", "num_groups": "count", "size": "count or none",
    "row_prior": "object", "column_prior": "object", "prior": "object", "family": "object",
    "likelihood": "object", "zeros": "object", "kernel": "word",
    "weight_scale": "positive", "weight_mean": "number", "weight_shape": "positive",
    "weight_rate": "positive", "base_rate": "positive", "diagonal": "flag", "row_bias": "flag",
    "column_bias": "flag", "fixed_row_features": "matrix or none",
    "fixed_column_features": "matrix or none",
    "mixture": "object", "coefficients": "flag", "link": "flag",
    "link_precision": "positive", "coefficient_precision": "positive",
    "scale": "positive", "row_column_prior": "object",
    "row_features": "object", "column_features": "object", "cell_features": "object",
    "row_classes": "object", "column_classes": "object", "values": "values",
    "users": "object", "items": "object", "table_prior": "object", "topic_prior": "object",
    "row_names": "names", "column_names": "names", "vocabulary": "names", "ids": "names",
    "observed": "matrix or none", "shape": "shape", "x": "matrix", "matrix": "matrix",
    "rows": "index", "columns": "index", "cells": "cells", "quantiles": "levels",
    "num_draws": "count or none", "num_pairs": "count from 0", "n": "count", "by": "word",
    "measure": "word",
    "side": "word", "include_known": "flag", "column": "word", "titles": "object",
    "new_rows": "matrix or none", "new_columns": "matrix or none", "new_documents": "matrix",
    "image_shape": "shape", "title": "no text", "path": "path", "folder": "path",
    "num_sweeps": "count", "num_steps": "count", "shrinkage": "amount",
    "learning_rate": "positive", "lengthscale": "positive", "row_mean": "number",
    "row_scale": "positive", "column_mean": "number", "column_scale": "positive",
    "column_unit": "no scale",
    "bias_scale": "positive", "intercept_scale": "positive",
    "resample": "flag", "threshold_scale": "positive", "a": "positive", "b": "positive",
    "rate": "positive", "weight": "positive", "location": "number",
    "num_items": "count", "offset": "no location", "row_offset": "no location",
    "time": "number", "unknown": "word",
}  # fmt: skip
"""Kinds by the parameter's name, where a target does not say otherwise."""
