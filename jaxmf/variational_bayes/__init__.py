"""Variational updates as functions of arrays, which know no model.

Open `parameters.py` and `free_energy.py` first; `sums.py` is where the time goes, `updates.py` the
closed forms, `newton.py` the partial-Newton step for optax; `paths.py` and `series.py` are factors
that change with time. What the models share of an ascent: `start.py`, `state.py`, `epoch_zeros.py`,
`progress.py`, `batch_pass.py`, `answers.py`.

Rows and columns are updated by the same code. A *line* is a row or a column of the matrix,
whichever side is updated, and the *others* are the lines of the other side; N counts lines and D
others, L the factors of a line, its bias among them.
"""

from jaxmf.variational_bayes.free_energy import free_energy as free_energy
from jaxmf.variational_bayes.newton import partial_newton as partial_newton
from jaxmf.variational_bayes.parameters import Normal as Normal
from jaxmf.variational_bayes.parameters import Parameters as Parameters
from jaxmf.variational_bayes.parameters import Priors as Priors
from jaxmf.variational_bayes.pieces import Layout as Layout
from jaxmf.variational_bayes.pieces import lay_out as lay_out
from jaxmf.variational_bayes.series import SeriesParameters as SeriesParameters
from jaxmf.variational_bayes.series import series_free_energy as series_free_energy
from jaxmf.variational_bayes.zeros import Exact as Exact
from jaxmf.variational_bayes.zeros import RowSample as RowSample
from jaxmf.variational_bayes.zeros import SharedSample as SharedSample
