"""What decides the last bits of a run besides settings and data: versions, flags and device."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from typing import Any

import jax


def describe_environment() -> dict[str, Any]:
    """Versions, XLA flags and device, as JSON."""
    device = jax.devices()[0]
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("jaxmf", "jax", "jaxlib", "numpy", "numpyro")},
        },
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "device": f"{device.platform} {device.device_kind}",
        "machine": platform.machine(),
        "threefry_partitionable": bool(config_value("jax_threefry_partitionable")),
        "default_matmul_precision": str(config_value("jax_default_matmul_precision")),
    }


def config_value(name: str) -> object:
    """A setting of JAX as it is in this thread."""
    return getattr(jax.config, name)


@functools.cache  # looking one up takes .8 ms of CPU time, and each run notes five
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
