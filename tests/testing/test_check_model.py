"""What `check_model` says of a likelihood of one's own before it runs anything."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf.testing import check_model
from tests import FAST_COMPILE


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RoundedShares(mf.Likelihood):
    """Numbers between 0 and 1, of which draws round to an end."""

    def log_density(self, x, eta):
        return jnp.zeros_like(x)

    def sample(self, key, eta):
        return jnp.round(jax.random.uniform(key, eta.shape), 2)

    def mean(self, eta):
        return jnp.full_like(eta, 0.5)

    def variance(self, eta):
        return jnp.full_like(eta, 1 / 12)

    def in_support(self, values):
        return (values > 0) & (values < 1)


@mf.register
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class WrongNoise(mf.Likelihood):
    """Normal noise of sd 1, whose density is that of another sd."""

    scale: float = dataclasses.field(default=1.0, metadata={"static": True})

    def log_density(self, x, eta):
        return -0.5 * ((x - eta) / self.scale) ** 2 - jnp.log(self.scale)

    def sample(self, key, eta):
        return eta + jax.random.normal(key, eta.shape)

    def mean(self, eta):
        return eta

    def variance(self, eta):
        return jnp.ones_like(eta)

    def in_support(self, values):
        return np.isfinite(values)


@pytest.mark.tiers(slow=["1.2"], exhaustive=["1.0"])
@pytest.mark.parametrize("scale", [1.0, 1.2])
def test_a_density_that_draws_do_not_have_is_refused_by_what_is_compared_by_default(scale):
    prior = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    model = mf.FeatureModel(likelihood=WrongNoise(scale), feature_prior=prior)
    x = np.random.default_rng(0).normal(size=(4, 2))
    if scale == 1:
        assert check_model(model, x, compiler_options=FAST_COMPILE).joint.passed
        return
    with pytest.raises(AssertionError, match=r"joint distribution of FeatureModel: .* FAILED"):
        check_model(model, x, compiler_options=FAST_COMPILE)


def test_draws_that_the_likelihood_itself_refuses_are_said_first():
    prior = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
    model = mf.FeatureModel(likelihood=RoundedShares(), feature_prior=prior)
    with pytest.raises(AssertionError, match=r"sample of RoundedShares\(\) draws [01], which its"):
        check_model(model, np.full((3, 2), 0.5), num_replicates=500)
