"""JAX's cache of compiled programs on disk, in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from jaxmf.arguments import check_path


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
    chosen = os.environ.get("JAXMF_CACHE")
    if chosen is not None:
        return None if chosen.lower() in ("", "0", "off") else Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache")) / "jaxmf"
