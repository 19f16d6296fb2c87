"""The verbs: what they take, what they refuse and in which words."""

import inspect

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import api, registry

ENTRY = registry.ENTRIES[0]
SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "progress": False}


@pytest.fixture(scope="module")
def problem():
    return ENTRY.example()


@pytest.fixture(scope="module")
def posterior(problem):
    return mf.sample(*problem, **SHORT)


def equal_draws(left, right):
    assert left.draws.keys() == right.draws.keys()
    return all(np.array_equal(left.draws[name], right.draws[name]) for name in left.draws)


def test_sample_gives_chains_and_draws(posterior, problem):
    assert posterior.draws["z"].shape[:3] == (2, 6, 12)
    assert posterior.draws["num_features"].shape == (2, 6)
    assert posterior.data is problem[1]
    assert posterior.meta.complete
    assert posterior.meta.method == "sample"


def test_fit_is_the_default_method(posterior, problem):
    assert equal_draws(posterior, mf.fit(*problem, **SHORT))
    assert equal_draws(posterior, mf.fit(*problem, method="sample", **SHORT))


def test_plain_arrays_are_taken(posterior, problem):
    model, data = problem
    assert equal_draws(posterior, mf.sample(model, data.to_array(), **SHORT))


def test_an_int_and_its_key_are_the_same_seed(problem):
    left = mf.sample(*problem, seed=7, **SHORT)
    assert equal_draws(left, mf.sample(*problem, seed=jax.random.key(7), **SHORT))
    assert not equal_draws(left, mf.sample(*problem, seed=8, **SHORT))


def test_options_reach_the_sampler(posterior, problem):
    assert not equal_draws(posterior, mf.sample(*problem, anneal=False, **SHORT))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda m, d: mf.variational(m, d),
            ValueError,
            "no method 'variational'; use jaxmf.sample or jaxmf.particle_filter",
        ),
        (lambda m, d: mf.fit(m, d, method="gibbs"), ValueError, "no method 'gibbs'; use jaxmf.sam"),
        (
            lambda m, d: mf.sample(m, d, num_sample=3),
            TypeError,
            "no option 'num_sample'.*num_sampl",
        ),
        (
            lambda m, d: mf.sample(m, d, swep="parallel"),
            TypeError,
            "no option 'swep'.*it takes swee",
        ),
        (lambda m, d: mf.sample(m, d, sweep="spiral"), ValueError, "sweep must be one of"),
        (lambda m, d: mf.sample(type(m), d), TypeError, "model is the class LinearGaussianIBP"),
        (lambda m, d: mf.sample(d, m), TypeError, "model is a Dense, which is no model"),
        (lambda m, d: mf.sample(m, d, num_samples=0), ValueError, "num_samples must be at least 1"),
        (lambda m, d: mf.sample(m, d, num_samples=2.5), TypeError, "num_samples must be a whole"),
        (lambda m, d: mf.sample(m, d, num_chains=True), TypeError, "num_chains must be a whole"),
        (lambda m, d: mf.sample(m, d, num_warmup=-1), ValueError, "num_warmup must be at least 0"),
        (lambda m, d: mf.sample(m, d, thin=0), ValueError, "thin must be at least 1"),
        (lambda m, d: mf.sample(m, d, seed="x"), TypeError, "seed must be a whole number"),
        (lambda m, d: mf.sample(m, "X.npy"), TypeError, "read_matrix"),
        (lambda m, d: mf.sample(m, np.full((3, 2), np.nan)), ValueError, "all 6 cells are missing"),
        (lambda m, d: mf.particle_filter(m, d, num_particles=0), ValueError, "num_particles must"),
        (lambda m, d: mf.particle_filter(m, d, num_runs=0), ValueError, "num_runs must be at leas"),
        (
            lambda m, d: mf.sample(m, d, predict_at=[[0, 9]]),
            ValueError,
            "columns: 9 at position 0 is outside 0..4",
        ),
    ],
)
def test_mistakes_are_said(problem, call, error, says):
    with pytest.raises(error, match=says):
        call(*problem)


