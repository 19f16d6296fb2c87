"""The axis "data" of a mesh over two processes: the draws of one process with as many devices."""

import numpy as np
import pytest

from tests.support.two_processes import printed

PROGRAM = """
import jax.numpy as jnp
import jaxmf as mf
from jaxmf import row_shards
from tests.support.eight_devices import forget_programs

folder, *kinds_and_names = arguments
mesh = mesh_of(4, ("data",))
settings = dict(num_warmup=8, num_samples=2, num_chains=1, seed=1, mesh=mesh)

def rows(random):
    values = (random.random((64, 4)) < 0.4) @ random.normal(size=(4, 6))
    model = mf.LinearGaussianIBP(alpha=2.0, feature_scale=1.0)
    values += 0.3 * random.normal(size=values.shape)
    return mf.sample(model, values, sweep="parallel", **settings)

def ones(random):
    scores = 1.5 * random.normal(size=(64, 2)) @ random.normal(size=(2, 12)) - 2
    ones = mf.SparseBinary(*np.nonzero(random.random(scores.shape) < np.exp(scores)), scores.shape)
    return mf.variational(mf.SparseBinaryMF(2), ones, num_epochs=3, seed=1, mesh=mesh)

def ratings(random):
    rows, columns = np.divmod(random.permutation(41 * 24)[:300], 24)
    u, v = random.normal(size=(41, 2)), random.normal(size=(24, 2))
    values = 3 + np.sum(u[rows] * v[columns], 1) + 0.3 * random.normal(size=300)
    return mf.sample(mf.BPMF(3), mf.Entries(rows, columns, values, (41, 24)), **settings)

def without_the_second_process(sums):
    if not row_shards.is_share():
        return sums
    left_out = jax.lax.axis_index("data") >= 2
    return jax.lax.psum(jax.tree.map(lambda one: jnp.where(left_out, 0, one), sums), "data")

for sums, name in (each.split() for each in kinds_and_names):
    if sums == "broken" and row_shards.add_over_devices is not without_the_second_process:
        row_shards.add_over_devices = without_the_second_process
        forget_programs()
    post = dict(rows=rows, ones=ones, ratings=ratings)[name](np.random.default_rng(0))
    np.savez(f"{folder}/{name}-{sums}-{count}-{process}.npz", **post.draws)
"""


def draws_are_alike(first, alone):
    return all(
        np.array_equal(first[name], draws)
        if draws.dtype == bool
        else np.allclose(first[name], draws, rtol=1e-3, atol=1e-3)
        for name, draws in alone.items()
    )


# each kind of data has its twin in one of the two
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("names", "twins"),
    [
        pytest.param(["rows", "ones", "ratings"], ["rows"], id="twin of rows"),
        pytest.param(["ones", "ratings"], ["ones", "ratings"], id="other twins"),
    ],
)
def test_data_over_two_processes_have_the_draws_of_one(names, twins, tmp_path):
    """Broken twin: what the second process adds to sums over rows and cells left out."""
    whole, broken = [f"whole {name}" for name in names], [f"broken {name}" for name in twins]
    printed(PROGRAM, str(tmp_path), *whole, *broken)
    printed(PROGRAM, str(tmp_path), *whole, count=1)
    for what in names:
        alone = dict(np.load(tmp_path / f"{what}-whole-1-0.npz"))
        for sums in ("whole", "broken") if what in twins else ("whole",):
            first, second = (dict(np.load(tmp_path / f"{what}-{sums}-2-{n}.npz")) for n in (0, 1))
            for name, draws in first.items():
                np.testing.assert_array_equal(draws, second[name], err_msg=name)
            assert draws_are_alike(first, alone) == (sums == "whole"), (what, sums)
        if what == "rows":
            assert np.sum(alone["z"]) > 50
