"""Single cells that cannot be values of their column, in the data of a model themselves."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data.stray_cells import stray_cells

CONTAINERS = (mf.Dense.from_array, mf.Entries.from_array)


def laboratory(seed, num_rows=60):
    """Columns of the kinds that tables have, none with a slip: (N, 8)."""
    random = np.random.default_rng(seed)
    size = (num_rows,)
    spikes = np.where(random.random(size) < 0.1, random.lognormal(2, 1, size), 0)
    columns = [
        random.normal(140, 3, size),
        random.standard_t(5, size),
        100 + 3 * random.standard_t(5, size),
        random.lognormal(3, 1, size),
        random.poisson(3, size),
        random.negative_binomial(0.5, 0.05, size),
        spikes,
        np.round(random.normal(36.6, 0.4, size), 1),
    ]
    table = np.stack(columns, axis=1).astype(float)
    table[random.random(table.shape) < 0.05] = np.nan
    return table


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("column", "value"),
    [(0, 0.0), (0, 140_000.0), (3, 3e5), (7, 0.0), (7, 3660.0), (2, -900.0), (1, 999.0)],
)
def test_a_single_value_that_cannot_be_is_found(container, column, value):
    table = laboratory(1)
    table[17, column] = value
    found = stray_cells(container(table))
    assert (found.row, found.column) == (17, column)
    assert found.value == pytest.approx(value)
    others = np.delete(table[:, column], 17)
    np.testing.assert_allclose([found.low, found.high], [np.nanmin(others), np.nanmax(others)])


def test_some_zeros_are_counted_and_columns_too():
    table = laboratory(2, num_rows=200)
    table[[3, 50, 90], 0] = 0
    table[4, 7] = 3660
    found = stray_cells(mf.Dense(table))
    assert found.num_columns == 2
    table[4, 7] = 36.6
    assert stray_cells(mf.Dense(table)).num_cells == 3
    table[:12, 0] = 0  # a part of the table, and no slips
    assert stray_cells(mf.Dense(table)) is None


def test_at_most_two_of_a_hundred_tables_without_a_slip_have_one():
    found = [stray_cells(mf.Dense(laboratory(seed))) is not None for seed in range(400)]
    assert sum(found) <= 8
    # a broken twin: six deviations are nothing in tails of five degrees of freedom
    random = np.random.default_rng(0)
    tails = random.standard_t(5, (400, 300))
    assert np.mean(np.abs(tails).max(axis=1) > 6 * 1.08) > 0.1


def test_what_is_no_table_of_numbers_has_no_stray_cell():
    table = laboratory(3)
    table[17, 0] = 0
    assert stray_cells(mf.Dense(table[:19])) is None
    rows, columns = np.divmod(np.arange(40), 8)
    assert stray_cells(mf.Entries(rows, columns, np.ones(40), (60, 8))) is None
    assert stray_cells(table) is None
