"""Distributions of real cells of models of groups, against sums over groups written out."""

import jax
import numpy as np
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf.blocks.prediction import probabilities
from jaxmf.blocks.values import draw_values, log_density
from jaxmf.testing import check_means

GENERATOR = np.random.default_rng(4)
FAMILY = mf.NormalInverseGamma(location=3.0, weight=0.5, shape=1.2, rate=0.3)
KEY = jax.random.key(2)


def fitted(model, data):
    run = {"num_warmup": 5, "num_samples": 3, "num_chains": 1, "progress": False}
    return mf.sample(model, data, **run)


@pytest.fixture(scope="module")
def rated():
    """Two kinds of users and of items with means of their own, far apart."""
    users, items = GENERATOR.random(12) < 0.5, GENERATOR.random(9) < 0.5
    x = np.where(users[:, None] == items, 6.0, 0.0) + GENERATOR.normal(0, 0.5, (12, 9))
    x[GENERATOR.random(x.shape) < 0.3] = np.nan
    model = mf.BiLDA(2, 3, user_concentration=0.5, item_concentration=0.4, family=FAMILY)
    return fitted(model, mf.Entries.from_array(x))


def first_draw(algorithm, data):
    """What is recorded of the state that a chain starts from."""
    return jax.jit(lambda: algorithm.record(KEY, algorithm.init(KEY, data), data))()


def distributions_of(size, location, rate):
    """Student's t distribution of every group."""
    shape, weight = FAMILY.shape + size / 2, FAMILY.weight + size
    return stats.t(2 * shape, location, np.sqrt(rate * (weight + 1) / (weight * shape)))


def by_hand(post, user, item):
    """Weights and distributions of the groups of a cell, all draws of a chain side by side."""
    weights, size, location, rate = [], [], [], []
    for index in range(post.num_draws):
        draw = {name: np.asarray(values[0, index]) for name, values in post.draws.items()}
        of_user, of_item = draw["user_group_counts"] + 0.5, draw["item_group_counts"] + 0.4
        both = np.outer(of_user[user] / of_user[user].sum(), of_item[item] / of_item[item].sum())
        weights.append(both.ravel() / post.num_draws)
        for values, name in ((size, "number"), (location, "location"), (rate, "rate")):
            values.append(draw[f"rating_{name}"].reshape(-1))
    together = [np.concatenate(values) for values in (size, location, rate)]
    return np.concatenate(weights), distributions_of(*together)


def test_log_density_of_cells_is_that_of_the_mixture_over_groups_and_draws(rated):
    users, items = np.array([0, 3, 11, 5]), np.array([1, 8, 0, 4])
    values = np.array([0.2, 3.0, 6.5, 40.0])
    found = rated.held_out_log_likelihood(values, (users, items))
    expected = []
    for user, item, value in zip(users, items, values, strict=True):
        weights, distributions = by_hand(rated, user, item)
        expected.append(np.log(weights @ distributions.pdf(value)))
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-4)
    # the broken twin of one normal a draw: nothing is between the groups, and far out neither
    prediction = rated.predict((users, items))
    normal = stats.norm(prediction.mean, prediction.sd).logpdf(values)
    assert np.abs(normal - expected).max() > 1


def test_draws_and_quantiles_of_cells_are_those_of_the_mixture(rated):
    users, items = np.array([0, 7]), np.array([1, 6])
    prediction = rated.predict((users, items), num_draws=6_000, quantiles=(0.1, 0.9))
    points = np.array([-1.0, 0.0, 0.5, 3.0, 5.5, 6.0, 8.0])
    below, expected = {}, {}
    for cell, (user, item) in enumerate(zip(users, items, strict=True)):
        weights, distributions = by_hand(rated, user, item)
        below[f"cell {cell}"] = prediction.draws[:, cell, None] <= points
        expected[f"cell {cell}"] = distributions.cdf(points[:, None]) @ weights
        ends = distributions.cdf(prediction.quantiles[:, cell, None]) @ weights
        np.testing.assert_allclose(ends, [0.1, 0.9], atol=0.02)
    check_means(below, expected, title="predictive draws")
    # a broken twin: a normal distribution with the same moments
    shape = (6_000, 2)
    normal = prediction.mean + prediction.sd * GENERATOR.normal(size=shape)
    with pytest.raises(AssertionError):
        check_means(
            {f"cell {cell}": normal[:, cell, None] <= points for cell in range(2)},
            expected,
            title="a broken twin",
        )


