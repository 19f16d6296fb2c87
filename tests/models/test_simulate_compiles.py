"""A second `simulate` of the same sizes compiles nothing: its loops are programs that are kept."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf

TOKENS = mf.Tokens(
    {"document": np.repeat(np.arange(3), 4), "word": np.tile(np.arange(4), 3)},
    {"document": 3, "word": 4},
)
CELLS = np.arange(12) % 3, np.arange(12) // 3
FEATURES = dist.Normal(0.0, 1.0).expand([3]).to_event(1)


def network(model):
    return lambda key: model.network().simulate(key, model.tokens(TOKENS))


SIMULATIONS = {
    "linear_gaussian": lambda key: mf.LinearGaussianIBP(
        noise_scale=0.5, feature_scale=1.0, bias=False, offset=0, column_unit=1, column_noise=False
    ).simulate(key, 5, 3),
    "noisy_or": lambda key: mf.NoisyOrIBP().simulate(key, 5, 3),
    "binary_mf": lambda key: mf.BinaryMF(likelihood=mf.Bernoulli()).simulate(key, 5, 3),
    "feature_model": lambda key: mf.FeatureModel(
        likelihood=mf.Gaussian(0.5), feature_prior=FEATURES, offset=0, column_unit=1, bias=False
    ).simulate(key, 5),
    "bpmf": lambda key: mf.BPMF(2, likelihood=mf.Gaussian(0.5), offset=0).simulate(
        key, *CELLS, (3, 4)
    ),
    "lda": network(mf.LDA(3)),
    "hdp_lda": network(mf.HDPLDA()),
}


@pytest.mark.tiers(slow=["bpmf"])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_second_simulation_compiles_nothing(name, caplog):
    simulate = SIMULATIONS[name]
    first = jax.tree.leaves(simulate(jax.random.key(0)))
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        second = jax.tree.leaves(simulate(jax.random.key(1)))
    messages = [record.getMessage() for record in caplog.records]
    assert [message for message in messages if "Finished XLA comp" in message] == []
    assert any(not np.array_equal(one, other) for one, other in zip(first, second, strict=True))
