"""Models, families, priors and functions of other packages.

A saved run names what is registered by its name alone. The module that registers it stands beside
the name, so that whoever loads the run without it learns what to import; it is never imported from
a file.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import traceback
from collections.abc import Callable
from typing import TypeVar

import jax

from jaxmf import data as containers
from jaxmf.arguments import check_text, checks_call
from jaxmf.engine import Algorithm
from jaxmf.model import Anneals, HasAscent, HasParticles, Model, hooks_of
from jaxmf.registry.entries import ENTRIES, REGISTERED, entry_of
from jaxmf.registry.entry import Entry
from jaxmf.settings import names

Registered = TypeVar("Registered", bound=Callable[..., object])
_CONTAINERS = ("Dense", "Entries", "SparseBinary", "SparseSeries", "Tokens")
_NEEDS: dict[str, tuple[type, ...]] = {
    "sample": (),
    "particle_filter": (HasParticles,),
    "variational": (HasAscent,),
}


@dataclasses.dataclass(frozen=True)
class RegisteredEntry(Entry):
    """A model of another package."""

    registered: type[Model] = Model  # its class

    @property
    def model(self) -> type:
        return self.registered

    @property
    def container(self) -> type:
        assert self.registered.data_type is not None
        return self.registered.data_type

    @property
    def module(self) -> str:
        """Where the class was defined."""
        return self.registered.__module__

    def example(self) -> tuple[Model, object]:
        """A tiny model and tiny data, if the class has them.

        Raises ValueError: the class has no `example`.
        """
        example = getattr(self.registered, "example", None)
        if example is None:
            raise ValueError(
                f"{self.class_name}.example is not defined; define a static method that returns a "
                "model and data"
            )
        return example()


@checks_call
def register(thing: Registered, *, name: str | None = None) -> Registered:
    """Make a class or a function of another package known to jaxmf.

    A model then works in every verb and in the command line; a family, a prior of partitions or of
    features, or a function that a model is made of can be a setting of a saved run. Call it, or
    write it above a class: ``@mf.register``. A class that is defined anew, as in a notebook, takes
    the place of the one before.

    Args:
        thing: a frozen dataclass that subclasses `Model`; another frozen dataclass, such as a
            family or a prior; or a function.
        name: what saved runs, and of a model the command line, call it. By default the name of the
            class, of a model in small letters joined by dashes; of a function its name.
    Returns:
        The thing itself.
    Raises:
        TypeError: it is none of these, no frozen dataclass, or JAX does not know the class.
        ValueError: the name is taken, or a method or field that the class needs is missing; the
            message names it.

    Example::

        @mf.register
        @jax.tree_util.register_dataclass
        @dataclass(frozen=True)
        class Geometric(mf.AdditiveFamily):
            ...
    """
    if name is not None:
        check_text("name", name)
    if isinstance(thing, type):
        _check_dataclass(thing)
        if issubclass(thing, Model):
            _register_model(thing, name)
            return thing
    elif not inspect.isfunction(thing):
        raise TypeError(
            f"register: {thing!r} is neither a class nor a function; register the class, and "
            "register functions before settings are bound to them"
        )
    called = thing.__name__ if name is None else name
    is_distribution = called in names.DISTRIBUTIONS or called in names.MAKERS
    if called in {**names.PRIORS, **names.FUNCTIONS} or is_distribution:
        owner = "a distribution of numpyro" if is_distribution else "a part of jaxmf"
        raise ValueError(
            f"register: {called!r} is what saved runs and the command line call {owner}; give "
            f"another name, for instance name={'My' + called!r}"
        )
    if isinstance(thing, type):
        _check_part(thing)
    _check_free(thing, called, names.REGISTERED.get(called))
    for old in [key for key, value in names.REGISTERED.items() if _is_same(value, thing)]:
        del names.REGISTERED[old]
    names.REGISTERED[called] = thing
    return thing


def check_draws(model: Model, algorithm: Algorithm, data: object) -> None:
    """Refuse a sampler of another package whose draws lack what the posterior needs of all.

    Raises TypeError: its draws have no `log_joint`.
    """
    if type(model) not in {entry.model for entry in REGISTERED.values()}:
        return
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key, data)
    draw = jax.eval_shape(algorithm.record, key, state, data)
    if "log_joint" not in draw or draw["log_joint"].shape != ():
        builder = entry_of(model).methods["sample"]
        raise TypeError(
            f"the draws of {type(model).__name__}.{builder} must have log_joint, the () log "
            "density of state and data, by which the reference draw is chosen; there "
            f"are {', '.join(draw)}"
        )


def _register_model(model: type[Model], name: str | None) -> None:
    label = model.__name__
    called = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", label).lower() if name is None else name
    for entry in ENTRIES:
        if called in (entry.name, entry.class_name) or label == entry.class_name:
            raise ValueError(
                f"register: {called!r} is a model of jaxmf; give the class another name, and "
                "another one by name="
            )
    known = REGISTERED.get(called)
    _check_free(model, called, known.model if known is not None else None)
    _check_methods(model)
    entry = RegisteredEntry(
        name=called,
        model_path=f"{model.__module__}:{label}",
        container_name=model.data_type.__name__ if model.data_type is not None else "",
        one_line=(inspect.getdoc(model) or label).partition("\n")[0],
        methods=dict(model.methods),
        default=model.default_method,
        anneals=issubclass(model, Anneals),
        registered=model,
    )
    for old in [key for key, value in REGISTERED.items() if _is_same(value.model, model)]:
        del REGISTERED[old]
    REGISTERED[called] = entry


def _check_methods(model: type[Model]) -> None:
    label = model.__name__
    known = {name: getattr(containers, name) for name in _CONTAINERS}
    if model.data_type not in known.values():
        raise ValueError(
            f"{label}.data_type must be a container of jaxmf.data, one of {', '.join(known)}, got "
            f"{model.data_type!r}"
        )
    for verb, builder in model.methods.items():
        if verb not in _NEEDS:
            raise ValueError(
                f"{label}.methods: {verb!r} is no verb; there are {', '.join(map(repr, _NEEDS))}"
            )
        hooks = [builder, *(hook for need in _NEEDS[verb] for hook in hooks_of(need))]
        missing = [hook for hook in hooks if not callable(getattr(model, hook, None))]
        if missing:
            raise ValueError(f"{label}.{missing[0]} is not defined, and jaxmf.{verb} needs it")
    if model.default_method not in model.methods:
        raise ValueError(
            f"{label}.default_method is {model.default_method!r}, which {label}.methods lacks"
        )


def _check_dataclass(thing: type) -> None:
    if not dataclasses.is_dataclass(thing) or not thing.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(
            f"register: {thing.__name__} must be a frozen dataclass, so that its settings can be "
            "read and saved: put @dataclass(frozen=True) above the class"
        )
    if thing.__module__.partition(".")[0] == "jaxmf":
        raise ValueError(f"register: {thing.__name__} is of jaxmf, and known")


def _check_part(part: type) -> None:
    """Refuses a family, prior or likelihood that lacks something or that JAX does not know."""
    label = part.__name__
    if inspect.isabstract(part):
        missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
        base = next(each.__name__ for each in part.__mro__[1:] if inspect.isabstract(each))
        raise ValueError(f"register: {label} lacks {missing}, which a {base} needs; define it")
    if jax.tree_util.all_leaves([object.__new__(part)]):
        raise TypeError(
            f"register: JAX does not know {label}: put @jax.tree_util.register_dataclass between "
            "@jaxmf.register and @dataclass(frozen=True)"
        )
    listed = getattr(part, "hyperparameters", ())
    known = [field.name for field in dataclasses.fields(part)]
    for name in listed if isinstance(listed, tuple) else ():
        if name not in known:
            raise ValueError(
                f"register: hyperparameters of {label} names {name!r}, which is no field of it; "
                f"its fields are {', '.join(known)}"
            )


def _check_free(
    thing: Callable[..., object], name: str, known: Callable[..., object] | None
) -> None:
    if known is not None and not _is_same(known, thing):
        raise ValueError(
            f"register: the name {name!r} is taken by {known.__module__}.{known.__qualname__}; "
            "give another one by name="
        )


def _is_same(first: Callable[..., object], second: Callable[..., object]) -> bool:
    """Whether two classes or functions are the same definition, perhaps made anew."""
    return (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)


def module_that_failed(error: BaseException | None) -> str | None:
    """The module of another package in whose code, or in what it called, an error arose, if any."""
    things = [*names.REGISTERED.values(), *(entry.model for entry in REGISTERED.values())]
    modules = {thing.__module__ for thing in things}
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if (name := frame.f_globals.get("__name__")) in modules:
                return name
        error = error.__cause__
    return None
