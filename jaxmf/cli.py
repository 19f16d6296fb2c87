"""The command line: parses, calls the public API, prints.

Models and their settings come from the registry. Mistakes end in one line and exit status 2.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

app = typer.Typer(
    name="jaxmf",
    help="Bayesian nonparametric matrix factorisation.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_CHECKPOINT = "checkpoint"

Folder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
At = Annotated[
    float | None,
    typer.Option("--at", help="A time of a series, any number; its last unless given."),
]
Shape = Annotated[
    str | None, typer.Option(help="HEIGHTxWIDTH if rows are images, such as 8x8.", metavar="HxW")
]


def main(arguments: list[str] | None = None) -> None:
    """Entry point: run a command and leave with its exit status."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


# Recent typers bring a click of their own: the error is found through what typer exports.
_ClickError: type[Any] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def run(arguments: list[str]) -> int:
    """Run a command; mistakes become one line on stderr and status 2."""
    try:
        status = app(args=arguments or ["--help"], prog_name="jaxmf", standalone_mode=False)
    except _ClickError as error:
        return _complain(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", status=130)
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError, LookupError) as error:
        return _complain(_message(error))
    except ImportError as error:
        return _complain(str(error))
    return status if isinstance(status, int) else 0


def _complain(words: str, status: int = 2) -> int:
    print("jaxmf: " + " ".join(words.split()), file=sys.stderr)
    return status


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return words or type(error).__name__


@app.command()
def models() -> None:
    """List the models, one line each, with their methods and settings."""
    from jaxmf import registry, settings

    for entry in registry.ENTRIES:
        methods = ", ".join(
            f"{method} (default)" if method == entry.default else method for method in entry.methods
        )
        print(f"{entry.name:24}{entry.one_line}")
        print(f"{'':24}methods:  {methods}")
        _print_settings("settings:", registry.model_settings(entry), settings)
        for method in entry.methods:
            _print_settings(f"{method}:", registry.method_settings(entry, method), settings)


def _print_settings(head: str, known: list[Any], settings: Any) -> None:
    import textwrap

    shown = [
        f"{each.name}" if each.required else f"{each.name}={settings.describe(each.default)}"
        for each in known
    ]
    indent = " " * 24
    text = f"{head} {', '.join(shown)}"
    print(textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=indent + "  "))


