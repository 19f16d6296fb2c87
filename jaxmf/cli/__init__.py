"""The command line: parses, calls the public API, prints.

Models and their settings come from the registry. Mistakes end in one line and exit status 2. Each
command is a function: `fitting.py` has those that make a run, `results.py` those about one.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from typing import Annotated, Any, TextIO, cast

import typer

from jaxmf.cli.fitting import fit, models
from jaxmf.cli.options import as_options
from jaxmf.cli.results import compare, demo, predict, recommend, report, show
from jaxmf.cli.settings import read_settings as read_settings

app = typer.Typer(
    name="jaxmf",
    help="Bayesian nonparametric matrix factorisation.",
    add_completion=False,
    pretty_exceptions_enable=False,
    # plain help: quicker than boxes, and wide enough for its sentences
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(is_asked_for: bool) -> None:
    if is_asked_for:
        import jaxmf

        print(f"jaxmf {jaxmf.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module of your own that calls jaxmf.register, installed or in this folder; may "
            "be repeated.",
        ),
    ] = None,
) -> None:
    """Bayesian nonparametric matrix factorisation."""
    del version
    for module in modules or []:
        _import(module)


def _import(module: str) -> None:
    """Imports a module that the user names, of the present folder where none is installed.

    The folder comes last, so that no file in it hides what is installed.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ModuleNotFoundError(name=module)  # such as ./module, as shells complete it
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # what the module itself imports
        raise typer.BadParameter(
            f"--import {module}: this module is neither installed nor in this folder; "
            "name it without .py and without its folder, and run in that folder or add it to "
            "PYTHONPATH"
        ) from error


for _command in (models, fit, show, compare, predict, recommend, report, demo):
    app.command()(_command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: run a command and leave with its exit status."""
    # an id that the output has no letters for (a redirected output of Windows, LANG=C) is no error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout = cast("TextIO", _Output(sys.stdout))
    status = run(sys.argv[1:] if arguments is None else arguments)
    sys.stdout.flush()
    sys.exit(status)


class _Output:
    """An output whose reader may close the pipe (`| head`) without ending the command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text, or drops it once the reader has closed the pipe."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Likewise, of what was not written yet."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


# Recent typers bring a click of their own: the error is found through what typer exports.
_ClickError: type[Any] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def run(arguments: list[str]) -> int:
    """Run a command; mistakes and warnings become one line on stderr, mistakes status 2."""
    said: set[str] = set()  # a file that is read twice is complained of once

    def warn(message: Warning | str, category: type[Warning], *rest: object, **_: object) -> None:
        from jaxmf.posterior.alarms import RunWarning

        # those stand in the summary, which is printed
        if not issubclass(category, RunWarning) and str(message) not in said:
            said.add(str(message))
            _complain(f"warning: {message}", arguments)

    with warnings.catch_warnings():
        warnings.showwarning = warn
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        status = app(args=arguments or ["--help"], prog_name="jaxmf", standalone_mode=False)
    except _ClickError as error:
        return _complain(error.format_message(), arguments)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", arguments, status=130)
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError, LookupError) as error:
        return _complain(_message(error), arguments)
    except ImportError as error:
        return _complain(str(error), arguments)
    return status if isinstance(status, int) else 0


def _complain(words: str, arguments: list[str], status: int = 2) -> int:
    print("jaxmf: " + " ".join(as_options(words, arguments).split()), file=sys.stderr)
    return status


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return words or type(error).__name__
