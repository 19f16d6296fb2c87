"""Flexible priors of partitions: log-linear in how many groups there are of every size.

    FP(g | N, lambda) ~ exp(sum_i lambda_i m_i + sum_a w_a phi_a(m)),    sum_i i m_i = N,

where m_i groups have i items (eq 7.2). A partition by a Dirichlet process is that of N items taken
at random from infinitely many. Here it need not be, so that groups may have a typical size. One
more item joins a group of b items with weight exp(lambda_{b+1} - lambda_b), and a new one with
exp(lambda_1) (eq 7.5, without common factors), so a sweep keeps one table of weights by size.

Source: Porteous (2010), chapter 7; Welling (2006), Flexible priors for infinite mixture models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jax.tree_util import Partial

from jaxmf._kernels import tables
from jaxmf.arguments import assign, check_count, check_function, check_number, check_numbers
from jaxmf.priors import flexible_distribution
from jaxmf.priors.flexible_weights import (
    WIDEST,
    FlexibleCache,
    Representatives,
    checked_num_unobserved,
    checked_steps,
    gamma_steps,
    joined,
    steps_of,
)
from jaxmf.priors.hyper import Hyperparameter, is_placeholder
from jaxmf.priors.partition_prior import Hyperparameters, PartitionPrior, at
from jaxmf.readable import show
from jaxmf.types import STATIC, Array, PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class FlexiblePrior(PartitionPrior):
    """A log-linear prior of partitions, of one batch of items or of each.

    Its distribution for fewer items differs from that for more items with some removed at random.
    So state how many there are in all: with `num_unobserved` the sweep has further items without
    data, whose groups are drawn like those of the others.

    Args:
        log_weights: (L,) lambda_1 to lambda_L, of groups of 1 to L items, finite; no batch may have
            more than L items. Adding c i to them, for any c, changes nothing.
        features: a function of m, (L,) float, to (F,): further features of the counts of groups.
            Without them a sweep costs what it does with a DirichletProcess; with them every choice
            asks for all features. jax.numpy only, as it is compiled.
        feature_weights: (F,) weights of the features; ones by default.
        num_unobserved: M, how many items there are beside those of the data; one number for all
            batches, or one for each.
        log_steps: instead of `log_weights`, (L,) lambda_i - lambda_{i-1} with lambda_0 = 0: for
            many items, differences of the large log_weights would lose their digits.
    Raises:
        TypeError, ValueError: weights that are not finite, or lengths that do not agree.
    Example:
        >>> prior = FlexiblePrior.dirichlet_process(2.0, num_items=3)
        >>> prior.log_weights.round(3).tolist()
        [0.693, 0.693, 1.386]
    """

    log_steps: Any
    features: Any
    feature_weights: Any
    num_unobserved: Any = field(metadata=STATIC)

    hyperparameters = ()

    def __init__(
        self,
        log_weights: object = None,
        features: Callable[[Array], Array] | None = None,
        feature_weights: object = None,
        *,
        num_unobserved: int | Sequence[int] | None = None,
        log_steps: object = None,
    ) -> None:
        check_function("features", features)
        if (log_weights is None) == (log_steps is None):
            raise TypeError("give either log_weights or log_steps, the differences between them")
        if log_weights is not None:
            steps = steps_of(log_weights)
        else:
            steps = checked_steps(log_steps)
        if features is not None and not isinstance(features, Partial) and callable(features):
            features = Partial(features)
        if features is not None and feature_weights is None:
            shape = jax.eval_shape(features, jnp.zeros(steps.shape)).shape
            feature_weights = jnp.ones(shape)
        assign(
            self,
            log_steps=steps,
            features=features,
            feature_weights=_as_floats(feature_weights),
            num_unobserved=checked_num_unobserved(num_unobserved),
        )
        self._check_features()

    def _check_features(self) -> None:
        leaves = jax.tree.leaves((self.log_steps, self.features, self.feature_weights))
        if any(is_placeholder(leaf) for leaf in leaves):
            return
        if self.features is None:
            if self.feature_weights is not None:
                raise ValueError(
                    "feature_weights: are those of `features`, of which there are none"
                )
            return
        if not callable(self.features):
            raise TypeError(f"features must be a function of m, got {self.features!r}")
        shape = jax.eval_shape(self.features, jnp.zeros(self.log_steps.shape)).shape
        if len(shape) != 1 or shape != np.shape(self.feature_weights):
            raise ValueError(
                f"features: gives an array of shape {shape} for counts of groups of 1 to "
                f"{self.num_items} items, and feature_weights has shape "
                f"{np.shape(self.feature_weights)}; both must be (F,)"
            )

    def __repr__(self) -> str:
        settings = {"log_weights": self.log_weights, "features": self.features}
        if self.features is not None:
            settings["feature_weights"] = self.feature_weights
        settings["num_unobserved"] = self.num_unobserved
        shown = [f"{name}={show(value)}" for name, value in settings.items() if value is not None]
        return f"FlexiblePrior({', '.join(shown)})"

    # --- special cases ----------------------------------------------------------------------------

    @classmethod
    def dirichlet_process(
        cls, concentration: Hyperparameter, *, num_items: int, **more: object
    ) -> FlexiblePrior:
        """The prior of a Dirichlet process: lambda_i = log alpha + log Gamma(i) (eq 7.1).

        Raises:
            ValueError: a concentration that is not positive.
        """
        check_count("num_items", num_items)
        if not is_placeholder(concentration):
            check_number("concentration", _plain(concentration), above=0)
        return cls.parametric(jnp.log(concentration), 1.0, 0.0, num_items=num_items, **more)

    @classmethod
    def pitman_yor(
        cls,
        concentration: object,
        discount: object,
        *,
        num_items: int,
        **more: int | Sequence[int] | None,
    ) -> FlexiblePrior:
        """The prior of a Pitman-Yor process.

        lambda_i = log Gamma(i - d) - log Gamma(1 - d), and one feature of the number of groups:
        phi_0(m) = sum_{0 < k < K} log(alpha + k d), without k = 0, so that alpha may be negative.

        Raises:
            ValueError: a discount outside [0, 1), or a concentration not above minus that.
        """
        check_count("num_items", num_items)
        if not is_placeholder(concentration) and not is_placeholder(discount):
            least = check_number("discount", _plain(discount), least=0, below=1)
            check_number("concentration", _plain(concentration), above=-least)
        hyperparameters = jnp.asarray([concentration, discount], jnp.result_type(float))
        steps = jnp.log(jnp.arange(num_items) - hyperparameters[1]).at[0].set(0)
        return cls(log_steps=steps, features=Partial(opened_tables, hyperparameters), **more)

    @classmethod
    def parametric(
        cls, a: Array | float, b: Array | float, c: Array | float, *, num_items: int, **more: Any
    ) -> FlexiblePrior:
        """lambda_i = a + b log Gamma(i + c) (eq 7.9); c above -1.

        Raises:
            ValueError: numbers that are not finite, or a smaller c.
        """
        check_count("num_items", num_items)
        for name, value, above in (("a", a, -np.inf), ("b", b, -np.inf), ("c", c, -1)):
            if not is_placeholder(value):
                check_number(name, _plain(value), above=above)
        return cls(log_steps=gamma_steps(a, b, c, num_items=num_items), **more)

    # --- questions --------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        """L, how many items a batch may have."""
        return self.log_steps.shape[0]

    @property
    def log_weights(self) -> Array | np.ndarray:
        """lambda: (L,) float."""
        if isinstance(self.log_steps, jax.core.Tracer):
            return jnp.cumsum(self.log_steps)
        return np.cumsum(np.asarray(self.log_steps, float))

    def log_normaliser(self, num_items: int) -> float:
        """log Z_N, exactly: the sum over all partitions of N items.

        Raises:
            ValueError: more items than the weights cover, or, with features, than 40.
        """
        self.check_items(num_items)
        with jax.enable_x64(True):
            if self.features is not None:
                return float(logsumexp(self._log_weights_of_signatures(num_items)))
            weights = jnp.asarray(self.log_weights[:num_items])
            return float(
                flexible_distribution.jitted_normalisers(weights)[-1] + gammaln(num_items + 1.0)
            )

    def expected_counts(self, num_items: int) -> np.ndarray:
        """E[m_i], exactly: how many groups of 1 to N items there are on average, (N,) float.

        Raises:
            ValueError: as `log_normaliser`.
        """
        self.check_items(num_items)
        with jax.enable_x64(True):
            if self.features is not None:
                share = jax.nn.softmax(self._log_weights_of_signatures(num_items))
                return np.asarray(share @ flexible_distribution.signatures(num_items).counts)
            return np.asarray(
                flexible_distribution.jitted_expected_counts(
                    jnp.asarray(self.log_weights[:num_items])
                )
            )

    def log_probability(self, groups: object, *, normalised: bool = True) -> float:
        """log FP(g | N) of one partition, in double precision.

        Args:
            groups: (N,) int, a label for each item.
            normalised: whether to subtract the log normaliser.
        Raises:
            ValueError: as `log_normaliser`.
        """
        labels = np.asarray(groups)
        self.check_items(labels.size)
        _, sizes = np.unique(labels, return_counts=True)
        counts = np.bincount(sizes, minlength=self.num_items + 1)[1:]
        with jax.enable_x64(True):
            total = float(
                self._log_of_counts(jnp.asarray(counts, jnp.result_type(float)), self.log_weights)
            )
        return total - self.log_normaliser(labels.size) if normalised else total

    def sample(self, key: Array, *, num_items: int, num_samples: int = 1) -> np.ndarray:
        """Independent draws of partitions of N items, from the exact distribution.

        Args:
            key: typed PRNG key.
            num_items: N.
            num_samples: S.
        Returns:
            (S, N) int32, labels without order.
        Raises:
            ValueError: as `log_normaliser`.
        """
        self.check_items(num_items)
        keys = jax.random.split(key, num_samples)
        if self.features is not None:
            logs = self._log_weights_of_signatures(num_items)
            return np.asarray(flexible_distribution.drawn_by_signature(keys, logs, num_items))
        weights = jnp.asarray(self.log_weights[:num_items])
        return np.asarray(flexible_distribution.drawn(keys, weights))

    def check_items(self, num_items: int) -> None:
        """Refuses more items than the weights cover.

        Raises:
            ValueError: there are more items than weights.
        """
        if not 1 <= num_items <= self.num_items:
            raise ValueError(
                f"num_items: log_weights covers groups of 1 to {self.num_items} items, and "
                f"{num_items} are asked for; give a weight for every size up to that"
            )

    def _log_weights_of_signatures(self, num_items: int) -> Array:
        """log of the weight of all partitions with every signature: (S,) float."""
        signatures = flexible_distribution.signatures(num_items)
        wide = jnp.pad(
            jnp.asarray(signatures.counts, jnp.result_type(float)),
            ((0, 0), (0, self.num_items - num_items)),
        )
        logs = jax.vmap(lambda counts: self._log_of_counts(counts, self.log_weights))(wide)
        return logs + signatures.log_num_partitions

    def _log_of_counts(self, counts: Array, log_weights: object) -> Array:
        """The exponent of eq 7.2: () float, of counts m (L,) float."""
        total = jnp.sum(counts * jnp.asarray(log_weights, counts.dtype))
        if self.features is not None:
            total += jnp.sum(self.feature_weights * self.features(counts))
        return total

    # --- in a sweep -------------------------------------------------------------------------------

    @property
    def fuses(self) -> bool:  # type: ignore[override]
        """Functions of a user may hold anything, and stay outside the fused loop."""
        return self.features is None

    @property
    def weighs_rows(self) -> bool:  # type: ignore[override]
        return self.features is None and type(self).weights is FlexiblePrior.weights

    @property
    def sequential(self) -> bool:  # type: ignore[override]
        """Items drawn sequentially do not follow the joint distribution of all."""
        return False

    def begin(self, counts: Array, hyperparameters: Hyperparameters, *, with_sizes: bool) -> PyTree:
        del with_sizes
        dtype = jnp.result_type(float)
        steps = jnp.asarray(self.log_steps, dtype)
        # that of a size beyond all others is as that before it
        steps = jnp.append(steps, steps[-1])
        weights = jnp.exp(jnp.maximum(steps - jnp.max(steps), -WIDEST))
        hyperparameters = dict(hyperparameters)
        unobserved = hyperparameters.pop("unobserved", None)
        counts = counts.astype(dtype)
        unobserved = None if unobserved is None else unobserved.astype(dtype)
        totals = counts if unobserved is None else counts + unobserved
        joining = jnp.where(totals > 0, weights[totals.astype(jnp.int32)], 0)
        return FlexibleCache(counts, joining, weights, hyperparameters, unobserved)

    def end(self, cache: PyTree) -> tuple[Array, Hyperparameters]:
        hyperparameters = dict(cache.hyperparameters)
        if cache.unobserved is not None:
            hyperparameters["unobserved"] = cache.unobserved.astype(jnp.int32)
        return cache.counts.astype(jnp.int32), hyperparameters

    def move(self, cache: PyTree, batch: Array, group: Array, amount: Array | int) -> PyTree:
        counts = tables.add_entry(cache.counts, batch, group, amount)
        return joined(cache._replace(counts=counts), batch, group)

    def move_unobserved(
        self, cache: PyTree, batch: Array, group: Array, amount: Array | int
    ) -> PyTree:
        """An item that no data belong to joins a group (amount 1) or leaves it (-1)."""
        unobserved = tables.add_entry(cache.unobserved, batch, group, amount)
        return joined(cache._replace(unobserved=unobserved), batch, group)

    def weights(self, cache: PyTree, batch: Array) -> tuple[Array, Array]:
        joining = tables.row(cache.joining, batch)
        size = joining.shape[0]
        new = tables.lowest(joining == 0)
        if self.features is not None:
            return self._all_weights(cache, batch, new), new < size
        return joining + jnp.where(at(new, size), cache.weights[0], 0), new < size

    def weights_of_row(
        self, cache: PyTree, batch: Array, lanes: tables.Lanes, has_new: Array
    ) -> tuple[Array, Array]:
        joining = tables.take_from_row(cache.joining, batch, lanes)
        new = tables.lowest(joining == 0)
        is_new = at(new, lanes.size) & ~has_new
        weights = joining + jnp.where(is_new, cache.weights[0], 0)
        return weights, has_new | (new < lanes.size)

    def _all_weights(self, cache: PyTree, batch: Array, new: Array) -> Array:
        """Weights (K,) with features, each asked for the counts that a choice leads to."""
        totals = tables.row(cache.counts, batch)
        if cache.unobserved is not None:
            totals = totals + tables.row(cache.unobserved, batch)
        sizes = jnp.arange(1, self.num_items + 1)
        before = (totals[:, None] == sizes).astype(totals.dtype)
        after = (totals[:, None] + 1 == sizes).astype(totals.dtype)
        changed = jnp.sum(before, axis=0) - before + after
        logs = jax.vmap(lambda counts: jnp.sum(self.feature_weights * self.features(counts)))(
            changed
        )
        open_ = (totals > 0) | at(new, totals.shape[0])
        logs = jnp.where(open_, logs + jnp.log(cache.weights[totals.astype(jnp.int32)]), -jnp.inf)
        # of the smallest weight something stays, as without features
        return jnp.where(open_, jnp.exp(jnp.maximum(logs - jnp.max(logs), -WIDEST)), 0)

    def prior_of_new_tables(self) -> PartitionPrior:
        """The groups of tables that come and go are those of their representatives."""
        return Representatives()

    def draw_groups(self, key: Array, batches: Array, shape: tuple[int, int]) -> Array:
        """Groups (T,) from the exact distribution; see `flexible_distribution.draw_groups`.

        Raises:
            TypeError: the prior has features.
        """
        if self.features is not None:
            raise TypeError(
                "features: a network whose FlexiblePrior has some cannot be simulated; "
                "prior.sample draws partitions of up to 40 items"
            )
        weights = jnp.cumsum(jnp.asarray(self.log_steps, jnp.result_type(float)))
        return flexible_distribution.draw_groups(key, weights, batches, shape)

    def log_prob(self, counts: Array, hyperparameters: Hyperparameters) -> Array:
        """Without the normaliser, which does not depend on the partition: () float."""
        dtype = jnp.result_type(float)
        unobserved = hyperparameters.get("unobserved", jnp.zeros_like(counts))
        totals = counts + unobserved
        weights = jnp.cumsum(jnp.asarray(self.log_steps, dtype))
        group_terms = jnp.where(totals > 0, weights[jnp.maximum(totals, 1) - 1], 0)
        result = jnp.sum(group_terms)
        if self.features is not None:
            sizes = jnp.arange(1, self.num_items + 1)
            batch_counts = jnp.sum(totals[:, :, None] == sizes, axis=1).astype(dtype)
            feature_terms = jax.vmap(lambda m: jnp.sum(self.feature_weights * self.features(m)))
            result += jnp.sum(feature_terms(batch_counts))
        # which of the unobserved items stand where is not kept
        whole = jnp.sum(unobserved, axis=1)
        return result + jnp.sum(gammaln(whole + 1.0)) - jnp.sum(gammaln(unobserved + 1.0))


def check_flexible(name: str, value: object) -> None:
    """Refuses what is no flexible prior."""
    if isinstance(value, PartitionPrior) and not isinstance(value, FlexiblePrior):
        raise TypeError(
            f"{name} must be a FlexiblePrior, got {type(value).__name__}; "
            "FlexiblePrior.dirichlet_process and .pitman_yor have the distributions of those"
        )
    if not isinstance(value, FlexiblePrior) and not is_placeholder(value):
        raise TypeError(f"{name} must be a FlexiblePrior, got {value!r}")


def opened_tables(hyperparameters: Array, counts: Array) -> Array:
    """The feature of a Pitman-Yor process: sum_{0 < k < K} log(alpha + k d), (1,) float.

    Args: hyperparameters (2,) float, alpha and d; counts (L,) float, m.
    """
    num_groups = jnp.arange(1, counts.shape[0])
    before = num_groups < jnp.sum(counts)
    terms = jnp.log(jnp.where(before, hyperparameters[0] + num_groups * hyperparameters[1], 1.0))
    return jnp.sum(terms, keepdims=True)


def _plain(value: Any) -> object:
    """The value of an array of one element; anything else as it is."""
    is_one = hasattr(value, "item") and np.ndim(value) == 0
    return value.item() if is_one else value


def _as_floats(weights: Any) -> Array | None:
    if weights is None or is_placeholder(weights):
        return weights
    if not hasattr(weights, "shape"):
        weights = check_numbers("feature_weights", weights)
    return jnp.asarray(weights, jnp.result_type(float))
