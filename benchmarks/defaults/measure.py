"""What is measured of a case: one run by default and its peers, each a function of no choice."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jaxmf as mf

QUICK_CHAINS = {"num_warmup": 100, "num_samples": 100, "num_chains": 2}


@dataclass(frozen=True)
class Case:
    """One call by default on one data set.

    Args:
        unit: of every figure of the case.
        ours: figure and note of the run; its argument says whether chains are short.
        peers: the figure of each peer on the same data.
        more_is_better: whether larger figures are better.
        quick_limit: CPU seconds of a run with short chains, its compilation counted.
    """

    unit: str
    ours: Callable[[bool], tuple[float, str]]
    peers: Mapping[str, Callable[[], float]]
    more_is_better: bool = False
    quick_limit: float = 45.0


def fitted(model: Any, data: Any, quick: bool) -> tuple[Any, str]:
    """The posterior by default, and the kinds of its alarms as text."""
    options = QUICK_CHAINS if quick and mf.registry.entry_of(model).default == "sample" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = mf.fit(model, data, seed=0, progress=False, **options)
    return post, alarms_of(post)


def alarms_of(post: Any) -> str:
    """The kinds of the alarms of a run as text; versions before 0.2 have none."""
    kinds = [alarm.kind for alarm in post.alarms()] if hasattr(post, "alarms") else []
    return f"alarms: {', '.join(kinds)}" if kinds else "no alarm"
