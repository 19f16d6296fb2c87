"""Sentences that say when a run should not be trusted as it stands, and what to do.

Each check reads what a finished run holds anyway and costs next to nothing; the dearest compiles
one small program, for the predictions of 256 cells. `jaxmf.sample` and the other verbs warn with
the first sentence; `Posterior.alarms` has all, and the summary, the report and the command line
show them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxmf import diagnostics, registry
from jaxmf.blocks.split_merge import can_split
from jaxmf.data import Container, Dense, Entries, suspects, units
from jaxmf.data.checks import shown_id
from jaxmf.data.elsewhere import DenseElsewhere
from jaxmf.engine.processes import is_first
from jaxmf.model import (
    HasBias,
    HasNetwork,
    HasRowGroups,
    ScalesColumns,
    SomeModel,
    WarnsOfFits,
    settings_of,
)
from jaxmf.posterior.agreement import LARGEST_RHAT
from jaxmf.posterior.draws import NO_DRAWS
from jaxmf.posterior.evidence import annealing_fault
from jaxmf.posterior.leave_one_out import known_cells

if TYPE_CHECKING:
    from jaxmf.posterior.posterior import Posterior
    from jaxmf.posterior.summaries import Summaries

_FEWEST_DRAWS = 4  # R-hat is not defined for fewer
_DRIFT_DRAWS = 20
_DRIFT_ERRORS = 4.0
_MOST_LEVELS = 12  # whole numbers that are grades, not measurements
_MOST_ORDINAL = 21  # levels, such as 0 to 10 in halves; more are slow to settle
_MOST_GRADES = 101  # such as per cent
_PILED = 5e-3  # share of the cells at the highest grade of a scale
_FEWEST_PILED = 10  # fewer cells there may be the tail of rounded measurements
_USUAL = 1e-3  # share of the cells that a grade of a scale has
_STRANGE = 1e-2  # most cells outside of a scale; more, and there is none
_CONVERGED = 1e-4
_SHORT_DOCUMENT = 20  # words
_FEWEST_CELLS = 5  # of a column whose sd is compared with the noise
_FALSE_UNITS = 0.01  # the probability that chance alone puts the sd of some column below the noise
_PREDICTION_ERRORS = 3.0
_LEAST_DOUBT = 0.05  # probability of other features of a row, below which particles may agree
_LEAST_SHARE_OF_DOUBT = 0.25  # of it that particles should have among them
_NEARLY_ALL_ROWS = 0.95  # share of the rows from which on a feature is rather a level
_STEPS_OF_ROUND_TRIPS = 20  # for each replica, after which one should have come back


class RunWarning(UserWarning):
    """A run that should not be trusted as it stands; the message says why and what to do."""


class Alarm(NamedTuple):
    """What is wrong with a run.

    Args:
        kind: one word or two for programs, such as ``"R-hat"``.
        sentence: what was seen and what to do.
    """

    kind: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def alarms(posterior: Summaries) -> tuple[Alarm, ...]:
    """See `Posterior.alarms`."""
    if posterior.num_draws == 0:
        return (Alarm("no draws", NO_DRAWS),)
    has_cells = not isinstance(posterior.data, DenseElsewhere)
    checks = [check for check in _CHECKS if has_cells or check not in _OF_CELLS]
    return tuple(alarm for check in checks for alarm in check(posterior))


def warn(posterior: Posterior[SomeModel], mesh: object = None) -> Posterior[SomeModel]:
    """The posterior, after a `RunWarning` with its first alarm if it has any.

    Args: mesh: of the run; of several processes the first warns.
    """
    found = alarms(posterior) if is_first(mesh) else ()
    if found:
        more = len(found) - 1
        ending = f" ({more} more: see post.alarms())" if more else ""
        # the caller of the verb, which called this
        warnings.warn(f"{found[0].sentence}{ending}", RunWarning, stacklevel=3)
    return posterior


def _nothing_in_use(posterior: Summaries) -> Iterator[Alarm]:
    """No feature or factor, or one group, in all draws; or no feature in the draws of one chain."""
    for name, values in posterior.draws.items():
        if not name.startswith("num_") or values.ndim != 2 or not _is_counted(name):
            continue
        what = name.removeprefix("num_").replace("_", " ")
        if not _is_of_features(name):
            if np.all(values == 1):
                yield Alarm(
                    "one group",
                    f"All draws have one group ({name} is 1): no structure was found. If you "
                    f"expect some, {_how_to_find_groups(posterior)}",
                )
        elif not values.any():
            yield Alarm(
                "no features",
                f"No draw has any {what} ({name} is 0): predictions know nothing but the "
                f"hyperparameters. {_why_none(posterior)}",
            )
        elif not values.any(axis=1).all():
            chain = int(np.flatnonzero(~values.any(axis=1))[0])
            yield Alarm(
                "no features",
                f"Chain {chain} has no {what} in any draw while others do: it is caught in an "
                "empty state. Run longer, or start from another seed",
            )


def _one_of_stated_groups(posterior: Summaries) -> Iterator[Alarm]:
    """All rows in one group, of a number of groups that is stated and so is not in the draws."""
    if not isinstance(posterior.model, HasNetwork):
        return
    for name, block in posterior.model.network().blocks.items():
        counts = posterior.draws.get(f"{name}_counts")
        if block.observed or block.by or block.distribution.grows or counts is None:
            continue
        if counts.shape[-1] > 1 and not np.any(np.sum(counts > 0, axis=-1) > 1):
            yield Alarm(
                "one group",
                f"One of the {counts.shape[-1]} groups has all rows in all draws: no structure was "
                f"found. If you expect some, {_how_to_find_groups(posterior, stated=True)}",
            )


def _suspect_data(posterior: Summaries) -> Iterator[Alarm]:
    """Codes of missing cells that were taken for numbers, and columns that hold groups together."""
    data = posterior.data
    known = known_cells(data)
    if known is not None and isinstance(data, Dense | Entries):
        for found in suspects.codes_by_column(known[1], known[2]):
            count = f"{found.num_columns - 1} more column" if found.num_columns > 1 else ""
            more = f", and likewise of {count}{'s' * (found.num_columns > 2)}" if count else ""
            column = shown_id(data.column_names, found.column)
            yield Alarm(
                "codes",
                f"{found.num_cells:,} cells of column {column} are "
                f"{found.code:g}, and no other is {found.side} {found.outermost:.4g}{more}. They "
                "were taken for numbers: if they stand for missing cells, replace them by NaN, in "
                "a file by nothing",
            )
    if isinstance(posterior.model, HasRowGroups) and isinstance(data, Dense):
        yield from _redundant_columns(data)


def _redundant_columns(data: Dense) -> Iterator[Alarm]:
    """Columns that others determine, or that do not vary, where groups have covariances.

    With N rows and groups of shares p_k each costs a partition N H(p) / 2 nats, whatever its scale,
    since a group has to learn for itself that nothing varies there.
    """
    found = units.redundant_columns(data)
    if data.num_columns < 2 or found.size == 0:
        return
    names = ", ".join(shown_id(data.column_names, int(column)) for column in found[:5])
    more = ", ..." if found.size > 5 else ""
    yield Alarm(
        "redundant columns",
        f"Columns that hold one number, or follow from the others (copies, totals): {names}{more}. "
        "Each of them holds all rows in one group; drop them",
    )


def _how_to_find_groups(posterior: Summaries, *, stated: bool = False) -> str:
    data = posterior.data
    if isinstance(data, Dense) and data.num_columns >= data.num_rows / 2:
        return (
            f"use fewer columns, such as the first principal components: {data.num_rows} rows are "
            f"too few for covariances of {data.num_columns} columns in each group"
        )
    if stated:
        return "run more chains"
    moves = (
        ""
        if posterior.meta.options.get("split_merge") or not _can_split(posterior)
        else (" with split_merge=5")
    )
    return f"run longer{moves}, or state a larger concentration"


def _why_none(posterior: Summaries) -> str:
    values = _observed(posterior.data)
    if values is not None and values.size and np.ptp(values) == 0:
        return "All observed cells are equal: there is nothing else to find"
    return "Check the scale of the data against the priors"


def _model_alarms(posterior: Summaries) -> Iterator[Alarm]:
    """What only the model knows of its draws, such as factors that are all switched off."""
    if posterior.is_variational and isinstance(posterior.model, WarnsOfFits):
        for kind, sentence in posterior.model.alarms(posterior.reference_draw(), posterior.data):
            yield Alarm(kind, sentence)


def _is_counted(name: str) -> bool:
    return name not in ("num_epochs", "num_iterations")


def _is_of_features(name: str) -> bool:
    return name.endswith(("features", "factors"))


def _noise(posterior: Summaries) -> Iterator[Alarm]:
    """Noise that is surely above the sd of the data: the model explains less than one number."""
    noise = posterior.draws.get("noise_scale")
    values = _observed(_in_noise_units(posterior))
    if noise is None or values is None or noise.ndim != 2 or values.size < 2:
        return
    spread = float(values.std())
    weights = posterior.weights
    if spread == 0 or _quantile(noise, weights, 0.05) <= 1.02 * spread:
        return
    fixed = posterior.model.hyperparameters.get("noise_scale")
    if isinstance(fixed, int | float):
        yield Alarm(
            "noise",
            f"noise_scale is fixed at {fixed:g}, and the sd of the data is {spread:.3g}: nothing "
            "can be found below the noise. State a smaller one, or leave it out to learn it",
        )
    else:
        yield Alarm(
            "noise",
            f"The noise ({float(np.sum(weights * noise)):.3g}) is larger than the sd of the data "
            f"({spread:.3g}): predictions are worse than the plain mean. The chain has not "
            "converged; run longer, or use fewer factors or features",
        )


def _units(posterior: Summaries) -> Iterator[Alarm]:
    """Noise that is surely above the sd of a column: in one noise scale for all it has no say."""
    noise, data = posterior.draws.get("noise_scale"), _in_noise_units(posterior)
    if noise is not None and isinstance(data, Entries):
        yield from _units_of_entries(data)
    if noise is None or not isinstance(data, Dense) or noise.ndim != 2:
        return
    spreads, counts = units.column_scales(data), units.column_counts(data)
    # an sd of n normal cells is known to one part in sqrt(2 n)
    errors = NormalDist().inv_cdf(1 - _FALSE_UNITS / len(spreads))
    most = (1 + errors / np.sqrt(2 * np.maximum(counts, _FEWEST_CELLS))) * spreads
    least = _quantile(noise, posterior.weights, 0.05)
    drowned = np.flatnonzero((counts >= _FEWEST_CELLS) & (spreads > 0) & (least > most))
    values = _observed(data)
    if drowned.size == 0 or values is None or least > values.std():  # the last is `_noise`
        return
    column = int(drowned[np.argmin(spreads[drowned])])
    shown = shown_id(posterior.data.column_names, column)
    yield Alarm(
        "units",
        f"The noise ({least:.3g} or more) is larger than the sd of column {shown} "
        f"({spreads[column]:.3g}): one noise_scale serves all columns, and this "
        "column has next to no influence. If columns are in different units, divide each by its "
        "standard deviation",
    )


def _units_of_entries(data: Entries) -> Iterator[Alarm]:
    """Columns far apart in scale; no nearer, for ratings of some columns vary less than others."""
    spreads = units.entry_scales(data, _FEWEST_CELLS)
    if not units.are_different(spreads):
        return
    most, least = int(np.argmax(spreads)), int(np.argmin(np.where(spreads > 0, spreads, np.inf)))
    shown = [f"{shown_id(data.column_names, j)} ({spreads[j]:.3g})" for j in (most, least)]
    yield Alarm(
        "units",
        f"The sd of column {shown[0]} is far above that of column {shown[1]} and of half of the "
        "columns: one noise_scale serves all, and those of small sd have next to no influence. If "
        "columns are in different units, divide each by its standard deviation",
    )


def _in_noise_units(posterior: Summaries) -> Container:
    """The data in the units of the noise: those of each column, where a model scales them."""
    model, data = posterior.model, posterior.data
    is_scaled = isinstance(model, ScalesColumns) and isinstance(data, Dense)
    return model.centred(data) if is_scaled else data


def _quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The smallest value that draws of this much weight do not exceed."""
    order = np.argsort(values, axis=None)
    below = np.cumsum(weights.ravel()[order])
    return float(values.ravel()[order[np.searchsorted(below, level * below[-1])]])


