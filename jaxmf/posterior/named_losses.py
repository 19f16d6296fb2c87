"""`Posterior.leave_one_out`: the losses of left-out cells with the ids of the data."""

from __future__ import annotations

from jaxmf.model import HasGroups, HasNetwork
from jaxmf.posterior import leave_one_out
from jaxmf.posterior.draws import Draws, once
from jaxmf.posterior.left_out_losses import LeftOutLosses
from jaxmf.posterior.pointwise import names_of_units


@once
def left_out_losses(posterior: Draws) -> LeftOutLosses:
    """Predictions of up to 256 observed cells, each from all others, compared with simple means.

    The draws are weighted as if the cell had not been observed (Pareto-smoothed importance
    sampling); no run is repeated. Cells whose weights are unreliable are left out. The means are
    those of rows and columns, of 0 and 1 the frequencies of columns. Words of topic models are
    compared with their frequencies in all documents; up to 1,024 are used if the difference is not
    clear from 256. Kept once computed.

    Returns:
        Losses of both, with the ids of the data; `.excess` is the mean difference, beside its
        `.standard_error`.
    Raises:
        ValueError: the posterior is not of `sample`; it has fewer than 100 draws or 40 cells, or
            draws that lack features or are too large; the model has neither cells nor words, or
            groups other than topics and groups of users and items; weights are unreliable for more
            than half of the cells.
    """
    losses = leave_one_out.losses_or_reason(posterior)
    if isinstance(losses, str):
        raise ValueError(f"leave_one_out: {losses}")
    model = posterior.model
    has_tokens = isinstance(model, HasGroups) and isinstance(model, HasNetwork)
    kind = "token" if has_tokens else "cell"
    sides = zip(names_of_units(posterior, kind), losses[-2:], strict=True)
    ids = [at if names is None else names[at] for names, at in sides]
    return LeftOutLosses(*losses[:-2], *ids)
