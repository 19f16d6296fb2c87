"""Cells that show intervals: their masses and draws, thresholds, binary and ordered probit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import jaxmf as mf
from jaxmf import settings
from jaxmf.engine.algorithm import Info
from jaxmf.likelihoods import thresholds as kernels
from jaxmf.likelihoods.cells.noise import ProbitNoise, ThresholdNoise
from jaxmf.likelihoods.intervals import log_mass, mass, slopes, truncated_normals
from jaxmf.testing import check_kernel, check_means

INTERVALS = np.array([
    (-np.inf, 0.3), (0.3, np.inf), (-3, 5), (-0.5, 0.5), (-7, -6.9), (3.9, 4.2), (4, np.inf),
    (4.125, 4.25), (1, 1.125), (9.2, 11), (13.1, 15), (14, np.inf), (-40, -17), (20, np.inf),
    (-np.inf, -20), (60, 60.5), (-1e4, np.inf), (-1000.5, -1000), (200, np.inf),
])  # fmt: skip


def reflected(lower, upper):
    is_left = lower + upper < 0
    return np.where(is_left, -upper, lower), np.where(is_left, -lower, upper), is_left


def exact_log_mass(lower, upper):
    """In double precision."""
    near, far, _ = reflected(lower, upper)
    log_near, log_far = special.log_ndtr(-near), special.log_ndtr(-far)
    return log_near + np.log(-np.expm1(np.minimum(log_far - log_near, -1e-300)))


def masses_and_derivative(lower, upper):
    derivative = jax.grad(lambda eta: log_mass(lower - eta, upper - eta).sum())(0.0)
    return log_mass(lower, upper), slopes(lower, upper), derivative


@pytest.mark.parametrize("x64", [False, True])
def test_masses_and_slopes_of_intervals(x64):
    with jax.enable_x64(x64):
        ends = tuple(jnp.asarray(one, float) for one in INTERVALS.T)
        masses, found, derivative = jax.jit(masses_and_derivative)(*ends)
    exact = exact_log_mass(*INTERVALS.T)
    tolerance = 1e-12 if x64 else 3e-6
    np.testing.assert_allclose(masses, exact, rtol=2 * tolerance, atol=tolerance)
    expected = [np.exp(stats.norm.logpdf(end) - exact) for end in INTERVALS.T]
    np.testing.assert_allclose(found, expected, rtol=1e-10 if x64 else 5e-6, atol=1e-30)
    total = (expected[0] - expected[1]).sum()
    np.testing.assert_allclose(derivative, total, rtol=1e-9 if x64 else 0.01)


UNIFORMS = np.array([0.0, 1e-3, 0.1, 0.5, 0.9, 0.999])


def tails_of_draws(x64, draw=jax.jit(truncated_normals)):
    """The mass of each interval beyond its draws, which should be one less the uniform."""
    with jax.enable_x64(x64):
        lower, upper = (jnp.asarray(one, float)[:, None] for one in INTERVALS.T)
        draws = draw(jnp.asarray(UNIFORMS, float), jnp.asarray(0, float), lower, upper)
        assert draws.dtype == lower.dtype
    draws = np.asarray(draws, float)
    assert (draws >= np.asarray(lower, float)).all()
    assert (draws <= np.asarray(upper, float)).all()
    near, far, is_left = (one[:, None] for one in reflected(*INTERVALS.T))
    beyond = np.where(is_left, -draws, draws)
    mass = exact_log_mass(near, far)
    return np.exp(special.log_ndtr(-beyond) - mass) - np.exp(special.log_ndtr(-far) - mass)


@pytest.mark.parametrize("x64", [False, True])
def test_truncated_normals_invert_the_distribution_of_their_interval(x64):
    errors = np.abs(tails_of_draws(x64) - (1 - UNIFORMS)).max(axis=1)
    # a draw next to 1000 is rounded to 6e-5 in 32 bits, where the tail falls by e every 1e-3; and
    # in a narrow interval it has few digits
    near, far, _ = reflected(*INTERVALS.T)
    rounding = 1 + np.minimum(near**2, 1e6) + 1 / (far - near)
    assert (errors <= (1e-14 if x64 else 1e-6) * rounding + 1e-13).all()


def test_a_draw_by_distribution_functions_alone_is_caught_in_the_tails():
    def naive(uniforms, mean, lower, upper):
        low, high = special.ndtr(lower - mean), special.ndtr(upper - mean)
        drawn = mean + special.ndtri(low + np.asarray(uniforms) * (high - low))
        return jnp.clip(jnp.asarray(drawn, lower.dtype), lower, upper)

    errors = np.abs(tails_of_draws(False, draw=naive) - (1 - UNIFORMS))
    assert errors.max(axis=1)[np.abs(INTERVALS).min(axis=1) >= 20].max() > 0.1


def test_a_far_mean_keeps_the_digits_beyond_a_threshold():
    draw = jax.jit(truncated_normals)
    drawn = draw(jnp.array([0.25, 0.5]), jnp.asarray(-500.0), jnp.asarray(0.0), jnp.inf)
    np.testing.assert_allclose(drawn, -np.log([0.75, 0.5]) / 500, rtol=1e-4)


# --- distributions --------------------------------------------------------------------------------

ORDINAL = mf.Ordinal(levels=(1, 2, 4), threshold_scale=1.5)
THRESHOLDS = ThresholdNoise(ORDINAL)


def at(thresholds):
    return THRESHOLDS.at_noise(thresholds)


def test_the_mass_of_an_interval_keeps_the_digits_of_its_tails():
    intervals = INTERVALS[np.abs(INTERVALS).min(axis=1) < 8]
    lower, upper = jnp.asarray(intervals.T, jnp.float32)
    exact = np.exp(exact_log_mass(*intervals.T))
    wide = np.asarray(upper - lower) > 1e-2  # of narrow ones ends are known to float32
    np.testing.assert_allclose(np.asarray(mass(lower, upper))[wide], exact[wide], rtol=1e-4)


def test_probabilities_of_levels():
    thresholds, eta = jnp.array([-0.7, 0.9]), jnp.array([-300.0, -40.0, -1.0, 0.2, 30.0])
    grid = jnp.array([[1.0 * level] for level in ORDINAL.levels])
    density, moments = jax.jit(
        lambda t, eta: (
            at(t).log_density(jnp.broadcast_to(grid, (3, 5)), eta), at(t).moments(eta)
        )
    )(thresholds, eta)  # fmt: skip
    shares = np.exp(np.asarray(density, float))
    np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-6)
    edges = np.array([-np.inf, -0.7, 0.9, np.inf])[:, None] - np.asarray(eta, float)
    np.testing.assert_allclose(shares, np.diff(special.ndtr(edges), axis=0), atol=1e-6)
    np.testing.assert_allclose(density[2, 0], special.log_ndtr(-300.9), rtol=1e-6)
    levels = np.array(ORDINAL.levels, float)
    np.testing.assert_allclose(moments[0], levels @ shares, rtol=1e-6)
    expected = levels**2 @ shares - (levels @ shares) ** 2
    np.testing.assert_allclose(moments[1], expected, atol=1e-5)


@pytest.mark.parametrize("likelihood", [at((-0.7, 0.9)), mf.Probit()])
def test_probabilities_where_the_mean_is_uncertain(likelihood):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = 0.4 + np.sqrt(0.6) * nodes
    edges = [-np.inf, *getattr(likelihood, "thresholds", [0]), np.inf]
    shares = np.diff(special.ndtr(np.array(edges)[:, None] - spread), axis=0)
    expected = shares @ weights / weights.sum()
    found = jax.jit(lambda eta: likelihood.probabilities(eta, 0.6))(jnp.array([0.4]))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


def test_cells_are_drawn_with_their_probabilities():
    eta = jnp.full(20_000, 0.3)
    thresholds = jnp.array([-0.7, 0.9])
    drawn = np.asarray(jax.jit(at(thresholds).sample)(jax.random.key(0), eta))
    edges = np.array([-np.inf, -0.7, 0.9, np.inf]) - 0.3
    shares = np.diff(special.ndtr(edges))
    found = {str(level): drawn == level for level in ORDINAL.levels}
    exact = dict(zip(found, shares, strict=True))
    ones = np.asarray(jax.jit(mf.Probit().sample)(jax.random.key(1), eta)) == 1
    check_means(found | {"probit": ones}, exact | {"probit": special.ndtr(0.3)})


def test_distributions_refuse_what_is_no_level():
    with pytest.raises(ValueError, match=r"values: 3 at position 1; .*the levels 1, 2, 4"):
        ORDINAL.check([1.0, 3.0], "values")
    ORDINAL.check(np.array([1, 2, 4], np.float32), "values")
    with pytest.raises(ValueError, match=r"-1 at position 1; likelihood=Probit\(\) needs 0 or 1"):
        mf.Probit().check([1.0, -1.0], "values")
    for levels in ((1,), (2, 1), (1, 1), ("a", "b")):
        with pytest.raises(ValueError, match="two or more ascending numbers"):
            mf.Ordinal(levels=levels)
    with pytest.raises(ValueError, match="threshold_scale must be finite, above 0"):
        mf.Ordinal(threshold_scale=0.0)


def test_distributions_are_written_and_read():
    for text, distribution in (("Ordinal(levels=(1, 2, 4), threshold_scale=1.5)", ORDINAL),
                      ("Probit()", mf.Probit())):  # fmt: skip
        assert settings.parse(text) == distribution
        assert settings.decode(settings.encode(distribution)) == distribution


def test_thresholds_start_at_the_shares():
    start = jax.jit(THRESHOLDS.start)(jnp.array([1.0] * 50 + [2.0] * 30 + [4.0] * 20))
    np.testing.assert_allclose(start, special.ndtri([50.5 / 101.5, 81 / 101.5]), rtol=1e-5)
    assert ORDINAL.codes(jnp.array([[1.0], [2.0], [4.0]])).tolist() == [[0], [1], [2]]


# --- kernels --------------------------------------------------------------------------------------

X = np.array([-1.5, -1.0, -0.4, 0.1, 0.3, 0.8, 1.2, 2.0])
VALUES = np.array([1.0, 2.0, 1.0, 4.0, 2.0, 4.0, 4.0, 4.0])
NUM_CHAINS = 20_000


def posterior_by_quadrature():
    """Pairs of thresholds on a grid, and their posterior probabilities, by scipy."""
    grid = np.linspace(-5, 5, 201)
    first, second = (one.ravel() for one in np.meshgrid(grid, grid, indexing="ij"))
    first, second = first[first < second], second[first < second]
    edges = np.stack([np.full_like(first, -np.inf), first, second, np.full_like(first, np.inf)])
    codes = np.searchsorted(ORDINAL.levels, VALUES)
    mass = special.ndtr(edges[codes + 1] - X[:, None]) - special.ndtr(edges[codes] - X[:, None])
    weight = mass.prod(axis=0) * np.exp(-(first**2 + second**2) / 2 / ORDINAL.threshold_scale**2)
    return np.stack([first, second], axis=-1), weight / weight.sum()


def thresholds_and_exact(num_steps=3):
    pairs, weights = posterior_by_quadrature()
    generator = np.random.default_rng(0)
    start = pairs[generator.choice(len(pairs), NUM_CHAINS, p=weights)]
    start += generator.uniform(-0.02, 0.02, start.shape)  # anywhere within the grid's cells
    eta = jnp.asarray(X, float)
    values = jnp.asarray(VALUES, float)

    def chain(key, thresholds):
        def step(thresholds, key):
            there = jnp.ones(eta.shape, bool)
            _, thresholds = THRESHOLDS.augment(key, thresholds, values, eta, there)
            return thresholds, None

        return jax.lax.scan(step, thresholds, jax.random.split(key, num_steps))[0]

    keys = jax.random.split(jax.random.key(2), NUM_CHAINS)
    drawn = np.asarray(jax.jit(jax.vmap(chain))(keys, jnp.asarray(start, float)), float)
    moments = {
        "thresholds": lambda t: t,
        "squares": lambda t: t**2,
        "gap": lambda t: np.log(t[:, 1] - t[:, 0]),
    }
    moved = np.abs(drawn - start).max(axis=1) > 1e-6
    return moved, {n: f(drawn) for n, f in moments.items()}, {
        n: (weights[(slice(None), *(None,) * (f(pairs).ndim - 1))] * f(pairs)).sum(axis=0)
        for n, f in moments.items()
    }  # fmt: skip


@pytest.mark.slow
def test_thresholds_have_their_posterior():
    moved, samples, exact = thresholds_and_exact()
    assert moved.mean() > 0.5
    print(check_means(samples, exact, title="thresholds beside quadrature"))


@pytest.mark.slow
def test_thresholds_that_forget_the_way_back_are_caught(monkeypatch):
    monkeypatch.setattr(kernels, "_log_density", lambda distribution, x: 0.0)
    _, samples, exact = thresholds_and_exact()
    with pytest.raises(AssertionError, match="FAILED"):
        check_means(samples, exact)


@pytest.mark.exhaustive
def test_thresholds_of_many_cells_are_drawn_afresh_every_time():
    generator = np.random.default_rng(3)
    eta = jnp.asarray(generator.normal(size=40_000), float)
    likelihood = mf.Ordinal()
    truth = np.array([-2.0, -1.0, 0.2, 1.5])
    latent = np.asarray(eta) + generator.normal(size=40_000)
    values = jnp.asarray(1 + (latent[:, None] > truth).sum(axis=1), float)
    filled = jnp.arange(40_000) < 39_000
    cells = jax.jit(kernels.in_pieces)(eta, likelihood.codes(values), filled)
    step = jax.jit(lambda key, t, cells: kernels.draw_thresholds(key, t, cells, scale=10.0))
    thresholds, chain, accepted = ThresholdNoise(likelihood).start(values), [], []
    for step_index in range(60):
        thresholds, new = step(jax.random.key(step_index), thresholds, cells)
        chain.append(thresholds)
        accepted.append(bool(new))
    assert np.mean(accepted) > 0.95
    chain = np.array(chain)[10:]
    spread = chain.std(axis=0)
    assert (np.abs(chain.mean(axis=0) - truth) < 5 * spread).all()
    assert (np.abs([np.corrcoef(one[1:], one[:-1])[0, 1] for one in chain.T]) < 0.6).all()
    # cells that are not there change nothing
    other = cells._replace(eta=jnp.where(cells.there, cells.eta, 7.0))
    again, _ = step(jax.random.key(59), chain[-2], other)
    np.testing.assert_allclose(again, chain[-1], rtol=1e-5)


def regression(noise, augment=None):
    """A regression on X with latent cells: (joint-distribution check's) kernel, prior, data."""
    x = jnp.asarray(X + 1, float)
    there = jnp.ones(x.shape, bool)

    def sample_prior(key):
        keys = jax.random.split(key)
        return {"slope": jax.random.normal(keys[0]), "noise": noise.sample_prior(keys[1])}

    def kernel(key, state, values):
        keys = jax.random.split(key)
        eta = state["slope"] * x
        (latent, precision), drawn = (augment or noise.augment)(
            keys[0], state["noise"], values, eta, there
        )
        weight = 1 + precision * (x @ x)
        slope = precision * (x @ latent) / weight
        slope = slope + jax.random.normal(keys[1]) / jnp.sqrt(weight)
        return {"slope": slope, "noise": drawn}, Info(overflow={})

    def simulate(key, state):
        return noise.at_noise(state["noise"]).sample(key, state["slope"] * x)

    def statistics(state, values):
        found = {"slope": state["slope"], "square": state["slope"] ** 2}
        found |= {"agreement": state["slope"] * (values @ x)}
        for index in range(state["noise"].shape[0]):
            found |= {f"threshold {index}": state["noise"][index]}
            found |= {f"cross {index}": state["noise"][index] * values.mean()}
            found |= {f"slope x threshold {index}": state["noise"][index] * state["slope"]}
        return found

    return kernel, {
        "sample_prior": sample_prior,
        "simulate": simulate,
        "statistics": statistics,
        "key": jax.random.key(7),
    }


@pytest.mark.tiers(exhaustive=["probit"])
@pytest.mark.slow
@pytest.mark.parametrize("noise", [ProbitNoise(mf.Probit()), THRESHOLDS], ids=["probit", "ordinal"])
def test_joint_distribution(noise):
    kernel, problem = regression(noise)
    print(check_kernel(kernel, **problem, num_replicates=16_384))


@pytest.mark.slow
def test_latent_values_that_are_filled_in_rather_than_drawn_are_caught(monkeypatch):
    """The median of each interval's distribution instead of a draw."""
    right = kernels.truncated_normals
    monkeypatch.setattr(
        kernels,
        "truncated_normals",
        lambda uniforms, *distribution: right(0 * uniforms + 0.5, *distribution),
    )
    kernel, problem = regression(ProbitNoise(mf.Probit()))
    with pytest.raises(AssertionError, match="FAILED"):
        check_kernel(kernel, **problem, num_replicates=16_384)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"levels": (1, float("nan"))}, ValueError, "two or more ascending numbers"),
        ({"threshold_scale": float("inf")}, ValueError, "threshold_scale must be finite, above 0"),
        ({"threshold_scale": "3"}, TypeError, "threshold_scale must be a number"),
        ({"thresholds": (1.0, 2.0)}, ValueError, "thresholds must be 4 ascending numbers"),
        ({"levels": (0, 1, 2), "thresholds": (2.0, 1.0)}, ValueError, "2 ascending numbers"),
    ],
)
def test_settings_of_ordered_levels_that_are_none(given, error, words):
    with pytest.raises(error, match=words):
        mf.Ordinal(**given)