@app.command()
def fit(
    model: Annotated[str, typer.Argument(help="Name of a model; `jaxmf models` lists them.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="Matrix: .npy, .npz, .csv, .tsv or .parquet; a series: .csv of triples."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder the run is written to.")],
    method: Annotated[str | None, typer.Option(help="The model's default unless given.")] = None,
    chains: Annotated[int | None, typer.Option(help="Chains of a sampler.")] = None,
    samples: Annotated[int | None, typer.Option(help="Draws kept of each chain.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps thrown away first.")] = None,
    thin: Annotated[int | None, typer.Option(help="Steps between kept draws.")] = None,
    particles: Annotated[int | None, typer.Option(help="Particles of a filter.")] = None,
    runs: Annotated[int | None, typer.Option(help="Independent runs of a filter.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a variational fit.")] = None,
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
    form: Annotated[
        str | None,
        typer.Option(
            help="How a .csv is read: of ones pairs, baskets or matrix, of ratings triples or "
            "matrix."
        ),
    ] = None,
    headings: Annotated[
        bool | None,
        typer.Option(help="Whether pairs or triples have a line of headings; seen unless given."),
    ] = None,
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
    missing_features: Annotated[
        str, typer.Option(help="Of ids and cells without features: refuse, or zero.")
    ] = "refuse",
    key: Annotated[str | None, typer.Option(help="Which array of an .npz file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints; 0 for as many as there can be.")
    ] = 10.0,
    progress: Annotated[
        bool | None, typer.Option(help="Show a bar; by default on a terminal.")
    ] = None,
) -> None:
    """Fit a model to a matrix, or to a series of them (.csv of row, column, time), and write it."""
    import jaxmf as mf
    from jaxmf import registry
    from jaxmf.posterior.ranking import can_recommend
    from jaxmf.report import write_notes

    _check_out(out, resume=resume, overwrite=overwrite)
    shape = _read_shape(image_shape)
    entry = registry.get(model)
    if entry.has_functions:
        raise ValueError(
            f"{entry.name} is made of functions, which the command line cannot read; use "
            f"jaxmf.{entry.model.__name__} from Python"
        )
    chosen = entry.default if method is None else method.replace("-", "_")
    registry.check_method(entry, chosen)
    model_values, options = read_settings(entry, chosen, set_ or [])
    files = {"row_features": row_features, "column_features": column_features}
    model_values |= _read_features(entry, files, missing_features)
    description = _build(entry, model_values)
    reading = {"form": form, "headings": headings, "mask": mask, "vocab": vocab}
    container = _read_data(data, entry.container, description, reading, key)
    _check_shape(shape, container)
    container, truth = _hide(container, hold_out, seed)
    _start_compilation_cache()
    given = {
        "sample": {
            "num_chains": chains,
            "num_samples": samples,
            "num_warmup": warmup,
            "thin": thin,
        },
        "particle_filter": {"num_particles": particles, "num_runs": runs},
        "variational": {
            "num_epochs": epochs,
            "num_validation": validation,
            "analytic": analytic or None,
        },
    }
    _refuse_foreign(chosen, given)
    settings = {name: value for name, value in given[chosen].items() if value is not None}
    if overwrite:
        shutil.rmtree(out / _CHECKPOINT, ignore_errors=True)
    posterior = mf.fit(
        description,
        container,
        method=chosen,
        seed=seed,
        checkpoint=out / _CHECKPOINT,
        checkpoint_seconds=checkpoint_every,
        resume=resume,
        progress=progress,
        **settings,
        **options,
    )
    posterior.save(out)
    write_notes(out, image_shape=shape, truth=truth)
    print(posterior)
    following = "recommend" if can_recommend(description) else "report"
    ending = "" if following == "recommend" else " -o report.html"
    print(f"\nWritten to {out}. Next: jaxmf {following} {out}{ending}")


def _read_data(
    path: Path, container: Any, model: Any, reading: dict[str, Any], key: str | None
) -> Any:
    """The data of a file; `reading` holds the options that some containers alone have."""
    from jaxmf import data as containers

    takes = {
        containers.SparseBinary: ("form", "headings", "mask"),
        containers.SparseSeries: ("headings",),
        containers.Entries: ("form",),
        containers.Tokens: ("vocab",),
    }.get(container, ())
    for name, value in reading.items():
        if value is not None and name not in takes:
            raise ValueError(f"--{name} means nothing to {container.__name__} data; leave it out")
    chosen = {name: reading[name] for name in takes}
    if container is containers.SparseBinary:
        return containers.read_ones(path, key=key, **chosen)
    if container is containers.SparseSeries:
        return containers.read_series(path, **chosen)
    if container is containers.Entries:
        return containers.read_entries(path, key=key, **chosen)
    if container is containers.Tokens:
        columns, real = model.token_columns()
        return containers.read_tokens(
            path, columns=columns, real=real, vocabulary=reading["vocab"], key=key
        )
    return containers.as_container(containers.read_matrix(path, key=key), container)


def _read_features(entry: Any, files: dict[str, Path | None], missing: str) -> dict[str, Any]:
    """Side information by the setting of the model that it is for."""
    from jaxmf import registry
    from jaxmf.data import read_features

    given = {name: path for name, path in files.items() if path is not None}
    known = {each.name for each in registry.model_settings(entry)}
    for name in given:
        if name not in known:
            raise ValueError(
                f"--{name.replace('_', '-')}: {entry.name} takes no side information; leave it out"
            )
    return {name: read_features(path, missing=missing) for name, path in given.items()}


@app.command()
def show(folder: Folder) -> None:
    """Show the summary and the facts of a run."""
    import jaxmf as mf

    posterior = mf.load(folder)
    print(posterior)
    print()
    facts = posterior.facts()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {value}")


