"""The Indian buffet process and the finite beta-Bernoulli model: densities, draws, conditionals."""

import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from jaxmf.priors.features import BetaBernoulli, IndianBuffet, harmonic, slots_of_prior
from jaxmf.testing import LEVEL, check_chain_rule, enumerate_features
from tests.support.oracles import all_matrices

PARAMETERS = [(1.0, 1.0), (0.6, 2.5), (1.4, 0.3)]


def counts_and_gram(z):
    z = np.asarray(z, int)
    return jnp.asarray(z.sum(axis=0)), jnp.asarray(z.T @ z)


def class_log_probs(prior, z):
    z = np.asarray(z, int)
    counts, gram = z.sum(axis=1), np.einsum("cnk,cnl->ckl", z, z)
    log_prob = jax.jit(jax.vmap(lambda counts, gram: prior.log_prob(counts, gram, z.shape[1])))
    return np.asarray(log_prob(counts, gram), np.float64)


@pytest.mark.parametrize(("alpha", "concentration"), PARAMETERS)
def test_class_probabilities_sum_to_one(alpha, concentration):
    classes = enumerate_features(3, 10)
    with jax.enable_x64(True):
        log_probs = class_log_probs(IndianBuffet(alpha, concentration), classes.z)
    left_out = classes.mass_left_out(alpha, concentration)
    assert 1 - np.exp(log_probs).sum() == pytest.approx(left_out, rel=1e-4, abs=1e-13)


def test_class_probability_is_equation_2():
    """Written out by hand for beta = 1 and a matrix with a repeated column."""
    z = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 0]], bool)
    alpha, num_rows = 1.7, 3
    expected = alpha**4 / math.factorial(2) * math.exp(-alpha * (1 + 1 / 2 + 1 / 3))
    for count in (2, 2, 2, 1):
        expected *= math.factorial(num_rows - count) * math.factorial(count - 1)
        expected /= math.factorial(num_rows)
    with jax.enable_x64(True):
        counts, gram = counts_and_gram(z)
        prior = IndianBuffet(alpha)
        log_class = float(jax.jit(lambda *of: prior.log_prob(*of, 3))(counts, gram))
        log_labelled = float(jax.jit(lambda of: prior.log_prob_labelled(of, 3))(counts))
    assert log_class == pytest.approx(math.log(expected), abs=1e-12)
    assert log_labelled == pytest.approx(math.log(2 * expected), abs=1e-12)


def left_ordered_form(z):
    """Columns by the binary numbers that they spell, largest first, row 0 the highest bit."""
    return z[:, np.lexsort(~z[::-1])]


@pytest.mark.tiers(exhaustive=["1.4-0.3"])
@pytest.mark.parametrize(("alpha", "concentration"), PARAMETERS[1:])
def test_draws_have_the_class_probabilities(alpha, concentration):
    prior = IndianBuffet(alpha, concentration)
    num_draws, capacity = 20_000, 16
    keys = jax.random.split(jax.random.key(8), num_draws)
    z, overflow = jax.jit(jax.vmap(lambda key: prior.sample(key, 3, capacity)))(keys)
    assert not overflow.any()
    z = np.array([left_ordered_form(one) for one in np.asarray(z)])
    classes = enumerate_features(3, 4)
    expected = num_draws * np.exp(class_log_probs(prior, classes.z))
    class_index = {matrix.tobytes(): index for index, matrix in enumerate(classes.z)}
    listed = ~z[:, :, 4:].any(axis=(1, 2))
    found = np.zeros(len(classes.z))
    for matrix in z[listed, :, :4]:
        found[class_index[np.ascontiguousarray(matrix).tobytes()]] += 1
    common = expected > 20
    found = np.append(found[common], num_draws - found[common].sum())
    expected = np.append(expected[common], num_draws - expected[common].sum())
    assert common.sum() > 20
    expected *= found.sum() / expected.sum()  # rounding of float32 sums
    assert stats.chisquare(found, expected).pvalue > LEVEL


@pytest.mark.parametrize("prior", [IndianBuffet(1.3, 0.7), BetaBernoulli(1.3, 0.7, 4)])
def test_log_odds_are_ratios_of_the_labelled_density(prior):
    """Rows are exchangeable: a bit's odds are a ratio of densities with the bit on and off."""
    rng = np.random.default_rng(0)
    z = rng.random((5, 4)) < 0.5
    z[0] = True  # every feature is of another row
    with jax.enable_x64(True):
        density = jax.jit(lambda counts: prior.log_prob_labelled(counts, 5))
        log_odds = jax.jit(lambda counts: prior.log_odds(counts, 5))
        for row, feature in itertools.product(range(1, 5), range(4)):
            on, off = z.copy(), z.copy()
            on[row, feature], off[row, feature] = True, False
            ratio = float(density(on.sum(0)) - density(off.sum(0)))
            found = log_odds(jnp.asarray(z.sum(0) - z[row]))
            assert float(found[feature]) == pytest.approx(ratio, abs=1e-12)


