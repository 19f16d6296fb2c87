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

# a thread beside those of the devices, which factorise several matrices at once
os.environ["PJRT_NPROC"] = "9"
os.environ["JAX_ENABLE_X64"] = "1"
import warnings
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf
from jaxmf import row_shards
from tests.support.eight_devices import forget_programs

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

def over(num_devices):
    return Mesh(np.array(jax.devices()[:num_devices]), ("data",))

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
add = row_shards.add_over_devices

def without_the_last(sums):
    if not row_shards.is_share():
        return sums
    last = jax.lax.axis_index("data") == row_shards.num_shares() - 1
    return add(jax.tree.map(lambda one: jax.numpy.where(last, 0, one), sums))

for sums, num_devices in ("whole", 2), ("whole", 8), ("broken", 8):
    if sums == "broken" and sys.argv[1] != "exact":
        break
    if sums == "broken":
        row_shards.add_over_devices = without_the_last
        forget_programs()
    spread = mf.variational(model, data, seed=1, mesh=over(num_devices), **settings)
    print("alike" if are_alike(spread, alone) else "another")
"""
)


@pytest.mark.slow
@pytest.mark.tiers(exhaustive=["sampled", "gaussian"])
@pytest.mark.parametrize("fit", ["tilted", "sampled", "gaussian", "exact"])
def test_ones_on_one_two_and_eight_devices_have_the_same_fit(fit):
    """Broken twin, of the exact fit: what the last device adds to sums over rows left out."""
    twin = ["another"] if fit == "exact" else []
    assert run_on_eight_devices(SAME, fit) == ["alike", "alike", *twin]


PROGRAM = (
    ONES.replace('"JAX_ENABLE_X64"] = "1"', '"JAX_ENABLE_X64"] = "0"')
    + """
import re
from jaxmf.engine.result import Schedule
from jaxmf.engine.run import _group_keys, _make_program
from jaxmf.engine.sharding import Placement

NUM_ROWS, NUM_COLUMNS, WIDTH = 40_000, 1_000, 22
cells = np.unique(random.integers(NUM_ROWS * NUM_COLUMNS, size=600_000))
data = mf.SparseBinary(*np.divmod(cells, NUM_COLUMNS), (NUM_ROWS, NUM_COLUMNS))
model = mf.SparseBinaryMF(WIDTH - 2).matched(data)
algorithm = model.ascent(num_epochs=5)

def compiled(num_devices):
    names = algorithm.row_arrays()
    placement = Placement(over(num_devices), batched=True, row_arrays=names)
    prepared = model.prepare(data, num_devices=num_devices)
    with placement.context():
        program = _make_program(algorithm, prepared, placement, Schedule(0, 2, 1), 1, None)
        keys = _group_keys(0, 1, placement)[0][1]
        return program.chunk_program(keys, *program.shapes(keys)).compiled

def size(program):
    memory = program.memory_analysis()
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes

alone, spread = compiled(1), compiled(8)
assert size(alone) > 7 * size(spread), (size(alone), size(spread))
print("a seventh at most")

text = spread.as_text()
kinds = "all-[a-z]+|reduce-scatter|collective-permute"
found = re.findall(rf"= (.*?) ((?:{kinds})(?:-start)?)\\(", text)
assert {name for _, name in found} == {"all-reduce"}, found
sizes = [
    np.prod([int(n) for n in shape.split(",") if n])
    for shapes, _ in found
    for shape in re.findall(r"\\[([0-9,]*)\\]", shapes)
]
# the matrices of the columns: half of the square of a column's factors
assert max(sizes) == NUM_COLUMNS * WIDTH * (WIDTH + 1) // 2 < NUM_ROWS * WIDTH, sizes
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


@pytest.mark.slow
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
