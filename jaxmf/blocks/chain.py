"""The Markov chain of a network: its plan, its step, what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from jaxmf import slots
from jaxmf._kernels.tables import count_pairs
from jaxmf.arguments import MOST_SLOTS, check_count, check_word
from jaxmf.blocks import (
    in_kernel,
    parallel,
    sequential,
    sparse,
    sparse_by_word,
    tile_layout,
    tile_shares,
    tiles,
)
from jaxmf.blocks.counts import all_parts, block_statistics, large_blocks, slot_sizes
from jaxmf.blocks.density import log_joint_of
from jaxmf.blocks.hyperparameters import is_updated, update_hyperparameters
from jaxmf.blocks.in_kernel import PARALLEL, PARTIALLY_COLLAPSED
from jaxmf.blocks.sets import Carried, sweep_tokens
from jaxmf.blocks.split_merge import can_split, split_merge
from jaxmf.blocks.split_merge_shared import can_split_shared, split_merge_shared
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.subset import random_tokens, sweep_subset
from jaxmf.blocks.tile_shares import TileShares
from jaxmf.blocks.unobserved import holders, sweep_unobserved
from jaxmf.blocks.whole_sets import sweep_sets
from jaxmf.blocks.wiring import BlockModel, BlockParts, Wiring
from jaxmf.data import Tokens
from jaxmf.devices import AUTO
from jaxmf.engine import Info, merge_overflow
from jaxmf.priors.hdp import HDP
from jaxmf.priors.hyper import is_fixed
from jaxmf.priors.partition_prior import PartitionPrior, is_kind, missing_hook
from jaxmf.priors.partitions import Dirichlet, DirichletProcess, PitmanYor
from jaxmf.types import Array, Draw, Key, PyTree

KEEP = ("statistics", "compact", "assignments", "scalars")
SWEEPS = ("sequential", "sparse", *PARALLEL)
_SHARED_SCANS = 1  # restricted Gibbs scans of a split or merge where all batches share groups
_SHARE = 40  # of a proposal there: a fortieth of all tokens in the mean at most, and
_LEAST_TOKENS = 1_000  # of a small corpus as many as that
_MANY_TOKENS = 10**7  # of which lists of words are longer, and further apart, than of documents
_FEW = 256  # tokens that a parallel step updates one after the other


Layout = tile_layout.TileLayout | TileShares


@jax.tree_util.register_static
@dataclass(frozen=True)
class NetworkPlan:
    """The structural options of the sampler, all of them static: equal ones compile nothing new."""

    # the indicators in the order in which they are drawn, those of a set together
    sets: tuple[tuple[str, ...], ...]
    keep: str  # what a draw holds
    # of growing indicators to begin with; None for as many as the start asks for
    num_slots: int | None
    sweep: str  # one of `SWEEPS`
    split_merge: int  # proposals a step for every indicator that they are for


def plan(
    network: Wiring,
    *,
    joint: tuple[tuple[str, ...], ...],
    keep: str,
    capacity: int | None,
    sweep: str = "sequential",
    split_merge: int = 0,
) -> NetworkPlan:
    """The plan of checked options.

    Raises ValueError: an option has a value that does not exist or that the network cannot have.
    """
    check_word("keep", keep, KEEP)
    if capacity is not None:
        capacity = check_count("capacity", capacity, most=MOST_SLOTS)
    if sweep not in SWEEPS:
        known = ", ".join(map(repr, (AUTO, *SWEEPS)))
        raise ValueError(f"sweep must be one of {known}, got {sweep!r}")
    check_count("split_merge", split_merge, 0)
    in_kernel.check(network, sweep)
    if sweep in PARALLEL and (fault := next(_against_parallel(network), None)):
        raise fault
    if keep == "compact" and not sparse_by_word.can_be_sparse(network):
        raise ValueError(
            'keep: "compact" is for networks of topics, as LDA, HDPLDA and PAM of two levels; '
            'leave it at "statistics"'
        )
    if sweep == "sparse" and not sparse_by_word.can_be_sparse(network):
        raise ValueError(
            'sweep: "sparse" is for topics with a Dirichlet or HDP prior, or two levels of topics '
            "with Dirichlet priors, and one observed DirichletMultinomial block by topic alone, as "
            'LDA, HDPLDA and PAM of two levels have; leave it at "sequential"'
        )
    if sweep in ("sparse", PARTIALLY_COLLAPSED) and len(network.indicators) > 1:
        joint = (network.indicators,)  # it knows no other way
    fits = (can_split(network, n) or can_split_shared(network, n) for n in network.indicators)
    if split_merge and not any(fits):
        raise ValueError(
            "split_merge: is for indicators with a DirichletProcess, PitmanYor or HDP prior whose "
            "groups partition observed blocks only; this network has none"
        )
    named = _joint_indicators(network, joint)
    alone = [(name,) for name in network.indicators if name not in named]
    together = [tuple(sorted(chosen, key=network.order.index)) for chosen in joint]
    sets = sorted([*alone, *together], key=lambda chosen: network.order.index(chosen[0]))
    return NetworkPlan(tuple(sets), keep, capacity, sweep, split_merge)


def _joint_indicators(network: Wiring, joint: Sequence[Sequence[str]]) -> list[str]:
    """The indicators in sets that are drawn together; refuses other names and repeated ones."""
    is_sets = isinstance(joint, tuple | list)
    if not is_sets or not all(isinstance(chosen, tuple | list) for chosen in joint):
        raise TypeError(
            f'joint must be sets of indicators, such as (("super", "sub"),), got {joint!r}'
        )
    over_sets = [name for name in network.indicators if network.blocks[name].per]
    named = [name for chosen in joint for name in chosen]
    for name in named:
        if name not in network.indicators:
            raise ValueError(
                f"joint: {name!r} is no latent indicator; there are "
                f"{', '.join(map(repr, network.indicators))}"
            )
    for name in named:
        if name in over_sets or name in network.tables:
            raise ValueError(f"joint: {name!r} has to do with sets of tokens, and is drawn alone")
    if len(set(named)) != len(named):
        raise ValueError(f"joint: an indicator stands in two sets of {joint}")
    return named


def can_be_parallel(network: Wiring) -> bool:
    """Whether the network has the parallel sweep."""
    return next(_against_parallel(network), None) is None


def _against_parallel(network: Wiring) -> Iterator[Exception]:
    """Reasons why the network has no parallel sweep, as errors."""
    for name in network.indicators:
        block = network.blocks[name]
        if block.per:
            yield ValueError(f"sweep: 'parallel' is not for {name!r}, which has values of sets")
        elif not block.distribution.sequential:
            yield ValueError(
                f"sweep: 'parallel' is not for {name!r}: a FlexiblePrior has no probabilities of "
                "groups that items are independent given; leave it at 'sequential'"
            )
        elif not _has_weight_shapes(block.distribution):
            where = f'{name}: sweep="parallel"'
            yield missing_hook(block.distribution, "weight_shapes", where, "sweep='sequential'")


def _has_weight_shapes(distribution: PartitionPrior) -> bool:
    known = (Dirichlet, DirichletProcess, PitmanYor, HDP)
    define = [kind for kind in type(distribution).__mro__ if "weight_shapes" in vars(kind)]
    return define[0] is not PartitionPrior and (
        define[0] not in known or is_kind(distribution, *known)
    )


def step(
    plan: NetworkPlan,
    model: BlockModel,
    key: Key,
    state: NetworkState,
    data: object,
    progress: Array,
) -> tuple[NetworkState, Info]:
    """See `update`."""
    del progress
    data, layout = tile_shares.opened(data)
    network, tokens = model.over(data)
    return update(plan, network, key, state, tokens, layout)


def prepare(plan: NetworkPlan, model: BlockModel, data: object) -> object:
    """The data with a layout of their tokens where the sweep goes by tiles."""
    network, tokens = model.over(data)
    is_tiled = plan.sweep == "parallel" and tile_layout.are_tiled(network, tokens)
    return tile_layout.Tiled(data, tile_layout.layout_of(network, tokens)) if is_tiled else data


def update(
    plan: NetworkPlan,
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
    layout: Layout | None = None,
) -> tuple[NetworkState, Info]:
    """Every set of indicators, then hyperparameters.

    Of the key, with n sets: 0 to n - 1 are their sequential sweeps, n the hyperparameters, n + 1 to
    2n parallel sweeps, 2n + 1 splits and merges, 3n + 2 groups of what is not observed.
    """
    if plan.sweep in PARALLEL:
        state, overflow = _parallel_sweeps(plan, network, key, state, data, layout)
    else:
        state, overflow = _sequential_sweeps(plan, network, key, state, data)
    if holders(network):
        index_key = jax.random.fold_in(key, 3 * len(plan.sets) + 2)
        state, info = sweep_unobserved(network, index_key, state, data)
        overflow = merge_overflow(overflow, info.overflow)
    if any(is_updated(network.distributions[name]) for name in network.order):
        index_key = jax.random.fold_in(key, len(plan.sets))
        at_once = plan.sweep in PARALLEL
        counts = None
        if isinstance(layout, TileShares):
            counts = layout.tables(network, state.values)
        state, _ = update_hyperparameters(
            network, index_key, state, data, at_once=at_once, counts=counts
        )
    return state, Info(overflow=overflow)


def _sequential_sweeps(
    plan: NetworkPlan, network: Wiring, key: Key, state: NetworkState, data: Tokens
) -> tuple[NetworkState, dict[str, Array]]:
    overflow: dict[str, Array] = {}
    carried: dict[str, Carried] = {}  # by the sets that they are of
    for index, names in enumerate(plan.sets):
        index_key = jax.random.fold_in(key, index)
        handed_on = carried.get(names[0])
        carried = {}  # right for the very next sweep alone
        set_variable = network.tables.get(names[0])
        if set_variable is not None:
            state, info, carried[set_variable] = sweep_tokens(
                network, names[0], set_variable, index_key, state, data
            )
        elif network.blocks[names[0]].per:
            state, info = sweep_sets(network, names[0], index_key, state, data, handed_on)
        elif plan.sweep == "sparse":
            # document by document; word by word of paths, and where tokens are many
            if len(names) == 1 and data.num_tokens < _MANY_TOKENS:
                state, info = sparse.sweep(network, names[0], index_key, state, data)
            else:
                state, info = sparse_by_word.sweep(network, index_key, state, data)
        else:
            state, info = sequential.sweep(network, names, index_key, state, data)
        overflow = merge_overflow(overflow, info.overflow)
    return _split_merge(plan, network, key, state, data, overflow)


def _parallel_sweeps(
    plan: NetworkPlan,
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
    layout: Layout | None,
) -> tuple[NetworkState, dict[str, Array]]:
    """Groups made and removed by a few tokens, of all sets first; then all tokens of every set.

    In this order whether there was room depends on sequential updates alone, which make the same
    choices when the step is repeated with more slots.
    """
    overflow: dict[str, Array] = {}
    in_turn = plan.sweep == PARTIALLY_COLLAPSED
    sweep_few = in_kernel.sweep_few if in_turn else sweep_subset
    for index, names in enumerate(plan.sets):
        if any(network.distributions[name].grows for name in names):
            tokens_key, sweep_key = jax.random.split(jax.random.fold_in(key, index))
            num_chosen = min(_FEW, data.num_tokens)
            chosen = random_tokens(tokens_key, data.num_tokens, num_chosen)
            state, info = sweep_few(network, names, sweep_key, state, data, chosen)
            overflow = merge_overflow(overflow, info.overflow)
    state, overflow = _split_merge(plan, network, key, state, data, overflow)
    if layout is not None or (not in_turn and tile_layout.are_tiled(network, data)):
        layout = tile_layout.layout_of(network, data) if layout is None else layout
        index_key = jax.random.fold_in(key, len(plan.sets) + 1)
        return tiles.sweep(network, index_key, state, data, layout), overflow
    for index, names in enumerate(plan.sets):
        index_key = jax.random.fold_in(key, len(plan.sets) + 1 + index)
        state = parallel.sweep(network, names, index_key, state, data, in_kernel=in_turn)
    return state, overflow


def _split_merge(
    plan: NetworkPlan,
    network: Wiring,
    key: Key,
    state: NetworkState,
    data: Tokens,
    overflow: dict[str, Array],
) -> tuple[NetworkState, dict[str, Array]]:
    if not plan.split_merge:
        return state, overflow
    for index, name in enumerate(network.indicators):
        index_key = jax.random.fold_in(jax.random.fold_in(key, 2 * len(plan.sets) + 1), index)
        if can_split(network, name):
            move: Callable[..., tuple[NetworkState, Info]] = split_merge
        elif can_split_shared(network, name):
            most_tokens = max(data.num_tokens // _SHARE, _LEAST_TOKENS)
            move = partial(split_merge_shared, num_scans=_SHARED_SCANS, most_tokens=most_tokens)
        else:
            continue
        state, info = move(network, name, index_key, state, data, num_proposals=plan.split_merge)
        overflow = merge_overflow(overflow, info.overflow)
    return state, overflow


def record(
    plan: NetworkPlan, model: BlockModel, key: Key, state: NetworkState, data: object
) -> Draw:
    """Arrays of a draw, by name; names of a block's quantities begin with the block's.

    Fixed hyperparameters are the model's and not a draw's.
    """
    del key
    data, layout = tile_shares.opened(data)
    network, data = model.over(data)
    large = large_blocks(network, data, slot_sizes(state, network))
    without = large if plan.keep in ("compact", "scalars") else ()
    log_prob_of_items = None
    if isinstance(layout, TileShares):
        statistics = layout.statistics(network, state, without=without)
        log_prob_of_items = partial(layout.log_prob_of_documents, network, state)
    else:
        statistics = block_statistics(network, state, data, without=without)
    few = {name: leaves for name, leaves in statistics.items() if name not in large}
    draw = {"log_joint": log_joint_of(network, state, data, few, log_prob_of_items)}
    for name, occupied in state.slots.items():
        draw[f"num_{name}"] = jnp.sum(occupied, dtype=jnp.int32)
    for name, hyperparameters in state.hyperparameters.items():
        distribution = network.distributions[name]
        draw |= {
            f"{name}_{label}": value
            for label, value in hyperparameters.items()
            if label not in distribution.hyperparameters
            or not is_fixed(getattr(distribution, label))
        }
    if plan.keep == "scalars":
        return {label: value for label, value in draw.items() if value.ndim == 0}
    parts = all_parts(network, state, data)
    for name, leaves in statistics.items():
        draw |= kept_statistics(name, parts[name], leaves)
    if isinstance(layout, TileShares):
        if without or plan.keep == "assignments":
            state = layout.in_order_of_data(state)
    else:
        draw |= _tokens_of_sets(network, state, data)
    for name in without:
        draw |= _instead_of_counts(network, name, state)
    if plan.keep == "assignments":
        draw |= {f"{name}_of_tokens": values for name, values in state.values.items()}
    return draw


def _instead_of_counts(network: Wiring, name: str, state: NetworkState) -> dict[str, Array]:
    """The tokens of every group, and the groups of tokens that counts can be made of."""
    num_groups = slot_sizes(state, network)[name]
    totals = count_pairs(jnp.zeros_like(state.values[name]), state.values[name], (1, num_groups))
    latent = [parent for parent in network.blocks[name].by if parent in network.indicators]
    groups = {f"{each}_of_tokens": _narrow(network, each, state) for each in (*latent, name)}
    return {f"{name}_totals": totals[0], **groups}


def _narrow(network: Wiring, name: str, state: NetworkState) -> Array:
    """The values of an indicator, (T,) of the least unsigned integers that hold them."""
    largest = slot_sizes(state, network)[name] - 1
    dtypes = (dtype for dtype in (jnp.uint8, jnp.uint16) if largest <= jnp.iinfo(dtype).max)
    return state.values[name].astype(next(dtypes, jnp.uint32))


def _tokens_of_sets(network: Wiring, state: NetworkState, data: Tokens) -> dict[str, Array]:
    """Tokens of every group of sets of tokens, by the column that the sets are made in: (N, K).

    The counts of such an indicator are of sets, which do not say in which document a group is.
    """
    kept = {}
    for sets, name in network.tables.items():
        num_groups = slot_sizes(state, network)[name]
        for column in network.blocks[sets].by:
            if column in data.columns:
                empty = jnp.zeros((data.sizes[column], num_groups), jnp.int32)
                pairs = (data.columns[column], state.values[name])
                kept[f"{name}_by_{column}"] = empty.at[pairs].add(1)
    return kept


def kept_statistics(name: str, parts: BlockParts, statistics: PyTree) -> dict[str, Array]:
    """Statistics under the names and in the shapes of a draw: an axis for every parent."""
    if isinstance(statistics, jax.Array):
        return {f"{name}_counts": statistics.reshape(*parts.shape, statistics.shape[-1])}
    return {
        f"{name}_{label}": _with_axes(label, leaf, parts.shape)
        for label, leaf in statistics._asdict().items()
    }


def _with_axes(label: str, leaf: Array, shape: tuple[int, ...]) -> Array:
    if label == "cells":  # values first, see `Counts`
        return leaf.reshape(leaf.shape[0], *shape)
    return leaf.reshape(*shape, *leaf.shape[1:])


def grow(state: NetworkState, sizes: dict[str, int]) -> NetworkState:
    """The state with more slots for the values of growing indicators."""
    hyperparameters = dict(state.hyperparameters)
    for name, size in sizes.items():
        if "weights" in hyperparameters[name]:
            weights = slots.pad_axis(hyperparameters[name]["weights"], 0, size)
            hyperparameters[name] = hyperparameters[name] | {"weights": weights}
        if "unobserved" in hyperparameters[name]:
            unobserved = slots.pad_axis(hyperparameters[name]["unobserved"], 1, size)
            hyperparameters[name] = hyperparameters[name] | {"unobserved": unobserved}
    occupied = {
        name: slots.pad_axis(in_use, 0, sizes.get(name, in_use.shape[0]))
        for name, in_use in state.slots.items()
    }
    return state._replace(hyperparameters=hyperparameters, slots=occupied)


def capacity(state: NetworkState) -> dict[str, int]:
    """Slots of the growing indicators."""
    return {name: occupied.shape[-1] for name, occupied in state.slots.items()}
