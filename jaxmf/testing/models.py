"""`check_model`: what every model must keep, tried on anybody's model and data."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf import api, registry
from jaxmf.arguments import checks_call
from jaxmf.data import Dense, as_container
from jaxmf.data.container import unchecked
from jaxmf.engine import Algorithm, Info
from jaxmf.likelihoods.cells.likelihood import Likelihood
from jaxmf.model import (
    CompletesDocuments,
    HasCategories,
    HasFactors,
    HasFeatures,
    KnowsTime,
    Model,
    PredictsCells,
    RanksColumns,
    RanksWords,
    ScoresCells,
    ShowsColumns,
    SimulatesAlike,
    TakesNewRows,
    TransformsDocuments,
    TransformsRows,
    lacks,
    settings_of,
)
from jaxmf.posterior.alarms import NOT_CHECKED, RunWarning
from jaxmf.programs import jit
from jaxmf.results import Posterior
from jaxmf.testing.kernels import check_kernel
from jaxmf.testing.report import LEVEL, Report
from jaxmf.types import Array, Key, PyTree

Statistics = Callable[[PyTree, object], Mapping[str, Array]]
_RUNS: dict[str, dict[str, int]] = {
    "sample": {"num_warmup": 3, "num_samples": 5, "num_chains": 2},
    "particle_filter": {"num_particles": 20, "num_runs": 2},
    "variational": {"num_epochs": 4},
}


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """The checks that `check_model` has made.

    Args:
        checks: one line a check, in the order in which they were made.
        joint: the joint-distribution test of the sampler, or None where there was none.
    """

    checks: tuple[str, ...]
    joint: Report | None

    def __str__(self) -> str:
        lines = [f"passed: {check}" for check in self.checks]
        return "\n".join([*lines, str(self.joint)] if self.joint is not None else lines)


@checks_call
def check_model(
    model: Model,
    data: object,
    *,
    method: str | None = None,
    options: Mapping[str, object] | None = None,
    joint_distribution: bool = True,
    statistics: Statistics | None = None,
    num_replicates: int = 2_000,
    num_steps: int = 3,
    seed: int = 0,
    level: float = LEVEL,
    compiler_options: dict[str, object] | None = None,
) -> ModelReport:
    """Check that a model keeps the contracts, and that its sampler is right.

    A short run of the method is made on the data. The same seed must give the same draws and
    another seed others; a step must keep shapes and dtypes of the state; what lies beneath a
    missing cell must not matter; the posterior is summarised, saved, loaded and reported; every
    capability of `jaxmf.model` that the model has is asked one question and its answer checked for
    shape. Then the sampler is put to the joint-distribution test (Geweke 2004), in which
    states and data come from `simulate_like`: a step that leaves another distribution invariant
    than the posterior is refused.

    Args:
        model: a model of jaxmf, or one that `jaxmf.register` knows.
        data: a small data set: a container, or what one can be made of.
        method: the verb; the model's default by default.
        options: options of that method.
        joint_distribution: whether to make the joint-distribution test of a sampler.
        statistics: (state, data) -> name -> () number, not dependent on labels, which the
            joint-distribution test compares. By default the numbers of a draw, alone and with mean
            and mean square of the values of the data.
        num_replicates: of that test.
        num_steps: of each replicate.
        seed: of everything.
        level: false-alarm probability of that test.
        compiler_options: of XLA, as in `check_kernel`.
    Returns:
        A `ModelReport`: what was tried.
    Raises:
        AssertionError: a check fails; the message says which one.
        ValueError: the model has no `simulate_like`, or lacks the method.
        TypeError: it is no model, or its data are of another kind.
    Example:
        >>> import jaxmf as mf
        >>> model, data = mf.registry.get("lda").example()
        >>> report = mf.testing.check_model(model, data, joint_distribution=False)
        >>> report.checks[0]
        'same seed, same draws'
    """
    entry = registry.entry_of(model)
    verb = entry.default if method is None else method
    registry.check_method(entry, verb)
    chosen = dict(options or {})
    if joint_distribution and verb == "sample" and not isinstance(model, SimulatesAlike):
        raise lacks(model, SimulatesAlike, "joint_distribution=True")
    container = as_container(data, entry.container)
    if joint_distribution and verb == "sample":
        _check_simulated(model, container, num_replicates, seed)
    posterior, run = _run(model, container, verb, chosen, seed)
    checks = _check_runs(posterior, run, verb, seed)
    checks += _check_missing_cells(posterior, run, seed)
    if verb == "sample":
        matched = posterior.model
        algorithm = entry.builder(matched, verb)(**chosen)
        _check_step(algorithm, container)
        checks.append("a step keeps shapes and dtypes")
    checks += _check_files(posterior)
    checks += _check_answers(posterior)
    if verb != "sample" or not joint_distribution:
        return ModelReport(tuple(checks), None)
    joint = _check_joint(
        posterior.model,
        container,
        algorithm,
        statistics=statistics,
        key=jax.random.key(seed),
        num_replicates=num_replicates,
        num_steps=num_steps,
        level=level,
        compiler_options=compiler_options,
    )
    return ModelReport((*checks, "joint distribution"), joint)


def _check_simulated(model: Model, data: object, num_replicates: int, seed: int) -> None:
    """Simulated cells must be ones that the likelihood of the model allows."""
    likelihood = getattr(model, "likelihood", None)
    if not isinstance(likelihood, Likelihood) or not isinstance(data, Dense):
        return
    matched = model.matched(data)
    assert isinstance(matched, SimulatesAlike)

    def cells(key: Key) -> Array:
        return matched.simulate_like(key, data)[1].values

    keys = jax.random.split(jax.random.key(seed), num_replicates)
    found = np.asarray(jit(jax.vmap(cells))(keys))
    bad = found[~likelihood.in_support(found)]
    assert not bad.size, (
        f"sample of {likelihood!r} draws {bad[0]:g}, which its in_support refuses ({bad.size} of "
        f"{found.size:,} cells, {found.dtype}): change one of them; a draw may round to an end"
    )


def _run(
    model: Model, data: object, verb: str, options: dict[str, object], seed: int
) -> tuple[Posterior, Callable[[object, int], Posterior]]:
    def run(data: object, seed: int) -> Posterior:
        settings = _RUNS[verb] | {"progress": False} | options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # a run of a few steps has not converged
            return api.VERBS[verb](model, data, seed=seed, **settings)

    return run(data, seed), run


def _check_runs(
    posterior: Posterior, run: Callable[[object, int], Posterior], verb: str, seed: int
) -> list[str]:
    _assert_same(posterior, run(posterior.data, seed), "a second run with the same seed")
    failed = [alarm.sentence for alarm in posterior.alarms() if alarm.kind == NOT_CHECKED]
    assert not failed, failed[0]
    checks = ["same seed, same draws"]
    if verb == "sample":
        assert "log_joint" in posterior.draws, "record: a draw must have log_joint"
        log_joint = posterior.draws["log_joint"]
        assert np.isfinite(log_joint).all(), "record: log_joint is not finite"
        other = run(posterior.data, seed + 1).draws
        names = [name for name in other if other[name].shape == posterior.draws[name].shape]
        assert any(not np.array_equal(other[n], posterior.draws[n]) for n in names), (
            "another seed gives the same draws"
        )
        checks.append("another seed, other draws")
    return checks


def _assert_same(first: Posterior, second: Posterior, what: str) -> None:
    assert first.draws.keys() == second.draws.keys(), f"{what} has other draws"
    for name, values in first.draws.items():
        other = second.draws[name]
        equal = np.array_equal(values, other, equal_nan=values.dtype.kind == "f")
        assert equal, f"{what} has other values of {name!r}"


def _check_missing_cells(
    posterior: Posterior, run: Callable[..., Posterior], seed: int
) -> list[str]:
    data = posterior.data
    if not isinstance(data, Dense) or data.observed is None:
        return []
    beneath = jnp.where(data.observed, data.values, 1 - data.values)
    changed = unchecked(data, values=beneath)
    _assert_same(posterior, run(changed, seed), "other values beneath the missing cells:")
    return ["what lies beneath a missing cell does not matter"]


def _check_step(algorithm: Algorithm, data: object) -> None:
    """One step keeps structure, shapes and dtypes; flags of overflow are () bool."""
    key = jax.random.key(0)
    prepared = data if algorithm.prepare is None else algorithm.prepare(data)
    state = jax.eval_shape(algorithm.init, key, prepared)
    after, info = jax.eval_shape(algorithm.step, key, state, prepared, jnp.ones(()))
    assert jax.tree.structure(after) == jax.tree.structure(state), "step: another structure"
    for before, now in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype) == (now.shape, now.dtype), (
            f"step: {before.dtype}{list(before.shape)} becomes {now.dtype}{list(now.shape)}"
        )
    for axis, flag in info.overflow.items():
        is_flag = flag.shape == () and flag.dtype == bool
        assert is_flag, f"step: info.overflow[{axis!r}] must be () bool"


def _check_files(posterior: Posterior) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "run")
        again = api.load(Path(folder) / "run")
        _assert_same(posterior, again, "the posterior that was saved and loaded")
        assert repr(again.model) == repr(posterior.model), (
            f"load: the model {posterior.model!r} comes back as {again.model!r}"
        )
        path = Path(folder) / "report.html"
        posterior.report(path)
        assert path.stat().st_size > 0, "report: the file is empty"
    str(posterior.summary())
    return ["saved and loaded", "reported", "summarised"]


def _check_answers(posterior: Posterior) -> list[str]:
    """One question for every capability, on the data that the model was fitted to."""
    model = posterior.model
    checks = []
    for capability, (name, ask) in _QUESTIONS.items():
        if not isinstance(model, capability):
            continue
        try:
            sound = ask(posterior)
        except Exception as error:
            raise AssertionError(f"{capability.__name__}: {name} fails: {error}") from error
        assert sound, f"{capability.__name__}: {name} has another shape or is not finite"
        checks.append(f"{capability.__name__} ({name})")
    return checks


def _has(values: object, *shape: int) -> bool:
    array = np.asarray(values)
    return array.shape == shape and bool(np.isfinite(array).all())


def _cells(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    size = min(posterior.data.num_rows, posterior.data.num_columns, 3)
    return np.arange(size), np.arange(size)


def _predicts(posterior: Posterior) -> bool:
    cells = _cells(posterior)
    found = posterior.predict(cells)
    return _has(found.mean, cells[0].size) and _has(found.sd, cells[0].size)


def _predicts_new_rows(posterior: Posterior) -> bool:
    found = posterior.predict(_cells(posterior), new_rows=posterior.data)
    return _has(found.mean, len(found))


def _has_probabilities(posterior: Posterior) -> bool:
    if posterior.model.values is None:
        return True
    cells = _cells(posterior)
    found = posterior.probabilities(cells)
    shape = cells[0].size, len(posterior.model.values)
    return _has(found, *shape) and np.allclose(found.sum(axis=1), 1, atol=1e-4)


def _transforms(posterior: Posterior) -> bool:
    found = posterior.transform(posterior.data)
    return found.values.ndim == 2 and bool(np.isfinite(found.values).all())


def _shows(posterior: Posterior) -> bool:
    return all(len(posterior.top_entries(c).shares) for c in posterior.model.shown_columns())


_QUESTIONS: dict[type, tuple[str, Callable[[Posterior], bool]]] = {
    PredictsCells: ("predict", _predicts),
    HasCategories: ("probabilities", _has_probabilities),
    TakesNewRows: ("predict(new_rows=)", _predicts_new_rows),
    TransformsRows: ("transform", _transforms),
    TransformsDocuments: ("transform", _transforms),
    RanksColumns: ("recommend", lambda post: len(post.recommend(n=1).columns) > 0),
    ScoresCells: ("scores", lambda post: bool(np.isfinite(post.scores(_cells(post)).mean).all())),
    HasFeatures: ("features", lambda post: bool(np.isfinite(post.features().mean).all())),
    HasFactors: ("factors", lambda post: bool(np.isfinite(post.factors().columns).all())),
    ShowsColumns: ("top_entries", _shows),
    CompletesDocuments: (
        "document_completion",
        lambda post: np.isfinite(post.document_completion(post.data).mean),
    ),
    RanksWords: ("recommend", lambda post: len(post.recommend(n=1).columns) > 0),
    KnowsTime: ("at", lambda post: post.at(float(post.data.times[0])).num_draws == 1),
}


def _check_joint(
    model: SimulatesAlike[PyTree],
    data: object,
    algorithm: Algorithm,
    *,
    statistics: Statistics | None,
    key: Key,
    **settings: Any,
) -> Report:
    def kernel(key: Key, pair: PyTree, data: object) -> tuple[PyTree, Info]:
        state, info = algorithm.step(key, pair[0], data, jnp.ones(()))
        return (state, data), info

    def statistics_of(pair: PyTree, data: object) -> dict[str, Array]:
        if statistics is not None:
            return dict(statistics(pair[0], data))
        draw = algorithm.record(jax.random.key(0), pair[0], data)
        found = {name: value for name, value in draw.items() if value.ndim == 0}
        fixed = {name for name, value in settings_of(model).items() if np.isscalar(value)}
        learned = {name: value for name, value in found.items() if name not in fixed}
        return found | _with_data(learned, data)

    return check_kernel(
        kernel,
        sample_prior=lambda key: model.simulate_like(key, data),
        simulate=lambda key, pair: pair[1],
        statistics=statistics_of,
        key=key,
        title=f"joint distribution of {type(model).__name__}",
        **settings,
    )


def _with_data(found: Mapping[str, Array], data: object) -> dict[str, Array]:
    """Each number of a draw where the data have a large mean, and where they have a large square.

    The data alone are what they were, whatever a step does; what a step makes of them is seen in
    how numbers of the draw go with them. The weights are between -1 and 1, as squares may have no
    mean.
    """
    weights: dict[str, Array] = {}
    for index, leaf in enumerate(jax.tree.leaves(data)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            for word, moment in (("mean", jnp.mean(leaf)), ("square", jnp.mean(leaf**2))):
                weights[f"{word} of {index}"] = moment / (1 + jnp.abs(moment))
    return {
        f"{name} by {word}": value * weight
        for name, value in found.items()
        for word, weight in weights.items()
    }
