"""Priors of standard deviations, as densities of standard deviations and of variances."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import PowerTransform

import jaxmf as mf
from jaxmf.priors.scales import squared

POINTS = jnp.array([0.2, 0.7, 1.0, 3.0])


def test_root_of_an_inverse_gamma_variance_has_its_density():
    expected = dist.TransformedDistribution(dist.InverseGamma(3.0, 2.0), PowerTransform(0.5))
    prior = mf.RootInverseGamma(3.0, 2.0)
    np.testing.assert_allclose(prior.log_prob(POINTS), expected.log_prob(POINTS), rtol=1e-5)
    np.testing.assert_array_equal(prior.support(jnp.array([-1.0, 0.5])), [False, True])


@pytest.mark.parametrize("prior", [dist.LogNormal(0.3, 0.5), mf.RootInverseGamma(3.0, 2.0)])
def test_the_variance_has_the_density_of_the_squared_scale(prior):
    base = prior if isinstance(prior, dist.Distribution) else None
    variance = squared(prior)
    expected = (
        dist.InverseGamma(3.0, 2.0)
        if base is None
        else dist.TransformedDistribution(base, PowerTransform(2.0))
    )
    np.testing.assert_allclose(variance.log_prob(POINTS), expected.log_prob(POINTS), rtol=1e-4)
    key = jax.random.key(0)
    np.testing.assert_allclose(variance.sample(key), prior.sample(key) ** 2, rtol=1e-5)


def test_a_bounded_scale_bounds_its_variance():
    variance = squared(dist.Uniform(0.5, 2.0))
    np.testing.assert_array_equal(variance.support(jnp.array([0.1, 0.3, 3.9, 4.1])), [0, 1, 1, 0])
    assert jax.jit(variance.log_prob)(jnp.array(0.1)) == -jnp.inf


def test_a_number_is_squared():
    assert squared(0.8) == pytest.approx(0.64)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((-1.0, 1.0), ValueError, "concentration must be positive"),
        ((1.0, "b"), TypeError, "rate must be"),
        ((dist.Gamma(1.0, 1.0), 1.0), TypeError, "concentration must be a number"),
    ],
)
def test_parameters_of_a_root_inverse_gamma_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        mf.RootInverseGamma(*arguments)
