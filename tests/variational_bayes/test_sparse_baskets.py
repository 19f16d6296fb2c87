"""SparseBinaryMF with no option set on baskets of two or three items: factors that stay in use."""

import jax
import numpy as np
import pytest
from scipy import sparse

import jaxmf as mf
from jaxmf.variational_bayes import answers
from jaxmf.variational_bayes.start import lift_start

NUM_ROWS, NUM_COLUMNS, NUM_GROUPS = 600, 60, 6


def baskets(seed=0):
    """Ones of baskets of one to three items of one group, one in ten of any, by popularity.

    Returns:
      What is kept, (N, D) sparse, and the rows and columns of one item taken out of each basket of
      two or more.
    """
    generator = np.random.default_rng(seed)
    popularity = generator.permutation(1 / (1 + np.arange(NUM_COLUMNS)) ** 0.7)
    group = np.arange(NUM_COLUMNS) % NUM_GROUPS
    table = np.zeros((NUM_ROWS, NUM_COLUMNS), np.int8)
    hidden = []
    for row in range(NUM_ROWS):
        weight = popularity * np.where(group == generator.integers(NUM_GROUPS), 1, 0.02)
        size = generator.integers(2, 4)
        chosen = generator.choice(NUM_COLUMNS, size, replace=False, p=weight / weight.sum())
        table[row, chosen[1:]] = 1
        hidden.append((row, chosen[0]))
    return sparse.csr_array(table), tuple(np.array(hidden).T)


def hit_rate(scores, kept, hidden, level=5):
    """Share of the hidden ones among the best of their row that are not known, ties by half."""
    rows, columns = hidden
    values = np.where(kept.toarray()[rows] == 1, -np.inf, np.asarray(scores, float)[rows])
    hidden_scores = values[np.arange(rows.size), columns][:, None]
    ahead = (values > hidden_scores).sum(1) + ((values == hidden_scores).sum(1) - 1) / 2
    return np.mean(ahead < level)


def fit(model, kept, **options):
    return mf.variational(model, mf.SparseBinary.from_scipy(kept), progress=False, **options)


@pytest.fixture(scope="module")
def made():
    return baskets()


@pytest.fixture(scope="module")
def fitted(made):
    return fit(mf.SparseBinaryMF(num_factors=8), made[0])


def all_scores(posterior):
    every = np.indices(posterior.data.shape).reshape(2, -1)
    return posterior.scores(tuple(every)).mean.reshape(posterior.data.shape)


def test_factors_stay_in_use_and_beat_popularity_and_singular_vectors(made, fitted):
    kept, hidden = made
    assert fitted.model.likelihood == mf.Bernoulli("tilted")
    in_use = fitted.summary()["factors_in_use"]["mean"]
    assert in_use >= NUM_GROUPS - 1
    ours = hit_rate(all_scores(fitted), kept, hidden)
    popularity = np.broadcast_to(np.asarray(kept.sum(axis=0)).ravel(), kept.shape)
    left, values, right = np.linalg.svd(kept.toarray().astype(float), full_matrices=False)
    singular = (left[:, :8] * values[:8]) @ right[:8]
    assert ours > 1.5 * hit_rate(popularity, kept, hidden)
    assert ours > hit_rate(singular, kept, hidden)


@pytest.mark.slow
def test_the_quadratic_bound_switches_them_all_off_and_says_so(made):
    """The broken twin: what was the default loses every factor, and popularity is what is left."""
    kept, hidden = made
    model = mf.SparseBinaryMF(num_factors=8, likelihood=mf.Bernoulli("quadratic"))
    with pytest.warns(mf.RunWarning, match="No factor is in use: .* popularity of columns alone"):
        post = fit(model, kept)
    assert post.summary()["factors_in_use"]["mean"] == 0
    popularity = np.broadcast_to(np.asarray(kept.sum(axis=0)).ravel(), kept.shape)
    found = hit_rate(all_scores(post), kept, hidden)
    assert found == pytest.approx(hit_rate(popularity, kept, hidden), abs=0.03)
    best = post.recommend(n=1, include_known=True).columns[:, 0]
    assert (best == np.argmax(popularity[0])).all()


def test_alarms_are_of_fits_without_factors_alone(fitted):
    draw = fitted.reference_draw()
    assert fitted.model.alarms(draw, fitted.data) == []
    without = draw | {"row_mean": 0 * draw["row_mean"]}
    ((kind, sentence),) = fitted.model.alarms(without, fitted.data)
    assert kind == "no factors"
    assert "popularity of columns alone" in sentence
    model = mf.SparseBinaryMF(num_factors=8, bias="intercept")
    ((_, sentence),) = model.alarms(without, fitted.data)
    assert "bias='rows_columns'" in sentence


