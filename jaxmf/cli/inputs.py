"""What `fit` reads from files, and what it hides of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def read_data(
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


def read_features(entry: Any, files: dict[str, Path | None], missing: str) -> dict[str, Any]:
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


def check_shape(shape: tuple[int, int] | None, data: Any) -> None:
    """Refuses images of another number of cells than a row has.

    Raises:
        ValueError: in words.
    """
    if shape is not None and shape[0] * shape[1] != data.num_columns:
        raise ValueError(
            f"--image-shape {shape[0]}x{shape[1]} has {shape[0] * shape[1]} cells, "
            f"the data has {data.num_columns} columns"
        )


def hide(data: Any, share: float, seed: int) -> tuple[Any, np.ndarray | None]:
    """Hide a share of the observed cells; returns the data and the matrix as it was."""
    if not 0 <= share < 1:
        raise ValueError(f"--hold-out {share}: a share between 0 and 1")
    if share == 0:
        return data, None
    from jaxmf.data import Dense, SparseBinary, SparseSeries

    if not isinstance(data, Dense):
        other = "; use --validation ROWS" if isinstance(data, SparseBinary | SparseSeries) else ""
        raise ValueError(
            f"--hold-out hides cells of a full matrix, not of {type(data).__name__} data{other}"
        )

    truth = data.to_array()
    hidden = np.random.default_rng([seed, 5]).random(truth.shape) < share
    values = np.where(hidden, np.nan, truth)
    return Dense(values, row_names=data.row_names, column_names=data.column_names), truth
