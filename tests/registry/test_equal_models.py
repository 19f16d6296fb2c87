"""Equality and hash of models: by the values of their hyperparameters, also in another process."""

import copy
import dataclasses
import pickle

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf.engine.executables import CACHE


def unpickled(model):
    return pickle.loads(pickle.dumps(model))  # noqa: S301


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_a_model_equals_itself_after_pickling(entry):
    model, _ = entry.example()
    for again in (unpickled(model), copy.deepcopy(model)):
        assert again == model
        assert hash(again) == hash(model)
        assert {model: 1}[again] == 1
    assert model != object()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Scaled(mf.Model):
    """A model of another package, with what its dataclass would compare by identity."""

    scale: object


@dataclasses.dataclass(frozen=True)
class Unregistered(mf.Model):
    """One that jax does not know."""

    scale: object


@dataclasses.dataclass(frozen=True)
class Same(mf.Model):
    """One that says itself when it is equal."""

    scale: float

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 7


@pytest.mark.parametrize("kind", [Scaled, Unregistered])
@pytest.mark.parametrize(
    "other",
    [
        dist.Gamma(1.0, np.array([1.0, 2.0])),
        dist.HalfNormal(np.ones(2)),
        dist.Gamma(1.0, np.ones(3)),
        dist.Gamma(1.0, np.ones(2, np.float32)),
        1.0,
    ],
)
def test_models_of_other_packages_are_compared_in_the_same_way(kind, other):
    model = kind(dist.Gamma(1.0, np.ones(2)))
    assert unpickled(model) == model
    assert hash(unpickled(model)) == hash(model)
    assert model != kind(other)
    assert model != mf.LDA(2)


def test_a_model_may_say_itself_what_it_equals():
    assert Same(1.0) == Same(2.0)
    assert hash(Same(1.0)) == 7


def test_traced_hyperparameters_are_compared_by_identity():
    @jax.jit
    def compared(scale):
        assert Scaled(scale) == Scaled(scale)
        assert Scaled(scale) != Scaled(scale + 1)
        return scale

    compared(1.0)


@pytest.mark.exhaustive
def test_nothing_is_compiled_again_for_a_model_that_was_pickled():
    model, data = registry.get("hdp").example()
    chain = {"num_warmup": 1, "num_samples": 1, "num_chains": 1}
    first = mf.sample(model, data, **chain)
    before = CACHE.num_compilations
    again = mf.sample(unpickled(model), data, **chain)
    assert CACHE.num_compilations == before
    np.testing.assert_array_equal(first.draws["log_joint"], again.draws["log_joint"])