@pytest.mark.exhaustive
def test_known_parents_and_functions_of_parents():
    data = mf.Tokens(
        {"user": GENERATOR.integers(0, 4, 60), "item": GENERATOR.integers(0, 3, 60)},
        {"user": 4, "item": 3},
        {"x": GENERATOR.normal(3, 2, 60)},
    )
    network = mf.Network(
        a=mf.Block(mf.Dirichlet(2), by="user"),
        b=mf.Block(mf.Dirichlet(3), by=("item", "a")),
        x=mf.Block(FAMILY, by=lambda a, b, item: a + 2 * (b == 1) + 4 * (item == 2), observed=True),
    ).at(data)
    draw = first_draw(network.sampler(), data)
    ask = jax.jit(lambda draw: [probabilities(network, draw, name) for name in "ab"])
    first, second = (np.asarray(table) for table in ask(draw))
    distributions = [
        distributions_of(
            *(np.asarray(draw[f"x_{name}"])[part] for name in ("number", "location", "rate"))
        )
        for part in range(8)
    ]
    users, items, values = np.array([0, 3, 2]), np.array([2, 1, 0]), np.array([1.0, 4.0, 3.0])
    expected, means = np.zeros(3), np.zeros(3)
    for index, (user, item) in enumerate(zip(users, items, strict=True)):
        for a, b in np.ndindex(2, 3):
            distribution = distributions[a + 2 * (b == 1) + 4 * (item == 2)]
            weight = first[user, a] * second[item, a, b]
            expected[index] += weight * distribution.pdf(values[index])
            means[index] += weight * distribution.cdf(values[index])
    columns = {"user": users, "item": items}
    ask = jax.jit(lambda draw, *of: log_density(network, draw, "x", data, *of))
    found = ask(draw, columns, values)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-4)
    many = {name: np.tile(column, 4000) for name, column in columns.items()}
    ask = jax.jit(lambda draw, columns: draw_values(network, KEY, draw, "x", data, columns))
    drawn = np.asarray(ask(draw, many)).reshape(4000, 3)
    check_means({"below": drawn <= values}, {"below": means}, title="draws")


@pytest.mark.exhaustive
def test_entries_of_mixtures_of_gaussians():
    centres = np.where(GENERATOR.random(30)[:, None] < 0.4, [0.0, 8.0], [5.0, -2.0])
    data = mf.Dense(centres + GENERATOR.normal(size=(30, 2)))
    model = mf.MixtureOfGaussians(2, family=mf.NormalInverseWishart(2).standard())
    draw = first_draw(model.sampler(), data)
    counts, size = np.ravel(draw["group_counts"]) + 1, np.asarray(draw["x_number"])
    columns, values = np.array([0, 1, 0]), np.array([2.5, 3.0, -20.0])
    distributions = []
    for group in range(2):
        degrees = 4 + size[group] - 1  # of one entry of the next row
        matrix = draw["x_scale"][group] * (2 + size[group]) / (1 + size[group]) / degrees
        spread = np.sqrt(np.diag(matrix))[columns]
        distributions.append(
            stats.t(degrees, np.asarray(draw["x_location"])[group][columns], spread)
        )
    weights = counts / counts.sum()
    rows = np.zeros(3, int)
    found = jax.jit(model.cell_log_density)(draw, data, rows, columns, values)
    expected = np.log(weights @ [distribution.pdf(values) for distribution in distributions])
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    many = np.tile(rows, 4000), np.tile(columns, 4000)
    drawn = np.asarray(jax.jit(model.draw_cells)(KEY, draw, data, *many)).reshape(4000, 3)
    below = weights @ [distribution.cdf(values) for distribution in distributions]
    check_means({"below": drawn <= values}, {"below": below}, title="draws of entries")


def test_real_values_of_new_users_are_refused_in_words(rated):
    with pytest.raises(ValueError, match="does not predict real values of new_rows"):
        rated.predict(new_rows=np.full((1, 9), 3.0))
