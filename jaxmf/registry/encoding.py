"""A model as JSON and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxmf import settings
from jaxmf.data import CellFeatures, Features, feature_parts
from jaxmf.model import Model, settings_of
from jaxmf.registry.entries import REGISTERED, entry_of, get
from jaxmf.registry.registration import RegisteredEntry
from jaxmf.settings import names


def encode_model(model: Any) -> dict[str, object]:
    """A model as JSON: its name and its settings."""
    entry = entry_of(model)
    takes = {field.name for field in dataclasses.fields(model) if field.init}
    written = {
        name: settings.encode(value, name=name)
        for name, value in settings_of(model).items()
        if name in takes
    }
    known: dict[str, object] = {"name": entry.name, "settings": written}
    return known | {"module": entry.module} if isinstance(entry, RegisteredEntry) else known


def decode_model(written: Mapping[str, Any], features: Mapping[str, Any] | None = None) -> Model:
    """The model that `encode_model` wrote down, with the arrays of its features by setting.

    Raises ValueError: an unknown model or setting, or a setting that cannot be read.
    """
    if "module" in written and written["name"] not in REGISTERED:
        raise names.not_registered(written["name"], written["module"])
    held, entry = features or {}, get(written["name"])
    known = {field.name for field in dataclasses.fields(entry.model) if field.init}
    unknown = [key for key in written["settings"] if key not in known]
    if unknown:
        raise ValueError(f"{entry.name} has no setting {unknown[0][:80]!r}")
    return entry.model(
        **{
            key: feature_parts.put_together(value, held[key])
            if key in held
            else settings.decode(value, name=key)
            for key, value in written["settings"].items()
        }
    )


def feature_arrays(model: object) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of a model's features by its settings: what `encode_model` leaves out."""
    return {
        name: feature_parts.arrays(value)
        for name, value in settings_of(model).items()
        if isinstance(value, (Features, CellFeatures))
    }