def _observed(data: Container) -> np.ndarray | None:
    """(M,) values of the observed cells of a matrix; None for other data."""
    known = None if isinstance(data, DenseElsewhere) else known_cells(data)
    return None if known is None else known[2]


def slow_quantities(posterior: Summaries) -> dict[str, float]:
    """The R-hat of the quantities that chains do not agree on."""
    if posterior.meta.method != "sample" or posterior.num_draws < _FEWEST_DRAWS:
        return {}
    quantities = posterior.quantities()
    table = diagnostics.summarise_chains(quantities)
    rhats = {name: table[name, "R-hat"] for name in table.names}
    for name, x in quantities.items():
        if np.ptp(x) > 0 and np.all(np.ptp(x, axis=1) == 0):
            rhats[name] = np.inf  # every chain stays where it is
    return {name: value for name, value in rhats.items() if value > LARGEST_RHAT}


def cells_agree(posterior: Summaries) -> bool:
    """Whether chains agree on cells, in a model that is judged by these."""
    found = posterior.cell_agreement()
    return found is not None and found.is_good


def _rhat(posterior: Summaries) -> Iterator[Alarm]:
    """Chains that disagree."""
    rhats = slow_quantities(posterior)
    if not rhats or cells_agree(posterior):
        return
    name = max(rhats, key=lambda name: rhats[name])
    value = rhats[name]
    shown = f"{value:.3f}" if value < 1.1 else f"{value:.2f}" if value < 10 else "above 10"
    several = posterior.num_chains > 1
    what = "the chains disagree" if several else "the chain has not settled"
    yield Alarm(
        "R-hat",
        f"R-hat of {name} is {shown}, which should be below {LARGEST_RHAT}: {what}. "
        f"{_advice(posterior)}",
    )


