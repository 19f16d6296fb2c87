"""Programs in two processes under jax.distributed, two virtual devices of the CPU each."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxmf.engine.turns import threads_for

ROOT = Path(__file__).parents[2]

# what a program is that runs in both processes, or with all four devices in one: `mesh` has them
PREAMBLE = """
import os, sys
# the library that connects the processes writes to file descriptor 1, in pieces: away with it
sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import jax, numpy as np
from jax.sharding import Mesh

process, count, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_num_cpu_devices", 4 // count)
if count > 1:
    jax.distributed.initialize(
        address,
        num_processes=count,
        process_id=process,
        heartbeat_timeout_seconds=30,
        shutdown_timeout_seconds=60,
    )
arguments = sys.argv[4:]

def mesh_of(shape, names):
    return Mesh(np.array(jax.devices()).reshape(shape), names)
"""


@contextlib.contextmanager
def started(program: str, *arguments: str, count: int = 2) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a program, which end with the context."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    settings = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PJRT_NPROC": str(threads_for(4))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + program, str(index), str(count), address, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | settings,
        )
        for index in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            with process:  # waits for it and closes its pipes
                pass


def printed(program: str, *arguments: str, count: int = 2) -> list[list[str]]:
    """What each process prints, by lines; all must end well."""
    with started(program, *arguments, count=count) as processes:
        ended = [process.communicate(timeout=600) for process in processes]
    assert not any(process.returncode for process in processes), [
        errors[-3000:] for _, errors in ended
    ]
    return [out.splitlines() for out, _ in ended]
