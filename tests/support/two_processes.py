"""Programs in two processes under jax.distributed, two virtual devices of the CPU each."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
    if jax.__version__ == "0.10.2":  # not public: for the release that was looked at alone
        # A program over both is compiled in the first, of which the second has it by its key in
        # the cache; devices have a part in that, which on CPUs is not the same in both.
        from jax._src import cache_key

        cache_key._hash_accelerator_config = cache_key._hash_devices
        jax.config.update("jax_share_binary_between_hosts", True)
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
    settings = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "9"}
    with tempfile.TemporaryDirectory() as folder:
        if count > 1:
            # Of their own: what another test puts into a common one meanwhile the first would
            # find there and not send to the second.
            settings["JAX_COMPILATION_CACHE_DIR"] = folder
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PREAMBLE + program, str(i), str(count), address, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=os.environ | settings,
            )
            for i in range(count)
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
