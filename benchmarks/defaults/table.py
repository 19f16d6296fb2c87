"""Rows of a case: each peer's, and that of another version of the library, from their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import records
from benchmarks.defaults.measure import Case
from benchmarks.harness import Row, row
from jaxmf.engine.disk_cache import default_folder

CHILD = Path(__file__).with_name("child.py")
ROOT = CHILD.parents[2]
LIMIT = 900.0  # CPU seconds of a run of full length, its compilation counted
_SLOWEST = 20  # wall seconds to a CPU second, on a machine that is busy


class Outcome(NamedTuple):
    """What a process said.

    Args:
        ours: the figure; NaN where there is none.
        note: alarms, error, or that the run was not done.
        peers: figures of peers; empty where they were not asked for.
    """

    ours: float
    note: str
    peers: dict[str, float]


def outcome(
    case: str, *, quick: bool, peers: bool, limit: float = LIMIT, checkout: Path = ROOT
) -> Outcome:
    """Run a case in a process of its own, with jaxmf of a checkout."""
    line = [sys.executable, str(CHILD), case, "--limit", str(limit), "--jaxmf", str(checkout)]
    line += ["--quick"] * quick + ["--peers"] * peers
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, env=_environment(), timeout=_SLOWEST * limit + 600
        )
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return _read(text, f"not done after {late.timeout:.0f} seconds")
    return _read(done.stdout, _end(done, limit))


def _environment() -> dict[str, str]:
    """That of this process with the library's cache of programs, whatever the version calls it."""
    folder = default_folder()
    cache = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    if folder is not None:
        cache["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compilation")
    without = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return cache | without


def _end(done: subprocess.CompletedProcess, limit: float) -> str:
    """Why a process ended without a figure."""
    if done.returncode == -signal.SIGXCPU:
        return f"not done after {limit:.0f} CPU seconds"
    last = done.stderr.strip().splitlines()[-1:] or [""]
    return f"the process ended with code {done.returncode}: {last[0][:120]}"


def _read(text: str, otherwise: str) -> Outcome:
    said: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            said |= json.loads(line)
    note = otherwise
    if "ours" in said:
        note = f"{said['note']}; {said['seconds']:.0f} CPU s"
    return Outcome(said.get("ours", float("nan")), note, said.get("peers", {}))


def rows_of(name: str, case: Case, found: Outcome) -> list[Row]:
    """A row for each peer, one alone without any; a run that failed is a row that says so."""
    return [
        row(
            f"defaults/{name}",
            "quality",
            case.unit,
            found.ours,
            note=found.note,
            peer=peer,
            theirs=theirs,
            more_is_better=case.more_is_better,
        )
        for peer, theirs in (found.peers or {None: None}).items()
    ]


def peer_name(checkout: Path) -> str:
    """The older version as a peer, by its commit."""
    return f"jaxmf at {records.commit(checkout)}"


def row_beside(name: str, case: Case, found: Outcome, old: Outcome, checkout: Path) -> Row:
    """The row whose peer is the other version; its alarms or error are in the note."""
    return row(
        f"defaults/{name}",
        "quality",
        case.unit,
        found.ours,
        note=f"{found.note}; before: {old.note}",
        peer=peer_name(checkout),
        theirs=old.ours,
        more_is_better=case.more_is_better,
    )


def kept(path: Path | None, name: str) -> list[Mapping[str, Any]]:
    """Rows of a case that a file holds."""
    if path is None or not path.exists():
        return []
    rows = json.loads(path.read_text())["rows"]
    return [one for one in rows if one["case"] == f"defaults/{name}"]


def outcome_of(rows: list[Mapping[str, Any]], commit: str) -> Outcome | None:
    """The run of rows that are of a commit; None where there are none, or no run in them."""
    of_now = [one for one in rows if one["condition"].get("commit") == commit]
    peers = {one["peer"]: _figure(one["theirs"]) for one in of_now}
    if not peers:
        return None
    first = of_now[0]
    return Outcome(_figure(first["ours"]), first["note"].partition("; before: ")[0], peers)


def old_outcome_of(rows: list[Mapping[str, Any]], peer: str) -> Outcome | None:
    """The other version's run, which the file holds whatever commit its row is of."""
    for one in rows:
        if one["peer"] == peer:
            return Outcome(_figure(one["theirs"]), one["note"].partition("; before: ")[2], {})
    return None


def _figure(value: float | None) -> float:
    return float("nan") if value is None else value


def measured(
    name: str,
    case: Case,
    *,
    quick: bool,
    again: bool = True,
    path: Path | None = None,
    checkout: Path | None = None,
) -> list[Row]:
    """All rows of a case.

    Args:
        name: of the case, without the benchmark's.
        case: what is measured.
        quick: short chains.
        again: run what the file has for this commit once more.
        path: the file of earlier rows.
        checkout: of another version to stand beside this one; None for none.
    """
    before, limit = kept(path, name), case.quick_limit if quick else LIMIT
    found = None if again else outcome_of(before, records.commit(ROOT))
    if found is None:
        found = outcome(name, quick=quick, peers=True, limit=limit)
    others = {peer: x for peer, x in found.peers.items() if not peer.startswith("jaxmf at ")}
    found = found._replace(peers=others)
    rows = rows_of(name, case, found)
    if checkout is not None:
        old = old_outcome_of(before, peer_name(checkout))
        if old is None:
            old = outcome(name, quick=quick, peers=False, limit=limit, checkout=checkout)
        rows.append(row_beside(name, case, found, old, checkout))
    return rows
