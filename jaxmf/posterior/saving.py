"""Posteriors as folders: npz and JSON, never pickle.

``posterior.json`` names the files that belong to it and is replaced last, in one step, so that a
folder holds either the old posterior or the new one; ``loading.py`` reads it.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmf import registry, settings
from jaxmf.arguments import check_path
from jaxmf.data import Container
from jaxmf.engine import files, manifest
from jaxmf.posterior.draws import Draws

FORMAT = 2
MANIFEST = "posterior.json"
_ARRAYS_OF_RUN = ("draws", "averages", "state")


def save(posterior: Draws, folder: str | Path, *, include_data: bool = True) -> Path:
    """Write a posterior to a folder; see `Posterior.save`."""
    path = check_path("folder", folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; name a folder to save to")
    try:
        described = _describe(posterior, include_data=include_data)
    except TypeError as error:
        raise TypeError(
            f"{error}. Nothing was written, and the posterior is as it was; its draws go to a file "
            "with to_arviz() or numpy.savez(path, **posterior.draws)"
        ) from None
    groups = _arrays(posterior, include_data)
    path.mkdir(parents=True, exist_ok=True)
    before, token = _files_of(path), secrets.token_hex(8)
    written = {name: f"{name}-{token}.npz" for name in groups}
    try:
        described["files"] = {
            name: files.write_arrays(path, written[name], arrays) for name, arrays in groups.items()
        }
        manifest.write(path / MANIFEST, described)
    except BaseException:
        for name in written.values():
            (path / name).unlink(missing_ok=True)
        raise
    for stale in before - set(written.values()):
        (path / stale).unlink(missing_ok=True)
    return path


def _describe(posterior: Draws, *, include_data: bool) -> dict[str, object]:
    meta, evidence = posterior.meta, posterior.evidence
    facts = {field.name: getattr(meta, field.name) for field in dataclasses.fields(meta)}
    facts["seed"] = settings.encode_seed(meta.seed)
    run = posterior.run
    fields = () if run is None else dataclasses.fields(run)
    kept_of_run = {f.name: getattr(run, f.name) for f in fields if f.name not in _ARRAYS_OF_RUN}
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
            **({"ids": _ids(posterior.data)} if include_data else {}),
        },
        "evidence": settings.encode(list(evidence)) if evidence else None,
        "run": None if run is None else settings.encode(kept_of_run),
    }


def _arrays(posterior: Draws, include_data: bool) -> dict[str, dict[str, np.ndarray]]:
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
        groups["state"] = {f"leaf-{index}": leaf for index, leaf in enumerate(leaves)}
    if include_data:
        leaves_of_data, _ = jax.tree_util.tree_flatten_with_path(posterior.data)
        groups["data"] = {
            "/".join(str(getattr(k, "name", getattr(k, "key", ""))) for k in path): leaf
            for path, leaf in leaves_of_data
        }
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


def _has(data: Container, name: str) -> bool:
    return any(field.name == name for field in dataclasses.fields(data))


def _ids(data: Container) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(data):
        names = getattr(data, field.name)
        if not field.name.endswith("names") or names is None:
            continue
        if isinstance(names, dict):  # one for every column of tokens
            found |= {f"{field.name}/{label}": _written_ids(label, n) for label, n in names.items()}
        else:
            found[field.name] = _written_ids(field.name, names)
    return found


def _written_ids(name: str, names: object) -> dict[str, object]:
    array = np.asarray(names)
    values = [v.item() if isinstance(v, np.generic) else v for v in array.tolist()]
    for value in values:
        if not isinstance(value, (str, int, float, bool)):
            raise TypeError(
                f"{name}: the id {value!r} is a {type(value).__name__}, which cannot be "
                "written as JSON; use strings or numbers, or save(folder, data=False)"
            )
    return {"values": values, "dtype": array.dtype.str}


def _files_of(path: Path) -> set[str]:
    """Names of the files that belong to what is saved in a folder, of any format."""
    try:
        with files.open_plain(path / MANIFEST) as file:
            records = json.loads(file.read())["files"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()
    named = {str(record.get("file") if isinstance(record, dict) else record) for record in records}
    return set(filter(files.is_name, named))
