"""`jaxmf models` and `jaxmf fit`: what there is, and a run of it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxmf.arguments import check_file
from jaxmf.cli.inputs import (
    check_hold_out,
    check_shape,
    describe,
    describe_features,
    hide,
    read_data,
    read_features,
)
from jaxmf.cli.new_rows import keep_reading
from jaxmf.cli.options import (
    Columns,
    Drop,
    Form,
    Headings,
    Key,
    MissingFeatures,
    Recode,
    Shape,
    as_options,
    read_shape,
    start_compilation_cache,
)
from jaxmf.cli.settings import build, method_options, read_settings

if TYPE_CHECKING:
    from jaxmf.model import Model
    from jaxmf.registry.entry import Entry
    from jaxmf.results import Posterior

_CHECKPOINT = "checkpoint"


def models() -> None:
    """List the models, one line each, with their methods and settings."""
    from jaxmf.cli.listing import LISTED, listing
    from jaxmf.registry.entries import REGISTERED

    print(LISTED.read_text(encoding="utf-8") + listing(REGISTERED.values()), end="")


def fit(
    model: Annotated[str, typer.Argument(help="Name of a model; `jaxmf models` lists them.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="A table in text (.csv, .tsv, .txt, also in .gz), .npy, .npz, .mtx or .parquet; "
            "of topic models also a folder of .txt files."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder the run is written to.")],
    method: Annotated[str | None, typer.Option(help="The model's default unless given.")] = None,
    chains: Annotated[int | None, typer.Option(help="Chains of a sampler; 4 unless given.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Draws kept of each chain; 500 unless given.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Steps discarded first; 500 unless given.")
    ] = None,
    thin: Annotated[
        int | None, typer.Option(help="Steps between kept draws; 1 unless given.")
    ] = None,
    temper: Annotated[
        int | None, typer.Option(help="Replicas of each chain at powers of the likelihood.")
    ] = None,
    particles: Annotated[
        int | None, typer.Option(help="Particles, by default 1000 of a filter, 400 of smc.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(help="Independent runs of a filter (1 unless given) or of smc (4)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of a variational fit; 50 unless given.")
    ] = None,
    validation: Annotated[
        int | None, typer.Option(help="Rows of a variational fit that lose a one to stop by.")
    ] = None,
    analytic: Annotated[
        bool, typer.Option("--analytic", help="Variational fit in closed form.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of the model or an option of the method: a number, true, false, none, "
            "or a numpyro distribution such as alpha=Gamma(1,1). May be repeated.",
        ),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(help="Share of the observed cells hidden and scored in the report.")
    ] = 0.0,
    image_shape: Shape = None,
    form: Form = None,
    headings: Headings = None,
    columns: Columns = None,
    drop: Drop = None,
    recode: Recode = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="Observed cells of sparse binary data: pairs of ids, or a 0/1 matrix."),
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="Words of a matrix of counts: a text file, one a line.")
    ] = None,
    row_features: Annotated[
        Path | None,
        typer.Option(
            "--row-features",
            "--user-features",
            help="Side information of the rows, such as users: .csv with headings, ids first.",
        ),
    ] = None,
    column_features: Annotated[
        Path | None,
        typer.Option(
            "--column-features", "--item-features", help="The same of the columns, such as items."
        ),
    ] = None,
    missing_features: MissingFeatures = "refuse",
    key: Key = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds between checkpoints, 10 unless given; 0 for as many as there can be."
        ),
    ] = None,
    progress: Annotated[
        bool | None, typer.Option(help="Show a bar, or lines in a log; --no-progress for none.")
    ] = None,
) -> None:
    """Fit a model to a matrix, or to a series of them (.csv of row, column, time), and write it."""
    import jaxmf as mf

    check_out(out, resume=resume, overwrite=overwrite)
    shape = read_shape(image_shape)
    entry, chosen = _entry(model, method, set_ or [])
    for path in (data, mask, vocab, row_features, column_features):
        if path is not None and not (path is data and _is_corpus(entry, path)):
            check_file(path)
    check_hold_out(entry.container, hold_out)
    model_values, options = read_settings(entry, chosen, set_ or [])
    files = {"row_features": row_features, "column_features": column_features}
    features = read_features(entry, files, missing_features)
    model_values |= features
    description = build(entry, model_values)
    reading = {"form": form, "headings": headings, "mask": mask, "vocab": vocab, "key": key}
    reading |= {"columns": columns, "drop": drop, "recode": recode}
    noted: dict[str, object] = {}
    container = read_data(data, entry.container, description, reading, noted)
    check_shape(shape, container)
    print(f"{data}: {describe(container)}")
    for name, known in features.items():
        print(f"{files[name]}: {describe_features(name, known, container)}")
    container, truth = hide(container, hold_out, seed)
    start_compilation_cache()
    flags = {"chains": chains, "samples": samples, "warmup": warmup, "thin": thin, "temper": temper}
    flags |= {"particles": particles, "runs": runs, "epochs": epochs, "validation": validation}
    asked: dict[str, Any] = {"method": chosen, "seed": seed, "progress": progress, **options}
    asked |= method_options(chosen, {**flags, "analytic": analytic or None})
    asked |= _keeping(chosen, out, resume=resume, seconds=checkpoint_every)
    posterior, signal = _run(partial(mf.fit, description, container, **asked), out, overwrite)
    from jaxmf.report import write_notes

    posterior.save(out)
    keep_reading(out, {**reading, **noted})
    write_notes(out, image_shape=shape, truth=truth)
    _print_result(posterior, out, truth, is_matrix=noted.get("form") == "matrix")
    if signal is not None:
        if chosen != "smc":  # which had ended all the same
            _say_stopped(signal.name, out, "the draws so far are written")
        # what a shell or a scheduler sees of a program that died of the signal
        raise typer.Exit(128 + signal)


def _entry(model: str, method: str | None, texts: list[str]) -> tuple[Entry, str]:
    """A model by its name, and the method that fits it; `texts` are its settings."""
    from jaxmf import registry

    entry = registry.get(model)
    names = [text.partition("=")[0].strip() for text in texts]
    if entry.has_functions and "likelihood" not in names:
        has_likelihood = any(each.name == "likelihood" for each in registry.model_settings(entry))
        instead = "state --set 'likelihood=Poisson()' or another one, or "
        raise ValueError(
            f"{entry.name} is made of functions, which the command line cannot read; "
            f"{instead if has_likelihood else ''}use jaxmf.{entry.class_name} from Python"
        )
    chosen = entry.default if method is None else method.replace("-", "_")
    registry.check_method(entry, chosen)
    return entry, chosen


def _run(
    call: Callable[[], Posterior], out: Path, overwrite: bool
) -> tuple[Posterior, Signals | None]:
    """Result of a call, and the signal that stopped it; exits where no draw was kept."""
    from jaxmf.engine.interrupt import Interrupts
    from jaxmf.engine.lock import refuse_if_locked

    if overwrite:
        refuse_if_locked(out / _CHECKPOINT)
        shutil.rmtree(out / _CHECKPOINT, ignore_errors=True)
    with Interrupts() as stop:
        posterior = call()
    has_draws = all(values.shape[1] for values in posterior.draws.values())
    if stop.signal is not None and not (posterior.draws and has_draws):
        _say_stopped(stop.signal.name, out, "no draw was kept yet")
        raise typer.Exit(128 + stop.signal)
    return posterior, stop.signal


def _print_result(posterior: Posterior, out: Path, truth: object, *, is_matrix: bool) -> None:
    """The summary of a run, its error on held-out cells, and what to do next."""
    from jaxmf.diagnostics import held_out_error
    from jaxmf.model import PredictsCells

    print(as_options(str(posterior)))
    if truth is not None and isinstance(posterior.model, PredictsCells):
        print(f"\n{held_out_error(posterior, truth)}")
    following = next_command(posterior.model, posterior.data, out, is_matrix=is_matrix)
    print(f"\nWritten to {out}. Next: jaxmf {following}")


def next_command(model: Model, data: object, out: Path, *, is_matrix: bool) -> str:
    """Advice on what to do after a run.

    Args: is_matrix: whether a matrix was read and no list; cells of a model of ratings are then
    figures, which `predict` fills in, rather than ratings to choose by.
    """
    from jaxmf.data import Entries
    from jaxmf.posterior.ranking import can_recommend

    folder = shlex.quote(str(out))
    if isinstance(data, Entries) and is_matrix:
        if data.values.size < data.num_rows * data.num_columns:
            return f"predict {folder} -o predictions.csv"
    elif can_recommend(model):
        return f"recommend {folder}"
    return f"report {folder} -o report.html"


def _is_corpus(entry: Entry, path: Path) -> bool:
    """Whether it is a folder that a model of documents and words takes."""
    if not path.is_dir():
        return False
    from jaxmf.data import Tokens

    return entry.container is Tokens


def _keeping(method: str, out: Path, *, resume: bool, seconds: float | None) -> dict[str, Any]:
    """Settings of a method's checkpoints."""
    if method != "smc":
        every = {} if seconds is None else {"checkpoint_seconds": seconds}
        return {"checkpoint": out / _CHECKPOINT, "resume": resume, **every}
    if resume:
        raise ValueError("--resume: smc keeps no checkpoint to continue from; leave it out")
    if seconds is not None:
        raise ValueError("--checkpoint-every: smc keeps no checkpoint; leave it out")
    return {}


def _say_stopped(signal: str, out: Path, what: str) -> None:
    words = f"jaxmf: stopped by {signal}; {what}. The same command with --resume continues"
    print(f"{words} the run in {out}", file=sys.stderr)


def check_out(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuses a file for a folder, and one whose run would be lost, or is not there to resume."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")
    holds_run = (out / "posterior.json").exists() or _has_checkpoint(out)
    if holds_run and not (resume or overwrite):
        raise ValueError(
            f"{out} already holds a run; --resume continues it, --overwrite replaces it"
        )
    if resume and not _has_checkpoint(out):
        raise ValueError(f"{out} holds no checkpoint to resume from; leave --resume out")


def _has_checkpoint(out: Path) -> bool:
    return (out / _CHECKPOINT / "checkpoint.json").exists()
