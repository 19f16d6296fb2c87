"""What every verb does first: checks, container, the model in its order; and last: a posterior."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmf import devices, registry
from jaxmf.data import Container, as_container
from jaxmf.data.cells_by_id import SpansProcesses, are_elsewhere
from jaxmf.data.convert import num_bytes_of, put_beside
from jaxmf.engine import Algorithm
from jaxmf.engine.environment import describe_environment
from jaxmf.engine.memory import check_limit, refuse_copy
from jaxmf.engine.sharding import check_mesh_axes
from jaxmf.model import Model, SomeModel
from jaxmf.posterior import Meta, alarms
from jaxmf.results import Posterior
from jaxmf.row_shards import DATA_AXIS


def refuse_traced(function: str, **arguments: object) -> None:
    """Refuses arguments without numbers: a run is a loop on the host, not part of a program."""
    for name, value in arguments.items():
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
            raise TypeError(f"{name}: " + _why_not_inside(function, f"{name} has no"))


def refuse_inside(function: str) -> None:
    """Refuses to be part of a program of other arguments: no array made there has numbers."""
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TypeError(_why_not_inside(function, "nothing has"))


def _why_not_inside(function: str, what: str) -> str:
    advice = (
        "Make it outside, and pass it to your function as an argument: it is a tree of arrays"
        if function in ("kernel", "free_energy")
        else "A run compiles its own programs from outside: call it there, once for each data set "
        "or seed; num_chains gives chains side by side, jaxmf.kernel a chain as part of a program"
    )
    inside = f"jaxmf.{function} stands inside jax.jit, vmap or grad"
    return f"{inside}, where {what} numbers yet. {advice}"


def prepare_run(
    model: SomeModel,
    data: object,
    method: str,
    options: Mapping[str, object],
    verb: Callable[..., object],
    memory_limit: int | None,
) -> tuple[SomeModel, Container, Callable[..., Algorithm], dict[str, Any]]:
    """The model in the order of the data, its container, what makes the method, its options."""
    refuse_traced(verb.__name__, model=model, data=data, **options)
    refuse_inside(verb.__name__)
    entry = registry.entry_of(model)
    registry.check_method(entry, method)
    read = registry.read_options(entry, method, options, verb)
    model, container = matched_to(model, data, memory_limit, method=method)
    return model, container, entry.builder(model, method), read


def matched_to(
    model: SomeModel, data: object, memory_limit: int | None, *, method: str
) -> tuple[SomeModel, Container]:
    """The model in the order of the data, and these in its container, checked by it."""
    _check_tree(model)
    entry = registry.entry_of(model)
    refuse_copy(num_bytes_of(data, entry.container), check_limit(memory_limit))
    container = put_beside(as_container(data, entry.container), data)
    if are_elsewhere(container) and method != model.takes_process_rows:
        raise ValueError(
            "data: their rows lie in several processes, which jaxmf.sample of LinearGaussianIBP, "
            "BinaryMF, BPMF, LDA, HDPLDA and PAM and jaxmf.variational of SparseBinaryMF take, and "
            f"this call with {type(model).__name__} does not; pass the whole data to every process"
        )
    model = model.for_method(method).matched(container)
    model.check_data(container, "data")
    return model, container


def with_device_options(
    model: Model, options: Mapping[str, object], data: Container, mesh: object
) -> dict[str, object]:
    """The options of a sampler, with defaults that depend on the device filled in.

    Raises ValueError: the mesh has an axis that the sampler cannot use.
    """
    name = devices.platform_of(data, mesh)
    options = {**options, **model.device_options(options, platform=name, data=data)}
    axes, advice = model.mesh_axes(options), model.mesh_advice(options)
    check_mesh_axes(mesh, type(model).__name__, axes, options, advice)
    check_process_rows(data, mesh, model, axes)
    return options


def notes_of(
    model: Model,
    data: Container,
    passed: Mapping[str, object],
    options: Mapping[str, object],
    mesh: object,
) -> tuple[str, ...]:
    """Choices of the model for the data, and those that it could not make on their device."""
    platform = devices.platform_of(data, mesh)
    return (*model.notes(data), *model.device_notes(passed, options, platform=platform))


def check_process_rows(data: object, mesh: object, model: Model, axes: tuple[str, ...]) -> None:
    """Refuses rows that lie in several processes where a run does not spread them so.

    Raises ValueError: the mesh is not that of the data, or the run spreads no rows.
    """
    if not are_elsewhere(data):
        return
    is_spread = isinstance(mesh, Mesh) and DATA_AXIS in mesh.axis_names and DATA_AXIS in axes
    known = data.elsewhere if isinstance(data, SpansProcesses) else None
    part = None if known is None else known.cells
    if part is not None and isinstance(mesh, Mesh):
        is_spread &= np.array_equal(part.mesh.devices, mesh.devices)
    if not is_spread:
        raise ValueError(
            "data: their rows lie in several processes; pass the mesh that they were made with, "
            f"and options with which {type(model).__name__} spreads rows over it, such as "
            'sweep="parallel"'
        )


def _check_tree(model: Model) -> None:
    """Refuses a model that jax takes for a number."""
    if jax.tree_util.all_leaves([model]):
        raise TypeError(
            f"{type(model).__name__} is not known to jax; put @jax.tree_util.register_dataclass "
            "above @dataclass(frozen=True)"
        )


def posterior_of_run(
    method: str,
    model: SomeModel,
    data: Container,
    fields: Mapping[str, Any],
    *,
    seed: object,
    settings: Mapping[str, object],
    options: Mapping[str, object],
    outcome: Mapping[str, Any],
    notes: tuple[str, ...] | None = None,
    mesh: object = None,
) -> Posterior[SomeModel]:
    """The posterior of a run that is over, after a warning with its first alarm if it has any.

    Args: fields: those of `posterior.assemble`; settings: of the run loop; options: of the method;
    outcome: what `extension.outcome` says; notes: those of `Model.notes` if None.
    """
    versions = describe_environment()["versions"]
    meta = Meta(
        method=method,
        seed=seed,
        run=dict(settings),
        options=dict(options),
        versions={name: found or "from source" for name, found in versions.items()},
        device=_device_name(data, mesh),
        notes=model.notes(data) if notes is None else notes,
        **outcome,
    )
    posterior = Posterior(model=model, meta=meta, **{"data": data.without_cells(), **fields})
    return alarms.warn(posterior, mesh)


def _device_name(data: object, mesh: object) -> str:
    """The devices of the platform that a run on these data is on, for people."""
    found = jax.devices(devices.platform_of(data, mesh))
    kind = found[0].device_kind
    kind = f"{platform.machine()} CPU" if kind == "cpu" else kind
    return kind if len(found) == 1 else f"{len(found)} x {kind}"
