"""`FeatureModel` with a likelihood or a prior of one's own in which something is amiss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf

NORMAL = dist.Normal(0.0, 1.0).expand([3]).to_event(1)


def described(cls):
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


@described
class Shares(mf.Likelihood):
    """x ~ Beta(mu precision, (1 - mu) precision), mu = sigmoid(eta)."""

    precision: float = 10.0
    unlearned: float = 1.0

    hyperparameters = ("precision",)

    def shapes(self, eta):
        mean = jax.nn.sigmoid(eta)
        return mean * self.precision * self.unlearned, (1 - mean) * self.precision

    def log_density(self, x, eta):
        return dist.Beta(*self.shapes(eta)).log_prob(x)

    def sample(self, key, eta):
        return jax.random.beta(key, *self.shapes(eta))

    def mean(self, eta):
        return jax.nn.sigmoid(eta)

    def variance(self, eta):
        return jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta) / (1 + self.precision)

    def in_support(self, values):
        return (values > 0) & (values < 1)


@described
class Misnamed(Shares):
    hyperparameters = ("precison",)


class Unknown(Shares):
    """No pytree."""


@described
class OneAnswer(Shares):
    def in_support(self, values):
        return bool((values > 0).all())


@described
class ThreeCoins:
    """Three features of probabilities Beta(a, 1)."""

    a: float = 1.0

    num_features = 3

    def exists(self, counts):
        return jnp.arange(counts.shape[0]) < 3

    def log_odds(self, counts_without_row, num_rows):
        return jnp.log(counts_without_row + self.a) - jnp.log(num_rows - counts_without_row)

    def new_rate(self, num_rows):
        return jnp.zeros(())


def model_of(likelihood, **options):
    return mf.FeatureModel(**{"likelihood": likelihood, "feature_prior": NORMAL} | options)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Shares(jnp.array([2.0, 20.0, 200.0])), ValueError, r"precision of Shares must"),
        (
            lambda: Shares(dist.Gamma(2.0, 1.0).expand([3]).to_event(1)),
            ValueError,
            r"one number or a prior of one, got shape \(3,\)\. For numbers one a column give func",
        ),
        (lambda: Shares("a"), TypeError, "precision of Shares must be a number or a numpyro dist"),
        (
            lambda: Shares(2.0, dist.Gamma(2.0, 1.0)),
            ValueError,
            r"unlearned of Shares has a prior.*: write.*\('precision', 'unlearned'\)",
        ),
        (lambda: Misnamed(), ValueError, "names 'precison', which is no field of it; its fields"),
        (lambda: Unknown(), TypeError, "Unknown, must be a pytree: put @jax.tree_util.register"),
    ],
)
def test_a_likelihood_with_wrong_fields_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        model_of(make())


@pytest.mark.parametrize(
    ("likelihood", "values", "options", "words"),
    [
        (
            Shares(2.0, jnp.array([1.0, 2.0, 3.0])),
            0.5,
            {},
            r"log_density returned shape \(3,\) for one cell, shape \(1,\)",
        ),
        (Shares(-1.0), 0.5, {}, r"likelihood=Shares\(.*log_density returned .*Are its numbers"),
        (Shares(), 1.5, {}, "1.5 at row 0, column 0; .* needs values that its in_support allows"),
        (OneAnswer(), 0.5, {}, r"in_support returned bool of shape \(\) for values of shape"),
        (
            Shares(),
            0.5,
            {"feature_prior": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
            "feature_prior: rows of Y have 2 numbers, data has 3 columns",
        ),
    ],
)
def test_a_likelihood_is_tried_on_the_data(likelihood, values, options, words):
    with pytest.raises(ValueError, match=words):
        model_of(likelihood, **options).check_data(mf.Dense(jnp.full((2, 3), values)), "data")


def test_a_prior_of_features_of_ones_own_has_numbers():
    with pytest.raises(TypeError, match="prior: a must be a number in a ThreeCoins, got Gamma"):
        model_of(Shares(), prior=ThreeCoins(dist.Gamma(1.0, 1.0)))


def test_numbers_by_column_go_with_functions_of_rows():
    """What the refusal says to do."""
    precision = jnp.array([2.0, 20.0, 2000.0])

    def log_likelihood(x, z, y):
        mean = jax.nn.sigmoid(z @ y)
        return dist.Beta(mean * precision, (1 - mean) * precision).log_prob(x)

    def moments(z, y):
        mean = jax.nn.sigmoid(z @ y)
        return mean, mean * (1 - mean) / (1 + precision)

    model = mf.FeatureModel(log_likelihood, NORMAL, moments=moments)
    draw = {"z": jnp.zeros((3, 2), bool), "y": jnp.zeros((2, 3)), "alpha": 1.0}
    columns = np.array([2, 0, 2])
    _, variance = model.predict_cells(
        draw | {"concentration": 1.0}, mf.Dense(jnp.full((3, 3), 0.5)), np.arange(3), columns
    )
    np.testing.assert_allclose(variance, 0.25 / (1 + precision[columns]), rtol=1e-5)
