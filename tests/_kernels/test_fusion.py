"""Loops that XLA's CPU backend cannot put into one kernel stay loops: no error of the compiler."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf._kernels import fusion

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    monkeypatch.setenv(fusion.VARIABLE, "1")


def sums(x):
    return jax.lax.fori_loop(0, 3, lambda _, y: y + jnp.sum(x * y) * 1e-6, x)


def is_fused(fn, size, *, sequential):
    program = jax.jit(fusion.fused_on_cpu(fn, sequential=sequential))
    return "xla_cpu_small_call" in program.lower(jnp.ones(size)).as_text()


@pytest.mark.parametrize("sequential", [False, True])
def test_a_loop_with_long_sums_runs(sequential):
    x = jnp.linspace(0, 1, 5_000, dtype=jnp.float32)
    fused = jax.jit(fusion.fused_on_cpu(sums, sequential=sequential))(x)
    np.testing.assert_allclose(fused, jax.jit(sums)(x), rtol=1e-5)
    assert is_fused(sums, 4_095, sequential=sequential)
    assert not is_fused(sums, 4_096, sequential=sequential)


def test_long_sums_are_found_in_functions_that_are_called():
    nested = jax.jit(lambda x: jax.lax.cond(x[0] > 0, sums, jnp.negative, x))
    assert is_fused(nested, 4_095, sequential=True)
    assert not is_fused(nested, 4_096, sequential=True)


def test_a_long_running_sum_stays_fused():
    assert is_fused(jnp.cumsum, 100_000, sequential=True)


SHARED = """
import jax, jax.numpy as jnp
from jaxmf._kernels.fusion import fused_on_cpu
def loop(x):
    def again(_, y):
        return jnp.cumsum(jnp.exp(jnp.log(y + 1) * .3 + x)) * .01
    return jax.lax.fori_loop(0, 3, again, x)
for size in (1_000, 70_000):
    print(jax.jit(fused_on_cpu(loop))(jnp.ones(size)).shape)
"""


@pytest.mark.slow
def test_long_rows_compile_where_there_are_several_threads():
    """XLA shares long rows out to threads; code inside a kernel cannot call those."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PJRT_NPROC": "4"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", SHARED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["(1000,)", "(70000,)"]


class Scaled(NamedTuple):
    """A loop of a prior that has numbers of its own."""

    scale: jax.Array
    table: jax.Array

    def loop(self, x):
        return jax.lax.fori_loop(0, 3, lambda _, y: y * self.scale, x)


@pytest.mark.parametrize("sequential", [False, True])
def test_what_is_traced_in_the_owner_of_a_loop_is_an_argument(sequential):
    @jax.jit
    def run(scale, x):  # nobody reads the table, which is shaped as what the loop returns
        loop = Scaled(scale, 2 * x).loop
        return fusion.fused_on_cpu(loop, sequential=sequential)(x)

    x = jnp.ones((2, 3))
    with jax.checking_leaks():
        np.testing.assert_array_equal(run(2.0, x), 8 * x)
        found = jax.vmap(run, in_axes=(0, None))(jnp.array([1.0, 2.0]), x)
    np.testing.assert_array_equal(found, jnp.stack([x, 8 * x]))
    assert "xla_cpu_small_call" in run.lower(2.0, x).as_text()


def test_what_is_traced_in_the_arguments_of_a_partial_is_an_argument_of_each_call():
    def put(scale, x):
        return x.at[0].multiply(scale)

    @jax.jit
    def run(scale, x):
        return fusion.sequential_on_cpu(partial(put, scale))(x)

    with jax.checking_leaks():
        found = jax.vmap(run)(jnp.array([1.0, 2.0]), jnp.ones((2, 3)))
    np.testing.assert_array_equal(found, [[1, 1, 1], [2, 1, 1]])


@pytest.mark.tiers(exhaustive=["bpmf", "dp-mixture", "lda"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear-gaussian-ibp", "lda", "dp-mixture", "bpmf"])
def test_models_run_where_jax_looks_for_leaks(name):
    model, data = registry.get(name).example()
    with jax.checking_leaks():
        mf.sample(model, data, num_warmup=1, num_samples=1, num_chains=1)
