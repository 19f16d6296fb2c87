"""Simulation-based calibration: whether posteriors of simulated data rank the truth uniformly.

Parameters are drawn from the prior and data given them; the sampler is run on the data as on those
of a user. If the whole run is right, the rank of the true value of any quantity among independent
draws is uniform. Quantities may depend on the data too: the log joint sees faults that the
hyperparameters alone do not.

Posterior calibration asks the same about the data of a user: parameters are drawn from their
posterior, further data given them, and the sampler is run on both together. It looks at the part
of the prior that the data leave.

Sources: Säilynoja, Schmitt, Bürkner & Vehtari (2025), Posterior SBC: simulation-based calibration
checking conditional on data; Talts, Betancourt, Simpson, Vehtari & Gelman (2018); Modrak, Moon,
Kim, Buerkner, Huurre, Faltejskova, Gelman & Vehtari (2023) for quantities that depend on the data;
`ranks.py` for the test.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import registry
from jaxmf.arguments import check_count, check_number, check_object, check_seed, checks_call
from jaxmf.data import Container
from jaxmf.diagnostics import Summary
from jaxmf.engine import Algorithm
from jaxmf.model import Model, SimulatesMatrices, SimulatesMore, lacks
from jaxmf.preparation import matched_to
from jaxmf.programs import full_products, jit
from jaxmf.testing import ranks as uniformity
from jaxmf.types import Array, Key, PyTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CAPACITY = 32
_MOST_CAPACITY = 1_024
_LARGEST_AUTOCORRELATION = 0.3
_ROUNDING = 64 * float(np.finfo(np.float32).eps)
_COLUMNS = ("mean rank", "spread", "p-value", "autocorrelation")


class Calibration(Summary):
    """Ranks of true values among posterior draws, and whether they are uniform.

    ``table["alpha", "p-value"]`` is one number. Columns: ``mean rank``, the mean of rank / L, which
    is .5 if the sampler is right and larger if draws are too small; ``spread``, the variance of
    ranks over that of uniform ones, below one if posteriors are too wide and above one if they are
    too narrow; ``p-value`` of the test of uniformity; ``autocorrelation`` of successive draws,
    which alone makes posteriors look too narrow.

    Attributes:
        ranks: name -> (R,) int from 0 to `num_samples`, one a replicate.
        num_samples: L, draws of each replicate.
        level: false-alarm probability of all quantities together.
        failures: names of quantities whose ranks are not uniform.
        passed: whether there are none.
        conclusion: the same as a sentence.
    """

    ranks: dict[str, np.ndarray]
    num_samples: int
    level: float
    failures: tuple[str, ...]
    conclusion: str

    @property
    def passed(self) -> bool:
        """Whether the test found the ranks of no quantity to differ from uniform ones."""
        return not self.failures

    def plot(self) -> Figure:
        """Empirical distribution functions of ranks minus the uniform one, with their band.

        If the sampler is right, any of the lines leaves the band with probability `level`.
        """
        from jaxmf.plot.calibration import ecdf_differences

        num_values, num_ranks = self.num_samples + 1, next(iter(self.ranks.values())).size
        band = uniformity.band(num_ranks, num_values, self.level / len(self.ranks))
        lines = {
            name: uniformity.counts_below(each, num_values) / num_ranks - band.points
            for name, each in self.ranks.items()
        }
        return ecdf_differences(lines, band.points, (band.lower, band.upper), self.failures)


class _Schedule(NamedTuple):
    """How long each replicate runs; programs are compiled for these numbers."""

    num_warmup: int
    num_samples: int
    thin: int


@checks_call
def simulation_based_calibration(
    model: Model,
    num_rows: int | None = None,
    num_columns: int | None = None,
    *,
    data: object = None,
    num_replicates: int = 200,
    num_warmup: int = 200,
    num_samples: int = 31,
    thin: int = 10,
    level: float = 0.01,
    seed: int = 0,
    **options: object,
) -> Calibration:
    """Check that the sampler of a model, run on data from its prior or posterior, is calibrated.

    Each replicate draws parameters from the prior and a complete matrix given them, runs one chain
    on the matrix from its usual start, and notes the rank of every scalar of the truth
    (hyperparameters with a prior, the number of features, the log joint) among the draws. All
    replicates run side by side in one program. Ranks that are not uniform have three causes: a
    sampler that is wrong, a warm-up that is too short, and draws that are not independent, against
    which `thin` helps; the table shows how much successive draws are correlated.

    With `data`, data y, the prior is replaced by the posterior given y (Säilynoja et al. 2025):
    a replicate draws theta from p(theta | y), the end of a chain of `num_warmup` + `thin` steps of
    its own, and further data y' from p(y' | theta), as many as y has. One chain is run on (y, y')
    together, and the truth is theta: (theta, y') is a draw from p(theta, y' | y), so given y and y'
    theta is a draw from p(theta | y, y'), and its rank is uniform if both runs are right. This
    tests the sampler where the posterior lies, a region that draws from a wide prior hardly visit.
    Further data are new rows of a matrix, with missing cells where the rows of y have them, or as
    many tokens again in the same documents. A sampler of another prior passes this check, as it is
    consistent with itself: leave `data` out to find that.

    Settings of the model that are left open, such as an offset, are taken from y, or from one
    simulated matrix, and fixed before the replicates are drawn.

    Args:
        model: one with a method `simulate_matrix`: `LinearGaussianIBP`, `NoisyOrIBP`, `BinaryMF`,
            `BPMF`, `FeatureModel` with a likelihood, or your own. `BPMF` of real cells needs a
            `scale` and an `offset`, since it would take these from every matrix. With `data` one
            with a method `simulate_more`: `LinearGaussianIBP`, `NoisyOrIBP`, `BPMF` without
            features of rows, `FeatureModel`, `mf.Network` and the models of tokens, mixtures with a
            `family`.
        num_rows, num_columns: of the matrices; small ones make the check fast. Not with `data`.
        data: y, as `jaxmf.sample` takes it; None for data from the prior.
        num_replicates: R, at least 20.
        num_warmup: steps of each chain before the first draw.
        num_samples: L, draws that the truth is ranked among.
        thin: steps between these.
        level: false-alarm probability of the check, shared by all quantities (Bonferroni).
        seed: of everything.
        **options: of the model's sampler, as in `jaxmf.sample`.
    Returns:
        The ranks, with a table, a verdict in `passed`, and a picture by `plot()`.
    Raises:
        TypeError: `model` is no model, or its sampler does not have an option.
        ValueError: the model lacks a sampler, or `simulate_matrix`, or with `data` `simulate_more`;
            neither `data` nor a size is passed, or both are.
        RuntimeError: a replicate needs more than 1,024 features, or draws are not finite.
    Example:
        >>> import jaxmf as mf, numpyro.distributions as dist
        >>> model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=1.0)
        >>> run = {"num_replicates": 20, "num_warmup": 20, "num_samples": 7, "thin": 2}
        >>> mf.simulation_based_calibration(model, 4, 2, **run).names
        ['log_joint', 'num_features']
    """
    check_object("model", model, Model, "mf.LinearGaussianIBP()")
    check_count("num_replicates", num_replicates, 20)
    schedule = _Schedule(
        check_count("num_warmup", num_warmup, 0),
        check_count("num_samples", num_samples, 2),
        check_count("thin", thin),
    )
    check_number("level", level, above=0, below=1)
    capability = SimulatesMatrices if data is None else SimulatesMore
    if data is None and isinstance(model, SimulatesMore) and not isinstance(model, capability):
        raise ValueError(
            f"simulation_based_calibration: {type(model).__name__} simulates no data of its own, "
            "but more rows, or tokens, like those that it is given: pass data=y for the check "
            "around the posterior"
        )
    if not isinstance(model, capability):
        raise lacks(model, capability, "simulation_based_calibration")
    entry = registry.entry_of(model)
    registry.check_method(entry, "sample")
    chosen = registry.read_options(entry, "sample", options, simulation_based_calibration)
    key = jax.random.key(check_seed("seed", seed))
    if data is None:
        if num_rows is None or num_columns is None:
            raise ValueError(
                "simulation_based_calibration takes num_rows and num_columns, the size of each "
                "simulated matrix, or data=y for a check around the posterior; pass one of these"
            )
        shape = check_count("num_rows", num_rows), check_count("num_columns", num_columns)
        _, first, _ = model.simulate_matrix(jax.random.fold_in(key, 0), shape, _CAPACITY)
        model = model.matched(first)
    elif num_rows is None and num_columns is None:
        model, first = matched_to(model, data, None, method="simulation_based_calibration")
    else:
        raise ValueError(
            "num_rows and num_columns are of data from the prior; with data=y they are those "
            "of the data, leave them out"
        )
    platform = jax.default_backend()
    chosen = {**chosen, **model.device_options(chosen, platform=platform, data=first)}
    algorithm = entry.builder(model, "sample")(**chosen)
    data_key, run_key = (jax.random.fold_in(key, index) for index in (1, 2))
    if data is None:
        states, replicates = _simulated(model, data_key, shape, num_replicates)
    else:
        states, replicates = _continued(model, algorithm, data_key, first, num_replicates, schedule)
    truth, draws = _replicates(algorithm, run_key, states, replicates, schedule)
    return _table(type(model).__name__, truth, draws, level, seed)


def _continued(
    model: SimulatesMore[PyTree],
    algorithm: Algorithm,
    key: Key,
    data: Container,
    num_replicates: int,
    schedule: _Schedule,
) -> tuple[PyTree, list[PyTree]]:
    """States from the posterior given data, with further data, and a container for each of both."""
    prepared = data if algorithm.prepare is None else algorithm.prepare(data)
    # what the model cannot simulate is refused before chains are compiled and run
    further = full_products(
        lambda key: model.simulate_more(key, algorithm.init(key, prepared), data)
    )
    jax.eval_shape(further, key)
    keys = jax.random.split(key, num_replicates)
    ends, capacity = _until_room(partial(_ends, schedule), algorithm, keys, prepared)
    # slots are doubled before more is drawn, so that hardly ever any replicate runs out of them:
    # to draw again where that happens selects among the replicates
    sizes = {axis: _doubled("the posterior", size) for axis, size in capacity.items()}
    while True:
        states, more, overflow = _more(tuple(sizes.items()), algorithm, model, keys, ends, data)
        full = [axis for axis, flags in overflow.items() if np.asarray(flags).any()]
        if not full:
            return states, _unstacked(more, num_replicates)
        sizes |= {axis: _doubled("the posterior", sizes[axis]) for axis in full}


@partial(jit, static_argnums=(0, 1))
def _ends(
    schedule: _Schedule,
    sizes: tuple[tuple[str, int], ...],
    algorithm: Algorithm,
    keys: Key,
    data: PyTree,
) -> PyTree:
    """The last states of chains on the same data, what overflowed, and the capacity."""

    def chain(key: Key) -> PyTree:
        state, capacity = _started(algorithm, sizes, key, data)
        step = _stepper(schedule, algorithm, key, data)
        state, overflow = jax.lax.scan(step, state, jnp.arange(schedule.num_warmup + schedule.thin))
        return state, jax.tree.map(jnp.any, overflow), capacity

    return jax.vmap(chain)(keys)


@partial(jit, static_argnums=0)
def _more(
    sizes: tuple[tuple[str, int], ...],
    algorithm: Algorithm,
    model: SimulatesMore[PyTree],
    keys: Key,
    states: PyTree,
    data: PyTree,
) -> PyTree:
    """`simulate_more` for every replicate, its slots grown before."""

    def one(key: Key, state: PyTree) -> PyTree:
        if sizes and algorithm.grow is not None:
            state = algorithm.grow(state, dict(sizes))
        return model.simulate_more(jax.random.fold_in(key, 3), state, data)

    return jax.vmap(one)(keys, states)


def _simulated(
    model: SimulatesMatrices, key: Key, shape: tuple[int, int], num_replicates: int
) -> tuple[PyTree, list[PyTree]]:
    """States from the prior, and a container for each."""
    keys = jax.random.split(key, num_replicates)
    capacity = _CAPACITY
    while True:
        states, data, overflow = _simulate(shape, capacity, model, keys)
        if not np.asarray(overflow).any():
            break
        capacity = _doubled("the prior", capacity)
    return states, _unstacked(data, num_replicates)


def _unstacked(data: PyTree, num_replicates: int) -> list[PyTree]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], data) for i in range(num_replicates)]


@partial(jit, static_argnums=(0, 1))
def _simulate(shape: tuple[int, int], capacity: int, model: SimulatesMatrices, keys: Key) -> PyTree:
    return jax.vmap(lambda key: model.simulate_matrix(key, shape, capacity))(keys)


def _doubled(what: str, size: int) -> int:
    """Twice the capacity.

    Raises:
        RuntimeError: it would be beyond 1,024.
    """
    if 2 * size > _MOST_CAPACITY:
        raise RuntimeError(
            f"simulation_based_calibration: {what} needs more than {size} features; check the "
            "priors of alpha and of the scales, or simulate fewer rows"
        )
    return 2 * size


def _replicates(
    algorithm: Algorithm, key: Key, states: PyTree, data: list[PyTree], schedule: _Schedule
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scalars of the truth (R,), and of the draws of one chain a replicate (R, L)."""
    prepared = data if algorithm.prepare is None else [algorithm.prepare(each) for each in data]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *prepared)
    keys = jax.random.split(key, len(data))
    (truth, draws), _ = _until_room(partial(_chains, schedule), algorithm, keys, states, stacked)
    return jax.device_get((truth, draws))


