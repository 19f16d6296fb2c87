"""Posteriors as folders: npz and JSON, never pickle.

``posterior.json`` names the files that belong to it and is replaced last, in one step, so that a
folder holds either the old posterior or the new one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmf import registry, settings
from jaxmf.arguments import check_path
from jaxmf.engine import Run
from jaxmf.posterior.posterior import Posterior
from jaxmf.posterior.records import Evidence, Meta

FORMAT = 1
_MANIFEST = "posterior.json"


def save(posterior: Posterior, folder: str | Path, *, include_data: bool = True) -> Path:
    """Write a posterior to a folder; see `Posterior.save`."""
    path = check_path("folder", folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; name a folder to save to")
    try:
        described = _describe(posterior)
        ids = _ids(posterior.data) if include_data else {}
    except TypeError as error:
        raise TypeError(
            f"{error}. Nothing was written, and the posterior is as it was; its draws go to a file "
            "with to_arviz() or numpy.savez(path, **posterior.draws)"
        ) from None
    path.mkdir(parents=True, exist_ok=True)
    before = _files_of(path)
    token = secrets.token_hex(4)
    files: dict[str, str] = {}
    for name, arrays in _arrays(posterior, include_data).items():
        files[name] = f"{name}-{token}.npz"
        described.setdefault("arrays", {})[name] = _write_arrays(path / files[name], arrays)
    described["files"] = files
    if include_data:
        described["data"]["ids"] = ids
    _replace(path / _MANIFEST, json.dumps(described, indent=1))
    for stale in before - set(files.values()):
        (path / stale).unlink(missing_ok=True)
    return path


def load(folder: str | Path, *, data: Any = None) -> Posterior:
    """Read a posterior that `Posterior.save` wrote.

    Args:
        folder: where it lies.
        data: the data it belongs to, if it was saved without; compared by fingerprint.
    Returns:
        The posterior; its draws are equal to those saved, bit for bit.
    Raises:
        FileNotFoundError: there is no posterior in the folder.
        ValueError: a file is damaged, or the data is another.
    """
    path = check_path("folder", folder)
    written = _manifest(path)
    meta = _read_meta(written["meta"])
    arrays = {
        name: _read_arrays(path / file, written["arrays"][name])
        for name, file in written["files"].items()
    }
    model = registry.decode_model(written["model"], _nested(arrays.get("features", {})))
    container = _read_data(model, written["data"], arrays.get("data"), data)
    weights = arrays.get("weights", {}).get("log_weights")
    posterior = Posterior(
        model=model,
        data=container,
        draws=arrays["draws"],
        meta=meta,
        averages=arrays.get("averages", {}),
        particle_log_weights=weights,
        evidence=Evidence(*settings.decode(written["evidence"])) if written["evidence"] else None,
        trace=arrays.get("trace", {}),
        predicted_at=arrays.get("predicted_at", {}),
    )
    if "state" not in arrays:
        return posterior
    return dataclasses.replace(posterior, run=_read_run(posterior, written["run"], arrays["state"]))


def _describe(posterior: Posterior) -> dict[str, Any]:
    meta, evidence = posterior.meta, posterior.evidence
    facts = {field.name: getattr(meta, field.name) for field in dataclasses.fields(meta)}
    facts["seed"] = settings.encode_seed(meta.seed)
    run = posterior.run
    return {
        "format": FORMAT,
        "model": registry.encode_model(posterior.model),
        "meta": {
            name: value if name == "seed" else settings.encode(value, name=name)
            for name, value in facts.items()
        },
        "data": {
            "container": type(posterior.data).__name__,
            "fingerprint": posterior.data.fingerprint(),
            # of data given by some of its cells, which do not say how large the matrix is
            **({"shape": list(posterior.data.shape)} if _has(posterior.data, "shape") else {}),
            **({"sizes": dict(posterior.data.sizes)} if _has(posterior.data, "sizes") else {}),
        },
        "evidence": settings.encode(list(evidence)) if evidence else None,
        "run": None if run is None else settings.encode(_numbers_of(run)),
    }


def _numbers_of(run: Run) -> dict[str, Any]:
    """The fields of a run that are neither draws nor state."""
    arrays = ("draws", "averages", "state")
    return {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name not in arrays}


def _arrays(posterior: Posterior, include_data: bool) -> dict[str, dict[str, np.ndarray]]:
    groups: dict[str, dict[str, Any]] = {
        "draws": posterior.draws,
        "averages": posterior.averages,
        "trace": posterior.trace,
        "predicted_at": posterior.predicted_at,
    }
    if posterior.particle_log_weights is not None:
        groups["weights"] = {"log_weights": posterior.particle_log_weights}
    if posterior.run is not None:
        leaves = jax.tree.leaves(posterior.run.state)
        groups["state"] = {f"leaf-{place}": leaf for place, leaf in enumerate(leaves)}
    if include_data:
        groups["data"] = _data_arrays(posterior.data)
    groups["features"] = {
        f"{setting}/{name}": array
        for setting, arrays in registry.feature_arrays(posterior.model).items()
        for name, array in arrays.items()
    }
    return {
        name: {key: np.asarray(value) for key, value in group.items()}
        for name, group in groups.items()
        if group
    }


def _data_arrays(data: Any) -> dict[str, Any]:
    flat, _ = jax.tree_util.tree_flatten_with_path(data)
    return {"/".join(str(getattr(k, "name", getattr(k, "key", ""))) for k in p): x for p, x in flat}


def _has(data: Any, name: str) -> bool:
    return any(field.name == name for field in dataclasses.fields(data))


def _ids(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(data):
        names = getattr(data, field.name)
        if not field.name.endswith("names") or names is None:
            continue
        if isinstance(names, dict):  # one for every column of tokens
            found |= {f"{field.name}/{label}": _written_ids(label, n) for label, n in names.items()}
        else:
            found[field.name] = _written_ids(field.name, names)
    return found


def _written_ids(name: str, names: Any) -> dict[str, Any]:
    array = np.asarray(names)
    values = array.tolist()
    for value in values:
        if not isinstance(value, (str, int, float, bool)):
            raise TypeError(
                f"{name}: the id {value!r} is a {type(value).__name__}, which cannot be "
                "written as JSON; use strings or numbers, or save(folder, data=False)"
            )
    return {"values": values, "dtype": array.dtype.str}


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Names with a stroke as names in mappings: what `_data_arrays` and `_ids` took apart."""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        first, stroke, second = name.partition("/")
        if stroke:
            result.setdefault(first, {})[second] = value
        else:
            result[first] = value
    return result


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Write an npz file; bools are packed, eight to a byte. Returns the shapes of those."""
    packed = {name: list(x.shape) for name, x in arrays.items() if x.dtype == bool}
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        written: Any = {n: np.packbits(x) if n in packed else x for n, x in arrays.items()}
        np.savez(file, **written)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return {"packed": packed}


def _read_arrays(path: Path, described: dict[str, Any]) -> dict[str, np.ndarray]:
    packed = described["packed"]
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; the saved run is incomplete") from None
    except Exception as error:
        raise ValueError(f"{path} is damaged and cannot be read: {error}") from None
    for name, shape in packed.items():
        size = int(np.prod(shape))
        arrays[name] = np.unpackbits(arrays[name], count=size).astype(bool).reshape(shape)
    return arrays


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _files_of(path: Path) -> set[str]:
    try:
        return set(json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["files"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _manifest(path: Path) -> dict[str, Any]:
    manifest = path / _MANIFEST
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    if not manifest.is_file():
        raise FileNotFoundError(
            f"{path} holds no finished run: {_MANIFEST} is missing"
            + (
                "; it holds a checkpoint, from which the run can be resumed"
                if any(path.rglob("checkpoint.json"))
                else ""
            )
        )
    try:
        written = json.loads(manifest.read_text(encoding="utf-8"))
        number = written["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{manifest} is damaged and cannot be read: {error}") from None
    if number != FORMAT:
        raise ValueError(
            f"{manifest} has format {number}, this version of jaxmf reads format {FORMAT}"
        )
    return written


def _read_meta(written: dict[str, Any]) -> Meta:
    values = {
        name: settings.decode_seed(value) if name == "seed" else settings.decode(value)
        for name, value in written.items()
    }
    return Meta(**values)


def _read_data(
    model: Any, written: dict[str, Any], arrays: dict[str, np.ndarray] | None, given: Any
) -> Any:
    from jaxmf.data import as_container

    container = registry.entry_of(model).container
    if given is not None:
        data = as_container(given, container)
    elif arrays is None:
        raise ValueError("the run was saved without its data; give it: load(folder, data=X)")
    else:
        ids = {
            name: np.array(held["values"], dtype=held["dtype"])
            for name, held in written.get("ids", {}).items()
        }
        known: dict[str, Any] = {n: written[n] for n in ("shape", "sizes") if n in written}
        if "shape" in known:
            known["shape"] = tuple(known["shape"])
        data = container(**_nested(arrays), **known, **_nested(ids))
    if data.fingerprint() != written["fingerprint"]:
        raise ValueError(
            "the data is not what the run was made with: its fingerprint differs"
            + ("" if given is not None else " (is x64 switched as it was then?)")
        )
    return data


def _read_run(posterior: Posterior, numbers: Any, state: dict[str, np.ndarray]) -> Run:
    from jaxmf.posterior.assemble import algorithm_of

    shapes = jax.eval_shape(algorithm_of(posterior).init, jax.random.key(0), posterior.data)
    leaves = [jax.numpy.asarray(state[f"leaf-{place}"]) for place in range(len(state))]
    return Run(
        draws={} if posterior.is_weighted else posterior.draws,
        averages=posterior.averages,
        state=jax.tree.unflatten(jax.tree.structure(shapes), leaves),
        **settings.decode(numbers),
    )
