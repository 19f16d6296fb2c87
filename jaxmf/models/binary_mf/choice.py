"""Whether W is kept or summed out where the user does not say: by the device and the data's size.

With W summed out rows are drawn one after another, each at the price of L K^2. Such a step brings a
chain further, and on a CPU it is the better choice as long as a run ends in minutes. With W kept a
step costs little more than its products of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmf.data import Dense
from jaxmf.devices import AUTO, choose_sweep
from jaxmf.likelihoods.cells.poisson import Poisson
from jaxmf.models.binary_mf import binary_mf_checks
from jaxmf.models.binary_mf.binary_mf_spec import BinaryMFSpec
from jaxmf.priors.features import BetaBernoulli

# What features of a process come to in data that have many of them.
_GROWN_SLOTS = 32
# Of I L K^2 + J K L^2, a step with W summed out; 3.2 million (38 x 60 cells in 32 slots) took 23 ms
# on one core of an x86-64 CPU, and 1.5 ms with W kept.
MOST_WORK = 4_000_000


def device_options(
    model: BinaryMFSpec,
    options: Mapping[str, object],
    *,
    platform: str,
    data: Dense | None = None,
) -> dict[str, object]:
    """The sweep, and whether it keeps W: see `Model`."""
    if options.get("sweep", AUTO) != AUTO:
        return {}
    if (
        options.get("weights") is not None
        or binary_mf_checks.weights_option(model, None) == "explicit"
    ):
        return {"sweep": "bits"}
    if platform == "cpu" and data is not None and step_work(model, data) > MOST_WORK:
        kept: dict[str, Any] = {"sweep": "bits", "weights": "explicit"}
        if options.get("capacity") is None:
            # each doubling compiles the step once more, which costs more than empty slots do here
            kept["capacity"] = _GROWN_SLOTS
        return kept
    # a sweep is one of the rows and one of the columns
    mean_lines = None if data is None else sum(data.shape) // 2
    return {"sweep": "bits", "weights": choose_sweep("bilinear", platform, mean_lines)}


def step_work(model: BinaryMFSpec, data: Dense) -> int:
    """I L K^2 + J K L^2, what a step with W summed out costs: as many slots as features need."""
    row_slots, column_slots = (
        prior.num_features + num_fixed if isinstance(prior, BetaBernoulli) else _GROWN_SLOTS
        for prior, num_fixed in (
            (model.row_prior, model.num_fixed_rows()),
            (model.column_prior, model.num_fixed_columns()),
        )
    )
    num_rows, num_columns = data.shape
    return row_slots * column_slots * (num_rows * row_slots + num_columns * column_slots)


def whole_because(model: BinaryMFSpec, options: Mapping[str, object]) -> str:
    """Reason why rows cannot be spread over devices, a clause for messages; empty where they can.

    They are where W is kept and nothing is drawn row by row.
    """
    if isinstance(model.likelihood, Poisson):
        return "counts are split cell by cell, with the Poisson likelihood use chains alone"
    changes = []
    if binary_mf_checks.weights_option(model, options.get("weights")) != "explicit":
        changes.append('weights="explicit"')
    if options.get("split_merge"):
        changes.append("split_merge=0")
    if options.get("start", "prior") != "prior":
        changes.append('start="prior"')
    return f'with {", ".join(changes)} it spreads rows over "data"' if changes else ""
