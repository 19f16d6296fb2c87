"""The posterior: draws, and what can be done with them.

The answers come from `jaxmf.posterior`: ``draws.py`` (fields, weights, single draws) and
``answers.py``, which says of each question what module answers it.
"""

from __future__ import annotations

import dataclasses
import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jaxmf.arguments import check_flag, checks_methods
from jaxmf.posterior import extension, saving
from jaxmf.posterior.answers import Answers
from jaxmf.posterior.arviz_export import to_arviz

if TYPE_CHECKING:
    import typing_extensions
    import xarray as xr

    from jaxmf.model import Model
    from jaxmf.plot import Plots

    Container = TypeVar("Container")
    # the model that was fitted, for type checkers: any, for those who say `Posterior` alone
    Fitted = typing_extensions.TypeVar("Fitted", bound=Model, covariant=True, default=Any)
else:
    Fitted = TypeVar("Fitted", covariant=True)


@checks_methods("post")
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior(Answers, Generic[Fitted]):
    """Draws of a posterior, with the model and the data they belong to.

    Made by `jaxmf.fit`, `sample`, `particle_filter` and `load`. Labels of features mean nothing
    across draws, so `summary`, `predict`, `cooccurrence` and `num_features` average over all draws,
    while `features` and `transform` speak of one draw: the reference draw, the one with the highest
    log joint.

    Args:
        model: the description.
        data: the container.
        draws: name -> (chains, draws, ...) array; a filter's are (runs, particles, ...).
        meta: the facts of the run.
        run: the finished run with its last state, from which it can continue.
        averages: name -> (chains, ...) running means, where asked for.
        particle_log_weights: (runs, particles) of a filter, comparable across runs.
        evidence: of a filter.
        trace: name -> (chains, steps) scalars of every step of a filter, for pictures.
        predicted_at: "rows" and "columns" of the cells named by predict_at, (M,) int each, if any.
    """

    model: Fitted
    if TYPE_CHECKING:

        @property  # type: ignore[misc]
        def data(self: Posterior[Model[Container]]) -> Container:
            """The container that the model names as its own."""

    def extend(
        self, new_rows: object = None, *, num_samples: int | None = None, **run: object
    ) -> Posterior[Fitted]:
        """Continue where the run stopped.

        A filter takes more rows, with the same result as one run over all of them (after annealing
        they are taken at the full feature scale). An offset and priors of scales that the model
        took from the first rows are kept: set them yourself for the same result. A sampler makes
        `num_samples` more draws of each chain.

        Args:
            new_rows: data with the same columns, for a filter; they are matched by id where both
                sides have ids. Ids 0, 1, 2, ... of rows, as a table has them by default, continue
                those of the data.
            num_samples: more draws a chain, for a sampler.
            **run: settings of the run loop, such as progress.
        Returns:
            A new posterior; this one is unchanged.
        Raises:
            ValueError: the method cannot continue in that way, or the last state was not kept.
        """
        return extension.extend(self, new_rows, num_samples=num_samples, settings=run)

    def save(self, folder: str | Path, *, data: bool = True) -> Path:
        """Write the posterior to a folder: arrays as npz, the rest as JSON, no pickle.

        Args:
            folder: made if it does not exist; a posterior in it is replaced.
            data: whether the data is written too. Without it `load` has to be given the data.
        Returns:
            The folder.
        Raises:
            TypeError: the model, an option or an id cannot be written as JSON, such as a function
                that you defined or an id that is neither text nor number. Nothing is written then;
                a run with a checkpoint is refused before it starts.
        """
        return saving.save(self, folder, include_data=check_flag("data", data))

    def to_arviz(self, *, log_likelihood: bool = False) -> xr.DataTree:
        """The draws as an `xarray.DataTree` for ArviZ (extra `arviz`).

        Group ``posterior`` holds the arrays of the draws, ``sample_stats`` the log joint as ``lp``,
        ``observed_data`` the matrix, ``constant_data`` hyperparameters that are numbers and units
        of columns. A filter's particles are resampled to equal weights.

        Args:
            log_likelihood: whether there is a group ``log_likelihood``, from which ArviZ computes
                leave-one-out: ``x`` (chain, draw, cell), with ``cell_row`` and ``cell_column``. See
                `log_likelihood` for what it is conditional on.
        Raises:
            ModuleNotFoundError: arviz-base is not installed.
            ValueError: a log likelihood that the posterior does not have.
        """
        return to_arviz(self, log_likelihood=check_flag("log_likelihood", log_likelihood))

    @property
    def plot(self) -> Plots:
        """Pictures: `features(image_shape=)`, `trace()`, `cooccurrence()`, `reconstruction()`."""
        from jaxmf.plot import Plots

        return Plots(self)

    def report(
        self,
        path: str | Path,
        *,
        image_shape: tuple[int, int] | None = None,
        truth: object = None,
        title: str | None = None,
        titles: object = None,
    ) -> Path:
        """Write one self-contained HTML page: summary, pictures, facts of the run.

        Args:
            path: the HTML file.
            image_shape: (height, width) if rows are images.
            truth: (N, D) the complete matrix, if the values of missing cells are known.
            title: heading of the page.
            titles: of columns, or of words, instead of their ids: a mapping from ids to
                titles (a Series is read by its index), or one for each in the order of the data.
        Returns:
            The path.
        """
        from jaxmf.report import report

        return report(self, path, image_shape=image_shape, truth=truth, title=title, titles=titles)

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.summary()!r}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._headline())}</p>{self.summary()._repr_html_()}"

    def _headline(self) -> str:
        size = self.data.size()
        stopped = "" if self.meta.complete else ", interrupted"
        return (
            f"Posterior of {type(self.model).__name__} on {size} data, by {self.meta.method} "
            f"in {self.meta.wall_seconds:.1f} s with compilation{stopped}"
        )
