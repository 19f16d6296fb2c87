"""Ratings over the axis "data" of a mesh: eight virtual devices, in processes of their own.

The same draws on 1, 2 and 8 devices, what a device holds, what passes between devices, what can be
done with such a run afterwards, and the joint distribution of a step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import devices
from jaxmf._kernels.special import uniforms, uniforms_at
from jaxmf.samplers.factors.shares import shared_out
from tests.support.eight_devices import run_on_eight_devices

RATINGS = """
import os, sys

if "unfused" in sys.argv:
    os.environ["JAXMF_FUSE_LOOPS"] = "0"
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf
from tests.support.eight_devices import compiled_chunk, exchanged, num_bytes, over

def ratings(num_rows, num_columns, num_cells):
    random = np.random.default_rng(0)
    many = np.unique(random.integers(num_rows * num_columns, size=2 * num_cells))
    rows, columns = np.divmod(random.permutation(many)[:num_cells], num_columns)
    u, v = random.normal(size=(num_rows, 2)), random.normal(size=(num_columns, 2))
    values = 3 + np.sum(u[rows] * v[columns], 1) + 0.3 * random.normal(size=num_cells)
    return mf.Entries(rows, columns, values, (num_rows, num_columns))

def assert_alike(spread, alone):
    assert set(spread.draws) == set(alone.draws)
    for name, draws in alone.draws.items():
        np.testing.assert_allclose(spread.draws[name], draws, rtol=2e-4, atol=2e-4, err_msg=name)
"""

IN_KERNEL = (
    RATINGS
    + """
from jaxmf.samplers.factors import layout, rows
from tests.support.eight_devices import forget_programs

layout.is_sequential = rows.is_sequential = lambda size: False
data, model = ratings(40, 32, 400), mf.BPMF(3)
settings = dict(num_warmup=2, num_samples=2, num_chains=2, chain_method="vectorized", seed=1)
found = []
for is_used in (False, True):
    layout.is_in_kernel = rows.is_in_kernel = lambda size, has_cells=False: is_used
    forget_programs()
    mesh = jax.make_mesh((2, 2), ("chain", "data"), devices=jax.devices()[:4])
    found += [mf.sample(model, data, mesh=each, **settings) for each in (None, mesh)]
for post in found[1:]:
    assert_alike(post, found[0])
print("same draws")
"""
)

SAME = (
    RATINGS
    + """
settings = dict(num_warmup=2, num_samples=2, num_chains=1, seed=1)
num_rows, num_columns = (64, 40) if sys.argv[1] == "even" else (67, 45)
data, model = ratings(num_rows, num_columns, 900), mf.BPMF(3)
alone = mf.sample(model, data, chain_method="vectorized", **settings)
assert np.ptp(alone.draws["u"][0, :, 0, 0]) > 0.01
for num_devices in map(int, sys.argv[2].split("/")):
    assert_alike(mf.sample(model, data, mesh=over(num_devices), **settings), alone)
print("same draws")
"""
)


@pytest.mark.exhaustive
def test_the_kernel_for_gpus_draws_the_same_where_devices_share_chains_and_rows():
    assert run_on_eight_devices(IN_KERNEL) == ["same draws"]


@pytest.mark.tiers(exhaustive=["even 1/8", "uneven 8 unfused"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("even", "1/8"), ("uneven", "2/8"), ("uneven", "8", "unfused")], ids=" ".join
)
def test_ratings_on_one_two_and_eight_devices_have_the_same_draws(arguments):
    assert run_on_eight_devices(SAME, *arguments) == ["same draws"]


PROGRAM = (
    RATINGS
    + """
NUM_ROWS, NUM_COLUMNS, NUM_FACTORS = 20_000, 4_000, 32
data = ratings(NUM_ROWS, NUM_COLUMNS, 1_000_000)
algorithm = mf.BPMF(NUM_FACTORS).sampler()

