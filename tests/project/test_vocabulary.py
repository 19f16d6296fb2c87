"""The words of the field in names, comments, docstrings and messages.

A folder is listed once its words have been replaced; from then on this test holds it. The glossary:

- law: distribution, prior, likelihood or family, whichever it is;
- place: index or position;
- number, as a count: num_* or count; numbers of a model: hyperparameters;
- own, mine, of_x, wanted: what the thing is;
- given, told: fixed, passed; working: cache; dish, seat: group, counts, assign;
- reach, pull, apart: the symbol of the formula, right-hand side, residual or deviation;
- goes on: continues; gives back: returns; so many: this many, or the argument;
- no such thing, in words: the message itself.
"""

import functools
import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "jaxmf/samplers": (),
    "jaxmf/likelihoods": (),
    "jaxmf/priors": (),
    "jaxmf/variational_bayes": (),
    "jaxmf/datasets": (),
    "jaxmf/blocks": (),
    "jaxmf/plot": (),
    "jaxmf/posterior": (),
    "jaxmf/results": (),
    "jaxmf/data": (),
    "jaxmf/settings": (),
    "jaxmf/registry": (),
    "jaxmf/cli": (),
    "jaxmf/testing": (),
    "jaxmf/engine": (),
    "jaxmf/api.py": (),
    "jaxmf/model.py": (),
    "jaxmf/sklearn": (),
    "jaxmf/preparation.py": (),
    "jaxmf/pure_functions.py": (),
    "jaxmf/arguments.py": (),
    "jaxmf/readable.py": (),
    "jaxmf/_kernels/compensated.py": (),
    "jaxmf/devices.py": (),
    "jaxmf/_kernels/fusion.py": (),
    "jaxmf/_kernels/fusion_probe.py": (),
    "jaxmf/_kernels/fusion_trial.py": (),
    "jaxmf/_kernels/linalg.py": (),
    "jaxmf/programs.py": (),
    "jaxmf/slots.py": (),
    "jaxmf/_kernels/special.py": (),
    "jaxmf/_kernels/tables.py": (),
    "jaxmf/types.py": (),
    "jaxmf/row_shards.py": (),
    "jaxmf/models/binary_mf": (),
    "jaxmf/models/bpmf": (),
    "jaxmf/models/feature_model": (),
    "jaxmf/models/linear_gaussian": (),
    "jaxmf/models/mixtures": (),
    "jaxmf/models/noisy_or": (),
    "jaxmf/models/multiway": (),
    "jaxmf/models/ratings": (),
    "jaxmf/models/sparse_binary_mf": (),
    "jaxmf/models/sparse_binary_series": (),
    "jaxmf/models/topics": (),
    "jaxmf/diagnostics.py": (),
    "jaxmf/report": (),
}
"""Folder or file -> folders and files in it that still have old words."""

WORDS = re.compile(
    r"laws?|places?|numbers?|own|mine|given|working|dish|dishes|eats?|eaten|seats?|seated|seating"
    r"|apart|pulls?|told|wanted|reach|settled|ahead"
)
PROSE = re.compile(
    r"\blaws?\b|(?<!\bin )\bplaces?\b(?! of\b)|\b(?:go|goes|went|gone) on\b|\bin words\b"
    r"|\bno such\b|\bsuch thing\b|\btold\b|\bworking\b|\bdish(?:es)?\b"
    r"|\bso many\b(?! that)|\bg(?:ive|ives|ave|iven) back\b",
    re.IGNORECASE,
)
ALLOWED = {
    # a check that an argument is a number, and the types of the standard library and of numpy
    "jaxmf": {"check_number", "check_numbers"},
    "jaxmf/priors/hyper.py": {"number", "numbers"},
    "jaxmf/arguments.py": {"numbers"},
    "jaxmf/models/binary_mf/binary_mf_checks.py": {"numbers"},
    "jaxmf/models/feature_model/feature_model_checks.py": {"number"},
    "jaxmf/models/feature_model/likelihood_checks.py": {"number"},
    # lines of files have numbers, cells of files are numbers or texts
    "jaxmf/data/": {"line_number", "line_numbers", "as_number"},
    "jaxmf/data/checks.py": {"number"},
    "jaxmf/data/encoding.py": {"number"},
    # the form of numbers that are not finite in files
    "jaxmf/settings": {"number"},
    # what cells are given a draw
    "jaxmf/model.py": {"cells_given_draw"},
    "jaxmf/models": {"cells_given_draw"},
    "jaxmf/posterior/answerable.py": {"cells_given_draw"},
    "jaxmf/posterior/leave_one_out.py": {"cells_given_draw"},
    "jaxmf/posterior/particle_paths.py": {"cells_given_draw"},
    "jaxmf/posterior/pointwise.py": {"cells_given_draw"},
    "jaxmf/variational_bayes/fit_checks.py": {"numbers"},
    # fields of statistics: draws in saved runs are named by them
    "jaxmf/likelihoods/families": {"number"},
    "jaxmf/samplers/factors/moments.py": {"number"},
    # tables and dishes of the Chinese restaurant franchise
    "jaxmf/blocks/franchise.py": {"eaten", "dishes", "dish"},
    "jaxmf/blocks/sets.py": {"eaten", "dishes", "dish"},
    "jaxmf/blocks/unobserved.py": {"dishes", "dish"},
    "jaxmf/blocks/whole_sets.py": {"dishes", "dish"},
}
"""Folder or file -> names and words that stay, and why."""


