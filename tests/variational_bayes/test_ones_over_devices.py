"""Rows of a sparse matrix over the axis "data" of a mesh: eight virtual devices, in processes.

The same fit on 1, 2 and 8 devices, what a device holds, what passes between devices, and what can
be done with such a fit afterwards.
"""

import numpy as np
import pytest

from jaxmf.variational_bayes.shares import lay_out_shares
from tests.support.eight_devices import run_on_eight_devices

ONES = """
import os, sys

os.environ["JAX_ENABLE_X64"] = "1"
import warnings
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf
from tests.support.eight_devices import (
    compiled_chunk, exchanged, leave_out_the_last_device, num_bytes, over
)

warnings.simplefilter("ignore", mf.RunWarning)
random = np.random.default_rng(0)
scores = 1.5 * random.normal(size=(160, 2)) @ random.normal(size=(2, 30)) - 3
ones = random.random(scores.shape) < 1 / (1 + np.exp(-scores))
gaps = np.nonzero(~ones & (random.random(ones.shape) < 0.05))
data = mf.SparseBinary(*np.nonzero(ones), ones.shape)
with_gaps = mf.SparseBinary(
    *np.nonzero(ones), ones.shape, missing_rows=gaps[0], missing_columns=gaps[1]
)
learned = dict(row_mean=None, column_scale=None, bias_scale=None)
quadratic, exact = mf.Bernoulli("quadratic"), mf.Exact()
FITS = {
    "tilted": (mf.SparseBinaryMF(2), data, dict(num_epochs=8, hold_out=5)),
    "sampled": (
        mf.SparseBinaryMF(2, likelihood=quadratic, zeros=mf.SharedSample(21)),
        with_gaps,
        dict(num_epochs=4, num_validation=7, update="partial_newton"),
    ),
    "gaussian": (
        mf.SparseBinaryMF(2, likelihood=mf.Gaussian(), **learned),
        with_gaps,
        dict(num_epochs=4, hold_priors=1),
    ),
    "exact": (
        mf.SparseBinaryMF(2, likelihood=quadratic, zeros=exact, bias="intercept"),
        data,
        dict(num_epochs=4, start="random"),
    ),
}

def are_alike(spread, alone):
    assert set(spread.draws) == set(alone.draws)
    return all(
        np.allclose(spread.draws[name], draws, rtol=1e-7, atol=1e-7)
        for name, draws in alone.draws.items()
    )
"""

SAME = (
    ONES
    + """
model, data, settings = FITS[sys.argv[1]]
alone = mf.variational(model, data, seed=1, **settings)
assert np.all(np.ptp(alone.draws["row_mean"][0, 0], axis=0) > 0.1)
for sums, num_devices in ("whole", 2), ("whole", 8), ("broken", 8):
    if sums == "broken" and sys.argv[1] != "exact":
        break
    if sums == "broken":
        leave_out_the_last_device()
    spread = mf.variational(model, data, seed=1, mesh=over(num_devices), **settings)
    print("alike" if are_alike(spread, alone) else "another")
"""
)


@pytest.mark.tiers(exhaustive=["exact", "gaussian", "sampled"])
@pytest.mark.slow
@pytest.mark.parametrize("fit", ["tilted", "sampled", "gaussian", "exact"])
def test_ones_on_one_two_and_eight_devices_have_the_same_fit(fit):
    """Broken twin, of the exact fit: what the last device adds to sums over rows left out."""
    twin = ["another"] if fit == "exact" else []
    assert run_on_eight_devices(SAME, fit) == ["alike", "alike", *twin]


PROGRAM = (
    ONES.replace('"JAX_ENABLE_X64"] = "1"', '"JAX_ENABLE_X64"] = "0"')
    + """
NUM_ROWS, NUM_COLUMNS, WIDTH = 120_000, 1_000, 22
cells = np.unique(random.integers(NUM_ROWS * NUM_COLUMNS, size=1_800_000))
data = mf.SparseBinary(*np.divmod(cells, NUM_COLUMNS), (NUM_ROWS, NUM_COLUMNS))
model = mf.SparseBinaryMF(WIDTH - 2).matched(data)
algorithm = model.ascent(num_epochs=5)

alone, spread = (
    compiled_chunk(algorithm, model.prepare(data, num_devices=num_devices), num_devices)
    for num_devices in (1, 8)
)
assert num_bytes(alone) > 7 * num_bytes(spread), (num_bytes(alone), num_bytes(spread))
print("a seventh at most")
# the sums of the rows are there once, and of the factors a few
assert num_bytes(alone) < 2.2 * 4 * NUM_ROWS * (WIDTH * (WIDTH + 1) // 2 + 3 * WIDTH + 2)
sizes = exchanged(spread)
assert set(sizes) == {"all-reduce"}, sizes
# the matrices of the columns: half of the square of a column's factors
most = NUM_COLUMNS * WIDTH * (WIDTH + 1) // 2
assert max(sizes["all-reduce"]) == most < NUM_ROWS * WIDTH, sizes
print("sums of columns alone are exchanged")
"""
)


