"""What every test stands on.

Options and environment:
    --x64                run with 64-bit floats as the default (so does JAX_ENABLE_X64=1).
    JAXMF_DATA           folder with the real data sets; tests that need one skip without it.

Warnings are errors (pyproject.toml). The slow tests run with `-m slow`, those beside another
library with `-m compare`.
"""

import os
import signal
from pathlib import Path

import jax
import pytest


def pytest_addoption(parser):
    parser.addoption("--x64", action="store_true", help="64-bit floats as the default")


def pytest_configure(config):
    # A shell that starts the tests in the background leaves SIGINT ignored, for children as well;
    # the tests of Ctrl-C need it as a terminal has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--x64"):
        jax.config.update("jax_enable_x64", True)


def pytest_report_header(config):
    devices = ", ".join(sorted({device.device_kind for device in jax.devices()}))
    bits = 64 if jax.config.jax_enable_x64 else 32
    return f"jax {jax.__version__} on {jax.device_count()} x {devices}, float{bits} by default"


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


def pytest_collection_modifyitems(config, items):
    """Marks the tests named in exhaustive.txt."""
    names = {
        line
        for line in (Path(__file__).parent / "exhaustive.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.exhaustive)
    collected = {item.nodeid.split("::")[0] for item in items if "::" in item.nodeid}
    found = {item.nodeid for item in items}
    whole = not any("::" in argument for argument in config.args)
    lost = [name for name in names - found if whole and name.split("::")[0] in collected]
    if lost:
        raise pytest.UsageError(f"tests/exhaustive.txt names no test: {sorted(lost)[0]}")
