"""Reading posteriors that ``saving.py`` wrote, with nothing in the folder taken on trust.

The check sums of the manifest and of its files are compared first. A file that was made on purpose
may have the right ones, so that everything else is checked as well: keys and types of the manifest,
names against the tables of the registry and of `jaxmf.settings`, run with one another and with
the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmf import registry, settings
from jaxmf.arguments import check_path, checks_call, shown
from jaxmf.data import Container, feature_parts
from jaxmf.engine import Run, files
from jaxmf.engine import manifest as json_file
from jaxmf.engine.files import DamagedFileError
from jaxmf.engine.result import Schedule
from jaxmf.model import Model
from jaxmf.posterior.extension import algorithm_of
from jaxmf.posterior.records import Evidence, Meta
from jaxmf.posterior.replicas import check_temper
from jaxmf.posterior.saving import FORMAT, MANIFEST
from jaxmf.programs import refuse_in_fork
from jaxmf.registry.registration import module_that_failed
from jaxmf.results.posterior import Posterior
from jaxmf.samplers import move_schedule
from jaxmf.settings.names import NotRegisteredError, RegisteredCodeError

_GROUPS = ("draws", "averages", "trace", "predicted_at", "weights", "state", "data", "features")
_MAX_SIZE = 2**31 - 1
_LEAST_MAPPED = 2**26  # bytes of draws that stay in their file


def _is_shape(value: object) -> bool:
    return type(value) is list and all(
        json_file.is_count(size) and size <= _MAX_SIZE for size in value
    )


def _is_sizes(value: Any) -> bool:
    return json_file.is_sizes(value) and all(size <= _MAX_SIZE for size in value.values())


def _are_files(value: object) -> bool:
    return (
        type(value) is dict
        and "draws" in value
        and all(
            name in _GROUPS and files.is_record(record) and len(record) == 4
            for name, record in value.items()
        )
    )


_FIELDS: dict[str, json_file.Check] = {
    "format": json_file.is_count,
    "model": json_file.is_object,
    "meta": json_file.is_object,
    "data": json_file.is_object,
    "evidence": lambda value: value is None or (type(value) is list and len(value) == 2),
    "run": json_file.anything,
    "files": _are_files,
}
_MODEL: dict[str, json_file.Check] = {"name": json_file.is_text, "settings": json_file.is_object}
_DATA: dict[str, json_file.Check] = {
    "container": json_file.is_text,
    "fingerprint": json_file.is_text,
}
_DATA_OPTIONAL: dict[str, json_file.Check] = {
    "shape": _is_shape,
    "sizes": _is_sizes,
    "ids": json_file.is_object,
}
# after decoding
_META: dict[str, json_file.Check] = {
    "method": json_file.is_text,
    "seed": json_file.anything,
    "run": json_file.is_object,
    "options": json_file.is_object,
    "versions": lambda value: type(value) is dict and all(map(json_file.is_text, value.values())),
    "device": json_file.is_text,
    "seconds": json_file.is_seconds,
    "wall_seconds": json_file.is_seconds,
    "complete": json_file.is_bool,
    "capacity": json_file.is_sizes,
}
_COUNTS = {
    "sample": ("num_warmup", "num_samples", "num_chains", "thin"),
    "particle_filter": ("num_runs",),
    "smc": ("num_runs",),
}
_RUN: dict[str, json_file.Check] = {
    "num_steps": json_file.is_count,
    "num_warmup": json_file.is_count,
    "complete": json_file.is_bool,
    "seconds": json_file.is_seconds,
    "capacity": json_file.is_sizes,
    "num_draws": json_file.is_count,
    "thin": json_file.is_positive,
}


@checks_call
def load(folder: str | Path, *, data: object = None) -> Posterior:
    """Read a posterior that `Posterior.save` wrote.

    Nothing in the folder is executed, and nothing outside it is read: see SECURITY.md. Arrays of
    draws of 64 MB and more, except bits, stay in their files and are read when they are used, so
    these files must not change.

    Args:
        folder: the folder that `Posterior.save` wrote.
        data: the data it belongs to, if it was saved without; compared by fingerprint.
    Returns:
        The posterior; its draws are equal to those saved, bit for bit.
    Raises:
        FileNotFoundError: there is no posterior in the folder, or one of its files is missing.
        TypeError: `folder` is no path.
        ValueError: a file is damaged, a link, of another format or not what it should be (the
            message names file and key), or the data is another; or the model or a part of it is of
            another package and its module was not imported (`NotRegisteredError`), or raises an
            error itself (`RegisteredCodeError`, with that error as its cause).
        ImportError: something that the model needs cannot be imported.
        RuntimeError: the process was forked from one that had already run or loaded something.
    """
    refuse_in_fork()
    path = check_path("folder", folder)
    manifest = path / MANIFEST
    written = _read_manifest(path)
    arrays = {
        name: _read_arrays(path, record, _LEAST_MAPPED if name == "draws" else None)
        for name, record in written["files"].items()
    }
    with _part(manifest, "model"):
        json_file.check_fields(
            "the model", written["model"], _MODEL, optional={"module": json_file.is_text}
        )
        model = registry.decode_model(written["model"], _nested(arrays.get("features", {})))
    with _part(manifest, "meta"):
        meta = _read_meta(model, written["meta"])
    with _part(manifest, "data"):
        described = json_file.check_fields(
            "the data", written["data"], _DATA, optional=_DATA_OPTIONAL
        )
        kept = _read_data(model, described, arrays["data"]) if "data" in arrays else None
    container = _chosen_data(model, kept, data)
    _check_fingerprint(manifest, container, described["fingerprint"], is_passed=data is not None)
    with _part(manifest, "evidence"):
        evidence = None if written["evidence"] is None else _read_evidence(written["evidence"])
    with _part(manifest, "files"):
        _check_axes(meta, arrays)
    posterior = Posterior(
        model=model,
        data=container,
        draws=arrays["draws"],
        meta=meta,
        averages=arrays.get("averages", {}),
        particle_log_weights=arrays.get("weights", {}).get("log_weights"),
        evidence=evidence,
        trace=arrays.get("trace", {}),
        predicted_at=arrays.get("predicted_at", {}),
    )
    with _part(manifest, "run"):
        return _with_run(posterior, written["run"], arrays.get("state"))


@contextmanager
def _part(manifest: Path, key: str) -> Iterator[None]:
    """An error in a part of the manifest names it; one of code does not call the file damaged.

    What was made on purpose, with the right check sum, can make any class fail that takes what it
    holds.
    """
    try:
        yield
    except NotRegisteredError as error:
        raise NotRegisteredError(f"{manifest}: {error}") from None
    except ImportError as error:  # of what is installed: a file names no module
        words = f"{manifest}: {key!r} needs a module: {error}"
        kind = ModuleNotFoundError if isinstance(error, ModuleNotFoundError) else ImportError
        raise kind(words, name=error.name) from error
    except MemoryError:
        raise DamagedFileError(f"{manifest}: {key!r} needs more memory than there is") from None
    except Exception as error:
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        if module := module_that_failed(error):
            raise RegisteredCodeError(
                f"{manifest}: {module}, a module of another package, refused {key!r} or failed on "
                f"it: {words}. See whether it is the version that the run was saved with"
            ) from error
        raise DamagedFileError(f"{manifest}: {key!r} cannot be read: {words}") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = path / MANIFEST
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    try:
        written = json_file.read(manifest, version=FORMAT)
    except FileNotFoundError:
        found = (path / "checkpoint.json").is_file() or any(path.glob("*/checkpoint.json"))
        raise FileNotFoundError(
            f"{path} holds no finished run: {MANIFEST} is missing"
            + ("; it holds a checkpoint, from which the run can be resumed" if found else "")
        ) from None
    return json_file.check_fields(str(manifest), written, _FIELDS)


def _read_arrays(
    path: Path, record: Mapping[str, object], least_mapped: int | None
) -> dict[str, np.ndarray]:
    try:
        return files.read_arrays(path, record, least_mapped=least_mapped)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; the saved run is incomplete") from None


def _read_meta(model: Model, written: Mapping[str, object]) -> Meta:
    values: dict[str, Any] = {
        name: settings.decode_seed(value) if name == "seed" else settings.decode(value, name=name)
        for name, value in written.items()
    }
    optional = {"notes": json_file.is_texts}
    json_file.check_fields("the facts of the run", values, _META, optional=optional)
    entry, method = registry.entry_of(model), values["method"]
    known = {setting.name for setting in registry.method_settings(entry, method)}
    unknown = [name for name in values["options"] if name not in known]
    if unknown:
        raise ValueError(f"{method} takes no option {shown(unknown[0])}")
    for name in _COUNTS.get(method, ()):
        if not json_file.is_count(values["run"].get(name)):
            raise ValueError(f"{name} cannot be {shown(values['run'].get(name))}")
    if "temper" in values["run"]:
        num_replicas = check_temper(model, values["run"]["temper"])
        _check_replicas(values["run"], num_replicas)
    _check_moves(values["run"])
    return Meta(**{**values, "notes": tuple(values.get("notes", ()))})


def _check_replicas(run: Mapping[str, object], num_replicas: int) -> None:
    lengths = {"powers": num_replicas, "swap_acceptance": num_replicas - 1}
    for name, length in {**lengths, "round_trips": run["num_chains"]}.items():
        values = run.get(name)
        if not isinstance(values, list) or len(values) != length:
            raise ValueError(f"{name} of a run with temper cannot be {shown(values)}")


def _check_moves(run: Mapping[str, object]) -> None:
    try:
        move_schedule.describe(run.get("moves", {}))  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError, AttributeError):
        raise ValueError(f"moves of a run cannot be {shown(run['moves'])}") from None


def _read_evidence(written: list[object]) -> Evidence:
    value, error = settings.decode(written, name="evidence")
    if not all(type(part) in (int, float) for part in (value, error)):
        raise ValueError(f"{shown(written)} are no run")
    return Evidence(value, error)


def _check_axes(meta: Meta, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Draws and weights have the same chains, and as many as the run says."""
    shapes = {name: values.shape[:2] for name, values in arrays["draws"].items()}
    if "weights" in arrays:
        shapes["log_weights"] = arrays["weights"]["log_weights"].shape[:2]
    first = next(iter(shapes.values()), (1, 1))
    for name, shape in shapes.items():
        if len(shape) != 2 or shape != first:
            raise ValueError(f"{name} has chains and draws {list(shape)}, not {list(first)}")
    key = {"sample": "num_chains", "particle_filter": "num_runs", "smc": "num_runs"}.get(
        meta.method
    )
    expected = meta.run[key] if key is not None else 1
    if shapes and first[0] != expected:
        raise ValueError(f"draws are of {first[0]} chains, and the run had {expected}")


