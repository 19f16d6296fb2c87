"""Checks of single numbers, and of the names that constructors take."""

import copy
import dataclasses
import functools
import inspect
import pickle
import re

import jax
import numpy as np
import pytest

import jaxmf as mf
import jaxmf.data
from jaxmf.arguments import ChecksNames, check_count, check_number, checks_call
from jaxmf.posterior import cell_answers


def test_numbers_that_are_right_come_back_as_python_numbers():
    assert type(check_count("n", np.int64(3))) is int
    assert check_count("n", 0, least=0) == 0
    assert type(check_number("x", np.float32(0.5), least=0, most=1)) is float
    assert check_number("x", 0, least=0, most=1) == 0.0


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0, ValueError, "n must be at least 1, got 0"),
        (2.0, TypeError, "n must be a whole number, got 2.0"),
        (True, TypeError, "n must be a whole number, got True"),
        (np.True_, TypeError, "n must be a whole number"),
        ("3", TypeError, "n must be a whole number, got '3'"),
    ],
)
def test_counts_that_are_none(value, error, words):
    with pytest.raises(error, match=words):
        check_count("n", value)


@pytest.mark.parametrize(
    ("value", "bounds", "error", "words"),
    [
        (1.0, {"least": 0, "below": 1}, ValueError, "x must be finite, at least 0, below 1, got 1"),
        (0.0, {"above": 0}, ValueError, "x must be finite, above 0, got 0"),
        (float("nan"), {}, ValueError, "x must be finite, got nan"),
        (float("inf"), {"least": 0}, ValueError, "x must be finite, at least 0, got inf"),
        (2, {"most": 1}, ValueError, "at most 1, got 2"),
        (False, {}, TypeError, "x must be a number, got False"),
        ("1", {}, TypeError, "x must be a number, got '1'"),
    ],
)
def test_numbers_beyond_their_bounds(value, bounds, error, words):
    with pytest.raises(error, match=words):
        check_number("x", value, **bounds)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mf.BPMF(factors=3), r"^BPMF takes no 'factors'.* Is num_factors meant\?$"),
        (lambda: mf.Gaussian(sigma=1.0), r"^Gaussian takes no 'sigma'; it takes noise_scale\.$"),
        (lambda: mf.IndianBuffet(alhpa=1.0), r"Is alpha meant\?$"),
        (lambda: mf.Dense([[1.0]], names=["a"]), r"^Dense takes no 'names'.* Is row_names meant\?"),
        (lambda: mf.Tokens(columns={}, size={}), r"Is sizes meant\?$"),
        (lambda: mf.Features(matrx=[[1.0]]), r"^Features takes no 'matrx'.* Is matrix meant\?$"),
        (lambda: mf.CellFeatures(rowz=[0]), r"^CellFeatures takes no 'rowz'.* Is rows meant\?$"),
        (lambda: dataclasses.replace(mf.LDA(3), topics=4), r"Is num_topics meant\?$"),
        (lambda: mf.Likelihood(3), "^Likelihood takes no arguments$"),
        (lambda: mf.Probit(x=1), "^Probit takes no arguments$"),
        (lambda: mf.Gaussian(1.0, 2.0), r"^Gaussian takes at most 1 .*\(noise_scale\), got 2$"),
        (lambda: mf.BinaryMF(2, 2), r"^BinaryMF takes no .*, got 2; pass by name: row_prior"),
        (lambda: mf.LDA(3, num_topics=4), "^LDA: num_topics is passed twice"),
        (
            lambda: mf.LDA(),
            r"^LDA needs num_topics: LDA\(num_topics\)\. help\(LDA\) says what it is$",
        ),
        (lambda: mf.BiLDA(num_user_groups=2), r"^BiLDA needs num_item_groups: BiLDA\("),
        (lambda: mf.Entries([0]), r"^Entries needs columns and values and shape: Entries\(rows, "),
        (lambda: mf.sample(mf.BPMF(2)), r"^sample needs data: sample\(model, data\)\. help"),
        (
            lambda: mf.variational(data=[[1.0]]),
            r"^variational needs model: variational\(model, data",
        ),
        (lambda: mf.fit(), r"^fit needs model and data: fit\(model, data\)"),
        (lambda: mf.sample(mf.BPMF(2), [[1.0]], 500), r"^sample takes at most 2 .*num_warmup, "),
        (lambda: mf.load(), r"^load needs folder: load\(folder\)"),
    ],
)
def test_what_a_call_does_not_take_or_lacks_is_answered_in_words(make, words):
    with pytest.raises(TypeError, match=words):
        make()


