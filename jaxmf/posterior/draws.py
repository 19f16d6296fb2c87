"""The draws of a run with their weights, the model and the data: what questions are asked of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from jaxmf import diagnostics, registry
from jaxmf.arguments import checks_methods
from jaxmf.data.checks import is_traced
from jaxmf.data.far_cells import CellRanges, cell_ranges, warn_of_far_cells
from jaxmf.model import LimitsDocuments
from jaxmf.posterior.records import Evidence, Meta
from jaxmf.user_warnings import warn

if TYPE_CHECKING:
    from jaxmf.engine import Run

SPREAD_DRAWS = 100
"""Draws that topics and features are matched in, at most; evenly spread over all chains."""

_P = TypeVar("_P")
_T = TypeVar("_T")


def once(question: Callable[[_P], _T]) -> Callable[[_P], _T]:
    """A question about a posterior alone, whose answer that keeps."""
    name = f"{question.__module__}.{question.__name__}"

    @functools.wraps(question)
    def answer(posterior: _P) -> _T:
        kept: dict[str, _T] = vars(posterior).setdefault("_kept", {})
        if name not in kept:
            kept[name] = question(posterior)
        return kept[name]

    return answer


NO_DRAWS = (
    "No draw was kept: the run ended in its warm-up. Resume it from its checkpoint, or run it "
    "again with a shorter num_warmup"
)


@checks_methods("post")
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Draws:
    """Draws of a posterior, with the model and the data they belong to: see `Posterior`."""

    model: Any
    data: Any
    draws: dict[str, np.ndarray]
    meta: Meta
    run: Run | None = None
    averages: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    particle_log_weights: np.ndarray | None = None
    evidence: Evidence | None = None
    trace: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    predicted_at: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    # --- shape and weights -----------------------------------------------------------------------

    @property
    def num_chains(self) -> int:
        """Chains of a sampler, or runs of a filter; 1 of a variational fit."""
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def num_draws(self) -> int:
        """Kept draws of each chain, or particles of each run; 1 of a variational fit."""
        return int(next(iter(self.draws.values())).shape[1])

    @property
    def is_weighted(self) -> bool:
        """Whether draws are particles with weights of their own, see `weights`."""
        return self.particle_log_weights is not None

    @property
    def is_variational(self) -> bool:
        """Whether the one draw holds the parameters of a fitted distribution."""
        return self.meta.method == "variational"

    @property
    def weights(self) -> np.ndarray:
        """(chains, draws) probabilities that sum to one; equal ones unless it is a filter's.

        Raises:
            ValueError: the run ended in its warm-up and kept no draw. So do all questions whose
                answer needs one.
        """
        self.require_draws()
        if self.particle_log_weights is None:
            return np.full(
                (self.num_chains, self.num_draws), 1 / (self.num_chains * self.num_draws)
            )
        return diagnostics.normalise(self.particle_log_weights)

    @property
    def log_weights(self) -> np.ndarray:
        """(runs, particles) log weights of a filter; those of several runs include the evidence."""
        if self.particle_log_weights is None:
            raise ValueError(
                f"draws of {self.meta.method} are equally weighted and have no log_weights; "
                "jaxmf.particle_filter gives weighted particles"
            )
        return self.particle_log_weights

    @property
    def log_evidence(self) -> float:
        """Estimate of log p(X), the log of an unbiased estimate of p(X).

        Where scales or an offset were left open, their priors are taken from the data (empirical
        Bayes): this is then no evidence of a model that was fixed before, and is compared with that
        of another model only where the settings are the same. Fix them to compare models.
        """
        return self._evidence().value

    @property
    def log_evidence_error(self) -> float:
        """Standard error of `log_evidence`; NaN, with an alarm, where it cannot be trusted.

        Raises:
            ValueError: the method estimates no evidence.
        """
        return self._evidence().standard_error

    def _evidence(self) -> Evidence:
        if self.evidence is None:
            raise ValueError(
                f"a posterior from {self.meta.method} has no log evidence; "
                "jaxmf.particle_filter(model, data) or jaxmf.smc(model, data) estimates it"
            )
        return self.evidence

    # --- single draws ----------------------------------------------------------------------------

    def flat_draws(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All draws on one axis, (S, ...), and their weights (S,); weightless ones left out."""
        weights = self.weights.ravel()
        flat = {name: x.reshape(weights.size, *x.shape[2:]) for name, x in self.draws.items()}
        kept = np.flatnonzero(weights)
        if kept.size == weights.size:
            return flat, weights
        return {name: x[kept] for name, x in flat.items()}, weights[kept]

    def spread_draws(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(S,) chains, draws and weights of at most `SPREAD_DRAWS` draws, evenly spread.

        Of more weighted ones a systematic sample, in which a draw counts as often as it is taken.
        """
        if self.is_weighted:
            chosen, weights = diagnostics.fewer_draws(self.weights.ravel(), SPREAD_DRAWS)
        else:
            chosen = diagnostics.evenly_spread(self.weights.size, SPREAD_DRAWS)
            weights = np.full(chosen.size, 1 / chosen.size)
        chains, draws = np.unravel_index(chosen, self.weights.shape)
        return chains, draws, weights

    def reference(self) -> tuple[int, int]:
        """(chain, draw) of the reference draw: the one with the highest log joint.

        Of a filter that keeps no log joint, the heaviest particle.
        """
        self.require_draws()
        score = self.draws.get("log_joint")
        if score is None:
            score = self.weights
        chain, draw = np.unravel_index(int(np.argmax(score)), score.shape)
        return int(chain), int(draw)

    def draw_at(self, chain: int, draw: int) -> dict[str, np.ndarray]:
        """The arrays of one draw."""
        return {name: values[chain, draw] for name, values in self.draws.items()}

    def reference_draw(self) -> dict[str, np.ndarray]:
        """The arrays of the reference draw, by name; see `reference`.

        Raises:
            ValueError: the run kept no draw.
        """
        return self.draw_at(*self.reference())

    def require_draws(self) -> None:
        """Refuse a posterior without draws.

        Raises:
            ValueError: the run ended in its warm-up and kept none.
        """
        if self.num_draws == 0:
            raise ValueError(NO_DRAWS)

    # --- data like those of the run --------------------------------------------------------------

    @cached_property
    def _cell_ranges(self) -> CellRanges | None:
        """Ranges of the cells of the data, kept so that new rows need no pass over these."""
        return cell_ranges(self.data)

    def container(
        self, new_rows: object, name: str, *, unknown: str = "error", can_drop: bool = True
    ) -> Any:
        """Rows like those of the data, as a container with its columns.

        Args:
            new_rows: a container, or what one is made of.
            name: what the errors call them.
            unknown: of columns, items or words that the data lacks: "error" or "drop".
            can_drop: whether errors may advise the latter.
        Returns:
            The rows; columns, items and words are matched by id where both sides have ids.
        Raises:
            ValueError: an unknown column; other sizes where one side has no ids.
            TypeError: they stand inside a transformation of JAX.
        """
        from jaxmf.data import Tokens, as_container

        if is_traced(*jax.tree.leaves(new_rows)):
            raise TypeError(
                f"{name} stands inside jax.jit, vmap or grad, where it has no numbers yet. A "
                "posterior compiles its own programs: ask it outside, of all rows at once"
            )
        container = registry.entry_of(self.model).container
        target: Any = as_container(new_rows, container, name, can_be_empty=True)
        if isinstance(target, Tokens) and target.num_tokens == 0:
            warn(f"{name}: have no word, so the answer is that of the prior")
        target = target.align_columns(self.data, argument=name, unknown=unknown, can_drop=can_drop)
        # of rows of which no cell is known there is nothing to check
        has_cells = getattr(target, "num_entries", getattr(target, "num_ones", 1)) > 0
        if has_cells and not isinstance(target, Tokens):
            self.model.check_data(target, name)
            if self._cell_ranges is not None:
                warn_of_far_cells(target, self._cell_ranges, argument=name)
        if isinstance(self.model, LimitsDocuments):
            self.model.check_documents(target, name)
        return target


SomeDraws = TypeVar("SomeDraws", bound=Draws)
"""Draws, or a class of them."""
