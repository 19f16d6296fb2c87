"""The same seed gives the same bits, however a run is cut, shown, saved, or spread over threads."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.tiny import CASES, QUICK_CASES, ROOT, differing, environment, fit

NUM_STEPS = 12
_LOG_JOINT = "['draws']['log_joint']"
CHILD = """
import sys
from benchmarks.robustness.same_bits import digests
for case, digest in digests(sys.argv[1:]).items():
    print(case, digest)
"""


def digests(cases: list[str]) -> dict[str, str]:
    """One digest of everything that a run of each of these cases says."""
    return {case: digest(fit(case, num_steps=NUM_STEPS, chunk_seconds=None)) for case in cases}


def digest(contents: dict[str, bytes]) -> str:
    """SHA-256, in hex, of everything that a run says."""
    whole = b"".join(name.encode() + value for name, value in sorted(contents.items()))
    return hashlib.sha256(whole).hexdigest()


def in_a_process(cases: tuple[str, ...], threads: int) -> dict[str, str]:
    """The digests from a process whose XLA has so many threads."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *cases],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(PJRT_NPROC=str(threads)),
        check=True,
    )
    return dict(line.split() for line in done.stdout.splitlines())


def variants(case: str) -> dict[str, dict[str, bytes]]:
    """Runs of a case that must agree, and under ``vectorized`` one that may not."""
    found = {
        "whole": fit(case, num_steps=NUM_STEPS, chunk_seconds=None),
        "chunks": fit(case, num_steps=NUM_STEPS, chunk_seconds=1e-9),
        "progress": fit(case, num_steps=NUM_STEPS, progress=lambda report: None),
    }
    with tempfile.TemporaryDirectory() as root:
        kept: dict[str, Any] = {"checkpoint": Path(root) / "run", "checkpoint_seconds": 0}
        found["checkpoint"] = fit(case, num_steps=NUM_STEPS, **kept)
        found["read back"] = fit(case, num_steps=NUM_STEPS, resume=True, **kept)
    if case.endswith("/sample"):
        found["vectorized"] = fit(case, num_steps=NUM_STEPS, chain_method="vectorized")
    return found


class Comparison(NamedTuple):
    """How the runs of a case compare.

    Attributes:
        differences: of each other variant what differs, empty if nothing.
        vectorized: draws that differ with all chains in one program; None without chains.
        digest: of the whole run.
    """

    differences: dict[str, list[str]]
    vectorized: list[str] | None
    digest: str


def compare(case: str) -> Comparison:
    """The variants of a case beside the whole run."""
    found = variants(case)
    whole, beside = found.pop("whole"), found.pop("vectorized", None)
    draws = None
    if beside is not None:
        draws = [name for name in differing(whole, beside) if "draws" in name]
    differences = {name: differing(whole, contents) for name, contents in found.items()}
    return Comparison(differences, draws, digest(whole))


def measure(quick: bool) -> list[Row]:
    """Counts of what differs, for all models or three."""
    cases = QUICK_CASES if quick else CASES
    compared = {case: compare(case) for case in cases}
    return rows_of(compared, *(in_a_process(cases, threads) for threads in (1, 2)))


def rows_of(compared: dict[str, Comparison], one: dict[str, str], two: dict[str, str]) -> list[Row]:
    """The rows of what was compared.

    Args:
        compared: of each case, in this process.
        one, two: digests of a process with one thread, and of another with two.
    """
    cases = tuple(compared)
    cuts = [(c, name, wrong) for c in cases for name, wrong in compared[c].differences.items()]
    sampled = [case for case in cases if compared[case].vectorized is not None]
    wrong_cuts = [cut for cut in cuts if cut[2]]
    wrong_threads = [case for case in cases if one[case] != two[case]]
    wrong_processes = [case for case in cases if one[case] != compared[case].digest]
    for case, name, wrong in wrong_cuts:
        print(f"{case}: {name}: {wrong}", file=sys.stderr)
    for case in wrong_threads:
        print(f"{case}: differs between 1 and 2 threads", file=sys.stderr)
    for case in wrong_processes:
        print(f"{case}: differs in another process", file=sys.stderr)
    others = [case for case in sampled if compared[case].vectorized]
    rounded = [case for case in others if compared[case].vectorized == [_LOG_JOINT]]
    counts = {
        "cuts": (
            len(wrong_cuts),
            len(cuts),
            "chunks of one step, progress, checkpoints, reading back",
        ),
        "threads": (len(wrong_threads), len(cases), "1 and 2 threads"),
        "processes": (len(wrong_processes), len(cases), "two processes"),
        "vectorized": (
            len(others),
            len(sampled),
            "not promised; chains in one program differ from sequential ones in the log joint "
            f"alone for {_names(rounded)}; in more for {_names(set(others) - set(rounded))}",
        ),
    }
    runs = f"{len(cases)} models by their methods, {NUM_STEPS} steps, seed 3"
    return [
        fault_row(f"same_bits/{name}", wrong, total, before=None, note=f"{runs}: {what}")
        for name, (wrong, total, what) in counts.items()
    ]


def _names(cases: Iterable[str]) -> str:
    return ", ".join(sorted(case.split("/")[0] for case in cases)) or "none"
