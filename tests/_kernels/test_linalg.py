"""Many small problems of linear algebra, against LAPACK one by one."""

import jax
import numpy as np
import pytest

from jaxmf._kernels.linalg import after, eliminate


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_elimination_is_the_determinant_and_what_a_solution_leaves(size):
    generator = np.random.default_rng(size)
    roots = generator.normal(size=(3, 2, size, size))
    matrices = roots @ roots.swapaxes(-1, -2) + np.eye(size)
    sides, corners = generator.normal(size=(3, 2, size)), generator.normal(size=(3, 2))
    with jax.enable_x64(True):
        log_determinants, rest = jax.jit(eliminate)(matrices, sides, corners)
    solved = np.linalg.solve(matrices, sides[..., None])[..., 0]
    np.testing.assert_allclose(log_determinants, np.linalg.slogdet(matrices)[1], atol=1e-12)
    np.testing.assert_allclose(rest, corners - np.sum(sides * solved, axis=-1), atol=1e-10)


def test_waiting_for_another_value_changes_nothing():
    np.testing.assert_array_equal(after(np.float32([-1.5, 0, 3]), np.ones((2, 2))), [-1.5, 0, 3])
