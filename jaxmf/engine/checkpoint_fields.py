"""What a checkpoint's manifest may say: types, and numbers that agree with one another."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmf.arguments import shown
from jaxmf.engine import manifest as json_file
from jaxmf.engine.files import DamagedFileError, is_record
from jaxmf.engine.result import Schedule

_PART = re.compile(r"(state|average)-(\d{1,9})\.(\d{3,9}\.[^/]*)")


def _is_seed(value: object) -> bool:
    return (
        type(value) is list
        and len(value) > 1
        and type(value[0]) is str
        and all(map(json_file.is_count, value[1:]))
    )


def _is_mesh(value: object) -> bool:
    return value is None or json_file.is_sizes(value)


def _is_state(value: Any) -> bool:
    return value is None or (is_record(value) and len(value) == 4)


def _are_draws(value: object) -> bool:
    return type(value) is list and all(
        is_record(entry) and len(entry) == 5 and json_file.is_positive(entry.get("num_draws"))
        for entry in value
    )


def _are_capacities(value: object) -> bool:
    return type(value) is list and all(map(json_file.is_sizes, value))


_FIELDS: dict[str, json_file.Check] = {
    "format": json_file.is_count,
    "step": json_file.is_count,
    "num_draws": json_file.is_count,
    "num_dropped": json_file.is_count,
    "complete": json_file.is_bool,
    "seconds": json_file.is_seconds,
    "capacity": _are_capacities,
    "state": _is_state,
    "draws": _are_draws,
    "settings": json_file.is_object,
    "identity": json_file.is_object,
    "environment": json_file.is_object,
}
_SETTINGS: dict[str, json_file.Check] = {
    "seed": _is_seed,
    "num_warmup": json_file.is_count,
    "thin": json_file.is_positive,
    "num_chains": json_file.is_positive,
    "chain_method": lambda value: value in ("sequential", "vectorized"),
    "mesh": _is_mesh,
    "x64": json_file.is_bool,
}


def check(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses a manifest whose fields are not those of a checkpoint.

    Raises DamagedFileError: naming the file and the key.
    """
    json_file.check_fields(str(path), manifest, _FIELDS)
    settings = json_file.check_fields(f"{path}: 'settings'", manifest["settings"], _SETTINGS)
    step, state, num_draws = manifest["step"], manifest["state"], manifest["num_draws"]
    schedule = Schedule(settings["num_warmup"], 0, settings["thin"])
    _agree(path, "num_draws", num_draws, schedule.num_draws(step), "step, num_warmup and thin")
    num_stored = sum(entry["num_draws"] for entry in manifest["draws"])
    _agree(path, "num_dropped", manifest["num_dropped"], num_draws - num_stored, "the draws")
    row = 0
    for index, entry in enumerate(manifest["draws"]):
        stop = row + entry["num_draws"]
        if entry["file"] != f"draws-{index}.npz":  # a name of earlier versions
            named = f"draws-{row}-{stop}.npz"
            _agree(path, f"draws[{index}] file", entry["file"], named, "its position")
        _check_draws(path, entry, settings["num_chains"])
        row = stop
    if state is None:
        _agree(path, "step", step, 0, "a state that is not there")
        return
    _agree(path, "state file", state["file"], f"state-{step}.npz", "step")
    batched = settings["chain_method"] == "vectorized"
    num_groups = 1 if batched else settings["num_chains"]
    _agree(path, "length of capacity", len(manifest["capacity"]), num_groups, "num_chains")
    _check_parts(path, state["arrays"], num_groups)
    _check_capacity(path, state["arrays"], manifest["capacity"])
    for name, described in state["arrays"].items():
        leading = described["shape"][:1]
        if batched and leading != [settings["num_chains"]]:
            raise DamagedFileError(
                f"{path}: {name!r} of 'state' should have {settings['num_chains']} chains, and its "
                f"shape begins with {leading}"
            )


def _check_draws(path: Path, entry: Mapping[str, Any], num_chains: int) -> None:
    for name, described in entry["arrays"].items():
        leading = described["shape"][:2]
        if leading != [num_chains, entry["num_draws"]]:
            raise DamagedFileError(
                f"{path}: {entry['file']} should hold {entry['num_draws']} draws of {name!r} for "
                f"each of {num_chains} chains, and its shape begins with {leading}"
            )


def _check_parts(path: Path, arrays: Mapping[str, object], num_groups: int) -> None:
    """Every group of chains has the same parts."""
    groups: dict[int, set[str]] = {group: set() for group in range(num_groups)}
    for name in arrays:
        part = _PART.fullmatch(name)
        if part is None or int(part[2]) not in groups:
            raise DamagedFileError(f"{path}: 'state' has a part {shown(name)}, which no state has")
        groups[int(part[2])].add(f"{part[1]}.{part[3]}")
    for group, names in groups.items():
        for name in sorted(groups[0] ^ names):
            raise DamagedFileError(
                f"{path}: 'state' has {name!r} not in all of its {num_groups} groups of chains; "
                f"see group {group}"
            )


def _check_capacity(path: Path, arrays: Mapping[str, Any], capacity: list[dict[str, int]]) -> None:
    """Sizes of axes beyond all numbers of the state are refused before anything of them is made."""
    total = sum(math.prod(described["shape"]) for described in arrays.values())
    for sizes in capacity:
        for axis, size in sizes.items():
            if size > total:
                raise DamagedFileError(
                    f"{path}: 'capacity' says {shown(size)} for {axis!r}, and the whole "
                    f"state has {total} numbers"
                )


def _agree(path: Path, key: str, found: object, expected: object, by: str) -> None:
    if found != expected:
        raise DamagedFileError(
            f"{path}: {key} is {shown(found)} and should be {expected!r} by {by}"
        )
