"""Settings as text: what the command line reads without evaluating code, and tables show."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxmf.data import CellFeatures, Features
from jaxmf.settings import names

_CONSTANTS = {"inf": math.inf, "nan": math.nan, "none": None, "true": True, "false": False}


def parse(text: str) -> object:
    """Read a setting from text: a number, true/false/none, a distribution, or a prior of features.

    Nothing is evaluated: the text is parsed and only numbers and calls of numpyro's distributions,
    `IndianBuffet` and `BetaBernoulli` are understood. A plain word comes back as a string.

    Args:
        text: what stands behind ``=`` on the command line.
    Returns:
        A number, bool, None, str or numpyro distribution.
    Raises:
        ValueError: the text is none of these.
    Example:
        >>> parse("0.5"), parse("true"), describe(parse("Gamma(1, rate=2)"))
        (0.5, True, 'Gamma(concentration=1, rate=2)')
    """
    stripped = text.strip()
    if stripped.lower() in _CONSTANTS:
        return _CONSTANTS[stripped.lower()]
    try:
        tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    if isinstance(tree, ast.Name):
        return stripped
    try:
        return _from_syntax(tree)
    except _NotUnderstood:
        raise ValueError(
            f"cannot read {text!r}: write a number such as 0.5, or a distribution of "
            "numpyro.distributions such as Gamma(1, 1)"
        ) from None


class _NotUnderstood(Exception):
    pass


def _from_syntax(node: ast.AST | None) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool, str)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _from_syntax(node.operand)
        if not isinstance(value, (int, float)):
            raise _NotUnderstood
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Name) and node.id.lower() in _CONSTANTS:
        return _CONSTANTS[node.id.lower()]
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_from_syntax(item) for item in node.elts)
    raise _NotUnderstood


def _call(node: ast.Call) -> object:
    function = node.func
    # `dist.Gamma(1, 1)` as in a Python session means the same as `Gamma(1, 1)`.
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if name is None:
        raise _NotUnderstood
    is_prior = names.makes_prior(name)
    make = names.prior_class(name) if is_prior else names.distribution_class(name, makers=True)
    checked = {} if is_prior else {"validate_args": True}
    arguments = [_from_syntax(argument) for argument in node.args]
    named = {str(keyword.arg): _from_syntax(keyword.value) for keyword in node.keywords}
    try:
        return make(*arguments, **named, **checked)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from None


def describe(value: Any) -> str:
    """A setting as text: ``0.5``, ``Gamma(concentration=1, rate=1)``, ``systematic``."""
    if names.is_distribution(value):
        inner = ", ".join(
            f"{n}={describe(getattr(value, n))}" for n in names.parameter_names(value)
        )
        return f"{type(value).__name__}({inner})"
    if names.is_prior(value):
        fields = dataclasses.fields(value)
        inner = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in fields)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, (Features, CellFeatures)):
        return repr(value)
    if isinstance(value, functools.partial):
        arguments = [describe(item) for item in value.args]
        arguments += [f"{key}={describe(item)}" for key, item in value.keywords.items()]
        return describe(value.func) + (f"({', '.join(arguments)})" if arguments else "")
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {describe(item)}" for key, item in value.items()) + "}"
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        return f"{np.asarray(value).item():g}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"array of shape {tuple(value.shape)}"
    if callable(value):
        return getattr(value, "__name__", repr(value))
    return str(value)
