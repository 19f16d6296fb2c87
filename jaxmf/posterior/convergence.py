"""Questions from whose answers alarms are raised: quantities along chains, and predicted cells."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from jaxmf import diagnostics
from jaxmf.arguments import check_count
from jaxmf.posterior import agreement, leave_one_out, particle_paths
from jaxmf.posterior.agreement import LARGEST_RHAT, CellAgreement
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.leave_one_out import LeftOutLosses
from jaxmf.posterior.particle_paths import PathDegeneracy
from jaxmf.posterior.quantities import NUM_PAIRS, quantities_of

_FEWEST_DRAWS = 4  # R-hat is not defined for fewer


class Convergence(Draws):
    """The part of `Posterior` that says whether a run has settled."""

    def quantities(self, *, num_pairs: int = NUM_PAIRS) -> dict[str, np.ndarray]:
        """Label-free scalars of every draw: name -> (chains, draws).

        The scalars of the draws but for the model's fixed numbers, and for latent features
        `num_pairs` entries of ZZ', the number of features that two rows share.
        """
        return quantities_of(self, check_count("num_pairs", num_pairs, 0))

    @cached_property
    def slow_quantities(self) -> dict[str, float]:
        """The R-hat of the `quantities` that chains do not agree on, by name.

        Infinite where each chain stays at a value that is not that of all; empty of other runs than
        a sampler's and of fewer than four draws a chain.
        """
        if self.meta.method != "sample" or self.num_draws < _FEWEST_DRAWS:
            return {}
        quantities = self.quantities()
        table = diagnostics.summarise_chains(quantities)
        rhats = {name: table[name, "R-hat"] for name in table.names}
        for name, x in quantities.items():
            if np.ptp(x) > 0 and np.all(np.ptp(x, axis=1) == 0):
                rhats[name] = np.inf  # every chain stays where it is
        return {name: value for name, value in rhats.items() if value > LARGEST_RHAT}

    def cell_agreement(self) -> CellAgreement | None:
        """How far chains agree on 256 cells, most of them not observed.

        Real factors (`BPMF` without groups) are judged by this: where 95 % of the means of these
        cells have an R-hat below 1.05 and predictive sds of chains differ by less than 5 %, an
        R-hat above 1.05 of the log joint or the noise is said by the summary and is no alarm. Kept
        once computed.

        Returns:
            None for other models, where draws lack the vectors of rows and columns, and for one
            chain or fewer than 100 draws a chain.
        """
        return self._cell_agreement

    @cached_property
    def _cell_agreement(self) -> CellAgreement | None:
        return agreement.agreement_on_cells(self)

    def leave_one_out(self) -> LeftOutLosses | None:
        """Up to 256 observed cells, each predicted from all others, beside simple means.

        The draws are weighted to those given the other cells (Pareto-smoothed importance sampling);
        nothing is hidden from the run. Cells whose weights are unreliable are left out. The means
        are those of rows and columns, of 0 and 1 the frequencies of columns. Words of topic models
        are beside their frequencies in all documents. Kept once computed.

        Returns:
            Losses of both with `.excess`, the mean difference, and its `.standard_error`; None for
            models without cells or words, or with other groups of them than topics and groups of
            users and items, for fewer than 100 draws or 40 cells, and where the weights of more
            than half of the cells are unreliable.
        """
        return self._leave_one_out

    @cached_property
    def _leave_one_out(self) -> LeftOutLosses | None:
        return leave_one_out.compare(self)

    def path_degeneracy(self) -> PathDegeneracy | None:
        """How much the particles of a filter differ in features of rows, and should differ.

        By up to 32 rows of the heaviest run, see `Posterior.alarms`. Kept once computed.

        Returns:
            The probability that the features of a row are others than the commonest, by the weights
            of the particles and by changing one feature at a time; None for other runs and models.
        """
        return self._path_degeneracy

    @cached_property
    def _path_degeneracy(self) -> PathDegeneracy | None:
        return particle_paths.path_degeneracy(self)
