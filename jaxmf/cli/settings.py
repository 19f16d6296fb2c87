"""Settings of models and options of methods, as ``--set NAME=VALUE`` and as flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxmf.arguments import meant
from jaxmf.registry.entry import Entry

if TYPE_CHECKING:
    from jaxmf.model import Model


_FLAGS = {
    "sample": ("chains", "samples", "warmup", "thin", "temper"),
    "particle_filter": ("particles", "runs"),
    "smc": ("particles", "runs"),
    "variational": ("epochs", "validation", "analytic"),
}
_AS_THEY_ARE = ("thin", "temper", "analytic")


def read_settings(
    entry: Entry, method: str, texts: list[str]
) -> tuple[dict[str, object], dict[str, object]]:
    """Split ``name=value`` settings into those of the model and those of the method."""
    from jaxmf import registry, settings

    model_settings = {each.name: each for each in registry.model_settings(entry)}
    method_settings = [each.name for each in registry.method_settings(entry, method)]
    if method == "smc":
        method_settings += ["chain_length", "effective_share"]  # of the verb, without flags
    found: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not value.strip():
            raise ValueError(f"--set {text!r}: write NAME=VALUE, such as alpha=Gamma(1,1)")
        known = [*model_settings, *method_settings]
        if name not in known:
            raise ValueError(
                f"--set {name}: {entry.name} by {method} has no setting of that name; there are "
                f"{', '.join(known)}.{meant(name, known)}"
            )
        if name in found:
            raise ValueError(f"--set {name} is given twice")
        try:
            found[name] = settings.parse(value)
        except ValueError as error:
            raise ValueError(f"--set {name}: {error}") from None
    model_values = {name: value for name, value in found.items() if name in model_settings}
    return model_values, {
        name: value for name, value in found.items() if name not in model_settings
    }


def build(entry: Entry, values: dict[str, object]) -> Model:
    """The model with these settings.

    Raises:
        ValueError: one without a default is missing.
    """
    from jaxmf import registry

    missing = [
        each.name
        for each in registry.model_settings(entry)
        if each.required and each.name not in values
    ]
    if missing:
        raise ValueError(f"{entry.name} needs --set {missing[0]}=VALUE")
    return entry.model(**values)


def method_options(method: str, flags: Mapping[str, object]) -> dict[str, object]:
    """The options of a verb from flags, None where one is not there.

    Raises:
        ValueError: there is a flag of another method.
    """
    for name, value in flags.items():
        if value is not None and name not in _FLAGS[method]:
            other = next(each for each, names in _FLAGS.items() if name in names)
            allowed = ", ".join(f"--{each}" for each in _FLAGS[method])
            raise ValueError(f"--{name} belongs to {other}; {method} takes {allowed}")
    return {
        name if name in _AS_THEY_ARE else f"num_{name}": value
        for name, value in flags.items()
        if value is not None
    }
