"""Settings as text and as JSON."""

import json
import math

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxmf import registry, settings
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
        ("Poison()", "Is Poisson meant"),
        ("Distribution.__init__(1)", "not a numpyro distribution"),
        ("Gamma(-1, 1)", "does not take these arguments"),
        ("Gamma(1, 1, 1, 1)", "does not take these arguments"),
        ("Gamma(1, shape=2)", "does not take these arguments"),
        ("Ordinal(0.5, 1, 1.5)", r"in parentheses, Ordinal\(\(1, 2, 3, 4, 5\)\)"),
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


@pytest.mark.parametrize("seed", [0, 123456, jax.random.key(7), jax.random.key(7, impl="rbg")])
def test_seeds_come_back_the_same(seed):
    again = settings.decode_seed(json.loads(json.dumps(settings.encode_seed(seed))))
    if isinstance(seed, int):
        assert again == seed
        return
    assert again.dtype == seed.dtype
    np.testing.assert_array_equal(jax.random.key_data(again), jax.random.key_data(seed))


@pytest.mark.parametrize(
    "function",
    [
        "os:system",
        "jaxmf.settings:inspect.builtins.exec",
        "jaxmf.demo:np.f2py",
        "jaxmf.samplers.resampling:systematic",
        "resampling.systematic.__globals__",
        "__import__",
        "",
        None,
        ["resampling.systematic"],
    ],
)
@pytest.mark.parametrize("form", ["alone", "partial", "keyword"])
def test_no_function_is_reached_that_is_not_registered(function, form):
    written = {"function": function}
    if form == "partial":
        written = {"partial": written, "arguments": [], "keywords": {}}
    elif form == "keyword":
        inner = {"function": "flexible.opened_tables"}
        written = {"partial": inner, "arguments": [], "keywords": {"key": written}}
    with pytest.raises(ValueError, match="is no function that a saved run may name"):
        settings.decode(written)


@pytest.mark.parametrize("name", settings.names.FUNCTIONS)
def test_every_registered_function_comes_back(name):
    function = settings.names.function(name)
    assert settings.encode(function) == {"function": name}
    assert through_json(function) is function
    again = through_json(jax.tree_util.Partial(function, 0.5))
    assert (again.func, again.args) == (function, (0.5,))


def test_every_registered_prior_and_distribution_is_there():
    for name in settings.names.PRIORS:
        assert settings.names.prior_class(name).__name__ == name
    for name in settings.names.DISTRIBUTIONS:
        assert issubclass(settings.names.distribution_class(name), dist.Distribution)


@pytest.mark.parametrize("name", [entry.name for entry in registry.ENTRIES])
def test_every_model_comes_back(name):
    model, _ = registry.get(name).example()
    written = json.loads(json.dumps(registry.encode_model(model)))
    again = registry.decode_model(written)
    assert json.loads(json.dumps(registry.encode_model(again))) == written
    assert jax.tree.structure(again) == jax.tree.structure(model)


@pytest.mark.tiers(exhaustive=["LKJCholesky", "Wishart"])
@pytest.mark.parametrize(
    "prior",
    [
        dist.Normal(np.zeros(3), 1.0).to_event(1),
        dist.Gamma(1.0, 1.0).expand([5]),
        dist.MultivariateNormal(np.zeros(2), covariance_matrix=np.array([[2.0, 0.5], [0.5, 1.0]])),
        dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        dist.Categorical(np.array([0.25, 0.75])),
        dist.LKJCholesky(3, 1.0),
        dist.Wishart(4.0, scale_matrix=np.eye(2)),
        dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2), dist.Normal(np.arange(2.0), 1.0)),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_distributions_of_arrays_come_back_the_same(prior):
    again = through_json(prior)
    assert type(again) is type(prior)

    @jax.jit
    def densities(key):
        value = prior.sample(key)
        return prior.log_prob(value), again.log_prob(value)

    np.testing.assert_array_equal(*densities(jax.random.key(0)))


def test_a_distribution_made_of_functions_is_refused_before_it_is_written():
    skewed = dist.TransformedDistribution(dist.Normal(), dist.transforms.ExpTransform())
    for value in (skewed, dist.ImproperUniform(dist.constraints.real, (), ())):
        with pytest.raises(TypeError, match=r"alpha.* cannot be written down"):
            settings.encode(value, name="alpha")


GAMMA = {"concentration": 1.0, "rate": 1.0}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"distribution": "EulerMaruyama", "parameters": {}}, "is not a numpyro distribution"),
        ({"distribution": "kl.kl_divergence", "parameters": {}}, "is not a numpyro distribution"),
        ({"distribution": "Gamma", "parameters": {"rat": 1.0}}, "Gamma has no parameter 'rat'"),
        ({"distribution": "Gamma", "parameters": {"rate": "1"}}, r"x\.rate: a str is no parameter"),
        ({"distribution": "Gamma", "parameters": [1, 2]}, "should be an object"),
        ({"distribution": "Gamma", "parameters": {}}, "Gamma cannot be made of these parameters"),
        ({"distribution": "Gamma"}, "is no setting"),
        ({"distribution": "Gamma", "parameters": GAMMA, "more": 1}, "is no setting"),
        (
            {"distribution": "Gamma", "parameters": GAMMA | {"validate_args": True}},
            "no parameter 'validate_args'",
        ),
        (
            {
                "distribution": "ExpandedDistribution",
                "parameters": {
                    "base_dist": {"distribution": "Gamma", "parameters": GAMMA},
                    "batch_shape": {"tuple": [10**12]},
                },
            },
            "too large|cannot be made",
        ),
        ({"prior": "Posterior", "parameters": {}}, "is no prior"),
        ({"prior": "HDP", "parameters": {"gama": 1}}, "HDP has no parameter 'gama'"),
        ({"partial": {"partial": 1}, "arguments": [], "keywords": {}}, "should be a function"),
        ({"partial": 3, "arguments": [], "keywords": {}}, "should be a function"),
        ({"number": "1"}, "one of inf, -inf, nan"),
        ({"number": 1e400}, "one of inf, -inf, nan"),
        ({"array": [1, 2], "dtype": "object", "shape": [2]}, "no dtype of numbers"),
        ({"array": [1, [2]], "dtype": "int32", "shape": [2]}, "cannot be read"),
        ({"array": [1], "dtype": "int32", "shape": [10**12]}, "cannot be read"),
        ({"array": [2**40], "dtype": "int32", "shape": [1]}, "cannot be read"),
        ({"dict": [1]}, "should be an object"),
        ({"tuple": 1}, "should be a list"),
        ({}, "is no setting"),
        ({"__class__": "x"}, "is no setting"),
    ],
    ids=str,
)
def test_what_no_setting_is_gets_named(written, says):
    with pytest.raises(ValueError, match=says):
        settings.decode(written, name="x")


def test_deep_nesting_is_refused_in_both_directions():
    value, written = 1.0, 1.0
    for _ in range(10_000):
        value, written = (value,), {"tuple": [written]}
    with pytest.raises(TypeError, match="nested more than 20 deep"):
        settings.encode(value)
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        settings.decode(written)


@pytest.mark.parametrize(
    "written",
    [True, 1.5, None, "1", [], {"key": [1, 2]}]
    + [{"key": k, "impl": "threefry2x32"} for k in ([1], [1, -2], "ab", [[1, 2], [3]])]
    + [{"key": [1, 2], "impl": impl} for impl in ("os", None, "threefry2x32.name", 3)],
    ids=str,
)
def test_a_seed_that_is_none_is_refused(written):
    with pytest.raises(ValueError, match="seed: "):
        settings.decode_seed(written)
