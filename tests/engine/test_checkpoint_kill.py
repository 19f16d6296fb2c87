"""Killed with SIGKILL at random moments, a run goes on to the very bits of an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxmf.engine import run
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs

ROOT = Path(__file__).parents[2]
SETTINGS = {"seed": 11, "num_warmup": 20_000, "num_samples": 2_000, "thin": 10, "num_chains": 2}
TOYS = {"pair_gibbs": (pair_gibbs, np.array([1.0, -2.0])), "growing": (growing, np.zeros(()))}

PROGRAM = """
import sys
from jaxmf.engine import run
from tests.engine.test_checkpoint_kill import SETTINGS, TOYS
name, folder, chunk_seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
toy, data = TOYS[name]
def say(report):
    print(report.step, flush=True)
run(toy(), data, checkpoint=folder, checkpoint_seconds=0, chunk_seconds=chunk_seconds,
    resume=True, progress=say, **SETTINGS)
print("finished", flush=True)
"""


def start(name, folder, chunk_seconds, cache):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name, str(folder), str(chunk_seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        },
    )


def kill_under_way(process, target, delay):
    """Kills the process some time after it reports the target step; says if it was not done."""
    with process:
        for line in process.stdout:
            if line == "finished\n" or int(line) >= target:
                break
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        return "finished\n" not in (line, *process.stdout)


@pytest.mark.parametrize(
    "num_kills",
    [pytest.param(5, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.exhaustive)],
)
def test_killed_at_random_moments(tmp_path, num_kills):
    moments = random.Random(2026)
    whole = {name: run(toy(), data, **SETTINGS) for name, (toy, data) in TOYS.items()}
    num_killed, steps = 0, []
    for kill in range(num_kills):
        name = list(TOYS)[kill % 2]
        toy, data = TOYS[name]
        folder = tmp_path / str(kill)
        process = start(name, folder, moments.choice([0.02, 0.05, 0.2]), tmp_path / "cache")
        target = moments.randint(0, int(0.8 * whole[name].num_steps))
        num_killed += kill_under_way(process, target, delay=moments.uniform(0.0, 0.1))
        seen = []
        resumed = run(
            toy(),
            data,
            checkpoint=folder,
            resume=True,
            chunk_seconds=moments.choice([0.05, 1.0]),
            progress=lambda report, seen=seen: seen.append(report.step),
            **SETTINGS,
        )
        steps.append(seen[0] - 1 if seen else resumed.num_steps)
        assert resumed.complete
        assert_same_run(whole[name], resumed)
    print(f"{num_killed} of {num_kills} killed under way, at steps {sorted(steps)}")
    assert num_killed >= num_kills // 2
    assert len(set(steps)) > num_kills // 2