def test_the_bound_is_chosen_by_the_ones_of_a_row():
    few = mf.SparseBinary(np.repeat(np.arange(4), 2), np.tile([0, 1], 4), (4, 40))
    many = mf.SparseBinary.from_array(np.ones((4, 40), int))
    model = mf.SparseBinaryMF(num_factors=2)
    assert model.matched(few).likelihood == mf.Bernoulli("tilted")
    assert model.matched(many).likelihood == mf.Bernoulli("quadratic")
    for likelihood in (mf.Bernoulli("quadratic"), mf.Gaussian()):
        stated = mf.SparseBinaryMF(num_factors=2, likelihood=likelihood)
        assert stated.matched(few) == stated
    with pytest.raises(ValueError, match="bound must be one of 'tilted', 'quadratic'"):
        mf.Bernoulli("jaakkola")
    assert mf.SparseBinarySeries().likelihood == mf.Bernoulli("quadratic")
    with pytest.raises(ValueError, match="a series has the quadratic bound only"):
        mf.SparseBinarySeries(likelihood=mf.Bernoulli("tilted"))


def test_damped_newton_steps_never_raise_the_free_energy(made):
    """With all zeros, in float64; that of other updates, learned priors among them."""
    kept, _ = made
    model = mf.SparseBinaryMF(num_factors=4, zeros=mf.Exact(), bias_scale=None)
    with jax.enable_x64(True):
        path = fit(model, kept[:200], num_epochs=30, tolerance=0.0, hold_priors=3)
        path = path.trace["free_energy"][0]
        assert path.dtype == np.float64
        assert np.diff(path).max() <= 1e-9 * abs(path).max()
        # Broken twin: steps nearly twice as long.
        long = fit(model, kept[:200], num_epochs=30, tolerance=0.0, relaxation=1.99)
        assert np.diff(long.trace["free_energy"][0]).max() > 0


def test_the_start_is_the_singular_vectors_of_the_lifts(made):
    kept, _ = made
    num_factors = NUM_GROUPS - 1  # the next singular values are far smaller
    prepared = mf.SparseBinaryMF().prepare(mf.SparseBinary.from_scipy(kept))
    start = jax.jit(lift_start, static_argnames=("num_factors", "skip_first"))
    key, layout = jax.random.key(0), prepared.layout
    rows, columns = start(key, layout, num_factors=num_factors, skip_first=True)
    table = kept.toarray().astype(float)
    counts = table.sum(1, keepdims=True), table.sum(0, keepdims=True)
    scales = [1 / np.sqrt(count + 5 * count.mean()) for count in counts]
    left, values, right = np.linalg.svd(scales[0] * table * scales[1], full_matrices=False)
    size = np.sqrt(NUM_ROWS * table.sum())

    def difference(first):
        chosen = slice(first, first + num_factors)
        expected = (left[:, chosen] * values[chosen]) @ right[chosen] * scales[1] * size
        return np.linalg.norm(rows @ columns.T - expected) / np.linalg.norm(expected)

    assert difference(1) < 0.25
    np.testing.assert_allclose(np.mean(np.square(rows), axis=0), 1, rtol=1e-4)
    # Broken twin: with the first, which is the margins.
    assert difference(0) > 0.5


def test_the_probability_of_a_gaussian_cell_stays_between_0_and_1():
    likelihood, mean = mf.Gaussian(), np.array([-1.5, 0.0, 1.2])
    found = answers.probability(likelihood, mean, np.ones(3))
    np.testing.assert_array_equal(found, [0, 0.5, 1])
    # the mean of a cell is what it is
    expected, _ = answers.cell_moments(likelihood, {"noise_scale": 1.0}, mean, np.ones(3))
    np.testing.assert_allclose(expected, [-0.25, 0.5, 1.1])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"step_size": -1.0}, "step_size must"),
        ({"step_size": 0.3}, "step_size is given, but only update='partial_newton'"),
        ({"power": 0.5, "update": "gradient"}, "power is given, but only"),
    ],
)
def test_numbers_of_a_step_that_is_not_taken_are_refused(option, words):
    with pytest.raises(ValueError, match=words):
        mf.SparseBinaryMF().ascent(**option)
