"""What `jaxmf models` prints: the models with their methods and settings.

Those of the library stand in ``models.txt``, which is read without importing jax;
``python -m jaxmf.cli.listing`` writes it anew.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxmf.registry.entry import Entry, Setting

LISTED = Path(__file__).with_name("models.txt")
_INDENT = " " * 24


def listing(entries: Iterable[Entry]) -> str:
    """Some models, with a line for what each is and paragraphs of what it takes."""
    return "".join(f"{line}\n" for entry in entries for line in _lines(entry))


def _lines(entry: Entry) -> Iterable[str]:
    from jaxmf import registry

    methods = ", ".join(
        f"{method} (default)" if method == entry.default else method for method in entry.verbs
    )
    yield f"{entry.name:24}{entry.one_line}"
    yield f"{_INDENT}methods:  {methods}"
    yield _settings("settings:", registry.model_settings(entry))
    for method in entry.verbs:
        yield _settings(f"{method}:", registry.method_settings(entry, method))


def _settings(head: str, known: list[Setting]) -> str:
    from jaxmf import settings

    shown = [
        f"{each.name}" if each.required else f"{each.name}={settings.describe(each.default)}"
        for each in known
    ]
    text = f"{head} {', '.join(shown)}"
    return textwrap.fill(text, 100, initial_indent=_INDENT, subsequent_indent=_INDENT + "  ")


if __name__ == "__main__":
    from jaxmf.registry.entries import ENTRIES

    LISTED.write_text(listing(ENTRIES), encoding="utf-8")
