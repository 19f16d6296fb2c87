"""Rows of the linear-Gaussian model over the axis "data" of a mesh: eight virtual devices.

In processes of their own. The same discrete draws on 1, 2 and 8 devices, what a device holds, and
what passes between devices.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import row_shards
from tests.support.eight_devices import run_on_eight_devices

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.feature_layout import Scales
from jaxmf.samplers.parallel_sweep import parallel_sweep
from tests.support.eight_devices import exchanged, num_bytes, over

NUM_ROWS, NUM_COLUMNS, NUM_SLOTS = 1024, 12, 8
MISSING = sys.argv[1] == "missing"
random = np.random.default_rng(0)
z = np.zeros((NUM_ROWS, NUM_SLOTS), bool)
z[:, :3] = random.random((NUM_ROWS, 3)) < 0.4
x = z[:, :3] @ random.normal(size=(3, NUM_COLUMNS)) + random.normal(size=(NUM_ROWS, NUM_COLUMNS))
arrays = [z, x.astype(np.float32)]
if MISSING:
    arrays.append(random.random(x.shape) < 0.9)

def sweeps(key, z, x, observed=None):
    def once(rows, index):
        z, x, full = parallel_sweep(
            jax.random.fold_in(key, index), *rows, observed, prior=IndianBuffet(0.5, 1.0),
            scales=Scales(jnp.float32(1.0), jnp.float32(1.0)),
        )
        return (z, x), full
    return jax.lax.scan(once, (z, x), jnp.arange(3))

def run_on(num_devices):
    mesh = over(num_devices)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    with jax.set_mesh(mesh):
        arguments = (jax.random.key(1), *(jax.device_put(one, rows) for one in arrays))
        everywhere = NamedSharding(mesh, PartitionSpec())
        options = dict(out_shardings=((rows, rows), everywhere))
        program = jax.jit(sweeps, **options).lower(*arguments).compile()
        (z, x), full = program(*arguments)
    assert not np.any(full)
    return program, z, x

programs, zs, xs = zip(*map(run_on, (1, 2, 8)))
alone = np.asarray(zs[0])
changed, used = np.sum(alone != z), np.sum(np.any(alone, axis=0))
assert changed > 10 and used > 1, (changed, used)
for others, cells in zip(zs[1:], xs[1:]):
    np.testing.assert_array_equal(np.asarray(others), alone)
    np.testing.assert_allclose(np.asarray(cells), np.asarray(xs[0]), rtol=1e-4, atol=1e-4)
print("same draws")

sizes = [num_bytes(programs[0]), num_bytes(programs[-1])]
assert sizes[0] > 6 * sizes[1], sizes
print("an eighth")
# nothing as long as the rows passes between devices: the largest is Z'X
sizes = sorted(size for some in exchanged(programs[-1]).values() for size in some)
assert len(sizes) > 3 and sizes[-1] <= NUM_SLOTS * max(NUM_SLOTS, NUM_COLUMNS), sizes[-3:]
print("sums alone are exchanged")
"""


@pytest.mark.tiers(exhaustive=["missing"])
@pytest.mark.slow
@pytest.mark.parametrize("cells", ["complete", "missing"])
def test_rows_on_one_two_and_eight_devices_have_the_same_features(cells):
    assert run_on_eight_devices(PROGRAM, cells) == [
        "same draws",
        "an eighth",
        "sums alone are exchanged",
    ]


RUN = """
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf

random = np.random.default_rng(0)
values = (random.random((64, 4)) < 0.4) @ random.normal(size=(4, 6))
values += 0.3 * random.normal(size=values.shape)
settings = dict(num_warmup=4, num_samples=4, num_chains=2, seed=1, sweep="parallel")
single = mf.sample(mf.LinearGaussianIBP(), values, chain_method="vectorized", **settings)
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("chain", "data"))
spread = mf.sample(mf.LinearGaussianIBP(), values, mesh=mesh, **settings)
np.testing.assert_array_equal(spread.draws["z"], single.draws["z"])
np.testing.assert_allclose(spread.draws["noise_scale"], single.draws["noise_scale"], rtol=1e-4)
print("agrees")
"""


@pytest.mark.exhaustive
def test_a_run_over_chains_and_rows_has_the_draws_of_one_device():
    assert run_on_eight_devices(RUN) == ["agrees"]


UNEVEN = """
import jax, numpy as np
from jax.sharding import Mesh
import jaxmf as mf

mesh = Mesh(np.array(jax.devices()), ("data",))
for num_rows in (20, 22, 23):
    values = np.random.default_rng(0).normal(size=(num_rows, 2))
    try:
        mf.sample(mf.LinearGaussianIBP(), values, sweep="parallel", mesh=mesh)
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_rows_that_devices_cannot_share_evenly_are_refused():
    refusal = "rows of the data cannot be spread evenly over the 8 devices of its axis 'data'; "
    assert run_on_eight_devices(UNEVEN) == [
        f"mesh: 20 {refusal}use a mesh with 5 devices on that axis",
        f"mesh: 22 {refusal}use a mesh with 2 devices on that axis",
        f"mesh: 23 {refusal}leave out rows, or spread chains instead",
    ]


def test_functions_over_rows_are_what_they_are_without_devices():
    z = jnp.asarray(np.random.default_rng(0).random((6, 3)) < 0.5)
    np.testing.assert_array_equal(row_shards.column_counts(z, jnp.float32), np.sum(z, axis=0))
    values = jnp.asarray([3, 0, 2], jnp.int32)
    np.testing.assert_array_equal(row_shards.running_total(values), [3, 3, 5])
    assert row_shards.spread(values) is values


def test_the_sampler_says_what_it_can_spread():
    model = mf.LinearGaussianIBP()
    assert model.mesh_axes({"sweep": "parallel"}) == ("data",)
    assert model.mesh_axes({"sweep": "parallel", "split_merge": 2}) == ()
    assert model.mesh_axes({"sweep": "collapsed"}) == ()
    assert model.sampler(sweep="collapsed").row_arrays is None
