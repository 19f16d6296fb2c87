"""Two processes under jax.distributed, two virtual devices each: what works, what is refused."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import jax, numpy as np

process, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=process)
from jax.sharding import Mesh
from jaxmf.engine import run
from tests.support.engine_toys import pair_gibbs

assert (len(jax.devices()), len(jax.local_devices())) == (4, 2)
data, settings = np.array([1.0, -2.0]), dict(num_samples=3, num_chains=4)
try:
    run(pair_gibbs(), data, mesh=Mesh(np.array(jax.devices()), ("chain",)), **settings)
except ValueError as error:
    print(error)
within = Mesh(np.array(jax.local_devices()), ("chain",))
spread = run(pair_gibbs(), data, mesh=within, seed=process, **settings)
single = run(pair_gibbs(), data, chain_method="vectorized", seed=process, **settings)
np.testing.assert_allclose(spread.draws["x"], single.draws["x"], rtol=1e-5)
print("chains of its own")
"""


def test_a_mesh_over_processes_is_refused_and_one_within_a_process_works():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = os.environ.get("XLA_FLAGS", "")  # as quick to compile as the other tests
    settings = {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(process), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | settings,
        )
        for process in range(2)
    ]
    try:
        ended = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    for index, (out, errors) in enumerate(ended):
        assert started[index].returncode == 0, errors[-3000:]
        # the library that connects them says so, too
        refusal, last = (line for line in out.splitlines() if not line.startswith("[Gloo]"))
        assert refusal == (
            "mesh: its devices belong to the processes [0, 1] of jax.distributed, and this is "
            f"process {index}; a run stays within one process. Let each process run chains of its "
            "own on a mesh of jax.local_devices(), or without a mesh, with another seed and "
            "another checkpoint folder"
        )
        assert last == "chains of its own"
