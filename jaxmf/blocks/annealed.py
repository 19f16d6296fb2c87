"""A network on its way from prior to posterior: p(z) p(x | z)^b, with parameters summed out.

p(x | z) is the product of the groups' marginal likelihoods. Given all else the label of one token
then has its prior weight times [m(values of the group, x) / m(values of the group)]^b, the
predictive density to the power b: every sweep leaves the path invariant once families predict so.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxmf._kernels.tables import Lanes
from jaxmf.blocks import chain
from jaxmf.blocks.counts import all_parts, statistics_of_block
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.simulation import simulate
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.wiring import Wiring
from jaxmf.engine import Info, Limit
from jaxmf.likelihoods.families.family import Family, Hyperparameters, SweptFamily
from jaxmf.priors.hyper import is_fixed
from jaxmf.samplers.annealed_smc import AnnealedModel, annealed_model, log_ratio_of_powers
from jaxmf.types import Array, Key, PyTree

_FIRST_SLOTS = 16


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RaisedFamily(SweptFamily):
    """A family as a sweep sees it where the likelihood of a group is raised to a power."""

    family: Family  # of the values; its hyperparameters are fixed
    power: Array  # () float above 0

    hyperparameters = ()  # none to draw

    def statistics(self, groups: Array, values: Array, num_groups: int) -> PyTree:
        return self.family.statistics(groups, values, num_groups)

    def empty(self, num_groups: int) -> PyTree:
        return self.family.empty(num_groups)

    def begin(self, statistics: PyTree, hyperparameters: Hyperparameters) -> tuple[PyTree, Array]:
        return self.family.begin(statistics, hyperparameters), self.power

    def move(
        self, cache: tuple[PyTree, Array], group: Array, value: Array, amount: int
    ) -> tuple[PyTree, Array]:
        return self.family.move(cache[0], group, value, amount), cache[1]

    def predictive(self, cache: tuple[PyTree, Array], lanes: Lanes, value: Array) -> Array:
        predicted = self.family.predictive(cache[0], lanes, value)
        return cache[1] * (predicted if self.family.is_log else jnp.log(predicted))


def annealed(
    model: NetworkModel, *, keep: str, capacity: int | None, split_merge: int
) -> AnnealedModel:
    """Kernels and densities for `jaxmf.smc` of a network whose groups have one prior.

    Args:
        model: with one indicator of every token.
        keep, capacity, split_merge: as in `NetworkModel.sampler`.
    Raises:
        ValueError: an option out of its range, or a family whose hyperparameters are learned.
    """
    network = model.network()
    for name in network.observed:
        _check_family(network.distributions[name])
    capacity = _FIRST_SLOTS if capacity is None else capacity
    plan = chain.plan(network, joint=(), keep=keep, capacity=capacity, split_merge=split_merge)
    return annealed_model(
        init=Partial(_init, plan, model),
        step=Partial(_step, plan, model),
        measure=Partial(_log_likelihood, model),
        log_ratio=log_ratio_of_powers,
        record=Partial(chain.record, plan, model),
        grow=chain.grow,
        capacity=chain.capacity,
        limit=Partial(_limit, model),
    )


def raised(network: Wiring, power: Array) -> Wiring:
    """The network as sweeps see it where the likelihood is raised to a power, () float."""
    changed = {}
    for name in network.observed:
        family = RaisedFamily(network.distributions[name], power)
        changed[name] = network.blocks[name].with_distribution(family)
    return network.with_blocks(changed)


def _check_family(family: SweptFamily) -> None:
    names = family.hyperparameters if isinstance(family, Family) else ()
    learned = [name for name in names if not is_fixed(getattr(family, name))]
    if learned:
        raise ValueError(
            f"family: {learned[0]} of {type(family).__name__} is learned, which smc and temper do "
            "not do at powers of the likelihood; set a number"
        )


def _init(
    plan: chain.NetworkPlan,
    model: NetworkModel,
    key: Key,
    data: object,
    sizes: dict[str, int] | None,
) -> tuple[NetworkState, dict[str, Array]]:
    """A state from the prior; slots may have been too few where all of them are in use."""
    network, tokens = model.over(data)
    capacity = plan.num_slots if not sizes else max(sizes.values())
    state, _ = simulate(network, key, tokens, capacity=capacity)
    overflow = {
        name: jnp.all(in_use) & (in_use.shape[0] < tokens.num_tokens)
        for name, in_use in state.slots.items()
    }
    return state, overflow


def _step(
    plan: chain.NetworkPlan,
    model: NetworkModel,
    key: Key,
    state: NetworkState,
    data: object,
    power: Array,
) -> tuple[NetworkState, Info]:
    """A sweep with the likelihood to a power, then the hyperparameters of the groups."""
    network, tokens = model.over(data)
    return chain.update(plan, raised(network, power), key, state, tokens)


def _log_likelihood(model: NetworkModel, state: NetworkState, data: object) -> Array:
    """log p(x | z), () float."""
    network, tokens = model.over(data)
    parts = all_parts(network, state, tokens)
    total = jnp.zeros((), jnp.result_type(float))
    for name in network.observed:
        statistics = statistics_of_block(network, name, parts[name], state, tokens)
        family = network.distributions[name]
        total += jnp.sum(family.log_marginal(statistics, state.hyperparameters[name]))
    return total


def _limit(model: NetworkModel, data: object) -> dict[str, Limit]:
    """No more groups than tokens."""
    network, tokens = model.over(data)
    growing = (name for name in network.indicators if network.distributions[name].grows)
    return {name: Limit(max(tokens.num_tokens, 1)) for name in growing}