def _until_room(
    program: Callable[..., PyTree], algorithm: Algorithm, keys: Key, *rest: PyTree
) -> tuple[PyTree, dict[str, int]]:
    """The result of a program of all chains with enough slots, and the capacity it took."""
    sizes: dict[str, int] = {}
    while True:
        *found, overflow, capacity = program(tuple(sizes.items()), algorithm, keys, *rest)
        needed = [axis for axis, flags in overflow.items() if np.asarray(flags).any()]
        present = {axis: int(size[0]) for axis, size in jax.device_get(capacity).items()}
        if not needed:
            return found[0] if len(found) == 1 else tuple(found), present
        # all replicates again: without those that overflow, large true values would be left out
        sizes = sizes | {axis: _doubled("a replicate", present[axis]) for axis in needed}


@partial(jit, static_argnums=(0, 1))
def _chains(
    schedule: _Schedule,
    sizes: tuple[tuple[str, int], ...],
    algorithm: Algorithm,
    keys: Key,
    truths: PyTree,
    data: PyTree,
) -> PyTree:
    """`_chain` for every replicate."""
    chain = partial(_chain, schedule, sizes, algorithm)
    return jax.vmap(chain)(keys, truths, data)


def _chain(
    schedule: _Schedule,
    sizes: tuple[tuple[str, int], ...],
    algorithm: Algorithm,
    key: Key,
    truth: PyTree,
    data: PyTree,
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array], dict[str, Array]]:
    """One replicate: scalars of the truth and of draws, what overflowed, and the capacity."""
    state, capacity = _started(algorithm, sizes, key, data)
    step = _stepper(schedule, algorithm, key, data)

    def scalars(state: PyTree) -> dict[str, Array]:
        draw = algorithm.record(jax.random.fold_in(key, 2), state, data)
        return {name: value for name, value in draw.items() if jnp.ndim(value) == 0}

    def sample(state: PyTree, index: Array) -> tuple[PyTree, PyTree]:
        steps = schedule.num_warmup + index * schedule.thin + jnp.arange(schedule.thin)
        state, overflow = jax.lax.scan(step, state, steps)
        return state, (scalars(state), overflow)

    # what the sampler's state sums out, fields that are None, the simulated one may have
    names = getattr(state, "_fields", ())
    absent = {name: None for name in names if getattr(state, name) is None}
    expected = scalars(truth._replace(**absent) if absent else truth)
    state, early = jax.lax.scan(step, state, jnp.arange(schedule.num_warmup))
    state, (draws, late) = jax.lax.scan(sample, state, jnp.arange(schedule.num_samples))
    overflow = {axis: early[axis].any() | late[axis].any() for axis in late}
    return expected, draws, overflow, capacity


