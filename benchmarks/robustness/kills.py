"""SIGKILL at random moments of runs of every model; resumed, they must end with the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.tiny import CASES, QUICK_CASES, ROOT, differing, environment, fit

SEED = 15
NUM_KILLS = 60
NUM_QUICK = 6
NUM_STEPS = 40
CHILD = """
import sys, time
from benchmarks.robustness.tiny import fit
def say(report):
    print(report.step, flush=True)
    time.sleep(0.01)
fit(sys.argv[1], num_steps=int(sys.argv[2]), checkpoint=sys.argv[3], checkpoint_seconds=0,
    progress=say)
print("finished", flush=True)
"""


def kill(case: str, folder: Path, target: int, delay: float) -> bool:
    """Kills a run some time after it reports a step; says whether it was under way."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, case, str(NUM_STEPS), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    line = ""
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "finished\n" or int(line) >= target:
                break
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        return "finished\n" not in (line, *process.stdout)


def resumed(case: str, index: int, whole: dict[str, bytes]) -> tuple[str, bool]:
    """What is wrong with a killed run once resumed, empty if nothing; whether it was under way.

    Args:
        case: of `tiny.CASES`.
        index: of the kill, which its random moment depends on.
        whole: what an undisturbed run says.
    """
    moment = random.Random(f"{SEED} {index}")
    last = int(whole.get("num_steps", b"6"))
    target = moment.randint(1, max(1, int(0.9 * last)))
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "run"
        was_under_way = kill(case, folder, target, moment.uniform(0.0, 0.02))
        kept: dict[str, Any] = {"checkpoint": folder, "checkpoint_seconds": 0, "resume": True}
        try:
            wrong = ", ".join(differing(whole, fit(case, num_steps=NUM_STEPS, **kept)))
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    return wrong and f"killed after step {target}: {wrong}", was_under_way


def measure(quick: bool) -> list[Row]:
    """Sixty kills over all models, or six over three."""
    return [count(*((QUICK_CASES, NUM_QUICK) if quick else (CASES, NUM_KILLS)))]


def count(cases: tuple[str, ...], num_kills: int) -> Row:
    """The faults of so many kills, the cases one after the other."""
    whole: dict[str, dict[str, bytes]] = {}
    num_wrong = num_killed = 0
    for index in range(num_kills):
        case = cases[index % len(cases)]
        if case not in whole:
            whole[case] = fit(case, num_steps=NUM_STEPS)
        wrong, was_under_way = resumed(case, index, whole[case])
        num_killed += was_under_way
        if wrong:
            num_wrong += 1
            print(f"{case} {wrong}", file=sys.stderr)
    return row_of(num_wrong, num_killed, num_kills, len(cases))


def row_of(num_wrong: int, num_killed: int, num_kills: int, num_cases: int) -> Row:
    """The row of so many kills, some of them of runs that had ended before."""
    note = (
        f"SIGKILL at random moments, {num_killed} of {num_kills} under way, {num_cases} models by "
        f"their methods, {NUM_STEPS} steps, seed {SEED}; a fault is a run that did not resume to "
        "the same bits"
    )
    return fault_row("kills", num_wrong, num_kills, before=None, note=note)
