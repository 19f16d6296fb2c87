"""How models and their parts show themselves: as the call that makes them again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmf.arguments import ChecksNames

if TYPE_CHECKING:
    import numpyro.distributions as dist

_MOST_VALUES = 8
"""Arrays with more numbers than this are shown by their shape."""


class Readable(ChecksNames):
    """Shows itself as the call that makes it again, settings at their defaults left out.

    Numpyro distributions are shown as they are written, `Gamma(concentration=1.0, rate=1.0)`, and
    long arrays by their shape. What stands there can be pasted after ``from jaxmf import *`` and
    ``from numpyro.distributions import *``, long arrays and functions apart.
    """

    def __init_subclass__(cls, **options: object) -> None:
        # a dataclass writes a `__repr__` of its own only where the class has none
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Readable.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = []
        made = {
            field.name: field.default_factory
            for field in getattr(self, "__dataclass_fields__", {}).values()
            if field.default_factory is not dataclasses.MISSING
        }
        for name, parameter in inspect.signature(type(self)).parameters.items():
            default = made[name]() if name in made else parameter.default
            text = show(getattr(self, name, default))
            if text != show(default) and not (default is None and text == "()"):
                shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


def show(value: object) -> str:
    """A setting as it is written in Python.

    Example:
        >>> show((0.1, np.float32(0.1), "svd")), show(np.zeros((3, 4)))
        ("(0.1, 0.1, 'svd')", '<array of shape (3, 4)>')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{show(key)}: {show(item)}' for key, item in value.items())}}}"
    if hasattr(value, "log_prob") and hasattr(value, "batch_shape"):
        return _show_distribution(value)
    if isinstance(value, functools.partial):
        bound = [show(item) for item in value.args]
        bound += [f"{name}={show(item)}" for name, item in value.keywords.items()]
        return f"Partial({', '.join([show(value.func), *bound])})"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _show_array(value)
    is_named = callable(value) and not isinstance(value, Readable)
    return getattr(value, "__name__", repr(value)) if is_named else repr(value)


def _show_distribution(distribution: dist.Distribution) -> str:
    """A numpyro distribution, by the arguments of its class."""
    kind = type(distribution).__name__
    base = getattr(distribution, "base_dist", None)
    if kind == "ExpandedDistribution":
        return f"{show(base)}.expand({show(list(distribution.batch_shape))})"
    if kind == "Independent":
        return f"{show(base)}.to_event({distribution.reinterpreted_batch_ndims})"
    names = list(inspect.signature(type(distribution).__init__).parameters)[1:]
    settings = [
        f"{name}={show(getattr(distribution, name))}"
        for name in names
        if name not in ("validate_args", "kwargs") and hasattr(distribution, name)
    ]
    return f"{kind}({', '.join(settings)})"


def _show_array(array: Any) -> str:
    """Its numbers where they are few; else, or where jax holds something else, its shape."""
    try:
        values = np.asarray(array)
    except Exception:  # a tracer has no numbers
        return f"<array of shape {tuple(array.shape)}>"
    if values.size > _MOST_VALUES or values.dtype.kind not in "biuf":
        return f"<array of shape {values.shape}>"
    # as text: the shortest number that is this one in its own precision
    texts = np.array([str(one) for one in values.ravel()], dtype=object).reshape(values.shape)
    return str(texts.tolist()).replace("'", "") if values.ndim else str(texts[()])
