"""Checkpoints among others: a second process, a full disk, a folder that cannot be written to."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxmf as mf
from benchmarks.robustness import crash_points
from jaxmf import cli, registry
from jaxmf.engine import CheckpointWarning, LockedError, checkpoint, files, load_run, lock, run
from jaxmf.engine.storage import Storage
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs

ROOT = Path(__file__).parents[2]
DATA = np.array([1.0, 2.0])
SETTINGS = {"num_warmup": 3, "num_samples": 9, "num_chains": 2, "chunk_seconds": 1e-9}

HOLDER = """
import sys, numpy as np
from jaxmf.engine import run
from tests.support.engine_toys import pair_gibbs
run(pair_gibbs(), np.array([1.0, 2.0]), num_warmup=3, num_samples=2**26, chunk_seconds=0.05,
    num_chains=2, checkpoint=sys.argv[1], checkpoint_seconds=0,
    progress=lambda report: print(report.step, flush=True))
"""


def checkpointed(folder, **settings):
    kept = {"checkpoint": folder, "checkpoint_seconds": 0}
    return run(pair_gibbs(), DATA, **(SETTINGS | kept | settings))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_second_process_is_refused_and_a_killed_one_blocks_nobody(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64))},
    )
    for _ in range(3):
        assert process.stdout.readline()
    with pytest.raises(LockedError) as caught:
        checkpointed(tmp_path, resume=True)
    for words in (str(tmp_path), f"process {process.pid} on ", "since ", "another folder"):
        assert words in str(caught.value)
    with pytest.raises(LockedError):
        lock.refuse_if_locked(tmp_path)
    process.kill()
    process.communicate()
    step = load_run(tmp_path)[0].num_steps
    assert step > 0
    resumed = checkpointed(tmp_path, resume=True, num_samples=step + 5)
    assert_same_run(resumed, run(pair_gibbs(), DATA, **(SETTINGS | {"num_samples": step + 5})))
    assert lock.LOCK not in names(tmp_path)


def test_a_second_run_of_the_same_process_is_refused(tmp_path):
    def again(report):
        if report.step == 5:
            with pytest.raises(LockedError, match="another run of this process"):
                checkpointed(tmp_path, resume=True)
            with pytest.raises(LockedError, match="another run of this process"):
                checkpointed(tmp_path)

    assert checkpointed(tmp_path, progress=again).complete
    assert checkpointed(tmp_path, resume=True).complete


def test_without_locks_of_the_system_the_process_in_the_file_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_lock", lambda descriptor: None)
    held = lock.FolderLock(tmp_path)
    with pytest.raises(LockedError, match="this process"):
        lock.FolderLock(tmp_path)
    held.release()
    # one that died without letting go
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, text=True
    )
    held = lock.FolderLock(tmp_path)
    text = (tmp_path / lock.LOCK).read_text()
    (tmp_path / lock.LOCK).write_text(text.replace(str(os.getpid()), ended.stdout.strip()))
    lock.FolderLock(tmp_path).release()
    os.close(held._descriptor)
    assert names(tmp_path) == []


def assert_no_litter(folder):
    """All files are named by the manifest, and whole."""
    load_run(folder)
    saved = json.loads((folder / "checkpoint.json").read_text())
    files_of_run = [entry["file"] for entry in [*saved["draws"], *filter(None, [saved["state"]])]]
    there = set(names(folder)) - {"checkpoint.json", lock.LOCK}
    assert there == set(files_of_run)


# every error of the system is taken alike: each of them once, and each file
@pytest.mark.parametrize(
    ("which", "error_name"),
    [("draws", "ENOSPC"), ("state", "EDQUOT"), ("checkpoint.json", "EIO"), ("draws", "EROFS")],
)
def test_a_run_outlives_a_disk_that_is_full_for_a_while(tmp_path, monkeypatch, error_name, which):
    # before, the run ended with a bare OSError and its draws were lost
    whole = run(pair_gibbs(), DATA, **SETTINGS)
    fsync, now, code = os.fsync, {"step": 0}, getattr(errno, error_name)

    def failing(descriptor):
        # the file was written, the disk says so only when it is synced
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if 5 <= now["step"] < 8 and which in Path(name).name:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    def note(report):
        now["step"] = report.step
        assert_no_litter(tmp_path)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.warns(CheckpointWarning) as caught:
        result = checkpointed(tmp_path, progress=note)
    assert_same_run(whole, result)
    assert len(caught) == 1  # said once, not at each try
    for words in (str(tmp_path), which, os.strerror(code), " free", "It needs", "from step 4,"):
        assert words in str(caught[0].message)
    assert_no_litter(tmp_path)
    assert_same_run(whole, checkpointed(tmp_path, resume=True))


def test_a_disk_that_stays_full_costs_the_checkpoint_and_not_the_draws(tmp_path):
    # a real limit of the system: no file may be larger than what is there so far
    whole = run(growing(), np.zeros(()), **(SETTINGS | {"num_samples": 40}))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(report):
        if report.step == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    settings = SETTINGS | {"num_samples": 40, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    try:
        with pytest.warns(CheckpointWarning) as caught:
            result = run(growing(), np.zeros(()), progress=fill, **settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_same_run(whole, result)
    first, last = (str(warning.message) for warning in caught)
    assert "The run continues and tries again" in first
    assert "its draws are returned" in last
    assert_no_litter(tmp_path)
    assert load_run(tmp_path)[0].num_steps == 5
    resumed = run(growing(), np.zeros(()), resume=True, **settings)
    assert_same_run(whole, resumed)


@pytest.mark.parametrize("what", ["save", "report"])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, what):
    posterior = mf.sample(
        mf.MixtureOfGaussians(2), np.eye(6), num_warmup=1, num_samples=3, num_chains=1
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=str(tmp_path)):
            getattr(posterior, what)(tmp_path / "run" if what == "save" else tmp_path / "a.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_is_removed_on_the_way_costs_the_checkpoint_alone(tmp_path):
    folder = tmp_path / "run"

    def remove(report):
        if report.step == 6:
            shutil.rmtree(folder)

    with pytest.warns(CheckpointWarning, match="No such file") as caught:
        assert checkpointed(folder, progress=remove).complete
    for warning in caught:
        assert "is gone" in str(warning.message)
        assert "resume=True" not in str(warning.message)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_run(tmp_path, monkeypatch):
    def never(report):
        raise AssertionError("a step was made")

    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written to .* was not started.*/file/run"):
        checkpointed(tmp_path / "file" / "run", progress=never)
    opened = os.open

    def read_only(path, flags, *mode, **settings):
        if flags & os.O_CREAT and str(tmp_path) in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *mode, **settings)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match=r"Read-only file system.* was not started"):
        checkpointed(tmp_path / "run", progress=never)


def test_the_command_line_saves_what_there_is_and_exits_as_the_signal_asks(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("JAXMF_CACHE", "off")
    name = "linear-gaussian-ibp"
    np.save(tmp_path / "X.npy", registry.get(name).example()[1].to_array())
    arguments = ["fit", name, str(tmp_path / "X.npy"), "--out", str(tmp_path / "run")]
    arguments += ["--chains", "1", "--warmup", "4", "--checkpoint-every", "0"]
    arguments += ["--set", "alpha=1.0", "--set", "noise_scale=0.3", "--set", "feature_scale=1.0"]
    save = Storage.save

    def save_and_stop(self, now, *, at_once):
        if now.step > 6:
            signal.raise_signal(signal.SIGTERM)
        save(self, now, at_once=at_once)

    monkeypatch.setattr(Storage, "save", save_and_stop)
    assert cli.run([*arguments, "--samples", "5000"]) == 143
    assert "stopped by SIGTERM; the draws so far are written" in capsys.readouterr().err
    monkeypatch.undo()
    stopped = mf.load(tmp_path / "run")
    num_draws = stopped.draws["z"].shape[1]
    assert 0 < num_draws < 5000
    with lock_held(tmp_path / "run" / "checkpoint"):
        assert cli.run([*arguments, "--samples", "5000", "--overwrite"]) == 2
    assert "is being written to by another run" in capsys.readouterr().err
    assert cli.run([*arguments, "--samples", str(num_draws + 3), "--resume"]) == 0
    resumed = mf.load(tmp_path / "run")
    np.testing.assert_array_equal(
        resumed.draws["log_joint"][:, :num_draws], stopped.draws["log_joint"]
    )


@contextlib.contextmanager
def lock_held(folder):
    held = lock.FolderLock(folder)
    try:
        yield
    finally:
        held.release()


def test_what_a_crash_before_the_first_manifest_leaves_is_removed(tmp_path):
    (tmp_path / ".checkpoint.json.0123456789abcdef.partial").write_text("{")
    (tmp_path / lock.LOCK).write_text("")
    assert checkpointed(tmp_path, resume=True).complete
    assert_no_litter(tmp_path)
    assert lock.LOCK not in names(tmp_path)


def test_a_crash_at_any_moment_of_a_checkpoint_of_a_model_is_resumed_bit_for_bit(tmp_path):
    """What `python -m benchmarks robustness --only crash_points` tries, of one model."""
    found = list(crash_points.trials("linear-gaussian-ibp/sample", tmp_path))
    assert [wrong for wrong, _ in found if wrong] == []
    assert len(found) > 80
    operations = {described.split()[-2] for _, described in found}
    assert operations == {"open", "fsync", "replace", "unlink"}
    assert any(" bytes into write " in described for _, described in found)


def test_the_check_of_crash_points_sees_what_is_lost(tmp_path, monkeypatch):
    # a twin that names the new files before they are there
    monkeypatch.setattr(files, "_sync_folder", lambda folder: None)
    write = checkpoint.Folder._write_manifest

    def too_early(self):
        before = self._state_file
        self._state_file = None if before is None else {**before, "sha256": "0" * 64}
        write(self)
        self._state_file = before
        write(self)

    monkeypatch.setattr(checkpoint.Folder, "_write_manifest", too_early)
    found = crash_points.trials("linear-gaussian-ibp/sample", tmp_path)
    assert any(wrong for wrong, _ in found)


def test_the_check_of_crash_points_sees_litter(tmp_path, monkeypatch):
    name = "linear-gaussian-ibp/sample"
    monkeypatch.setattr(checkpoint.Folder, "_remove_leftovers", lambda self: None)
    found = [wrong for wrong, _ in crash_points.trials(name, tmp_path)]
    assert any("is not the last complete save" in wrong for wrong in found)
