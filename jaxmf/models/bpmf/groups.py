"""Groups of the vectors of a side: a mixture block over them (section 6.2.9).

The indicators are those of a network of two blocks, group and vector, swept with the groups' means
and covariances summed out (Neal 2000, algorithm 3); these are drawn given the groups afterwards,
which leaves the same law invariant as eq 6.29, where existing groups are held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from jaxmf import slots
from jaxmf.blocks import Block, Network, chain
from jaxmf.blocks.density import log_joint
from jaxmf.blocks.simulation import simulate
from jaxmf.blocks.state import State as NetworkState
from jaxmf.data import Tokens
from jaxmf.data.container import bare
from jaxmf.likelihoods.families.multivariate_normal import Parameters
from jaxmf.priors.hyper import is_fixed
from jaxmf.types import Array, Key

if TYPE_CHECKING:
    from jaxmf.models.bpmf.model import BPMF
    from jaxmf.models.bpmf.state import SideLaw


class Mixture(NamedTuple):
    """What the prior of the groups keeps beside the groups themselves.

    Attributes:
      numbers: block -> hyperparameters of its law.
      slots: (K,) bool by indicator, groups that some vector has; of growing priors.
    """

    numbers: dict[str, dict[str, Array]]
    slots: dict[str, Array]


def network(model: BPMF) -> Network:
    """The blocks of the rows' vectors."""
    return Network(
        group=Block(model.row_mixture()),
        vector=Block(model.row_law_prior(), by="group", observed=True),
    )


def _tokens(vectors: Array) -> Tokens:
    nothing = jnp.zeros((vectors.shape[0],), jnp.int32)
    values = {"vector": vectors}
    return bare(Tokens, columns={"all": nothing}, sizes={"all": 1}, values=values, names={})


def num_groups(model: BPMF, capacity: int) -> int:
    """Slots of the rows' groups for a wished capacity."""
    prior = model.row_mixture()
    return 1 if prior is None else prior.num_groups(capacity)


def start(model: BPMF, capacity: int) -> Mixture | None:
    """All vectors in the first group."""
    prior = model.row_mixture()
    if prior is None:
        return None
    size = prior.num_groups(capacity)
    numbers = {"group": prior.start(size), "vector": model.row_law_prior().start()}
    if not prior.grows:
        return Mixture(numbers, {})
    return Mixture(numbers, {"group": jnp.arange(size) == 0})


def update(
    model: BPMF, key: Key, side: SideLaw, vectors: Array
) -> tuple[Array, Mixture, dict[str, Array]]:
    """Groups of all vectors, and the hyperparameters of their prior.

    Returns:
      Groups (N,), what the prior keeps, and whether it ran out of groups.
    """
    assert side.mixture is not None
    blocks = network(model)
    options = chain.plan(blocks, joint=(), keep="scalars", capacity=side.law.mean.shape[0])
    state = NetworkState({"group": side.groups}, *side.mixture)
    progress = jnp.ones(())
    state, info = chain.step(options, blocks, key, state, _tokens(vectors), progress)
    mixture = Mixture(state.numbers, state.slots)
    return state.values["group"], mixture, info.overflow


def weights(model: BPMF, side: SideLaw) -> Array:
    """Probabilities (K,) of the group of one more vector; of a new one in the lowest free slot."""
    prior, size = model.row_mixture(), side.law.mean.shape[0]
    if prior is None or side.mixture is None:
        return jnp.ones((1,), side.law.mean.dtype)
    counts = jnp.zeros((1, size), jnp.int32).at[0, side.groups].add(1)
    seating = prior.begin(counts, dict(side.mixture.numbers["group"]), with_sizes=False)
    found = prior.weights(seating, jnp.zeros((), jnp.int32))[0][:size]
    return found / jnp.sum(found)


def log_density(model: BPMF, side: SideLaw, vectors: Array) -> Array:
    """log p(vectors, groups, hyperparameters), means and covariances summed out: () float."""
    assert side.mixture is not None
    state = NetworkState({"group": side.groups}, *side.mixture)
    return log_joint(network(model), state, _tokens(vectors))


def simulate_groups(
    model: BPMF, key: Key, number: int, capacity: int
) -> tuple[Array, Mixture | None]:
    """Groups (N,) from their prior, and what it keeps."""
    if model.row_mixture() is None:
        return jnp.zeros((number,), jnp.int32), None
    empty = jnp.zeros((number, model.row_width()))
    state, _ = simulate(network(model), key, _tokens(empty), capacity=capacity)
    return state.values["group"], Mixture(state.numbers, state.slots)


def grow(side: SideLaw, size: int) -> SideLaw:
    """The law with more slots for groups."""
    if side.mixture is None or "group" not in side.mixture.slots:
        return side
    state = NetworkState({"group": side.groups}, *side.mixture)
    grown = chain.grow(state, {"group": size})
    extra = size - side.law.mean.shape[0]
    identity = jnp.eye(side.law.mean.shape[1], dtype=side.law.mean.dtype)
    added = jnp.broadcast_to(identity, (extra, *identity.shape))
    law = Parameters(
        slots.pad_axis(side.law.mean, 0, size), jnp.concatenate([side.law.factor, added])
    )
    return side._replace(law=law, mixture=Mixture(grown.numbers, grown.slots))


def recorded(model: BPMF, name: str, side: SideLaw) -> dict[str, Array]:
    """What a draw keeps of groups: of every vector, how probable each is, hyperparameters."""
    size = side.law.mean.shape[0]
    counts = jnp.zeros((size,), jnp.int32).at[side.groups].add(1)
    draw = {
        f"{name}_groups": side.groups,
        f"{name}_group_weights": weights(model, side),
        f"num_{name}_groups": jnp.sum(counts > 0, dtype=jnp.int32),
    }
    prior = model.row_mixture()
    assert prior is not None
    assert side.mixture is not None
    for label, number in side.mixture.numbers["group"].items():
        if label not in prior.hyperparameters or not is_fixed(getattr(prior, label)):
            draw[f"{name}_group_{label}"] = number
    return draw
