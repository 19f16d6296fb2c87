"""Settings as text and as JSON."""

import json
import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxmf import settings
from jaxmf.samplers.resampling import systematic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        (" 3 ", 3),
        ("-1e-3", -1e-3),
        ("true", True),
        ("None", None),
        ("inf", math.inf),
        ("systematic", "systematic"),
    ],
)
def test_text_is_read_as_what_it_says(text, value):
    assert settings.parse(text) == value
    assert type(settings.parse(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Gamma(1,1)", "Gamma(concentration=1, rate=1)"),
        ("Gamma(1.0, rate=2)", "Gamma(concentration=1, rate=2)"),
        ("dist.HalfNormal(2)", "HalfNormal(scale=2)"),
        ("LogNormal(-1, 0.5)", "LogNormal(loc=-1, scale=0.5)"),
    ],
)
def test_distributions_are_read(text, words):
    assert settings.describe(settings.parse(text)) == words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__import__('os').system('true')", "cannot read|not a numpyro distribution"),
        ("(lambda: 1)()", "cannot read"),
        ("Gamma(open('x'))", "'open' is not a numpyro distribution"),
        ("Gama(1, 1)", "'Gama' is not a numpyro distribution"),
        ("Distribution.__init__(1)", "not a numpyro distribution"),
        ("Gamma(-1, 1)", "does not take these arguments"),
        ("Gamma(1, 1, 1, 1)", "does not take these arguments"),
        ("Gamma(1, shape=2)", "does not take these arguments"),
        ("1 + 1", "cannot read"),
        ("[1, 2", "cannot read"),
        ("", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_said(text, says):
    with pytest.raises(ValueError, match=says):
        settings.parse(text)


def through_json(value):
    return settings.decode(json.loads(json.dumps(settings.encode(value))))


@pytest.mark.parametrize(
    "prior",
    [
        dist.Gamma(1.0, 2.5),
        dist.InverseGamma(2.0, 0.1),
        dist.HalfCauchy(1.0),
        dist.LogNormal(0.0, 0.3),
        dist.Uniform(0.5, 2.0),
        dist.TruncatedNormal(0.5, 1.0, low=0.0),
        dist.Chi2(3.0),
        dist.Gamma(np.float64(1 / 3), 1.0),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_distributions_come_back_the_same(prior):
    again = through_json(prior)
    assert type(again) is type(prior)
    for left, right in zip(jax.tree.leaves(prior), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    assert prior.log_prob(0.7) == again.log_prob(0.7)


@pytest.mark.parametrize("value", [1, 0.1, None, True, "prior", math.inf, (1, (2.5, "x")), [1, 2]])
def test_plain_values_come_back_the_same(value):
    assert through_json(value) == value
    assert type(through_json(value)) is type(value)


def test_functions_of_the_library_come_back_and_others_are_refused():
    assert through_json(systematic) is systematic
    with pytest.raises(TypeError, match=r"resample_fn = .* cannot be written down"):
        settings.encode(lambda key: key, name="resample_fn")
    with pytest.raises(ValueError, match="only name functions of jaxmf"):
        settings.decode({"function": "os:system"})


@pytest.mark.parametrize("seed", [0, 123456, jax.random.key(7), jax.random.key(7, impl="rbg")])
def test_seeds_come_back_the_same(seed):
    again = settings.decode_seed(json.loads(json.dumps(settings.encode_seed(seed))))
    if isinstance(seed, int):
        assert again == seed
        return
    assert again.dtype == seed.dtype
    np.testing.assert_array_equal(jax.random.key_data(again), jax.random.key_data(seed))