def _started(
    algorithm: Algorithm, sizes: tuple[tuple[str, int], ...], key: Key, data: PyTree
) -> tuple[PyTree, dict[str, Array]]:
    """Where a chain starts, and its capacity."""
    state = algorithm.init(jax.random.fold_in(key, 0), data)
    if sizes and algorithm.grow is not None:
        state = algorithm.grow(state, dict(sizes))
    capacity = {} if algorithm.capacity is None else algorithm.capacity(state)
    return state, {axis: jnp.asarray(size) for axis, size in capacity.items()}


def _stepper(
    schedule: _Schedule, algorithm: Algorithm, key: Key, data: PyTree
) -> Callable[[PyTree, Array], tuple[PyTree, dict[str, Array]]]:
    """(state, index of the step) -> the next state and overflow."""

    def step(state: PyTree, index: Array) -> tuple[PyTree, dict[str, Array]]:
        progress = jnp.minimum(index / max(schedule.num_warmup, 1), 1.0)
        progress = progress if schedule.num_warmup else jnp.ones_like(progress)
        step_key = jax.random.fold_in(jax.random.fold_in(key, 1), index)
        state, info = algorithm.step(step_key, state, data, progress)
        return state, info.overflow

    return step


def _table(
    name: str,
    truth: Mapping[str, np.ndarray],
    draws: Mapping[str, np.ndarray],
    level: float,
    seed: int,
) -> Calibration:
    """Ranks and the verdict."""
    generator = np.random.default_rng([seed, 1])
    ranks: dict[str, np.ndarray] = {}
    correlations = []
    for quantity in sorted(draws, key=lambda each: (each != "log_joint", each)):
        true, values = (np.asarray(each[quantity], float) for each in (truth, draws))
        if not (np.isfinite(true).all() and np.isfinite(values).all()):
            raise RuntimeError(f"simulation_based_calibration: {quantity} is not finite")
        if np.ptp(values) == 0 and np.ptp(true) == 0 and values.flat[0] == true.flat[0]:
            continue  # a hyperparameter that is fixed
        # the same state in other slots may have a log joint that is rounded otherwise
        # only of it: a tolerance would make ties of all scales in a small unit, and of large counts
        rounding = _ROUNDING if quantity == "log_joint" else 0.0
        is_tie = np.isclose(values, true[:, None], rtol=rounding, atol=rounding)
        smaller = ((values < true[:, None]) & ~is_tie).sum(axis=1)
        ties = is_tie.sum(axis=1)
        ranks[quantity] = smaller + generator.integers(0, ties + 1)
        correlations.append(_autocorrelation(values))
    num_samples = next(iter(draws.values())).shape[1]
    stacked = np.array(list(ranks.values()))
    p_values = uniformity.p_values(stacked, num_samples + 1)
    variance = ((num_samples + 1) ** 2 - 1) / 12
    spread = np.mean((stacked - num_samples / 2) ** 2, axis=1) / variance
    columns = (stacked.mean(axis=1) / num_samples, spread, p_values, np.array(correlations))
    table = Calibration(list(ranks), _COLUMNS, np.stack(columns, axis=1))
    table.ranks, table.num_samples, table.level = ranks, num_samples, level
    threshold = level / len(ranks)
    table.failures = tuple(
        each for each, p in zip(ranks, p_values, strict=True) if not p >= threshold
    )
    table.conclusion = _conclusion(name, table)
    head = f"{stacked.shape[1]} replicates, {num_samples} draws each, level {level:g}. "
    table.caption = textwrap.fill(head + table.conclusion, 88)
    return table


