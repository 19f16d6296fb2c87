"""Fused loops are asked for only with tested releases of jaxlib, and where a trial went well."""

import json
import os
import stat
import subprocess
import sys

import pytest

from jaxmf._kernels import fusion, fusion_probe

GOOD = {"same_bits": True, "num_kernels": 1, "num_kernels_plain": 7}


on_cpus = pytest.mark.skipif(
    fusion.jax.default_backend() != "cpu", reason="fused loops are for CPUs"
)


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """A tested release, a cache folder of its own and no answer yet."""
    monkeypatch.setattr(fusion_probe.jaxlib, "__version__", "0.10.9")
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


@on_cpus
@pytest.mark.skipif(
    not fusion_probe.is_tested(fusion_probe.jaxlib.__version__), reason="loops are not fused here"
)
def test_the_trial_runs_here_and_its_answer_is_kept(answers):
    assert fusion_probe.is_granted(), "the trial fails with a release on the list"
    assert list(json.loads(answers.read_text()).values()) == [True]


@pytest.mark.parametrize(
    "version", ["0.9.2", "0.11.0", "0.12.0.1", "0.12.1", "0.13.0", "0.100.0", "1.0", ""]
)
def test_a_release_that_is_not_on_the_list_is_not_tried(answers, monkeypatch, version):
    calls = findings(monkeypatch)
    monkeypatch.setattr(fusion_probe.jaxlib, "__version__", version)
    assert not fusion.is_available()
    assert not calls
    assert not answers.exists()
    monkeypatch.setenv("JAXMF_FUSE_LOOPS", "1")
    assert fusion.is_available() is (fusion.jax.default_backend() == "cpu")


@pytest.mark.parametrize("version", ["0.10.0", "0.10.2"])
def test_a_release_on_the_list_is_tried(answers, monkeypatch, version):
    calls = findings(monkeypatch)
    monkeypatch.setattr(fusion_probe.jaxlib, "__version__", version)
    assert fusion.is_available()
    assert calls


@pytest.mark.parametrize("trial", ["", f", trial {fusion_probe._VERSION}"])
def test_answers_to_an_earlier_trial_or_of_another_processor_are_not_read(
    answers, monkeypatch, trial
):
    name = f"jaxlib 0.10.9, {fusion_probe.platform.machine()}{trial}"
    answers.write_text(json.dumps({name: False}))
    findings(monkeypatch)
    assert fusion.is_available()


@pytest.mark.tiers(exhaustive=["False"])
@on_cpus
@pytest.mark.parametrize("reads", [True, False])
def test_arguments_that_nothing_reads_end_the_process_unless_they_are_read(reads):
    program = f"""
import jax
import jax.numpy as jnp
from jaxmf._kernels import fusion
if not {reads}:
    fusion._first_elements = lambda leaves, out: []
def total(numbers, table, unread, start):
    first = jax.lax.dynamic_index_in_dim(table, unread[0], 0, keepdims=False)
    return jax.lax.fori_loop(0, 10, lambda i, x: x + numbers[i], start + first)
def whole(numbers, table, unread, start):
    return fusion.fused_on_cpu(total, sequential=True)(numbers, table, unread + 1, start)
print(jax.jit(whole)(jnp.arange(10.0), jnp.ones(1), jnp.zeros(3, int), jnp.zeros(())))
"""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = dict(os.environ) | {"JAXMF_FUSE_LOOPS": "1", "PYTHONPATH": paths}
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (child.returncode == 0) is reads
    assert child.stdout.strip() == ("46.0" if reads else "")


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


@pytest.mark.parametrize(
    "error", [subprocess.TimeoutExpired("python", 60), BlockingIOError("no more processes")]
)
def test_a_machine_that_is_too_busy_for_the_trial_is_asked_again(answers, monkeypatch, error):
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr(fusion_probe.subprocess, "run", refuse)
    assert not fusion_probe.is_granted()
    assert not answers.exists()


def test_settings_of_the_caller_are_not_those_of_the_trial(answers, monkeypatch):
    environments = []

    def look(*args, env, **kwargs):
        environments.append(env)
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr(fusion_probe.subprocess, "run", look)
    for name in ("JAX_TRANSFER_GUARD", "JAX_DISABLE_JIT", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.setenv(name, "disallow")
    assert not fusion_probe.is_granted()
    assert {name for name in environments[0] if name.startswith("JAX_")} == {"JAX_PLATFORMS"}


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
