"""Sentences that say when a run should not be trusted as it stands, and what to do.

Each check reads what a finished run holds anyway and costs next to nothing; the dearest compiles
one small program, for the predictions of 256 cells. `jaxmf.sample` and the other verbs warn with
the first sentence; `Posterior.alarms` has all, and the summary, the report and the command line
show them. The checks are in ``data_alarms.py``, ``structure_alarms.py`` and ``run_alarms.py``.
"""

from __future__ import annotations

from typing import TypeVar

from jaxmf.data.elsewhere import are_elsewhere
from jaxmf.engine.processes import is_first
from jaxmf.posterior import data_alarms, run_alarms, structure_alarms
from jaxmf.posterior.convergence import Convergence
from jaxmf.posterior.draws import NO_DRAWS
from jaxmf.posterior.records import Alarm
from jaxmf.user_warnings import warn as warn_user

Warned = TypeVar("Warned", bound=Convergence)

_CHECKS = (
    data_alarms.suspect_data,
    structure_alarms.nothing_in_use,
    structure_alarms.one_of_stated_groups,
    structure_alarms.known_to_model,
    data_alarms.noise_above_data,
    data_alarms.unlike_units,
    run_alarms.disagreement,
    structure_alarms.level_as_feature,
    run_alarms.idle_replicas,
    run_alarms.drift,
    run_alarms.unfinished_ascent,
    run_alarms.unknown_evidence,
    run_alarms.agreeing_particles,
    run_alarms.poor_prediction,
    data_alarms.outside_support,
)
# those that look at the cells of the data
_OF_CELLS = (
    data_alarms.suspect_data,
    data_alarms.noise_above_data,
    data_alarms.unlike_units,
    structure_alarms.level_as_feature,
)


class RunWarning(UserWarning):
    """A run that should not be trusted as it stands; the message says why and what to do."""


def alarms(posterior: Convergence) -> tuple[Alarm, ...]:
    """See `Posterior.alarms`."""
    if posterior.num_draws == 0:
        return (Alarm("no draws", NO_DRAWS),)
    has_cells = not are_elsewhere(posterior.data)
    checks = [check for check in _CHECKS if has_cells or check not in _OF_CELLS]
    return tuple(alarm for check in checks for alarm in check(posterior))


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
