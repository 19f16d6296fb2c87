"""Random draws of the library's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxmf.special import poisson
from jaxmf.testing import LEVEL


@pytest.mark.parametrize("rate", [0.05, 1.5, 30.0])
def test_poisson_draws_have_the_poisson_law(rate):
    keys = jax.random.split(jax.random.key(15), 20_000)
    draws = np.asarray(jax.jit(jax.vmap(poisson, in_axes=(0, None)))(keys, jnp.asarray(rate)))
    expected = 20_000 * stats.poisson.pmf(np.arange(draws.max() + 1), rate)
    found = np.bincount(draws)
    common = expected > 20
    found = np.append(found[common], found[~common].sum())
    expected = np.append(expected[common], 20_000 - expected[common].sum())
    assert stats.chisquare(found, expected).pvalue > LEVEL


def test_poisson_of_rate_zero_is_zero():
    assert poisson(jax.random.key(16), jnp.asarray(0.0)) == 0
