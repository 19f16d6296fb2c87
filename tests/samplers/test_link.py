"""The regression of vectors on parts of features, beside linear algebra by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from jaxmf.data import Features
from jaxmf.samplers.factors import link as kernels

TALL, WIDE = (5, 3), (3, 5)


def matrix(shape):
    values = np.random.default_rng(sum(shape)).normal(size=shape)
    return np.where(np.abs(values) > 0.3, values, 0).astype(np.float32)


def moments(features, target, precision):
    """Mean and covariance of a draw, from the affine map that makes it of normals."""
    num_rows, width = features.shape
    (spectrum,) = kernels.spectra(features)
    size = width + (num_rows if width > num_rows else 0)

    def drawn(normals):
        arguments = (features, slice(0, width), target, spectrum, jnp.asarray(precision))
        return kernels._draw(normals[:, None], *arguments)[:, 0]

    half = jax.jacobian(drawn)(jnp.zeros(size))
    return drawn(jnp.zeros(size)), half @ half.T


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_weights_have_the_distribution_of_a_regression(shape, is_sparse):
    x = matrix(shape)
    target = np.random.default_rng(0).normal(size=(shape[0], 1)).astype(np.float32)
    columns = ["x"] * shape[1]
    features = Features(scipy.sparse.coo_array(x) if is_sparse else x, columns=columns)
    mean, covariance = moments(features, target, 0.7)
    expected = np.linalg.inv(x.T @ x + 0.7 * np.eye(shape[1]))
    np.testing.assert_allclose(covariance, expected, atol=2e-5)
    np.testing.assert_allclose(mean, expected @ x.T @ target[:, 0], atol=2e-5)


def test_without_the_data_of_the_wide_prior_draw_the_distribution_is_another(monkeypatch):
    """Broken twin: a draw from the prior is taken for one of its data, without noise."""
    monkeypatch.setattr(
        kernels, "_times", lambda features, part, weights: 0 * features.values[:, :1]
    )
    x = matrix(WIDE)
    _, covariance = moments(Features(x), jnp.zeros((WIDE[0], 1)), 0.7)
    expected = np.linalg.inv(x.T @ x + 0.7 * np.eye(WIDE[1]))
    assert np.abs(covariance - expected).max() > 1e-2


def test_parts_are_blocks_levels_of_a_heading_and_numbers_beside_each_other():
    table = {"age": [1.0, 2.0], "height": [1.0, 3.0], "sex": ["F", "M"], "weight": [2.0, 1.0]}
    people = Features.from_columns(table)
    assert people.parts == (2, 2, 1)
    blocks = Features.from_blocks({"people": people, "other": Features(np.eye(2))})
    assert blocks.parts == (5, 2)
    assert jax.tree.map(lambda leaf: leaf, blocks).parts == (5, 2)
    found = kernels.per_column(blocks, jnp.array([1.0, 2.0]))
    assert found.tolist() == [1.0] * 5 + [2.0] * 2


def test_rows_have_one_sum_up_to_the_rounding_of_their_floats():
    """With 64-bit floats sums that differ in the seventh digit are different."""
    table = np.array([[1.0, 0.0], [1.0, 1e-6]])
    part = slice(0, 2)
    with jax.enable_x64(True):
        assert float(kernels._total(Features(table), part)) == 0
        assert float(kernels._total(Features(table / 3 * [[1, 1], [1, 0]]), part)) == 1 / 3
    rounded = (table + 2e-7 * np.array([[1.0, 0], [0, 0]])).astype(np.float32) * [[1, 1], [1, 0]]
    assert float(kernels._total(Features(rounded.astype(np.float32)), part)) > 0
