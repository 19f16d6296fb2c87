"""Runs stopped by Ctrl-C or SIGTERM in the middle of a chunk, and what is said of a hanging one."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import (
    Interrupts,
    SlowStepWarning,
    bound,
    load_run,
    progress,
    run,
    supervisor,
    turns,
)
from jaxmf.engine.executables import CACHE
from jaxmf.programs import jit
from jaxmf.user_warnings import warn
from tests.support.engine_toys import LOOK, growing, looked_at, pair_gibbs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def look(monkeypatch):
    """Sets what the host does in every step of a toy that is looked at."""
    return lambda function: monkeypatch.setitem(LOOK, "now", function)


@pytest.mark.tiers(slow=["2-2"], exhaustive=["1-15", "2-15"])
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("num_chains", [1, 2])
def test_a_signal_reaches_a_run_whose_steps_became_slow_by_growth(
    tmp_path, look, signal_number, num_chains
):
    # three births a step: 64 slots are full at step 21. Before, the chunk that was planned at the
    # speed of the first steps went on to its end, at step 60
    toy = looked_at(birth=1.0, death=0.0, capacity=64)

    # one signal for all chains: a second SIGTERM kills
    first_of_chains = threading.Lock()

    def slow(step):
        if step == 23 and first_of_chains.acquire(blocking=False):
            signal.raise_signal(signal_number)
        if step > 20:
            time.sleep(0.3)

    before = signal.getsignal(signal_number)
    settings = {"num_samples": 60, "num_chains": num_chains, "chunk_seconds": 1.0}
    look(slow)
    part = run(toy, np.zeros(()), checkpoint=tmp_path, **settings)
    assert signal.getsignal(signal_number) is before
    assert not part.complete
    assert 21 < part.num_draws < 40
    # all chains are at the same step, and the checkpoint with them
    look(lambda step: None)
    whole = run(toy, np.zeros(()), **settings)
    for name, values in part.draws.items():
        there = whole.draws[name][tuple(slice(0, size) for size in values.shape)]
        np.testing.assert_array_equal(values, there, err_msg=name)
    np.testing.assert_array_equal(part.state.step, part.num_steps)
    assert load_run(tmp_path)[0].num_steps == part.num_steps


def test_the_second_sigterm_kills_and_the_second_ctrl_c_raises_at_once():
    text = """
import signal
from jaxmf.engine import Interrupts
with Interrupts() as stop:
    signal.raise_signal(signal.SIGTERM)
    print(stop.requested, stop.signal.name, flush=True)
    signal.raise_signal(signal.SIGTERM)