alone, spread = (compiled_chunk(algorithm, data, num_devices) for num_devices in (1, 8))
assert num_bytes(alone) > 6 * num_bytes(spread), (num_bytes(alone), num_bytes(spread))
print("a sixth at most")
sizes, width = exchanged(spread), NUM_FACTORS + 1
assert set(sizes) == {"all-gather", "all-reduce"}, sizes
assert max(sizes["all-gather"]) == NUM_ROWS * width, sizes
assert max(sizes["all-reduce"]) == width**2, sizes
print("vectors and sums alone are exchanged")
"""
)


@pytest.mark.slow
def test_a_device_holds_its_ratings_and_no_more_than_vectors_is_exchanged():
    assert run_on_eight_devices(PROGRAM) == [
        "a sixth at most",
        "vectors and sums alone are exchanged",
    ]


RUN = (
    RATINGS
    + """
folder = sys.argv[1]
data, model, mesh = ratings(40, 24, 300), mf.BPMF(2), over(8)
settings = dict(num_warmup=2, num_chains=1, seed=1, mesh=mesh)
whole = mf.sample(model, data, num_samples=6, **settings)

mf.sample(model, data, num_samples=2, checkpoint=folder + "/run", **settings)
resumed = mf.sample(model, data, num_samples=6, checkpoint=folder + "/run", resume=True, **settings)
short = mf.sample(model, data, num_samples=2, **settings)
short.save(folder + "/saved")
loaded = mf.load(folder + "/saved")
cells = [0, 39], [23, 0]
for name, post in (
    ("resumed", resumed),
    ("extended", short.extend(num_samples=4, mesh=mesh)),
    ("loaded and extended", loaded.extend(num_samples=4, mesh=mesh)),
    ("extended without devices", loaded.extend(num_samples=4)),
):
    assert_alike(post, whole)
    np.testing.assert_allclose(post.predict(cells).mean, whole.predict(cells).mean, rtol=1e-3)
    print(name)
gathered = mf.sample(model, data, num_samples=6, predict_at=cells, **settings)
np.testing.assert_allclose(gathered.predict(cells).mean, whole.predict(cells).mean, rtol=1e-3)
print("predicted on the way")
"""
)


@pytest.mark.exhaustive
def test_a_run_over_devices_is_saved_resumed_extended_and_asked(tmp_path):
    assert run_on_eight_devices(RUN, str(tmp_path)) == [
        "resumed",
        "extended",
        "loaded and extended",
        "extended without devices",
        "predicted on the way",
    ]


CHAINS = (
    RATINGS
    + """
data, model = ratings(40, 24, 300), mf.BPMF(2)
settings = dict(num_warmup=2, num_samples=2, num_chains=2, seed=1)
alone = mf.sample(model, data, chain_method="vectorized", **settings)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("chain", "data"))
assert_alike(mf.sample(model, data, mesh=mesh, **settings), alone)
print("agrees")
"""
)


@pytest.mark.exhaustive
def test_a_run_over_chains_and_ratings_has_the_draws_of_one_device():
    assert run_on_eight_devices(CHAINS) == ["agrees"]


JOINT = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
from jaxmf.data import Entries
from jaxmf.testing import check_kernel
from tests.support import bpmf_setups as setups
from tests.support.eight_devices import leave_out_the_last_device

SHAPE = (16, 8)
# the last row and the last column have no cells
ROWS, COLUMNS = (
    part.ravel().astype(np.int32) for part in np.mgrid[:15, :7][:, :, ::3].reshape(2, -1)
)
model = setups.plain()
setup = setups.Setup(model)
kernel = setups.whole_step(model)

def step(key, state, data):
    cells = Entries(ROWS, COLUMNS, data.values, SHAPE)
    return kernel(key, state, model.shared_out(cells, 8))

def is_kept():
    try:
        check_kernel(
            step,
            sample_prior=lambda key: model.simulate_state(key, *SHAPE),
            simulate=lambda key, state: model.simulate_data(key, state, ROWS, COLUMNS),
            statistics=setup.statistics,
            key=jax.random.key(4),
            num_replicates=2_048,
            compiler_options=setups.FAST_COMPILE,
        )
    except AssertionError:
        return False
    return True

with jax.set_mesh(Mesh(np.array(jax.devices()), ("data",))):
    assert is_kept()
    print("kept")
    leave_out_the_last_device()
    assert not is_kept()
    print("caught")
"""


