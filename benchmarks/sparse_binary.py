"""Figures 1 and 2 of the paper on sparse binary matrices: precision and time, beside peers.

Three ones are left out of every row that has four; precision@n is the share of them among the n
best unknown cells of their row, mean over rows. Every method chooses among six settings on one
further one left out of each row, on the first seed; the test split of each seed is looked at once.
The paper's names: G Gaussian, S sigmoid cells; S sparse, D dense sums, A analytic; e with biases
of rows and columns.
"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ranking, recommenders, variants
from benchmarks.harness import Row, row
from benchmarks.ranking import LEVELS, NUM_TRIALS, SEEDS, Method
from benchmarks.records import Paper, device_name, load

RESULTS = Path(__file__).parent / "results" / "paper-sparse-binary.json"


def methods() -> dict[str, Method]:
    """The paper's variants and the peers that are installed."""
    return variants.OURS | recommenders.installed()


def chosen(*, quick: bool, only: str) -> list[tuple[str, str]]:
    """Names of data sets and methods to be run."""
    sets = ranking.QUICK_SETS if quick else ranking.SETS
    return [
        (name, method)
        for name in sets
        for method, made in methods().items()
        if only in f"{name}/{method}/" and (quick or made.sets is None or name in made.sets)
    ]


def run(*, quick: bool = False, json: Path | None = None, only: str = "") -> dict[str, Any]:
    """All data sets and methods whose ``set/method/`` holds `only`; the file keeps the others."""
    seeds = SEEDS[:1] if quick else SEEDS
    about = {"trials": NUM_TRIALS, "seeds": list(seeds), "left_out": ranking.NUM_OUT}
    paper = Paper("sparse-binary", about, quick=quick, json=json)
    sets = _kept(json, quick=quick)
    for name, method in chosen(quick=quick, only=only):
        ones = ranking.data_set(name)
        part = sets.setdefault(
            name,
            {
                "shape": list(ones.shape),
                "ones": int(ones.nnz),
                "rows_scored": int((np.diff(ones.indptr) > ranking.NUM_OUT).sum()),
                "methods": {},
            },
        )
        began = load()
        settings = None
        if name in ranking.TUNED_ON:  # too large to try six settings of everything
            smaller = sets.get(ranking.TUNED_ON[name], {"methods": {}})["methods"]
            if method not in smaller:
                paper.say(f"{name} {method}: left out, run {ranking.TUNED_ON[name]} first")
                continue
            settings = smaller[method]["settings"]
        found = ranking.compare(ones, methods()[method], seeds=seeds, settings=settings).as_dict()
        part["methods"][method] = found | {"load": began}
        best, seconds = np.mean(found["precision"]["1"]), np.median(found["cpu_seconds"])
        paper.say(f"{name} {method}: precision@1 {best:.4f}, {seconds:.2f} s; {found['settings']}")
        paper.save(sets=sets)
    return paper.end(verdict(sets))


def _kept(json: Path | None, *, quick: bool) -> dict[str, Any]:
    """The data sets of a file of the same device."""
    if json is None or not json.exists():
        return {}
    old = json_module.loads(json.read_text())
    same = old.get("device") == device_name() and old["quick"] == quick
    return old.get("sets", {}) if same else {}


def verdict(sets: dict[str, Any]) -> list[str]:
    """For each data set the methods by precision@1, with seconds of a fit."""
    words = []
    for name, part in sets.items():
        shape = " x ".join(f"{size:,}" for size in part["shape"])
        words.append(f"{name}: {shape}, {part['ones']:,} ones, {part['rows_scored']:,} rows scored")
        means = {
            method: [float(np.mean(found["precision"][str(level)])) for level in LEVELS]
            for method, found in part["methods"].items()
        }
        for method in sorted(means, key=lambda method: -means[method][0]):
            figures = " ".join(f"{value:.3f}" for value in means[method])
            seconds = np.median(part["methods"][method]["cpu_seconds"])
            words.append(f"  {method:12} {figures}   {seconds:.2f} s")
    return words


def tuned(name: str) -> dict[str, Any]:
    """Settings by method that the committed results chose, where they are of this device."""
    found = _kept(RESULTS, quick=False).get(name, {"methods": {}})["methods"]
    return {method: one["settings"] for method, one in found.items()}


def rows(name: str, *, peers: tuple[str, ...], levels: tuple[int, ...], mine: str) -> list[Row]:
    """Precision of one of our variants on a data set beside peers, and the time of a fit.

    With the settings that the committed results of the paper chose, where they are of this device;
    else they are chosen here.
    """
    ones = ranking.data_set(name)
    known = methods()
    settings = tuned(name)

    def measured(method: str) -> ranking.Result:
        return ranking.compare(ones, known[method], settings=settings.get(method))

    ours = measured(mine)
    case = f"variational/precision/{name}"
    found = []
    for peer in peers:
        if peer not in known:
            continue
        theirs = measured(peer)
        for level in levels:
            found.append(
                row(
                    f"{case}/{peer.lower()}/at-{level}", "quality", "share",
                    ours.precision[level], peer=peer, theirs=theirs.precision[level],
                    more_is_better=True,
                    note=f"{mine}, {len(SEEDS)} seeds; {NUM_TRIALS} settings a side tried",
                )
            )  # fmt: skip
        found.append(
            row(
                f"{case}/{peer.lower()}/fit", "time", "s", ours.cpu_seconds, peer=peer,
                theirs=theirs.cpu_seconds, clock="cpu", wall=float(np.median(ours.wall_seconds)),
                note="one fit with the chosen settings",
            )
        )  # fmt: skip
    return found
