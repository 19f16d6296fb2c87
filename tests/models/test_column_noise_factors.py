"""Noise of its own for each column in BPMF: conditionals, joint distribution, answers, twins."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf.priors import column_noise as prior_of_noise
from jaxmf.priors.column_noise import NoiseOfColumns
from jaxmf.samplers import column_noise
from jaxmf.samplers.factors.layout import Design, RowPriors, in_chunks
from jaxmf.samplers.factors.rows import draw_rows
from jaxmf.testing import check_kernel
from tests.models.test_column_noise import set_ends
from tests.support.bpmf_setups import COLUMNS, FAST_COMPILE, ROWS, SHAPE, Setup, plain, whole_step

FACTORS = np.array([0.2, 1.0, 3.0], np.float32)
RUN = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}


@pytest.mark.parametrize("forgotten", [None, Design, RowPriors])
def test_vectors_are_drawn_with_the_precision_of_rows_and_columns(monkeypatch, forgotten):
    """Means and roots of covariances of a row's conditional, from normals that are zero and one."""
    if forgotten is not None:
        monkeypatch.setattr(forgotten, "over", lambda it, *_: it)
    rng = np.random.default_rng(0)
    table, prior = rng.normal(size=(3, 2)), np.array([[2.0, 0.3], [0.3, 1.0]])
    values, means, start = rng.normal(size=7), rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    row_noise = np.array([0.5, 2.0, 1.0, 1.0])
    meets = Design(
        table=jnp.array(np.vstack([table, np.zeros((1, 2))]), jnp.float32),
        row_part=jnp.zeros((4, 0)),
        cell_features=jnp.zeros((8, 0)),
        cell_coefficients=jnp.zeros((4, 0)),
    ).over(FACTORS, COLUMNS)
    targets = jnp.append(jnp.asarray(values, jnp.float32) / FACTORS[COLUMNS], 0)
    prior_of_rows = RowPriors(
        jnp.asarray(means, jnp.float32), jnp.zeros(4, jnp.int32), jnp.asarray(prior[None], "f4")
    ).over(jnp.asarray(row_noise, jnp.float32))
    chunks = in_chunks(ROWS, COLUMNS, SHAPE, 2)

    @jax.jit
    def draw(normals):
        scaled = normals * row_noise[:, None].astype(np.float32)
        passed = {"chunks": chunks, "priors": prior_of_rows, "precision": jnp.asarray(1.7)}
        return draw_rows(scaled, jnp.asarray(start, jnp.float32), meets, targets, **passed)[0]

    middle = np.asarray(draw(jnp.zeros((4, 2))))
    moved = [np.asarray(draw(jnp.zeros((4, 2)).at[:, k].set(1))) - middle for k in range(2)]
    agrees = []
    for row in range(4):
        seen = np.asarray(ROWS) == row
        w, weights = table[COLUMNS[seen]], 1.7 / (FACTORS[COLUMNS[seen]] * row_noise[row]) ** 2
        precision = prior + (w.T * weights) @ w
        side = prior @ means[row] + (w.T * weights) @ values[seen]
        agrees.append(np.allclose(middle[row], np.linalg.solve(precision, side), atol=2e-4))
        root = np.stack([each[row] for each in moved], axis=1)
        agrees.append(np.allclose(root @ root.T, np.linalg.inv(precision), atol=2e-4))
    assert all(agrees) == (forgotten is None)


@pytest.mark.slow
def test_the_density_has_the_noise_of_every_column():
    model = plain(column_noise=True, column_unit=(1.5, 0.5, 4.0))
    noise = NoiseOfColumns(jnp.asarray(FACTORS), jnp.asarray(0.8))

    @jax.jit
    def simulated(key):
        state = model.simulate_state(key, *SHAPE)._replace(column_noise=noise)
        return state, model.simulate_data(jax.random.fold_in(key, 1), state, ROWS, COLUMNS)

    @jax.jit
    def answers(state, data):
        draw = {"u": state.u, "v": state.v, "noise_scale": jnp.sqrt(state.noise)}
        cells = model.predict_cells(draw | {"noise_factors": FACTORS}, data, ROWS, COLUMNS)
        least = prior_of_noise.least_noise(model.cell_noise().noise_variance, 0.5)
        log_prior = prior_of_noise.log_density(noise, least / jnp.sqrt(state.noise))
        both = [
            (model.log_joint(one, data), model.log_likelihood(one, data))
            for one in (state, state._replace(column_noise=None))
        ]
        return cells, log_prior, both

    state, data = simulated(jax.random.key(1))
    (mean, variance), log_prior, ((joint, likelihood), alike) = jax.device_get(answers(state, data))
    unit = np.array([1.5, 0.5, 4.0])[COLUMNS]
    np.testing.assert_allclose(
        np.sqrt(variance), np.sqrt(float(state.noise)) * unit * FACTORS[COLUMNS], rtol=1e-5
    )
    expected = stats.norm(mean, np.sqrt(variance)).logpdf(data.values).sum()
    np.testing.assert_allclose(likelihood, expected, rtol=1e-4)
    change = expected - alike[1] + log_prior
    np.testing.assert_allclose(joint - alike[0], change, atol=1e-3)


