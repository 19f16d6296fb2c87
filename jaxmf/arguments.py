"""Checks of single values that users give: each names the argument and says what it must be.

`ChecksNames` is the base of what users construct, `checks_call` and `checks_methods` are for what
they call; `assign` sets what was checked in a frozen description.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

Kind = TypeVar("Kind")
Passed = ParamSpec("Passed")
Result = TypeVar("Result")

MOST_SLOTS = 2**20
"""Features or groups that one state can have slots for, at most."""


def check_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """A whole number between bounds, as an int.

    Raises TypeError: no whole number. ValueError: beyond a bound.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value}")
    return int(value)


def check_flag(name: str, value: object) -> bool:
    """True or False, and nothing that merely counts as one of them.

    Raises TypeError: anything else, such as the word "yes".
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_word(name: str, value: object, words: Iterable[str]) -> str:
    """One of a few words."""
    known = tuple(words)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def meant(name: object, known: Iterable[str], *, quoted: bool = False) -> str:
    """The name most like one that is not known, as a question; nothing where none is like it."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(str(name).lower(), lowered, n=1)
    if not near:
        return ""
    found = lowered[near[0]]
    return f" Is {found!r} meant?" if quoted else f" Is {found} meant?"


def shown(value: object) -> str:
    """A value as a message shows it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class ChecksNames:
    """A class whose constructor says what it takes, where a call has others or lacks some."""

    def __new__(cls, *values: object, **settings: object) -> Self:
        """An empty instance. Raises TypeError: arguments that `__init__` does not take or lacks."""
        make = super().__new__
        if make is not object.__new__:  # that of another base class
            return make(cls, *values, **settings)
        takes = _taken_by(cls.__init__)
        if takes is not None:
            takes.check(cls.__name__, values, settings)
        return make(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, None]]:
        """What a copy passes to `__new__`, which refuses to go without; fields are set later."""
        is_checked = super().__new__ is object.__new__
        takes = _taken_by(type(self).__init__) if is_checked else None
        return (), {} if takes is None else dict.fromkeys(takes.required)


def checks_call(verb: Callable[Passed, Result]) -> Callable[Passed, Result]:
    """A function that says what it takes, where a call lacks an argument or has too many."""
    return _checked(verb, verb.__name__, first=0)


def checks_methods(instance: str) -> Callable[[type[Kind]], type[Kind]]:
    """A class whose public methods do the same; messages call an object of it `instance`."""

    def with_checks(kind: type[Kind]) -> type[Kind]:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(kind, name, _checked(method, f"{instance}.{name}", first=1))
        return kind

    return with_checks


def _checked(
    function: Callable[Passed, Result], called: str, *, first: int
) -> Callable[Passed, Result]:
    """The function with a check of its arguments from `first` on, where they can be known."""
    takes = _taken_by(function, first)
    if takes is None:
        return function

    @functools.wraps(function)
    def checked(*values: Passed.args, **settings: Passed.kwargs) -> Result:
        try:  # a call that is right costs no check
            return function(*values, **settings)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from within the function
            refused = error
        takes.check(called, values[first:], settings)
        raise refused

    return checked


class _Taken(NamedTuple):
    """The arguments of a function: their names, which are required, and how many go by position."""

    names: tuple[str, ...]
    by_position: int
    required: tuple[str, ...]
    takes_others: bool

    def check(self, called: str, values: Sequence[object], settings: Mapping[str, object]) -> None:
        """Refuses what it does not take, and what is passed twice or not at all.

        Raises TypeError: says what it takes.
        """
        known, most = self.names, self.by_position
        if not known and (values or settings):
            raise TypeError(f"{called} takes no arguments")
        unknown = [name for name in settings if name not in known]
        if unknown and not self.takes_others:
            raise TypeError(
                f"{called} takes no {', '.join(map(repr, unknown))}; it takes "
                f"{', '.join(known)}.{meant(unknown[0], known)}"
            )
        if len(values) > most:
            at_most = f"at most {most}" if most else "no"
            first = f" ({', '.join(known[:most])})" if most else ""
            others = known[most:]
            raise TypeError(
                f"{called} takes {at_most} value{'' if most == 1 else 's'} by position{first}, got "
                f"{len(values)}" + (f"; pass by name: {', '.join(others)}" if others else "")
            )
        twice = [name for name in known[: len(values)] if name in settings]
        if twice:
            raise TypeError(
                f"{called}: {' and '.join(twice)} {'is' if len(twice) == 1 else 'are'} "
                "passed twice, by position and by name"
            )
        missing = [name for name in self.required if name not in (*known[: len(values)], *settings)]
        if missing:
            call = ", ".join(
                name if name in known[:most] else f"{name}=..." for name in self.required
            )
            raise TypeError(
                f"{called} needs {' and '.join(missing)}: {called}({call}). help({called}) says "
                f"what {'it is' if len(missing) == 1 else 'they are'}"
            )


def _taken_by(function: Callable[..., object], first: int = 1) -> _Taken | None:
    """What a function takes, from the argument `first` on: that of a constructor comes after self.

    None where it takes any by position, or a constructor any by name, or where it is no function of
    Python. They are those of the function as it is called: a signature would be that of what a
    decorator is around, and Python 3.14 evaluates annotations for it.
    """
    if function is object.__init__:
        return _Taken((), 0, (), takes_others=False)
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return None
    takes_others = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    if takes_others and first:
        return None
    count = code.co_argcount
    defaults = getattr(function, "__defaults__", None) or ()
    named = getattr(function, "__kwdefaults__", None) or {}
    by_position = code.co_varnames[first:count]
    by_name = code.co_varnames[count : count + code.co_kwonlyargcount]
    required = (
        *code.co_varnames[first : count - len(defaults)],
        *(name for name in by_name if name not in named),
    )
    return _Taken((*by_position, *by_name), len(by_position), required, takes_others)


def check_function(name: str, value: object) -> Callable[..., object] | None:
    """Something that can be called, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r}")
    return value


