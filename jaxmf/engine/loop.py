"""The host loop itself: chunk, take the draws, show, save, decide how long the next chunk is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxmf.devices import default_platform
from jaxmf.engine.algorithm import Exceeded, GrowthError, GrowthWarning
from jaxmf.engine.bound import BoundAlgorithm, ChunkResult
from jaxmf.engine.interrupt import Interrupts
from jaxmf.engine.ongoing import OngoingRun
from jaxmf.engine.progress import Display, ProgressReport, mean_scalars
from jaxmf.engine.result import NonFiniteError
from jaxmf.engine.storage import Storage
from jaxmf.engine.supervisor import Supervisor
from jaxmf.engine.turns import num_cores
from jaxmf.user_warnings import warn

MAX_CHUNK_GROWTH = 8


class Loop:
    """Drives the groups of a run to their end.

    Args:
        bound: what advances a group.
        ongoing: where the run is; changed in place.
        storage: where checkpoints go, if anywhere.
        chunk_seconds: aim for the length of a chunk.
        note: of its reports.
    """

    def __init__(
        self,
        bound: BoundAlgorithm,
        ongoing: OngoingRun,
        storage: Storage | None,
        chunk_seconds: float,
        note: str = "",
    ):
        self._bound = bound
        self._ongoing = ongoing
        self._storage = storage
        self._chunk_seconds = chunk_seconds
        self._note = note
        self._num_workers = num_workers(len(ongoing.groups))

    def go(self, display: Display, interrupts: Interrupts) -> bool:
        """Runs to the end, to the first interrupt or to the limit of growth; True at the end.

        Raises:
            NonFiniteError: at the first quantity that is not finite.
            GrowthError, MemoryError: if a step needs more slots than an axis may have, before any
                draw was kept. Later it is a `GrowthWarning`, and the draws so far are kept.
        """
        now, length, processes = self._ongoing, 1, self._bound.placement.processes
        total = now.schedule.num_steps
        supervisor = Supervisor(
            self._num_workers,
            self._chunk_seconds,
            lambda: interrupts.requested,
            interrupts.insist,
            display.wait,
        )
        with one_blas_thread():
            while now.step < total and not processes.any_of(interrupts.requested):
                start = now.step
                end = min(start + length, total)
                chunks = self._bound.advance(now.groups, end, supervisor)
                exceeded = next((chunk.exceeded for chunk in chunks if chunk.exceeded), None)
                seconds_per_step = self._take(chunks, start, now.step)
                length = next_length(length, seconds_per_step, self._chunk_seconds)
                if exceeded is None and now.step == end:
                    try:
                        display.show(self._report(chunks, seconds_per_step))
                    except KeyboardInterrupt:
                        interrupts.requested = True
                if self._storage is not None:
                    is_stopping = processes.any_of(interrupts.requested)
                    ends = now.step >= total or exceeded is not None or is_stopping
                    self._storage.save(now, at_once=ends)
                if exceeded is not None:
                    self._end_early(exceeded)
                    return False
        return now.step >= total

    def _take(self, chunks: list[ChunkResult], start: int, end: int) -> float:
        now = self._ongoing
        for chunk in chunks:
            if chunk.failure is not None:
                folder = None if self._storage is None else self._storage.path
                raise NonFiniteError(chunk.failure, folder)
        for group, chunk in zip(now.groups, chunks, strict=True):
            row = now.schedule.num_draws(start) - now.num_dropped
            for draws, num_rows in zip(chunk.draws, chunk.rows, strict=True):
                now.store.put(group.chains, row, draws)
                row += num_rows
        seconds = max(chunk.seconds for chunk in chunks) / max(1, end - start)
        return self._bound.placement.processes.first_value(seconds)

    def _end_early(self, exceeded: Exceeded) -> None:
        now, folder = self._ongoing, None if self._storage is None else self._storage.path
        if now.num_stored == 0:
            if exceeded.is_memory:
                raise MemoryError(exceeded.reason)
            raise GrowthError(exceeded, folder)
        warn(
            f"{exceeded.describe()}. The run ends here, after {now.step} of "
            f"{now.schedule.num_steps} steps, and returns the {now.num_stored} draws so far of "
            "each chain; they lack what comes after, so judge them with care",
            GrowthWarning,
        )

    def _report(self, chunks: list[ChunkResult], seconds_per_step: float) -> ProgressReport:
        now, schedule = self._ongoing, self._ongoing.schedule
        scalars: dict[str, Any] = {
            name: [chunk.scalars[name] for chunk in chunks] for name in chunks[0].scalars
        }
        return ProgressReport(
            step=now.step,
            num_steps=schedule.num_steps,
            num_warmup=schedule.num_warmup,
            seconds_left=(schedule.num_steps - now.step) * seconds_per_step,
            scalars=mean_scalars(scalars),
            note=self._note,
        )


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keeps the linear algebra of CPU programs on the thread that calls it.

    The matrices that samplers factorise are small; threads shared by several chains only wait for
    one another, which more than doubles the time of two chains. The same for one chain, so that a
    chain's rounding does not depend on how many there are.
    """
    if default_platform() != "cpu":
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def next_length(length: int, seconds_per_step: float, chunk_seconds: float) -> int:
    """Steps of the next chunk, so that it takes about `chunk_seconds`.

    Example:
        >>> next_length(100, seconds_per_step=0.004, chunk_seconds=1.0)
        250
    """
    aim = chunk_seconds / max(seconds_per_step, 1e-9)
    return max(1, min(int(aim), MAX_CHUNK_GROWTH * length))


def num_workers(num_groups: int) -> int:
    """How many groups run at once: on CPU as many as there are cores, else one."""
    if default_platform() != "cpu":
        return 1
    return max(1, min(num_groups, num_cores()))
