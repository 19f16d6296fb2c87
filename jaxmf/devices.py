"""What the device decides: which sweep a model makes where none is named, and how large blocks are.

On a CPU a sweep that goes through rows or tokens one after another costs the least a step and mixes
best. On an accelerator each step of such a loop is a handful of kernels that the host starts, and a
sweep over all rows or tokens at once is hundreds of times as fast. Both leave the same posterior
invariant, so the choice is one of time alone.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import jax

AUTO = "auto"

# A kernel that is started, and what a round of a loop takes beside it whose end the host has to ask
# for. Their ratio is an estimate, taken from what is known of CUDA; their size is that of the 79
# microseconds that a row of "linear_gaussian" took on an H100 (1,280 rows, four chains).
_LAUNCH_SECONDS = 0.53e-6
_ROUND_SECONDS = 1.5e-6
# Measured on a CPU, and an estimate for other devices: effective samples a second of a parallel
# sweep for one of a sequential sweep, the least of all: topics with everything drawn, as they are
# on accelerators. By tiles, on a CPU, it is much more (`blocks/effective` in benchmarks/results).
_MIXING = 0.11


class SweepCosts(NamedTuple):
    """Costs of a kind of sweep on a GPU; `SWEEP_COSTS` says which numbers are counts."""

    sequential: str  # the name of the sweep through items (rows or tokens) one after another
    # launches, rounds: of this sweep, an item
    launches: float
    rounds: float
    parallel: str  # the name of the sweep over all at once
    # parallel_launches, parallel_rounds: of that, whatever the number of items
    parallel_launches: float
    parallel_rounds: float

    def fewest_items(self) -> int:
        """From how many items on the parallel sweep is worth more a second on a GPU."""
        parallel = _LAUNCH_SECONDS * self.parallel_launches + _ROUND_SECONDS * self.parallel_rounds
        item = _LAUNCH_SECONDS * self.launches + _ROUND_SECONDS * self.rounds
        return max(1, round(parallel / (_MIXING * item)))


# Launches and rounds of programs that were compiled ahead of time for an H100, four chains; times
# follow from them by the estimates above.
SWEEP_COSTS = {
    # Counted, 10,000 x 100 cells: 16 slots one row after another, 64 slots all rows at once.
    "linear_gaussian": SweepCosts("collapsed", 111, 13, "parallel", 750, 80),
    # Counted, 10,000 x 100 cells, 16 slots, six moves.
    "noisy_or": SweepCosts("sequential", 129, 15, "parallel", 1_700, 70),
    # An estimate: the counts of "linear_gaussian". This model was not compiled.
    "bilinear": SweepCosts("collapsed", 111, 13, "explicit", 750, 80),
    # Counted, 10^6 tokens of 10,000 documents, 1,000 topics: in parallel 440 launches and 36 rounds
    # with 20 and 2 for each of 16 blocks of tokens (`blocks/at_once.py`); here for data of one
    # block, and some rounds more for draws that are rejected.
    "tokens": SweepCosts("sequential", 19, 1, "parallel", 140, 10),
    # Counted, HDP-LDA, 10^6 tokens, 256 slots. In parallel 256 tokens are drawn one after another
    # first, which are 7,200 of the launches: one after another costs 28 a token.
    "growing_tokens": SweepCosts("sequential", 28, 3, "parallel", 8_000, 800),
}


def choose_sweep(
    kind: str, platform: str, num_items: int | None = None, *, can_be_parallel: bool = True
) -> str:
    """The sweep of a model where the user names none.

    Args:
      kind: of `SWEEP_COSTS`.
      platform: of the device that holds the data: "cpu", "gpu", "tpu", ...
      num_items: rows or tokens of the data; None for many.
      can_be_parallel: whether this model and its options have the parallel sweep.
    Returns:
      The name of the sequential one on a CPU, whatever the size; elsewhere of the parallel one,
      unless there are so few items that their loop is short.
    Example:
      >>> [choose_sweep("tokens", platform, 10**6) for platform in ("cpu", "gpu")]
      ['sequential', 'parallel']
    """
    costs = SWEEP_COSTS[kind]
    if platform == "cpu" or not can_be_parallel:
        return costs.sequential
    is_short = num_items is not None and num_items < costs.fewest_items()
    return costs.sequential if is_short else costs.parallel


class BlockSize(NamedTuple):
    """How much of a loop over blocks is worked on at once: on a CPU, and elsewhere."""

    cpu: int
    accelerator: int


# On a CPU what a block needs stays in a cache of 1 to 4 MB. Elsewhere a block is a few kernels that
# the host starts, and each is to be worth its start. The sizes for accelerators are estimates: by
# the bytes that a block needs, some 100 MB a chain. LDA and BPMF ran with them on an H100; other
# sizes were not tried.
BLOCK_SIZES = {
    "factor cells": BlockSize(2**12, 2**20),  # cells whose products are summed, BPMF
    "cell means": BlockSize(2**14, 2**20),  # cells whose means are computed, BPMF
    "factor numbers": BlockSize(2**20, 2**26),  # entries of the matrices of a block of rows, BPMF
    "sparse pieces": BlockSize(2**6, 2**12),  # of 32 ones of a row or column, SparseBinaryMF
    "token cells": BlockSize(2**22, 2**25),  # tokens times groups, parallel sweep of a network
    "token sums": BlockSize(2**16, 2**21),  # tokens times sums over some groups, in the same sweep
    "table entries": BlockSize(2**19, 2**24),  # of long arrays that are counted or drawn
    "gaussian rows": BlockSize(2**12, 2**18),  # of Z and X in sums over rows
    "noisy-or rows": BlockSize(2**8, 2**14),  # whose numbers of new causes are drawn
}


def block_size(name: str) -> int:
    """The size of a block of `BLOCK_SIZES` on the device that programs are traced for."""
    sizes = BLOCK_SIZES[name]
    return sizes.cpu if default_platform() == "cpu" else sizes.accelerator


def default_platform() -> str:
    """The platform of the device that new arrays are put on: "cpu", "gpu", ...

    `jax.default_device` is asked first, then the default backend of the process.
    """
    device = jax.config.jax_default_device
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def device_of(data: object, mesh: object = None) -> jax.Device | None:
    """The device that a run on these data is bound to: None where it is the default one.

    Args:
      data: a pytree of arrays. Those that were put on a device by name, as by
        `jax.device_put(x, device)`, bind a run to it; those of numpy, and new ones of JAX, go where
        the run is.
      mesh: `jax.sharding.Mesh` or None; the first of its devices that this process has.
    """
    if isinstance(mesh, jax.sharding.Mesh):
        local = [one for one in mesh.devices.flat if one.process_index == jax.process_index()]
        return local[0] if local else mesh.devices.flat[0]
    for leaf in jax.tree.leaves(data):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.committed:
            return min(leaf.devices(), key=lambda device: device.id)
    return None


def platform_of(data: object, mesh: object = None) -> str:
    """The platform of the devices of a mesh, of those that hold the data, or the default one.

    Args: data, mesh: as for `device_of`.
    """
    device = device_of(data, mesh)
    return default_platform() if device is None else device.platform


def default_device_of(
    data: object, mesh: object = None
) -> contextlib.AbstractContextManager[object]:
    """Makes the device that holds the data the default one, for programs that are traced within.

    What is decided while tracing (block sizes, fused loops, the order of sweeps) goes by the
    default device, which on a machine with a GPU is not that of data that were put on the CPU.

    Args: data, mesh: as for `device_of`.
    """
    device = device_of(data, mesh)
    return contextlib.nullcontext() if device is None else jax.default_device(device)
