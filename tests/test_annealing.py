"""The annealed start: where it begins, that it rises, and that it is over in time."""

import jax.numpy as jnp
import numpy as np

from jaxmf.samplers.annealing import annealed_factor, hold_while_annealed


def test_factor_rises_geometrically_from_a_fifth_to_exactly_one():
    progress = jnp.linspace(0, 1, 41)
    factor = np.asarray(annealed_factor(progress))
    rising = np.asarray(progress) < 0.75
    np.testing.assert_allclose(factor[0], 0.2, rtol=1e-6)
    ratios = factor[1:][rising[1:]] / factor[:-1][: rising[1:].sum()]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
    assert ratios[0] > 1
    # anything else than one would sample from another posterior
    assert (factor[~rising] == 1).all()
    assert factor.dtype == progress.dtype


def test_scale_is_held_until_the_factor_is_one():
    progress = jnp.linspace(0, 1, 41)
    scale = np.asarray(hold_while_annealed(progress, jnp.asarray(1.0), jnp.asarray(2.0)))
    np.testing.assert_array_equal(scale, np.where(np.asarray(annealed_factor(progress)) < 1, 1, 2))
