"""Binary matrix factorisation from the outside: settings, errors, queries, saving, pictures."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf import registry, settings
from jaxmf.likelihoods import gaussian
from jaxmf.likelihoods.spectrum import log_density
from jaxmf.models.binary_mf import BinaryMFState
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.plot.bilinear import order_by_features, runs
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior

RUN = {"num_warmup": 3, "num_samples": 4, "num_chains": 2, "progress": False}
SQUARE = mf.BetaBernoulli(1.0, 1.0, 3)
FINITE = {
    "row_prior": mf.BetaBernoulli(1.0, 1.0, 3),
    "column_prior": mf.BetaBernoulli(1.0, 1.0, 2),
}


def gaussian_data(rng=None, *, missing=True):
    rng = rng or np.random.default_rng(0)
    u, v = rng.random((14, 2)) < 0.5, rng.random((6, 2)) < 0.6
    x = u @ rng.normal(size=(2, 2)) @ v.T + 0.3 * rng.normal(size=(14, 6))
    if missing:
        x[0, 3:] = np.nan
    return x


# --- settings ------------------------------------------------------------------------------------


def test_a_number_is_the_alpha_of_a_process():
    model = mf.BinaryMF(row_prior=2.0, column_prior=dist.Gamma(1.0, 2.0))
    assert isinstance(model.row_prior, mf.IndianBuffet)
    assert (model.row_alpha, model.row_concentration) == (2.0, 1.0)
    assert isinstance(model.column_prior.alpha, dist.Gamma)


def test_a_summary_has_no_fixed_hyperparameters_of_its_priors():
    priors = {"row_prior": 2.0, "column_prior": mf.IndianBuffet(dist.Gamma(1.0, 1.0))}
    data = mf.Dense.from_array(gaussian_data())
    model = mf.BinaryMF(**priors).matched(data)
    algorithm = model.sampler()

    def first_draw(key):
        return algorithm.record(key, algorithm.init(key, data), data)

    shapes = jax.eval_shape(first_draw, jax.random.key(0))
    draws = {name: np.zeros((2, 4, *leaf.shape), leaf.dtype) for name, leaf in shapes.items()}
    meta = Meta("sample", 0, {}, {}, {}, "CPU", 1.0, 1.0, True, {})
    names = set(Posterior(model, data, draws, meta).quantities())
    assert {"column_alpha", "noise_scale", "weight_scale"} <= names
    assert not {"row_alpha", "row_concentration", "column_concentration"} & names


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"likelihood": "categorical"}, ValueError, ("categorical", "left out", "mf.Bernoulli()")),
        ({"likelihood": "poisson"}, TypeError, ("mf.Bernoulli(), mf.Poisson()", "'poisson'")),
        ({"likelihood": mf.StudentT()}, TypeError, ("mf.Gaussian()", "StudentT()")),
        ({"row_prior": -1.0}, ValueError, ("row_prior", "positive")),
        ({"row_prior": "many"}, TypeError, ("row_prior", "'many'")),
        ({"likelihood": mf.Poisson(), "weight_scale": 1.0}, ValueError, ("weight_shape",)),
        ({"weight_mean": float("nan")}, ValueError, ("weight_mean", "finite")),
        ({"weight_mean": [[0.0, np.inf]]}, ValueError, ("weight_mean", "finite", "(0, 1)")),
        ({"weight_mean": "much"}, TypeError, ("weight_mean", "'much'")),
        ({"weight_mean": np.zeros((3, 2))}, ValueError, ("weight_mean", "BetaBernoulli", "number")),
        (
            {"weight_mean": np.zeros((3, 2)), "row_bias": True, **FINITE},
            ValueError,
            ("weight_mean", "(4, 2)", "(3, 2)"),
        ),
        ({"likelihood": mf.Poisson(), "weight_rate": "1"}, TypeError, ("weight_rate", "'1'")),
        (
            {"likelihood": mf.Poisson(), "weight_shape": dist.Normal(0.0, 1.0)},
            ValueError,
            ("weight_shape", "positive"),
        ),
        ({"weight_rate": 0.1}, ValueError, ("weight_rate", "Gaussian()", "none")),
        ({"diagonal": True}, ValueError, ("diagonal", "BetaBernoulli")),
        ({"diagonal": True, **FINITE}, ValueError, ("as many", "3 and 2")),
        ({"row_bias": 1}, TypeError, ("row_bias",)),
        ({"fixed_row_features": [0, 1]}, ValueError, ("fixed_row_features", "matrix")),
        ({"fixed_row_features": [[0.5]]}, ValueError, ("fixed_row_features", "0.5 at (0, 0)")),
    ],
)
def test_bad_settings_are_refused_in_words(options, error, words):
    with pytest.raises(error) as caught:
        mf.BinaryMF(**options)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (
            mf.BinaryMF(likelihood=mf.Bernoulli()),
            [[0.0, 1.0], [2.0, 1.0]],
            ("2 at row 1, column 0", "0 or 1"),
        ),
        (
            mf.BinaryMF(likelihood=mf.Poisson()),
            [[0.0, 1.0], [2.0, -1.0]],
            ("-1 at row 1, column 1", "counts"),
        ),
        (mf.BinaryMF(likelihood=mf.Poisson()), [[0.5, 1.0]], ("0.5 at row 0, column 0", "counts")),
        (mf.BinaryMF(), [[1.0, np.nan], [0.0, np.nan]], ("column 1", "no observed cell")),
        (
            mf.BinaryMF(fixed_row_features=np.ones((3, 1))),
            [[1.0, 2.0], [0.0, 1.0]],
            ("fixed_row_features has 3 rows", "data has 2"),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:data. 1 columns have no observed cell")
def test_bad_data_is_refused_in_words(model, x, words):
    with pytest.raises(ValueError, match=words[0]) as caught:
        mf.sample(model, np.array(x), **RUN)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (mf.BinaryMF(), {"weights": "none"}, ("collapsed", "explicit", "'none'")),
        (mf.BinaryMF(likelihood=mf.Bernoulli()), {"weights": "collapsed"}, ("Bernoulli()",)),
        (mf.BinaryMF(), {"capacity": 0}, ("capacity",)),
        (
            mf.BinaryMF(row_prior=SQUARE, column_prior=SQUARE, diagonal=True),
            {"split_merge": 1, "weights": "collapsed"},
            ("split_merge", "diagonal"),
        ),
        (mf.BinaryMF(), {"several": -1}, ("several", "-1")),
        (mf.BinaryMF(), {"several": 2, "sweep": "whole_rows"}, ("several", "whole_rows")),
        (mf.BinaryMF(), {"sweep": "rows"}, ("bits, whole_rows", "'rows'")),
        (mf.BinaryMF(), {"sweep": "whole_rows", "weights": "explicit"}, ("sweep", "explicit")),
        (mf.BinaryMF(), {"sweep": "whole_rows", "capacity": 13}, ("at most 12", "13", "bits")),
        (
            mf.BinaryMF(**FINITE, weight_mean=np.zeros((3, 2))),
            {"split_merge": 1},
            ("split_merge", "weight_mean"),
        ),
        (mf.BinaryMF(), {"split_merge": -1}, ("split_merge", "-1")),
        (mf.BinaryMF(likelihood=mf.Bernoulli()), {"split_merge": 1}, ("split_merge", "precision")),
        (mf.BinaryMF(likelihood=mf.Poisson()), {"split_merge": 1}, ("split_merge", "Gamma")),
    ],
)
def test_bad_options_are_refused_in_words(model, options, words):
    with pytest.raises(ValueError, match=words[0]) as caught:
        model.sampler(**options)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("option", ["several", "split_merge", "change_basis"])
def test_numbers_of_proposals_are_whole_numbers(option):
    with pytest.raises(TypeError, match=f"{option} must be a whole number, got True"):
        mf.BinaryMF().sampler(**{option: True})


def test_priors_as_text_and_as_json():
    prior = settings.parse("BetaBernoulli(Gamma(1, 2), num_features=3)")
    assert settings.describe(prior) == (
        "BetaBernoulli(alpha=Gamma(concentration=1, rate=2), concentration=1, num_features=3)"
    )
    model = mf.BinaryMF(
        row_prior=prior, column_prior=2.0, fixed_row_features=np.array([[True], [False]])
    )
    means = mf.BinaryMF(**FINITE, weight_mean=[[1, 0], [2, 0], [0, 3.5]])
    decoded = registry.decode_model(registry.encode_model(means))
    np.testing.assert_array_equal(decoded.weight_mean, [[1, 0], [2, 0], [0, 3.5]])
    again = registry.decode_model(registry.encode_model(model))
    assert settings.describe(again.row_prior) == settings.describe(prior)
    np.testing.assert_array_equal(again.fixed_row_features, model.fixed_row_features)
    with pytest.raises(ValueError, match="does not take these arguments"):
        settings.parse("IndianBuffet(1, 2, 3)")


# --- queries -------------------------------------------------------------------------------------


def identity_case():
    """A draw of BMF with V = I, and the same draw of the linear-Gaussian model."""
    rng = np.random.default_rng(2)
    z, x = rng.random((9, 3)) < 0.5, rng.normal(size=(9, 4))
    hyperparameters = {"noise_scale": jnp.asarray(0.5), "weight_scale": jnp.asarray(0.8)}
    one = jnp.ones(())
    draw = {
        "z": jnp.asarray(z),
        "v": jnp.eye(4, dtype=bool),
        "row_alpha": one,
        "row_concentration": one,
        **hyperparameters,
    }
    linear = {
        "z": draw["z"],
        "alpha": one,
        "concentration": one,
        "noise_scale": hyperparameters["noise_scale"],
        "feature_scale": hyperparameters["weight_scale"],
    }
    return draw, linear, x


@pytest.mark.tiers(slow=["True"], exhaustive=["False"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_identity_for_v_gives_the_linear_gaussian_model(missing):
    draw, linear, x = identity_case()
    if missing:
        x[[0, 3, 3], [1, 0, 2]] = np.nan
    data = mf.Dense.from_array(x)
    ours = mf.BinaryMF(likelihood=mf.Gaussian(0.5), weight_scale=0.8)
    theirs = LinearGaussianIBP(alpha=1.0, noise_scale=0.5, feature_scale=0.8)
    for left, right in zip(ours.features(draw, data), theirs.features(linear, data), strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-4, atol=1e-5)
    cells = jnp.array([0, 3, 5]), jnp.array([1, 2, 3])
    for left, right in zip(
        ours.predict_cells(draw, data, *cells), theirs.predict_cells(linear, data, *cells),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(left, right, rtol=2e-4, atol=1e-5)
    if missing:
        return
    one = jnp.ones(())
    scales = draw["noise_scale"], draw["weight_scale"]
    state = BinaryMFState(draw["z"], draw["v"], None, None, *(one,) * 4, *scales, *(one,) * 3)
    expected = log_density(gaussian.spectrum(draw["z"], data.values), *scales)
    np.testing.assert_allclose(ours.log_likelihood(state, data), expected, rtol=1e-5)


@pytest.mark.tiers(exhaustive=["0.7"])
@pytest.mark.parametrize("weight_mean", [0.7, np.linspace(-1.0, 2.0, 6).reshape(3, 2)])
def test_the_distribution_of_the_weights_is_the_same_both_ways(weight_mean):
    """By the two Gram matrices where nothing is missing, and from the cells one by one."""
    draw, _, x = identity_case()
    draw["v"] = jnp.asarray(np.random.default_rng(5).random((4, 2)) < 0.6)
    model = mf.BinaryMF(
        likelihood=mf.Gaussian(0.5), weight_scale=0.8, weight_mean=weight_mean, **FINITE
    )
    whole = mf.Dense(jnp.asarray(x, float))
    masked = mf.Dense.tree_unflatten(None, (whole.values, jnp.ones(x.shape, bool)))
    cells = jnp.arange(4), jnp.arange(4)
    for query in (
        lambda data: model.features(draw, data),
        lambda data: model.predict_cells(draw, data, *cells),
        lambda data: model.expected_weights(draw, data),
    ):
        for left, right in zip(
            *(jax.tree.leaves(jax.jit(query)(data)) for data in (whole, masked)), strict=True
        ):
            np.testing.assert_allclose(left, right, rtol=2e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:data. 1 columns have no observed cell")
def test_new_rows_have_the_features_of_their_like():
    """Rows made of one feature or none, much signal: the features of new ones are certain."""
    rng = np.random.default_rng(0)
    u = np.repeat([[True, False], [False, True], [False, False]], 6, axis=0)
    v = np.eye(2, dtype=bool)[[0, 0, 0, 1, 1]]
    weights = np.array([[3.0, 0.0], [0.0, -3.0]])
    x = u @ weights @ v.T + 0.1 * rng.normal(size=(18, 5))
    draw = {
        "z": jnp.asarray(u),
        "v": jnp.asarray(v),
        "row_alpha": jnp.asarray(1.0),
        "row_concentration": jnp.asarray(1.0),
        "noise_scale": jnp.asarray(0.1),
        "weight_scale": jnp.asarray(2.0),
    }
    model = mf.BinaryMF(row_prior=1.0, likelihood=mf.Gaussian(0.1), weight_scale=2.0)
    data = mf.Dense(jnp.asarray(x))
    new = mf.Dense.from_array(
        np.array([[3.0, np.nan, np.nan, 0.0, 0.1], [np.nan, 0.1, np.nan, -3.0, np.nan]])
    )
    key = jax.random.key(0)
    probabilities = jax.jit(model.transform_rows)(key, draw, data, new)
    np.testing.assert_allclose(probabilities, np.eye(2), atol=0.02)
    mean, variance = jax.jit(model.predict_rows)(key, draw, data, new)
    np.testing.assert_allclose(mean, [[3, 3, 3, 0, 0], [0, 0, 0, -3, -3]], atol=0.3)
    assert variance.shape == (2, 5)
    assert jnp.all(variance > 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:data. 1 columns have no observed cell")
def test_new_rows_find_a_combination_that_no_single_feature_leads_to():
    u = np.repeat([[True, True], [True, False], [False, False]], 6, axis=0)
    v = np.eye(2, dtype=bool)[[0, 0, 0, 1, 1]]
    x = u @ np.array([[6.0, 6.0], [-6.0, 0.0]]) @ v.T + 0.1 * np.random.default_rng(0).normal(
        size=(18, 5)
    )
    draw = {"z": jnp.asarray(u), "v": jnp.asarray(v)}
    draw |= {name: jnp.ones(()) for name in ("row_alpha", "row_concentration")}
    draw |= {"noise_scale": jnp.asarray(0.1), "weight_scale": jnp.asarray(6.0)}
    model = mf.BinaryMF(row_prior=1.0, likelihood=mf.Gaussian(0.1), weight_scale=6.0)
    new = mf.Dense.from_array(
        np.array([[0.0, 0.1, 0.0, np.nan, 6.0], [6.0, 6.0, np.nan, 6.0, 6.0]])
    )
    probabilities = jax.jit(model.transform_rows)(
        jax.random.key(0), draw, mf.Dense(jnp.asarray(x)), new
    )
    np.testing.assert_allclose(probabilities, [[1, 1], [1, 0]], atol=0.02)


def test_slots_that_no_draw_uses_change_no_answer():
    """They were kept, and a question cost what an annealed start had once reserved."""
    x, rng = gaussian_data(), np.random.default_rng(1)
    z, v = np.zeros((1, 2, 14, 12), bool), np.zeros((1, 2, 6, 20), bool)
    z[..., 1:3], v[..., 2] = rng.random((1, 2, 14, 2)) < 0.5, rng.random((1, 2, 6)) < 0.6
    v[0, 1, :, 0] = True
    names = ("row_alpha", "row_concentration", "noise_scale", "weight_scale")
    wide = {"z": z, "v": v} | {name: np.ones((1, 2)) for name in names}
    model = mf.BinaryMF(likelihood=mf.Gaussian(1.0), weight_scale=1.0)
    trimmed = model.trimmed(wide)
    assert (trimmed["z"].shape, trimmed["v"].shape) == ((1, 2, 14, 3), (1, 2, 6, 3))
    data = mf.Dense.from_array(x)

    def answer(draws):
        one = {name: jnp.asarray(values[0, 1]) for name, values in draws.items()}
        return jax.jit(model.predict_cells)(one, data, jnp.arange(4), jnp.arange(4) + 1)

    chex.assert_trees_all_close(answer(trimmed), answer(wide), rtol=1e-5)
    finite = mf.BinaryMF(row_prior=mf.BetaBernoulli(1.0, 1.0, 12), column_prior=1.0)
    kept = finite.trimmed(wide | {"weights": np.ones((1, 2, 12, 20))})
    assert (kept["z"].shape[-1], kept["weights"].shape) == (12, (1, 2, 12, 3))
    known = mf.BinaryMF(fixed_row_features=np.zeros((14, 4), bool), row_bias=True)
    assert known.trimmed(wide)["z"].shape[-1] == 5


@pytest.mark.tiers(exhaustive=["logistic", "poisson"])
@pytest.mark.parametrize(
    "likelihood",
    [
        pytest.param(mf.Bernoulli(), id="logistic"),
        pytest.param(mf.Poisson(), marks=pytest.mark.slow, id="poisson"),
    ],
)
def test_a_posterior_answers(likelihood, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.poisson(1.0, (12, 6)).astype(float)
    x = np.minimum(x, 1) if likelihood == mf.Bernoulli() else x
    truth = x.copy()
    x[0, 3:] = np.nan
    post = mf.fit(mf.BinaryMF(likelihood=likelihood, row_bias=True, **FINITE), x, **RUN)
    prediction = post.predict()
    assert ((prediction.mean >= 0) & np.isfinite(prediction.sd)).all()
    assert (prediction.draws == np.round(prediction.draws)).all()
    assert np.isfinite(post.held_out_log_likelihood(truth).mean)
    assert post.cooccurrence().shape == (12, 12)
    assert post.transform(truth[:2]).shape == (2, post.features().counts.size)
    assert np.isfinite(post.predict(new_rows=x[:2]).mean).all()
    again = mf.load(post.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.draws["v"], post.draws["v"])
    for figure in (
        post.plot.column_features(image_shape=(2, 3)),
        post.plot.average_images(image_shape=(2, 3)),
        post.plot.completed(image_shape=(2, 3), truth=truth),
        post.plot.blocks(),
        post.plot.blocks(expected=True),
    ):
        assert figure.axes


SQUARE_SIDES = {"row_prior": SQUARE, "column_prior": SQUARE}
PROCESSES = {"row_prior": 1.0, "column_prior": 1.0}


@pytest.mark.tiers(exhaustive=["plaid", "poisson", "split-merge", "whole rows"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (mf.BinaryMF(**SQUARE_SIDES, diagonal=True, weight_mean=np.eye(3)), ("collapsed", {})),
        (mf.BinaryMF(**PROCESSES), ("collapsed", {"sweep": "whole_rows", "capacity": 4})),
        (mf.BinaryMF(**PROCESSES), ("explicit", {"split_merge": 2})),
        (
            mf.BinaryMF(
                likelihood=mf.Poisson(dist.LogNormal(-1.0, 1.0)),
                weight_shape=dist.Gamma(2.0, 1.0),
                weight_rate=dist.Gamma(2.0, 1.0),
                **FINITE,
            ),
            ("explicit", {}),
        ),
    ],
    ids=["plaid", "whole rows", "split-merge", "poisson"],
)
def test_options_from_data_to_predictions(model, options, tmp_path):
    weights, others = options
    x = gaussian_data()
    if isinstance(model.likelihood, mf.Poisson):
        x = np.abs(np.round(x))
    post = mf.sample(model, x, weights=weights, **others, **RUN)
    assert np.isfinite(post.draws["log_joint"]).all()
    if model.row_prior == mf.IndianBuffet(1.0):
        for name in ("z", "v"):
            used = post.draws[name].any(axis=(0, 1, 2))
            assert used[-1] or used.size == 1
    assert np.isfinite(post.predict().mean).all()
    assert np.isfinite(post.predict(new_rows=x[:2]).mean).all()
    again = mf.load(post.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.predict().mean, post.predict().mean)
    if isinstance(model.likelihood, mf.Poisson):
        assert len(np.unique(post.draws["base_rate"])) > 1


# --- pictures ------------------------------------------------------------------------------------


def test_rows_with_equal_features_lie_together():
    bits = np.random.default_rng(3).random((40, 3)) < 0.5
    ordered = bits[order_by_features(bits)]
    assert len(runs(ordered[:, 0])) == 1
    patterns = [tuple(row) for row in ordered.tolist()]
    changes = sum(a != b for a, b in zip(patterns, patterns[1:], strict=False))
    assert changes == len(set(patterns)) - 1


# --- known features and their ids ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["frame", "features"])
def test_known_features_are_matched_by_id(kind):
    pd = pytest.importorskip("pandas")
    bits = pd.DataFrame({"f": [1, 0, 0], "g": [0, 1, 1]}, index=["c", "a", "b"])
    known = bits if kind == "frame" else mf.Features.from_pandas(bits, standardise=False)
    model = mf.BinaryMF(fixed_row_features=known, fixed_column_features=known)
    data = mf.Dense(np.arange(9.0).reshape(3, 3), row_names=list("abc"), column_names=list("cba"))
    matched = model.matched(data)
    np.testing.assert_array_equal(matched.fixed_row_features, [[0, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(matched.fixed_column_features, [[1, 0], [0, 1], [0, 1]])
    assert matched.fixed_row_features.dtype == bool
    matched.check_data(data, "data")
    other = mf.Dense(np.ones((3, 3)), row_names=list("abz"))
    with pytest.raises(ValueError, match="fixed_row_features: no line has the id 'z'"):
        model.matched(other)


def test_known_features_are_taken_by_position_where_one_side_has_no_ids():
    pd = pytest.importorskip("pandas")
    bits = np.array([[1], [0], [0]])
    frame = pd.DataFrame(bits, index=["c", "a", "b"])
    values = np.arange(6.0).reshape(3, 2)
    plain = mf.BinaryMF(fixed_row_features=frame).matched(mf.Dense(values))
    named = mf.Dense(values, row_names=list("abc"))
    for model in (plain, mf.BinaryMF(fixed_row_features=bits).matched(named)):
        np.testing.assert_array_equal(model.fixed_row_features, bits)
    state, _ = mf.BinaryMF(fixed_row_features=frame).simulate(jax.random.key(0), 3, 2)
    np.testing.assert_array_equal(state.u[:, :1], bits)
    with pytest.raises(ValueError, match=r"fixed_row_features must be 0 or 1, got 2 at \(0, 0\)"):
        mf.BinaryMF(fixed_row_features=2 * frame)
