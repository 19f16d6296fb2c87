"""What surrounds a run: versions, flags and device, options of the compiler, its cache on disk.

`describe_environment` says what decides the last bits of a run besides settings and data,
`quick_to_compile` has XLA's options for the programs of the run loop, and `use_compilation_cache`
turns on JAX's persistent cache in the user's cache folder, as the command line does.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jaxlib

from jaxmf.arguments import check_path
from jaxmf.devices import default_platform


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


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# XLA refuses an option that it does not know: a release is added after a look at its options and
# at what programs of both emitters take
RELEASES = ("0.10",)
_OPTION = "xla_cpu_use_fusion_emitters"


def quick_to_compile() -> dict[str, object]:
    """Options under which programs compile sooner and run as fast; empty where nothing is known.

    On CPUs the older of XLA's two emitters of fused operations takes two thirds to a half of the
    time to compile a sweep, which then takes .8 to 1 times as long. Nothing is set
    where `XLA_FLAGS` names the option.
    """
    if not has_known_options() or _OPTION in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {_OPTION: False}


def has_known_options() -> bool:
    """Whether this release of jaxlib is on the list and programs run on a CPU."""
    is_listed = f"{jaxlib.__version__}.".startswith(tuple(f"{release}." for release in RELEASES))
    return is_listed and default_platform() == "cpu"


VARIABLE = "JAXMF_CACHE"


def use_compilation_cache(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keeps compiled programs on disk, so that a second start need not compile them.

    Changes JAX's configuration for the whole process: for programs, not for libraries, to call.

    Args:
        folder: where; by default the environment variable JAXMF_CACHE, else ``jaxmf`` in
            XDG_CACHE_HOME, else in ``~/.cache``. JAXMF_CACHE set to an empty string, "0" or "off"
            turns the cache off.
    Returns:
        The folder, or None if the cache is off or the folder cannot be made.
    Raises:
        TypeError: a folder that is neither a text nor a path.
    """
    path = default_folder() if folder is None else check_path("folder", folder)
    if path is None:
        return None
    path = path.expanduser() / "compilation"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return path


def default_folder() -> Path | None:
    """The cache folder of this user; None if it is turned off."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return None if chosen.lower() in ("", "0", "off") else Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache")) / "jaxmf"
