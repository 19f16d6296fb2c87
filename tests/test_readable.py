"""Models and their parts show themselves as the call that makes them again."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf.readable import show

NAMES = {name: getattr(dist, name) for name in ("Gamma", "InverseGamma", "LogNormal", "Normal")}
NAMES |= {name: getattr(mf, name) for name in mf.__all__ if name[0] != "_"}


def _pasted(model):
    return eval(repr(model), dict(NAMES))  # noqa: S307 - what a user would paste


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_a_model_shows_no_address_and_can_be_pasted(entry):
    model, _ = entry.example()
    text = repr(model)
    assert " at 0x" not in text
    assert "\n" not in text
    if "<array" in text or (entry.has_functions and entry.name != "network"):
        return  # long arrays and functions are shown, not written out
    assert registry.encode_model(_pasted(model)) == registry.encode_model(model)


def test_default_priors_are_shown_as_they_are_written():
    text = repr(mf.LinearGaussianIBP(noise_scale=dist.LogNormal(0.0, 2.0), feature_scale=0.5))
    assert text == (
        "LinearGaussianIBP(alpha=Gamma(concentration=1.0, rate=1.0), "
        "noise_scale=LogNormal(loc=0.0, scale=2.0), feature_scale=0.5)"
    )


def test_expanded_priors_and_short_arrays_can_be_pasted():
    model = mf.LDA(3, dist.Gamma(1.0, 1.0).expand([3]), word_concentration=[0.1, 0.2])
    assert repr(_pasted(model)) == repr(model)
    assert "word_concentration=[0.1, 0.2]" in repr(model)


def test_long_arrays_are_shown_by_their_shape():
    model = mf.BinaryMF(fixed_row_features=np.zeros((38, 1)))
    assert "fixed_row_features=<array of shape (38, 1)>" in repr(model)


def test_numbers_keep_all_their_digits_in_their_own_precision():
    assert show(0.123456789) == "0.123456789"
    assert show(jnp.float32(0.1)) == "0.1"


def test_a_model_inside_jit_is_shown_too():
    shown = []

    @jax.jit
    def trace(model):
        shown.append(repr(model))
        return model.alpha

    trace(mf.LinearGaussianIBP(alpha=1.0, noise_scale=1.0, feature_scale=1.0))
    assert "alpha=<array of shape ()>" in shown[0]
