"""Compiled programs run in threads of their own, watched by the thread that called the run.

A compiled program cannot be interrupted. While it runs in another thread, this one hears Ctrl-C and
SIGTERM at once, and says when a program takes far longer than it should.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import jax

from jaxmf.engine.environment import config_value
from jaxmf.user_warnings import warn

# a program of n steps is late when it takes longer than SLOW_STEPS usual steps more than
# SLOW_PROGRAM times n of them, and longer than LEAST_SECONDS: other work of the machine, which may
# slow all steps, is no reason to warn
SLOW_STEPS = 100
SLOW_PROGRAM = 10
LEAST_SECONDS = 30.0
POLL_SECONDS = 0.5


Call = TypeVar("Call")
Result = TypeVar("Result")


class SlowStepWarning(RuntimeWarning):
    """A step takes a hundred times as long as the steps before it."""


class Attempt(NamedTuple):
    """A program under way."""

    chains: slice  # of its group
    # first, end: the steps it is to do: from `first` up to `end`
    first: int
    end: int
    seconds_per_step: float | None  # so far; None if nothing is known
    began: float  # when, by `time.perf_counter`
    was_named: bool = False  # whether a user was warned that it is late

    def allowed(self) -> float:
        """Seconds it may take before it is called late."""
        if self.seconds_per_step is None:
            return float("inf")
        usual_steps = SLOW_PROGRAM * (self.end - self.first) + SLOW_STEPS
        return max(LEAST_SECONDS, usual_steps * self.seconds_per_step)

    def complain(self, seconds: float) -> str:
        """The step, the chain, the usual seconds, and what to do."""
        assert self.seconds_per_step is not None
        first, last = self.chains.start, self.chains.stop - 1
        who = f"chain {first}" if first == last else f"the chains {first} to {last}"
        steps = (
            f"step {self.first} of {who} has"
            if self.end == self.first + 1
            else f"a step of {who} between {self.first} and {self.end - 1} has"
        )
        return (
            f"{steps} been running for {seconds:.0f} s, where a step took "
            f"{self.seconds_per_step:.3g} s before. If the process uses no CPU it waits for "
            "something: interrupt it and "
            "resume from its checkpoint, with PJRT_NPROC=1 set or with chain_method='vectorized'. "
            "If it is busy, the machine is short of cores or memory, or the state has grown: look "
            "at its number of features or groups"
        )


class Supervisor:
    """Runs programs in threads, at most `num_workers` at once.

    Args:
        num_workers: threads.
        chunk_seconds: aim for the length of a program.
        is_stopping: whether the run is asked to end.
        insist: called where it is, and the step in hand is late: a step that hangs would never end.
        wait: called now and then with the seconds that the programs in hand have been running.
    """

    def __init__(
        self,
        num_workers: int = 1,
        chunk_seconds: float = 1.0,
        is_stopping: Callable[[], bool] = lambda: False,
        insist: Callable[[], None] = lambda: None,
        wait: Callable[[float], None] = lambda seconds: None,
    ):
        self.chunk_seconds = chunk_seconds
        self.is_stopping = is_stopping
        self._insist = insist
        self._wait = wait
        self._num_workers = num_workers
        self._attempts: dict[int, Attempt] = {}

    def map(self, function: Callable[[Call], Result], calls: list[Call]) -> list[Result]:
        """The function of every call, in threads; the results in order.

        Raises Exception: the first that a call raised, once all have ended.
        """
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        todo = iter(range(len(calls)))
        lock, ended = threading.Lock(), threading.Semaphore(0)
        debug_nans = config_value("jax_debug_nans")

        def work() -> None:
            try:
                while True:
                    with lock:
                        index = next(todo, None)
                    if index is None or errors:
                        return
                    # settings of JAX may be of the calling thread alone; what goes to and from
                    # the device here is meant to
                    with (
                        jax.debug_nans(debug_nans),
                        jax.transfer_guard("allow"),
                        jax.disable_jit(False),
                    ):
                        results[index] = function(calls[index])
            except BaseException as error:
                errors.append(error)
            finally:
                ended.release()

        num_threads = min(self._num_workers, len(calls))
        for _ in range(num_threads):
            # a daemon: nobody waits for a program that never ends
            threading.Thread(target=work, name="jaxmf-chain", daemon=True).start()
        for _ in range(num_threads):
            while not ended.acquire(timeout=POLL_SECONDS):
                self._look()
        if errors:
            raise errors[0]
        return [results[index] for index in range(len(calls))]

    @contextlib.contextmanager
    def watch(
        self, chains: slice, first: int, end: int, seconds_per_step: float | None
    ) -> Iterator[None]:
        """Watches what runs within; called in the thread that runs it."""
        thread = threading.get_ident()
        self._attempts[thread] = Attempt(chains, first, end, seconds_per_step, time.perf_counter())
        try:
            yield
        finally:
            self._attempts.pop(thread, None)

    def _look(self) -> None:
        now = time.perf_counter()
        began = [attempt.began for attempt in list(self._attempts.values())]
        self._wait(now - min(began, default=now))
        for thread, attempt in list(self._attempts.items()):
            seconds = now - attempt.began
            if seconds <= attempt.allowed():
                continue
            if not attempt.was_named:
                self._attempts[thread] = attempt._replace(was_named=True)
                warn(attempt.complain(seconds), SlowStepWarning)
            if self.is_stopping():
                self._insist()
