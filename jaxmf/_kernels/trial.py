"""Kernels for GPUs are tried on the device before they are used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax


def try_on_device(platform: str, what_is_wrong: Callable[[], str]) -> str:
    """Why a kernel must not be used on a platform; empty if it may.

    A kernel that ends the process or never ends is not survived.

    Args: what_is_wrong: runs it on the default device, and says what of its results is wrong.
    """

    def run() -> str:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            return what_is_wrong()

    try:
        # in a thread of its own: a kernel cannot be traced in all that a caller may be within
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run).result()
    except Exception as error:  # whatever a compiler may raise
        return f"it failed: {type(error).__name__}: {error}".splitlines()[0][:200]
