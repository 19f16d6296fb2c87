"""What someone could put into a run's folder on purpose, with check sums that are right."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxmf.engine import manifest

Tamper = Callable[[Path, Path], bool | None]
FUNCTIONS = (
    "jaxmf.settings:inspect.builtins.exec",
    "jaxmf.settings.json_form:inspect.builtins.exec",
    "jaxmf.demo:np.f2py",
    "os:system",
    "builtins:exec",
    "resampling.systematic.__globals__",
)
FILES = ("../victim.npz", "{outside}/victim.npz", "../../victim.npz", "draws-0.npz/../victim.npz")
PAYLOAD = "open(r'{outside}/executed', 'w').write('x')"


@contextmanager
def changed(folder: Path) -> Iterator[dict[str, Any]]:
    """What the manifest of a folder says, to be changed; it is written back with its check sum."""
    path = next(folder.glob("*.json"))
    content = json.loads(path.read_text())
    del content["sha256"]
    yield content
    path.write_text(json.dumps({**content, "sha256": manifest.check_sum(content)}))


def is_run(folder: Path) -> bool:
    """Whether it is a saved run, not a checkpoint."""
    return (folder / "posterior.json").exists()


def records(content: dict[str, Any]) -> list[dict[str, Any]]:
    """What a manifest says of its files, one after the other."""
    if "files" in content:
        return list(content["files"].values())
    return [content["state"], *content["draws"]]


def function_in_setting(name: str, folder: Path, outside: Path) -> bool | None:
    """A function as a setting of the model, alone and with arguments."""
    if not is_run(folder):
        return False
    with changed(folder) as content:
        settings = content["model"]["settings"]
        code = {
            "partial": {"function": name},
            "arguments": [PAYLOAD.format(outside=outside)],
            "keywords": {"key": {"function": name}},
        }
        for position, key in enumerate(settings):
            settings[key] = code if position % 2 else {"function": name}
    return None


def function_in_prior(name: str, folder: Path, outside: Path) -> bool | None:
    """The function that a flexible prior calls while it is made."""
    if not is_run(folder):
        return False
    with changed(folder) as content:
        text = PAYLOAD.format(outside=outside)
        features = {
            "partial": {"function": "jaxmf.settings:inspect.builtins.max"},
            "arguments": [text, "1"],
            "keywords": {"key": {"function": name}},
        }
        steps = {"array": [0.0, 0.0], "dtype": "float32", "shape": [2]}
        parameters = {"log_steps": steps, "features": features, "feature_weights": None}
        key = next(iter(content["model"]["settings"]))
        prior = {"prior": "FlexiblePrior", "parameters": parameters | {"num_unobserved": None}}
        content["model"]["settings"][key] = prior
    return None


def function_in_option(name: str, folder: Path, outside: Path) -> bool | None:
    """A function as an option of the method."""
    if not is_run(folder):
        return False
    with changed(folder) as content:
        content["meta"]["options"] = {"dict": {"resample_fn": {"function": name}}}
    return None


def file_name(name: str, folder: Path, outside: Path) -> None:
    """A name that leads out of the folder, for every file."""
    with changed(folder) as content:
        for record in records(content):
            record["file"] = name.format(outside=outside)


def link(which: str, folder: Path, outside: Path) -> bool | None:
    """A file that is a link to one outside."""
    if os.name != "posix":
        return False
    path = next(folder.glob(which), None)
    if path is None:
        return False
    target = outside / "linked"
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)
    return None


def link_in_the_way(folder: Path, outside: Path) -> bool | None:
    """Links where an earlier version wrote temporary files."""
    if os.name != "posix":
        return False
    for name in (".posterior.json.tmp", "checkpoint.json.partial", ".checkpoint.json.partial"):
        (folder / name).symlink_to(outside / "victim.npz")
    return None


def pipe(folder: Path, outside: Path) -> bool | None:
    """A pipe that nobody writes to."""
    if os.name != "posix":
        return False
    path = next(folder.glob("draws-*"))
    path.unlink()
    os.mkfifo(path)
    return None


def archive(write: Callable[[Path], Any], described: Any, folder: Path, outside: Path) -> None:
    """Another archive instead of one of which the manifest says what is in it."""
    with changed(folder) as content:
        record = next(r for r in records(content) if r["file"].startswith("draws"))
        path = folder / record["file"]
        write(path)
        data = path.read_bytes()
        record |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        record["arrays"] = {"x": described}


def bomb(path: Path) -> None:
    """A gigabyte of zeros in a megabyte."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        shape = {"descr": "|u1", "fortran_order": False, "shape": (10**9,)}
        np.lib.format.write_array_header_1_0(member, shape)
        for _ in range(1_000):
            member.write(bytes(10**6))


