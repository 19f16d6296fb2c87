"""Families of values: predictions, marginals, moments and parameters against other closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf._kernels.tables import Lanes
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.support import network_oracles as oracles

NUM_GROUPS = 3
GROUPS = np.array([0, 1, 0, 0, 1, 0, 1, 0])  # group 2 has no values
WORDS = np.array([0, 3, 3, 1, 0, 3, 3, 3])
REALS = np.array([0.3, -1.2, 4.0, 0.1, 0.8, -2.2, 0.5, 0.9])
VECTORS = np.random.default_rng(0).normal(size=(8, 3)) * [1.0, 3.0, 0.2]
SCALE = [[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]]
CASES = {
    "symmetric": (mf.DirichletMultinomial(4, 0.6), WORDS),
    "asymmetric": (mf.DirichletMultinomial(4, [0.2, 0.5, 1.0, 2.0]), WORDS),
    "binary": (mf.BetaBinary(0.7, 1.9), WORDS // 3),
    "normal": (mf.NormalInverseGamma(0.4, 0.3, 2.2, 1.7), REALS),
    "vectors": (mf.NormalInverseWishart(3, [0.1, -0.4, 0.0], 0.3, 6.5, SCALE), VECTORS),
    "counts": (mf.GammaPoisson(1.4, 0.6), WORDS * 2),
}


def compiled(fn, **options):
    return jax.jit(fn, compiler_options=FAST_COMPILE, **options)


def lanes():
    return Lanes(jnp.asarray(0), 1, NUM_GROUPS)


def statistics_of(family, values):
    take = compiled(family.statistics, static_argnums=2)
    return take(jnp.asarray(GROUPS), jnp.asarray(values), NUM_GROUPS)


def walk(family, amount):
    """A compiled function that moves values one by one: log predictions, what a sweep then has."""

    def run(statistics, groups, values):
        def one(cache, item):
            group, value = item
            if amount < 0:
                cache = family.move(cache, group, value, amount)
            result = family.predictive(cache, lanes(), value)[group]
            if amount > 0:
                cache = family.move(cache, group, value, amount)
            return cache, result if family.is_log else jnp.log(result)

        cache, logs = jax.lax.scan(one, family.begin(statistics, family.start()), (groups, values))
        return logs, cache

    return compiled(run)


def assert_trees(found, expected, **tolerance):
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, **tolerance)


@pytest.mark.tiers(exhaustive=["symmetric", "vectors"])
@pytest.mark.parametrize("name", CASES)
def test_the_marginal_is_the_product_of_predictions(name):
    family, values = CASES[name]
    with jax.enable_x64(True):
        groups, values = jnp.asarray(GROUPS), jnp.asarray(values)
        empty = compiled(lambda: family.empty(NUM_GROUPS))()
        full = statistics_of(family, values)
        marginals = compiled(family.log_marginal)(full, family.start())
        logs, moved = walk(family, 1)(empty, groups, values)
        assert_trees(moved, family.begin(full, family.start()), rtol=1e-9, atol=1e-9)
        for group in range(NUM_GROUPS):
            product = np.asarray(logs)[group == GROUPS].sum()
            np.testing.assert_allclose(marginals[group], product, rtol=1e-9, atol=1e-9)
            members = np.asarray(values)[group == GROUPS].tolist()
            expected = oracles.log_of_group(family, members) if members else 0.0
            np.testing.assert_allclose(marginals[group], expected, rtol=1e-9, atol=1e-9)
        # out again in another order: each prediction is that of its value given all others
        order = np.random.default_rng(1).permutation(len(GROUPS))
        back, emptied = walk(family, -1)(full, groups[order], values[order])
        assert_trees(emptied, family.begin(empty, family.start()), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.sum(back), np.sum(marginals), rtol=1e-9)


def test_statistics_that_forget_the_prior_mean_are_caught():
    class Forgetful(mf.NormalInverseGamma):
        """Between the mean and the prior's nothing is added to the rate."""

        def statistics(self, groups, values, num_groups):
            right = super().statistics(groups, values, num_groups)
            mean = (right.location - self.location) * (self.weight + right.number) / right.number
            extra = self.weight * right.number * mean**2 / (self.weight + right.number)
            return right._replace(rate=right.rate - jnp.where(right.number > 0, extra, 0) / 2)

    family = Forgetful(3.0, 0.3, 2.2, 1.7)
    with jax.enable_x64(True):
        statistics = statistics_of(family, REALS)
        marginal = family.log_marginal(statistics, {})[0]
        assert abs(marginal - oracles.log_of_group(family, REALS[GROUPS == 0].tolist())) > 0.1


