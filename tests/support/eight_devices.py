"""Programs that need several devices, which a process has to ask for before jax starts.

What they share is here too: a mesh, the program of a chunk, its bytes, and what devices exchange.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax

from jaxmf.engine.executables import CACHE
from jaxmf.engine.turns import threads_for

ROOT = Path(__file__).parents[2]


def forget_programs() -> None:
    """What runs next is traced anew, for instance after a function was replaced."""
    CACHE.clear()
    jax.clear_caches()


def run_on_eight_devices(program: str, *arguments: str, threads: int = threads_for(8)) -> list[str]:
    """What a program prints in a process of its own with eight devices; it must end well.

    Args: threads: of XLA, by default as many as devices need that factorise several matrices at
        once.
    """
    flags = os.environ.get("XLA_FLAGS", "")  # as quick to compile as the other tests
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=8",
            "JAX_PLATFORMS": "cpu",
            "PJRT_NPROC": str(threads),
        },
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def over(num_devices):
    """A mesh of the first devices, which spreads rows."""
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("data",))


def compiled_chunk(algorithm, data, num_devices):
    """The compiled program of a chunk over so many devices."""
    from jaxmf.engine.result import Schedule
    from jaxmf.engine.run import _bind, _group_keys, as_key
    from jaxmf.engine.sharding import Placement

    placement = Placement(over(num_devices), batched=True, row_arrays=algorithm.row_arrays())
    with placement.context():
        program = _bind(algorithm, data, placement, Schedule(0, 2, 1), 1, None, 0)
        keys = _group_keys(as_key(0), 1, placement)[0][1]
        return program.chunk_program(keys, *program.shapes(keys)).compiled


def num_bytes(program):
    """Of the arguments and temporaries of a compiled program, on a device."""
    memory = program.memory_analysis()
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes


def exchanged(program):
    """Elements of each array that passes between devices, by the kind of the exchange."""
    kinds = "all-[a-z]+|reduce-scatter|collective-permute"
    found = {}
    for shapes, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", program.as_text()):
        for shape in re.findall(r"\[([0-9,]*)\]", shapes):
            size = 1
            for length in filter(None, shape.split(",")):
                size *= int(length)
            found.setdefault(kind, []).append(size)
    return found


def leave_out_the_last_device():
    """The broken twin of sums over rows: what the last device adds is left out."""
    from jaxmf import row_shards

    add = row_shards.add_over_devices

    def without_the_last(sums):
        if not row_shards.is_share():
            return sums
        last = jax.lax.axis_index("data") == row_shards.num_shares() - 1
        return add(jax.tree.map(lambda one: jax.numpy.where(last, 0, one), sums))

    row_shards.add_over_devices = without_the_last
    forget_programs()