@pytest.mark.slow
def test_a_device_holds_its_rows_and_no_more_than_sums_of_columns_is_exchanged():
    assert run_on_eight_devices(PROGRAM) == [
        "a seventh at most",
        "sums of columns alone are exchanged",
    ]


RUN = (
    ONES
    + """
import signal

def stop(report):
    signal.raise_signal(signal.SIGINT)

mesh, (model, data, settings) = over(4), FITS["tilted"]
settings |= dict(seed=1, mesh=mesh)
whole = mf.variational(model, data, **settings)
settings["checkpoint"] = sys.argv[1]
stopped = mf.variational(model, data, progress=stop, **settings)
assert not stopped.meta.complete
assert are_alike(mf.variational(model, data, resume=True, **settings), whole)
print("resumed")
assert np.ptp(whole.transform(data)) > 0.1
whole.save(sys.argv[1] + "/saved")
assert are_alike(mf.load(sys.argv[1] + "/saved"), whole)
print("saved")
"""
)


@pytest.mark.exhaustive
def test_a_fit_over_devices_is_stopped_resumed_saved_and_asked(tmp_path):
    assert run_on_eight_devices(RUN, str(tmp_path)) == ["resumed", "saved"]


REFUSED = (
    ONES
    + """
def refusal(model, data, names=("data",), **settings):
    try:
        mf.variational(model, data, mesh=Mesh(np.array(jax.devices()), names), **settings)
    except ValueError as error:
        print(error)

refusal(mf.SparseBinaryMF(2), data, names=("chain",))
refusal(mf.SparseBinaryMF(2, zeros=mf.RowSample(5)), data, batch_size=20)
refusal(mf.SparseBinaryMF(2), data, update="gradient")
refusal(mf.SparseBinaryMF(2), mf.SparseBinary([0, 11], [0, 1], (12, 2)))
refusal(mf.SparseBinarySeries(2), mf.SparseSeries([0], [0], [1], [0.0], (8, 1, 2)))
"""
)


@pytest.mark.slow
def test_what_cannot_be_spread_is_refused_in_words():
    chains, batches, gradient, uneven, series = run_on_eight_devices(REFUSED)
    start = "mesh: variational of SparseBinaryMF cannot use the axis"
    assert chains.startswith(f"{start} 'chain'")
    assert chains.endswith("it spreads rows over 'data'")
    assert batches.startswith(f"{start} 'data'")
    assert batches.endswith("without zeros=RowSample and batch_size it spreads rows over 'data'")
    assert gradient.endswith("without update='gradient' it spreads rows over 'data'")
    assert uneven.startswith("mesh: 12 rows of the data cannot be spread evenly over the 8 devices")
    assert series.endswith("leave mesh out")


def test_every_one_lies_with_its_row_once_by_row_and_once_by_column():
    num_devices, shape = 3, (12, 7)
    ones, gaps = np.split(np.random.default_rng(1).permutation(84)[:50], [40])
    rows, columns = np.divmod(np.sort(ones), 7)
    held_out = np.array([3, 20, 39])
    layout, left = lay_out_shares(
        rows,
        columns,
        shape=shape,
        missing=np.divmod(gaps, 7),
        held_out=held_out,
        num_devices=num_devices,
    )
    cells = {name: set(zip(*each, strict=True)) for name, each in _cells_of(layout, None).items()}
    everything = set(zip(rows, columns, strict=True))
    assert cells["rows.ones"] == cells["columns.ones"] == everything
    assert (
        cells["rows.missing"]
        == cells["columns.missing"]
        == set(zip(*np.divmod(gaps, 7), strict=True))
    )
    known = _cells_of(layout, left)
    kept = everything - set(zip(rows[held_out], columns[held_out], strict=True))
    assert set(zip(*known["rows.ones"], strict=True)) == kept
    assert set(zip(*known["columns.ones"], strict=True)) == kept
    assert [layout.num_ones, layout.num_observed] == [40, 84 - 10]


def _cells_of(layout, held_out, num_devices=3):
    """Rows and columns of the cells of each table, by the rows of the devices."""
    found = {}
    for side in ("rows", "columns"):
        table = getattr(layout, side)
        for kind in ("ones", "missing"):
            pieces = getattr(table, kind)
            counts = pieces.counts
            if held_out is not None and kind == "ones":
                counts = held_out.row_counts if side == "rows" else held_out.column_counts
            device = np.arange(len(counts)) // (len(counts) // num_devices)
            there = np.arange(pieces.indices.shape[-1]) < counts[..., None]
            line = np.broadcast_to(pieces.line[..., None], there.shape)[there]
            other = pieces.indices[there]
            first = np.broadcast_to(4 * device[:, None, None], there.shape)[there]
            both = (line + first, other) if side == "rows" else (other + first, line)
            assert len(set(zip(*both, strict=True))) == both[0].size
            found[f"{side}.{kind}"] = both
    return found
