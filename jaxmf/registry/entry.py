"""What the library knows of a model: an entry of the registry, its settings and what it takes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxmf.arguments import check_count, check_flag, check_number, meant

if TYPE_CHECKING:
    from jaxmf.engine import Algorithm
    from jaxmf.model import Model


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model of the library.

    Args:
        name: its name on the command line, words joined by dashes.
        model_path: where its class is, ``"module:class"``.
        container_name: the container of `jaxmf.data` that its data is read into.
        one_line: what it is, for `jaxmf models`.
        methods: public verb -> method of the class that builds the algorithm.
        default: the verb that `fit` runs.
        anneals: whether it is an `Anneals`, which `smc` and `temper` need; said here too, as the
            command line refuses a method without importing the class.
        has_functions: whether it is made of functions, which the command line cannot read; with
            a setting `likelihood` these may be left out.
    """

    name: str
    model_path: str
    container_name: str
    one_line: str
    methods: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"sample": "sampler"})
    default: str = "sample"
    anneals: bool = False
    has_functions: bool = False

    @property
    def class_name(self) -> str:
        """The name of the class, without importing it."""
        return self.model_path.partition(":")[2]

    @functools.cached_property
    def model(self) -> type:
        """The class."""
        module, _, name = self.model_path.partition(":")
        return getattr(importlib.import_module(module), name)

    @functools.cached_property
    def container(self) -> type:
        """The class of the container."""
        return getattr(importlib.import_module("jaxmf.data"), self.container_name)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The public verbs that run it: those of its methods, and `smc` where it anneals."""
        return (*self.methods, "smc") if self.anneals else tuple(self.methods)

    def example(self) -> tuple[Model, object]:
        """A tiny model and tiny data, for tests and docs: `jaxmf.registry.examples`."""
        return importlib.import_module("jaxmf.registry.examples").EXAMPLES[self.name]()

    def builder(self, model: object, method: str) -> Callable[..., Algorithm]:
        """The bound function of `model` that makes the algorithm of a method."""
        return getattr(model, self.methods[method])


class Setting(NamedTuple):
    """One argument of a model or a method: its name, default and whether it has one."""

    name: str
    default: object
    required: bool


def check_method(entry: Entry, method: str) -> None:
    """Refuse a method that a model does not have, naming those it has."""
    if method not in entry.verbs:
        verbs = " or ".join(f"jaxmf.{verb}" for verb in entry.verbs)
        raise ValueError(f"{entry.class_name} has no method {method!r}; use {verbs}")


def model_settings(entry: Entry) -> list[Setting]:
    """The settings of a model, in the order of its constructor, and what they are by default."""
    settings = _settings_of(entry.model)
    if entry.has_functions or any(setting.required for setting in settings):
        made = {
            field.name: field.default_factory()
            for field in dataclasses.fields(entry.model)
            if field.default_factory is not dataclasses.MISSING
        }
        return [s._replace(default=made.get(s.name, s.default)) for s in settings]
    usual = entry.model()
    return [setting._replace(default=getattr(usual, setting.name)) for setting in settings]


def method_settings(entry: Entry, method: str) -> list[Setting]:
    """The options that a method of a model takes."""
    check_method(entry, method)
    if method == "smc":
        return annealing_settings(entry)
    function = getattr(entry.model, entry.methods[method])
    return [setting for setting in _settings_of(function) if setting.name != "self"]


def annealing_settings(entry: Entry) -> list[Setting]:
    """The options that `jaxmf.smc` takes for a model.

    Raises ValueError: the model has no path from its prior to its posterior.
    """
    check_method(entry, "smc")
    settings = _settings_of(entry.model.annealed)  # type: ignore[attr-defined]
    return [setting for setting in settings if setting.name not in ("self", "data")]


def _settings_of(function: Callable[..., object]) -> list[Setting]:
    empty = inspect.Parameter.empty
    return [
        Setting(name=name, default=parameter.default, required=parameter.default is empty)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def read_options(
    entry: Entry, method: str, options: Mapping[str, object], verb: Callable[..., object]
) -> dict[str, object]:
    """Options of a method as it takes them; refuses others, and values of another type.

    A word may name a function beside the default one: ``resample_fn="stratified"``.

    Args: options: what was given beyond the verb's own arguments; verb: the function of
    `jaxmf.api`, whose own arguments are named too.
    Returns the options, words for functions replaced by these.
    Raises TypeError: an option is unknown, or its value is of another type than the method takes.
    ValueError: a word that names no function.
    """
    verb_settings = [
        s.name for s in _settings_of(verb) if s.name not in ("model", "data", "options")
    ]
    known = [s.name for s in method_settings(entry, method) if s.name not in verb_settings]
    unknown = [name for name in options if name not in known]
    if unknown:
        words = ", ".join(repr(name) for name in unknown)
        raise TypeError(
            f"{method} takes no option {words}; for {entry.class_name} it takes "
            f"{', '.join(known + verb_settings)}.{meant(unknown[0], known + verb_settings)}"
        )
    builder = getattr(entry.model, entry.methods[method])
    hints = typing.get_type_hints(builder)
    defaults = {setting.name: setting.default for setting in method_settings(entry, method)}
    return {
        name: _read_option(name, value, hints.get(name, object), defaults[name])
        for name, value in options.items()
    }


def _read_option(name: str, value: object, hint: object, default: Any) -> object:
    """A value of the type that a method's signature names."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if is_union else (hint,)
    if isinstance(value, str) and callable(default):
        return _function_named(name, value, default)
    if (value is None and type(None) in kinds) or (callable(value) and _takes_functions(kinds)):
        return value
    if bool in kinds:
        return check_flag(name, value)
    if float in kinds:
        check_number(name, value)
    elif int in kinds:
        check_count(name, value, -sys.maxsize)
    elif str in kinds and not isinstance(value, str):
        raise TypeError(f"{name} must be a word such as {default!r}, got {value!r}")
    elif _takes_functions(kinds):
        raise TypeError(
            f"{name} must be a function such as {default.__name__}, or its name, got {value!r}"
        )
    return value


def _takes_functions(kinds: tuple[object, ...]) -> bool:
    return any(typing.get_origin(kind) is Callable for kind in kinds)


def _function_named(name: str, word: str, default: Callable[..., object]) -> Callable[..., object]:
    """The function of that name in the module of the default one, with the same arguments."""
    arguments = list(inspect.signature(default).parameters)
    beside = {
        other: function
        for other, function in vars(sys.modules[default.__module__]).items()
        if inspect.isfunction(function)
        and function.__module__ == default.__module__
        and list(inspect.signature(function).parameters) == arguments
        and not other.startswith("_")
    }
    if word not in beside:
        raise ValueError(
            f"{name} must be a function, or one of {', '.join(map(repr, beside))}, got {word!r}"
        )
    return beside[word]
