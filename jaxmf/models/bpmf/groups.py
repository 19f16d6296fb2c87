"""Groups of the vectors of a side: a mixture block over them (section 6.2.9).

The indicators are those of a network of two blocks, group and vector, swept with the groups' means
and covariances summed out (Neal 2000, algorithm 3); these are drawn given the groups afterwards,
which leaves the same distribution invariant as eq 6.29, where existing groups are held. Groups of
processes also have a proposal a step to split one or to merge two. Where rows have classes the
group's block
is partitioned by them: groups that all share, with weights for each.

Where vectors depend on features the mixture is one of what these leave, U - X B.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf._kernels.special import uniforms
from jaxmf.blocks import Block, Network, chain
from jaxmf.blocks.density import log_joint
from jaxmf.blocks.simulation import simulate
from jaxmf.blocks.split_merge import can_split
from jaxmf.blocks.state import NetworkState
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.models.bpmf.bpmf_spec import BPMFSpec
from jaxmf.models.bpmf.state import GroupMixture, SidePrior
from jaxmf.priors.hyper import is_fixed
from jaxmf.types import Array, Key

_FIRST_GROUPS = 10  # of a chain's start without splits


def network(model: BPMFSpec) -> Network:
    """The blocks of the rows' vectors."""
    by = None if model.row_classes is None else "class"
    return Network(
        group=Block(model.row_mixture(), by=by),
        vector=Block(model.row_hyperprior(), by="group", observed=True),
    )


def _tokens(model: BPMFSpec, vectors: Array) -> Tokens:
    columns, size = class_of_rows(model, vectors.shape[0])
    values = {"vector": vectors}
    return bare(Tokens, columns={"class": columns}, sizes={"class": size}, values=values, names={})


def class_of_rows(model: BPMFSpec, num_rows: int) -> tuple[Array, int]:
    """The class of every row, (N,) int32, and how many there are, that of rows without included."""
    if model.row_classes is None:
        return jnp.zeros((num_rows,), jnp.int32), 1
    return model.row_classes.levels(), model.row_classes.width + 1


def num_groups(model: BPMFSpec, capacity: int) -> int:
    """Slots of the rows' groups for a wished capacity."""
    prior = model.row_mixture()
    return 1 if prior is None else prior.num_groups(capacity)


def start(
    model: BPMFSpec, key: Key, num_rows: int, capacity: int, *, split_merge: int
) -> tuple[Array, GroupMixture | None]:
    """Groups of the vectors (N,), and what their prior keeps.

    One group where splits find the others. Sweeps alone seldom leave one group before the vectors
    have settled in it: without splits a few groups, evenly at random, of which those that differ
    draw the vectors that are like them, and the others empty. On MovieLens, though, groups that
    noise was shared out to predict worse.
    """
    prior = model.row_mixture()
    if prior is None:
        return jnp.zeros((num_rows,), jnp.int32), None
    size = prior.num_groups(capacity)
    num_first = 1 if _proposals(model, split_merge) else min(size, _FIRST_GROUPS)
    first = jnp.minimum((uniforms(key, (num_rows,)) * num_first).astype(jnp.int32), num_first - 1)
    occupied = jnp.zeros((size,), bool).at[first].set(True)
    group_state = prior.start(size)
    if "weights" in group_state:  # of an HDP: as many parts as there are groups, and the rest
        part = 1 / (1 + jnp.sum(occupied)).astype(group_state["rest"].dtype)
        group_state = group_state | {"weights": jnp.where(occupied, part, 0), "rest": part}
    hyperparameters = {"group": group_state, "vector": model.row_hyperprior().start()}
    return first, GroupMixture(hyperparameters, {"group": occupied} if prior.grows else {})


