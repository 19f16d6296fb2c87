"""Manifests of saved runs: JSON with a check sum of itself, whose fields are checked one by one.

A check sum notices accidents. Someone who writes a manifest on purpose can write its check sum as
well, so nothing that a manifest says is trusted: every field is checked for its type, and what it
names is looked up in a table or compared with the files.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmf.arguments import shown
from jaxmf.engine import files

MAX_DEPTH = 64
Check = Callable[[object], bool]
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def write(path: Path, content: Mapping[str, object]) -> None:
    """Write a manifest with its check sum, whole or not at all.

    Args: content: what JSON can hold, with the entry "format".
    """
    plain = json.loads(json.dumps(content))
    text = json.dumps({**plain, "sha256": check_sum(plain)}, indent=1)
    files.replace(path, lambda file: file.write(text.encode()))


def check_sum(content: Mapping[str, object]) -> str:
    """The SHA-256 of what a manifest says, its entry "sha256" left out, as 64 hexadecimal digits.

    Args:
        content: as it is read from JSON; spaces and the order of keys do not matter.
    """
    rest = {key: value for key, value in content.items() if key != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def read(path: Path, *, version: int) -> dict[str, object]:
    """Contents of a manifest, its check sum compared and left out.

    Raises FileNotFoundError: the file does not exist. DamagedFileError: it is a link, no JSON, or
    its check sum differs. OtherFormatError: it is of another format.
    """
    with files.open_plain(path) as file:
        written = file.read()
    try:
        text = written.decode()
        _check_depth(text)
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise files.DamagedFileError(f"{path} cannot be read as a manifest: {error}") from None
    if not isinstance(content, dict):
        raise files.DamagedFileError(f"{path} cannot be read as a manifest: it is no JSON object")
    _check_format(path, content, version)
    if "sha256" not in content:
        raise files.DamagedFileError(f"{path}: the key 'sha256', its check sum, is missing")
    if content.pop("sha256") != check_sum(content):
        raise files.DamagedFileError(
            f"{path} does not agree with its check sum: it is damaged, or was changed by hand"
        )
    return content


def _check_format(path: Path, content: Mapping[str, object], version: int) -> None:
    if "format" not in content:
        raise files.DamagedFileError(f"{path}: the key 'format' is missing")
    found = content["format"]
    if type(found) is int and found == 1:
        raise files.OtherFormatError(
            f"{path} has format 1, of an early version of jaxmf without check sums, which is not "
            "read any more; make the run again"
        )
    if type(found) is not int or found != version:
        raise files.OtherFormatError(
            f"{path} has format {found!r}, and this version of jaxmf reads format {version}; if "
            "the file is not damaged, a later version of jaxmf reads it"
        )


def _check_depth(text: str) -> None:
    depth = 0
    for match in re.finditer(r"[\[{\]}]", _STRINGS.sub("", text)):
        depth += 1 if match.group() in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} deep")


def check_fields(
    where: str, content: object, fields: Mapping[str, Check], *, optional: Mapping[str, Check] = {}
) -> dict[str, Any]:
    """A JSON object with the keys that it must have, and values of the right types.

    Args: fields: key -> whether a value is right.
    Raises DamagedFileError: a key is missing or unknown, or a value is wrong; the message names it.
    """
    if not isinstance(content, dict):
        raise files.DamagedFileError(f"{where} should be a JSON object, not {shown(content)}")
    known = {**fields, **optional}
    for key in fields:
        if key not in content:
            raise files.DamagedFileError(f"{where}: the key {key!r} is missing")
    for key, value in content.items():
        if key not in known:
            raise files.DamagedFileError(
                f"{where}: the key {key[:80]!r} is unknown; there may be {', '.join(known)}"
            )
        if not known[key](value):
            raise files.DamagedFileError(f"{where}: {key!r} cannot be {shown(value)}")
    return content


# --- what a value may be --------------------------------------------------------------------------


def anything(value: object) -> bool:
    """Accepts any value: it is checked elsewhere."""
    return True


def is_count(value: object) -> bool:
    """A whole number, 0 or above; JSON's true is none."""
    return type(value) is int and value >= 0


def is_positive(value: object) -> bool:
    """A whole number above 0."""
    return type(value) is int and value > 0


def is_seconds(value: object) -> bool:
    """A finite number, 0 or above."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < math.inf


def is_bool(value: object) -> bool:
    """True or false."""
    return type(value) is bool


def is_text(value: object) -> bool:
    """A string."""
    return type(value) is str


def is_texts(value: object) -> bool:
    """Some strings, one after another."""
    return isinstance(value, (list, tuple)) and all(map(is_text, value))


def is_object(value: object) -> bool:
    """A JSON object."""
    return type(value) is dict


def is_list(value: object) -> bool:
    """A list."""
    return type(value) is list


def is_sizes(value: object) -> bool:
    """Names with whole numbers, such as the capacities of axes."""
    return type(value) is dict and all(is_count(size) for size in value.values())
