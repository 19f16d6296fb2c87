"""Products of more factors than fit a float."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.products import Product


def relative(factors, counts):
    def one(index, product):
        return product.times(factors[index])

    start = Product.empty_like(factors[0])
    return jax.lax.fori_loop(0, factors.shape[0], one, start).relative(counts)


def test_products_far_from_a_float_keep_their_ratios():
    generator = np.random.default_rng(0)
    factors = np.exp(generator.normal(-9.0, 1.0, (400, 4)))
    factors[:, 3] = 1e-3 * factors[:, 0]
    factors = jnp.asarray(factors, jnp.result_type(float))
    logs = np.log(np.asarray(factors, float)).sum(0)
    assert logs.max() < -2_000
    found = np.asarray(jax.jit(relative)(factors, jnp.asarray([True, True, True, False])), float)
    assert 1 <= found[:3].max() < 2 * 2
    expected = np.exp(logs - logs[:3].max())
    np.testing.assert_allclose(found / found[:3].max(), expected, rtol=1e-4, atol=1e-30)


def test_a_product_that_does_not_count_takes_nothing_from_the_others():
    factors = jnp.full((300, 2), 1e-4, jnp.result_type(float)).at[:, 1].set(10.0)
    found = jax.jit(relative)(factors, jnp.asarray([True, False]))
    assert 1 <= float(found[0]) < 2
