"""Finds out whether this jaxlib compiles a loop into one CPU kernel on request, and gets it right.

The request that `fusion` makes is an internal attribute of XLA, and XLA ends the process
where it cannot do what is asked. So the request is made only with releases on a short list, with
which all tests of fused loops were run, and there only where a trial in a child process went well
(`fusion_trial`): the child ended well, the values are the same bits as without the request,
and the compiler made no more kernels of it. The answer of the trial is kept beside the compilation
cache, one for each release and processor. With other releases loops run as plain JAX.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import jaxlib

from jaxmf.engine.disk_cache import default_folder

# A trial says nothing of programs that it does not contain: a release is added here after all tests
# that compile fused loops passed with it under JAXMF_FUSE_LOOPS=1.
TESTED_RELEASES = ("0.10",)
_SECONDS = 60.0
_FILE = "fusion.json"
_VERSION = 2  # of the trial: answers to an earlier one are not read


@functools.cache
def is_granted() -> bool:
    """Whether the request is safe with this jaxlib on this processor; asked once a process."""
    if not is_tested(jaxlib.__version__):
        return False
    file = _answers_file()
    answers = _read(file)
    name = f"jaxlib {jaxlib.__version__}, {_processor()}, trial {_VERSION}"
    if name not in answers:
        try:
            answers = {**_read(file), name: _is_sound(_run_child())}
        except (subprocess.TimeoutExpired, OSError):
            # a machine that is busy or full says nothing of the release: the next process asks
            return False
        _write(file, answers)
    return answers[name]


def _processor() -> str:
    """A name of this processor that others which share a home folder do not have.

    Code is made for what a processor can do: Linux lists that, other systems name the processor.
    """
    marks = ("model name", "flags", "CPU implementer", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    known = sorted({line for line in lines if line.startswith(marks)}) or [platform.processor()]
    return f"{platform.machine()} {zlib.crc32(chr(10).join(known).encode()):08x}"


def is_tested(version: str) -> bool:
    """Whether a release of jaxlib is on the list: 0.10 stands for 0.10.1 and not for 0.100."""
    return any(f"{version}.".startswith(f"{release}.") for release in TESTED_RELEASES)


def _is_sound(findings: dict[str, dict[str, int]] | None) -> bool:
    """Whether the findings of the child speak for the request."""
    if findings is None:
        return False
    return all(
        found["same_bits"] and found["num_kernels"] <= found["num_kernels_plain"]
        for found in findings.values()
    )


def _run_child() -> dict[str, dict[str, int]] | None:
    """Findings that the child process printed; None if it failed or printed none.

    Raises subprocess.TimeoutExpired: it did not end in time. OSError: it could not be started.
    """
    if not sys.executable:
        return None
    with tempfile.TemporaryDirectory(prefix="jaxmf-fusion-") as dumps:
        # settings of the caller are not the trial's, and a program that is read from the
        # compilation cache would dump no kernels
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment = kept | {
            "JAX_PLATFORMS": "cpu",
            "JAXMF_FUSE_LOOPS": "1",
            "XLA_FLAGS": f"--xla_dump_to={dumps} --xla_dump_hlo_module_re=jit_probe_.*",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        try:
            child = subprocess.run(
                [sys.executable, "-m", "jaxmf._kernels.fusion_trial", dumps],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            )
            return json.loads(child.stdout.strip().splitlines()[-1])
        except (subprocess.CalledProcessError, ValueError, IndexError):
            return None


def _answers_file() -> Path | None:
    folder = default_folder()
    return None if folder is None else folder.expanduser() / _FILE


def _read(file: Path | None) -> dict[str, bool]:
    try:
        answers = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, ValueError):
        return {}
    if not isinstance(answers, dict):
        return {}
    return {name: answer for name, answer in answers.items() if isinstance(answer, bool)}


def _write(file: Path | None, answers: dict[str, bool]) -> None:
    """Keeps the answers; where that is not possible, the next process asks again."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{_FILE}-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(answers, stream)
        os.replace(name, file)
    except OSError:
        return
