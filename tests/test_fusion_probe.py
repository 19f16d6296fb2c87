"""Fused loops are asked for only where a trial went well."""

import json
import stat
import sys

import pytest

from jaxmf import fusion, fusion_probe

GOOD = {"same_bits": True, "num_kernels": 1, "num_kernels_plain": 7}


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """A cache folder of its own and no answer yet."""
    monkeypatch.setenv("JAXMF_CACHE", str(tmp_path))
    monkeypatch.delenv("JAXMF_FUSE_LOOPS", raising=False)
    fusion_probe.is_granted.cache_clear()
    yield tmp_path / "fusion.json"
    fusion_probe.is_granted.cache_clear()


def findings(monkeypatch, **changes):
    calls = []

    def run():
        calls.append(1)
        return {"once": GOOD, "sequential": GOOD | changes}

    monkeypatch.setattr(fusion_probe, "_run_child", run)
    return calls


@pytest.mark.skipif(fusion.jax.default_backend() != "cpu", reason="fused loops are for CPUs")
def test_the_trial_runs_here_and_its_answer_is_kept(answers):
    granted = fusion_probe.is_granted()
    assert granted, "this jaxlib does not fuse loops: update the list of versions in the docs"
    assert list(json.loads(answers.read_text()).values()) == [True]


def test_the_answer_is_asked_for_once(answers, monkeypatch):
    calls = findings(monkeypatch)
    assert fusion.is_available()
    fusion_probe.is_granted.cache_clear()
    assert fusion.is_available()
    assert len(calls) == 1


@pytest.mark.parametrize("changes", [{"same_bits": False}, {"num_kernels": 8}])
def test_other_bits_or_more_kernels_are_not_asked_for(answers, monkeypatch, changes):
    findings(monkeypatch, **changes)
    assert not fusion.is_available()


@pytest.mark.parametrize("program", ["import os; os.abort()", "print('nonsense')", "print(1 / 0)"])
def test_a_child_that_fails_is_a_no(answers, monkeypatch, tmp_path, program):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(fusion_probe.sys, "executable", str(python))
    assert not fusion_probe.is_granted()


@pytest.mark.parametrize("content", ["", "[1]", '{"jaxlib": 3}', "\x00"])
def test_a_spoilt_file_of_answers_is_replaced(answers, monkeypatch, content):
    answers.write_text(content)
    findings(monkeypatch)
    assert fusion.is_available()
    assert True in json.loads(answers.read_text()).values()


def test_a_folder_that_cannot_be_written_to_does_not_matter(answers, monkeypatch):
    answers.parent.joinpath("file").touch()
    monkeypatch.setenv("JAXMF_CACHE", str(answers.parent / "file"))
    calls = findings(monkeypatch)
    assert fusion.is_available()
    assert len(calls) == 1


@pytest.mark.parametrize(("value", "answer"), [("0", False), ("1", True)])
def test_the_environment_decides_without_a_trial(answers, monkeypatch, value, answer):
    calls = findings(monkeypatch)
    monkeypatch.setenv("JAXMF_FUSE_LOOPS", value)
    assert fusion.is_available() is (answer and fusion.jax.default_backend() == "cpu")
    assert not calls
