"""Two processes under jax.distributed: one run over the devices of both, or one of each."""

import pytest

from tests.support.two_processes import printed

PROGRAM = """
import jaxmf as mf
from jaxmf.engine import run
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs

assert (len(jax.devices()), len(jax.local_devices())) == (4, 2)
settings = dict(num_warmup=2, num_samples=12, num_chains=4)
both, within = mesh_of(4, ("chain",)), Mesh(np.array(jax.local_devices()), ("chain",))
neither = Mesh(np.array(jax.devices()[2 - 2 * process :][:2]), ("chain",))

shown = []
spread = run(growing(), np.zeros(()), mesh=both, seed=1, progress=shown.append, **settings)
single = run(growing(), np.zeros(()), chain_method="vectorized", seed=1, **settings)
assert spread.capacity["slots"] > 4
assert_same_run(spread, single)
mapped = run(growing(), np.zeros(()), mesh=both, seed=1, draws_folder=arguments[0], **settings)
assert_same_run(mapped, single)
assert all(isinstance(draws, np.memmap) for draws in mapped.draws.values())
assert bool(shown) == (process == 0)
print("draws of one process")

data = np.array([1.0, -2.0])
own = run(pair_gibbs(), data, mesh=within, seed=process, **settings)
single = run(pair_gibbs(), data, chain_method="vectorized", seed=process, **settings)
np.testing.assert_allclose(own.draws["x"], single.draws["x"], rtol=1e-5)
print("chains of its own")

for mesh, data in ((both, np.array([1.0, process])), (neither, data)):
    try:
        run(pair_gibbs(), data, mesh=mesh, **settings)
    except ValueError as error:
        print(error)
try:
    mf.smc(mf.LinearGaussianIBP(), np.zeros((4, 2)), mesh=both)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_two_processes_make_one_run_or_two(tmp_path):
    other_data = (
        "mesh: process 1 of jax.distributed was given other settings, another model or other data "
        "than process 0. Pass the same to all of them, the whole data in the same order"
    )
    for process, found in enumerate(printed(PROGRAM, str(tmp_path / "draws"))):
        assert found == [
            "draws of one process",
            "chains of its own",
            other_data,
            f"mesh: its devices belong to the processes [{1 - process}] of jax.distributed, and "
            f"this is process {process} of 2. Use devices of all processes (jax.devices()) in one "
            "run of all, or those of this process (jax.local_devices()) in a run of its own, with "
            "another seed and another checkpoint folder",
            "mesh: smc cannot run over several processes of jax.distributed; use a mesh of "
            "jax.local_devices()",
        ]