@pytest.mark.tiers(exhaustive=["False"])
@pytest.mark.slow
@pytest.mark.parametrize("is_broken", [False, True])
def test_the_step_of_factors_with_noise_by_column(monkeypatch, is_broken):
    """Broken twin: the residuals of one column left out."""
    set_ends(monkeypatch)
    if is_broken:
        right = column_noise.conditional
        monkeypatch.setattr(
            column_noise,
            "conditional",
            lambda noise, squares, *rest: right(noise, squares.at[0].set(0), *rest),
        )
    model = plain(column_noise=True)
    setup = Setup(model)

    def statistics(state, data):
        factors, spread = state.column_noise
        logs, residual = jnp.log(factors), data.values - 0.5
        return setup.statistics(state, data) | {
            "log factor": logs[0],
            "log factors": logs[0] * logs[1],
            "log spread": jnp.log(spread),
            "log factor times size": logs[0]
            * jnp.log(jnp.sum(residual[jnp.array([0, 2, 4])] ** 2)),
            "log noise times log factor": jnp.log(state.noise) * logs[2],
            "row times factor": logs[0] * jnp.log(state.u[0, 0] ** 2),
            "log spread times log factor squared": jnp.log(spread) * logs[0] ** 2,
        }

    check = partial(
        check_kernel,
        whole_step(model),
        sample_prior=setup.sample_prior,
        simulate=setup.simulate,
        statistics=statistics,
        key=jax.random.key(4),
        compiler_options=FAST_COMPILE,
    )
    if not is_broken:
        check()
        return
    with pytest.raises(AssertionError, match="FAILED"):
        check(num_replicates=2_048, num_steps=6)


@pytest.mark.exhaustive
def test_a_run_of_factors_knows_the_noise_of_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1)) @ np.ones((1, 4)) + rng.normal(size=(40, 4)) * [0.1, 0.1, 1, 1]
    x[3, 2] = np.nan
    data = mf.Entries.from_array(x)
    with pytest.warns(mf.RunWarning):
        post = mf.sample(mf.BPMF(1, column_noise=True), data, **RUN)
    noise = post.column_noise()
    assert np.all(noise.mean[:2] < noise.mean[2:])
    cells = np.array([0, 3]), np.array([0, 2])
    missing = post.predict(cells)
    assert np.isfinite(missing.mean).all()
    assert missing.sd[0] < missing.sd[1]
    assert np.isfinite(post.predict(new_rows=x[:2]).sd).all()
    assert post.log_likelihood().values.shape[-1] == 159
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    assert again.model.column_noise
    np.testing.assert_array_equal(again.predict(cells).sd, missing.sd)
    new = mf.Entries(np.arange(4), np.zeros(4, int), np.arange(4.0), (40, 1))
    with pytest.raises(ValueError, match="new_columns: nothing is known of the noise"):
        post.predict(([5], [0]), new_columns=new)


def test_column_noise_is_of_gaussian_cells():
    with pytest.raises(ValueError, match=r"column_noise: is of Gaussian cells, not of .*Probit"):
        mf.BPMF(2, likelihood=mf.Probit(), column_noise=True)
    with pytest.raises(TypeError, match="column_noise"):
        mf.BPMF(2, column_noise="yes")


def test_a_prior_of_noise_far_above_the_data_is_refused():
    """Columns have an end of noise by this prior, which would be above all that they vary by."""
    data = mf.Entries.from_array(np.random.default_rng(0).normal(size=(40, 6)))
    with pytest.raises(ValueError, match="noise_scale: with column_noise=True no column has noise"):
        mf.BPMF(
            2, likelihood=mf.Gaussian(dist.LogNormal(np.log(100.0), 2.0)), column_noise=True
        ).matched(data)
    mf.BPMF(2, likelihood=mf.Gaussian(dist.LogNormal(0.0, 1.0)), column_noise=True).matched(data)