def files(folder: str) -> list[Path]:
    """The Python files of a folder, or one file, without what still has old words."""
    skipped = FOLDERS[folder]
    if (ROOT / folder).is_file():
        return [ROOT / folder]
    return [
        path
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not set(path.relative_to(ROOT / folder).parts) & set(skipped)
    ]


@functools.cache
def words_of(name: str) -> tuple[str, ...]:
    """The words of an identifier: `_MoreRows` and `more_rows` have "more" and "rows"."""
    return tuple(part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))


@functools.cache
def is_old_name(name: str) -> bool:
    """Whether a name has an old word."""
    return re.match(r"_*of_", name) is not None or any(map(WORDS.fullmatch, words_of(name)))


@functools.cache
def tokens(source: str) -> list[tokenize.TokenInfo]:
    """The names, comments and texts of a module."""
    every = tokenize.generate_tokens(io.StringIO(source).readline)
    kinds = {tokenize.NAME, tokenize.COMMENT}
    return [
        token for token in every if token.type in kinds or "STRING" in tokenize.tok_name[token.type]
    ]


def old_words(source: str) -> Iterator[tuple[int, str]]:
    """(line, word) of every old word in a module."""
    yield from ((line, name) for line, name in names(source) if is_old_name(name))
    for token in tokens(source):
        if token.type == tokenize.COMMENT or "STRING" in tokenize.tok_name[token.type]:
            for match in PROSE.finditer(token.string):
                line = token.start[0] + token.string[: match.start()].count("\n")
                yield line, match.group()


def names(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every name in a module."""
    for token in tokens(source):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def allowed(path: str) -> set[str]:
    """Old names that stay in a file."""
    return set().union(*(names for start, names in ALLOWED.items() if path.startswith(start)))


def is_allowed(word: str, names: set[str]) -> bool:
    """Whether a word stays: it does if each of its old parts does, such as that of `dish_cache`."""
    old = [part for part in words_of(word) if WORDS.fullmatch(part)]
    return word in names or (bool(old) and {*old} <= names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_old_words_are_gone(folder):
    found = [
        f"{name}:{line}: {word}"
        for name, path in ((path.relative_to(ROOT).as_posix(), path) for path in files(folder))
        for line, word in old_words(path.read_text(encoding="utf-8"))
        if not is_allowed(word, allowed(name))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_and_exception_exists(folder):
    assert files(folder)
    for name in FOLDERS[folder]:
        assert list((ROOT / folder).rglob(name)), f"{folder}: {name} is gone, take it off the list"


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_a_distribution_is_called_one_in_tests(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in names(path.read_text(encoding="utf-8"))
        if {"law", "laws"} & {*words_of(name)}
    ]
    assert not found, "\n".join(found)


IN_TESTS = {"number", "numbers", "place", "places", "own", "mine", "wanted"}
ALLOWED_IN_TESTS = {
    "tests/blocks/test_families.py": "field of statistics",
    "tests/extension/families.py": "field of statistics",
    "tests/test_fuzz.py": "which problem, an argument of the benchmark",
}
"""File -> what has the name `number` there."""


def is_old_in_tests(path: str, name: str) -> bool:
    """Whether a name in a file of tests has an old word; sentences, as names of tests are, may."""
    if name.startswith("test_") or name in {"check_number", "signal_number"}:
        return False
    return bool(IN_TESTS & {*words_of(name)}) and not (
        name == "number" and path in ALLOWED_IN_TESTS
    )


def test_old_words_are_gone_from_tests():
    found = [
        f"{name}:{line}: {word}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in [path.relative_to(ROOT).as_posix()]
        for line, word in names(path.read_text(encoding="utf-8"))
        if is_old_in_tests(name, word)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["number", "own_key", "PLACES", "class_numbers", "wanted"])
def test_an_old_word_of_tests_is_found(name):
    assert is_old_in_tests("tests/test_api.py", name)
    assert not is_old_in_tests("tests/test_api.py", f"test_{name}_is_refused")


@pytest.mark.parametrize(
    "source",
    [
        "law = 1",
        "def of_row(): pass",
        "class _Working: pass",
        "x = y.number",
        "# the law of x",
        "# of so many rows",
        '"""What a run gives back."""',
        '"""It goes on."""',
        'raise ValueError("no such thing")',
        'x = f"at place {i}"',
    ],
)
def test_an_old_word_is_found(source):
    assert list(old_words(source + "\n"))


@pytest.mark.parametrize(
    "source",
    [
        "flaw, replaces, row_index = 1, 2, 3",
        "# the distribution of z given x, in place of the sum",
        "num_rows = count_rows(x)",
    ],
)
def test_the_words_of_the_field_pass(source):
    assert not list(old_words(source + "\n"))


def test_no_class_of_the_library_has_the_name_of_another():
    files_of: dict[str, list[str]] = {}
    for path in sorted((ROOT / "jaxmf").rglob("*.py")):
        for (_, before), (_, name) in itertools.pairwise(names(path.read_text(encoding="utf-8"))):
            if before == "class":
                files_of.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    repeated = {name: paths for name, paths in files_of.items() if len(paths) > 1}
    assert len(files_of) > 400
    assert not repeated, repeated


def test_files_of_models_and_of_their_checks_say_which_ones():
    paths = [path.relative_to(ROOT).as_posix() for path in (ROOT / "jaxmf").rglob("*.py")]
    found = sorted(path for path in paths if path.endswith(("/model.py", "/checks.py")))
    assert found == ["jaxmf/data/checks.py", "jaxmf/model.py"]
