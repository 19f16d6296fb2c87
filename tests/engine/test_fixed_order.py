"""Compiled programs take their arguments in one order in every process."""

import os
import subprocess
import sys

import chex
import jax
import numpyro.distributions as dist
import pytest

from jaxmf.engine.fixed_order import in_fixed_order, restored

LEAVES = """
import jax, numpyro.distributions as dist, jaxmf as mf
from jaxmf.engine.fixed_order import in_fixed_order
model = mf.LinearGaussianIBP(
    alpha=dist.TruncatedNormal(1.0, 2.0, low=0.5, high=9.0),
    noise_scale=dist.LogUniform(0.25, 4.0),
    feature_scale=dist.InverseGamma(3.0, 5.0),
)
print([float(leaf) for leaf in jax.tree.leaves(in_fixed_order(model))])
"""


@pytest.mark.slow
def test_the_order_does_not_depend_on_the_hashes_of_a_process():
    printed = {
        subprocess.run(
            [sys.executable, "-c", LEAVES],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(printed) == 1


@pytest.mark.parametrize(
    "distribution",
    [
        dist.Gamma(2.0, 3.0),
        dist.LogUniform(0.25, 4.0),
        dist.TruncatedNormal(1.0, 2.0, low=0.5),
        dist.Gamma(2.0, 1.5).expand([3]).to_event(1),
        dist.Normal(0.0, 2.0).mask(False),
        dist.TransformedDistribution(
            dist.Normal(0.0, 2.0), dist.transforms.AffineTransform(1.0, 3.0)
        ),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_distributions_come_back_as_they_were(distribution):
    tree = {"prior": distribution, "number": 1.0}
    leaves, structure = jax.tree.flatten(in_fixed_order(tree))
    back = restored(jax.tree.unflatten(structure, leaves))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    chex.assert_trees_all_equal(jax.tree.leaves(back), jax.tree.leaves(tree))


def test_a_tree_without_distributions_is_left_alone():
    tree = {"a": 1.0, "b": (2.0, None)}
    assert in_fixed_order(tree) is tree
    assert restored(tree) is tree
