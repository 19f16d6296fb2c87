"""Noise of its own for each column: conditionals, joint distribution, answers, broken twins."""

import warnings
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf.column_units import ColumnUnits
from jaxmf.models.linear_gaussian import updates
from jaxmf.models.linear_gaussian.state import complete
from jaxmf.preparation import matched_to
from jaxmf.priors import column_noise as prior_of_noise
from jaxmf.priors.column_noise import NoiseOfColumns
from jaxmf.samplers import column_noise
from jaxmf.samplers.feature_layout import num_features
from jaxmf.testing import check_kernel
from tests import FAST_COMPILE
from tests.models.test_linear_gaussian_kernels import CAPACITY, NUM_COLUMNS, PRIORS, Setup

FACTORS = np.array([0.2, 1.0, 3.0], np.float32)
UNIT = np.array([1.0, 100.0, 0.1], np.float32)
SPREAD = jnp.asarray(0.8)
RUN = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}


def linear(**settings):
    fixed = {"alpha": 1.0, "noise_scale": 0.5, "feature_scale": 1.5}
    return mf.LinearGaussianIBP(**fixed | settings, column_unit=UNIT, column_noise=True)


@jax.jit
def simulated(key):
    model, keys = linear(), jax.random.split(key, 3)
    state, _ = model.simulate_state(keys[0], keys[1], (6, 3), 4)
    state = state._replace(column_noise=NoiseOfColumns(FACTORS, SPREAD))
    return state, mf.Dense(model.simulate_data(keys[2], state, 3))


def linear_state(factors=FACTORS):
    state, data = simulated(jax.random.key(1))
    return linear(), state._replace(column_noise=NoiseOfColumns(factors, SPREAD)), data


def log_prior_of(factors):
    """log p(f_j), elementwise: double exponential logs, cut off where 0.5 f_j is below 0.005."""
    logs, prior = np.log(factors), stats.laplace(scale=float(SPREAD))
    return prior.logpdf(logs) - logs - prior.logsf(np.log(0.01))


def log_density_of_columns(model, state, data):
    """log p(X | Z) of each column by its covariance, in 64 bits: (D,)."""
    z, scale = np.asarray(state.z, float), UNIT * np.asarray(state.column_noise.factors, float)
    covariance = 0.25 * np.eye(len(z)) + 2.25 * z @ z.T
    return np.array(
        [
            stats.multivariate_normal(cov=c**2 * covariance).logpdf(x)
            for c, x in zip(scale, np.asarray(data.values, float).T, strict=True)
        ]
    )


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_density_of_features_has_the_factors_and_their_jacobian(monkeypatch, is_broken):
    if is_broken:
        monkeypatch.setattr(ColumnUnits, "log_unit", lambda *_, **__: 0.0)
    log_joint, changes = jax.jit(lambda *drawn: linear().log_joint(*drawn)), []
    for factors in (FACTORS, FACTORS[::-1] * 2):
        model, state, data = linear_state(factors)
        expected = log_density_of_columns(model, state, data) + log_prior_of(factors)
        changes.append(float(log_joint(state, data)) - expected.sum())
    assert is_broken != np.isclose(*changes, atol=2e-3)


@pytest.mark.parametrize("is_broken", [False, True])
def test_factors_are_drawn_from_their_conditional(monkeypatch, is_broken):
    """Log densities at several factors differ by what the update says."""
    if is_broken:  # as with the weights at their estimates, not summed out
        right = updates.gaussian.penalised_sums
        monkeypatch.setattr(
            updates.gaussian, "penalised_sums", lambda z, x, mean, _: right(z, x, mean, 0.0)
        )
    seen = {}

    def keep(key, noise, **known):
        seen["log_density"] = column_noise.conditional(noise, **known)
        return noise

    monkeypatch.setattr(updates.column_noise, "update", keep)
    model, state, data = linear_state()
    updates.update_column_noise(model, jax.random.key(0), state, data)
    differences = []
    for factors in (FACTORS, FACTORS * 1.5, FACTORS * 0.3):
        other = state._replace(column_noise=NoiseOfColumns(factors, SPREAD))
        log_density = log_density_of_columns(model, other, data) + log_prior_of(factors)
        by_update = np.asarray(seen["log_density"](jnp.log(factors)))
        differences.append(log_density - (by_update - np.log(factors)))
    agrees = np.allclose(differences[1:], differences[0], atol=1e-2)
    assert agrees != is_broken