def check_object(
    name: str, value: object, kinds: type[Kind] | tuple[type[Kind], ...], example: str
) -> Kind:
    """An object of one of some classes.

    Raises TypeError: anything else, a class in place of an object too.
    """
    if not isinstance(value, kinds):
        what = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
        if "\n" in what:  # a table
            what = f"a {type(value).__name__}"
        raise TypeError(f"{name} must be an object such as {example}, got {what}")
    return value


def check_text(name: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {value!r}")
    return value


def check_path(name: str, value: object) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a text or a pathlib.Path, got {value!r}")
    return Path(value)


def check_seed(name: str, value: object) -> int:
    """A whole number from 0 on that a random key can be made of.

    Raises TypeError: no whole number. ValueError: negative, or beyond 63 bits.
    """
    return check_count(name, value, 0, 2**63 - 1)


def check_numbers(name: str, values: Any) -> np.ndarray:
    """Several real numbers, (N,) float.

    Raises TypeError: no sequence, or something in it that is no number. ValueError: not one axis,
    or no number at all.
    """
    is_array = hasattr(values, "dtype") and hasattr(values, "shape")
    if not is_array and not isinstance(values, list | tuple | range):
        raise TypeError(f"{name} must be several numbers, got {values!r}")
    try:
        array = np.asarray(values)
    except ValueError:  # numpy: inhomogeneous shape
        raise ValueError(f"{name} must be numbers on one axis, got {values!r}") from None
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"{name} must be one or more numbers on one axis, got shape {array.shape}: {values!r}"
        )
    for position, value in enumerate(() if array.dtype.kind in "iuf" else values):
        if isinstance(value, bool | np.bool_) or not _is_real(value):
            raise TypeError(f"{name} must be numbers, got {value!r} at position {position}")
    return array.astype(float)


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) or getattr(value, "dtype", np.dtype("O")).kind in "iuf"


def check_number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite real number between bounds, as a float.

    Args: above, below: bounds that are not.
    Raises TypeError: no real number. ValueError: not finite, or beyond a bound.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    converted = float(value)
    inside = least <= converted <= most and above < converted < below
    if not (math.isfinite(converted) and inside):
        bounds = (("at least", least), ("above", above), ("at most", most), ("below", below))
        limits = [f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound)]
        raise ValueError(
            f"{name} must be finite{''.join(', ' + bound for bound in limits)}, got {value}"
        )
    return converted


def check_file(path: str | Path) -> Path:
    """The path of a file that exists and is not empty.

    Raises FileNotFoundError: there is none; the message says in which folder it was looked for.
    ValueError: it is a folder, a pipe, or empty.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path}: is a folder, a file is needed. Put its files into one: of images an array "
            "with a row each, numpy.save('x.npy', images.reshape(len(images), -1))."
        )
    if path.is_fifo() or path.is_char_device() or str(path) == "-":
        raise ValueError(
            f"{path}: what comes through a pipe can be read only once; write it to a file first "
            "(program > data.csv), and give that."
        )
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: the file does not exist (looked in {path.absolute().parent})."
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty.")
    return path


def check_folder(path: Path) -> Path:
    """A folder that exists."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    return path


def assign(instance: object, **fields: object) -> None:
    """Set fields of a frozen dataclass, for its own constructor."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
