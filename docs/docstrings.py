"""Docstrings are plain text with backticks; sphinx reads reStructuredText. This stands between."""

import re

_CODE = re.compile(r"(``.+?``|`.+?`)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Examples|Source|Note|Yields):")


def as_restructured_text(
    app: object, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Escapes what would be markup, and keeps blocks of formulas as they are, line by line."""
    lines[:] = _formulas_verbatim([_escaped(line) for line in _paragraphs(lines)])


def _paragraphs(lines: list[str]) -> list[str]:
    """A blank line before every section; "Source:" is prose."""
    spaced: list[str] = []
    for line in lines:
        if _SECTION.match(line) and spaced and spaced[-1].strip():
            spaced.append("")
        spaced.append(line)
    return spaced


def _escaped(line: str) -> str:
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = _CODE.split(line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([*|\\])", r"\\\1", parts[i])
        parts[i] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[i])
    # a code span is literal text, whatever it holds
    parts[1::2] = [f"``{part.strip('`')}``" for part in parts[1::2]]
    return "".join(parts)


def _formulas_verbatim(lines: list[str]) -> list[str]:
    """Indented blocks between paragraphs of prose, such as equations, become literal blocks."""
    written: list[str] = []
    in_section = False
    for i, line in enumerate(lines):
        in_section = in_section or bool(_SECTION.match(line))
        begins = line.startswith("    ") and (i == 0 or not lines[i - 1].strip())
        if begins and not in_section and not line.lstrip().startswith(">>>"):
            written += ["::", ""]
        if not in_section and line.startswith("    "):
            line = line.replace("\\", "")
        written.append(line)
    return written