def test_the_registry_names_what_it_has():
    with pytest.raises(ValueError, match="no model 'nmf'; there are: linear-gaussian-ibp"):
        registry.get("nmf")
    for entry in registry.ENTRIES:
        assert registry.get(entry.name) is entry
        assert entry.default in entry.methods


@pytest.mark.parametrize("verb", ["sample", "particle_filter", "variational", "smc"])
def test_two_positional_arguments_at_most(verb):
    parameters = list(inspect.signature(api.VERBS[verb]).parameters.values())
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["model", "data"]


def test_a_run_is_resumed_and_another_refused(problem, posterior, tmp_path):
    model, data = problem
    short = SHORT | {"num_samples": 3}
    mf.sample(model, data, checkpoint=tmp_path / "run", checkpoint_seconds=0, **short)
    resumed = mf.sample(model, data, checkpoint=tmp_path / "run", resume=True, **SHORT)
    assert equal_draws(resumed, posterior)
    other = mf.LinearGaussianIBP(alpha=2.0, noise_scale=0.3, feature_scale=1.0)
    with pytest.raises(
        ValueError, match=r"another one: model settings alpha was 1\.0 and is now 2\.0"
    ):
        mf.sample(other, data, checkpoint=tmp_path / "run", resume=True, **SHORT)
    values = data.to_array()
    values[0, 1] += 1
    with pytest.raises(ValueError, match="another one: data differ in a value or"):
        mf.sample(model, values, checkpoint=tmp_path / "run", resume=True, **SHORT)
    shorter = r"data differ .*data size was '12 rows, .* and is now '11 rows, "
    with pytest.raises(ValueError, match=shorter):
        mf.sample(model, values[1:], checkpoint=tmp_path / "run", resume=True, **SHORT)
    with pytest.raises(ValueError, match="another one: options anneal was None and is now False"):
        mf.sample(model, data, checkpoint=tmp_path / "run", resume=True, anneal=False, **SHORT)


def test_an_interrupted_run_gives_what_there_is(problem):
    def interrupt(report):
        if report.step >= 6:
            raise KeyboardInterrupt

    settings = SHORT | {"num_samples": 100_000, "progress": interrupt}
    with pytest.warns(mf.RunWarning, match=r"interrupted after \d+ of 100,000 draws"):
        posterior = mf.sample(*problem, **settings)
    assert not posterior.meta.complete
    assert 1 <= posterior.num_draws < 100_000
    assert "interrupted" in repr(posterior)
    assert ".." not in repr(posterior)


@pytest.mark.slow
def test_predictions_gathered_on_the_way(problem):
    model, data = problem
    cells = data.missing_cells()
    posterior = mf.sample(model, data, predict_at=cells, **SHORT)
    gathered = posterior.averages["predicted"].mean(axis=0)
    np.testing.assert_allclose(gathered, posterior.predict(cells).mean, rtol=1e-4, atol=1e-5)
    square = posterior.averages["predicted_square"].mean(axis=0)
    np.testing.assert_allclose(
        np.sqrt(square - gathered**2), posterior.predict(cells).sd, rtol=1e-3
    )


@pytest.mark.parametrize("verb", [mf.fit, mf.sample, mf.particle_filter, mf.smc, mf.variational])
def test_every_verb_says_in_its_signature_that_it_takes_what_data_are_made_of(verb):
    assert verb.__annotations__["data"] == "object"


def test_a_mesh_that_the_caller_has_set_for_other_programs_changes_no_bit():
    model, data = registry.get("linear-gaussian-ibp").example()
    few = {"num_warmup": 1, "num_samples": 2, "num_chains": 1, "progress": False}
    plain = mf.sample(model, data, **few)
    with jax.set_mesh(jax.make_mesh((1,), ("chain",))):
        other = mf.sample(model, data, **few)
    np.testing.assert_array_equal(plain.draws["log_joint"], other.draws["log_joint"])
