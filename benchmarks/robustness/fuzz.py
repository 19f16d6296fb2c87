"""Fuzzed problems: odd data for every model, and whatever is asked of the fitted one.

Every model runs in a process of its own, which the system's clocks end after 60 s of the processor
in one problem (900 s by the wall clock); the next one continues behind it. Lines of JSON by model
keep what was found, so that a run that was broken off is continued where JAXMF_FUZZ_FOLDER is set.
``python -m benchmarks.robustness.fuzz FOLDER --number 300 --seconds 120 [NAME ...]`` adds to such
a folder; the part of `python -m benchmarks robustness` counts what lies there once it has as many.
POSIX alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.robustness import fault_row

SEED = 15
NUM_PROBLEMS = 300  # of every model
NUM_X64 = 50  # of every model with 64-bit floats
LIMIT = 60.0
SECONDS = 1_800.0  # of one model, by the wall clock
NUM_QUICK = 5
QUICK_MODELS = ("mixture-of-gaussians", "lda", "urp")
BEFORE = {"hang": 2, "crash": 1, "silent": 1, "non-finite error": 84}
"""Of the 8,139 problems at a96d6f3, most of them of the cheap models."""
NUM_BEFORE = 8_139
TRIED_BEFORE = (
    "mixture-of-gaussians", "dcm", "pam", "bi-lda", "urp", "bpmf-probit", "bpmf-features",
    "linear-gaussian-ibp-filter",
)  # fmt: skip
"""Models with 300 problems or more at a96d6f3."""
_SIGNALS = {-14: "waited for 900 s", -27: "no answer within the limit of the processor"}
_MOST_SHOWN = 10  # faults of a model
_COMPILED_CHEAPLY = "--xla_backend_optimization_level=0"


def run(
    name: str,
    file: Path,
    *,
    number: int,
    seconds: float,
    one_size: bool = False,
    limit: float = LIMIT,
    x64: bool = False,
) -> None:
    """Solve the problems of one model that its file lacks, up to `number`.

    Args:
        name: key of `fuzz_models.SUBJECTS`.
        file: its lines; made if need be.
        number: problems in all.
        seconds: for this model; what is not done then is left out.
        one_size: whether the smallest data are left out, which have to be compiled for.
        limit: seconds of the processor for one problem.
        x64: whether floats have 64 bits.
    """
    added = {
        "XLA_FLAGS": _COMPILED_CHEAPLY,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": str(int(x64)),
    }
    end = time.monotonic() + seconds
    while (first := len(read(file))) < number and (left := end - time.monotonic()) > 0:
        command = [sys.executable, "-m", "benchmarks.robustness.fuzz_problem", name, str(file)]
        command += ["--first", str(first), "--stop", str(number), "--seconds", str(left)]
        command += ["--limit", str(limit)]
        ended = subprocess.run(
            [*command, *(["--one-size"] if one_size else [])],
            env=os.environ | added,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if ended.returncode == 0:
            return
        problems = _lines(file)
        if not problems or problems[-1]["verdict"] != "begun":
            raise RuntimeError(f"{name}: {ended.stderr.decode(errors='replace')[-2000:]}")
        code = ended.returncode
        verdict = "hang" if code in _SIGNALS else "crash"
        words = _SIGNALS.get(code, f"the process ended with status {code}")
        _append(file, problems[-1] | {"verdict": verdict, "words": words})


def read(file: Path) -> list[dict[str, Any]]:
    """The problems of a file that came to an end, by number."""
    return [line for line in _lines(file) if line["verdict"] != "begun"]


def _lines(file: Path) -> list[dict[str, Any]]:
    """The last line of every problem; one that was broken off with this program is begun again."""
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return list({line["number"]: line for line in lines}.values())


def _append(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as opened:
        print(json.dumps(line), file=opened)


def count(folder: Path, names: Iterable[str]) -> dict[str, Counter[str]]:
    """How often each verdict came, by model."""
    return {
        name: Counter(problem["verdict"] for problem in read(folder / f"{name}.jsonl"))
        for name in names
    }


def measure(quick: bool) -> list[Row]:
    """Faults of each kind in all problems."""
    from benchmarks.robustness.fuzz_models import SUBJECTS

    names = QUICK_MODELS if quick else tuple(SUBJECTS)
    kept = os.environ.get("JAXMF_FUZZ_FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(kept or temporary)
        for name in names:
            file = folder / f"{name}.jsonl"
            number = NUM_QUICK if quick else NUM_PROBLEMS
            run(name, file, number=number, seconds=SECONDS, one_size=quick)
            report(name, file)
        rows = rows_of(count(folder, names))
        if quick:
            return rows
        wide = folder / "x64"
        wide.mkdir(exist_ok=True)
        for name in names:
            run(name, wide / f"{name}.jsonl", number=NUM_X64, seconds=SECONDS, x64=True)
            report(name, wide / f"{name}.jsonl")
        return [*rows, row_of_x64(count(wide, names))]


def report(name: str, file: Path) -> None:
    """Print the counts of a model, and its faults."""
    problems = read(file)
    counts = Counter(problem["verdict"] for problem in problems)
    print(f"{name}: {dict(counts)}", file=sys.stderr)
    faults = [problem for problem in problems if problem["verdict"] not in ("answered", "refused")]
    for problem in faults[:_MOST_SHOWN]:
        words = problem.get("words", "")[:300]
        print(f"  {problem['number']}: {problem['verdict']}: {words}", file=sys.stderr)


def rows_of(counts: dict[str, Counter[str]]) -> list[Row]:
    """A row of every kind of fault, and one of the models that had too few problems."""
    total = sum(counts.values(), Counter())
    number = total.total()
    each = ", ".join(f"{name} {c.total()}" for name, c in counts.items())
    note = (
        f"seed {SEED}; answered {total['answered']:,}, refused with a reason {total['refused']:,}; "
        f"a96d6f3: of {NUM_BEFORE:,}, most of them of the cheap models"
    )
    rows = [
        fault_row(
            f"fuzz/{verdict.replace(' ', '-')}",
            total[verdict],
            number,
            before=before,
            note="; ".join([note, *_where(counts, verdict)]),
        )
        for verdict, before in BEFORE.items()
    ]
    few = [name for name, c in counts.items() if c.total() < NUM_PROBLEMS]
    before = sum(name not in TRIED_BEFORE for name in counts)
    rows.append(
        fault_row("fuzz/models-with-less-than-300", len(few), len(counts), before=before, note=each)
    )
    return rows


def row_of_x64(counts: dict[str, Counter[str]]) -> Row:
    """A row of all faults with 64-bit floats."""
    total = sum(counts.values(), Counter())
    number = total.total()
    num_answered, num_refused = total["answered"], total["refused"]
    tried = [c.total() for c in counts.values()]
    note = (
        f"64-bit floats; hangs, crashes, silent and non-finite errors together; seed {SEED}; "
        f"answered {num_answered:,}, refused with a reason {num_refused:,}; of each of "
        f"{len(counts)} models {min(tried)} to {max(tried)}"
    )
    return fault_row(
        "fuzz/x64", number - num_answered - num_refused, number, before=None, note=note
    )


def _where(counts: dict[str, Counter[str]], verdict: str) -> list[str]:
    found = [f"{name} {c[verdict]} of {c.total()}" for name, c in counts.items() if c[verdict]]
    return [", ".join(found)] if found else []


def main() -> None:
    """Add problems to a folder, or to one with what is there already."""
    from benchmarks.robustness.fuzz_models import SUBJECTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="models; all by default")
    parser.add_argument("--number", type=int, default=NUM_PROBLEMS, help="problems of a model")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one model")
    parser.add_argument("--x64", action="store_true", help="64-bit floats, in a folder x64 of it")
    given = parser.parse_args()
    folder = given.folder / "x64" if given.x64 else given.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or SUBJECTS:
        file = folder / f"{name}.jsonl"
        run(name, file, number=given.number, seconds=given.seconds, x64=given.x64)
        report(name, file)


if __name__ == "__main__":
    main()