def predictive_distribution(family, statistics, group):
    """The distribution of the next value, from scipy."""
    at = jax.tree.map(lambda leaf: np.asarray(leaf, float)[group], statistics)
    if isinstance(family, mf.NormalInverseGamma):
        shape, weight = family.shape + at.number / 2, family.weight + at.number
        width = np.sqrt(at.rate / shape * (weight + 1) / weight)
        return stats.t(2 * shape, at.location, width)
    if isinstance(family, mf.NormalInverseWishart):
        degrees, weight = (
            family.degrees + at.number - family.size + 1,
            family.weight + at.number,
        )
        scale = at.scale * (weight + 1) / (weight * degrees)
        return stats.multivariate_t(at.location, scale, df=degrees)
    rate = family.rate + at.number
    return stats.nbinom(family.shape + at.total, rate / (rate + 1))


@pytest.mark.parametrize("name", ["normal", "vectors", "counts"])
def test_predictions_are_the_known_distributions(name):
    family, values = CASES[name]
    with jax.enable_x64(True):
        statistics = statistics_of(family, values)
        cache = compiled(family.begin)(statistics, family.start())
        mean, variance = compiled(family.moments)(statistics, family.start())
        found = compiled(lambda value: family.predictive(cache, lanes(), value))
        for value in values[:3]:
            logs = found(jnp.asarray(value))
            for group in range(NUM_GROUPS):
                known = predictive_distribution(family, statistics, group)
                log_density = known.logpmf if name == "counts" else known.logpdf
                np.testing.assert_allclose(logs[group], log_density(value), rtol=1e-9)
        for group in range(NUM_GROUPS):
            known = predictive_distribution(family, statistics, group)
            if name == "vectors":
                spread = np.diagonal(known.shape) * known.df / (known.df - 2)
                np.testing.assert_allclose(mean[group], known.loc, rtol=1e-9)
                np.testing.assert_allclose(variance[group], spread, rtol=1e-9)
            else:
                expected = known.stats("mv")
                np.testing.assert_allclose([mean[group], variance[group]], expected, rtol=1e-9)


def test_variances_that_do_not_exist_are_infinite():
    normal, vectors = mf.NormalInverseGamma(shape=0.9), mf.NormalInverseWishart(2, degrees=2.5)
    for family, value in ((normal, [0.5]), (vectors, [[0.5, 0.1]])):
        groups, value = jnp.asarray([0]), jnp.asarray(value)
        variance = compiled(
            lambda groups, value, family=family: family.moments(
                family.statistics(groups, value, 2), {}
            )[1]
        )(groups, value)
        assert np.all(np.isfinite(variance[0]))
        assert np.all(np.isinf(variance[1]))


def test_probabilities_and_moments_of_values_out_of_a_finite_set():
    family, values = CASES["asymmetric"]
    counts = np.array([np.bincount(values[group == GROUPS], minlength=4) for group in range(3)])
    weights = counts + np.asarray(family.concentration)
    probabilities = weights / weights.sum(1, keepdims=True)
    statistics = statistics_of(family, values)
    np.testing.assert_allclose(
        family.probabilities(statistics, family.start()), probabilities, rtol=1e-5
    )
    mean, variance = family.moments(statistics, family.start())
    np.testing.assert_allclose(mean, probabilities @ np.arange(4), rtol=1e-5)
    squares = probabilities @ np.arange(4) ** 2
    np.testing.assert_allclose(variance, squares - np.asarray(mean) ** 2, rtol=1e-4)
    binary, ones = CASES["binary"]
    statistics = statistics_of(binary, ones)
    share = (0.7 + ones[GROUPS == 0].sum()) / (2.6 + (GROUPS == 0).sum())
    assert binary.moments(statistics, binary.start())[0][0] == pytest.approx(share, rel=1e-5)


