"""Cells of new rows far outside of those that a model was fitted to."""

import warnings

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data.far_cells import cell_ranges, warn_of_far_cells

KNOWN = np.random.default_rng(0).normal([140, 4, 0], [3, 0.4, 0], (40, 3))
CONTAINERS = (mf.Dense.from_array, mf.Entries.from_array)


def heard(new, known):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_far_cells(new, cell_ranges(known), argument="new_rows")
    return [str(each.message) for each in found]


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_value_in_another_unit_is_named(container):
    names = {"row_names": ["ann", "bo"], "column_names": ["Na", "K", "none"]}
    new = container(np.array([[139, 4.1, 0], [138_000, 4, 0]]), **names)
    (says,) = heard(new, container(KNOWN))
    assert "the cell of row 'bo' and column 'Na' is 138000" in says


@pytest.mark.parametrize("container", CONTAINERS)
def test_values_a_little_outside_and_gaps_are_not(container):
    new = container(np.array([[100, 2.0, 5.0], [np.nan, 6.5, -5.0]]))
    assert heard(new, container(KNOWN)) == []


def test_ratings_of_a_film_with_few_of_them_are_beside_all_others():
    random = np.random.default_rng(1)
    rows, columns = np.divmod(np.arange(100), 10)
    stars = random.integers(1, 6, 100).astype(float)
    few = (columns != 3) | (rows < 2)
    stars[columns == 3] = 3  # of two ratings, both the same
    known = mf.Entries(rows[few], columns[few], stars[few], (10, 10))
    assert heard(mf.Entries([0, 0], [3, 4], [5.0, 1.0], (1, 10)), known) == []
    assert len(heard(mf.Entries([0], [3], [45.0], (1, 10)), known)) == 1


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("step", [1.0, 0.5])
def test_a_rating_outside_of_a_scale_is_named_however_near(container, step):
    stars = step * np.random.default_rng(2).integers(1, 6, (30, 4))
    assert len(heard(container(np.array([[6 * step, step, step, step]])), container(stars))) == 1
    assert len(heard(container(np.array([[0.0, step, step, step]])), container(stars))) == 1
    assert heard(container(np.array([[5 * step, step, step, 1.5 * step]])), container(stars)) == []


@pytest.mark.parametrize("mean", [0.3, 1.0, 2.0, 3.0])
def test_a_count_beyond_the_others_is_no_slip(mean):
    counts = np.random.default_rng(3).poisson(mean, (60, 5)).astype(float)
    beyond = np.full((1, 5), counts.max() + 1)
    assert heard(mf.Dense.from_array(beyond), mf.Dense.from_array(counts)) == []
