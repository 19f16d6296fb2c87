"""Options of XLA for the programs that the run loop makes of an algorithm."""

from __future__ import annotations

import os

import jaxlib

from jaxmf.devices import default_platform

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
    if not is_known() or _OPTION in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {_OPTION: False}


def is_known() -> bool:
    """Whether this release of jaxlib is on the list and programs run on a CPU."""
    is_listed = f"{jaxlib.__version__}.".startswith(tuple(f"{release}." for release in RELEASES))
    return is_listed and default_platform() == "cpu"
