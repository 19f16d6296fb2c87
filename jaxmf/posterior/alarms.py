"""Sentences that say when a run should not be trusted as it stands, and what to do.

Each check reads what a finished run holds anyway and costs next to nothing; the dearest compiles
one small program, for the predictions of 256 cells. A posterior makes them once: `jaxmf.sample`
and the other verbs warn with the first sentence, and the summary, the report and the command line
show all. The checks are in ``data_alarms.py``, ``structure_alarms.py`` and ``run_alarms.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from jaxmf.data.cells_by_id import are_elsewhere
from jaxmf.engine.processes import is_first
from jaxmf.posterior import (
    count_alarms,
    data_alarms,
    residual_structure,
    run_alarms,
    structure_alarms,
)
from jaxmf.posterior.draws import NO_DRAWS, Draws, once
from jaxmf.posterior.records import Alarm
from jaxmf.user_warnings import warn as warn_user

_CHECKS = (
    run_alarms.interrupted,
    data_alarms.suspect_data,
    structure_alarms.priors_far_from_values,
    structure_alarms.nothing_in_use,
    structure_alarms.one_of_stated_groups,
    structure_alarms.groups_of_one_value,
    count_alarms.topics_of_single_documents,
    count_alarms.groups_of_totals,
    structure_alarms.known_to_model,
    structure_alarms.search_out_of_slots,
    data_alarms.noise_above_data,
    data_alarms.unlike_units,
    run_alarms.no_gain,
    run_alarms.disagreement,
    structure_alarms.level_as_feature,
    residual_structure.left_in_residuals,
    run_alarms.idle_replicas,
    run_alarms.drift,
    run_alarms.unfinished_ascent,
    run_alarms.unknown_evidence,
    run_alarms.agreeing_particles,
    run_alarms.poor_prediction,
    run_alarms.poorly_predicted_rows,
    data_alarms.outside_support,
    run_alarms.unequal_errors,
    count_alarms.counts_that_vary_more,
)
# those that look at the cells of the data
_OF_CELLS = (
    data_alarms.suspect_data,
    data_alarms.noise_above_data,
    data_alarms.unlike_units,
    structure_alarms.level_as_feature,
    residual_structure.left_in_residuals,
    structure_alarms.groups_of_one_value,
    count_alarms.groups_of_totals,
    structure_alarms.priors_far_from_values,
    run_alarms.unequal_errors,
    count_alarms.counts_that_vary_more,
)

NOT_CHECKED = "not checked"  # the kind of the alarm that a check itself failed


class RunWarning(UserWarning):
    """A run that should not be trusted as it stands; the message says why and what to do."""


@once
def alarms(posterior: Draws) -> tuple[Alarm, ...]:
    """Why this run should not be trusted as it stands, and what to do.

    A run that was interrupted, chains that disagree or drift (R-hat above 1.05; of factors see
    `cell_agreement`, of topics `topic_agreement`), no feature or one group in use, structure that
    the features leave in the residuals, noise above the sd of the data, a free energy that still
    changes, an evidence without a credible error, observed cells that simple means of the other
    cells predict better, or words that their frequencies do, or do as well (see `leave_one_out`), a
    filter whose particles have one path or that predicts rows of zeros and ones worse than the
    frequencies of columns, intervals that leave the scale of the data, columns of unequal error
    that share their noise, counts that vary about their topics more than words do, topics that few
    documents share, groups that are bands of the rows' totals, a search for a start that ran out of
    slots, hyperparameters of a network far from their prior. A check that
    itself fails loses no draws: it becomes an alarm "not checked", the last one, and a
    RuntimeWarning. Kept once computed.

    Returns:
        An `Alarm` (kind, sentence) for each; empty if nothing was seen.
    """
    if posterior.num_draws == 0:
        return (Alarm("no draws", NO_DRAWS),)
    has_cells = not are_elsewhere(posterior.data)
    checks = [check for check in _CHECKS if has_cells or check not in _OF_CELLS]
    found = [alarm for check in checks for alarm in _made(check, posterior)]
    return tuple(sorted(found, key=lambda alarm: alarm.kind == NOT_CHECKED))


def _made(check: Callable[[Draws], Iterable[Alarm]], posterior: Draws) -> tuple[Alarm, ...]:
    """The alarms of a check; where it raises, one that says so."""
    try:
        return tuple(check(posterior))
    except Exception as error:
        what = check.__name__.replace("_", " ")
        sentence = (
            f"One check of this run ({what}) failed, and what it looks for is not known: "
            f"{type(error).__name__}: {error}. The draws are kept"
        )
        warn_user(sentence, RuntimeWarning)
        return (Alarm(NOT_CHECKED, sentence),)


Warned = TypeVar("Warned", bound=Draws)


def warn(posterior: Warned, mesh: object = None) -> Warned:
    """The posterior, after a `RunWarning` with its first alarm if it has any.

    Args: mesh: of the run; of several processes the first warns.
    """
    found = alarms(posterior) if is_first(mesh) else ()
    if found:
        more = len(found) - 1
        ending = f" ({more} more: see post.alarms())" if more else ""
        warn_user(f"{found[0].sentence}{ending}", RunWarning)
    return posterior
