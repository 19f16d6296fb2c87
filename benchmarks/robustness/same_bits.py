"""The same seed gives the same bits, however a run is cut, shown, saved, or spread over threads."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.tiny import CASES, QUICK_CASES, ROOT, differing, environment, fit

NUM_STEPS = 12
CHILD = """
import sys
from benchmarks.robustness.same_bits import digests
for case, digest in digests(sys.argv[1:]).items():
    print(case, digest)
"""


def digests(cases: list[str]) -> dict[str, str]:
    """One digest of everything that a run of each of these cases says."""
    found = {}
    for case in cases:
        contents = fit(case, num_steps=NUM_STEPS, chunk_seconds=None)
        whole = b"".join(name.encode() + value for name, value in sorted(contents.items()))
        found[case] = hashlib.sha256(whole).hexdigest()
    return found


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
        kept = {"checkpoint": Path(root) / "run", "checkpoint_seconds": 0}
        found["checkpoint"] = fit(case, num_steps=NUM_STEPS, **kept)
        found["read back"] = fit(case, num_steps=NUM_STEPS, resume=True, **kept)
    if case.endswith("/sample"):
        found["vectorized"] = fit(case, num_steps=NUM_STEPS, chain_method="vectorized")
    return found


def measure(quick: bool) -> list[Row]:
    """Counts of what differs, for all models or three."""
    return count(QUICK_CASES if quick else CASES)


def count(cases: tuple[str, ...]) -> list[Row]:
    """The faults of these cases."""
    num_compared = num_wrong = num_sampled = 0
    vectorized = []
    for case in cases:
        found = variants(case)
        whole = found.pop("whole")
        beside = found.pop("vectorized", None)
        if beside is not None:
            num_sampled += 1
            draws = [name for name in differing(whole, beside) if "draws" in name]
            vectorized += [case] if draws else []
        for name, contents in found.items():
            num_compared += 1
            wrong = differing(whole, contents)
            if wrong:
                num_wrong += 1
                print(f"{case}: {name}: {wrong}", file=sys.stderr)
    one, two = (in_a_process(cases, threads) for threads in (1, 2))
    again = in_a_process(cases, 1)
    num_threads = sum(one[case] != two[case] for case in cases)
    for case in cases:
        if one[case] != two[case]:
            print(f"{case}: differs between 1 and 2 threads", file=sys.stderr)
    num_processes = sum(one[case] != again[case] for case in cases)
    runs = f"{len(cases)} models by their methods, {NUM_STEPS} steps, seed 3"
    others = ", ".join(case.split("/")[0] for case in vectorized) or "none"
    counts = {
        "cuts": (num_wrong, num_compared, "chunks of one step, progress, checkpoints, read back"),
        "threads": (num_threads, len(cases), "1 and 2 threads"),
        "processes": (num_processes, len(cases), "two processes"),
        "vectorized": (
            len(vectorized),
            num_sampled,
            f"not promised; chains in one program differ from sequential ones for {others}",
        ),
    }
    return [
        fault_row(f"same_bits/{name}", wrong, total, before=None, note=f"{runs}: {what}")
        for name, (wrong, total, what) in counts.items()
    ]
