"""Programs that need several devices, which a process has to ask for before jax starts."""

import os
import subprocess
import sys
from pathlib import Path

import jax

from jaxmf.engine.executables import CACHE

ROOT = Path(__file__).parents[2]


def forget_programs() -> None:
    """What runs next is traced anew: by a function that took the place of another, say."""
    CACHE.clear()
    jax.clear_caches()


def run_on_eight_devices(program: str, *arguments: str) -> list[str]:
    """What a program prints in a process of its own with eight devices; it must end well."""
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
        },
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