@pytest.mark.parametrize(("alpha", "concentration"), PARAMETERS)
def test_new_features_of_a_row_are_poisson(alpha, concentration):
    """Given the other rows, the number of features that only one row has."""
    prior = IndianBuffet(alpha, concentration)
    others = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]])
    with jax.enable_x64(True):
        z = np.zeros((30, 4, 3 + 29), int)
        z[:, :, :3] = others
        for num_new in range(30):
            z[num_new, 3, 3 : 3 + num_new] = 1
        log_density = class_log_probs(prior, z)
        rate = float(prior.new_rate(4))
    probabilities = np.exp(log_density - np.logaddexp.reduce(log_density))
    np.testing.assert_allclose(probabilities, stats.poisson.pmf(range(30), rate), atol=1e-12)


@pytest.mark.parametrize("prior", [IndianBuffet(1.3, 0.7), BetaBernoulli(1.3, 0.7, 4)])
def test_rows_one_after_another_have_the_density(prior):
    with jax.enable_x64(True):
        found = check_chain_rule(prior)
    assert len({one.expected for one in found.comparisons}) == 8  # in three orders each


class FromZero(IndianBuffet):
    """Rows counted from 0."""

    def log_odds(self, counts_without_row, num_rows):
        return super().log_odds(counts_without_row, num_rows + 1)

    def new_rate(self, num_rows):
        return super().new_rate(num_rows + 1)


class WithoutOrders(IndianBuffet):
    """The density of labelled features."""

    def log_prob(self, counts, gram, num_rows):
        return self.log_prob_labelled(counts, num_rows)


class ByOrder(BetaBernoulli):
    """Rows that are not exchangeable: later ones have more."""

    def log_odds(self, counts_without_row, num_rows):
        return super().log_odds(counts_without_row, num_rows) + 0.1 * num_rows


@pytest.mark.parametrize("prior", [FromZero(1.3), WithoutOrders(1.3), ByOrder(1.3, 0.7, 4)])
def test_conditionals_of_another_prior_break_the_chain_rule(prior):
    with pytest.raises(AssertionError, match=f"chain rule of {type(prior).__name__}.*FAILED"):
        check_chain_rule(prior)


def test_what_is_no_prior_has_no_chain_rule():
    class Conditionals:
        exists, log_odds, new_rate = IndianBuffet.exists, IndianBuffet.log_odds, None

    with pytest.raises(TypeError, match="prior must be one of features, with exists, log_odds"):
        check_chain_rule(Conditionals())
    Conditionals.new_rate = IndianBuffet.new_rate
    with pytest.raises(TypeError, match="Conditionals has no method log_prob"):
        check_chain_rule(Conditionals())
    with pytest.raises(TypeError, match="alpha of IndianBuffet must be a number"):
        check_chain_rule(IndianBuffet(dist.Gamma(1.0, 1.0)))
    with pytest.raises(TypeError, match="pass an object of the class"):
        check_chain_rule(IndianBuffet)


def test_slots_without_counts():
    counts = jnp.array([0, 2, 0])
    buffet, finite = IndianBuffet(1.0), BetaBernoulli(1.0, 1.0, 2)
    assert buffet.exists(counts).tolist() == [False, True, False]
    assert finite.exists(counts).tolist() == [True, True, False]
    assert np.isneginf(buffet.log_odds(counts, 5)).tolist() == [True, False, True]
    assert np.isneginf(finite.log_odds(counts, 5)).tolist() == [False, False, True]
    assert finite.new_rate(5) == 0


def test_padding_changes_no_density():
    z = np.array([[1, 0, 1], [0, 1, 1]], bool)
    padded = np.pad(z, ((0, 0), (0, 5)))
    for prior in (IndianBuffet(0.8, 1.5), BetaBernoulli(0.8, 1.5, 3)):
        narrow, wide = (class_log_probs(prior, matrix[None])[0] for matrix in (z, padded))
        assert wide == pytest.approx(narrow, rel=1e-6)


def test_finite_probabilities_sum_to_one():
    with jax.enable_x64(True):
        log_probs = class_log_probs(BetaBernoulli(1.3, 0.6, 3), all_matrices(3, 3))
    assert np.exp(log_probs).sum() == pytest.approx(1.0, abs=1e-12)