class _Code:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


def pickled(path: Path) -> None:
    """An array of objects that run code when they are unpickled."""
    with path.open("wb") as file:
        np.savez(file, x=np.array([_Code(), 1], dtype=object))


def small(path: Path) -> None:
    """Two numbers."""
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(2, np.uint8))


def shape(size: int, folder: Path, outside: Path) -> None:
    """Shapes that the files do not have."""
    with changed(folder) as content:
        for record in records(content):
            for described in record["arrays"].values():
                described["shape"] = [size, *described["shape"][1:]]


def entry(path: str, value: Any, folder: Path, outside: Path) -> bool | None:
    """Another value in the manifest, by the keys that lead to it."""
    with changed(folder) as content:
        *keys, last = path.split("/")
        inner: Any = content
        for key in keys:
            if not isinstance(inner, dict) or key not in inner:
                return False
            inner = inner[key]
        if not isinstance(inner, dict):
            return False
        inner[last] = value
    return None


def deep(folder: Path, outside: Path) -> None:
    """A hundred thousand lists in one another."""
    path = next(folder.glob("*.json"))
    path.write_text('{"format": 2, "meta": ' + "[" * 100_000 + "]" * 100_000 + "}")


_HUGE = {"dtype": "bool", "shape": [10**12]}
_ENTRIES: dict[str, tuple[str, Any]] = {
    "model-name": ("model/name", "os.system"),
    "container": ("data/container", "builtins.exec"),
    "method": ("meta/method", {"tuple": ["__init__"]}),
    "another-method": ("meta/method", "__reduce__"),
    "seed": ("meta/seed", {"key": [0, 1], "impl": "os.system"}),
    "num-chains": ("settings/num_chains", 10**12),
    "capacity": ("capacity", [{"features": 10**12}]),
    "shape": ("data/shape", [10**12, 10**12]),
    "sizes": ("data/sizes", {"document": 10**12}),
    "ids": ("data/ids", {"row_names": {"values": ["a"], "dtype": "<U1000000000"}}),
    "id-objects": ("data/ids", {"row_names": {"values": [{}], "dtype": "|O"}}),
    "step": ("step", 10**12),
    "evidence": ("evidence", [{"function": "os:system"}, 0.0]),
    "run": ("run", {"dict": {"num_steps": {"function": "os:system"}}}),
    "versions": ("meta/versions", {"partial": 1}),
    "distribution": (
        "meta/run",
        {"distribution": "EulerMaruyama", "parameters": {"sde_fn": {"function": "os:system"}}},
    ),
}
TAMPERS: dict[str, Tamper] = {
    **{f"setting {name}": partial(function_in_setting, name) for name in FUNCTIONS},
    **{f"prior {name}": partial(function_in_prior, name) for name in FUNCTIONS},
    **{f"option {name}": partial(function_in_option, name) for name in FUNCTIONS},
    **{f"file {name}": partial(file_name, name) for name in FILES},
    **{f"link {which}": partial(link, which) for which in ("draws-*", "state-*", "*.json")},
    **{f"entry {name}": partial(entry, *item) for name, item in _ENTRIES.items()},
    **{f"shape {size}": partial(shape, size) for size in (0, 17, 10**12)},
    "links in the way": link_in_the_way,
    "pipe": pipe,
    "bomb": partial(archive, bomb, {"dtype": "|u1", "shape": [10**9]}),
    "pickle": partial(archive, pickled, {"dtype": "|V8", "shape": [2]}),
    "packed": partial(archive, small, _HUGE),
    "deep": deep,
}
