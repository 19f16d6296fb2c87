"""What type checkers know of posteriors; mypy, which `make lint` runs, reads this file too."""

from typing import Any, assert_type

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import registry

CHAIN: dict[str, Any] = {"num_warmup": 1, "num_samples": 1, "num_chains": 1}


def test_a_posterior_has_the_model_and_the_container_that_went_in() -> None:
    tokens = mf.Tokens.from_counts(np.array([[1, 1], [2, 0]]))
    post = mf.sample(mf.LDA(2), tokens, **CHAIN)
    assert type(assert_type(post.model, mf.LDA)) is mf.LDA
    assert type(assert_type(post.data, mf.Tokens)) is mf.Tokens
    longer = post.extend(num_samples=1)
    assert type(assert_type(longer.model, mf.LDA)) is mf.LDA


@pytest.mark.slow
def test_filters_have_them_too() -> None:
    values = np.random.default_rng(0).normal(size=(4, 2))
    model = mf.LinearGaussianIBP(alpha=1.0, noise_scale=1.0, feature_scale=1.0)
    post = mf.particle_filter(model, values, num_particles=4)
    assert type(assert_type(post.model, mf.LinearGaussianIBP)) is mf.LinearGaussianIBP
    assert type(assert_type(post.data, mf.Dense)) is mf.Dense


@pytest.mark.slow
def test_variational_fits_have_them_too() -> None:
    ones = mf.SparseBinary.from_baskets([["a", "b"], ["b", "c"], ["a", "c"]])
    post = mf.variational(mf.SparseBinaryMF(num_factors=1), ones, num_epochs=1)
    assert type(assert_type(post.model, mf.SparseBinaryMF)) is mf.SparseBinaryMF
    assert type(assert_type(post.data, mf.SparseBinary)) is mf.SparseBinary


def annotated(post: mf.Posterior, ratings: mf.Posterior[mf.BPMF], model: mf.Model) -> None:
    """Never called: a posterior of any model, one of a known model, and any model of one's own."""
    assert_type(post.model, Any)
    assert_type(post.data, Any)
    assert_type(ratings.data, mf.Entries)
    assert_type(mf.fit(mf.BiHDP(), ratings.data).data, mf.Entries)
    assert_type(mf.smc(mf.DPMixture(), [[0.0]]).data, mf.Dense)
    assert_type(mf.fit(model, None).data, Any)
    annotated(ratings, ratings, model)


def test_the_container_that_a_class_names_is_that_of_the_registry() -> None:
    for entry in registry.ENTRIES:
        bases = [
            base for each in entry.model.__mro__ for base in getattr(each, "__orig_bases__", ())
        ]
        named = {argument for base in bases for argument in getattr(base, "__args__", ())}
        assert entry.container in named, entry.name
