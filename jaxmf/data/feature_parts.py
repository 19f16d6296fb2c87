"""Features taken apart into arrays and words, for saved runs, and put together again."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmf.data.cell_features import CellFeatures
from jaxmf.data.container import bare
from jaxmf.data.encoding import Column
from jaxmf.data.features import Features, part_widths

_ID_KINDS = tuple("biufUO")
_NAMES = ("ids", "row_names", "column_names")


def described(features: Features | CellFeatures) -> dict[str, object]:
    """All that JSON can hold of features: shape, ids, columns, fingerprint.

    Raises TypeError: an id or a level that is neither text, number nor truth.
    """
    words: dict[str, object] = {
        "features": type(features).__name__,
        "fingerprint": features.fingerprint(),
        "shape": list(features.shape),
        "columns": [
            [_plain(column.name, part) for part in column] for column in features.described
        ],
    }
    if isinstance(features, Features):
        words["missing"] = features.missing
    for name in _NAMES:
        ids = getattr(features, name, None)
        if ids is not None:
            values = [_plain(name, value) for value in np.asarray(ids).tolist()]
            words[name] = {"values": values, "dtype": np.asarray(ids).dtype.str}
    return words


def arrays(features: Features | CellFeatures) -> dict[str, np.ndarray]:
    """Its arrays by name, on the host."""
    leaves, _ = features.tree_flatten_with_keys()
    return {key.name: np.asarray(leaf) for key, leaf in leaves if leaf is not None}


def put_together(words: Mapping[str, Any], held: Mapping[str, np.ndarray]) -> object:
    """The features that `described` and `arrays` took apart, bit for bit.

    Raises ValueError: the arrays are not those that were described.
    """
    kind: Any = {"Features": Features, "CellFeatures": CellFeatures}[words["features"]]
    leaves = ("values", "rows", "columns") if kind is Features else ("offsets", "columns", "values")
    fields: dict[str, Any] = {
        name: jnp.asarray(held[name]) if name in held else None for name in leaves
    }
    stored = _NAMES[:1] if kind is Features else _NAMES[1:]
    for name in stored:
        ids = words.get(name)
        fields[name] = None if ids is None else read_ids(name, ids)
    if kind is Features:
        fields["missing"] = words["missing"]
    columns = tuple(Column(*parts) for parts in words["columns"])
    if kind is Features:
        fields["parts"] = part_widths(columns)
    found = bare(kind, **fields, shape=tuple(words["shape"]), described=columns)
    if found.fingerprint() != words["fingerprint"]:
        raise ValueError(
            "the features are not those the run was made with: their fingerprint differs (is x64 "
            "switched as it was then?)"
        )
    return found


def read_ids(name: str, written: object) -> np.ndarray:
    """Ids as they are written in JSON, values and dtype; texts are as wide as the longest.

    Raises ValueError: they are not what is written for ids.
    """
    if not isinstance(written, Mapping) or written.keys() != {"values", "dtype"}:
        raise ValueError(f"{name}: ids are an object with 'values' and 'dtype'")
    values, dtype = written["values"], written["dtype"]
    if not isinstance(values, list) or not isinstance(dtype, str) or dtype[1:2] not in _ID_KINDS:
        raise ValueError(f"{name}: ids of the dtype {str(dtype)[:80]!r} cannot be read")
    is_text = dtype[1] == "U"
    if any(not isinstance(v, str if is_text else (str, int, float, bool)) for v in values):
        raise ValueError(f"{name}: an id is neither text nor a number")
    # the width that a file states may be anything
    return np.array(values, dtype=str if is_text else dtype)


def _plain(name: str, value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(
        f"{name}: {value!r} is a {type(value).__name__}, which cannot be written as JSON; use "
        "strings or numbers"
    )