def _autocorrelation(values: np.ndarray) -> float:
    """Autocorrelation of successive draws (R, L), over all replicates; NaN if all are constant."""
    residual = values - values.mean(axis=1, keepdims=True)
    square = np.sum(residual**2)
    if square == 0:
        return np.nan
    estimate = float(np.sum(residual[:, 1:] * residual[:, :-1]) / square)
    # the mean of a chain is taken from its few draws, which bends the estimate down (Kendall 1954)
    return estimate + (1 + 3 * estimate) / values.shape[1]


def _conclusion(name: str, table: Calibration) -> str:
    """Which ranks are not uniform, and what may be the cause."""
    if table.passed:
        return f"The sampler of {name} is calibrated as far as these ranks can tell."
    shown = ", ".join(table.failures)
    verdict = f"The ranks of {shown} are not uniform."
    correlations = [table[each, "autocorrelation"] for each in table.failures]
    if np.isnan(correlations).all():
        return f"{verdict} Every chain stays where it starts: the sampler does not move them."
    largest = np.nanmax(correlations)
    if largest > _LARGEST_AUTOCORRELATION:
        return (
            f"{verdict} Successive draws are correlated ({largest:.2f}): raise thin and num_warmup "
            "before anything else."
        )
    return f"{verdict} The sampler is wrong, or num_warmup is too short."