@pytest.mark.exhaustive
def test_the_step_on_eight_devices_leaves_the_joint_distribution_alone():
    """Broken twin: what the last device adds to sums over rows and cells left out."""
    assert run_on_eight_devices(JOINT) == ["kept", "caught"]


REFUSED = """
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf

mesh = Mesh(np.array(jax.devices()), ("data",))
data = mf.Entries([0, 1], [1, 0], [1.0, 2.0], (2, 2))
sides = mf.Features(np.array([[0.0], [1.0]]))
for model in (
    mf.BPMF(2, row_features=sides, mixture=mf.DirichletProcess(1.0)),
    mf.BPMF(2, likelihood=mf.Ordinal((1, 2))),
):
    try:
        mf.sample(model, data, mesh=mesh)
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_what_cannot_be_spread_is_refused_in_words():
    sided, ordered = run_on_eight_devices(REFUSED)
    assert sided.startswith("mesh: BPMF cannot use the axis 'data'")
    assert sided.endswith("without row_features and mixture it spreads ratings over 'data'")
    assert ordered.endswith("without likelihood=Ordinal it spreads ratings over 'data'")


@pytest.mark.parametrize("size", [1, 2, 7, 8, 11, 16, 23])
def test_numbers_at_positions_are_those_of_the_whole(size, monkeypatch):
    monkeypatch.setitem(devices.BLOCK_SIZES, "table entries", devices.BlockSize(8, 8))
    key = jax.random.key(3)
    index = jnp.asarray(np.random.default_rng(0).permutation(size).reshape(1, -1), jnp.uint32)
    found = uniforms_at(key, size, index)
    np.testing.assert_array_equal(found, uniforms(key, (size,))[index])


def test_every_cell_lies_once_with_its_row_and_once_with_its_column():
    num_rows, num_columns, num_devices = 7, 5, 3
    cells = np.random.default_rng(1).permutation(num_rows * num_columns)[:19]
    rows, columns = np.divmod(cells, num_columns)
    data = mf.Entries(rows, columns, np.arange(19.0) + 1, (num_rows, num_columns))
    values = (data.values - 1) / 2
    shares = shared_out(data, (3, 3), values=values, num_devices=num_devices)
    turned = shares.transpose()
    for each, lines, others in ((shares, rows, columns), (turned, columns, rows)):
        found = _cells_of(each, num_devices)
        expected = zip(lines.tolist(), others.tolist(), (np.arange(19.0) / 2).tolist(), strict=True)
        assert sorted(found) == sorted(expected)
        assert np.all(each.values[~np.asarray(each.are_cells)] == 0)


def _cells_of(shares, num_devices):
    """(row, column, value) of all cells, by the chunks of the rows of each device."""
    others, rows, starts, values = map(np.asarray, shares.by_row)
    num_rows, num_chunks = starts.size // num_devices - 1, len(rows) // num_devices
    found = []
    for device in range(num_devices):
        ends = starts.reshape(num_devices, -1)[device]
        for row in range(num_rows):
            for chunk in device * num_chunks + np.arange(ends[row], ends[row + 1]):
                assert rows[chunk] == row
                there = others[chunk] < shares.num_columns
                where = np.full(there.sum(), device * num_rows + row)
                found += zip(
                    where.tolist(),
                    others[chunk][there].tolist(),
                    values[chunk][there].tolist(),
                    strict=True,
                )
    return found
