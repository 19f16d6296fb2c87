"""What every test stands on.

Options and environment:
    --x64                run with 64-bit floats as the default (so does JAX_ENABLE_X64=1).
    JAXMF_DATA           folder with the real data sets; tests that need one skip without it.

Warnings are errors (pyproject.toml). The slow tests run with `-m slow`, those beside another
library with `-m compare`.
"""

import gc
import os
import signal
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest

from tests import LONG_RUNS, SLOW_EXAMPLES

# Loops compiled by the older emitter take two thirds of the time to compile, and a tenth less where
# a program is not split for threads that are not there. Of jaxlib 0.10 alone: other releases end
# the process at an option that they do not know.
FAST_COMPILE = "--xla_backend_optimization_level=0"
FASTER_COMPILE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# Linux admits 65,530 a process; a compiled program takes about 47 of them, and 3 MB.
MOST_MAPPINGS = 32_000
# Objects made between two looks for garbage; tracing makes them by the million.
GARBAGE = 20_000


def pytest_addoption(parser):
    parser.addoption("--x64", action="store_true", help="64-bit floats as the default")


def pytest_configure(config):
    # A shell that starts the tests in the background leaves SIGINT ignored, for children as well;
    # the tests of Ctrl-C need it as a terminal has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    flags = os.environ.get("XLA_FLAGS", "")
    if FAST_COMPILE in flags and jaxlib.__version__.startswith("0.10."):
        os.environ["XLA_FLAGS"] = f"{flags} {FASTER_COMPILE}"  # read by the first compilation
    if FAST_COMPILE in flags and jax.__version__ == jaxlib.__version__ == "0.10.2":
        share_context()
        put_arrays()
    if config.getoption("--x64"):
        jax.config.update("jax_enable_x64", True)
    gc.disable()  # while modules are imported, which all stay


def share_context():
    """Lowers programs in one context of MLIR: JAX makes one for each, in 5 ms of CPU time.

    What is lowered inside of another lowering, as constants are, has its own still: in the same one
    it would become a part of the other. Neither this nor `put_arrays` is public: for the release of
    JAX that was looked at alone.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    make = mlir.make_ir_context
    shared = make()
    mlir.make_ir_context = lambda: shared if ir.Context.current is None else make()


def put_arrays():
    """Puts arrays of numpy on the device, for which JAX 0.10 compiles a program a shape: 17 ms."""
    from jax._src.lax import lax

    compiled = lax.stage_p.impl

    def put(x):
        # a copy: what is put may lie where it lay, and the array may change
        return jax.device_put(np.array(x)) if isinstance(x, np.ndarray) else compiled(x)

    lax.stage_p.def_impl(put)


def pytest_collection_finish(session):
    """What the tests consist of is not looked through again whenever garbage is collected."""
    gc.freeze()
    gc.set_threshold(GARBAGE, 10, 10)
    gc.enable()


def pytest_report_header(config):
    devices = ", ".join(sorted({device.device_kind for device in jax.devices()}))
    bits = 64 if jax.config.jax_enable_x64 else 32
    return f"jax {jax.__version__} on {jax.device_count()} x {devices}, float{bits} by default"


def pytest_runtest_teardown(item, nextitem):
    """Drops compiled programs between files where there are many: XLA aborts without room."""
    between = nextitem is None or nextitem.path != item.path
    if between and num_mappings() > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


def num_mappings() -> int:
    """Regions of memory that this process has mapped; 0 where the system does not say."""
    regions = Path("/proc/self/maps")
    return regions.read_bytes().count(b"\n") if regions.exists() else 0


@pytest.fixture
def double_precision():
    """The test with 64-bit floats, whatever the default is."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def long_runs(monkeypatch):
    """Chains compiled as `LONG_RUNS` says, which run for longer than that takes."""
    from jaxmf.engine import bound

    options = bound.quick_to_compile() | LONG_RUNS
    monkeypatch.setattr(bound, "quick_to_compile", lambda: options)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets named by JAXMF_DATA; the test skips when there is none."""
    name = os.environ.get("JAXMF_DATA")
    if not name:
        pytest.skip("needs real data: set JAXMF_DATA to the folder that holds it")
    path = Path(name).expanduser()
    if not path.is_dir():
        pytest.skip(f"needs real data: JAXMF_DATA={name} is not a folder")
    return path


@pytest.hookimpl(tryfirst=True)  # before the markers are looked at
def pytest_collection_modifyitems(config, items):
    """Marks slow examples, and the settings of a parametrised test that its mark `tiers` names."""
    settings = {}  # of each test with such a mark: those named, those there are
    for item in items:
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)
        mark = item.get_closest_marker("tiers")
        if mark is None:
            continue
        test, setting = item.nodeid.split("[")[0], item.callspec.id
        named, there = settings.setdefault(test, (set().union(*mark.kwargs.values()), set()))
        there.add(setting)
        for tier, names in mark.kwargs.items():
            if setting in names:
                item.add_marker(getattr(pytest.mark, tier))
    if any("[" in argument for argument in config.args):
        return  # some settings alone were asked for
    for test, (named, there) in settings.items():
        if named - there:
            raise pytest.UsageError(f"{test} has no setting {min(named - there)!r}: mark `tiers`")
