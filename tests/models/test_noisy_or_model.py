"""The noisy-OR model as a user meets it: bad input, queries, extension, pictures."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import jaxmf as mf
from jaxmf.data import Dense
from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrParameters, PoweredParameters
from jaxmf.models.noisy_or.noisy_or_spec import NoisyOrState, parameters_of
from jaxmf.posterior.cell_distributions import CELL_DISTRIBUTIONS
from jaxmf.samplers.feature_layout import RowDraws, RowPrior
from jaxmf.samplers.noisy_or import new_causes, sweep
from tests.support import noisy_or_oracles as oracles

FIXED = {"alpha": 1.0, "cause_probability": 0.3, "efficacy": 0.8, "leak": 0.05}
NAN = np.nan


def model(**settings):
    return mf.NoisyOrIBP(**FIXED | settings)


def fitted(x):
    return mf.sample(model(), x, num_warmup=1, num_samples=1, progress=False)


@pytest.mark.parametrize(
    ("call", "exception", "words"),
    [
        (lambda: model(alpha=0.0), ValueError, "alpha must be positive and finite, got 0.0"),
        (lambda: model(concentration=-1.0), ValueError, "concentration must be positive"),
        (
            lambda: model(efficacy=1.2),
            ValueError,
            r"efficacy must be a probability in \[0, 1\], got 1.2",
        ),
        (lambda: model(efficacy=-0.1), ValueError, r"efficacy must be a probability in \[0, 1\]"),
        (lambda: model(efficacy=NAN), ValueError, "efficacy must be a probability"),
        (lambda: model(leak=1.0), ValueError, r"leak must be a probability in \[0, 1\), got 1.0"),
        (lambda: model(leak=-0.5), ValueError, r"leak must be a probability in \[0, 1\)"),
        (
            lambda: model(cause_probability=0.0),
            ValueError,
            r"cause_probability must be a probability in \(0, 1\), got 0.0",
        ),
        (lambda: model(leak="small"), TypeError, "leak must be a probability or a numpyro"),
        (lambda: model(leak=True), TypeError, "leak must be a probability"),
        (lambda: model(leak=np.ones(2) / 2), ValueError, "leak must be one number"),
        (
            lambda: model(leak=dist.Gamma(1.0, 1.0)),
            ValueError,
            r"prior of leak must be over numbers between 0 and 1, Gamma allows others; try Beta",
        ),
        (lambda: model(efficacy=dist.Uniform(0.0, 2.0)), ValueError, "Uniform allows others"),
        (lambda: model(leak=dist.Bernoulli(0.5)), ValueError, "must be continuous"),
        (lambda: model(leak=dist.Beta(np.ones(2), 1.0)), ValueError, "over one number"),
        (lambda: model(alpha=dist.Normal(0.0, 1.0)), ValueError, "alpha must be over positive"),
        (lambda: model(num_features=0), ValueError, "num_features must be at least 1"),
        (lambda: model(num_features=2.0), TypeError, "num_features must be a whole number"),
        (lambda: model().sampler(sweep="collapsed"), ValueError, "'sequential', 'parallel'"),
        (lambda: model().sampler(num_moves=-1), ValueError, "num_moves must be at least 0"),
        (lambda: model().sampler(split_merge=-1), ValueError, "split_merge must be at least 0"),
        (lambda: model().sampler(capacity=0), ValueError, "capacity must be at least 1"),
        (
            lambda: fitted([[0, 1], [2, NAN]]),
            ValueError,
            "data: must hold 0 and 1 only .*: 2.0 at row 1, column 0. Threshold",
        ),
        (lambda: fitted([[0.5, 1.0]]), ValueError, "0.5 at row 0, column 0"),
        (lambda: fitted([[-1.0, 1.0], [3.0, 0.0]]), ValueError, r"\(2 such values\)"),
        (lambda: fitted([[NAN, NAN]]), ValueError, "data: all 2 cells are missing"),
        (lambda: fitted([["a", "b"]]), TypeError, "data: has dtype"),
    ],
)
def test_bad_input(call, exception, words):
    with pytest.raises(exception, match=words):
        call()


def test_limits_that_are_allowed_are_finite():
    """Efficacy of 0 and 1, leak of 0: no infinities, and impossible is next to impossible."""
    eta = jnp.arange(4.0)
    for efficacy, leak in [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0), (1.0, 0.0)]:
        parameters = NoisyOrParameters(*(jnp.asarray(value) for value in (0.3, efficacy, leak)))
        assert np.isfinite(noisy_or.log_zero(eta, parameters)).all()
        assert np.isfinite(noisy_or.log_one(eta, parameters)).all()
        expected = 1 - (1 - leak) * (1 - efficacy) ** np.arange(4.0)
        np.testing.assert_allclose(noisy_or.probability(eta, parameters), expected, atol=1e-6)
    assert noisy_or.log_one(jnp.zeros(()), parameters) < -70


@jax.jit
def powered_tables(parameters, power):
    """log P(x = 1)^power, eta = 0 ... 5 and 0 ... 7 causes summed out: by table, one by one."""
    powered = PoweredParameters(parameters, power, most_unseen=7)
    eta, unseen = jnp.arange(6.0), jnp.arange(8.0)[:, None]
    each = noisy_or.log_one(eta, powered, unseen)
    one = noisy_or.log_one(eta, powered, 1.0), noisy_or.log_one(eta, powered)
    return noisy_or.count_table(5, 8, powered).ones, each, one


def test_a_power_of_a_one_is_summed_over_the_causes_that_may_be_active():
    for values in [(0.3, 0.8, 0.1), (0.5, 1.0, 0.0), (1.0, 0.5, 0.0)]:
        table, each, one = powered_tables(NoisyOrParameters(*map(jnp.asarray, values)), 0.4)
        active = scipy.stats.binom.pmf(np.arange(8), np.arange(8)[:, None], values[0])
        ones = 1 - (1 - values[2]) * (1 - values[1]) ** np.arange(13)
        ones = np.maximum(ones, 1e-35)[np.arange(8)[:, None] + np.arange(6)] ** 0.4
        np.testing.assert_allclose(table, np.log(active @ ones), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each, table, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(one, table[np.array([1, 0])], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def truth():
    """Z, Y and X of 8 rows and 60 columns with three causes, some cells hidden in the last."""
    rng = np.random.default_rng(0)
    z = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]] * 2, bool)[:8]
    y = rng.random((3, 60)) < 0.3
    x = (rng.random((8, 60)) < 1 - 0.95 * 0.2 ** (z.astype(int) @ y)).astype(float)
    hidden = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    return z, y, x, hidden


@pytest.fixture(scope="module")
def posterior(truth):
    return mf.sample(
        model(), truth[3], num_warmup=40, num_samples=30, num_chains=1, progress=False, seed=1
    )


def test_the_log_joint_is_that_of_the_oracle(truth):
    z, y, _, hidden = truth
    seen = ~np.isnan(hidden)
    with jax.enable_x64(True):
        hyperparameters = {name: jnp.asarray(value) for name, value in FIXED.items()}
        state = NoisyOrState(
            z=jnp.asarray(z), y=jnp.asarray(y), concentration=jnp.asarray(1.0), **hyperparameters
        )
        found = jax.jit(model().log_joint)(state, Dense(hidden))
        log_prior = jax.jit(
            lambda state: model().prior(state).log_prob_labelled(z.sum(axis=0), len(z))
        )
        prior = log_prior(state)
    p = FIXED["cause_probability"]
    activity = y.sum() * np.log(p) + (~y).sum() * np.log(1 - p)
    likelihood = oracles.log_likelihood_given_activity(
        z[None], y[None], np.nan_to_num(hidden), seen, **FIXED
    )
    assert float(found) == pytest.approx(float(prior) + activity + likelihood[0], rel=1e-10)


def test_answers_of_a_posterior(truth, posterior):
    z, _, x, hidden = truth
    assert posterior.num_features().mode == 3
    assert np.abs(posterior.cooccurrence() - z.astype(int) @ z.T).mean() < 0.3
    prediction = posterior.predict()
    assert set(np.unique(prediction.draws)) <= {0.0, 1.0}
    score = posterior.held_out_log_likelihood(x)
    chance = prediction.mean
    known = x[np.isnan(hidden)]
    each = np.log(np.where(known == 1, chance, 1 - chance))
    assert score.mean == pytest.approx(each.mean(), abs=1e-3)
    assert score.mean > np.log(0.5)
    features = posterior.features()
    assert features.mean.shape == (3, 60)
    assert ((features.mean >= 0) & (features.mean <= 1)).all()


@pytest.mark.slow
def test_new_rows_are_recognised(truth, posterior):
    x = truth[2]
    order = posterior.features().slots
    known = posterior.reference_draw()["z"][:4, order]
    np.testing.assert_allclose(posterior.transform(x[:4]), known, atol=0.2)
    half = x[:4].copy()
    half[:2, 30:] = half[2:, :30] = np.nan
    predicted = posterior.predict(new_rows=half)
    error = np.abs(predicted.mean - x[predicted.rows, predicted.columns]).mean()
    assert error < 0.35
    with pytest.raises(ValueError, match="new_rows: must hold 0 and 1 only"):
        posterior.transform(x[:4] * 2)


def test_the_causal_graph_is_drawn(posterior):
    figure = posterior.plot.causal_graph()
    figure.canvas.draw()
    assert "causes of 8 rows" in figure.axes[0].get_title(loc="left")
    edges = int(posterior.reference_draw()["z"].sum())
    assert len(figure.axes[0].get_lines()) == edges
    assert posterior.plot.causal_graph(draw=0, max_rows=3).axes
    with pytest.raises(ValueError, match="draw must be at most 29, got 99"):
        posterior.plot.causal_graph(draw=99)


def test_the_distribution_of_binary_cells():
    distribution = CELL_DISTRIBUTIONS["bernoulli"]
    mean = jnp.array([0.2, 0.2, 1.0, 0.0, 0.5])
    values = jnp.array([1.0, 0.0, 1.0, 0.0, 0.5])
    found = distribution.log_density(values, mean, mean * (1 - mean))
    np.testing.assert_allclose(found, [np.log(0.2), np.log(0.8), 0, 0, -np.inf], atol=1e-6)
    draws = distribution.draw(
        np.random.default_rng(0), np.array([0.0, 0.3, 1.0]), np.zeros(3), 4000
    )
    np.testing.assert_allclose(draws.mean(axis=0), [0, 0.3, 1], atol=0.03)


def test_fused_and_plain_scans_agree():
    """The scan of a row compiled as one kernel, and under vmap as a plain loop."""
    rng = np.random.default_rng(0)
    num_slots, num_columns = 5, 40
    arguments = {
        "order": rng.random(num_slots),
        "uniforms": rng.random(num_slots),
        "z": rng.random(num_slots) < 0.5,
        "y": (rng.random((num_slots, num_columns)) < 0.3) * 1.0,
    }
    arguments = {
        name: jnp.asarray(x, bool if x.dtype == bool else float) for name, x in arguments.items()
    }
    cells = noisy_or.cells_of(jnp.asarray(rng.random(num_columns) < 0.4, float), None)
    fixed = NoisyOrParameters(*(jnp.asarray(value) for value in (0.3, 0.8, 0.1)))

    def scan(order, uniforms, z, y):
        movable = jnp.arange(num_slots) != 2
        conditional = RowPrior(jnp.zeros(num_slots), jnp.zeros(()), movable, ~movable)
        draws = RowDraws(order, uniforms, jnp.zeros(()), None)
        return sweep.scan_bits(
            draws,
            z,
            y,
            cells,
            conditional,
            num_singletons=jnp.asarray(1.0),
            parameters=fixed,
            table=new_causes.count_table(num_slots, fixed),
        )

    alone = jax.jit(scan)(*arguments.values())
    together = jax.jit(jax.vmap(scan))(*(jnp.stack([x, x]) for x in arguments.values()))
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, two[0])
    assert alone[0][2] == arguments["z"][2]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_filter_goes_on_where_it_stopped(truth):
    _, _, x, _ = truth
    settings = {"num_particles": 30, "progress": False, "seed": 4}
    for options in ({}, {"rejuvenate_every": 2, "proposal": "informed"}):
        whole = mf.particle_filter(model(), x, **settings, **options)
        first = mf.particle_filter(model(), x[:5], **settings, **options)
        more = first.extend(x[5:], progress=False)
        assert more.log_evidence == pytest.approx(whole.log_evidence, rel=1e-4)
        np.testing.assert_array_equal(more.draws["z"], whole.draws["z"])
        np.testing.assert_array_equal(more.draws["y"], whole.draws["y"])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_priors_on_everything_find_the_truth(truth):
    """Default priors: the causes are found and the probabilities come out near their values."""
    z, _, x, _ = truth
    found = mf.sample(mf.NoisyOrIBP(), x, num_warmup=150, num_samples=150, progress=False)
    table = found.summary()
    assert abs(table["cause_probability", "mean"] - 0.3) < 0.1
    assert abs(table["efficacy", "mean"] - 0.8) < 0.1
    assert abs(table["leak", "mean"] - 0.05) < 0.05
    assert found.num_features().mode == z.shape[1]
    assert parameters_of(found.reference_draw()).leak < 0.2


@pytest.mark.slow
def test_wide_data_compile():
    """Beyond some columns the fused scan cannot be compiled; the plain one takes over."""
    x = (np.random.default_rng(0).random((3, 5_000)) < 0.2).astype(float)
    found = mf.sample(model(), x, num_warmup=1, num_samples=1, num_chains=1, progress=False)
    assert np.isfinite(found.draws["log_joint"]).all()
