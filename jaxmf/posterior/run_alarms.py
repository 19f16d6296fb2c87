"""Alarms about how a run went: chains that disagree, fits that did not end, poor predictions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import betaln, chdtrc

from jaxmf import registry
from jaxmf.blocks.split_merge import can_split
from jaxmf.column_units import units_of
from jaxmf.data import Dense, Entries, units
from jaxmf.data.checks import shown_id
from jaxmf.model import Anneals, HasBias, HasNetwork, settings_of
from jaxmf.posterior import leave_one_out, replicas
from jaxmf.posterior.agreement import LARGEST_RHAT
from jaxmf.posterior.cell_distributions import CELL_DISTRIBUTIONS, cell_distribution
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.evidence import annealing_fault
from jaxmf.posterior.particle_paths import path_degeneracy
from jaxmf.posterior.quantities import agreed_answers, slow_quantities
from jaxmf.posterior.records import Alarm

_DRIFT_DRAWS = 20
_DRIFT_ERRORS = 4.0
_FEWEST_RUNS = 5  # of a filter
_CONVERGED = 1e-4
_SHORT_DOCUMENT = 20  # words
_PREDICTION_ERRORS = 3.0
MOSTLY_ONE = 0.5  # share of the draws with one group, from which on there may be no other
_GAIN_ERRORS = 2.0  # standard errors by which groups predict tokens better, if they say anything
_FEWEST_ERRORS = 8  # of a column whose errors are compared with those of others
_FALSE_COLUMNS = 1e-3  # the probability that chance alone ranks errors so unevenly over columns
_UNEQUAL_ERRORS = 4.0  # the largest mean square of a column over the smallest, from which it counts
_LEAST_DOUBT = 0.05  # probability of other features of a row, below which particles may agree
_LEAST_SHARE_OF_DOUBT = 0.25  # of it that particles should have among them
_WORSE_EVIDENCE = 4.0  # nats; of data from the model itself at most one set in e^4 is as far below
_SEPARATE_CHAINS = 1.5  # R-hat of chains each of which stays with an answer of its own
_FEW_CELLS = 2_000  # of which replicas of a chain are worth their cost
_STEPS_OF_ROUND_TRIPS = 20  # for each replica, after which one should have come back
_MOST_DECOMPOSED = 1_000_000  # cells whose singular values are looked at
_FEWEST_FEATURES = 4  # in 9 of 600 tables of 5 or 8 binary features half as many factors are enough


def interrupted(posterior: Draws) -> Iterator[Alarm]:
    """A run that was ended before it was done."""
    if posterior.meta.complete:
        return
    # an extended run has what it was asked for nowhere
    asked, done = int(posterior.meta.run.get("num_samples", 0)), "before its end"
    if asked > posterior.num_draws:
        done = f"after {posterior.num_draws:,} of {asked:,} draws"
    yield Alarm(
        "interrupted",
        f"The run was interrupted {done}. Take what it says as a first look: make it again, or go "
        "on from its checkpoint with resume=True if it has one",
    )


def disagreement(posterior: Draws) -> Iterator[Alarm]:
    """Chains that disagree."""
    rhats = slow_quantities(posterior)
    if not rhats or agreed_answers(posterior):
        return
    name = max(rhats, key=lambda name: rhats[name])
    value = rhats[name]
    shown = f"{value:.3f}" if value < 1.1 else f"{value:.2f}" if value < 10 else "above 10"
    several = posterior.num_chains > 1
    instead = _real_factors(posterior)
    if several and not instead:
        instead = _replicas_that_may_help(posterior, value)
    what = "the chains disagree" if several else "the chain has not settled"
    yield Alarm(
        "R-hat",
        f"R-hat of {name} is {shown}, which should be below {LARGEST_RHAT}: {what}. "
        f"{advice(posterior)}{instead}",
    )


def _real_factors(posterior: Draws) -> str:
    """Real factors, where half as many as there are binary features leave no more of the cells.

    K features with weights of their own need K directions; a plane of values that are not 0 or 1 is
    cut into more and more of them.
    """
    draws, data, settings = posterior.draws, posterior.data, settings_of(posterior.model)
    if not isinstance(data, Dense) or data.observed is not None or settings.get("column_noise"):
        return ""
    if not {"num_features", "noise_scale"} <= {*draws} or "v" in draws:
        return ""
    num_features = int(np.median(draws["num_features"]))
    is_large = data.num_rows * data.num_columns > _MOST_DECOMPOSED
    if num_features < _FEWEST_FEATURES or is_large or settings.get("column_unit", 1) is not None:
        return ""
    about = np.asarray(data.values, float)
    squares = np.linalg.svd(about - about.mean(axis=0), compute_uv=False) ** 2
    ranks = np.arange(1, min(num_features // 2, squares.size - 1, data.num_rows - 2) + 1)
    left_over = squares.sum() - np.cumsum(squares)[: ranks.size]
    freedom = (data.num_rows - 1 - ranks) * (data.num_columns - ranks)
    is_enough = left_over <= freedom * np.median(draws["noise_scale"]) ** 2
    if not is_enough.any():
        return ""
    rank = int(ranks[is_enough][0])
    factors = f"{rank} real factors" if rank > 1 else "one real factor"
    return (
        f". Yet {factors} leave{'s' * (rank == 1)} no more of the cells than {num_features} binary "
        "features: if rows have more or less of something rather than having it or not, use "
        f"mf.BPMF({rank})"
    )


def _replicas_that_may_help(posterior: Draws, rhat: float) -> str:
    """Replicas, where chains stay apart and data are few enough for them."""
    model, data, meta = posterior.model, posterior.data, posterior.meta
    if rhat < _SEPARATE_CHAINS or "temper" in meta.run or not isinstance(posterior.model, Anneals):
        return ""
    if not isinstance(data, Dense) or data.num_rows * data.num_columns > _FEW_CELLS:
        return ""
    algorithm = registry.entry_of(model).builder(model, "sample")(**meta.options)
    try:
        replicas.with_replicas(algorithm, model, data, meta.options, 2)
    except ValueError:  # not with these data or options
        return ""
    return " or temper=6, replicas of each chain by which it gets from one answer to another"


def advice(posterior: Draws) -> str:
    """Which options of this run to turn."""
    run, options = posterior.meta.run, posterior.meta.options
    warmup, samples = int(run.get("num_warmup", 0)), int(run.get("num_samples", 1))
    least = -(-500 // int(run.get("thin", 1)))  # 500 steps, as many draws as they leave
    advice = f"Try num_warmup={max(2 * warmup, 500)}, num_samples={max(2 * samples, least)}"
    entry = registry.entry_of(posterior.model)
    known = {setting.name for setting in registry.method_settings(entry, "sample")}
    if "split_merge" in known and not options.get("split_merge") and can_split_groups(posterior):
        advice += " or split_merge=5"
    if is_about_means(posterior):
        advice += " or bias=True, which takes the level of the columns out of the features"
    if _has_short_documents(posterior):
        advice += (
            " or, as the documents are short, HDPLDA(word_concentration=dist.Gamma(1, 10)), which "
            "is learned and sets how many topics there are"
        )
    return advice


def can_split_groups(posterior: Draws) -> bool:
    """Whether the run has features, or groups of a process, that moves could split and merge."""
    if "z" in posterior.draws:
        return True
    if not isinstance(posterior.model, HasNetwork):
        return False
    network = posterior.model.network()
    return any(can_split(network, name) for name in network.indicators)


def is_about_means(posterior: Draws) -> bool:
    """Whether the column means were subtracted, and rows without features have no row of their own.

    Of models that may have a bias feature.
    """
    model, data = posterior.model, posterior.data
    settings = settings_of(model) if isinstance(model, HasBias) else {}
    return (
        not settings.get("bias", True)
        and isinstance(data, Dense)
        and np.array_equal(np.asarray(settings["offset"]), units.column_means(data))
    )


def _has_short_documents(posterior: Draws) -> bool:
    """Whether few words a document leave the number of topics to the concentration of words."""
    model, data = posterior.model, posterior.data
    if type(model).__name__ != "HDPLDA" or not isinstance(model.word_concentration, int | float):
        return False
    num_documents = np.unique(np.asarray(data.columns["document"])).size
    return bool(data.num_tokens < _SHORT_DOCUMENT * num_documents)


def idle_replicas(posterior: Draws) -> Iterator[Alarm]:
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


def drift(posterior: Draws) -> Iterator[Alarm]:
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
        if agreed_answers(posterior):
            return
        direction = "rises" if shift[0] > 0 else "falls"
        yield Alarm(
            "drift",
            f"The log joint still {direction} from the first half of the draws to the second: the "
            f"warm-up was too short. {advice(posterior)}",
        )


def unfinished_ascent(posterior: Draws) -> Iterator[Alarm]:
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


def unknown_evidence(posterior: Draws) -> Iterator[Alarm]:
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
        runs = "" if num_runs >= _FEWEST_RUNS else f" and num_runs={_FEWEST_RUNS}"
        fault = (
            "the particles of a run descend from few of its first ones, or its runs differ by more "
            f"than their own error{_fewest(posterior)}. All other answers of this filter are then "
            "surer than they may be, such as numbers of features and intervals of hyperparameters. "
            f"Try mf.sample, or num_particles={10 * particles}{runs} or another proposal"
        )
    yield Alarm(
        "evidence",
        f"The log evidence ({posterior.evidence.value:.1f}) has no error that can be trusted: "
        f"{fault}. Do not compare models by it",
    )


def _fewest(posterior: Draws) -> str:
    """Where the weights of a filter rest on the fewest particles, for the middle of a sentence."""
    sizes, (_, particles) = posterior.trace.get("effective_sample_size"), posterior.weights.shape
    if sizes is None or not sizes.size or sizes.min() >= particles:
        return ""
    step = int(np.unravel_index(np.argmin(sizes), sizes.shape)[1])
    where = f"row {shown_id(posterior.data.row_names, step)}"
    if step >= posterior.data.num_rows:
        where = "the change to the target after the last row"
    return (
        f"; the fewest carry the weight at {where}, an effective {sizes.min():.1f} of {particles}"
    )


def agreeing_particles(posterior: Draws) -> Iterator[Alarm]:
    """Particles that agree on features of rows although their own weights say they may differ."""
    doubt = path_degeneracy(posterior)
    if doubt is None or doubt.by_conditionals < _LEAST_DOUBT:
        return
    if doubt.among_particles < _LEAST_SHARE_OF_DOUBT * doubt.by_conditionals:
        yield Alarm(
            "particles",
            f"The particles descend from few of the first ones{_fewest(posterior)}: in "
            f"{doubt.num_rows} of the earlier rows the "
            f"probability of other features than the commonest is {doubt.among_particles:.1%} by "
            f"the particles and {doubt.by_conditionals:.1%} given everything else. Predictions of "
            "cells are surer than they should be, and may be worse than simple means. Try "
            "mf.sample, or rejuvenate_every=10 and num_runs=5",
        )


def poor_prediction(posterior: Draws) -> Iterator[Alarm]:
    """Observed cells predicted from all others worse than simple means predict them."""
    comparison = leave_one_out.compare(posterior)
    if comparison is None or comparison.excess <= _PREDICTION_ERRORS * comparison.standard_error:
        return
    if comparison.unit == "squared error" and not comparison.baseline.any():
        return  # all cells are alike, which other alarms say
    model, baseline = float(comparison.model.mean()), float(comparison.baseline.mean())
    cells, than = "observed cells", "simple means"
    if comparison.unit == "log score of a token":
        cells, than = "tokens", "frequencies"
        what = f"a mean log score of {-model:.3g}, the frequencies of all tokens {-baseline:.3g}"
    elif comparison.unit == "log score":
        what = f"a mean log score of {-model:.3g}, the frequencies of the columns {-baseline:.3g}"
    else:
        what = f"an RMSE of {model**0.5:.3g}, row and column means {baseline**0.5:.3g}"
        if np.ptp(units_of(posterior.model, np.arange(posterior.data.num_columns))):
            what += ", in units of the columns"
    yield Alarm(
        "prediction",
        f"Predictions are worse than {than}: {comparison.model.size} {cells}, each predicted from "
        f"all others, have {what}. {advice(posterior)}; if that does not help, the model does not "
        "suit these data",
    )


def poorly_predicted_rows(posterior: Draws) -> Iterator[Alarm]:
    """A filter that predicts rows of zeros and ones worse than the frequencies of columns do.

    The evidence is how well each row was predicted from the earlier ones, so that no cell of it was
    known. Beside it are columns that are independent, with Beta(1/2, 1/2) priors of their ones.
    """
    evidence = posterior.evidence
    if posterior.meta.method != "particle_filter" or evidence is None:
        return
    known = leave_one_out.known_cells(posterior.data)
    if known is None or not known[2].size:
        return
    if cell_distribution(posterior.model) is not CELL_DISTRIBUTIONS["bernoulli"]:
        return
    ones, counts = np.bincount(known[1], known[2]), np.bincount(known[1])
    columns = float(np.sum(betaln(ones + 0.5, counts - ones + 0.5) - betaln(0.5, 0.5)))
    if evidence.value >= columns - _WORSE_EVIDENCE:
        return
    yield Alarm(
        "prediction",
        "Predictions are worse than the frequencies of columns: rows, each predicted from those "
        f"before it, have a log score of {evidence.value:.1f}, and of {columns:.1f} by the "
        f"frequencies of the columns in these. The filter has settled on a poor explanation"
        f"{_fewest(posterior)}. Try mf.sample, or rejuvenate_every=10 and num_runs=5",
    )


def no_gain(posterior: Draws) -> Iterator[Alarm]:
    """Tokens that their groups predict as well as the frequencies of all tokens, and no better."""
    comparison = leave_one_out.compare(posterior)
    if comparison is None or comparison.unit != "log score of a token":
        return
    excess, error = comparison.excess, comparison.standard_error
    if not -_GAIN_ERRORS * error < excess <= _PREDICTION_ERRORS * error:
        return  # better, or worse, which another alarm says
    if _has_one_group(posterior):
        return  # it is no better than none
    model, baseline = float(comparison.model.mean()), float(comparison.baseline.mean())
    yield Alarm(
        "no gain",
        f"The groups found predict no better than none: {comparison.model.size} tokens, each "
        f"predicted from all others, have a mean log score of {-model:.3g}, the frequencies of "
        f"all tokens {-baseline:.3g} (difference {0.0 - excess:+.2g} ± {error:.1g}). There may be "
        "nothing to find: take groups for structure of the data only if they predict new tokens "
        "better",
    )


def _has_one_group(posterior: Draws) -> bool:
    """Whether the model has a single group, or most draws do, which is an alarm of its own."""
    if isinstance(posterior.model, HasNetwork):
        network = posterior.model.network()
        priors = [network.distributions[name] for name in network.indicators]
        if all(not prior.grows and prior.num_groups(1) == 1 for prior in priors):
            return True
    counts = (v for name, v in posterior.draws.items() if name.startswith("num_"))
    return any(bool(np.mean(count == 1) > MOSTLY_ONE) for count in counts)


def unequal_errors(posterior: Draws) -> Iterator[Alarm]:
    """Columns that are predicted unequally well, though they share their noise.

    By the ranks of squared errors of cells, each predicted from all others (Kruskal-Wallis).
    """
    if settings_of(posterior.model).get("column_noise", True):
        return  # on already, or not a setting of the model
    if "noise_scale" not in posterior.draws:
        return  # stars and the like
    comparison, data = leave_one_out.compare(posterior), posterior.data
    if comparison is None or not isinstance(data, Dense | Entries):
        return
    varies = units.column_scales(data)[comparison.columns] > 0
    columns, errors, p_value = compare_columns(comparison.columns[varies], comparison.model[varies])
    if p_value > _FALSE_COLUMNS or errors.max() <= _UNEQUAL_ERRORS * errors.min():
        return
    unit = units_of(posterior.model, columns)  # errors are in these
    least, most = (
        f"{shown_id(data.column_names, int(columns[at]))} ({np.sqrt(errors[at]) * unit[at]:.3g})"
        for at in (int(np.argmin(errors)), int(np.argmax(errors)))
    )
    yield Alarm(
        "unequal noise",
        "Errors of cells, each predicted from all others, differ between columns by more than "
        f"chance (root mean squares from column {least} to {most}), but all share one noise scale: "
        "intervals are too wide in some columns and too narrow in others. Try column_noise=True, "
        "noise of its own for each column",
    )


def compare_columns(
    columns: np.ndarray, errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns with eight errors or more, means of these, and p of their being alike.

    Args: columns (M,) int; errors (M,) float.
    Returns (C,) int, (C,) float, and 1 of fewer than two columns.
    """
    # written out: to import scipy.stats takes as long as all alarms of a small run
    counts = np.bincount(columns)
    kept = counts[columns] >= _FEWEST_ERRORS
    chosen, index = np.unique(columns[kept], return_inverse=True)
    if chosen.size < 2:
        return chosen, np.ones(chosen.size), 1.0
    count, size = np.bincount(index), index.size
    ranks = np.argsort(np.argsort(errors[kept])) + 1.0
    squares = np.sum(np.bincount(index, ranks) ** 2 / count)
    statistic = 12 / (size * (size + 1)) * squares - 3 * (size + 1)
    p_value = float(chdtrc(chosen.size - 1, statistic))
    return chosen, np.bincount(index, errors[kept]) / count, p_value