def _read_data(
    model: Model, written: Mapping[str, Any], arrays: dict[str, np.ndarray]
) -> Container:
    container = registry.entry_of(model).container
    if written["container"] != container.__name__:
        raise ValueError(f"a {shown(written['container'])} is no data of {type(model).__name__}")
    ids = {
        name: feature_parts.read_ids(name, held) for name, held in written.get("ids", {}).items()
    }
    known: dict[str, Any] = {n: written[n] for n in ("shape", "sizes") if n in written}
    if "shape" in known:
        known["shape"] = tuple(known["shape"])
    return container(**_nested(arrays), **known, **_nested(ids))


def _chosen_data(model: Model, kept: object, passed: object) -> Any:
    from jaxmf.data import as_container

    if passed is not None:
        return as_container(passed, registry.entry_of(model).container)
    if kept is None:
        raise ValueError("the run was saved without its data; give it: load(folder, data=X)")
    return kept


def _check_fingerprint(
    manifest: Path, data: Container, fingerprint: str, *, is_passed: bool
) -> None:
    if data.fingerprint() == fingerprint:
        return
    words = "the data is not what the run was made with: its fingerprint differs"
    if is_passed:
        raise ValueError(words)
    raise ValueError(f"{manifest}: {words} (is x64 switched as it was then?)")