def _advice(posterior: Summaries) -> str:
    """Which options of this run to turn."""
    run, options = posterior.meta.run, posterior.meta.options
    warmup, samples = int(run.get("num_warmup", 0)), int(run.get("num_samples", 1))
    least = -(-500 // int(run.get("thin", 1)))  # 500 steps, as many draws as they leave
    advice = f"Try num_warmup={max(2 * warmup, 500)}, num_samples={max(2 * samples, least)}"
    entry = registry.entry_of(posterior.model)
    known = {setting.name for setting in registry.method_settings(entry, "sample")}
    if "split_merge" in known and not options.get("split_merge") and _can_split(posterior):
        advice += " or split_merge=5"
    if _has_short_documents(posterior):
        advice += (
            " or, as the documents are short, HDPLDA(word_concentration=dist.Gamma(1, 10)), which "
            "is learned and sets how many topics there are"
        )
    return advice


def _can_split(posterior: Summaries) -> bool:
    """Whether the run has features, or groups of a process, that moves could split and merge."""
    if "z" in posterior.draws:
        return True
    if not isinstance(posterior.model, HasNetwork):
        return False
    network = posterior.model.network()
    return any(can_split(network, name) for name in network.indicators)


def _has_short_documents(posterior: Summaries) -> bool:
    """Whether few words a document leave the number of topics to the concentration of words."""
    model, data = posterior.model, posterior.data
    if type(model).__name__ != "HDPLDA" or not isinstance(model.word_concentration, int | float):
        return False
    num_documents = np.unique(np.asarray(data.columns["document"])).size
    return bool(data.num_tokens < _SHORT_DOCUMENT * num_documents)


def _level(posterior: Summaries) -> Iterator[Alarm]:
    """A feature of nearly all rows, where the column means were subtracted.

    Features raise the means of their columns, so rows without any are not about zero then, and one
    more feature, of all rows, says where they are.
    """
    model, data = posterior.model, posterior.data
    settings = settings_of(model) if isinstance(model, HasBias) else {}
    if (
        settings.get("bias", True)
        or "z" not in posterior.draws
        or not posterior.num_draws
        or not isinstance(data, Dense)
        or not np.array_equal(np.asarray(settings["offset"]), units.column_means(data))
    ):
        return
    z = posterior.draws["z"]
    shares = z.sum(axis=-2).max(axis=-1, initial=0) / z.shape[-2]
    probability = float(np.sum(posterior.weights * (shares >= _NEARLY_ALL_ROWS)))
    if probability >= 0.5:
        yield Alarm(
            "level",
            f"In {probability:.0%} of the draws one of the features is in "
            f"{_NEARLY_ALL_ROWS:.0%} of the rows or more, and num_features counts it: it is the "
            "level of rows without features, which is not the mean of the columns. Set bias=True "
            "to keep it apart",
        )


def _replicas(posterior: Summaries) -> Iterator[Alarm]:
    """Replicas of which no state came back from the lowest power."""
    run = posterior.meta.run
    if "temper" not in run or any(run["round_trips"]):
        return
    num_steps = posterior.draws["log_joint"].shape[1] * int(run["thin"])
    if num_steps < _STEPS_OF_ROUND_TRIPS * run["temper"]:
        return
    share = min(run["swap_acceptance"])
    yield Alarm(
        "round trips",
        f"temper={run['temper']}: no state came back from the lowest power, {run['powers'][-1]:g}, "
        f"in {num_steps} steps, so that replicas have not helped the chains. Raise num_samples, or "
        f"change temper (at least {share:.0%} of the proposed swaps of neighbours are accepted)",
    )


def _drift(posterior: Summaries) -> Iterator[Alarm]:
    """A log joint whose second half lies to one side of its first, in all chains."""
    values = posterior.draws.get("log_joint")
    if posterior.meta.method != "sample" or values is None or values.ndim != 2:
        return
    x = np.asarray(values, dtype=float)
    if x.shape[1] < _DRIFT_DRAWS or not np.isfinite(x).all():
        return
    batches = x[:, x.shape[1] % 10 :].reshape(x.shape[0], 2, 5, -1).mean(axis=-1)
    shift = batches[:, 1].mean(axis=-1) - batches[:, 0].mean(axis=-1)
    spread = batches.std(axis=-1, ddof=1)
    error = np.sqrt((spread**2).sum(axis=-1) / 5)
    if np.all(np.abs(shift) > _DRIFT_ERRORS * error) and np.ptp(np.sign(shift)) == 0:
        if cells_agree(posterior):
            return
        direction = "rises" if shift[0] > 0 else "falls"
        yield Alarm(
            "drift",
            f"The log joint still {direction} from the first half of the draws to the second: the "
            f"warm-up was too short. {_advice(posterior)}",
        )


def _free_energy(posterior: Summaries) -> Iterator[Alarm]:
    """A variational fit that ended before its free energy did."""
    energies = posterior.trace.get("free_energy")
    limit = posterior.meta.run.get("num_epochs")
    if not posterior.is_variational or energies is None or limit is None:
        return
    epochs = int(posterior.draws["num_epochs"].ravel()[0])
    path = np.asarray(energies, dtype=float).ravel()
    path = path[np.isfinite(path)]
    if epochs < int(limit) or path.size < 3 or posterior.meta.run.get("num_validation"):
        return
    change, whole = path[-2] - path[-1], path.max() - path.min()
    if abs(change) > max(_CONVERGED * abs(path[-1]), 1e-2 * whole):
        yield Alarm(
            "free energy",
            f"The free energy still changed by {abs(change):.3g} in epoch {epochs}, the last: the "
            f"fit has not converged. Try num_epochs={2 * epochs}",
        )


def _support(posterior: Summaries) -> Iterator[Alarm]:
    """Gaussian noise on grades, whose intervals leave the scale, and grades far outside it."""
    likelihood = settings_of(posterior.model).get("likelihood")
    if type(likelihood).__name__ != "Gaussian" or type(posterior.data).__name__ != "Entries":
        return
    values = _observed(posterior.data)
    if values is None or values.size < 50:
        return
    grades, counts = np.unique(values, return_counts=True)
    usual = grades[counts >= _USUAL * values.size]
    if 3 <= usual.size <= _MOST_LEVELS and usual.size < grades.size:
        low, high = usual[0], usual[-1]
        is_outside = (grades < low) | (grades > high)
        is_far = (grades < 2 * low - high) | (grades > 2 * high - low)
        size, num_far = int(counts[is_outside].sum()), int(counts[is_far].sum())
        # the tail of counts begins where the usual ones end, and most of it is near them
        if num_far > size / 2 and size <= _STRANGE * values.size:
            shown = ", ".join(f"{x:g}" for x in grades[is_outside][:5])
            yield Alarm(
                "outside",
                f"{size:,} of {values.size:,} ratings lie outside {low:g} to {high:g}, where all "
                f"others are: {shown}. They widen the intervals of all; leave them out",
            )
            return
    sentence = _support_of(grades, counts)
    if sentence is not None:
        yield Alarm("support", sentence)


def _support_of(grades: np.ndarray, counts: np.ndarray) -> str | None:
    """What to do about Gaussian noise on these grades; None where they are no scale."""
    if not 2 <= grades.size <= _MOST_GRADES:
        return None
    is_halves = bool(np.all(2 * grades == np.round(2 * grades)))
    if not (is_halves and grades.size <= _MOST_LEVELS):
        # ratings above the top of a scale pile up there; counts and measurements do not
        is_piled = counts[-1] >= max(counts[-2], _PILED * counts.sum(), _FEWEST_PILED)
        steps = grades / np.diff(grades).min()
        is_short = steps[-1] - steps[0] < _MOST_GRADES
        is_even = is_short and np.allclose(steps, np.round(steps), rtol=0, atol=1e-2)
        if not (is_piled and is_even):
            return None
    levels = tuple(int(x) if x == round(x) else round(x, 6) for x in grades.tolist())
    kind = "whole numbers" if all(isinstance(x, int) for x in levels) else "grades"
    scale = f"{kind} from {levels[0]} to {levels[-1]}"
    if len(levels) == 2:
        scale = f"{levels[0]} and {levels[1]}"
    where = f"The ratings are {scale}, and Gaussian"
    if levels == (0, 1):
        remedy = "likelihood=mf.Probit() keeps to it"
    elif grades.size <= _MOST_ORDINAL and is_halves:
        remedy = f"likelihood=mf.Ordinal(levels={levels}) keeps to it"
    else:
        ends = f"{levels[0]}, {levels[-1]}"
        return f"{where} means and intervals leave that scale. Bring them to it: np.clip(x, {ends})"
    return f"{where} intervals leave that scale. {remedy}"


def _evidence(posterior: Summaries) -> Iterator[Alarm]:
    """Runs whose evidence has no error that could be trusted.

    A single run of a filter, as by default, claims none: its summary says so, and that is all.
    """
    if posterior.evidence is None or np.isfinite(posterior.evidence.standard_error):
        return
    num_runs, particles = posterior.weights.shape
    if posterior.meta.method == "smc":
        fault = annealing_fault(posterior.trace, particles)
    elif num_runs == 1:
        return
    else:
        fault = (
            "the particles of a run descend from few of its first ones, or its runs differ by more "
            f"than their own error; try num_particles={10 * particles} or another proposal, and "
            f"num_runs={max(5, num_runs)}"
        )
    yield Alarm(
        "evidence",
        f"The log evidence ({posterior.evidence.value:.1f}) has no error that can be trusted: "
        f"{fault}. Do not compare models by it",
    )


def _paths(posterior: Summaries) -> Iterator[Alarm]:
    """Particles that agree on features of rows although their own weights say they may differ."""
    doubt = posterior.path_doubt()
    if doubt is None or doubt.by_conditionals < _LEAST_DOUBT:
        return
    if doubt.among_particles < _LEAST_SHARE_OF_DOUBT * doubt.by_conditionals:
        yield Alarm(
            "particles",
            f"The particles descend from few of the first ones: in {doubt.num_rows} rows the "
            f"probability of other features than the commonest is {doubt.among_particles:.1%} by "
            f"the particles and {doubt.by_conditionals:.1%} given everything else. Predictions of "
            "cells are surer than they should be, and may be worse than simple means. Try "
            "rejuvenate_every=10, or mf.sample",
        )


def _prediction(posterior: Summaries) -> Iterator[Alarm]:
    """Observed cells predicted from all others worse than simple means predict them."""
    comparison = posterior.leave_one_out()
    if comparison is None or comparison.excess <= _PREDICTION_ERRORS * comparison.standard_error:
        return
    model, baseline = float(comparison.model.mean()), float(comparison.baseline.mean())
    cells, than = "observed cells", "simple means"
    if comparison.unit == "log score of a token":
        cells, than = "tokens", "frequencies"
        what = f"a mean log score of {-model:.3g}, the frequencies of all tokens {-baseline:.3g}"
    elif comparison.unit == "log score":
        what = f"a mean log score of {-model:.3g}, the frequencies of the columns {-baseline:.3g}"
    else:
        what = f"an RMSE of {model**0.5:.3g}, row and column means {baseline**0.5:.3g}"
    yield Alarm(
        "prediction",
        f"Predictions are worse than {than}: {comparison.model.size} {cells}, each predicted from "
        f"all others, have {what}. {_advice(posterior)}; if that does not help, the model does not "
        "suit these data",
    )


_CHECKS = (
    _suspect_data,
    _nothing_in_use,
    _one_of_stated_groups,
    _model_alarms,
    _noise,
    _units,
    _rhat,
    _level,
    _replicas,
    _drift,
    _free_energy,
    _evidence,
    _paths,
    _prediction,
    _support,
)
# those that look at the cells of the data
_OF_CELLS = (_suspect_data, _noise, _units, _level)