def _required(function, first):
    parameters = list(inspect.signature(function).parameters.values())[first:]
    others = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in others]


# The names of jaxmf are imported where they are asked for, those of these two when they are.
PUBLIC = {name: getattr(mf, name) for name in mf.__all__} | vars(mf.testing) | vars(jaxmf.data)
CALLED = [
    (name, value, 0)
    for name, value in PUBLIC.items()
    if inspect.isfunction(value) and name[0] != "_" and name != "as_container"  # not for users
]
CALLED += [
    (f"post.{name}", value, 1)
    for name, value in inspect.getmembers(mf.Posterior, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize(
    ("called", "function", "first"),
    [pytest.param(*each, id=each[0]) for each in CALLED if _required(*each[1:])],
)
def test_functions_and_methods_say_what_a_call_lacks(called, function, first):
    required = _required(function, first)
    needs = f"{called} needs {' and '.join(required)}: {called}("
    with pytest.raises(TypeError, match=re.escape(needs)):
        function(*[None] * first)


def test_methods_say_what_is_meant_and_keep_their_signatures():
    with pytest.raises(TypeError, match=r"^post.predict takes no 'new_row'; .* Is new_rows meant"):
        mf.Posterior.predict(None, new_row=[[1.0]])
    with pytest.raises(TypeError, match=r"^post.save takes at most 1 .*folder.*pass by name: data"):
        mf.Posterior.save(None, "run", False)
    assert inspect.signature(mf.Posterior.predict) == inspect.signature(cell_answers.predict)
    assert mf.Posterior.predict.__doc__ == cell_answers.predict.__doc__
    assert str(inspect.signature(mf.register)).startswith("(thing: 'Registered'")


def test_errors_from_within_a_function_stay_as_they_are():
    @checks_call
    def add(first, *, second=1):
        return first + second

    assert add(1) == 2
    with pytest.raises(TypeError, match="unsupported operand"):
        add(None)
    with pytest.raises(TypeError, match=r"^add needs first: ") as raised:
        add()
    assert raised.value.__context__ is None


def test_constructors_of_users_take_what_they_took():
    def with_old_names(constructor):
        @functools.wraps(constructor)
        def renamed(self, **settings):
            constructor(self, **{"scale" if k == "old" else k: v for k, v in settings.items()})

        return renamed

    class Renamed(ChecksNames):
        @with_old_names
        def __init__(self, scale):
            self.scale = scale

    class Remembers:
        def __new__(cls, *values, **settings):
            made = super().__new__(cls)
            made.seen = values, settings
            return made

    class Mixed(ChecksNames, Remembers):
        def __init__(self, scale, *, shift=0.0):
            self.scale = scale, shift

    assert Renamed(old=2.0).scale == 2.0
    assert Mixed(1.0, shift=3.0).seen == ((1.0,), {"shift": 3.0})

    class Strict(ChecksNames):
        def __init__(self, scale: "UnknownName", *, shift=0.0):  # noqa: F821
            self.scale = scale, shift

    assert Strict(1.0, shift=2.0).scale == (1.0, 2.0)
    with pytest.raises(TypeError, match="Is shift meant"):
        Strict(1.0, shif=2.0)


def test_classes_that_check_names_are_copied_and_shown_as_others():
    model = mf.BPMF(3, offset=2.0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), jax.tree.map(id, model)):  # noqa: S301
        assert other.num_factors == 3
    topics = mf.LDA(3)  # whose constructor needs an argument
    for other in (copy.copy(topics), pickle.loads(pickle.dumps(topics)), jax.tree.map(id, topics)):  # noqa: S301
        assert other.num_topics == 3
    assert list(inspect.signature(mf.BPMF).parameters)[:2] == ["num_factors", "row_features"]
    assert next(iter(inspect.signature(mf.Dense).parameters)) == "values"