def _with_run(
    posterior: Posterior, written: object, state: dict[str, np.ndarray] | None
) -> Posterior:
    """The posterior with the last state of its run, if that was saved."""
    if (written is None) != (state is None):
        raise ValueError("a run has run and a state, or neither")
    if written is None or state is None:
        return posterior
    fields = json_file.check_fields("the run", settings.decode(written, name="run"), _RUN)
    _check_run(posterior, fields)
    run = Run(
        draws={} if posterior.is_weighted else posterior.draws,
        averages=posterior.averages,
        state=_read_state(posterior, state),
        **fields,
    )
    return dataclasses.replace(posterior, run=run)


def _check_run(posterior: Posterior, run: Mapping[str, Any]) -> None:
    meta = posterior.meta
    schedule = Schedule(run["num_warmup"], 0, run["thin"])
    agree = {
        "num_draws": schedule.num_draws(run["num_steps"]),
        "complete": meta.complete,
        "capacity": dict(meta.capacity),
        "seconds": meta.seconds,
    }
    if meta.method == "sample":
        agree |= {name: meta.run[name] for name in ("num_warmup", "thin")}
    for name, expected in agree.items():
        if run[name] != expected:
            raise ValueError(f"{name} is {shown(run[name])} and should be {expected!r}")
    num_kept = max((values.shape[1] for values in posterior.draws.values()), default=0)
    if meta.method == "sample" and num_kept > run["num_draws"]:
        raise ValueError(f"there are {num_kept} draws of a run of {run['num_draws']}")


def _read_state(posterior: Posterior, state: Mapping[str, np.ndarray]) -> Any:
    shapes = jax.eval_shape(algorithm_of(posterior).init, jax.random.key(0), posterior.data)
    expected, structure = jax.tree.flatten(shapes)
    if state.keys() != {f"leaf-{index}" for index in range(len(expected))}:
        raise ValueError(f"the state has {len(state)} parts, and this method's {len(expected)}")
    leaves = [jax.numpy.asarray(state[f"leaf-{index}"]) for index in range(len(expected))]
    for index, (leaf, one) in enumerate(zip(leaves, expected, strict=True)):
        if leaf.ndim != one.ndim + 1 or leaf.dtype != one.dtype:
            raise ValueError(
                f"part {index} of the state is {leaf.dtype}{list(leaf.shape)}, and this method's "
                f"is {one.dtype} with {one.ndim + 1} axes"
            )
    return jax.tree.unflatten(structure, leaves)


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Names with a stroke as names in mappings: what `saving.py` took apart."""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        first, stroke, second = name.partition("/")
        if stroke:
            result.setdefault(first, {})[second] = value
        else:
            result[first] = value
    return result
