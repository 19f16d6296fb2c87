"""The generator of section 5.2."""

import jax
import numpy as np
import pytest

from jaxmf import datasets


def test_section_5_2():
    causes = datasets.section_5_2(0)
    assert (causes.x.shape, causes.z.shape, causes.y.shape) == ((6, 250), (6, 4), (4, 250))
    assert set(np.unique(causes.x)) == {0.0, 1.0}
    assert causes.z.any(axis=0).all()
    eta = causes.z.astype(int) @ causes.y
    assert abs(causes.x[eta == 0].mean() - 0.01) < 0.02
    assert abs(causes.x[eta == 1].mean() - 0.901) < 0.08
    np.testing.assert_array_equal(causes.x, datasets.section_5_2(0).x)
    assert not np.array_equal(causes.x, datasets.section_5_2(1).x)
    assert datasets.section_5_2(jax.random.key(3)).z.shape == (6, 4)


def test_section_5_2_errors():
    with pytest.raises(ValueError, match="num_rows must be at least 1"):
        datasets.section_5_2(0, num_rows=0)
    with pytest.raises(ValueError, match="leak must be finite, at least 0, at most 1, got 2"):
        datasets.section_5_2(0, leak=2)
    with pytest.raises(ValueError, match="no Z with 90 causes"):
        datasets.section_5_2(0, num_rows=1, num_features=90)
