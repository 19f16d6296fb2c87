"""The library of one checkout: ``python benchmarks/against/child.py FOLDER`` answers on a pipe.

A line "open CASE" makes a case and runs it once, "run" runs it again; each is answered by a line of
JSON with the seconds, or an error. jaxmf is imported from the folder, cases from beside this file.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Answers until the pipe is closed."""
    # what a library prints must not be taken for an answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder = sys.argv[1]
    sys.path[0] = folder
    import jaxmf

    sys.path[0] = str(ROOT)
    if Path(jaxmf.__file__).resolve().parents[1] != Path(folder).resolve():
        raise RuntimeError(f"jaxmf was imported from {jaxmf.__file__}, not from {folder}")
    from benchmarks import harness
    from benchmarks.against.cases import CASES

    warnings.simplefilter("ignore")
    run: Callable[[], Any] | None = None
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        try:
            if word == "open":
                run = None  # its arrays go first
                run = CASES[name]()
            answer: dict[str, Any] = {"seconds": harness.seconds(run)}
        except Exception as error:  # such as a name that this version lacks
            answer = {"error": f"{type(error).__name__}: {str(error)[:120]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