@pytest.mark.tiers(slow=["asymmetric", "binary", "counts", "symmetric", "vectors"])
@pytest.mark.parametrize("name", CASES)
def test_parameters_average_to_the_predictions(name):
    """Draws of the parameters, of values given them, and of their densities."""
    family, values = CASES[name]
    values = values[:6]  # heavy tails are lighter with more values, but the test is sharper so
    groups = jnp.asarray(GROUPS[:6] % 2)
    value = jnp.asarray(values[2])
    start = family.start()

    def exact(groups, values, value):
        statistics = family.statistics(groups, values, 2)
        result = family.predictive(
            family.begin(statistics, start), Lanes(jnp.asarray(0), 1, 2), value
        )
        return (
            statistics,
            jnp.exp(result) if family.is_log else result,
            family.moments(statistics, start),
        )

    statistics, predicted, moments = compiled(exact)(groups, jnp.asarray(values), value)

    def draw(key):
        of_parameters, of_value = jax.random.split(key)
        parameters = family.sample_parameters(of_parameters, statistics, start)
        drawn = family.sample(of_value, parameters, jnp.asarray([0, 1]))
        return jnp.exp(family.log_prob(parameters, value)), drawn

    keys = jax.random.split(jax.random.key(3), 20_000)
    densities, drawn = compiled(jax.vmap(draw))(keys)
    mean, variance = moments
    samples, expected = (
        {"density": densities, "value": drawn},
        {"density": predicted, "value": mean},
    )
    if name not in ("normal", "vectors"):  # whose squares have no variance
        samples["square"] = (np.asarray(drawn, float) - np.asarray(mean)) ** 2
        expected["square"] = variance
    check_means(samples, expected, title=f"parameters of {name}")
    with pytest.raises(AssertionError, match="FAILED"):
        check_means({"density": densities * 1.1}, {"density": predicted})


@pytest.mark.slow
def test_real_values_drawn_have_the_predictive_distribution():
    for name in ("normal", "vectors"):
        family, values = CASES[name]
        statistics = statistics_of(family, values)

        def draw(key, family=family, statistics=statistics):
            of_parameters, of_value = jax.random.split(key)
            parameters = family.sample_parameters(of_parameters, statistics, {})
            return family.sample(of_value, parameters, jnp.asarray([0]))[0]

        draws = compiled(jax.vmap(draw))(jax.random.split(jax.random.key(4), 5_000))
        known = predictive_distribution(family, statistics, 0)
        draws = np.asarray(draws, np.float64)
        if name == "vectors":  # along some direction
            along = np.array([1.0, -0.5, 2.0])
            width = np.sqrt(along @ known.shape @ along)
            draws, known = draws @ along, stats.t(known.df, known.loc @ along, width)
        assert stats.kstest(draws, known.cdf).pvalue > 1e-6


# --- float32 --------------------------------------------------------------------------------------


def in_float32(family):
    return jax.tree.map(np.float32, family)


def test_a_million_values_leave_predictions_exact():
    """Gamma functions of large counts must not be subtracted in float32."""
    size = 1_000_000
    cases = {
        "normal": (mf.NormalInverseGamma(), {"location": 0.2, "rate": 2.0 * size}, 0.7),
        "vectors": (
            mf.NormalInverseWishart(2),
            {"location": [0.2, 0.1], "scale": np.eye(2) * size},
            [0.7, 0.1],
        ),
        "counts": (mf.GammaPoisson(), {"total": 3 * size, "log_factorials": 1.0}, 4.0),
    }
    for family, fields, value in cases.values():

        def log_density(family=family, fields=fields, value=value):
            empty = family.empty(1)
            leaves = {"number": size} | fields
            shaped = {n: jnp.asarray([leaf], getattr(empty, n).dtype) for n, leaf in leaves.items()}
            cache = family.begin(empty._replace(**shaped), {})
            value = jnp.asarray(value, jnp.result_type(float))
            return family.predictive(cache, Lanes(jnp.asarray(0), 1, 1), value)[0]

        with jax.enable_x64(True):
            exact = float(compiled(log_density)())
        with jax.enable_x64(False):
            log_density = functools.partial(log_density, family=in_float32(family))
            assert float(compiled(log_density)()) == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("name", ["normal", "vectors"])
