"""Files of draws that are merged: few of them, the same draws, whenever the process dies."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from jaxmf.engine import checkpoint, files, load_run, lock, run
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs

DATA = np.array([0.5, -1.0], np.float32)
CHAIN = {"seed": 4, "num_warmup": 1, "num_chains": 2, "chunk_seconds": 1e-9}


def saved(folder, num_samples, toy=pair_gibbs, data=DATA, **settings):
    settings = {"checkpoint": folder, "checkpoint_seconds": 0, **CHAIN, **settings}
    return run(toy(), data, num_samples=num_samples, **settings)


def num_files(folder):
    return len(list(folder.glob("draws-*.npz")))


@pytest.fixture
def eager(monkeypatch):
    """Merges at every save, so that few saves have all its steps."""
    monkeypatch.setattr(checkpoint, "_FEWEST_MERGED", 2)
    monkeypatch.setattr(checkpoint, "_LARGEST_PART", 1)


def saved_directly(path, num_saves, num_values=100):
    """The folder after saves of one draw each, and the bytes of draws that were written."""
    path.mkdir()
    folder, num_bytes = checkpoint.Folder(path, {}), 0
    write_arrays = files.write_arrays

    def counting(where, name, arrays):
        nonlocal num_bytes
        record = write_arrays(where, name, arrays)
        num_bytes += record["bytes"] * name.startswith("draws")
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "write_arrays", counting)
        patch.setattr(os, "fsync", lambda descriptor: None)
        for step in range(1, num_saves + 1):
            draws = {"x": np.full((1, 1, num_values), step)}
            folder.save({"step": step, "num_draws": step}, {"s": np.zeros(1)}, draws, 1)
    return folder, num_bytes


def steps_in(folder):
    return [
        step
        for entry in folder._draw_files
        for step in files.read_arrays(folder.path, entry)["x"][0, :, 0].tolist()
    ]


def test_many_saves_leave_few_files_with_the_same_draws(tmp_path):
    folder, _ = saved_directly(tmp_path / "run", 300)
    assert steps_in(folder) == list(range(1, 301))
    assert num_files(folder.path) == len(folder._draw_files) < 31
    starts = [entry["file"].split("-")[1] for entry in folder._draw_files]
    assert starts[0] == "0"
    assert list(map(int, starts)) == sorted(map(int, starts))


def test_a_run_of_many_chunks_is_read_as_it_was(tmp_path):
    whole = run(growing(), np.zeros(()), num_samples=40, **CHAIN)  # draws become wider on the way
    assert_same_run(whole, saved(tmp_path, 40, growing, np.zeros(())))
    assert num_files(tmp_path) < 20
    again, _ = load_run(tmp_path)
    for name, draws in whole.draws.items():
        np.testing.assert_array_equal(again.draws[name], draws)


def test_large_files_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_MOST_MERGED", 20 * 1_100)  # a draw has 1,068 bytes
    folder, _ = saved_directly(tmp_path / "run", 90)
    sizes = [path.stat().st_size for path in folder.path.glob("draws-*")]
    assert max(sizes) < 20 * 1_100
    assert len(sizes) >= 5
    assert steps_in(folder) == list(range(1, 91))


@pytest.mark.slow
def test_a_draw_is_written_a_few_times_however_long_the_run(tmp_path, monkeypatch):
    _, num_bytes = saved_directly(tmp_path / "run", 512)
    assert num_bytes < 4 * 512 * 1_068
    # a twin that merges whatever it can, the whole run again every 15 saves
    monkeypatch.setattr(checkpoint, "_LARGEST_PART", 1)
    _, num_bytes = saved_directly(tmp_path / "twin", 512)
    assert num_bytes > 8 * 512 * 1_068


# after a file was synced is before it is renamed
@pytest.mark.tiers(
    slow=["fsync-False", "replace-False", "replace-True", "unlink-True"], exhaustive=["fsync-True"]
)
@pytest.mark.parametrize(
    ("operation", "after"),
    [(name, after) for name in ("replace", "fsync", "unlink") for after in (False, True)],
)
def test_killed_between_any_two_steps_it_resumes_bit_for_bit(
    tmp_path, monkeypatch, eager, operation, after
):
    class Killed(BaseException):
        """Stands for the death of the process."""

    whole = run(pair_gibbs(), DATA, num_samples=3, **CHAIN)
    plain = getattr(os, operation)
    for death in range(60):
        folder, count = tmp_path / str(death), 0

        def dying(*args, death=death, **options):
            nonlocal count
            is_lock = operation == "unlink" and Path(args[0]).name == lock.LOCK
            if is_lock:
                plain(*args, **options)
                return
            count += 1
            if count == death + 1 and not after:
                raise Killed
            plain(*args, **options)
            if count == death + 1:
                raise Killed

        monkeypatch.setattr(os, operation, dying)
        died = False
        try:
            saved(folder, 3)
        except Killed:
            died = True
        monkeypatch.setattr(os, operation, plain)
        if any(folder.glob("checkpoint.json")):
            load_run(folder)  # what is there is whole
        assert_same_run(whole, saved(folder, 3, resume=True))
        assert {path.name for path in folder.iterdir()} == {
            "checkpoint.json",
            "draws-0-3.npz",
            "state-4.npz",
        }
        if not died:
            break
    assert death >= {"replace": 14, "fsync": 28, "unlink": 5}[operation]


@pytest.mark.parametrize("which", ["draws-0-", "checkpoint.json", "folder"])
def test_a_merge_that_cannot_be_written_leaves_the_files_as_they_are(
    tmp_path, monkeypatch, eager, which
):
    whole = run(growing(), np.zeros(()), num_samples=6, **CHAIN)
    merge, sync_folder, is_merging = checkpoint.Folder._merge, files._sync_folder, False
    fsync = os.fsync

    def merging(self):
        nonlocal is_merging
        is_merging = True
        merge(self)
        is_merging = False

    def failing(descriptor):
        if is_merging and which in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    def failing_folder(folder):
        # the names are new already, and the disk says only now that they may be lost
        sync_folder(folder)
        if is_merging and which == "folder":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(checkpoint.Folder, "_merge", merging)
    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(files, "_sync_folder", failing_folder)
    assert_same_run(whole, saved(tmp_path, 6, growing, np.zeros(())))
    assert num_files(tmp_path) == 6
    monkeypatch.undo()
    assert_same_run(whole, saved(tmp_path, 6, growing, np.zeros(()), resume=True))


def test_a_manifest_that_is_there_already_is_not_taken_back(tmp_path, monkeypatch, eager):
    # the manifest has its new name, and the folder cannot be synced any more
    whole = run(pair_gibbs(), DATA, num_samples=2, **CHAIN)
    merge, sync_folder = checkpoint.Folder._merge, files._sync_folder

    def merging(self):
        num_synced = 0

        def failing(folder):
            nonlocal num_synced
            num_synced += 1
            if num_synced == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync_folder(folder)

        monkeypatch.setattr(files, "_sync_folder", failing)
        merge(self)
        monkeypatch.setattr(files, "_sync_folder", sync_folder)

    monkeypatch.setattr(checkpoint.Folder, "_merge", merging)
    saved(tmp_path, 2)
    assert (tmp_path / "draws-0-2.npz").exists()
    again, _ = load_run(tmp_path)
    np.testing.assert_array_equal(again.draws["x"], whole.draws["x"])


def test_whoever_reads_meanwhile_has_one_set_or_the_other(tmp_path, monkeypatch, eager):
    saved(tmp_path, 4)
    read_arrays, begun, num_reads = files.read_arrays, False, 0

    def overtaken(folder, record):
        nonlocal begun, num_reads
        num_reads += threading.current_thread() is threading.main_thread()
        if not begun:  # the manifest was read: now the run goes on
            begun = True
            saved(tmp_path, 8, resume=True)
        return read_arrays(folder, record)

    monkeypatch.setattr(files, "read_arrays", overtaken)
    found, _ = load_run(tmp_path)
    whole = run(pair_gibbs(), DATA, num_samples=8, **CHAIN)
    np.testing.assert_array_equal(found.draws["x"], whole.draws["x"])
    assert num_reads > 2


def test_checkpoints_of_earlier_versions_are_continued(tmp_path, monkeypatch):
    whole = run(pair_gibbs(), DATA, num_samples=40, **CHAIN)
    count = iter(range(40))
    monkeypatch.setattr(checkpoint, "_name_of_draws", lambda row, num: f"draws-{next(count)}.npz")
    monkeypatch.setattr(checkpoint.Folder, "_merge", lambda self: None)
    saved(tmp_path, 20)
    assert (tmp_path / "draws-19.npz").exists()
    monkeypatch.undo()
    assert_same_run(whole, saved(tmp_path, 40, resume=True))
    assert num_files(tmp_path) == 1 + 1 + 3  # of 21 draws, of 16 and of one each
    again, _ = load_run(tmp_path)
    np.testing.assert_array_equal(again.draws["x"], whole.draws["x"])
