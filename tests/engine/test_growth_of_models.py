"""Growth of features by models: how far it goes, and what is kept where it may go no further."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.engine import GrowthWarning

SETTINGS = {"anneal": False, "num_warmup": 0, "num_samples": 30, "num_chains": 1, "seed": 0}


def sample(alpha):
    model = mf.LinearGaussianIBP(alpha=alpha, noise_scale=0.5, feature_scale=1.0)
    data = np.random.default_rng(0).normal(size=(8, 3))
    return mf.sample(model, data, sweep="whole_rows", **SETTINGS)


@pytest.mark.slow
def test_whole_rows_grow_to_their_twelve_slots_and_keep_their_draws_beyond():
    # before, 8 slots doubled to 16, which was refused, and all draws were lost
    posterior = sample(3.5)
    assert posterior.run.complete
    assert posterior.run.capacity == {"features": 12}
    with pytest.warns(GrowthWarning, match="more than 12 slots .* use sweep='collapsed'"):
        posterior = sample(7.0)
    assert not posterior.meta.complete
    assert 0 < posterior.draws["z"].shape[1] < 30