@pytest.mark.slow
def test_columns_without_error_leave_the_common_scale_to_the_others():
    """Two of five have the least noise there is; columns alike are pooled."""
    prior, noise = dist.LogUniform(0.1, 10.0), NoiseOfColumns(jnp.ones(5), jnp.asarray(0.5))
    end = 0.01

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def run(key, squares):
        def step(carry, key):
            noise, scale = carry
            keys = jax.random.split(key)
            least = end / scale
            known = {"squares": squares / scale**2, "counts": jnp.asarray(100.0)}
            noise = column_noise.update(keys[0], noise, **known, least=least)
            noise, scale = column_noise.update_level(keys[1], noise, scale, prior, least=least)
            return (noise, scale), (noise, scale)

        return jax.lax.scan(step, (noise, jnp.asarray(1.0)), jax.random.split(key, 300))[1]

    keys, squares = jax.random.split(jax.random.key(0), 20), jnp.full(5, 100.0)
    (factors, spread), scale = jax.tree.map(lambda x: x[:, 100:], run(keys, squares.at[:2].set(0)))
    noise = np.asarray(factors * scale[..., None])
    assert end * 0.999 < noise[..., :2].min() < noise[..., :2].max() < 2 * end
    np.testing.assert_allclose(np.median(noise[..., 2:]), 1, atol=0.05)
    assert 0.5 < np.median(scale) < 1.2
    assert np.median(run(keys, squares)[0][1]) < np.median(spread) / 3


# --- joint distribution ---------------------------------------------------------------------------


class NoiseSetup(Setup):
    """`Setup` with statistics of which all moments are finite, also where a factor is far out."""

    def statistics(self, state, data):
        z = state.z[:, self.model.first_slot() :].astype(float)
        x, noise = complete(state, data), state.column_noise
        size, cell = jnp.log(jnp.sum(x**2, axis=0)), jnp.tanh(x[1, 0])
        shared, logs = z @ z.T, jnp.log(noise.factors)
        return {
            "number of features": num_features(state.z[:, self.model.first_slot() :]),
            "number of bits": jnp.sum(z).astype(int),
            "shared 0, 2 times product": shared[0, 2] * jnp.tanh(x[0, 0] * x[2, 0]),
            "missing cell": cell,
            "missing times its row": cell * jnp.tanh(x[1, 1]) * shared[1, 1],
            "log factor": logs[0],
            "log factors": logs[0] * logs[1],
            "log factor times size": logs[0] * size[0],
            "log factor times other size": logs[0] * size[1],
            "log spread": jnp.log(noise.spread),
            "log spread times log factor squared": jnp.log(noise.spread) * logs[0] ** 2,
            "log noise": jnp.log(state.noise_scale),
            "log noise times log factor": jnp.log(state.noise_scale) * logs[0],
            "log noise times size": jnp.log(state.noise_scale) * size[0],
            "log feature": jnp.log(state.feature_scale),
            "log feature times log factor": jnp.log(state.feature_scale) * logs[0],
        }


def narrow_spread():
    return dist.LogUniform(0.2, 0.8)  # factors that are not so far out that floats end


def set_ends(monkeypatch):
    """A prior of the spread that floats stand, and an end of the noise that columns come near."""
    for module in (prior_of_noise, column_noise):
        monkeypatch.setattr(module, "spread_prior", narrow_spread)
    monkeypatch.setattr(prior_of_noise, "_LEAST", 0.4)


@pytest.mark.tiers(exhaustive=["one column counted thrice", "scale without the end"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [None, "one column counted thrice", "level without its Jacobian", "scale without the end"],
)
def test_the_step_of_features_with_noise_by_column(monkeypatch, fault):
    set_ends(monkeypatch)
    if fault == "one column counted thrice":
        right = column_noise.conditional
        monkeypatch.setattr(
            column_noise,
            "conditional",
            lambda noise, squares, *rest: right(noise, squares.at[0].multiply(3), *rest),
        )
    if fault == "level without its Jacobian":
        right = column_noise.log_density_of_factors
        monkeypatch.setattr(
            column_noise,
            "log_density_of_factors",
            lambda factors, *rest: right(factors, *rest) + jnp.log(factors),
        )
    if fault == "scale without the end":
        monkeypatch.setattr(
            column_noise.ScaleWithFactors, "log_prob", lambda self, v: self.prior.log_prob(v)
        )
    model = mf.LinearGaussianIBP(**PRIORS, bias=True, column_noise=True)
    step = model.sampler(sweep="collapsed", anneal=False).step
    setup = NoiseSetup(model, True, CAPACITY)
    check = partial(
        check_kernel,
        lambda key, state, data: step(key, state, data, jnp.asarray(1.0)),
        sample_prior=setup.sample_prior,
        simulate=setup.simulate,
        statistics=setup.statistics,
        key=jax.random.key(5),
        compiler_options=FAST_COMPILE,
    )
    if fault is None:
        check(num_steps=3)
        return
    # without the end of the noise features grow beyond the room that all others leave
    with pytest.raises((AssertionError, RuntimeError), match=r"FAILED|overflowed"):
        check(num_steps=4, num_replicates=2_048)
    assert NUM_COLUMNS == 2


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_answers_are_those_of_columns_divided_by_their_factors():
    model, state, data = linear_state()
    draw = {"z": state.z, "alpha": 1.0, "concentration": 1.0} | {
        "noise_scale": state.noise_scale,
        "feature_scale": state.feature_scale,
        "noise_factors": FACTORS,
    }
    scaled = replace(model, column_unit=UNIT * FACTORS, column_noise=False)
    rows, columns, key = jnp.array([0, 3, 5]), jnp.array([0, 1, 2]), jax.random.key(2)
    new = mf.Dense.from_array(np.array([[1.0, np.nan, 0.2], [1.0, 2.0, 0.1]]) * UNIT)
    pairs = [
        (each.predict_cells(draw, data, rows, columns), each.features(draw, data),
         each.predict_rows(key, draw, data, new), each.transform_rows(key, draw, data, new))
        for each in (model, scaled)
    ]  # fmt: skip
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), *pairs)
    assert np.all(np.asarray(pairs[0][0][1]) > 0.25 * (UNIT * FACTORS)[columns] ** 2)


