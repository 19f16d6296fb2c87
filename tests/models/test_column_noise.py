"""Noise of its own for each column: conditionals, joint distribution, answers, broken twins."""

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
from jaxmf.priors import column_noise as prior_of_noise
from jaxmf.priors.column_noise import NoiseOfColumns
from jaxmf.samplers import column_noise
from jaxmf.samplers.feature_layout import num_features
from jaxmf.testing import check_kernel
from tests import FAST_COMPILE
from tests.models.test_linear_gaussian_kernels import CAPACITY, NUM_COLUMNS, PRIORS, Setup

FACTORS = np.array([0.2, 1.0, 3.0], np.float32)
UNIT = np.array([1.0, 100.0, 0.1], np.float32)
RUN = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}


def linear(**settings):
    fixed = {"alpha": 1.0, "noise_scale": 0.5, "feature_scale": 1.5}
    return mf.LinearGaussianIBP(**fixed | settings, column_unit=UNIT, column_noise=True)


def linear_state(factors=FACTORS):
    model = linear()
    keys = jax.random.split(jax.random.key(1), 3)
    state, _ = model.simulate_state(keys[0], keys[1], (6, 3), 4)
    state = state._replace(column_noise=NoiseOfColumns(FACTORS, jnp.asarray(5.0)))
    data = mf.Dense(model.simulate_data(keys[2], state, 3))
    return model, state._replace(column_noise=NoiseOfColumns(factors, jnp.asarray(5.0))), data


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
    changes = []
    for factors in (FACTORS, FACTORS[::-1] * 2):
        model, state, data = linear_state(factors)
        log_prior = stats.gamma(2.5, scale=1 / 2.5).logpdf(factors**-2.0) + np.log(2 / factors**3)
        expected = log_density_of_columns(model, state, data).sum() + log_prior.sum()
        changes.append(float(model.log_joint(state, data)) - expected)
    assert is_broken != np.isclose(*changes, atol=2e-3)


@pytest.mark.parametrize("is_broken", [False, True])
def test_factors_are_drawn_from_their_conditional(monkeypatch, is_broken):
    """Log densities at several factors differ by what the Gamma of the update says."""
    if is_broken:  # as with the weights at their estimates, not summed out
        right = updates.gaussian.penalised_sums
        monkeypatch.setattr(
            updates.gaussian, "penalised_sums", lambda z, x, mean, _: right(z, x, mean, 0.0)
        )
    seen = {}

    def keep(key, noise, *, squares, counts):
        seen.update(zip(("shape", "rate"), column_noise.conditional(noise, squares, counts),
                        strict=True))  # fmt: skip
        return noise

    monkeypatch.setattr(updates.column_noise, "update", keep)
    model, state, data = linear_state()
    updates.update_column_noise(model, jax.random.key(0), state, data)
    gamma = stats.gamma(np.asarray(seen["shape"]), scale=1 / np.asarray(seen["rate"]))
    differences = []
    for factors in (FACTORS, FACTORS * 1.5, FACTORS * 0.3):
        other = state._replace(column_noise=NoiseOfColumns(factors, jnp.asarray(5.0)))
        log_density = log_density_of_columns(model, other, data)
        log_density += np.asarray(prior_of_noise.log_density_of_factors(factors, 5.0))
        differences.append(log_density - gamma.logpdf(factors**-2.0) - np.log(2 / factors**3))
    agrees = np.allclose(differences[1:], differences[0], atol=1e-2)
    assert agrees != is_broken


def test_a_column_without_error_and_columns_alike():
    """Noise of a column without residuals stays above a share of the common one; alike: pooled."""
    noise = NoiseOfColumns(jnp.ones(4), jnp.asarray(4.0))

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def run(key, squares):
        def step(noise, key):
            noise = column_noise.update(key, noise, squares=squares, counts=jnp.asarray(100.0))
            return noise, noise

        return jax.lax.scan(step, noise, jax.random.split(key, 300))[1]

    keys, squares = jax.random.split(jax.random.key(0), 20), jnp.full(4, 100.0)
    factors, degrees = map(np.asarray, run(keys, squares.at[0].set(0)))
    assert 0.03 < factors[..., 0].min() < factors[..., 0].max() < 0.5
    np.testing.assert_allclose(np.median(factors[..., 1:]), 1, atol=0.05)
    assert np.median(run(keys, squares)[1]) > 3 * np.median(degrees)


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
            "log degrees": jnp.log(noise.degrees),
            "log degrees times log factor squared": jnp.log(noise.degrees) * logs[0] ** 2,
            "log noise": jnp.log(state.noise_scale),
            "log noise times log factor": jnp.log(state.noise_scale) * logs[0],
            "log noise times size": jnp.log(state.noise_scale) * size[0],
            "log feature": jnp.log(state.feature_scale),
            "log feature times log factor": jnp.log(state.feature_scale) * logs[0],
        }


def few_degrees():
    return dist.Gamma(20.0, 4.0)  # factors that are not so far out that floats end


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "one column left out", "level without its Jacobian"])
def test_the_step_of_features_with_noise_by_column(monkeypatch, fault):
    for module in (prior_of_noise, column_noise):
        monkeypatch.setattr(module, "degrees_prior", few_degrees)
    if fault == "one column left out":
        right = column_noise.conditional
        monkeypatch.setattr(
            column_noise,
            "conditional",
            lambda noise, squares, counts: right(noise, squares.at[0].set(0), counts),
        )
    if fault == "level without its Jacobian":
        right = column_noise.log_density_of_factors
        monkeypatch.setattr(
            column_noise,
            "log_density_of_factors",
            lambda factors, degrees: right(factors, degrees) + jnp.log(factors),
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
    with pytest.raises(AssertionError, match="FAILED"):
        check(num_steps=4, num_replicates=2_048)
    assert NUM_COLUMNS == 2


# --- answers --------------------------------------------------------------------------------------


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


def test_a_run_knows_the_noise_of_its_columns(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    x[:, 1] += 3 * x[:, 0]
    x[3, 2], x[:, 3] = np.nan, 7.0  # a missing cell, a constant column
    with (
        pytest.warns(mf.RunWarning),
        pytest.warns(UserWarning, match=r"column 3 holds one number alone .* leave such columns"),
    ):
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
    assert "noise_degrees" in str(post.summary())


def test_methods_that_take_columns_alike_refuse():
    model = mf.LinearGaussianIBP(column_noise=True)
    for verb in (mf.particle_filter, mf.smc):
        with pytest.raises(ValueError, match=r"column_noise: .* takes columns that share their"):
            verb(model, np.eye(4, dtype=np.float32), progress=False)
    with pytest.raises(TypeError, match="column_noise"):
        mf.LinearGaussianIBP(column_noise="yes")
