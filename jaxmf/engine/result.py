"""What a run returns, how long it is to be, and how it fails."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxmf.engine.bound import Failure
from jaxmf.types import PyTree


class NonFiniteError(RuntimeError):
    """A quantity of the state, or the log joint, became infinite or not a number.

    Attributes:
        quantity: its name.
        chain: in which chain.
        step: at which step, counted from 0, warm-up included.
    """

    def __init__(self, failure: Failure, checkpoint: str | os.PathLike[str] | None):
        self.quantity, self.chain, self.step = failure
        kept = "" if checkpoint is None else f"; the last good checkpoint is kept in {checkpoint}"
        super().__init__(
            f"{self.quantity} is not finite after step {self.step} of chain {self.chain}{kept}. "
            "What helps: data and priors on one scale (standardise the data, or leave scales to be "
            "learned), priors that keep scales away from 0, 64-bit floats "
            '(jax.config.update("jax_enable_x64", True)); jax_debug_nans finds the operation'
        )


@dataclass(frozen=True)
class Run:
    """Result of a run.

    Attributes:
        draws: name -> (chains, draws, ...), zero-padded where capacity grew.
        averages: name -> (chains, ...), means over the kept draws.
        state: the last state, (chains, ...) at common capacity; None if only draws were loaded.
        num_steps: steps done, warm-up included.
        num_warmup: how many of them are warm-up.
        complete: False if it was interrupted.
        seconds: wall time, of all parts of a resumed run.
        capacity: axis -> size at the end.
        num_draws: kept draws a chain.
        thin: steps a kept draw.
    """

    draws: dict[str, np.ndarray]
    averages: dict[str, np.ndarray]
    state: PyTree
    num_steps: int
    num_warmup: int
    complete: bool
    seconds: float
    capacity: dict[str, int]
    num_draws: int
    thin: int = 1


@dataclass(frozen=True)
class Schedule:
    """How many steps and draws there are to be in all."""

    num_warmup: int
    num_samples: int
    thin: int
    # where draws are written instead of kept in memory
    folder: Path | None = None

    @property
    def num_steps(self) -> int:
        """Steps in all."""
        return self.num_warmup + self.num_samples * self.thin

    def num_draws(self, step: int) -> int:
        """Draws kept once `step` steps are done."""
        return max(0, step - self.num_warmup) // self.thin