def test_an_emptied_group_is_as_new(name):
    """Also where the values that were there are large, and their rounding with them."""
    family, values = CASES[name]
    with jax.enable_x64(False):
        family, far = in_float32(family), jnp.asarray(values * 1e4, jnp.float32)
        empty = compiled(lambda: family.empty(NUM_GROUPS))()
        full = statistics_of(family, far)
        logs, emptied = walk(family, -1)(full, jnp.asarray(GROUPS), far)
        assert np.all(np.isfinite(logs))
        assert_trees(emptied, family.begin(empty, family.start()), rtol=1e-6)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: mf.DirichletMultinomial(0), ValueError, "size must be at least 1"),
        (lambda: mf.DirichletMultinomial("5"), TypeError, "size must be a whole number, got '5'"),
        (lambda: mf.DirichletMultinomial(2, 0.0), ValueError, "concentration must be positive"),
        (lambda: mf.DirichletMultinomial(2, [1, 2, 3]), ValueError, "one number or 2 of them"),
        (lambda: mf.BetaBinary(0.0), ValueError, "a must be positive"),
        (lambda: mf.BetaBinary(b=dist.Gamma(1.0, 1.0)), TypeError, "BetaBinary takes no priors"),
        (lambda: mf.NormalInverseGamma(rate=-1.0), ValueError, "rate must be positive"),
        (lambda: mf.NormalInverseGamma(weight=dist.Gamma(1.0, 1.0)), TypeError, "has no prior"),
        (lambda: mf.NormalInverseWishart(2, weight=0.0), ValueError, "weight must be positive"),
        (lambda: mf.NormalInverseWishart(3, degrees=2.0), ValueError, r"above size - 1 = 2"),
        (lambda: mf.NormalInverseWishart(2, location=[1.0] * 3), ValueError, "location must be"),
        (lambda: mf.NormalInverseWishart(2, scale=[[1, 2], [0, 1]]), ValueError, "symmetric"),
        (lambda: mf.NormalInverseWishart(2, scale=-1.0), ValueError, "positive definite"),
        (lambda: mf.GammaPoisson(0.0), ValueError, "shape must be positive"),
    ],
)
def test_settings_that_are_none_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("family", "values", "words"),
    [
        (mf.DirichletMultinomial(3), [0, 3], r"x: 3 at token 1 is outside 0\.\.2"),
        (mf.DirichletMultinomial(3), [-1, 0], "x: -1 at token 0 is outside"),
        (mf.DirichletMultinomial(3), [0.5, 1.0], "one whole number a token, got float64"),
        (mf.DirichletMultinomial(3), [[0, 1]], r"of shape \(1, 2\). Pass it as a column"),
        (mf.BetaBinary(), [0, 2], "x: 2 at token 1 .* BetaBinary of size 2"),
        (mf.NormalInverseGamma(), [[0.1, 0.2]], "one number a token.*NormalInverseWishart"),
        (mf.NormalInverseWishart(2), [0.1, 0.2], r"vectors of length 2, got values of shape"),
        (mf.NormalInverseWishart(2), [[0.1]], "vectors of length 2"),
        (mf.GammaPoisson(), [0, -1], "x: -1 at token 1 is no count"),
        (mf.GammaPoisson(), [0.0, 1.5], "x: 1.5 at token 1 is no count"),
        (mf.GammaPoisson(), [np.nan], "nan at token 0 is no count"),
        (mf.GammaPoisson(), [2**30, 2**30], "add up to more than int32"),
    ],
)
def test_values_outside_the_support_are_refused(family, values, words):
    with pytest.raises(ValueError, match=words):
        family.check(np.asarray(values), "x")


def test_values_inside_the_support_are_taken():
    for family, values in CASES.values():
        np.testing.assert_array_equal(family.check(values, "x"), values)


def test_long_vectors_have_the_predictions_of_short_sums(monkeypatch):
    """Above some size sums are made in a loop, as a fused sweep needs them."""
    family = mf.NormalInverseWishart(7)
    values = jnp.asarray(np.random.default_rng(0).normal(size=(12, 7)))

    def prediction_and_move():
        cache = family.begin(family.statistics(jnp.arange(11) % 3, values[:11], 3), {})
        lanes = Lanes(jnp.zeros((), jnp.int32), 1, 3, None)
        moved = family.move(cache, jnp.int32(1), values[11], 1)
        return family.predictive(cache, lanes, values[11]), moved.inverse

    short, moved = compiled(prediction_and_move)()
    monkeypatch.setattr("jaxmf.likelihoods.families.multivariate_normal._MOST_SUMMED", 0)
    again = compiled(lambda: prediction_and_move())()  # traced anew
    np.testing.assert_allclose(again[0], short, rtol=1e-5)
    np.testing.assert_allclose(again[1], moved, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_mixture_of_long_vectors_compiles():
    """XLA refuses a fused loop with a sum over thousands of values."""
    values = np.random.default_rng(0).normal(size=(40, 14))
    settings = {"num_warmup": 1, "num_samples": 1, "num_chains": 1, "progress": False}
    post = mf.sample(mf.DPMixture(1.0), values, **settings)
    assert np.isfinite(post.draws["log_joint"]).all()
