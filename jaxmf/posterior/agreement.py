"""Whether chains agree on what is asked of them: cells, where numbers inside the model mix slowly.

The scale of factors that data say little about is left to their priors, and chains wander along it:
the log joint, and noise with them, may have an R-hat far above one while every prediction has
settled. So the predictions are looked at themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxmf import diagnostics
from jaxmf.posterior import kept_cells, prediction
from jaxmf.posterior.draws import Draws, once
from jaxmf.posterior.leave_one_out import known_cells

LARGEST_RHAT = 1.05
_NUM_CELLS = 256
FEWEST_DRAWS = 100  # a chain: of fewer, the R-hat of hundreds of cells passes 1.05 by chance
_MOST_DRAWS = 500
_SHARE_ABOVE = 0.05  # of the cells
_DIFFERENT_SPREAD = 0.05  # relative, of the predictive sd of two chains


class CellAgreement(NamedTuple):
    """How far chains agree on cells.

    Args:
        num_cells: that were looked at.
        rhat: the R-hat that 95 % of the means of the cells are below.
        spread: by what share the largest predictive sd of a chain exceeds the smallest, cells taken
            together.
    """

    num_cells: int
    rhat: float
    spread: float

    @property
    def subject(self) -> str:
        """What chains are asked to agree on."""
        return "predictions"

    @property
    def is_good(self) -> bool:
        """Whether predictions may be read: 95 % of the means, and the sd of all cells together."""
        return self.rhat < LARGEST_RHAT and self.spread < _DIFFERENT_SPREAD

    def described(self, slow: list[str]) -> str:
        """A sentence on which quantities have converged and which have not."""
        return (
            f"chains agree on {self.subject} (95 % of the means of {self.num_cells} cells have an "
            f"R-hat of at most {self.rhat:.3f}, predictive sds differ by {self.spread:.1%}), not "
            f"yet on {', '.join(slow)}"
        )


@once
def cell_agreement(posterior: Draws) -> CellAgreement | None:
    """How far chains agree on 256 cells, most of them not observed.

    Real factors (`BPMF` without groups) are judged by this: where 95 % of the means of these cells
    have an R-hat below 1.05 and predictive sds of chains differ by less than 5 %, an R-hat above
    1.05 of the log joint or the noise is reported by the summary and is no alarm. Kept once
    computed.

    Returns:
        None for other models, where draws lack the vectors of rows and columns, and for one
        chain or fewer than 100 draws a chain.
    """
    model, chains, draws = posterior.model, posterior.num_chains, posterior.num_draws
    if not model.judged_by_cells or chains < 2 or draws < FEWEST_DRAWS:
        return None
    known = known_cells(posterior.data)
    if (
        known is None
        or posterior.meta.method != "sample"
        or kept_cells.lacks(model, posterior.draws)
    ):
        return None
    rng = np.random.default_rng(0)
    rows, columns = (rng.permutation(side)[:_NUM_CELLS] for side in known[:2])
    chosen = np.linspace(0, draws - 1, min(draws, _MOST_DRAWS)).astype(int)
    flat = {name: values[:, chosen].reshape(-1, *values.shape[2:])
            for name, values in posterior.draws.items()}  # fmt: skip
    blocks = list(prediction.predict_cells(model, posterior.data, flat, rows, columns))
    mean, variance = (
        np.concatenate([block[part] for block in blocks]).reshape(chains, chosen.size, -1)
        for part in (1, 2)
    )
    table = diagnostics.summarise_chains({str(m): mean[..., m] for m in range(rows.size)})
    rhats = table.table()["R-hat"]
    sd = np.sqrt(np.mean(variance.mean(axis=1) + mean.var(axis=1), axis=1))
    rhat = float(np.quantile(np.nan_to_num(rhats, nan=1.0, posinf=np.inf), 1 - _SHARE_ABOVE))
    return CellAgreement(rows.size, rhat, float(sd.max() / sd.min() - 1))
