"""Finds out whether this jaxlib compiles a loop into one CPU kernel on request, and gets it right.

The request that `jaxmf.fusion` makes is an internal attribute of XLA, which may end the process
where a release does not know it. So a child process tries it (`jaxmf.fusion_trial`). The request
is made if the child ends well, the values are the same bits as without it, and the compiler made no
more kernels of it. The answer is kept beside the compilation cache, one for each release and
processor.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jaxlib

from jaxmf.engine.compilation_cache import default_folder

_SECONDS = 60.0
_FILE = "fusion.json"


@functools.cache
def is_granted() -> bool:
    """Whether the request works with this jaxlib on this processor; asked once a process."""
    file = _answers_file()
    answers = _read(file)
    name = f"jaxlib {jaxlib.__version__}, {platform.machine()}"
    if name not in answers:
        answers = {**_read(file), name: _is_sound(_run_child())}
        _write(file, answers)
    return answers[name]


def _is_sound(findings: dict[str, Any] | None) -> bool:
    """Whether the findings of the child speak for the request."""
    if findings is None:
        return False
    return all(
        found["same_bits"] and found["num_kernels"] <= found["num_kernels_plain"]
        for found in findings.values()
    )


def _run_child() -> dict[str, Any] | None:
    """What the child printed; None if it ended in any other way."""
    if not sys.executable:
        return None
    with tempfile.TemporaryDirectory(prefix="jaxmf-fusion-") as dumps:
        environment = dict(os.environ) | {
            "JAX_PLATFORMS": "cpu",
            "JAXMF_FUSE_LOOPS": "1",
            "XLA_FLAGS": f"--xla_dump_to={dumps} --xla_dump_hlo_module_re=jit_probe_.*",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        # a program read from the cache would dump no kernels
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        try:
            child = subprocess.run(
                [sys.executable, "-m", "jaxmf.fusion_trial", dumps],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=True,
            )
            return json.loads(child.stdout.strip().splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError):
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
