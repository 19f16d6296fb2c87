"""Settings as text and as JSON: numbers, numpyro distributions, priors and functions of jaxmf.

Three directions meet here: the command line reads ``Gamma(1, 1)`` without evaluating code
(`parse`), a saved run keeps its model without pickle (`encode`, `decode`), and tables show a
setting in the words it was written in (`describe`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmf.data import CellFeatures, Features, feature_parts

# Priors of features, and parts of models, by the names they have on the command line; imported
# when they are named.
_PRIORS = {
    "IndianBuffet": "jaxmf.priors.features",
    "BetaBernoulli": "jaxmf.priors.features",
    "Block": "jaxmf.blocks.block",
    "Dirichlet": "jaxmf.priors.partitions",
    "DirichletProcess": "jaxmf.priors.partitions",
    "FlexiblePrior": "jaxmf.priors.flexible",
    "HDP": "jaxmf.priors.hdp",
    "PitmanYor": "jaxmf.priors.partitions",
    "BetaBinary": "jaxmf.likelihoods.families.categories",
    "DirichletMultinomial": "jaxmf.likelihoods.families.categories",
    "GammaPoisson": "jaxmf.likelihoods.families.poisson",
    "NormalInverseGamma": "jaxmf.likelihoods.families.normal",
    "NormalInverseWishart": "jaxmf.likelihoods.families.multivariate_normal",
    "Ordinal": "jaxmf.likelihoods.ordered",
    "Probit": "jaxmf.likelihoods.ordered",
    "Gaussian": "jaxmf.variational_bayes.likelihood",
    "Sigmoid": "jaxmf.variational_bayes.likelihood",
    "Exact": "jaxmf.variational_bayes.zeros",
    "SharedSample": "jaxmf.variational_bayes.zeros",
    "RowSample": "jaxmf.variational_bayes.zeros",
}
_CONSTANTS = {"inf": math.inf, "nan": math.nan, "none": None, "true": True, "false": False}


def is_distribution(value: Any) -> bool:
    """Whether a setting is a numpyro distribution (numpyro is not imported to find out)."""
    return type(value).__module__.partition(".")[0] == "numpyro" and hasattr(value, "log_prob")


def is_prior(value: Any) -> bool:
    """Whether a setting is a prior of features, or a part of a model: `IndianBuffet(1.0)`."""
    return _PRIORS.get(type(value).__name__) == type(value).__module__


def _prior_class(name: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(_PRIORS[name]), name)


def _distribution_class(name: str) -> Callable[..., Any]:
    import numpyro.distributions as dist

    found = getattr(dist, name, None)
    is_class = inspect.isclass(found) and issubclass(found, dist.Distribution)
    if found is None or not (is_class or name.startswith("Truncated")):
        raise ValueError(
            f"{name!r} is not a numpyro distribution; write for example Gamma(1, 1), "
            "HalfNormal(1), LogNormal(0, 1) or InverseGamma(2, 1)"
        )
    return found


def _parameter_names(distribution: Any) -> list[str]:
    parameters = list(inspect.signature(type(distribution).__init__).parameters)[1:]
    return [name for name in parameters if name not in ("validate_args", "kwargs")]


def parse(text: str) -> Any:
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


def _from_syntax(node: ast.AST | None) -> Any:
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


def _call(node: ast.Call) -> Any:
    function = node.func
    # `dist.Gamma(1, 1)` as in a Python session means the same as `Gamma(1, 1)`.
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if name is None:
        raise _NotUnderstood
    make = _prior_class(name) if name in _PRIORS else _distribution_class(name)
    checked = {} if name in _PRIORS else {"validate_args": True}
    arguments = [_from_syntax(argument) for argument in node.args]
    named = {str(keyword.arg): _from_syntax(keyword.value) for keyword in node.keywords}
    try:
        return make(*arguments, **named, **checked)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from None


def encode(value: Any, *, name: str = "setting") -> Any:
    """Turn a setting into what JSON can hold; `decode` is the inverse.

    Args:
        value: a number, bool, None, str, array, numpyro distribution, function of this library
            (with numbers bound to it by `Partial`), features (their words and fingerprint, without
            their arrays), or a tuple, list or dict of these.
        name: how the setting is called in the error.
    Returns:
        Numbers, strings, lists and dicts only.
    Raises:
        TypeError: the value has no such form, such as a function defined elsewhere.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if is_distribution(value):
        parameters = {
            parameter: encode(getattr(value, parameter), name=f"{name}.{parameter}")
            for parameter in _parameter_names(value)
        }
        return {"distribution": type(value).__name__, "parameters": parameters}
    if is_prior(value):
        fields = {
            field.name: encode(getattr(value, field.name), name=f"{name}.{field.name}")
            for field in dataclasses.fields(value)
        }
        return {"prior": type(value).__name__, "parameters": fields}
    if isinstance(value, (Features, CellFeatures)):
        return feature_parts.described(value)
    if isinstance(value, functools.partial):
        return {
            "partial": encode(value.func, name=name),
            "arguments": encode(list(value.args), name=name),
            "keywords": {key: encode(item, name=name) for key, item in value.keywords.items()},
        }
    if isinstance(value, (tuple, list)):
        items = [encode(item, name=f"{name}[{i}]") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {
            "dict": {str(key): encode(item, name=f"{name}.{key}") for key, item in value.items()}
        }
    if callable(value) and getattr(value, "__module__", "").partition(".")[0] == "jaxmf":
        return {"function": f"{value.__module__}:{value.__qualname__}"}
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = np.asarray(value)
        return {"array": array.tolist(), "dtype": array.dtype.name}
    raise TypeError(
        f"{name} = {value!r} cannot be written down; numbers, numpyro distributions and functions "
        "of jaxmf can"
    )


def decode(written: Any) -> Any:
    """The setting that `encode` wrote down; only numpyro and jaxmf are ever looked into."""
    if isinstance(written, list):
        return [decode(item) for item in written]
    if not isinstance(written, dict):
        return written
    if "distribution" in written:
        make = _distribution_class(written["distribution"])
        return make(**{key: decode(value) for key, value in written["parameters"].items()})
    if "prior" in written:
        make = _prior_class(written["prior"])
        return make(**{key: decode(value) for key, value in written["parameters"].items()})
    if "partial" in written:
        from jax.tree_util import Partial

        keywords = {key: decode(item) for key, item in written["keywords"].items()}
        return Partial(decode(written["partial"]), *decode(written["arguments"]), **keywords)
    if "number" in written:
        return float(written["number"])
    if "tuple" in written:
        return tuple(decode(item) for item in written["tuple"])
    if "dict" in written:
        return {key: decode(value) for key, value in written["dict"].items()}
    if "array" in written:
        return np.asarray(written["array"], dtype=written["dtype"])
    module, _, path = written["function"].partition(":")
    if module.partition(".")[0] != "jaxmf":
        raise ValueError(f"a saved run may only name functions of jaxmf, not {module}.{path}")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def describe(value: Any) -> str:
    """A setting in words: ``0.5``, ``Gamma(concentration=1, rate=1)``, ``systematic``."""
    if is_distribution(value):
        inner = ", ".join(f"{n}={describe(getattr(value, n))}" for n in _parameter_names(value))
        return f"{type(value).__name__}({inner})"
    if is_prior(value):
        fields = dataclasses.fields(value)
        inner = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in fields)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, (Features, CellFeatures)):
        return repr(value)
    if isinstance(value, functools.partial):
        numbers = [describe(item) for item in value.args]
        numbers += [f"{key}={describe(item)}" for key, item in value.keywords.items()]
        return describe(value.func) + (f"({', '.join(numbers)})" if numbers else "")
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


def encode_seed(seed: Any) -> Any:
    """A seed (int or typed key) as JSON."""
    import jax

    if not hasattr(seed, "dtype") or not jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return int(seed)
    return {
        "key": np.asarray(jax.random.key_data(seed)).tolist(),
        "impl": str(jax.random.key_impl(seed)),
    }


def decode_seed(written: Any) -> Any:
    """The seed that `encode_seed` wrote down."""
    import jax
    import jax.numpy as jnp

    if isinstance(written, int):
        return written
    data = jnp.asarray(written["key"], dtype=jnp.uint32)
    return jax.random.wrap_key_data(data, impl=written["impl"])
