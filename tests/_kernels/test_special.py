"""Random draws that the library implements itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import stats
from scipy.special import poch

from jaxmf._kernels import special
from jaxmf._kernels.special import (
    accepts,
    as_normals,
    binomial,
    log_rising,
    loggamma,
    loggammas,
    poisson,
    uniforms,
)
from jaxmf.devices import BLOCK_SIZES, BlockSize
from jaxmf.testing import LEVEL


@pytest.mark.parametrize("rate", [0.05, 1.5, 30.0])
def test_poisson_draws_have_the_poisson_distribution(rate):
    keys = jax.random.split(jax.random.key(15), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(poisson, in_axes=(0, None)))(keys, jnp.asarray(rate)))
    assert agrees(draws, stats.poisson(rate))


def agrees(draws, distribution):
    expected = draws.size * distribution.pmf(np.arange(draws.max() + 1))
    found = np.bincount(draws.astype(int))
    common = expected > 20
    found = np.append(found[common], found[~common].sum())
    expected = np.append(expected[common], draws.size - expected[common].sum())
    return stats.chisquare(found, expected).pvalue > LEVEL


@pytest.fixture(scope="module")
def binomials():
    draws = jax.jit(binomial)(jax.random.key(22), *(jnp.asarray(part) for part in BINOMIALS))
    return np.asarray(draws)


CASES = [(3.0, 0.2), (12.0, 0.7), (40.0, 0.97), (60.0, 0.1), (300.0, 0.5), (0.0, 0.4), (7.0, 0.0)]
CASES += [(2e6, 1.0), (2e6, 0.0)]
BINOMIALS = np.tile(np.array(CASES, np.float32).T[:, None], (1, 20_000, 1))


def test_binomial_draws_have_the_binomial_distribution(binomials):
    for draws, (num_trials, share) in zip(binomials.T, CASES, strict=True):
        if num_trials * share * (1 - share) == 0:
            assert np.all(draws == num_trials * share)
        else:
            assert agrees(draws, stats.binom(num_trials, share)), (num_trials, share)


def test_the_largest_uniform_is_a_binomial_draw_of_the_tail(monkeypatch):
    """Rounded probabilities add up to a little less than that, and nothing is left to count to."""
    largest = 1 - 2.0**-24
    monkeypatch.setattr(
        jax.random, "uniform", lambda _, shape, dtype: jnp.full(shape, largest, dtype)
    )
    num_trials, share = jnp.array([40.0, 1e5, 3e6]), jnp.array([0.1, 1e-4, 3e-6])
    draws = np.asarray(binomial(jax.random.key(0), num_trials, share))
    exact = stats.binom.isf(1e-7, np.asarray(num_trials), np.asarray(share))
    assert np.all((draws >= exact - 4) & (draws <= exact + 8))


def test_binomial_draws_of_another_share_are_caught(binomials):
    for draws, (num_trials, share) in zip(binomials.T[:5], CASES, strict=False):
        assert not agrees(draws, stats.binom(num_trials, 0.9 * share)), (num_trials, share)


def test_poisson_of_rate_zero_is_zero():
    assert poisson(jax.random.key(16), jnp.asarray(0.0)) == 0


@pytest.mark.parametrize("shape", [0.05, 0.8, 1.0, 30.0, 3e4])
def test_gamma_draws_have_the_gamma_distribution(shape):
    keys = jax.random.split(jax.random.key(17), 20_000)
    draws = jax.jit(jax.vmap(loggamma, in_axes=(0, None)))(keys, jnp.asarray(shape))
    levels = stats.loggamma(shape).cdf(np.asarray(draws, np.float64))
    assert stats.kstest(levels, "uniform").pvalue > LEVEL


def test_a_gamma_draw_is_the_same_alone_and_among_others():
    keys, shape = jax.random.split(jax.random.key(18), 50), jnp.asarray(0.7)
    together = jax.jit(jax.vmap(loggamma, in_axes=(0, None)))(keys, shape)
    alone = jnp.stack([jax.jit(loggamma)(key, shape) for key in keys])
    np.testing.assert_allclose(alone, together, rtol=2e-6)


def test_uniforms_turn_into_normals():
    uniforms = jax.random.uniform(jax.random.key(19), (20_000,))
    assert stats.kstest(np.asarray(as_normals(uniforms), np.float64), "norm").pvalue > LEVEL
    assert np.all(np.isfinite(as_normals(jnp.asarray([0.0, 1 - 2.0**-24]))))


@pytest.mark.parametrize("shape", [np.nan, np.inf, -1.0])
def test_a_shape_that_is_none_ends_in_nan(shape):
    assert np.isnan(loggamma(jax.random.key(20), jnp.asarray(shape)))


def test_what_has_no_probability_is_never_accepted():
    uniforms = jnp.asarray([0.0, 0.5, 1 - 2.0**-24])
    assert not accepts(uniforms, jnp.full(3, -jnp.inf)).any()
    assert not accepts(uniforms, jnp.full(3, jnp.nan)).any()


def test_what_is_certain_is_always_accepted_and_the_rest_in_proportion():
    uniforms = jnp.asarray([0.0, 0.25, 0.74, 0.76, 1 - 2.0**-24])
    assert accepts(uniforms, jnp.zeros(5))[:1].all()
    assert accepts(uniforms, jnp.full(5, 0.1)).all()
    # 1 - u <= p
    assert accepts(uniforms, jnp.full(5, jnp.log(0.25))).tolist() == [False] * 3 + [True] * 2


def test_gamma_draws_all_at_once_have_the_gamma_distribution():
    shapes = np.repeat([0.05, 0.8, 30.0, 3e4], 20_000)
    draws = np.asarray(jax.jit(loggammas)(jax.random.key(21), jnp.asarray(shapes)), np.float64)
    levels = stats.loggamma(shapes).cdf(draws)
    for part in levels.reshape(4, -1):
        assert stats.kstest(part, "uniform").pvalue > LEVEL


def test_gamma_draws_do_not_depend_on_what_follows():
    shapes = np.append(np.random.default_rng(22).gamma(0.5, size=40), [1e-30, 0.3])
    together = jax.jit(loggammas, compiler_options={"xla_backend_optimization_level": 0})
    longer = together(jax.random.key(22), jnp.asarray([*shapes, np.nan, -1.0, np.inf]))
    assert np.all(np.isfinite(longer[:42]))
    assert np.all(np.isnan(longer[42:]))
    draws = together(jax.random.key(22), jnp.asarray(shapes))
    np.testing.assert_allclose(draws, longer[:42], rtol=1e-5)
    # so many that only rejected draws are tried again
    many = together(jax.random.key(22), jnp.resize(jnp.asarray(shapes), (1_500,)))
    np.testing.assert_allclose(many[:42], draws, rtol=1e-5)


def test_gamma_draws_of_lines_are_those_of_the_key_of_each():
    keys = jax.random.split(jax.random.key(23), 3)
    shapes = jnp.asarray(np.random.default_rng(23).gamma(0.5, size=(3, 5, 140)))
    drawn = jax.jit(loggammas)(keys, shapes)
    alone = jax.jit(loggammas)  # so few that all are tried again
    for key, line, found in zip(keys, shapes, drawn, strict=True):
        np.testing.assert_allclose(alone(key, line), found, rtol=1e-5)


def test_however_many_are_rejected_all_are_drawn_again():
    shapes = jnp.linspace(0.1, 3.0, 3_000)  # and a turn draws 1,190 of them
    drawn_by = special._Generators(jnp.asarray([[1, 2]], jnp.uint32), 3_000)

    @jax.jit
    def both(done):
        again = special._redrawn(drawn_by, shapes, jnp.zeros_like(shapes), done)
        return again, special._until_accepted(*drawn_by.everywhere(), shapes, done, count=1)

    for done in (np.zeros(3_000, bool), np.arange(3_000) % 7 == 0, np.ones(3_000, bool)):
        again, expected = both(done)
        np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)


def test_ratios_of_gamma_functions_keep_their_digits():
    starts = np.float32([1e-6, 0.3, 5, 19.9, 20.1, 300, 1e4, 1e6, 1e7])[:, None]
    amount = np.float32([0.5, 1.0, 7.0])
    exact = np.log(poch(starts.astype(float), amount))
    ratio = jax.jit(log_rising)(jnp.asarray(starts), amount)
    np.testing.assert_allclose(ratio, exact, rtol=2e-6, atol=2e-6)
    naive = gammaln(jnp.asarray(starts + amount)) - gammaln(jnp.asarray(starts))
    if not jax.config.jax_enable_x64:  # what it is for
        assert np.max(np.abs(naive - exact)) > 0.1
    with jax.enable_x64(True):
        ratio = jax.jit(log_rising)(jnp.asarray(starts, float), jnp.asarray(amount, float))
    np.testing.assert_allclose(ratio, exact, rtol=1e-12, atol=1e-13)


def test_uniform_numbers_are_uniform_and_independent():
    draw = jax.jit(uniforms, static_argnums=1)
    drawn = np.asarray(draw(jax.random.key(21), (20_000, 2)), np.float64)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    other = np.asarray(draw(jax.random.key(22), (20_000, 2)), np.float64)
    pairs = [drawn.T, (drawn[:-1, 0], drawn[1:, 0]), (drawn[:, 0], other[:, 0])]
    pairs.append((drawn[:10_000, 0], drawn[10_000:, 0]))  # the two words of a block
    for first, second in pairs:
        assert stats.kstest(first, "uniform").pvalue > LEVEL
        assert stats.pearsonr(first, second).pvalue > LEVEL
    with pytest.raises(AssertionError):
        assert stats.kstest(drawn[:, 0] ** 1.1, "uniform").pvalue > LEVEL
    halves = np.asarray(uniforms(jax.random.key(23, impl="rbg"), (1_000,)))
    assert stats.kstest(halves, "uniform").pvalue > LEVEL
    with jax.enable_x64(True):
        assert uniforms(jax.random.key(24), (3,)).dtype == jnp.float64


def test_uniform_numbers_of_long_arrays_are_drawn_piece_by_piece(monkeypatch):
    piece = 3_000
    monkeypatch.setitem(BLOCK_SIZES, "table entries", BlockSize(piece, piece))
    drawn = np.asarray(jax.jit(lambda key: uniforms(key, (20_000, 2)))(jax.random.key(25)))
    flat = drawn.ravel().astype(np.float64)
    assert stats.kstest(flat, "uniform").pvalue > LEVEL
    for lag in (1, piece // 2, piece):
        assert stats.pearsonr(flat[:-lag], flat[lag:]).pvalue > LEVEL
    num_equal = flat.size - np.unique(flat).size
    assert num_equal < stats.poisson.isf(LEVEL, flat.size**2 / 2**24)  # of 2^23 numbers
    repeated = np.concatenate([flat[:-100], flat[:100]])
    assert repeated.size - np.unique(repeated).size >= stats.poisson.isf(
        LEVEL, flat.size**2 / 2**24
    )
