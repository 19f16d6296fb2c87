"""Executes the notebooks of this folder; an error in a cell, or too long a run, is an error here.

    python notebooks/execute.py                                    all of them, 60 seconds each
    python notebooks/execute.py --at-once 2                        two side by side
    python notebooks/execute.py notebooks/04_topics.ipynb --write  keep the outputs in it

Each notebook runs from top to bottom in a fresh kernel with this folder as the working folder.
With JAXMF_FAST=1 the notebooks take smaller sizes.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).resolve().parent


async def execute(path: Path, timeout: float, write: bool) -> None:
    """Run one notebook within `timeout` seconds all told; raises where it fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=int(timeout) + 1,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    await asyncio.wait_for(client.async_execute(), timeout)
    if write:
        nbformat.write(notebook, path)


async def execute_all(paths: list[Path], options: argparse.Namespace) -> int:
    """Run the notebooks, some side by side, and print how each ended; the number that failed."""
    room = asyncio.Semaphore(options.at_once)

    async def problem_of_one(path: Path) -> str:
        async with room:
            start, problem = time.monotonic(), ""
            try:
                await execute(path, options.timeout, options.write)
            except (TimeoutError, CellTimeoutError):
                problem = "took too long"
            except (CellExecutionError, DeadKernelError) as error:
                problem = str(error)
            seconds = time.monotonic() - start
        if problem and seconds >= options.timeout:
            problem = f"took longer than {options.timeout:g} s"
        print(f"{path.name:40} {seconds:6.1f} s  {'FAILED' if problem else 'ok'}", flush=True)
        if problem:
            print(problem, file=sys.stderr, flush=True)
        return problem

    return sum(map(bool, await asyncio.gather(*map(problem_of_one, paths))))


def main() -> int:
    """Execute the named notebooks, or all; returns the number that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of this folder")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--at-once", type=int, default=1, help="how many run side by side")
    parser.add_argument("--write", action="store_true", help="write the outputs back")
    options = parser.parse_args()
    # The last ones take longest: they begin, and none is left to run alone for long.
    paths = options.notebooks or sorted(FOLDER.glob("*.ipynb"), reverse=True)
    num_failed = asyncio.run(execute_all(paths, options))
    print(f"{len(paths) - num_failed} notebooks executed, {num_failed} failed")
    return num_failed


if __name__ == "__main__":
    sys.exit(main())
