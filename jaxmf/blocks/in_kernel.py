"""Where topics of documents are drawn by the kernel for GPUs (`_kernels/token_draw.py`)."""

from __future__ import annotations

import math

import jax
import numpy as np

from jaxmf._kernels import token_draw
from jaxmf.blocks.sparse_by_word import can_be_sparse
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens

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
    priors = [network.blocks[name].distribution for name in network.indicators]
    if priors[-1].grows:
        # with few slots and with the most: of those between no one is tried
        sizes = [(1, _FEW_SLOTS), (1, token_draw.MOST_TOPICS)]
    else:
        sizes = [(math.prod(p.num_groups(1) for p in priors[:-1]), priors[-1].num_groups(1))]
    return next(filter(None, (token_draw.trouble(platform, *size) for size in sizes)), "")


def are_short(network: Wiring, data: Tokens) -> bool:
    """Whether all documents are here, and none is so long that a GPU would wait for it."""
    if data.elsewhere is not None:
        return False
    (column,) = network.blocks[network.indicators[0]].by
    sizes = np.bincount(np.asarray(data.columns[column]), minlength=1)
    return int(sizes.max()) <= max(_LONG, data.num_tokens // _SHARE)
