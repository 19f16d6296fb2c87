"""Warnings point at the program that called the package."""

import numpy as np
import pytest

import jaxmf as mf


def test_a_warning_from_deep_inside_names_the_line_that_called():
    x = np.full((3, 2), np.nan)
    x[:, 0] = [1, 2, 3]
    with pytest.warns(UserWarning, match="no observed cell") as heard:
        mf.Dense.from_array(x)
    assert heard[0].filename == __file__