print("still here")
"""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "True SIGTERM\n")
    with Interrupts() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop.signal is signal.SIGTERM


def test_one_signal_ends_all_runs_within_an_outer_reach():
    data = np.array([1.0, 2.0])
    with Interrupts() as stop:
        first = run(
            pair_gibbs(), data, num_samples=5, progress=lambda report: signal.raise_signal(2)
        )
        second = run(pair_gibbs(), data, num_samples=5)
    assert stop.signal is signal.SIGINT
    assert not first.complete
    assert (second.num_draws, second.complete) == (0, False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_step_that_takes_far_longer_than_usual_is_named(monkeypatch, look):
    monkeypatch.setattr(supervisor, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.05)
    was_named = threading.Event()

    def name(*arguments):
        warn(*arguments)
        was_named.set()

    monkeypatch.setattr(supervisor, "warn", name)
    # on a busy machine any of the usual steps may take long, and this one then longer
    look(lambda step: step == 30 and was_named.wait(100))
    toy = looked_at(birth=0.0, death=0.0, capacity=64)
    said = r"step 30 of chain 0 has been running for \d+ s, where a step took .* s before"
    with pytest.warns(SlowStepWarning, match=said) as caught:
        assert run(toy, np.zeros(()), num_samples=40, chunk_seconds=1e-9).complete
    assert len(caught) == 1


def test_the_bar_says_what_is_waited_for(monkeypatch, look):
    said = []

    class Bar:
        def __getattr__(self, name):
            return lambda *args, **fields: said.append(fields)

    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    monkeypatch.setattr(progress, "_make_bar", Bar)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.02)
    look(lambda step: time.sleep(0.5 if step == 0 else 0.0))
    run(looked_at(birth=0.0, death=0.0, capacity=64), np.zeros(()), num_samples=3, progress=True)
    phases = [fields["description"] for fields in said if "description" in fields]
    assert [phases[0], phases[1], phases[-1]] == ["compiling", "starting", "sampling"]
    waited = [fields["waited"] for fields in said if "waited" in fields]
    assert re.fullmatch(r"\d s in this step", waited[1])
    assert waited[-1] == ""


def test_a_long_run_says_in_a_log_how_far_it_is(monkeypatch, capsys):
    toy = growing(birth=0.0, death=0.0, capacity=64)

    class Full(io.StringIO):
        def write(self, text):
            raise OSError("no space left on device")

    def lines(**settings):
        run(toy, np.zeros(()), num_samples=3, chunk_seconds=1e-9, **settings)
        return capsys.readouterr().err.splitlines()

    assert lines() == lines(progress=False) == []  # no half minute
    assert [line.split(",")[0] for line in lines(progress=True)] == [
        "jaxmf: compiling",
        "jaxmf: sampling",
    ]
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    said = lines()
    assert said[:2] == ["jaxmf: compiling", "jaxmf: starting"]
    assert re.match("jaxmf: sampling, 3/3 steps, 0 s left, ", said[-1])
    assert lines(progress=False) == []
    monkeypatch.setattr("sys.stderr", Full())
    assert run(toy, np.zeros(()), num_samples=3).complete


def test_one_ctrl_c_ends_a_run_whose_step_hangs(monkeypatch, look):
    monkeypatch.setattr(supervisor, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.05)
    hanging = threading.Event()

    def hang(step):
        if step == 30:
            signal.raise_signal(signal.SIGINT)
            hanging.wait(100)

    look(hang)
    toy = looked_at(birth=0.0, death=0.0, capacity=64)
    with pytest.warns(SlowStepWarning, match="step 30"), pytest.raises(KeyboardInterrupt):
        run(toy, np.zeros(()), num_samples=40, chunk_seconds=1e-9)
    hanging.set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_no_alarm_while_a_program_is_compiled(monkeypatch):
    monkeypatch.setattr(supervisor, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.01)
    prepare = bound.BoundAlgorithm._prepare

    def slowly(self, group):
        time.sleep(0.5)
        return prepare(self, group)

    monkeypatch.setattr(bound.BoundAlgorithm, "_prepare", slowly)
    # warnings are errors here
    assert run(growing(birth=1.0, death=0.0, capacity=2), np.zeros(()), num_samples=4).complete


def test_an_error_in_a_thread_is_raised_where_the_run_was_called():
    def fail(call):
        raise ZeroDivisionError(call)

    with pytest.raises(ZeroDivisionError):
        supervisor.Supervisor(2).map(fail, [1, 2, 3])
    assert supervisor.Supervisor(2).map(str, [1, 2, 3]) == ["1", "2", "3"]


def in_fork(call):
    """How a fork of this process ends: 7 if the call is refused with advice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX says that it is multithreaded
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            call()
        except RuntimeError as error:
            os._exit(7 if "spawn" in str(error) else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_run_in_a_fork_is_refused_and_does_not_wait_for_ever():
    run(pair_gibbs(), np.array([1.0, -2.0]), num_samples=1)
    assert in_fork(lambda: run(pair_gibbs(), np.array([1.0, -2.0]), num_samples=1)) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_programs_in_a_fork_are_refused_new_and_compiled_ones():
    old, new = jit(lambda x: x + 1), jit(lambda x: x + 2)
    old(jnp.zeros(3))
    assert in_fork(lambda: old(jnp.zeros(3))) == 7
    assert in_fork(lambda: new(jnp.zeros(3))) == 7
    # an operation outside of any program, of a shape that is new
    assert in_fork(lambda: jnp.zeros((3, 17)) + 1) == 7
    assert float(old(jnp.zeros(3))[0]) == 1


def batched(x):
    def step(index, x):
        return x + 1e-3 * jnp.linalg.cholesky(
            x @ jnp.swapaxes(x, -1, -2) + 9 * jnp.eye(x.shape[-1])
        )

    return jax.lax.fori_loop(0, 3, step, x)


def test_programs_with_batches_of_factorisations_take_turns_and_others_do_not():
    many = CACHE.get(batched, (jnp.zeros((4, 3, 3)),), {})
    one = CACHE.get(batched, (jnp.zeros((3, 3)),), {})
    assert many.turns is turns.batched_factorisations()
    assert one.turns.num_turns is None
    assert (many.batches, one.batches) == ({4}, frozenset())
    # always a thread of the pool that waits for nobody; a pool of one thread shares nothing out
    assert turns.num_turns(1) is None
    for pool in range(2, 9):
        assert turns.num_turns(pool) < pool


def test_no_more_than_the_turns_run_at_once():
    inside, most, gate = [], [], turns.Turns(2)

    def work(index):
        with gate.take():
            inside.append(index)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(index)

    supervisor.Supervisor(6).map(work, list(range(12)))
    assert max(most) == 2


DEADLOCK = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jaxmf.engine import Info, algorithm, run, turns

def step(key, state, data, progress):
    matrices, wide = state
    # a product large enough for XLA to share out moves what follows to a thread of the pool
    wide = jnp.tanh(wide @ wide / 200)
    square = jnp.einsum("bij,bkj->bik", matrices, matrices) + (5 + 1e-6 * wide[0, 0]) * jnp.eye(30)
    return (matrices + 1e-6 * jnp.linalg.cholesky(square), wide), Info(overflow={})

toy = algorithm(
    init=lambda key, data: (data, jnp.ones((200, 200))),
    step=step,
    record=lambda key, state, data: {"corner": state[0][0, 0, 0]},
)
data = np.random.default_rng(0).normal(size=(64, 30, 30)).astype(np.float32)
if sys.argv[1] == "free":
    turns._TURNS.append(turns.Turns(None))
run(toy, data, num_samples=int(sys.argv[2]), num_chains=2, chunk_seconds=0.1)
print("ended")
"""


@pytest.mark.slow
def test_two_chains_with_batched_factorisations_do_not_wait_for_ever():
    """Without turns two programs on a pool of two threads stop within a few seconds."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PJRT_NPROC": "2"}
    environment.pop("XLA_FLAGS", None)
    if turns.num_cores() < 2:
        pytest.skip("needs two cores")

    def ends(how, seconds):
        process = subprocess.Popen(
            [sys.executable, "-c", DEADLOCK, how, "3000"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            return process.communicate(timeout=seconds)[0] == "ended\n"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False

    assert ends("in turn", 300)
