"""The command line: ``python -m benchmarks NAME [--quick] [--json FILE]``.

python -m benchmarks ibp --quick         a minute
python -m benchmarks ibp --only filter   the cases whose names hold this word
python -m benchmarks paper section-4-2   a paper's results at full size
python -m benchmarks against v0.2.0      what got slower since
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Annotated, Any

# one core a side: set before numpy loads its linear algebra, and written down with the results
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import typer
from rich.console import Console

from benchmarks import harness, records
from jaxmf.engine.disk_cache import use_compilation_cache

BENCHMARKS = {
    "ibp": "benchmarks.ibp",
    "noisy_or": "benchmarks.noisy_or",
    "binary_mf": "benchmarks.binary_mf",
    "variational": "benchmarks.variational",
    "sparse_defaults": "benchmarks.sparse_defaults",
    "blocks": "benchmarks.blocks",
    "mixing": "benchmarks.feature_mixing",
    "flexible": "benchmarks.flexible",
    "factors": "benchmarks.factors",
    "robustness": "benchmarks.robustness",
    "defaults": "benchmarks.defaults",
    "accelerator": "benchmarks.accelerator",
}
PAPERS = {
    "section-4-2": "benchmarks.section_4_2",
    "section-5-2": "benchmarks.section_5_2",
    "bars": "benchmarks.bars",
    "digits": "benchmarks.digits",
    "genes": "benchmarks.genes",
    "calibration": "benchmarks.calibration",
    "coverage": "benchmarks.coverage",
    "sparse-binary": "benchmarks.sparse_binary",
    "flexible": "benchmarks.section_7",
    "recommender": "benchmarks.recommender",
    "topic-curves": "benchmarks.topic_curves",
}
IN_PARTS = {
    "sparse-binary",
    "recommender",
    "calibration",
    "coverage",
}  # papers that can be run, and written, part by part
RESULTS = Path(__file__).parent / "results"

Quick = Annotated[bool, typer.Option("--quick", help="small sizes; ends within a minute")]
Json = Annotated[Path | None, typer.Option("--json", help="put the rows into this file")]
Only = Annotated[str, typer.Option("--only", help="only cases whose names hold this word")]

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


def run_benchmark(
    name: str, *, quick: bool, only: str = "", json: Path | None = None, **options: Any
) -> list[Any]:
    """Measure the cases of one benchmark, print them, and write them where asked to."""
    benchmark = importlib.import_module(BENCHMARKS[name])
    cases = benchmark.CASES
    # what was asked for by name is measured, at small sizes too; else what a minute holds
    listed = benchmark.QUICK if quick and not only else cases
    chosen = {case: measure for case, measure in cases.items() if only in case and case in listed}
    if not chosen:
        raise typer.BadParameter(f"no case holds {only!r}; there are {', '.join(cases)}")
    use_compilation_cache()  # a second run compiles little; what is timed never compiles
    console = Console(stderr=True)
    began, rows = records.environment(), []
    for case, measure in chosen.items():
        start = time.perf_counter()
        now = began | {"load": records.load()}
        rows += records.stamped(measure(quick, **options), name, now)
        console.print(f"{case}: {time.perf_counter() - start:.0f} s", highlight=False)
        if json is not None:  # after every case, so that a broken-off run leaves what it has
            records.merge_json(json, records.document(rows, quick=quick, began=began))
    title = f"{name} on {began['device']}, load {began['load']}{', quick' if quick else ''}"
    harness.print_table(rows, title=title)
    return rows


def _command(name: str) -> Any:
    def measure(quick: Quick = False, json: Json = None, only: Only = "") -> None:
        run_benchmark(name, quick=quick, only=only, json=json)

    measure.__doc__ = importlib.import_module(BENCHMARKS[name]).__doc__
    return measure


for _name in BENCHMARKS:
    if _name != "defaults":
        app.command(_name)(_command(_name))


@app.command(help=importlib.import_module(BENCHMARKS["defaults"]).__doc__)
def defaults(
    quick: Quick = False,
    json: Json = None,
    only: Only = "",
    again: Annotated[
        bool, typer.Option("--again", help="also what FILE has of this commit")
    ] = False,
    against: Annotated[
        Path | None, typer.Option("--against", help="a checkout of another version")
    ] = None,
) -> None:
    """Every model without an option."""
    more = {"path": json, "again": again, "checkout": against and against.resolve()}
    run_benchmark("defaults", quick=quick, only=only, json=json, **more)


@app.command()
def against(
    reference: Annotated[
        str,
        typer.Argument(metavar="[REF]", help="a git revision; by default the newest tag vX.Y.Z"),
    ] = "",
    now: Annotated[
        str, typer.Option("--now", help="a git revision to stand for the files of this checkout")
    ] = "",
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats",
            min=1,
            help="pairs of runs of a case; of fewer than 6 none is called slower",
        ),
    ] = 10,
    json: Json = None,
    only: Only = "",
) -> None:
    """What got slower since another version, both run in turn.

    Ends with code 1 where something did, else with 125 where something was not measured.
    """
    os.environ.setdefault("PJRT_NPROC", "1")  # CPU seconds, which other programs hardly touch
    from benchmarks.against import compare, exit_code

    try:
        lines = compare(reference, now=now, only=only, repeats=repeats, json=json)
    except ValueError as error:
        wrong = typer.BadParameter(str(error))
        wrong.exit_code = 128  # ends git bisect run, which takes 2 for a bad commit
        raise wrong from None
    raise typer.Exit(exit_code(lines))


@app.command()
def paper(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(PAPERS)}")],
    quick: Quick = False,
    json: Json = None,
    only: Only = "",
) -> None:
    """A paper's results at full size, written to benchmarks/results/ unless --quick is given."""
    if name not in PAPERS:
        raise typer.BadParameter(f"no paper {name!r}; there are {', '.join(PAPERS)}")
    if only and name not in IN_PARTS:
        raise typer.BadParameter(f"--only is for papers run in parts: {', '.join(IN_PARTS)}")
    path = json or (None if quick else RESULTS / f"paper-{name}.json")
    use_compilation_cache()
    parts = {"only": only} if name in IN_PARTS else {}
    importlib.import_module(PAPERS[name]).run(quick=quick, json=path, **parts)


if __name__ == "__main__":
    app()
