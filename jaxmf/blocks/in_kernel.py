"""Where topics of documents are drawn by the kernels for GPUs, and those of a few tokens by theirs.

See `_kernels/token_draw.py` and `_kernels/token_births.py`.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import row_shards
from jaxmf._kernels import special, token_births, token_draw
from jaxmf._kernels.tables import count_pairs
from jaxmf.blocks.counts import slot_sizes
from jaxmf.blocks.sparse_by_word import can_be_sparse
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.subset import sweep_subset
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.devices import default_platform
from jaxmf.engine import Info
from jaxmf.types import Array, Key

PARTIALLY_COLLAPSED = "partially_collapsed"
PARALLEL = ("parallel", PARTIALLY_COLLAPSED)
# A document is a program, and its tokens follow one another: by an estimate of 4 microseconds a
# token (three reads that wait for each other, a running sum), the longest one takes more than all
# of a sweep at once where it has more tokens than this and more than this share of all.
_LONG = 1_000
_SHARE = 1_000
_FEW_SLOTS = 64  # of growing topics, as where a chain starts


def fits(network: Wiring) -> bool:
    """Whether it is words of topics by one column, as LDA, HDPLDA and PAM of two levels."""
    return can_be_sparse(network) and len(network.blocks[network.indicators[0]].by) == 1


def check(network: Wiring, sweep: str) -> None:
    """Refuses the sweep for networks that do not have it.

    Raises ValueError.
    """
    if sweep == PARTIALLY_COLLAPSED and not fits(network):
        raise ValueError(
            f"sweep: {sweep!r} is for words of topics by one column with a Dirichlet or HDP prior, "
            "or of two levels of topics with Dirichlet priors, as LDA, HDPLDA and PAM of two "
            'levels have; leave it at "parallel"'
        )


def check_platform(network: Wiring, sweep: object, platform: str) -> None:
    """Refuses the sweep where its kernel cannot be used.

    Raises ValueError.
    """
    if sweep != PARTIALLY_COLLAPSED or platform == "cpu" or not fits(network):
        return
    if why := trouble(network, platform):
        raise ValueError(
            f'sweep: {sweep!r} needs a kernel here, and {why}; leave it at "auto", which takes '
            '"parallel" then'
        )


def trouble(network: Wiring, platform: str) -> str:
    """Why the kernel cannot be used for a network that has it, empty where it can."""
    if jax.process_count() > 1:
        return "the devices of several processes may not all compile it alike"
    priors = [network.distributions[name] for name in network.indicators]
    if not priors[-1].grows:
        num_above = math.prod(prior.num_groups(1) for prior in priors[:-1])
        return token_draw.trouble(platform, num_above, priors[-1].num_groups(1))
    for size in (_FEW_SLOTS, token_draw.MOST_TOPICS):  # of those between no one is tried
        if why := token_draw.trouble(platform, 1, size) or token_births.trouble(platform, size):
            return why
    return ""


def sweep_few(
    network: Wiring,
    names: tuple[str, ...],
    key: Key,
    state: NetworkState,
    data: Tokens,
    chosen: Array,
) -> tuple[NetworkState, Info]:
    """Kernel: as `sweep_subset`, on an accelerator in one program; other topics of the same key.

    There are no counts of documents and words that the chosen tokens do not have.
    """
    (topic,), num_slots = network.indicators, slot_sizes(state, network)[names[0]]
    # slots may have grown beyond what the kernel holds
    if default_platform() == "cpu" or num_slots > token_draw.MOST_TOPICS:
        return sweep_subset(network, names, key, state, data, chosen)
    ((word,), (column,)) = network.children(topic), network.blocks[topic].by
    sizes, groups = network.sizes(data, {topic: num_slots}), state.values[topic]
    width = token_births.padded(num_slots)
    prior_values, word_values = state.hyperparameters[topic], state.hyperparameters[word]
    num_words = network.distributions[word].size
    pseudo = jnp.broadcast_to(word_values["concentration"], (num_words,))
    documents, by_document = _counts_of(
        data.columns[column], groups, chosen, (network.parts(topic, sizes).num_parts, width)
    )
    words, by_word = _counts_of(data.columns[word], groups, chosen, (num_words, width))
    uniforms = special.uniforms(key, (chosen.shape[0], 2))
    log_kept = jnp.log1p(-uniforms[:, 1]) / prior_values["base_concentration"]
    scalars = jnp.stack([prior_values["concentration"], jnp.sum(pseudo), prior_values["rest"]])
    inputs = token_births.BirthInput(
        documents,
        words,
        groups[chosen],
        uniforms[:, 0],
        jnp.exp(log_kept),
        -jnp.expm1(log_kept),
        pseudo[data.columns[word][chosen]],
        scalars,
        jnp.full((1,), num_slots, jnp.int32),
        count_pairs(jnp.zeros_like(groups), groups, (1, width))[0],
        jnp.pad(prior_values["weights"], (0, width - num_slots)),
        by_document,
        by_word,
    )
    after = row_shards.on_its_device(token_births.draw)(inputs)
    weights = {"weights": after.weights[:num_slots], "rest": after.rest[0]}
    return NetworkState(
        state.values | {topic: groups.at[chosen].set(after.topics)},
        state.hyperparameters | {topic: prior_values | weights},
        state.slots | {topic: after.totals[:num_slots] > 0},
    ), Info(overflow={topic: after.no_room[0] > 0})


def _counts_of(
    items: Array, groups: Array, chosen: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Rows (S,) int32 of the chosen tokens' items, and their counts (S, K) float by group.

    Args: items, groups (T,) int32, within `shape`; chosen (S,) int32.
    """
    num_rows = chosen.shape[0]
    row_of = jnp.full((shape[0],), num_rows, jnp.int32)
    row_of = row_of.at[items[chosen]].min(jnp.arange(num_rows, dtype=jnp.int32))
    counts = jnp.zeros((num_rows, shape[1]), jnp.int32)
    counts = counts.at[row_of[items], groups].add(1, mode="drop")
    return row_of[items[chosen]], counts.astype(jnp.result_type(float))


def are_short(network: Wiring, data: Tokens) -> bool:
    """Whether all documents are here, and none is so long that a GPU would wait for it."""
    if data.elsewhere is not None:
        return False
    (column,) = network.blocks[network.indicators[0]].by
    sizes = np.bincount(np.asarray(data.columns[column]), minlength=1)
    return int(sizes.max()) <= max(_LONG, data.num_tokens // _SHARE)
