"""Where chains and data lie: on one device, or over the devices of a mesh."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmf.engine.chunk import Batch, Outcome, grow_chain, leaf_names, run_chunk, start_chain
from jaxmf.engine.executables import shapes_of
from jaxmf.engine.processes import Processes, owners
from jaxmf.engine.turns import num_pool_threads, threads_for
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import PyTree

CHAIN_AXIS = "chain"
# in place of a mesh that the caller has set for programs of their own
NO_MESH = Mesh(np.empty((), dtype=object), ())


class Placement:
    """Puts chains on the mesh's axis "chain", rows on "data", and everything else on every device.

    Other axes of the mesh (particles) are for the algorithm, which may constrain its arrays to
    them: its programs are traced with the mesh in place.

    Args:
        mesh: the devices; None for one.
        batched: whether one program advances all chains.
        row_arrays: see `Algorithm`; they are spread where the mesh has the axis "data".
    """

    def __init__(self, mesh: Mesh | None, *, batched: bool, row_arrays: tuple[str, ...] = ()):
        if mesh is not None:
            # sharding by propagation, whatever the axis types the mesh was made with
            mesh = Mesh(mesh.devices, mesh.axis_names)
        self.mesh = mesh
        self.processes = Processes(mesh)
        on_mesh = mesh is not None and CHAIN_AXIS in mesh.axis_names
        has_rows = mesh is not None and DATA_AXIS in mesh.axis_names
        self.batch = Batch(batched=batched, spmd_axis=CHAIN_AXIS if on_mesh else None)
        self._row_arrays = frozenset(row_arrays if has_rows else ())
        self._start: PyTree = None

    def context(self) -> contextlib.AbstractContextManager[object]:
        """The mesh in place while tracing and running; none without one, whatever the caller's."""
        return jax.set_mesh(NO_MESH if self.mesh is None else self.mesh)

    @property
    def num_shares(self) -> int:
        """How many devices rows are spread over; 1 without such an axis."""
        if self.mesh is None or DATA_AXIS not in self.mesh.axis_names:
            return 1
        return int(self.mesh.shape[DATA_AXIS])

    @property
    def chains(self) -> NamedSharding | None:
        """Sharding of arrays with a leading chain axis."""
        return self._sharding(self.batch.spmd_axis)

    def put_everywhere(self, tree: PyTree) -> PyTree:
        """Arrays on every device."""
        return jax.tree.map(lambda leaf: self._put(leaf, self._sharding()), tree)

    def put_data(self, data: PyTree) -> PyTree:
        """Data: rows on the devices that they are spread over, all else on every device.

        Raises ValueError: the devices cannot have equally many rows.
        """
        if self._row_arrays:
            self._check_rows(data)
        return jax.tree.map(self._put, data, self._shardings(data))

    def put_chains(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, each device holding its chains."""
        return jax.tree.map(lambda leaf: self._put(leaf, self.chains), tree)

    def put_group(
        self, state: PyTree, averages: dict[str, object]
    ) -> tuple[PyTree, dict[str, PyTree]]:
        """State and averages of a group, each device holding its chains and its rows of them.

        Copies, for a chunk gives the memory of its arguments to its results.
        """

        def copied(leaf: PyTree, sharding: NamedSharding | None) -> PyTree:
            return self._put(jnp.array(leaf) if isinstance(leaf, jax.Array) else leaf, sharding)

        states = jax.tree.map(copied, state, self._shardings_of_states(state))
        return states, jax.tree.map(lambda leaf: copied(leaf, self.chains), averages)

    def shapes_of_group(
        self, state: PyTree, averages: dict[str, PyTree]
    ) -> tuple[PyTree, dict[str, PyTree]]:
        """Shapes of state and averages of a group, with where they lie."""
        shardings = self._shardings_of_states(state)
        return jax.tree.map(shapes_of, state, shardings), shapes_of(averages, self.chains)

    def options(
        self, function: Callable[..., PyTree], args: tuple[PyTree, ...], static: dict[str, Any]
    ) -> dict[str, Any]:
        """Options of `jax.jit` for the programs of the engine, called with these arguments."""
        options: dict[str, Any] = {}
        if function is run_chunk:
            options["donate_argnums"] = (3, 4)
        if self.mesh is None:
            return options
        chains = self.chains
        if function is start_chain:
            if self._start is None:
                shapes = jax.eval_shape(partial(start_chain, batch=self.batch), *args)
                self._start = (self._shardings_of_states(shapes[0]), chains)
            options["out_shardings"] = self._start
        elif function is grow_chain:
            options["out_shardings"] = (self._shardings_of_states(args[3]), chains)
        elif function is run_chunk:
            everywhere: Any = self._sharding()
            options["out_shardings"] = Outcome(
                state=self._shardings_of_states(args[3]),
                averages=chains,  # type: ignore[arg-type]
                draws=self._shardings_of_states(dict(static["draw_shapes"]), None),
                num_draws=everywhere,
                step=everywhere,
                overflow=everywhere,
                bad=everywhere,
            )
        return options

    def check_threads(self, batches: frozenset[int], chains: tuple[int, ...]) -> None:
        """Refuses a program whose devices may wait for one another for ever, see `turns`.

        Args:
            batches: how many matrices its factorisations take at once, on all devices together.
            chains: the chains of the program, (C,).
        Raises:
            ValueError: a device takes several, and the pool has fewer threads than `threads_for`.
        """
        if self.mesh is None or self.mesh.devices.flat[0].platform != "cpu":
            return
        # those of this process, which has a pool of its own
        num_chains, size = math.prod(chains), self.mesh.local_mesh.size
        spread = 1 if self.batch.spmd_axis is None else int(self.mesh.shape[CHAIN_AXIS])
        on_device = (n // (spread if n % num_chains == 0 else 1) for n in batches)
        if max(on_device, default=1) > 1 and 1 < num_pool_threads() < threads_for(size):
            raise ValueError(
                f"mesh: here every device factorises several matrices at once, and {size} devices "
                f"of a CPU may wait for ever for a free one of XLA's {num_pool_threads()} "
                f"threads (jaxlib 0.10). Start Python with PJRT_NPROC={threads_for(size)} in its "
                "environment, use fewer devices, or leave out the mesh"
            )

    def _shardings_of_states(self, tree: PyTree, *leading: str | None) -> PyTree:
        """Where the arrays of all chains lie, with the axis of chains, behind these axes."""
        return self._shardings(tree, *leading, self.batch.spmd_axis, num_axes=self.batch.num_axes)

    def _shardings(self, tree: PyTree, *leading: str | None, num_axes: int = 0) -> PyTree:
        """Where the arrays of a tree lie: these axes first, then that of their rows.

        The rows of an array are its axis `num_axes`. Where devices cannot have equally many, all of
        them have all.
        """
        leaves, structure = jax.tree.flatten(tree)
        found = [
            self._sharding(*leading, DATA_AXIS)
            if name in self._row_arrays and leaf.shape[num_axes] % self.num_shares == 0
            else self._sharding(*leading)
            for name, leaf in zip(leaf_names(tree) if leaves else (), leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, found)

    def _put(self, leaf: PyTree, sharding: NamedSharding | None) -> PyTree:
        if sharding is None:
            return jnp.asarray(leaf)
        # what lies on the host goes straight to its devices: no one of them need have room for all
        array = leaf if isinstance(leaf, np.ndarray) else jnp.asarray(leaf)
        return self.processes.put(array, sharding)

    def _sharding(self, *axes: str | None) -> NamedSharding | None:
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(*axes))

    def _check_rows(self, data: PyTree) -> None:
        assert self.mesh is not None
        num_devices = int(self.mesh.shape[DATA_AXIS])
        for name, leaf in zip(leaf_names(data), jax.tree.leaves(data), strict=True):
            if name in self._row_arrays:
                refuse_uneven_rows(leaf.shape[0], num_devices)


def refuse_uneven_rows(num_rows: int, num_devices: int) -> None:
    """Refuses rows that devices cannot share evenly.

    Raises ValueError: these are such.
    """
    if num_rows % num_devices == 0:
        return
    fitting = [n for n in range(2, num_devices) if num_rows % n == 0]
    remedy = (
        f"use a mesh with {fitting[-1]} devices on that axis"
        if fitting
        else "leave out rows, or spread chains instead"
    )
    raise ValueError(
        f"mesh: {num_rows} rows of the data cannot be spread evenly over the {num_devices} devices "
        f"of its axis {DATA_AXIS!r}; {remedy}"
    )


def validate_mesh(mesh: object, num_chains: int) -> None:
    """Checks that the chains can be spread over the mesh.

    Raises TypeError: it is no mesh. ValueError: it has devices of some processes and not of others,
    or chains that cannot be shared evenly.
    """
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, not {type(mesh).__name__}")
    found = owners(mesh)
    if found not in ([jax.process_index()], list(range(jax.process_count()))):
        raise ValueError(
            f"mesh: its devices belong to the processes {found} of jax.distributed, and this is "
            f"process {jax.process_index()} of {jax.process_count()}. Use devices of all processes "
            "(jax.devices()) in one run of all, or those of this process (jax.local_devices()) in "
            "a run of its own, with another seed and another checkpoint folder"
        )
    if CHAIN_AXIS not in mesh.axis_names:
        return
    num_devices = int(np.asarray(mesh.shape[CHAIN_AXIS]))
    if num_chains % num_devices:
        raise ValueError(
            f"num_chains={num_chains} cannot be spread over the {num_devices} devices of the "
            f"mesh's axis {CHAIN_AXIS!r}; make it a multiple of {num_devices}"
        )


def check_mesh_axes(
    mesh: object,
    name: str,
    axes: tuple[str, ...],
    options: Mapping[str, object],
    advice: str = "",
    *,
    has_chains: bool = True,
) -> None:
    """Refuses a mesh with an axis over which nothing would be spread.

    Args:
        mesh: as the user passes it; anything but a mesh is left to `validate_mesh`.
        advice: what to change, for the message.
        has_chains: whether there is more than one chain or run to spread.
    """
    if not isinstance(mesh, Mesh):
        return
    for axis in mesh.axis_names:
        size = int(mesh.shape[axis])
        if axis in (CHAIN_AXIS, *axes)[1 - has_chains :] or size == 1:
            continue
        if not has_chains:
            over = f"it spreads rows over {DATA_AXIS!r}" if axes else "leave mesh out"
            raise ValueError(
                f"mesh: {name} cannot use the axis {axis!r}, so its {size} devices would all do "
                f"the same work; {advice or over}"
            )
        known = " or ".join(repr(one) for one in (CHAIN_AXIS, *axes))
        sweep = f" with sweep={options['sweep']!r}" if "sweep" in options else ""
        other = (
            ""
            if options.get("sweep", "parallel") == "parallel"
            else '; rows or tokens over "data" with sweep="parallel", where the model has it'
        )
        raise ValueError(
            f"mesh: {name}{sweep} cannot use the axis {axis!r}, so its {size} devices would all do "
            f"the same work; it spreads work over {known}. Chains are spread by "
            f'jax.make_mesh(({size},), ("{CHAIN_AXIS}",)) with num_chains a multiple of {size}'
            f"{other}{advice and '; ' + advice}"
        )