@pytest.mark.exhaustive
def test_a_run_knows_the_noise_of_its_columns(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    x[:, 1] += 3 * x[:, 0]
    x[3, 2], x[:, 3] = np.nan, 7.0  # a missing cell, a constant column
    with pytest.warns(mf.RunWarning):
        post = mf.sample(mf.LinearGaussianIBP(column_noise=True), x, **RUN)
    found = post.column_noise()
    spread = np.nanstd(x, axis=0)
    assert post.draws["noise_factors"].shape == (1, 4, 4)
    np.testing.assert_allclose(post.model.column_unit[:3], spread[:3], rtol=1e-4)
    scales = post.draws["noise_scale"][..., None] * post.draws["noise_factors"]
    np.testing.assert_allclose(found.mean[:3], scales.mean((0, 1))[:3] * spread[:3], rtol=1e-4)
    assert np.all(found.bounds[0] <= found.mean)
    assert np.isfinite(post.predict().mean).all()
    assert np.isfinite(post.log_likelihood().values).all()
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    assert again.model.column_noise
    np.testing.assert_array_equal(again.predict().sd, post.predict().sd)
    assert "noise_spread" in str(post.summary())


WIDE = np.random.default_rng(2).normal(size=(20, 4)) * [1e-3, 1.0, 50.0, 1e4]


def test_columns_in_different_units_have_noise_of_their_own_unless_stated():
    model, data, alike = mf.LinearGaussianIBP(), mf.Dense(WIDE), mf.Dense(WIDE / WIDE.std(axis=0))
    found, _ = matched_to(model, data, None, method="sample")
    assert found.column_noise is True
    assert found.matched(data).column_noise is True
    assert "noise of its own" in " ".join(found.notes(data))
    stated = {"column_noise": False}, {"noise_scale": 0.5}, {"offset": 0.0}, {"column_unit": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        off = [mf.LinearGaussianIBP(**each).matched(data) for each in stated]
    off += [model.matched(alike), model.for_method("smc").matched(data)]
    assert all(each.column_noise is False for each in off)
    assert "noise of its own" not in " ".join(off[-1].notes(data))
    assert mf.LinearGaussianIBP(column_noise=True).matched(alike).column_noise is True
    # methods without it run as before
    matched_to(model, data, None, method="particle_filter")[0].filter()
    matched_to(model, data, None, method="smc")[0].annealed(data)


@pytest.mark.exhaustive
def test_replicas_share_the_noise_of_columns():
    with pytest.warns(mf.RunWarning):
        post = mf.sample(mf.LinearGaussianIBP(), WIDE, temper=2, **RUN)
    assert "noise_factors" not in post.draws


def test_methods_that_take_columns_alike_refuse():
    model = mf.LinearGaussianIBP(column_noise=True)
    for verb in (mf.particle_filter, mf.smc):
        with pytest.raises(ValueError, match=r"column_noise: .* takes columns that share their"):
            verb(model, np.eye(4, dtype=np.float32), progress=False)
    with pytest.raises(TypeError, match="column_noise"):
        mf.LinearGaussianIBP(column_noise="yes")


def test_a_prior_of_noise_far_above_the_data_is_refused():
    """Columns have an end of noise by this prior, which would be above all that they vary by."""
    data = mf.Dense.from_array(np.random.default_rng(0).normal(size=(40, 6)))
    with pytest.raises(ValueError, match="noise_scale: with column_noise=True no column has noise"):
        mf.LinearGaussianIBP(
            noise_scale=dist.LogNormal(np.log(100.0), 2.0), column_noise=True
        ).matched(data)
    mf.LinearGaussianIBP(noise_scale=dist.LogNormal(0.0, 1.0), column_noise=True).matched(data)
