"""Splits and merges of binary matrix factorisation: joint-distribution tests and a broken twin."""

from functools import partial

import jax.numpy as jnp
import pytest

from jaxmf.models.binary_mf import updates
from tests.support.binary_mf_setups import KNOWN, Setup, make, must_fail

SPLIT = {"gaussian": {"noise_scale": 0.5, "weight_scale": 1.2, "weight_mean": 0.7}}


@pytest.mark.slow
def test_splits_and_merges_alone():
    """On both sides, weights summed out; a bias and a given feature stay as they are."""
    model = make("gaussian", hyperparameters=SPLIT, **KNOWN)
    kernel = partial(updates.split_or_merge, model, num_proposals=2)
    Setup(model, collapsed=True).check(kernel)


@pytest.mark.tiers(exhaustive=["missing", "whole"])
@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
def test_splits_and_merges_with_weights_kept(missing):
    """W summed out, and drawn anew after the proposals."""
    model = make("gaussian", hyperparameters=SPLIT, **KNOWN)
    kernel = partial(updates.split_or_merge, model, num_proposals=2)
    Setup(model, missing).check(kernel)


@pytest.mark.exhaustive
def test_weights_kept_through_splits_and_merges_are_caught():
    """The weights as they were before the proposals, new ones for new features alone."""
    model = make("gaussian", hyperparameters=SPLIT)

    def twin(key, state, data):
        after, info = updates.split_or_merge(model, key, state, data, num_proposals=2)
        old = (state.weights != 0) & (after.weights != 0)
        return after._replace(weights=jnp.where(old, state.weights, after.weights)), info

    must_fail(Setup(model), twin, num_replicates=4_096)