def test_finite_draws_have_these_probabilities():
    prior = BetaBernoulli(1.3, 0.6, 2)
    keys = jax.random.split(jax.random.key(9), 20_000)
    z, overflow = jax.jit(jax.vmap(lambda key: prior.sample(key, 3, 4)))(keys)
    assert not overflow.any()
    assert not z[:, :, 2:].any()
    matrices = all_matrices(3, 2)
    expected = len(keys) * np.exp(class_log_probs(prior, matrices))
    powers = 2 ** np.arange(5, -1, -1)
    found = np.bincount(np.asarray(z)[:, :, :2].reshape(-1, 6) @ powers, minlength=64)
    expected *= found.sum() / expected.sum()  # rounding of float32 sums
    assert stats.chisquare(found, expected).pvalue > LEVEL


@pytest.mark.slow
def test_the_finite_model_tends_to_the_process():
    """Probability of a class: the labelled probability times the number of labellings."""
    num_features, classes = 200_000, enumerate_features(3, 2)
    with jax.enable_x64(True):
        infinite = class_log_probs(IndianBuffet(0.9, 1.7), classes.z)
        finite = BetaBernoulli(0.9, 1.7, num_features)
        log_prob = jax.jit(lambda counts: finite.log_prob_labelled(counts, 3))
        for index, z in enumerate(classes.z):
            counts = np.pad(z.sum(0), (0, num_features - 2))
            log_class = float(log_prob(counts))
            log_class -= sum(map(math.lgamma, classes.counts[index] + 1))
            log_class += sum(math.log(num_features - used) for used in range(z.any(0).sum()))
            assert log_class == pytest.approx(infinite[index], abs=1e-4)


def test_finite_capacity_is_checked():
    with pytest.raises(ValueError, match="capacity 3 is smaller than num_features 4"):
        BetaBernoulli(1.0, 1.0, 4).sample(jax.random.key(0), 5, 3)


@pytest.mark.slow
def test_draws_do_not_depend_on_the_capacity():
    for prior in (IndianBuffet(1.5, 0.8), BetaBernoulli(1.5, 0.8, 6)):
        small, overflow = prior.sample(jax.random.key(10), 8, 12)
        large, _ = prior.sample(jax.random.key(10), 8, 40)
        assert not overflow
        chex.assert_trees_all_equal(large[:, :12], small)
        assert not large[:, 12:].any()


def test_too_many_features_overflow():
    _, overflow = IndianBuffet(30.0).sample(jax.random.key(11), 3, 4)
    assert overflow


@pytest.mark.parametrize("concentration", [0.05, 1.0, 40.0])
def test_harmonic_by_sum_and_by_digamma_agree(concentration):
    exact = sum(concentration / (concentration + row) for row in range(50))
    assert float(harmonic(50, concentration)) == pytest.approx(exact, rel=1e-6)
    traced = jax.jit(harmonic)(jnp.asarray(50), concentration)
    assert float(traced) == pytest.approx(exact, rel=1e-4)


def test_densities_at_many_rows_keep_their_digits():
    """Float32 against float64, with counts of a million rows."""
    counts = jnp.array([1, 40, 5_000, 400_000, 999_999])
    log_prob = jax.jit(lambda of: IndianBuffet(2.0, 1.5).log_prob_labelled(of, 1_000_000))
    single = log_prob(counts)
    assert single.dtype == jnp.result_type(float)
    with jax.enable_x64(True):
        double = log_prob(counts)
        assert double.dtype == jnp.float64
    assert float(single) == pytest.approx(float(double), rel=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 6.0, dist.Gamma(1.0, 1.0), dist.HalfCauchy(1.0)])
def test_slots_of_a_prior_are_enough_for_its_draws_and_not_twice_as_many(alpha):
    random = np.random.default_rng(0)
    fixed = not isinstance(alpha, dist.Distribution)
    gamma = isinstance(alpha, dist.Gamma)
    drawn = random.gamma(1.0, size=1_000) if gamma else alpha if fixed else 1.0
    most = random.poisson(drawn * float(harmonic(40, 1.0)), size=1_000).max()
    found = slots_of_prior(alpha, 1.0, 40)
    assert found % 8 == 0
    assert most <= found < 2 * most


def test_slots_of_a_prior_without_a_variance_are_those_of_its_mean():
    assert slots_of_prior(dist.InverseGamma(2.0, 1.0), 1.0, 40) == slots_of_prior(1.0, 1.0, 40)
