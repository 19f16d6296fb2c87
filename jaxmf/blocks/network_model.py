"""What every model made of a network has: the sampler, the joint density, the answers of a draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.tree_util import Partial

from jaxmf._kernels.fusion import LONG_ROW, wide_vectors
from jaxmf.blocks import chain, in_kernel, starting, tile_shares
from jaxmf.blocks.counts import MOST_CELLS, num_cells
from jaxmf.blocks.density import log_joint
from jaxmf.blocks.prediction import Draw, category_probabilities
from jaxmf.blocks.simulation import simulate, simulate_more
from jaxmf.blocks.sparse_by_word import can_be_sparse
from jaxmf.blocks.split_merge_shared import can_split_shared
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.tile_layout import can_be_tiled
from jaxmf.blocks.unobserved import check_coverage
from jaxmf.blocks.wiring import Wiring
from jaxmf.data import Tokens
from jaxmf.devices import AUTO, choose_sweep, default_platform
from jaxmf.engine import Algorithm, algorithm
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.likelihoods.families.family import Family
from jaxmf.model import Model, ModelData
from jaxmf.priors.partition_prior import missing_hook
from jaxmf.readable import Readable
from jaxmf.row_shards import DATA_AXIS
from jaxmf.types import Array, Key, Names, PyTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MANY_CELLS = 2**28
"""From how many counts of topics of documents on the sweep is sparse: it would keep two, 2 GB."""

MOST_KEPT_TOKENS = 10_000
"""From more tokens or rows on, draws do not keep the group of each: 2,000 draws take 80 MB."""

_FEW_TOKENS = 2**15
"""Up to how many words topics of an HDP are split and merged by default: see `sampler`."""

_SPLIT_MERGE = 2
"""Proposals a sweep there."""

_MANY_TOPICS = 1_000
"""From how many topics of documents on, of a fixed number, the sparse sweep is the faster one."""


class NetworkModel(Readable, Model[ModelData], ABC):
    """Base of the models that are short descriptions of a network.

    Attributes:
        joint: sets of indicators that the sampler draws together by default.
    """

    joint: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def network(self) -> Wiring:
        """The blocks that the model is made of."""

    def plot(self) -> Figure:
        """The network as a picture: a box a block, shaded where observed, arrows from parents."""
        from jaxmf.plot.network import network_picture

        return network_picture(self.network())

    @abstractmethod
    def tokens(self, data: Any) -> Tokens:
        """The data as the tokens of the network."""

    def over(self, data: Any) -> tuple[Wiring, Tokens]:
        """The network with its sizes, and the tokens."""
        tokens = self.tokens(data)
        return self.network().at(tokens), tokens

    def check_data(self, data: Any, name: str) -> None:
        """Refuses data that the network cannot take.

        Raises:
            ValueError: the data and the network do not fit together.
        """
        check_tokens(self.network(), self.tokens(data), name)

    def log_joint(self, state: NetworkState, data: object) -> Array:
        """log p(indicators, observed values, hyperparameters), parameters summed out.

        The weights of an HDP are part of the state and have their density; labels of growing priors
        do not count.

        Args:
            state: of these data.
            data: as the model takes it.
        Returns:
            () float.
        """
        network, tokens = self.over(data)
        return log_joint(network, state, tokens)

    def simulate_like(self, key: Key, data: object) -> tuple[NetworkState, Any]:
        """A state from the prior, and tokens given it; columns that are no blocks stay.

        Raises:
            TypeError: the data of the model are no tokens.
        """
        if not isinstance(data, Tokens):
            raise missing_hook(self, "simulate_like", "check_model", "joint_distribution=False")
        network, tokens = self.over(data)
        return simulate(network, key, tokens)

    def simulate_more(
        self, key: Key, state: NetworkState, data: PyTree
    ) -> tuple[NetworkState, PyTree, dict[str, Array]]:
        if not isinstance(data, Tokens):
            raise missing_hook(self, "simulate_more", "simulation_based_calibration", "data=None")
        network, tokens = self.over(data)
        return simulate_more(network, key, state, tokens)

    def names(self, data: Any, column: str) -> Names | None:
        """The ids of the levels of a column, or None."""
        return data.names.get(column)

    def token_columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns that tokens need: those of ids, and those of real values."""
        network = self.network()
        real = tuple(name for name in network.observed if network.distributions[name].is_log)
        return tuple(name for name in network.columns if name not in real), real

    def category_table(self, draw: Draw, data: object, name: str) -> Array:
        """E[phi] of an observed block of categories in every part: (*parts, V) float."""
        network, _ = self.over(data)
        return category_probabilities(network, draw, name)

    def device_options(
        self, options: Mapping[str, object], *, platform: str, data: Any = None
    ) -> dict[str, object]:
        """The sweep, splits and merges of groups, and what draws keep: see `Model`.

        They are compact where counts are many, and have the groups of few sets of tokens (`per`).
        """
        num_counts = 0 if data is None else self._num_counts(data, options.get("capacity"))
        found: dict[str, object] = {}
        if "keep" not in options and num_counts > MOST_CELLS:
            found["keep"] = "compact"
        elif "keep" not in options and self._has_few_sets(data):
            found["keep"] = "assignments"
        if "split_merge" not in options and platform == "cpu" and self._has_few_shared(data):
            found["split_merge"] = _SPLIT_MERGE
        if (named := options.get("sweep", AUTO)) == AUTO:
            found["sweep"] = self._sweep_on(platform, data, num_counts)
        else:
            in_kernel.check_platform(self.network(), named, platform)
        return found

    def _num_counts(self, data: object, capacity: object) -> int:
        """Counts of topics of documents at the start; 0 of networks that have no sparse sweep."""
        if not can_be_sparse(self.network()):
            return 0
        over = self.over(data)
        slots = starting.first_slots(
            *over, capacity=capacity if isinstance(capacity, int) else None
        )
        return num_cells(*over, slots)

    def _sweep_on(self, platform: str, data: object, num_counts: int) -> str:
        """The sweep on a platform where none is named."""
        network = self.network()
        is_many = num_counts > _MANY_CELLS or self._has_many_topics()
        if platform == "cpu" and is_many and can_be_sparse(network):
            return "sparse"
        grows = any(network.distributions[name].grows for name in network.indicators)
        num_tokens = None
        if platform != "cpu" and data is not None:
            num_tokens = self.over(data)[1].num_tokens
        sweep = choose_sweep(
            "growing_tokens" if grows else "tokens",
            platform,
            num_tokens,
            can_be_parallel=platform == "cpu" or chain.can_be_parallel(network),
        )
        if sweep == "parallel" and in_kernel.fits(network):
            are_short = data is None or in_kernel.are_short(network, self.over(data)[1])
            if are_short and not in_kernel.trouble(network, platform):
                return in_kernel.PARTIALLY_COLLAPSED
        return sweep

    def device_notes(
        self, passed: Mapping[str, object], options: Mapping[str, object], *, platform: str
    ) -> tuple[str, ...]:
        """Why tokens were not drawn by the kernel for GPUs, where that was tried: see `Model`."""
        is_left = passed.get("sweep", AUTO) == AUTO and options.get("sweep") == "parallel"
        if platform != "gpu" or not is_left or not in_kernel.fits(self.network()):
            return ()
        why = in_kernel.trouble(self.network(), platform)
        return (f"topics were drawn without the kernel for GPUs: {why}",) if why else ()

    def _has_few_sets(self, data: object) -> bool:
        """Whether sets of tokens that stay the same have a group each, and tokens are few."""
        network = self.network()
        sets_of_groups = network.tables.values()
        has_sets = any(b.per and n not in sets_of_groups for n, b in network.blocks.items())
        return has_sets and data is not None and self.over(data)[1].num_tokens <= MOST_KEPT_TOKENS

    def _has_few_shared(self, data: object) -> bool:
        """Whether documents share topics that can be split and merged, and words are few.

        Other networks with an HDP were not measured.
        """
        network = self.network()
        has_words = all(
            isinstance(network.distributions[name], DirichletMultinomial)
            for name in network.observed
        )
        if data is None or not has_words or len(network.indicators) != 1:
            return False
        (topic,) = network.indicators
        few = self.over(data)[1].num_tokens <= _FEW_TOKENS
        return few and can_split_shared(network, topic)

    def _has_many_topics(self) -> bool:
        """Whether a single indicator has a fixed number of groups, and many."""
        network = self.network()
        priors = [network.distributions[name] for name in network.indicators]
        return len(priors) == 1 and not priors[0].grows and priors[0].num_groups(1) >= _MANY_TOPICS

    def mesh_axes(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """The parallel sweep spreads tokens over "data": see `Model`."""
        return (DATA_AXIS,) if options.get("sweep") in in_kernel.PARALLEL else ()

    def sampler(
        self,
        *,
        sweep: str = AUTO,
        split_merge: int = 0,
        joint: tuple[tuple[str, ...], ...] | None = None,
        keep: str = "statistics",
        capacity: int | None = None,
    ) -> Algorithm:
        """Gibbs sampling: every indicator of every token, then hyperparameters.

        Args:
            sweep: "sequential", one token after the other with all parameters summed out, or
                "parallel": all tokens at once given parameters drawn for the purpose, and over the
                devices of a mesh axis "data". On a CPU topics of documents with a Dirichlet prior
                over words, as LDA has, go by tiles: tokens with other documents and other groups
                of words at the same time, given how much each topic has of every group of words,
                with all else summed out; it mixes nearly as the first. Other indicators by a column
                whose groups have categories are drawn document by document: on a CPU the tokens of
                each in turn with their probabilities in it summed out; on accelerators with these
                drawn for a block of documents, its tokens at once. All are exact; but for tiles the
                second mixes more slowly a sweep than the first. "partially_collapsed", for LDA,
                HDPLDA and PAM of two levels: words of topics drawn, documents side by side, the
                tokens of each in turn with its proportions summed out; on a GPU one kernel, which
                is tried there first and refused if it fails. No one has run it on a GPU.
                Where groups come and go it starts with sequential updates of 256 tokens, which make
                and remove groups. "sparse", for LDA, HDPLDA and PAM of two levels on a CPU: as
                "sequential", with work a token that follows the topics of its word (the paths, and
                from 10^7 tokens on the topics, of its document) instead of all of them; for LDA
                slower below some 700 topics, faster with more.
                "auto": the first on a CPU and where the network has no other, "sparse" there for
                1,000 topics of LDA and more, and for more than 2^28 topics of documents, of which
                the first has two tables; on accelerators, but for few tokens, "parallel", or
                "partially_collapsed" where the kernel is right and no document is very long.
            split_merge: proposals a sweep to split a group or merge two, for every indicator with a
                DirichletProcess, PitmanYor or HDP prior whose groups partition observed blocks
                only; a few are worth their time where a chain stays in a wrong mode. Of an HDP they
                take out topics that double each other, and do not pay where all topics differ: the
                first proposal takes some 13 % of a sweep's time, each further one 8 %. Unless it is
                stated, `jaxmf.sample` makes two for HDPLDA up to 32,768 words on a CPU.
            joint: sets of indicators that are drawn together, such as (("super", "sub"),): exact,
                by sums over one after the other; mixes better where they depend on each other.
            keep: what a draw holds beside hyperparameters and the log joint: "statistics", the
                counts (and moments) of every block, which predictions need; "compact", the same
                of topic models, but the topic of every token in place of counts of topics of
                documents where these are more than 2^24; "assignments", the statistics and the
                value of every indicator of every token; "scalars", nothing more. `mf.sample`
                keeps "assignments" of mixtures of up to 10,000 rows, and "compact" draws of topics
                of that many documents, unless it is passed.
            capacity: slots of growing indicators to begin with, by default two for each group that
                the chain starts with, and a quarter more than groups from 205 on; when a sweep
                needs more they double, from 256 on they grow by half.
        Returns:
            Algorithm, whose growing axes are the indicators with a growing prior.
        Raises:
            ValueError: an option has a value that does not exist or that the network cannot have.
        """
        network = self.network()
        if sweep == AUTO:
            sweep = str(self.device_options({}, platform=default_platform())["sweep"])
        chosen = self.joint if joint is None else joint
        plan = chain.plan(
            network,
            joint=chosen,
            keep=keep,
            capacity=capacity,
            sweep=sweep,
            split_merge=split_merge,
        )
        sizes = [network.distributions[n].num_groups(capacity or 1) for n in network.indicators]
        is_parallel = sweep in in_kernel.PARALLEL
        is_wide = not is_parallel and max(sizes, default=0) >= LONG_ROW
        grows = any(network.distributions[name].grows for name in network.indicators)
        has_tiles = sweep == "parallel" and default_platform() == "cpu" and can_be_tiled(network)
        share_out = Partial(tile_shares.share_out, self) if has_tiles else tile_shares.gathered
        return algorithm(
            init=Partial(starting.init, plan, self),
            step=Partial(chain.step, plan, self),
            record=Partial(chain.record, plan, self),
            grow=chain.grow if grows else None,
            capacity=chain.capacity if grows else None,
            compiler_options=wide_vectors if is_wide else None,
            prepare=Partial(chain.prepare, plan, self) if is_parallel else None,
            row_arrays=Partial(tile_shares.row_arrays, self) if has_tiles else None,
            share_out=share_out if is_parallel else None,
        )


def check_tokens(network: Wiring, data: Tokens, name: str) -> None:
    """Refuses tokens that lack a column, or have values that a family does not know.

    Raises:
        ValueError: the data, which the user calls `name`, and the network do not fit together.
    """
    if not network.observed:
        raise ValueError(
            f"{name}: no block of the network is observed, so the data say nothing about it; "
            "declare the block of a column with observed=True"
        )
    have = {*data.columns, *data.values}
    for column in network.columns:
        if column not in have:
            raise ValueError(
                f"{name}: the tokens have no column {column!r}, which the network names; they "
                f"have {', '.join(map(repr, sorted(have)))}"
            )
        if column in data.values and column not in network.observed:
            raise ValueError(
                f"{name}: {column!r} has real values and cannot partition anything; pass it as "
                "a column of indices"
            )
    for indicator in network.indicators:
        if indicator in have:
            raise ValueError(
                f"{name}: the tokens have a column {indicator!r}, which is a latent block; "
                "rename one, or declare the block observed=True"
            )
    sized = network.at(data)
    for block in network.observed:
        values: PyTree = data.columns[block] if block in data.columns else data.values[block]
        if data.elsewhere is not None:
            # how often each stands is checked where they are laid out
            values = np.flatnonzero(data.elsewhere.column_counts)
        family = sized.distributions[block]
        if family.is_log and block in data.columns:
            raise ValueError(
                f"{name}: {block!r} is a column of categories, and {type(family).__name__} needs "
                f"numbers: Tokens.from_columns(..., values={{{block!r}: ...}}) has them, and "
                "DirichletMultinomial is the family of categories"
            )
        if block in data.values and not family.takes_missing:
            _check_complete(values, family, block)
        family.check(values, block)
    slots = {n: network.distributions[n].num_groups(1) for n in network.indicators}
    for block in network.order:
        network.parts(block, network.sizes(data, slots))
    check_coverage(network, data)


def _check_complete(values: object, family: Family, name: str) -> None:
    """Refuses missing values where a family does not leave them out."""
    is_missing = np.isnan(np.asarray(values, float))
    if is_missing.any():
        kind = type(family).__name__
        first = int(np.argwhere(is_missing)[0, 0])
        raise ValueError(
            f"{name}: {int(is_missing.sum())} values are missing (NaN), the first at token "
            f"{first}, and {kind} takes complete ones. IndependentColumns(NormalInverseGamma()), "
            "or another family of single numbers in it, leaves missing ones out exactly"
        )