@app.command()
def predict(
    folder: Folder,
    cells: Annotated[
        Path | None, typer.Argument(help="CSV with columns row and column; missing cells if none.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file; prints if none.")
    ] = None,
    quantiles: Annotated[str, typer.Option(help="Levels, separated by commas.")] = "0.05,0.95",
    at: At = None,
) -> None:
    """Predict cells: mean, sd and quantiles of each."""
    import jaxmf as mf
    from jaxmf.data import read_columns

    levels = _read_levels(quantiles)
    posterior = mf.load(folder) if at is None else mf.load(folder).at(at)
    chosen = None
    if cells is not None:
        columns = read_columns(cells, ["row", "column"])
        chosen = (columns["row"], columns["column"])
    _start_compilation_cache()
    table = posterior.predict(chosen, quantiles=levels).table()
    _hand_over(table, out, "predictions")


@app.command()
def recommend(
    folder: Folder,
    rows: Annotated[
        list[str] | None, typer.Argument(help="Ids (or positions) of rows; all if none.")
    ] = None,
    number: Annotated[int, typer.Option("-n", help="How many columns a row.")] = 10,
    by: Annotated[str, typer.Option(help="score, or probability.")] = "score",
    at: At = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file; prints if none.")
    ] = None,
) -> None:
    """The best columns of rows, without those they are known to have."""
    import jaxmf as mf

    posterior = mf.load(folder) if at is None else mf.load(folder).at(at)
    _start_compilation_cache()
    chosen = _read_ids(rows, posterior.data.row_names) if rows else None
    table = posterior.recommend(chosen, n=number, by=by).table()
    _hand_over(table, out, "recommendations")


def _read_ids(texts: list[str], names: np.ndarray | None) -> np.ndarray:
    """Ids as the data has them: whole numbers where its ids are, or where it has none."""
    are_numbers = names is None or all(isinstance(name, int) for name in names.tolist())
    if not are_numbers:
        return np.array(texts, dtype=object)
    try:
        return np.array([int(text) for text in texts])
    except ValueError:
        kind = "ids" if names is not None else "positions, as the data has no ids,"
        raise ValueError(f"rows {texts}: the {kind} of rows are whole numbers") from None


@app.command()
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file to write.")] = None,
    image_shape: Shape = None,
    truth: Annotated[
        Path | None, typer.Option(help="The complete matrix, if missing cells are known.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
) -> None:
    """Write one self-contained HTML page about a run."""
    import jaxmf as mf
    from jaxmf.data import read_matrix
    from jaxmf.report import read_notes
    from jaxmf.report import report as write_report

    posterior = mf.load(folder)
    shape, known = read_notes(folder)
    shape = _read_shape(image_shape) or shape
    if truth is not None:
        known = np.asarray(read_matrix(truth).values, dtype=float)
    _start_compilation_cache()
    path = write_report(
        posterior, out or folder / "report.html", image_shape=shape, truth=known, title=title
    )
    print(path)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder the run and its report go to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    progress: Annotated[
        bool | None, typer.Option(help="Show a bar; by default on a terminal.")
    ] = None,
) -> None:
    """The main job on small images: hidden features, held-out cells predicted, a report."""
    from jaxmf import demo as demonstration

    _start_compilation_cache()
    path = demonstration.run(out, seed=seed, progress=progress)
    print(f"\nThe report: {path.absolute()}")


def _check_out(out: Path, *, resume: bool, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")
    holds_run = (out / "posterior.json").exists() or _has_checkpoint(out)
    if holds_run and not (resume or overwrite):
        raise ValueError(
            f"{out} already holds a run; --resume goes on with it, --overwrite replaces it"
        )
    if resume and not _has_checkpoint(out):
        raise ValueError(f"{out} holds no checkpoint to resume from; leave --resume out")


def _has_checkpoint(out: Path) -> bool:
    return (out / _CHECKPOINT / "checkpoint.json").exists()


def _read_shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)\s*[x×,]\s*(\d+)", text.strip().lower())
    if match is None or 0 in (shape := tuple(map(int, match.groups()))):
        raise ValueError(f"--image-shape {text!r}: write HEIGHTxWIDTH, such as 8x8")
    return shape[0], shape[1]


def _check_shape(shape: tuple[int, int] | None, data: Any) -> None:
    if shape is not None and shape[0] * shape[1] != data.num_columns:
        raise ValueError(
            f"--image-shape {shape[0]}x{shape[1]} has {shape[0] * shape[1]} cells, "
            f"the data has {data.num_columns} columns"
        )


