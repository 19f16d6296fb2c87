"""Runs of two processes that end early: one killed, one asked to stop; and how they continue."""

import signal
import time

import numpy as np
import pytest

from jaxmf.engine import load_run
from tests.support.two_processes import printed, started

RUN = """
import time
from jaxmf.engine import run
from tests.support.engine_toys import growing

folder, num_samples, is_slow = arguments[0], int(arguments[1]), arguments[2] == "slow"
done = run(
    growing(),
    np.zeros(()),
    mesh=mesh_of(4, ("chain",)),
    seed=1,
    num_samples=num_samples,
    num_chains=4,
    chunk_seconds=1e-3 if is_slow else 0.5,
    progress=lambda report: time.sleep(0.1 * is_slow),
    checkpoint=folder,
    checkpoint_seconds=0 if is_slow else 10,
    draws_folder=folder + "-draws",
    resume=True,
)
for name, draws in done.draws.items():
    assert np.array_equal(np.load(f"{folder}-draws/{name}.npy")[:, : done.num_draws], draws), name
print(done.num_draws, done.complete)
"""
MANY = 100_000


def wait_for_steps(folder, process):
    """Until a checkpoint has some draws."""
    for _ in range(6_000):
        if (folder / "checkpoint.json").exists() and load_run(folder)[0].num_draws >= 3:
            return
        assert process.poll() is None, process.communicate()[1][-3000:]
        time.sleep(0.05)
    raise AssertionError("no checkpoint")


def assert_goes_on(folder, whole, *, count):
    """Resumed from the folder by so many processes, the draws are those of a run never stopped."""
    num_draws = load_run(folder)[0].num_draws + 5
    for lines in printed(RUN, str(folder), str(num_draws), "fast", count=count):
        assert lines == [f"{num_draws} True"]
    assert_beginning(folder, whole)


def assert_beginning(folder, whole):
    draws, expected = load_run(folder)[0].draws, load_run(whole)[0].draws
    assert draws.keys() == expected.keys()
    for name, found in draws.items():
        cells = tuple(slice(0, size) for size in found.shape)
        np.testing.assert_array_equal(found, expected[name][cells], err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run of one process with four devices, never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert printed(RUN, str(folder), "500", "fast", count=1) == [["500 True"]]
    return folder


@pytest.mark.tiers(exhaustive=["1-2"])
@pytest.mark.slow
@pytest.mark.parametrize(("killed", "count"), [(0, 1), (1, 2)])
def test_where_one_process_is_killed_the_other_ends_and_as_many_as_one_likes_continue(
    killed, count, whole, tmp_path
):
    folder = tmp_path / "run"
    with started(RUN, str(folder), str(MANY), "slow") as processes:
        wait_for_steps(folder, processes[0])
        processes[killed].send_signal(signal.SIGKILL)
        out, errors = processes[1 - killed].communicate(timeout=120)
        assert processes[1 - killed].returncode != 0, out + errors
    assert_goes_on(folder, whole, count=count)


@pytest.mark.tiers(exhaustive=["0"])
@pytest.mark.slow
@pytest.mark.parametrize("asked", [0, 1])
def test_where_one_process_is_asked_to_stop_both_end_with_a_checkpoint(asked, whole, tmp_path):
    folder = tmp_path / "run"
    with started(RUN, str(folder), str(MANY), "slow") as processes:
        wait_for_steps(folder, processes[0])
        processes[asked].send_signal(signal.SIGTERM)
        ended = [process.communicate(timeout=120) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], ended
    num_draws = load_run(folder)[0].num_draws
    for out, _ in ended:
        assert out.splitlines()[-1] == f"{num_draws} False"
    assert_beginning(folder, whole)


@pytest.mark.exhaustive
def test_what_is_wrong_with_the_folder_ends_both(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with started(RUN, str(tmp_path), "5", "fast") as processes:
        (_, first), (_, second) = [process.communicate(timeout=300) for process in processes]
    assert "ValueError: checkpoint: the folder" in first
    assert "RuntimeError: the first process of this run has ended with ValueError: che" in second
