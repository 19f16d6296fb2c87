"""One case in a process of its own, so that a hang or a crash is a figure too.

``python benchmarks/defaults/child.py CASE [--quick] [--peers] [--limit SECONDS] [--jaxmf FOLDER]``
prints a line of JSON with the figures of the peers, and one with that of the run. The system ends
the process once the run has taken its CPU seconds; no line of the run is printed then.

`--jaxmf` names a checkout of another version: jaxmf is imported from there, and the cases, with the
same data, the same hidden cells and the same questions, from beside this file.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--jaxmf", default=str(ROOT))
    return parser.parse_args()


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _figure(peer: Callable[[], float]) -> float:
    """A peer's figure; NaN where it fails."""
    try:
        return float(peer())
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return float("nan")


def main() -> None:
    """Runs the case that the command line names."""
    chosen = _arguments()
    # the version first: its name is then taken when the benchmarks import it
    sys.path[0] = chosen.jaxmf
    import jaxmf

    sys.path[0] = str(ROOT)
    from benchmarks.defaults import SIDES

    if Path(jaxmf.__file__).resolve().parents[1] != Path(chosen.jaxmf).resolve():
        raise RuntimeError(f"jaxmf was imported from {jaxmf.__file__}, not from {chosen.jaxmf}")
    case = SIDES[chosen.case]
    if chosen.peers:
        print(json.dumps({"peers": {name: _figure(peer) for name, peer in case.peers.items()}}))
        sys.stdout.flush()
    begin = _spent()
    if chosen.limit != float("inf"):
        most = int(begin + chosen.limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    try:
        ours, note = case.ours(chosen.quick)
    except Exception as error:  # a stranger's first call: whatever comes is the result
        ours, note = float("nan"), f"{type(error).__name__}: {str(error)[:120]}"
    print(json.dumps({"ours": float(ours), "note": note, "seconds": _spent() - begin}))


if __name__ == "__main__":
    main()