def _read_levels(text: str) -> tuple[float, ...]:
    try:
        levels = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--quantiles {text!r}: write numbers such as 0.05,0.5,0.95") from None
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles {text!r}: levels lie between 0 and 1")
    return levels


def read_settings(
    entry: Any, method: str, given: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split ``name=value`` settings into those of the model and those of the method."""
    from jaxmf import registry, settings

    of_model = {each.name: each for each in registry.model_settings(entry)}
    of_method = {each.name: each for each in registry.method_settings(entry, method)}
    found: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not value.strip():
            raise ValueError(f"--set {text!r}: write NAME=VALUE, such as alpha=Gamma(1,1)")
        if name not in of_model and name not in of_method:
            raise ValueError(
                f"--set {name}: {entry.name} by {method} has no such setting; there are "
                f"{', '.join([*of_model, *of_method])}"
            )
        if name in found:
            raise ValueError(f"--set {name} is given twice")
        try:
            found[name] = settings.parse(value)
        except ValueError as error:
            raise ValueError(f"--set {name}: {error}") from None
        default = (of_model.get(name) or of_method[name]).default
        if callable(default) and isinstance(found[name], str):
            found[name] = _function_beside(default, found[name], name)
    model_values = {name: value for name, value in found.items() if name in of_model}
    return model_values, {name: value for name, value in found.items() if name not in of_model}


def _function_beside(default: Any, word: str, name: str) -> Any:
    """A function named by a word, from where the default of an option stands."""
    module = sys.modules[default.__module__]
    function = getattr(module, word, None)
    if not callable(function) or getattr(function, "__module__", "") != default.__module__:
        raise ValueError(f"--set {name}={word}: {default.__module__} has no function {word!r}")
    return function


def _build(entry: Any, values: dict[str, Any]) -> Any:
    from jaxmf import registry

    missing = [
        each.name
        for each in registry.model_settings(entry)
        if each.required and each.name not in values
    ]
    if missing:
        raise ValueError(f"{entry.name} needs --set {missing[0]}=VALUE")
    return entry.model(**values)


def _refuse_foreign(method: str, given: dict[str, dict[str, Any]]) -> None:
    flags = {
        "num_chains": "--chains",
        "num_samples": "--samples",
        "num_warmup": "--warmup",
        "thin": "--thin",
        "num_particles": "--particles",
        "num_runs": "--runs",
        "num_epochs": "--epochs",
        "num_validation": "--validation",
        "analytic": "--analytic",
    }
    for other, values in given.items():
        for name, value in values.items():
            if other != method and value is not None:
                own = ", ".join(flags[n] for n in given[method]) or "no such option"
                raise ValueError(f"{flags[name]} belongs to {other}; {method} takes {own}")


def _hide(data: Any, share: float, seed: int) -> tuple[Any, np.ndarray | None]:
    """Hide a share of the observed cells; returns the data and the matrix as it was."""
    if not 0 <= share < 1:
        raise ValueError(f"--hold-out {share}: a share between 0 and 1")
    if share == 0:
        return data, None
    from jaxmf.data import Dense

    if not isinstance(data, Dense):
        raise ValueError(
            "--hold-out hides cells of a full matrix; for sparse binary data use --validation ROWS"
        )

    truth = data.to_array()
    hidden = np.random.default_rng([seed, 5]).random(truth.shape) < share
    values = np.where(hidden, np.nan, truth)
    return Dense(values, row_names=data.row_names, column_names=data.column_names), truth


def _start_compilation_cache() -> None:
    from jaxmf.engine.compilation_cache import enable_compilation_cache

    enable_compilation_cache()


def _hand_over(table: dict[str, np.ndarray], out: Path | None, what: str) -> None:
    """A table to a CSV file, or to standard output where there is none."""
    if out is None:
        _write_table(sys.stdout, table)
        return
    with out.open("w", newline="", encoding="utf-8") as file:
        _write_table(file, table)
    print(f"{len(next(iter(table.values()))):,} {what} written to {out}")


def _write_table(file: Any, table: dict[str, np.ndarray]) -> None:
    writer = csv.writer(file)
    writer.writerow(table)
    for line in zip(*(column.tolist() for column in table.values()), strict=True):
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line)
