"""Whether chains agree on topics, where a concentration mixes slowly.

A concentration of words moves little in a sweep, so that its R-hat, and that of the log joint with
it, may be above one when the topics have long settled. So the topics are looked at themselves, as
cells are of real factors (``agreement.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxmf.posterior.agreement import FEWEST_DRAWS
from jaxmf.posterior.draws import Draws, once
from jaxmf.posterior.topic_draws import (
    MatchedTopics,
    has_topics,
    match,
    matched_words,
    topic_blocks,
)

LARGEST_TOPIC_RHAT = 1.1  # chance alone takes one of ten topics of a short run above 1.05
_SHARE_BELOW = 0.95  # of the tokens, as of the cells
_MOST_WORK = 3e8  # products for each of the 100 draws that are matched: some seconds in all


class TopicAgreement(NamedTuple):
    """How far chains agree on topics.

    Args:
        rhat: (G,) of the words of each topic, in the order of `Posterior.topics`.
        shares: (G,) of all tokens, averaged over draws.
    """

    rhat: np.ndarray
    shares: np.ndarray

    @property
    def subject(self) -> str:
        """What chains are asked to agree on."""
        return "topics"

    @property
    def share(self) -> float:
        """What part of the tokens is in topics with an R-hat below 1.1."""
        return float(self.shares[self.rhat < LARGEST_TOPIC_RHAT].sum())

    @property
    def is_good(self) -> bool:
        """Whether the topics may be read: those with an R-hat below 1.1 have 95 % of the tokens."""
        return self.share >= _SHARE_BELOW

    def described(self, slow: list[str]) -> str:
        """A sentence on which quantities have converged and which have not."""
        return (
            f"chains agree on {self.subject} (those with {self.share:.0%} of the tokens have an "
            f"R-hat below {LARGEST_TOPIC_RHAT}), not yet on {', '.join(slow)}"
        )


@once
def topic_agreement(posterior: Draws) -> TopicAgreement | None:
    """How far chains agree on topics, matched across draws as in `Posterior.topics`.

    Where topics with 95 % of the tokens have an R-hat below 1.1, one above 1.05 of a concentration
    or the log joint is said by the summary and is no alarm. The R-hat of a topic is that of
    sqrt(share * phi_w), its words taken together, so that squared distances are Hellinger's:
    R^2 = (n - 1) / n + B / W, B the variance between the means of halves of chains, W that within
    halves of n draws, both summed over words. A draw without the topic has none of its tokens. Kept
    once computed.

    Returns:
        None for models without topics, for one chain or fewer than 100 draws a chain, and for
        topics and words too many to match in seconds (K^2 V above 3e8).
    """
    if posterior.meta.method != "sample" or not has_topics(posterior):
        return None
    if posterior.num_chains < 2 or posterior.num_draws < FEWEST_DRAWS:
        return None
    num_words, num_slots = posterior.draws[f"{topic_blocks(posterior).word}_cells"].shape[2:]
    if num_words * num_slots**2 > _MOST_WORK:
        return None
    matched = match(posterior)
    return TopicAgreement(_rhats(posterior, matched), matched.weights @ matched.shares)


def _rhats(posterior: Draws, matched: MatchedTopics) -> np.ndarray:
    """(G,) R-hats of topics, see `topic_agreement`."""
    halves = 2 * matched.chains + (2 * matched.draws >= posterior.num_draws)
    num_halves, size = 2 * posterior.num_chains, matched.draws.size / (2 * posterior.num_chains)
    total = np.zeros(matched.word_probabilities.shape)
    # W and the squared lengths of the means of halves, which are all that B needs beside their sum
    within, squares = np.zeros(len(total)), np.zeros(len(total))
    for half in range(num_halves):
        here = np.flatnonzero(halves == half)
        mean = np.zeros(total.shape)
        for index, words in zip(here, matched_words(posterior, matched, here), strict=True):
            mean += np.sqrt(matched.shares[index][:, None] * words) / here.size
        square = (mean**2).sum(axis=1)
        within += (matched.shares[here].mean(axis=0) - square) / num_halves
        squares += square
        total += mean
    between = (squares - (total**2).sum(axis=1) / num_halves) / (num_halves - 1)
    within *= size / (size - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhats = np.sqrt((size - 1) / size + np.maximum(between, 0) / within)
    # a topic of no averaged draw has no spread at all, and no share either
    return np.asarray(np.nan_to_num(rhats, nan=1.0, posinf=np.inf))
