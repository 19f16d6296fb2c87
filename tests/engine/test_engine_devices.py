"""Chains over several devices: eight virtual ones, in a process of its own."""

import jax
import numpy as np
import pytest

from jaxmf.engine import run
from jaxmf.engine.sharding import Placement, validate_mesh
from tests.support.eight_devices import run_on_eight_devices
from tests.support.engine_toys import pair_gibbs

PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxmf.engine import Info, algorithm, run
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs, stop_at

folder = sys.argv[1]
assert jax.device_count() == 8
mesh = Mesh(np.array(jax.devices()), ("chain",))
settings = dict(num_warmup=4, num_samples=10, num_chains=8, seed=3)

toy, data = growing(capacity=2), np.zeros(())
spread = run(toy, data, mesh=mesh, **settings)
single = run(toy, data, chain_method="vectorized", **settings)
assert spread.capacity == single.capacity and spread.capacity["slots"] > 2
assert_same_run(spread, single)
print("growing agrees")

part = run(toy, data, mesh=mesh, checkpoint=folder, checkpoint_seconds=0, chunk_seconds=1e-9,
           progress=stop_at(5), **settings)
assert part.num_steps == 5
assert_same_run(spread, run(toy, data, mesh=mesh, checkpoint=folder, resume=True, **settings))
print("resumed")
try:
    run(toy, data, chain_method="vectorized", checkpoint=folder, resume=True, **settings)
except ValueError as error:
    assert "mesh was" in str(error)
    print("refused")

data = np.array([1.0, -2.0])
explicit = jax.make_mesh((4, 2), ("chain", "particle"))
spread = run(pair_gibbs(), data, mesh=explicit, **settings)
single = run(pair_gibbs(), data, chain_method="vectorized", **settings)
for name, values in single.draws.items():
    np.testing.assert_allclose(spread.draws[name], values, rtol=1e-5, atol=1e-5)
print("two axes agree")

def step(key, state, data, progress):
    moved = state + jax.random.uniform(key, state.shape)
    return jax.lax.with_sharding_constraint(moved, PartitionSpec("particle")), Info(overflow={})

cloud = algorithm(
    init=lambda key, data: jax.numpy.zeros(16),
    step=step,
    record=lambda key, state, data: {"cloud": state},
)
particles = Mesh(np.array(jax.devices()), ("particle",))
spread = run(cloud, None, num_samples=3, mesh=particles)
# without a mesh there is no axis to constrain to
plain = algorithm(
    init=cloud.init,
    step=lambda key, state, data, progress: (
        state + jax.random.uniform(key, state.shape), Info(overflow={})
    ),
    record=cloud.record,
)
np.testing.assert_array_equal(spread.draws["cloud"], run(plain, None, num_samples=3).draws["cloud"])
print("particles agree")

there = run(pair_gibbs(), jax.device_put(data, jax.devices()[3]), num_chains=2, num_samples=5)
here = run(pair_gibbs(), data, num_chains=2, num_samples=5)
assert_same_run(there, here)
print("another device agrees")
"""


@pytest.mark.slow
def test_eight_devices_give_the_draws_of_one(tmp_path):
    assert run_on_eight_devices(PROGRAM, str(tmp_path / "run")) == [
        "growing agrees",
        "resumed",
        "refused",
        "two axes agree",
        "particles agree",
        "another device agrees",
    ]


def test_a_mesh_of_one_device_is_as_good_as_none():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("chain",))
    data = np.array([1.0, -2.0])
    spread = run(pair_gibbs(), data, num_samples=5, num_chains=3, mesh=mesh)
    single = run(pair_gibbs(), data, num_samples=5, num_chains=3, chain_method="vectorized")
    np.testing.assert_allclose(spread.draws["x"], single.draws["x"], rtol=1e-5)


def test_chains_that_cannot_be_spread_are_refused():
    mesh = jax.sharding.AbstractMesh((4,), ("chain",))
    with pytest.raises(TypeError, match=r"must be a jax\.sharding\.Mesh"):
        validate_mesh(mesh, 6)
    one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("chain",))
    with pytest.raises(ValueError, match="cannot use a mesh"):
        run(pair_gibbs(), np.zeros(2), num_samples=1, mesh=one, chain_method="sequential")
    assert Placement(one, batched=True).chains.spec == jax.sharding.PartitionSpec("chain")


FACTORISING = """
import jax, numpy as np, os
from jax.sharding import Mesh
from jaxmf.engine import Info, algorithm, run

def step(key, state, data, progress):
    noise = jax.random.normal(key, state.shape)
    whole = state @ state.T + 9 * np.eye(4, dtype=np.float32)
    values, vectors = jax.numpy.linalg.eigh(whole)
    return 0.1 * vectors @ jax.numpy.linalg.cholesky(whole) + noise, Info(overflow={})

toy = algorithm(
    init=lambda key, data: jax.random.normal(key, (4, 4)),
    step=step,
    record=lambda key, state, data: {"x": state},
)
assert jax.device_count() == 8

def spread(num_chains, axis="chain"):
    mesh = Mesh(np.array(jax.devices()), (axis,))
    try:
        run(toy, None, num_samples=100, num_chains=num_chains, mesh=mesh)
        print(num_chains, axis, "ended")
    except ValueError as error:
        print(num_chains, axis, str(error).split("Start Python with ")[1].split()[0])

spread(8)
spread(16)
spread(8, "particle")
spread(1, "particle")
"""


@pytest.mark.tiers(exhaustive=["16-PJRT_NPROC=17"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "answer"), [(1, "PJRT_NPROC=17"), (16, "PJRT_NPROC=17"), (17, "ended")]
)
def test_devices_of_a_cpu_do_not_wait_for_ever_for_its_threads(threads, answer):
    assert run_on_eight_devices(FACTORISING, threads=threads) == [
        "8 chain ended",
        f"16 chain {answer}",
        f"8 particle {answer}",
        "1 particle ended",
    ]
