"""Checkpoints that were damaged, or changed on purpose: refused, and nothing outside is touched."""

import hashlib
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from benchmarks.robustness.tampers import changed
from jaxmf.engine import files, load_run, manifest, run
from tests.support.engine_toys import growing, stop_at

SETTINGS = {"seed": 4, "num_warmup": 3, "num_samples": 4, "thin": 2, "num_chains": 2}
DATA = np.zeros(())


def resume(folder, **settings):
    return run(growing(), DATA, checkpoint=folder, resume=True, **(SETTINGS | settings))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of a checkpoint of a run that was stopped."""
    folder = tmp_path_factory.mktemp("checkpoint")
    options = {"checkpoint": folder, "checkpoint_seconds": 0, "chunk_seconds": 1e-9}
    run(growing(), DATA, progress=stop_at(8), **options, **SETTINGS)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(written, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    for name, content in written.items():
        (path / name).write_bytes(content)
    return path


def refused(folder, match):
    for read in (load_run, resume):
        with pytest.raises(ValueError, match=match):
            read(folder)


def test_every_bit_of_a_manifest_counts(folder, written):
    generator = np.random.default_rng(15)
    original, content = load_run(folder)[0], written["checkpoint.json"]
    for position in generator.choice(len(content), 200, replace=False):
        damaged = bytearray(content)
        damaged[position] ^= 1 << generator.integers(0, 7)
        (folder / "checkpoint.json").write_bytes(bytes(damaged))
        try:
            there = load_run(folder)[0]
        except ValueError as error:
            assert "checkpoint.json" in str(error)  # noqa: PT017
        else:  # another kind of space
            assert (there.num_steps, there.num_draws) == (original.num_steps, original.num_draws)
            np.testing.assert_array_equal(there.draws["value"], original.draws["value"])


@pytest.mark.parametrize("name", ["draws-0-1.npz", "state-8.npz"])
def test_every_bit_of_an_archive_counts(folder, written, name):
    generator = np.random.default_rng(16)
    for position in generator.choice(len(written[name]), 100, replace=False):
        damaged = bytearray(written[name])
        damaged[position] ^= 1 << generator.integers(0, 8)
        (folder / name).write_bytes(bytes(damaged))
        with pytest.raises(ValueError, match=f"{name} does not agree with the check sum"):
            load_run(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("step", 7, "state file is 'state-8.npz' and should be 'state-7.npz' by step"),
        ("step", 10**9, "num_draws is 2 and should be 499999998 by step"),
        ("step", -1, "'step' cannot be -1"),
        ("step", 7.5, "'step' cannot be 7.5"),
        ("step", True, "'step' cannot be True"),
        ("num_draws", 3, "num_draws is 3 and should be 2"),
        ("num_dropped", 1, "num_dropped is 1 and should be 0 by the draws"),
        ("num_dropped", -1, "'num_dropped' cannot be -1"),
        ("draws", [], "num_dropped is 0 and should be 2 by the draws"),
        ("draws", None, "'draws' cannot be None"),
        ("draws", [{"file": "draws-0-1.npz"}], "'draws' cannot be"),
        ("complete", 1, "'complete' cannot be 1"),
        ("seconds", "1", "'seconds' cannot be '1'"),
        ("seconds", -1, "'seconds' cannot be -1"),
        ("capacity", [], "length of capacity is 0 and should be 2"),
        ("capacity", [{"slots": 10**12}] * 2, "'capacity' says 1000000000000 for 'slots'"),
        ("capacity", [{"slots": "8"}] * 2, "'capacity' cannot be"),
        ("state", None, "step is 8 and should be 0 by a state that is not there"),
        ("state", "state-8.npz", "'state' cannot be 'state-8.npz'"),
        ("settings", [], "'settings' cannot be"),
        ("settings", {}, "'settings': the key 'seed' is missing"),
        ("identity", None, "'identity' cannot be None"),
        ("stop", 3, "the key 'stop' is unknown"),
        ("format", 3, "has format 3, and this version of jaxmf reads format 2"),
        ("format", 1, "has format 1, of an early version of jaxmf without check sums"),
        ("format", "2", "has format '2'"),
    ],
)
def test_numbers_must_agree_whatever_the_check_sum(folder, key, value, message):
    with changed(folder) as content:
        content[key] = value
    refused(folder, rf"checkpoint\.json.*{message}")


def test_a_key_that_is_missing_is_named(folder, written):
    for key in json.loads(written["checkpoint.json"]):
        (folder / "checkpoint.json").write_bytes(written["checkpoint.json"])
        if key == "sha256":
            content = json.loads(written["checkpoint.json"])
            del content[key]
            (folder / "checkpoint.json").write_text(json.dumps(content))
        else:
            with changed(folder) as content:
                del content[key]
        refused(folder, rf"checkpoint\.json: the key '{key}'.* is missing")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_chains", 10**12),
        ("num_chains", 0),
        ("thin", 0),
        ("num_warmup", "3"),
        ("x64", None),
        ("chain_method", "vectorized"),
        ("chain_method", "odd"),
        ("seed", [1, 2]),
        ("mesh", 3),
    ],
)
def test_settings_must_agree_with_the_files(folder, setting, value):
    with changed(folder) as content:
        content["settings"][setting] = value
    refused(folder, r"checkpoint\.json")


@pytest.mark.parametrize(
    "name", ["../victim.npz", "{outside}", "run/../draws-0-1.npz", "draws-0", ""]
)
@pytest.mark.parametrize("part", ["state", "draws"])
def test_no_name_leads_out_of_the_folder(folder, tmp_path, part, name):
    victim = tmp_path / "victim.npz"
    victim.write_bytes((folder / "state-8.npz").read_bytes())
    with changed(folder) as content:
        entry = content["state"] if part == "state" else content["draws"][0]
        entry["file"] = name.format(outside=victim)
    refused(folder, rf"checkpoint\.json: '{part}' cannot be")
    assert victim.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs links")
@pytest.mark.parametrize("name", ["state-8.npz", "draws-0-1.npz", "checkpoint.json"])
def test_links_are_not_followed(folder, tmp_path, name):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    refused(folder, f"{name} is a link, and links are not followed")
    assert (tmp_path / name).exists()


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_is_not_waited_for(folder):
    (folder / "state-8.npz").unlink()
    os.mkfifo(folder / "state-8.npz")
    refused(folder, "state-8.npz is no plain file")


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_what_is_written_goes_through_no_link(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("checkpoint.json.partial", ".checkpoint.json.partial", "state-11.npz"):
        (folder / name).symlink_to(victim)
    whole = run(growing(), DATA, **SETTINGS)
    resumed = resume(folder, checkpoint_seconds=0)
    np.testing.assert_array_equal(whole.draws["value"], resumed.draws["value"])
    assert victim.read_text() == "mine"
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_a_write_that_fails_leaves_what_there_was(tmp_path):
    path = tmp_path / "a.json"
    manifest.write(path, {"format": 2, "x": 1})
    before = path.read_bytes()

    def failing(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.replace(path, failing)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == before


def with_archive(folder, record, write):
    """A file in place of the one of a record, which says of it what an attacker would."""
    path = folder / record["file"]
    write(path)
    content = path.read_bytes()
    record |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def bomb(path, *, num_bytes=3 * 10**8):
    """A compressed archive of zeros."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        shape = {"descr": "|u1", "fortran_order": False, "shape": (num_bytes,)}
        np.lib.format.write_array_header_1_0(member, shape)
        for _ in range(num_bytes // 10**6):
            member.write(bytes(10**6))


def test_an_archive_is_not_expanded_beyond_its_size(folder):
    record = json.loads((folder / "checkpoint.json").read_text())["state"]
    with_archive(folder, record, bomb)
    record["arrays"] = {"x": {"dtype": "|u1", "shape": [3 * 10**8]}}
    assert record["bytes"] < 10**6
    tracemalloc.start()
    with pytest.raises(files.DamagedFileError, match=r"x\.npy is compressed, .* not expanded"):
        files.read_arrays(folder, record)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


@pytest.mark.parametrize(
    "described",
    [
        {"dtype": "bool", "shape": [10**12]},
        {"dtype": "bool", "shape": [17]},
        {"dtype": "|u1", "shape": [10**12]},
        {"dtype": "<f8", "shape": [2]},
        {"dtype": "|u1", "shape": []},
        {"dtype": "bool", "shape": [0, 10**18, 10**18]},
    ],
    ids=str,
)
def test_shapes_are_compared_before_anything_is_made(tmp_path, described):
    record = files.write_arrays(tmp_path, "x-0.npz", {"x": np.ones(16, bool)})
    np.testing.assert_array_equal(files.read_arrays(tmp_path, record)["x"], np.ones(16, bool))
    record["arrays"] = {"x": described}
    assert files.is_record(record)
    with pytest.raises(files.DamagedFileError, match=r"x-0\.npz: x is \|u1\[2\] and the manifest"):
        files.read_arrays(tmp_path, record)


def test_no_pickle_is_opened(tmp_path):
    record = files.write_arrays(tmp_path, "x-0.npz", {"x": np.ones(3)})
    objects = np.array([print, {}], dtype=object)
    with_archive(tmp_path, record, lambda path: np.savez(path, x=objects))
    for described in ({"dtype": "|O8", "shape": [2]}, {"dtype": "|V8", "shape": [2]}):
        record["arrays"] = {"x": described}
        assert files.is_record(record) == (described["dtype"] != "|O8")
        with pytest.raises(files.DamagedFileError, match=r"x-0\.npz"):
            files.read_arrays(tmp_path, record)


def test_two_members_with_the_same_bytes_are_refused(tmp_path):
    """Overlapping members would expand to more than the file."""
    record = files.write_arrays(tmp_path, "x-0.npz", {"x": np.ones(100), "y": np.ones(100)})

    def overlap(path):
        with zipfile.ZipFile(path, "a") as archive:
            first, second = archive.infolist()
            second.header_offset = first.header_offset
            second.orig_filename = second.filename
            archive._didModify = True

    with_archive(tmp_path, record, overlap)
    with pytest.raises(files.DamagedFileError, match=r"x-0\.npz"):
        files.read_arrays(tmp_path, record)


def test_deep_nesting_is_refused(folder):
    for text in ("[" * 10**6, '{"format": 2, "x": ' + "[" * 100 + "]" * 100 + "}"):
        (folder / "checkpoint.json").write_text(text)
        refused(folder, "nested more than 64 deep")


def test_files_of_another_run_are_noticed(folder, tmp_path):
    other = tmp_path / "other"
    options = {"checkpoint": other, "checkpoint_seconds": 0, "chunk_seconds": 1e-9}
    run(growing(), DATA, progress=stop_at(8), **options, **(SETTINGS | {"seed": 5}))
    for name in ("draws-0-1.npz", "state-8.npz"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes((other / name).read_bytes())
        refused(folder, f"{name} .* belongs to another run")
        (folder / name).write_bytes(before)
