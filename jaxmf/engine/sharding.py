"""Where chains and data lie: on one device, or over the devices of a mesh."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmf.engine.chunk import Batch, Outcome, run_chunk
from jaxmf.types import PyTree

CHAIN_AXIS = "chain"


class Placement:
    """Puts the chain axis on the mesh's axis "chain" and everything else on every device.

    Other axes of the mesh (particles) are for the algorithm, which may constrain its arrays to
    them: its programs are traced with the mesh in put.
    """

    def __init__(self, mesh: Mesh | None, *, batched: bool):
        if mesh is not None:
            # sharding by propagation, whatever the axis types the mesh was made with
            mesh = Mesh(mesh.devices, mesh.axis_names)
        self.mesh = mesh
        on_mesh = mesh is not None and CHAIN_AXIS in mesh.axis_names
        self.batch = Batch(batched=batched, spmd_axis=CHAIN_AXIS if on_mesh else None)

    def context(self) -> contextlib.AbstractContextManager[object]:
        """The mesh in place while tracing and running; nothing without one."""
        return contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)

    @property
    def chains(self) -> NamedSharding | None:
        """Sharding of arrays with a leading chain axis."""
        return self._sharding(self.batch.spmd_axis)

    def put_everywhere(self, tree: PyTree) -> PyTree:
        """Arrays on every device."""
        return self._put(tree, self._sharding())

    def put_chains(self, tree: PyTree) -> PyTree:
        """Arrays with a leading chain axis, each device holding its chains."""
        return self._put(tree, self.chains)

    def options(self, function: Callable) -> dict[str, Any]:
        """Options of `jax.jit` for the programs of the engine."""
        options: dict[str, Any] = {}
        if function is run_chunk:
            options["donate_argnums"] = (3, 4)
        if self.mesh is not None:
            options["out_shardings"] = self.chains
        if self.mesh is not None and function is run_chunk:
            everywhere: Any = self._sharding()
            chains: Any = self.chains
            rows_of_chains: Any = self._sharding(None, self.batch.spmd_axis)
            options["out_shardings"] = Outcome(
                state=chains,
                averages=chains,
                draws=rows_of_chains,
                num_draws=everywhere,
                step=everywhere,
                overflow=everywhere,
                bad=everywhere,
            )
        return options

    def _sharding(self, *axes: str | None) -> NamedSharding | None:
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(*axes))

    def _put(self, tree: PyTree, sharding: NamedSharding | None) -> PyTree:
        put: Callable[[Any], Any] = jnp.asarray
        if sharding is not None:

            def put(leaf: object) -> PyTree:
                return jax.device_put(jnp.asarray(leaf), sharding)

        return jax.tree.map(put, tree)


def validate_mesh(mesh: object, num_chains: int) -> None:
    """Checks that the chains can be spread over the mesh."""
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, not {type(mesh).__name__}")
    if CHAIN_AXIS not in mesh.axis_names:
        return
    num_devices = int(np.asarray(mesh.shape[CHAIN_AXIS]))
    if num_chains % num_devices:
        raise ValueError(
            f"num_chains={num_chains} cannot be spread over the {num_devices} devices of the "
            f"mesh's axis {CHAIN_AXIS!r}; make it a multiple of {num_devices}"
        )


def check_mesh_axes(
    mesh: object, name: str, axes: tuple[str, ...], options: Mapping[str, object]
) -> None:
    """Refuses a mesh with an axis over which nothing would be spread.

    Args:
        mesh: what the user passes; what is no mesh is left to `validate_mesh`.
        name: of the model or the method, for the message.
        axes: that it can use beside "chain".
        options: of the sampler, the sweep among them.

    Raises:
        ValueError: an axis of several devices that is none of these.
    """
    if not isinstance(mesh, Mesh):
        return
    for axis in mesh.axis_names:
        size = int(mesh.shape[axis])
        if axis in (CHAIN_AXIS, *axes) or size == 1:
            continue
        known = " or ".join(repr(one) for one in (CHAIN_AXIS, *axes))
        sweep = f" with sweep={options['sweep']!r}" if "sweep" in options else ""
        raise ValueError(
            f"mesh: {name}{sweep} cannot use the axis {axis!r}, so its {size} devices would all do "
            f"the same work; it spreads work over {known}. Chains are spread by "
            f'jax.make_mesh(({size},), ("{CHAIN_AXIS}",)) with num_chains a multiple of {size}; '
            'tokens over "data" with sweep="parallel", where the model has it'
        )
