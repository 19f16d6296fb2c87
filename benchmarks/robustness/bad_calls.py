"""Bad calls over the whole public API: does each error name the user's argument?

The calls are made from the signatures of the verbs, models, containers, options and questions: for
every parameter a set of wrong values of its kind, all others as they should be. A refusal is clear
where the error is one of `CLEAR`, is raised by a line of jaxmf itself, and names the argument.
Whatever is accepted, or ends in the error of another library, is not.

Sizes are tiny, posteriors are made without a run, and a call that is accepted ends where it would
compile something. `public_api` has the functions, `wrong_values` the values.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jaxmf
from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.wrong_values import KINDS, WRONG

CLEAR = (TypeError, ValueError, KeyError, FileNotFoundError)
BEFORE = {"accepted": 401, "foreign kind": 34, "foreign origin": 448, "names no argument": 404}
"""How the same calls ended at a96d6f3, for what there was then."""
NUM_BEFORE = 3_830
_PACKAGE = str(Path(jaxmf.__file__).parent)


class Target(NamedTuple):
    """A function of the public API, how it is called well, and what kind its parameters are.

    Args:
        name: for the table.
        function: called with keywords alone.
        good: argument -> () -> a right value, for those without default.
        kinds: parameter -> key of `WRONG`, where `KINDS` does not say it; None for what takes
            anything, or is for another library to judge.
        aliases: parameter -> other names by which the message may call it.
        also: further parameters that the signature hides behind ``**options``; an unknown one is
            tried as well, unless `kinds` has "loudly".
    """

    name: str
    function: Callable[..., Any]
    good: Mapping[str, Callable[[], Any]] = {}
    kinds: Mapping[str, str | None] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}
    also: tuple[str, ...] = ()


class Case(NamedTuple):
    """One bad call."""

    target: Target
    argument: str
    label: str
    value: Callable[[], Any]

    @property
    def name(self) -> str:
        """``Dense(column_names='abcd')``."""
        return f"{self.target.name}({self.argument}={self.label})"


class Reached(Exception):
    """A call came as far as what it would have to run: it was accepted."""


class Outcome(NamedTuple):
    """What came of a bad call: "clear", or why it is not."""

    verdict: str
    words: str


def parameters(target: Target) -> tuple[str, ...]:
    """The names of a target's parameters."""
    found = inspect.signature(target.function).parameters.values()
    hidden = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return (*(p.name for p in found if p.kind not in hidden), *target.also)


def cases_of(target: Target) -> Iterator[Case]:
    """The bad calls of a target.

    Raises:
        LookupError: a parameter whose kind nobody has said.
    """
    for name in parameters(target):
        if name not in target.kinds and name not in KINDS:
            raise LookupError(
                f"{target.name}: say in wrong_values.KINDS what kind of argument {name!r} is, or "
                "in the target, None for what is not to be tried"
            )
        kind = target.kinds[name] if name in target.kinds else KINDS[name]
        if kind is not None:
            for label, value in WRONG[kind].items():
                yield Case(target, name, label, value)
    if target.also and "loudly" not in target.kinds:
        yield Case(target, "loudly", "unknown", lambda: True)


def judge(case: Case) -> Outcome:
    """Make a bad call, and say what came of it."""
    good = {name: make() for name, make in case.target.good.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with nothing_runs():
                case.target.function(**good | {case.argument: case.value()})
        except Reached:
            pass
        except Exception as error:
            return _judged(case, error)
    return Outcome("accepted", "")


def _reached(*_: Any, **__: Any) -> None:
    raise Reached


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Runs and predictions end where they would be compiled: so far a call was not refused."""
    names = ("engine.bound.BoundAlgorithm.chunk_program", "posterior.draw_blocks.over_draws")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(f"jaxmf.{name}", _reached))
        yield


def _judged(case: Case, error: Exception) -> Outcome:
    return judge_error(error, (case.argument, *case.target.aliases.get(case.argument, ())))


def judge_error(error: Exception, names: Iterable[str]) -> Outcome:
    """Whether an error is clear: its kind, where it was raised, that it has one of the names."""
    words = f"{type(error).__name__}: {error}"
    if not isinstance(error, CLEAR):
        return Outcome("foreign kind", words)
    if not is_raised_by_jaxmf(error):
        return Outcome("foreign origin", words)
    if not any(re.search(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])", str(error)) for name in names):
        return Outcome("names no argument", words)
    return Outcome("clear", words)


def is_raised_by_jaxmf(error: Exception) -> bool:
    """Whether a line of jaxmf raised an error: one that it ran into is Python's."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return frame.filename.startswith(_PACKAGE) and (frame.line or "").startswith("raise")


def outcomes(
    groups: Iterable[str] | None = None, *, share: int = 1
) -> Iterator[tuple[Case, Outcome]]:
    """What came of every bad call of some groups of `public_api`; of every `share`-th alone."""
    from benchmarks.robustness import public_api

    number = 0
    for group in public_api.GROUPS if groups is None else groups:
        for target in public_api.GROUPS[group]():
            for case in cases_of(target):
                number += 1
                if number % share == 0:
                    yield case, judge(case)


def measure(quick: bool) -> list[Row]:
    """Bad calls that are not clear, by what became of them."""
    total: Counter[str] = Counter()
    for case, outcome in outcomes(share=8 if quick else 1):
        total[outcome.verdict] += 1
        if outcome.verdict != "clear":
            print(f"{case.name}: {outcome.verdict}: {outcome.words[:200]}", file=sys.stderr)
    return rows_of("bad_calls", total, BEFORE, NUM_BEFORE)


def rows_of(part: str, total: Counter[str], before: dict[str, int], num_before: int) -> list[Row]:
    """A row of each verdict that is not "clear"."""
    number = total.total()
    clear = num_before - sum(before.values())
    note = (
        f"{total['clear']:,} of {number:,} clear; at a96d6f3 {clear:,} of the {num_before:,} that "
        "there were; no random choices"
    )
    return [
        fault_row(
            f"{part}/{verdict.replace(' ', '-')}",
            total[verdict],
            number,
            before=before[verdict],
            note=note,
        )
        for verdict in before
    ]
