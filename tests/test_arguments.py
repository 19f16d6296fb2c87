"""Checks of single numbers."""

import numpy as np
import pytest

from jaxmf.arguments import check_count, check_number


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
