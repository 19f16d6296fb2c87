"""The weights of a flexible prior learned by a sampler that is interrupted.

*From expected counts* (eq 7.4): chains of the prior, and after every few sweeps

    lambda <- lambda + eta (c - mean phi(m) - alpha lambda).

*From data*, by contrastive divergence: the chain of the posterior is interrupted, a few sweeps with
the likelihood removed start from where it is, and the parameters move towards what the posterior
had and away from what the prior made of it; then the chain continues from where it was. With the
gradients of any optax optimiser, and any parametric form of the weights.

Source: Porteous (2010), section 7.2; Hinton (2002), Training products of experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxmf.arguments import check_count, check_number, check_seed, checks_call
from jaxmf.blocks import chain, sequential, starting
from jaxmf.blocks.block import Block
from jaxmf.blocks.counts import slot_sizes, statistics_of_block
from jaxmf.blocks.network import Network
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.unobserved import check_coverage, sweep_unobserved
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.engine import Info, merge_overflow
from jaxmf.priors.flexible import FlexiblePrior, check_flexible
from jaxmf.priors.moments import check_expected_counts
from jaxmf.programs import jit
from jaxmf.types import Array, Key, PyTree

_CHUNK = 25  # steps in one compiled call


class LearnedPrior(NamedTuple):
    """A flexible prior that was learned.

    Attributes:
        prior: with the averaged parameters.
        parameters: their averages over the last half of the steps.
        history: leaves with the steps first.
        state: of the chain at the end; of chains, the chains first.
    """

    prior: FlexiblePrior
    parameters: PyTree
    history: PyTree
    state: NetworkState


@checks_call
def contrastive_divergence(
    model: NetworkModel,
    data: object,
    block: str,
    *,
    form: Callable[[PyTree], FlexiblePrior],
    parameters: PyTree,
    optimizer: optax.GradientTransformation,
    num_steps: int,
    num_warmup: int = 0,
    num_sweeps: int = 1,
    num_prior_sweeps: int = 1,
    capacity: int | Mapping[str, int] = 32,
    seed: int = 0,
) -> LearnedPrior:
    """Learns a flexible prior from data.

    Args:
        model: with a `FlexiblePrior` over tokens in one of its blocks.
        data: as the model takes it.
        block: the name of that block.
        form: parameters -> FlexiblePrior, such as `FlexiblePrior.parametric` of a, b and c; of as
            many items as in the model, and as many unobserved ones.
        parameters: where they start; any tree of arrays.
        optimizer: of optax.
        num_steps: updates of the parameters.
        num_warmup: sweeps of the posterior before the first.
        num_sweeps: sweeps of the posterior before each.
        num_prior_sweeps: sweeps without the likelihood from there.
        capacity: slots to begin with, or one value for every growing indicator.
        seed: of everything.
    Returns:
        Learned.
    Raises:
        TypeError, ValueError: the block has no flexible prior, or the form returns another prior;
            settings that are none.
    """
    check_count("num_steps", num_steps)
    check_count("num_sweeps", num_sweeps)
    check_count("num_prior_sweeps", num_prior_sweeps)
    check_count("num_warmup", num_warmup, least=0)
    tokens = model.tokens(data)
    network = model.network().at(tokens)
    _check_block(network, block)
    model.check_data(data, "data")
    sizes = dict(capacity) if isinstance(capacity, Mapping) else {}
    fewest = min(sizes.values(), default=32) if isinstance(capacity, Mapping) else capacity
    plan = chain.plan(network, joint=(), keep="scalars", capacity=fewest)
    problem = _Learning(plan, block, form, optimizer, num_sweeps, num_prior_sweeps)
    parameters = jax.tree.map(lambda one: jnp.asarray(one, jnp.result_type(float)), parameters)
    key = jax.random.key(check_seed("seed", seed))
    network = with_prior(network, block, _checked_form(network, block, form(parameters)))
    check_coverage(network, tokens)
    state = _start(plan, network, key, tokens)
    state = chain.grow(state, sizes)
    if num_warmup:
        state = _with_room(
            lambda state, first: _warm_up(problem, num_warmup, network, key, state, tokens),
            state,
            0,
        )[0]
    carry = (parameters, optimizer.init(parameters), state)
    histories = []
    for first in range(0, num_steps, _CHUNK):
        length = min(_CHUNK, num_steps - first)

        def advance(
            state: NetworkState, first: int, carry: PyTree = carry, length: int = length
        ) -> PyTree:
            now = (*carry[:2], state)
            return _steps(problem, length, network, key, now, tokens, jnp.asarray(first, jnp.int32))

        carry, history = _with_room(advance, carry[2], first)
        histories.append(history)
    history = jax.tree.map(lambda *parts: np.concatenate(parts), *histories)
    averages = jax.tree.map(lambda leaf: jnp.asarray(leaf[num_steps // 2 :].mean(axis=0)), history)
    return LearnedPrior(form(averages), averages, history, carry[2])


_start = jit(starting.init, static_argnums=0)


def with_prior(network: Wiring, block: str, prior: FlexiblePrior) -> Wiring:
    """The network with another flexible prior in one of its blocks."""
    return network.with_blocks({block: network.blocks[block].with_distribution(prior)})


def sweep_prior(
    network: Wiring, block: str, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, Info]:
    """Kernel: an indicator with a flexible prior, without what it partitions.

    Returns the state after, with nothing else changed, and overflow.
    """
    alone = Network({block: network.blocks[block]}, (block,))
    swept = NetworkState(
        {block: state.values[block]},
        {block: state.hyperparameters[block]},
        {block: state.slots[block]},
    )
    tokens_key, others_key = jax.random.split(key)
    swept, info = sequential.sweep(alone, (block,), tokens_key, swept, data)
    swept, other = sweep_unobserved(alone, others_key, swept, data)
    after = NetworkState(
        state.values | swept.values,
        state.hyperparameters | swept.hyperparameters,
        state.slots | swept.slots,
    )
    return after, Info(overflow=merge_overflow(info.overflow, other.overflow))


class _Learning(NamedTuple):
    """The static arguments of the compiled programs."""

    plan: chain.NetworkPlan
    block: str
    form: Callable[[PyTree], FlexiblePrior]
    optimizer: optax.GradientTransformation
    num_sweeps: int
    num_prior_sweeps: int


@jit(static_argnums=(0, 1))
def _warm_up(
    problem: _Learning,
    num_steps: int,
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
) -> PyTree:
    warmup_key = jax.random.fold_in(key, 1)

    def one(index: Array, carry: PyTree) -> PyTree:
        state, no_room = carry
        sweep_key = jax.random.fold_in(warmup_key, index)
        state, info = chain.update(problem.plan, network, sweep_key, state, data)
        return state, merge_overflow(no_room, info.overflow)

    nothing = dict.fromkeys(state.slots, jnp.zeros((), bool))
    state, no_room = jax.lax.fori_loop(0, num_steps, one, (state, nothing))
    return (state, None), no_room


@jit(static_argnums=(0, 1))
def _steps(
    problem: _Learning,
    num_steps: int,
    network: Wiring,
    key: Key,
    carry: PyTree,
    data: Tokens,
    first: Array,
) -> PyTree:
    block = problem.block

    def one(carry: PyTree, index: Array) -> PyTree:
        (parameters, optimizer_state, state), no_room = carry
        step_key = jax.random.fold_in(jax.random.fold_in(key, 2), index)
        now = with_prior(network, block, problem.form(parameters))
        for sweep in range(problem.num_sweeps):
            sweep_key = jax.random.fold_in(step_key, sweep)
            state, info = chain.update(problem.plan, now, sweep_key, state, data)
            no_room = merge_overflow(no_room, info.overflow)
        from_prior = state
        for sweep in range(problem.num_prior_sweeps):
            sweep_key = jax.random.fold_in(step_key, problem.num_sweeps + sweep)
            from_prior, info = sweep_prior(now, block, sweep_key, from_prior, data)
            no_room = merge_overflow(no_room, info.overflow)
        gradient = contrast(problem.form, parameters, now, block, (state, from_prior), data)
        ascent = jax.tree.map(jnp.negative, gradient)
        updates, optimizer_state = problem.optimizer.update(ascent, optimizer_state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        return ((parameters, optimizer_state, state), no_room), parameters

    nothing = dict.fromkeys(carry[2].slots, jnp.zeros((), bool))
    (carry, no_room), history = jax.lax.scan(
        one, (carry, nothing), first + jnp.arange(num_steps, dtype=jnp.int32)
    )
    return (carry, history), no_room


def contrast(
    form: Callable[[PyTree], FlexiblePrior],
    parameters: PyTree,
    network: Wiring,
    block: str,
    states: tuple[NetworkState, NetworkState],
    data: Tokens,
) -> PyTree:
    """The gradient of contrastive divergence: what lowers it, as a step for the parameters.

    d / d theta of sum_a lambda_a(theta) (phi_a(m) - phi_a(m')), m of the first state and m' of the
    second.
    """
    (counts, hyperparameters), (others, other_hyperparameters) = (
        (_counts(network, block, state, data), state.hyperparameters[block]) for state in states
    )

    def log_ratio(parameters: PyTree) -> Array:
        prior = form(parameters)
        return prior.log_prob(counts, hyperparameters) - prior.log_prob(
            others, other_hyperparameters
        )

    return jax.grad(log_ratio)(parameters)


def _counts(network: Wiring, block: str, state: NetworkState, data: Tokens) -> Array:
    parts = network.parts(block, network.sizes(data, slot_sizes(state, network)))
    return statistics_of_block(network, block, parts, state, data)


def _with_room(
    advance: Callable[[NetworkState, int], PyTree], state: NetworkState, first: int
) -> PyTree:
    """The result of a chunk, repeated with more slots until there are enough."""
    while True:
        result, no_room = advance(state, first)
        short = {name for name, is_short in no_room.items() if bool(is_short)}
        if not short:
            return result
        sizes = {name: 2 * chain.capacity(state)[name] for name in short}
        state = chain.grow(state, sizes)


def _check_block(network: Wiring, block: str) -> None:
    named: Block | None = network.blocks.get(block)
    if named is None or not isinstance(named.distribution, FlexiblePrior) or named.per:
        known = [
            name
            for name in network.indicators
            if isinstance(network.distributions[name], FlexiblePrior)
            and not network.blocks[name].per
        ]
        raise ValueError(
            f"block: {block!r} is no indicator of tokens with a FlexiblePrior; there are "
            f"{', '.join(map(repr, known)) or 'none'}"
        )


def _checked_form(network: Wiring, block: str, prior: FlexiblePrior) -> FlexiblePrior:
    check_flexible("form(parameters)", prior)
    expected = network.distributions[block].num_unobserved
    if prior.num_unobserved != expected:
        raise ValueError(
            f"form(parameters): has num_unobserved={prior.num_unobserved}, and {block!r} of the "
            f"model {expected}; give both the same"
        )
    return prior


@checks_call
def match_moments_by_sampling(
    expected_counts: object,
    *,
    learning_rate: float = 0.5,
    shrinkage: float = 0.0,
    num_steps: int = 400,
    num_sweeps: int = 1,
    num_chains: int = 16,
    seed: int = 0,
) -> LearnedPrior:
    """The flexible prior with these expected counts of groups, by the sampler of eq 7.4.

    `match_moments` has exact gradients and is to be preferred; this one is as the thesis has it.

    Args:
        expected_counts: (N,) E[m_i] of groups of 1 to N items; sum i E[m_i] = N.
        learning_rate: eta, at the start; it falls with 1 / (1 + step / 50).
        shrinkage: alpha.
        num_steps: updates of the weights.
        num_sweeps: sweeps of every chain before each.
        num_chains: whose mean is taken.
        seed: of everything.
    Returns:
        Learned; the parameters are the weights (N,).
    Raises:
        ValueError: counts that no distribution of partitions has.
    """
    check_count("num_steps", num_steps)
    check_count("num_sweeps", num_sweeps)
    check_count("num_chains", num_chains)
    check_number("learning_rate", learning_rate, above=0)
    check_number("shrinkage", shrinkage, least=0)
    targets = jnp.asarray(check_expected_counts(expected_counts, max(shrinkage, 1e-12)))
    targets = targets.astype(jnp.result_type(float))
    num_items = targets.shape[0]
    tokens = Tokens({"all": np.zeros(num_items, np.int32)}, {"all": 1})
    key = jax.random.key(check_seed("seed", seed))
    # a chain each, all in one group at first; there is room for as many as there are items
    slots = jnp.zeros((num_chains, num_items), bool).at[:, 0].set(True)
    values = {"group": jnp.zeros((num_chains, num_items), jnp.int32)}
    state = NetworkState(values, {"group": {}}, {"group": slots})
    settings = (learning_rate, shrinkage, num_steps, num_sweeps)
    history, state = _moment_steps(settings, targets, key, state, tokens)
    weights = np.asarray(history, float)[num_steps // 2 :].mean(axis=0)
    return LearnedPrior(FlexiblePrior(weights), weights, np.asarray(history), state)


@jit(static_argnums=0)
def _moment_steps(
    settings: tuple[float, float, int, int],
    targets: Array,
    key: Key,
    state: NetworkState,
    data: Tokens,
) -> tuple[Array, NetworkState]:
    learning_rate, shrinkage, num_steps, num_sweeps = settings
    sizes = jnp.arange(1, targets.shape[0] + 1)

    def one(carry: tuple[Array, NetworkState], index: Array) -> PyTree:
        weights, state = carry
        network = Network({"group": Block(FlexiblePrior(weights))}, ("group",))

        def sweep_chain(chain_key: Key, state: NetworkState) -> tuple[NetworkState, Array]:
            for sweep in range(num_sweeps):
                sweep_key = jax.random.fold_in(chain_key, sweep)
                state, _ = sweep_prior(network, "group", sweep_key, state, data)
            counts = _counts(network, "group", state, data)[0]
            return state, jnp.sum(counts[:, None] == sizes, axis=0).astype(weights.dtype)

        keys = jax.random.split(jax.random.fold_in(key, index), state.slots["group"].shape[0])
        state, counts = jax.vmap(sweep_chain)(keys, state)
        rate = learning_rate / (1 + index / 50)
        difference = targets - jnp.mean(counts, axis=0) - shrinkage * weights
        weights = weights + rate * difference
        return (weights, state), weights

    start = jax.scipy.special.gammaln(sizes.astype(targets.dtype))  # those of a Dirichlet process
    (_, state), history = jax.lax.scan(one, (start, state), jnp.arange(num_steps))
    return history, state
