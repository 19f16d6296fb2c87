"""What goes wrong: quantities that are not finite, and interrupts."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info, NonFiniteError, algorithm, run
from jaxmf.engine.interrupt import Interrupts
from tests.support.engine_toys import fuse, growing, pair_gibbs, sharp_edge, stop_at

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
@pytest.mark.parametrize("chunk_seconds", [1e-9, 1.0])
@pytest.mark.parametrize("when", [0, 6, 11])
def test_the_quantity_and_the_step_are_named(method, chunk_seconds, when):
    with pytest.raises(NonFiniteError, match=f"charge is not finite after step {when} ") as caught:
        run(
            fuse(),
            np.int32(when),
            num_warmup=5,
            num_samples=7,
            num_chains=2,
            chain_method=method,
            chunk_seconds=chunk_seconds,
        )
    error = caught.value
    assert (error.quantity, error.chain, error.step) == ("charge", 0, when)


def test_one_bad_chain_of_several_is_named():
    class Where(NamedTuple):
        value: jax.Array

    def step(key, state, data, progress):
        return Where(state.value + jnp.where(state.value > 0.5, jnp.inf, 0)), Info(overflow={})

    toy = algorithm(
        init=lambda key, data: Where(jax.random.uniform(key)),
        step=step,
        record=lambda key, state, data: {},
    )
    starts = run(toy, None, num_samples=0, num_chains=6).state.value
    for method in ("sequential", "vectorized"):
        with pytest.raises(NonFiniteError) as caught:
            run(toy, None, num_samples=2, num_chains=6, chain_method=method)
        assert caught.value.chain == np.argmax(starts > 0.5)
        assert caught.value.quantity == "value"


def test_a_kept_log_joint_must_be_finite():
    assert run(sharp_edge(), np.int32(6), num_samples=2, thin=3).num_draws == 2
    with pytest.raises(NonFiniteError, match="log_joint is not finite after step 8 "):
        run(sharp_edge(), np.int32(6), num_samples=3, thin=3)
    # in the warm-up nothing is kept
    assert run(sharp_edge(), np.int32(6), num_warmup=9, num_samples=0).complete


def test_log_weights_may_be_minus_infinity_but_not_nan():
    class Cloud(NamedTuple):
        log_weights: jax.Array

    def make(value):
        return algorithm(
            init=lambda key, data: Cloud(jnp.zeros(3)),
            step=lambda key, state, data, progress: (
                Cloud(state.log_weights.at[1].set(value)),
                Info(overflow={}),
            ),
            record=lambda key, state, data: {"log_weights": state.log_weights},
        )

    result = run(make(-jnp.inf), None, num_samples=2)
    assert np.isneginf(result.draws["log_weights"][0, :, 1]).all()
    for value in (jnp.nan, jnp.inf):
        with pytest.raises(NonFiniteError, match="log_weights is not finite after step 0"):
            run(make(value), None, num_samples=2)


@pytest.mark.parametrize("chunk_seconds", [1e-9, 1.0])
def test_the_last_good_checkpoint_is_kept(tmp_path, chunk_seconds):
    settings = {"num_samples": 12, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    with pytest.raises(NonFiniteError, match="last good checkpoint is kept in") as caught:
        run(fuse(), np.int32(7), chunk_seconds=chunk_seconds, **settings)
    assert caught.value.step == 7
    # with data that do not blow the fuse the run can go on from there
    mended = run(fuse(), np.int32(100), resume=True, **settings)
    assert mended.draws["position"].tolist() == [list(range(1, 13))]


def test_an_interrupt_returns_what_there_is():
    whole = run(growing(), np.zeros(()), num_samples=20)
    part = run(growing(), np.zeros(()), num_samples=20, chunk_seconds=1e-9, progress=stop_at(7))
    assert not part.complete
    assert (part.num_steps, part.num_draws) == (7, 7)
    for name, values in part.draws.items():
        expected = whole.draws[name][tuple(slice(0, size) for size in values.shape)]
        np.testing.assert_array_equal(values, expected)
        assert values.shape[1] == 7


def test_the_signal_is_a_request_at_first():
    def once(report):
        if report.step == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    part = run(growing(), np.zeros(()), num_samples=20, chunk_seconds=1e-9, progress=once)
    assert (part.num_draws, part.complete) == (3, False)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_signal_raises():
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_run_outside_the_main_thread_leaves_signals_alone():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(run(growing(), np.zeros(()), num_samples=3))
    )
    thread.start()
    thread.join()
    assert found[0].complete


def test_ctrl_c_in_a_process():
    program = """
import sys, numpy as np
from jaxmf.engine import run
from tests.support.engine_toys import pair_gibbs
def say(report):
    print(report.step, flush=True)
result = run(pair_gibbs(), np.array([1., 2.]), num_samples=2**26, chunk_seconds=0.05, progress=say)
print("returned", result.complete, result.draws["x"].shape[1] == result.num_steps > 0)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert output.splitlines()[-1] == "returned False True"


def test_pair_is_finite():
    # the guard must not cry wolf
    assert run(pair_gibbs(), np.array([1.0, 2.0]), num_samples=50).complete
