"""Settings as JSON, and back: only what is in the tables of `names` is ever made from a file."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmf.data import CellFeatures, Features, feature_parts
from jaxmf.settings import names
from jaxmf.types import Seed, is_key

MAX_DEPTH = 20
_DTYPES = {
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
}
_IMPLEMENTATIONS = ("threefry2x32", "rbg", "unsafe_rbg")
_FUNCTION_KEYS = {"registered", "module"}
_NOT_FINITE = ("inf", "-inf", "nan")


# --- writing --------------------------------------------------------------------------------------


def encode(value: object, *, name: str = "setting") -> object:
    """Turn a setting into what JSON can hold; `decode` is the inverse.

    Args:
        value: a number, bool, None, str, array, numpyro distribution of numbers, prior, function
            that is registered (a resampler, the row likelihoods that come with the library; with
            numbers bound to it by `Partial`), features (their labels and fingerprint, without their
            arrays), or a tuple, list or dict of these.
    Returns:
        Numbers, strings, lists and dicts only.
    Raises:
        TypeError: the value cannot be written so, such as a function defined elsewhere.
    """
    return _encode(value, name, 0)


def _encode(value: Any, name: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise TypeError(f"{name} is nested more than {MAX_DEPTH} deep and cannot be written down")
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(float(value))}
    if names.is_distribution(value):
        return _encode_distribution(value, name, depth)
    if names.is_prior(value):
        fields = {
            field.name: _encode(getattr(value, field.name), f"{name}.{field.name}", depth + 1)
            for field in dataclasses.fields(value)
        }
        if names.is_registered(type(value)):
            return _registered(type(value)) | {"parameters": fields}
        return {"prior": type(value).__name__, "parameters": fields}
    if isinstance(value, (Features, CellFeatures)):
        return feature_parts.described(value)
    if isinstance(value, functools.partial | tuple | list | Mapping):
        return _encode_items(value, name, depth)
    if callable(value) and (function := _encode_function(value)) is not None:
        return function
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = np.asarray(value)
        if array.dtype.name in _DTYPES:
            dtype, shape = array.dtype.name, list(array.shape)
            return {"array": array.tolist(), "dtype": dtype, "shape": shape}
    raise TypeError(
        f"{name} = {value!r} cannot be written down; numbers, numpyro distributions of numbers, "
        f"and the functions {', '.join(names.FUNCTIONS)} can, and what jaxmf.register was called "
        "with"
    )


def _encode_function(value: Callable[..., object]) -> dict[str, object] | None:
    if names.is_registered(value):
        return _registered(value)
    known = names.function_name(value)
    return None if known is None else {"function": known}


def _registered(value: Callable[..., object]) -> dict[str, object]:
    """A class or function of another package; its module is for the message of who lacks it."""
    return {"registered": names.registered_name(value), "module": value.__module__}


def _encode_items(
    value: functools.partial[object] | tuple[object, ...] | list[object] | Mapping[str, object],
    name: str,
    depth: int,
) -> object:
    if isinstance(value, functools.partial):
        return {
            "partial": _encode(value.func, name, depth + 1),
            "arguments": [_encode(item, name, depth + 1) for item in value.args],
            "keywords": {
                key: _encode(item, name, depth + 1) for key, item in value.keywords.items()
            },
        }
    if isinstance(value, Mapping):
        content = {
            str(key): _encode(item, f"{name}.{key}", depth + 1) for key, item in value.items()
        }
        return {"dict": content}
    items = [_encode(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(value)]
    return {"tuple": items} if isinstance(value, tuple) else items


def _encode_distribution(value: object, name: str, depth: int) -> dict[str, object]:
    try:
        names.distribution_class(type(value).__name__)
        written: dict[str, object] = {
            "distribution": type(value).__name__,
            "parameters": {
                parameter: _encode(getattr(value, parameter), f"{name}.{parameter}", depth + 1)
                for parameter in names.parameter_names(value)
            },
        }
        decode(written, name=name)  # what is written down can be read
    except (AttributeError, ValueError) as error:
        raise TypeError(f"{name} = {value!r} cannot be written down: {error}") from None
    return written


# --- reading --------------------------------------------------------------------------------------


def decode(written: object, *, name: str = "setting") -> Any:
    """The setting that `encode` wrote down.

    Functions, priors and distributions are looked up in the tables of `jaxmf.settings.names`; no
    module and no attribute that a file names is ever looked into.

    Raises ValueError: it is nothing that `encode` writes; the message names the part.
    """
    return _decode(written, name, 0)


def _decode(written: object, name: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{name}: is nested more than {MAX_DEPTH} deep")
    if isinstance(written, list):
        return [_decode(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(written)]
    if not isinstance(written, dict):
        return written
    form = next((form for form in _FORMS if written.keys() == _FORMS[form][0]), None)
    if form is None:
        raise ValueError(
            f"{name}: an object with the keys {_listed(written)} is no setting; it should have "
            f"those of one of: {', '.join('/'.join(sorted(keys)) for keys, _ in _FORMS.values())}"
        )
    return _FORMS[form][1](written, name, depth)


def _decode_prior(written: dict[str, object], name: str, depth: int) -> object:
    return _make(names.prior_class(written["prior"]), "prior", written, name, depth)


def _decode_distribution(written: dict[str, object], name: str, depth: int) -> Any:
    make = names.distribution_class(written["distribution"])
    found = _make(make, "distribution", written, name, depth, check=_check_parameter)
    if math.prod(found.batch_shape) * math.prod(found.event_shape) > 2**31:
        raise ValueError(f"{name}: a distribution of shape {found.batch_shape} is too large")
    return found


def _make(
    make: Callable[..., object],
    form: str,
    written: dict[str, object],
    name: str,
    depth: int,
    *,
    check: Callable[[str, object], None] = lambda name, value: None,
) -> Any:
    """An object of a registered class, its parameters checked by name."""
    parameters, label = written["parameters"], written[form]
    if not isinstance(parameters, dict):
        raise ValueError(f"{name}: the parameters of {label} should be an object")
    known = inspect.signature(make).parameters
    unknown = [key for key in parameters if key not in known or key == "validate_args"]
    if unknown:
        raise ValueError(f"{name}: {label} has no parameter {unknown[0][:80]!r}")
    values = {}
    for key, value in parameters.items():
        values[key] = _decode(value, f"{name}.{key}", depth + 1)
        check(f"{name}.{key}", values[key])
    try:
        return make(**values)
    except Exception as error:  # a class raises what it likes at arguments of a wrong kind
        words = str(error)[:200]
        raise ValueError(f"{name}: {label} cannot be made of these parameters: {words}") from error


def _check_parameter(name: str, value: object) -> None:
    """Refuses what no distribution of numbers takes."""
    if isinstance(value, tuple):
        for item in value:
            _check_parameter(name, item)
        return
    is_numeric = value is None or isinstance(value, (bool, int, float, np.ndarray))
    is_method = name.endswith(".sample_method") and value in ("onion", "cvine")
    if not (is_numeric or is_method or names.is_distribution(value)):
        raise ValueError(f"{name}: a {type(value).__name__} is no parameter of a distribution")


def _decode_partial(written: dict[str, object], name: str, depth: int) -> object:
    from jax.tree_util import Partial

    arguments, keywords = written["arguments"], written["keywords"]
    function = written["partial"]
    if not isinstance(function, dict) or function.keys() not in ({"function"}, _FUNCTION_KEYS):
        raise ValueError(f"{name}: 'partial' should be a function that is registered")
    if not isinstance(arguments, list) or not isinstance(keywords, dict):
        raise ValueError(f"{name}: the arguments and keywords bound to a function are damaged")
    return Partial(
        _decode(function, name, depth + 1),
        *_decode(arguments, name, depth + 1),
        **{key: _decode(item, f"{name}.{key}", depth + 1) for key, item in keywords.items()},
    )


def _decode_function(written: dict[str, object], name: str, depth: int) -> object:
    return names.function(written["function"])


def _decode_registered(written: dict[str, object], name: str, depth: int) -> object:
    found = names.registered(written["registered"], written["module"])
    if isinstance(found, type):
        raise ValueError(f"{name}: {written['registered']!r} is a class and has parameters")
    return found


def _decode_registered_part(written: dict[str, object], name: str, depth: int) -> object:
    found = names.registered(written["registered"], written["module"])
    if not isinstance(found, type):
        raise ValueError(f"{name}: {written['registered']!r} is a function without parameters")
    return _make(found, "registered", written, name, depth)


def _decode_float(written: dict[str, object], name: str, depth: int) -> float:
    if written["number"] not in _NOT_FINITE:
        raise ValueError(f"{name}: 'number' should be one of {', '.join(_NOT_FINITE)}")
    return float(written["number"])


def _decode_tuple(written: dict[str, object], name: str, depth: int) -> tuple[object, ...]:
    if not isinstance(written["tuple"], list):
        raise ValueError(f"{name}: 'tuple' should be a list")
    return tuple(_decode(written["tuple"], name, depth + 1))


def _decode_dict(written: dict[str, object], name: str, depth: int) -> dict[str, object]:
    if not isinstance(written["dict"], dict):
        raise ValueError(f"{name}: 'dict' should be an object")
    return {
        key: _decode(value, f"{name}.{key}", depth + 1) for key, value in written["dict"].items()
    }


def _decode_array(written: dict[str, Any], name: str, depth: int) -> np.ndarray:
    if written["dtype"] not in _DTYPES:
        raise ValueError(f"{name}: {str(written['dtype'])[:80]!r} is no dtype of numbers")
    try:
        return np.asarray(written["array"], dtype=written["dtype"]).reshape(written["shape"])
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: its array cannot be read: {str(error)[:200]}") from None


_FORMS: dict[str, tuple[set[str], Callable[[dict[str, object], str, int], object]]] = {
    "distribution": ({"distribution", "parameters"}, _decode_distribution),
    "prior": ({"prior", "parameters"}, _decode_prior),
    "partial": ({"partial", "arguments", "keywords"}, _decode_partial),
    "number": ({"number"}, _decode_float),
    "tuple": ({"tuple"}, _decode_tuple),
    "dict": ({"dict"}, _decode_dict),
    "array": ({"array", "dtype", "shape"}, _decode_array),
    "function": ({"function"}, _decode_function),
    "registered": (_FUNCTION_KEYS, _decode_registered),
    "registered part": ({"registered", "module", "parameters"}, _decode_registered_part),
}


def _listed(written: dict[str, object]) -> str:
    return ", ".join(repr(key)[:40] for key in list(written)[:5])


# --- seeds ----------------------------------------------------------------------------------------


def encode_seed(seed: Seed) -> object:
    """A seed (int or typed key) as JSON."""
    import jax

    if not isinstance(seed, jax.Array) or not is_key(seed):
        return int(seed)
    return {
        "key": np.asarray(jax.random.key_data(seed)).tolist(),
        "impl": str(jax.random.key_impl(seed)),
    }


def decode_seed(written: object) -> Seed:
    """The seed that `encode_seed` wrote down.

    Raises ValueError: it is neither a whole number nor a key of a generator of jax.
    """
    import jax
    import jax.numpy as jnp

    if type(written) is int:
        return written
    if not isinstance(written, dict) or written.keys() != {"key", "impl"}:
        raise ValueError(f"seed: {str(written)[:80]!r} is neither a whole number nor a key")
    if written["impl"] not in _IMPLEMENTATIONS:
        raise ValueError(
            f"seed: {str(written['impl'])[:80]!r} is no generator of keys; there are "
            f"{', '.join(_IMPLEMENTATIONS)}"
        )
    try:
        data = jnp.asarray(np.asarray(written["key"], dtype=np.uint32))
        return jax.random.wrap_key_data(data, impl=written["impl"])
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"seed: its key cannot be read: {str(error)[:200]}") from None
