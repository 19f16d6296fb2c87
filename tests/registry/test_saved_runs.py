"""Saved runs of every kind of data come back; damaged and tampered ones are refused."""

import ast
import dataclasses
import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import jaxmf as mf
from benchmarks.robustness import flips, saved, tampered
from benchmarks.robustness.tampers import TAMPERS, changed
from jaxmf.engine import files
from jaxmf.registry import examples

MODEL = "flexible-mixture"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A saved run and a checkpoint of a model whose prior may be made of functions."""
    return saved.saved_runs(tmp_path_factory.mktemp("runs"), (MODEL,))


@pytest.fixture(scope="module")
def watch():
    return tampered.Watch()


@pytest.fixture
def run(runs):
    runs[0].restore()
    yield runs[0]
    runs[0].restore()


@pytest.mark.slow
def test_no_damage_changes_a_run_in_silence(runs):
    generator, outcomes = np.random.default_rng(15), Counter()
    for one in runs:
        for name, kind, found, words in flips.trials(generator, one, 60):
            outcomes[found] += 1
            assert found in ("same", "refused"), (one.name, name, kind, words)
    assert outcomes["refused"] > 100


# a small bomb is in test_checkpoint_tampered.py
@pytest.mark.parametrize("name", [name for name in TAMPERS if name != "bomb"])
def test_nothing_is_executed_and_nothing_outside_is_touched(runs, watch, name):
    for one in runs:
        found = tampered.tampered(one, TAMPERS[name], watch)
        assert found is None or found[0] in ("refused", "same"), found
        one.restore()


def test_the_watch_sees_code_and_files(runs, watch, tmp_path):
    with watch.on(tmp_path):
        exec(compile(f"open({str(tmp_path / 'executed')!r}, 'w').close()", "<string>", "exec"))  # noqa: S102
    kinds = {event.partition(":")[0] for event in watch.events}
    assert kinds == {"executed", "touched"}


def test_a_key_that_is_missing_renamed_or_new_is_named(run):
    content = json.loads(run.files["posterior.json"])
    for part in (None, "model", "meta", "data"):
        for key in content if part is None else content[part]:
            if key in ("sha256", "shape", "sizes", "ids"):
                continue
            with changed(run.folder) as now:
                inner = now if part is None else now[part]
                inner[f"{key}s"] = inner.pop(key)
            with pytest.raises(ValueError, match=rf"posterior\.json: .*'{key}s?' is"):
                mf.load(run.folder)
            run.restore()


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("meta", "complete", 1),
        ("meta", "complete", False),
        ("meta", "seconds", "1"),
        ("meta", "device", 3),
        ("meta", "capacity", {"dict": {"group": 10**6}}),
        ("meta", "method", "particle_filter"),
        ("meta", "options", {"dict": {"sweeps": "fast"}}),
        ("meta", "run", {"dict": {"num_chains": 2}}),
        ("run", "num_draws", 4),
        ("run", "num_steps", 6),
        ("run", "thin", 2),
        ("run", "capacity", {"dict": {}}),
        ("data", "fingerprint", "0" * 64),
        ("model", "name", "lda"),
    ],
)
def test_numbers_must_agree_whatever_the_check_sum(run, part, key, value):
    with changed(run.folder) as content:
        (content[part]["dict"] if part == "run" else content[part])[key] = value
    with pytest.raises(ValueError, match=r"posterior\.json: "):
        mf.load(run.folder)


@pytest.mark.parametrize("text", ['{"format": 1}', '{"format": 2}', "{}", "[]", "3", "", '"x"'])
def test_a_manifest_that_is_none_is_said(run, text):
    (run.folder / "posterior.json").write_text(text)
    with pytest.raises(ValueError, match=r"posterior\.json"):
        mf.load(run.folder)


@pytest.mark.parametrize("folder", [3, None, b"run", ["run"]])
def test_a_folder_that_is_no_path_is_refused(run, folder):
    for call in (mf.load, run.posterior.save):
        with pytest.raises(TypeError, match=r"folder must be a"):
            call(folder)


def test_a_save_that_fails_leaves_the_earlier_run_and_no_litter(run, monkeypatch):
    before, write, calls = saved.read_files(run.folder), os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        write(descriptor)

    for _ in range(3):
        calls.clear()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run.posterior.save(run.folder)
        monkeypatch.undo()
        assert saved.read_files(run.folder) == before
    assert saved.posterior_contents(mf.load(run.folder)) == run.contents


def test_what_cannot_be_written_is_refused_before_anything_is(run, tmp_path):
    data = mf.Dense(run.posterior.data.to_array(), row_names=[(i, i) for i in range(12)])
    posterior = dataclasses.replace(run.posterior, data=data)
    with pytest.raises(TypeError, match=r"row_names: the id \(0, 0\) is a tuple"):
        posterior.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_of_files_outside_are_not_removed_by_the_next_save(run, tmp_path):
    victim = run.folder.parent / "victim.npz"
    victim.write_bytes(b"mine")
    for name in ("../victim.npz", str(victim)):
        with changed(run.folder) as content:
            content["files"] = {"draws": name, "state": {"file": name}}
        run.posterior.save(run.folder)
        assert victim.read_bytes() == b"mine"
        run.restore()


def test_tokens_with_several_columns_come_back(tmp_path):
    model = mf.MultiLDA({"author": 2, "year": 2}, "word", 0.5)
    options = {"num_warmup": 1, "num_samples": 1, "num_chains": 1, "progress": False}
    posterior = mf.sample(model, examples.written(), **options)
    again = mf.load(posterior.save(tmp_path / "run"))
    assert saved.posterior_contents(again) == saved.posterior_contents(posterior)


def test_ids_take_no_more_room_than_their_texts(run):
    with changed(run.folder) as content:
        ids = {"values": [f"row {i}" for i in range(12)], "dtype": "<U1000000000"}
        content["data"]["ids"] = {"row_names": ids}
    names = mf.load(run.folder).data.row_names
    assert names.dtype.itemsize < 100
    assert names[3] == "row 3"


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/promises.md"])
def test_every_promise_names_a_test_that_exists(page):
    tests = Path(__file__).parents[1]
    text = (tests.parent / page).read_text()
    named = re.findall(r"::(test_\w+)", text)
    assert set(re.findall(r"(test_\w+\.py)", text)) <= {path.name for path in tests.rglob("*.py")}
    defined = {
        node.name
        for path in tests.rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert len(named) > 10
    assert set(named) <= defined


def test_names_of_files_are_of_one_pattern():
    for name in ("draws-0.npz", "predicted_at-00ff12ab.npz", "state-1000000.npz"):
        assert files.is_name(name)
    for name in ("../draws-0.npz", "/draws-0.npz", "draws-0.npz\n", "draws-0.npy", "DRAWS-0.npz"):
        assert not files.is_name(name)
    for name in ("draws.npz", "draws-xyz.npz", "", None, 3, ["draws-0.npz"], "a" * 99 + "-0.npz"):
        assert not files.is_name(name)