def update(
    model: BPMFSpec, key: Key, side: SidePrior, vectors: Array, *, split_merge: int
) -> tuple[Array, GroupMixture, dict[str, Array]]:
    """Groups of all vectors, and the hyperparameters of their prior.

    Args: vectors (N, D) float, without what features say of them; split_merge: proposals to split a
    group or merge two, of those that have such.
    Returns groups (N,), what the prior keeps, and whether it ran out of groups.
    """
    assert side.mixture is not None
    blocks = network(model)
    options = chain.plan(
        blocks,
        joint=(),
        keep="scalars",
        capacity=side.moments.mean.shape[0],
        split_merge=_proposals(model, split_merge),
    )
    state = NetworkState({"group": side.groups}, *side.mixture)
    progress = jnp.ones(())
    state, info = chain.step(options, blocks, key, state, _tokens(model, vectors), progress)
    mixture = GroupMixture(state.hyperparameters, state.slots)
    return state.values["group"], mixture, info.overflow


def _proposals(model: BPMFSpec, split_merge: int) -> int:
    """Splits and merges a step, of a prior that has such."""
    return split_merge if can_split(network(model), "group") else 0


def weights(model: BPMFSpec, side: SidePrior) -> Array:
    """Probabilities of the group of one more vector: (K,), or (C, K) of one of each class.

    That of a new group is at the lowest free slot.
    """
    prior, size = model.row_mixture(), side.moments.mean.shape[0]
    if prior is None or side.mixture is None:
        return jnp.ones((1,), side.moments.mean.dtype)
    classes, num_classes = class_of_rows(model, side.groups.shape[0])
    counts = jnp.zeros((num_classes, size), jnp.int32).at[classes, side.groups].add(1)
    cache = prior.begin(counts, dict(side.mixture.hyperparameters["group"]), with_sizes=False)
    values = jax.vmap(lambda label: prior.weights(cache, label)[0])(jnp.arange(num_classes))
    values = values[:, :size] / jnp.sum(values[:, :size], axis=1, keepdims=True)
    return values[0] if model.row_classes is None else values


def log_density(model: BPMFSpec, side: SidePrior, vectors: Array) -> Array:
    """log p(vectors, groups, hyperparameters), means and covariances summed out: () float."""
    assert side.mixture is not None
    state = NetworkState({"group": side.groups}, *side.mixture)
    return log_joint(network(model), state, _tokens(model, vectors))


def simulate_groups(
    model: BPMFSpec, key: Key, num_rows: int, capacity: int
) -> tuple[Array, GroupMixture | None]:
    """Groups (N,) from their prior, and what it keeps."""
    if model.row_mixture() is None:
        return jnp.zeros((num_rows,), jnp.int32), None
    empty = jnp.zeros((num_rows, model.core_width))
    state, _ = simulate(network(model), key, _tokens(model, empty), capacity=capacity)
    return state.values["group"], GroupMixture(state.hyperparameters, state.slots)


def grow(side: SidePrior, size: int) -> SidePrior:
    """The prior with more slots for groups."""
    if side.mixture is None or "group" not in side.mixture.slots:
        return side
    state = NetworkState({"group": side.groups}, *side.mixture)
    grown = chain.grow(state, {"group": size})
    extra = size - side.moments.mean.shape[0]
    identity = jnp.eye(side.moments.mean.shape[1], dtype=side.moments.mean.dtype)
    added = jnp.broadcast_to(identity, (extra, *identity.shape))
    moments = NormalParameters(
        slots.pad_axis(side.moments.mean, 0, size), jnp.concatenate([side.moments.factor, added])
    )
    return side._replace(moments=moments, mixture=GroupMixture(grown.hyperparameters, grown.slots))


def recorded(model: BPMFSpec, name: str, side: SidePrior) -> dict[str, Array]:
    """Arrays of a draw about groups: their probabilities for every vector, hyperparameters."""
    size = side.moments.mean.shape[0]
    counts = jnp.zeros((size,), jnp.int32).at[side.groups].add(1)
    draw = {
        f"{name}_groups": side.groups,
        f"{name}_group_weights": weights(model, side),
        f"num_{name}_groups": jnp.sum(counts > 0, dtype=jnp.int32),
    }
    prior = model.row_mixture()
    assert prior is not None
    assert side.mixture is not None
    for label, value in side.mixture.hyperparameters["group"].items():
        if label in prior.hyperparameters and not is_fixed(getattr(prior, label)):
            draw[f"{name}_group_{label}"] = value
    return draw
