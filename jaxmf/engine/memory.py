"""How much memory a run needs, and a refusal when it cannot have it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxmf.arguments import check_count
from jaxmf.engine.executables import Executable, bytes_on_device, num_bytes
from jaxmf.engine.processes import Processes
from jaxmf.types import PyTree


class Needs(NamedTuple):
    """Bytes a run needs on its fullest device, by purpose."""

    data: int  # the data and the numbers of the model
    states: int  # the states of all chains
    temporary: int  # what the compiled steps need beside them, for all chains that run at once
    draws: int  # the kept draws on the host, counted where host and device share their memory
    # what compiling and the preparation of data have left with the process, where these share it
    programs: int = 0


class MemoryGuard:
    """Refuses programs that do not fit beside what the run keeps.

    Args:
        constants: data and algorithm, on the device already.
        num_groups: groups of chains, each with a state.
        num_at_once: how many of them run at the same time.
        num_draws: draws to keep of each chain in memory.
        before: bytes of the process before the run, see `resident_bytes`, without its data.
        limit: bytes the run may take; the free memory, measured now, if None.
        processes: those of the run; what does not fit into one is refused in all.
    """

    def __init__(
        self,
        constants: PyTree,
        *,
        num_groups: int,
        num_at_once: int,
        num_draws: int,
        before: int,
        limit: int | None,
        processes: Processes,
    ):
        self.hold(constants)
        self._num_groups = num_groups
        self._num_at_once = num_at_once
        self._num_draws = num_draws
        self._before = before
        self._programs = 0
        self._is_running = False
        device = jax.local_devices()[0]
        self._shares_host = device.platform == "cpu"
        self._processes = processes
        if limit is None and (limit := available_bytes(device)) is not None and self._shares_host:
            limit += max(0, resident_bytes() - before)  # what it takes by now is counted too
        self._limit = self._least(limit)
        self._host_limit = self._least(available_host_bytes())
        self._approved: set[int] = set()

    def hold(self, constants: PyTree) -> None:
        """Counts other data from now on, such as were made of the first by preparation."""
        self._data = bytes_on_device(constants)

    def approve(self, program: Executable) -> None:
        """Checks a program before it runs: one that prepares, starts chains, or takes steps.

        Raises MemoryError: if it does not fit.
        """
        if id(program) in self._approved:
            return
        if not self._is_running:  # with all that was left by what came before
            self._programs = 0
        before = resident_bytes() if self._is_running else self._before + self._data
        arguments, beside = (int(max(self._processes.from_all(size))) for size in program.memory())
        if self._shares_host:
            more = max(self._processes.from_all(resident_bytes() - before))
            self._programs += max(0, int(more))
        self._is_running |= hasattr(program.shapes, "draws")
        draws = 0
        for rows in getattr(program.shapes, "draws", {}).values():
            draws += num_bytes(rows) // max(1, rows.shape[0]) * self._num_draws * self._num_groups
        states = max(0, arguments - self._data) * self._num_groups
        needs = Needs(self._data, states, beside * self._num_at_once, draws)
        needs = needs._replace(programs=self._programs)
        if self._shares_host:
            refuse_if_too_large(needs, self._limit, self._num_draws)
        else:
            refuse_if_too_large(needs._replace(draws=0), self._limit, self._num_draws)
            refuse_if_too_large(Needs(0, 0, 0, draws), self._host_limit, self._num_draws)
        self._approved.add(id(program))

    def _least(self, limit: int | None) -> int | None:
        """The least limit of all processes."""
        found = min(self._processes.from_all(float("inf") if limit is None else limit))
        return None if found == float("inf") else int(found)


def available_bytes(device: jax.Device) -> int | None:
    """Bytes a new run may take on the device; None where nothing is known."""
    if device.platform == "cpu":
        return available_host_bytes()
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))


def available_host_bytes() -> int | None:
    """Bytes free on this machine, or in this container where it has a limit of its own."""
    found = []
    meminfo = _read("/proc/meminfo")
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit.strip().isdigit() and used.strip().isdigit():
        reclaimable = [
            int(line.split()[1])
            for line in _read("/sys/fs/cgroup/memory.stat").splitlines()
            if line.startswith("inactive_file ")
        ]
        found.append(int(limit) - int(used) + sum(reclaimable))
    return min(found) if found else None


def resident_bytes() -> int:
    """Bytes of memory that this process has now; 0 where that is not known."""
    pages = _read("/proc/self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def refuse_if_too_large(needs: Needs, limit: int | None, num_draws: int) -> None:
    """Checks an estimate against the limit.

    Args: num_draws: to keep of each chain.
    Raises MemoryError: with both figures, where the memory goes, and what to lower.
    """
    total = sum(needs)
    if limit is None or total <= limit:
        return
    room = limit - (total - needs.draws)
    fits = room * num_draws // max(1, needs.draws)
    fewer = "keep less with a smaller num_samples"
    if 1 <= fits < num_draws:
        fewer += f", of which {fits:,} of each chain fit here (thin=... spreads them out)"
    parts = ", ".join(f"{name} {in_words(size)}" for name, size in needs._asdict().items())
    raise MemoryError(
        f"this run needs about {in_words(total)} ({parts}) and {in_words(limit)} are available. "
        "Lower num_chains, the number of particles (or their batch_size) or the capacity, or "
        f"{fewer}; memory_limit sets another limit in bytes"
    )


def check_limit(limit: object) -> int | None:
    """The argument memory_limit, checked.

    Raises TypeError: no whole number of bytes, such as the text "4GB". ValueError: below 1.
    """
    if limit is None:
        return None
    if isinstance(limit, bool | np.bool_) or not isinstance(limit, int | np.integer):
        raise TypeError(
            f"memory_limit must be a whole number of bytes, such as 4 * 10**9, got {limit!r}"
        )
    return check_count("memory_limit", limit)


def refuse_copy(num_bytes: int, limit: int | None) -> None:
    """Refuses data whose container alone would not fit, before it is made.

    Args:
        num_bytes: of the container that would be made of the data.
        limit: memory_limit; the free memory of the host if None.
    """
    available = available_host_bytes() if limit is None else limit
    if available is None or num_bytes <= available:
        return
    raise MemoryError(
        f"the data need {in_words(num_bytes)} as the container that the run would make of them, "
        f"beside the memory they take now, and {in_words(available)} are available. Pass fewer "
        "rows or columns, or a sparse container where the model takes one; memory_limit sets "
        "another limit in bytes"
    )


def in_words(size: int) -> str:
    """A size in bytes as people read it.

    Example:
        >>> in_words(3_200_000)
        '3.2 MB'
    """
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
