"""Tables and scores of quantities that do not depend on labels."""

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size, gelman_rubin, split_gelman_rubin
from scipy.stats import norm, rankdata

from jaxmf import diagnostics


@pytest.fixture(scope="module")
def generator():
    return np.random.default_rng(0)


def test_chains_that_agree_and_chains_that_do_not(generator):
    good = generator.normal(size=(4, 500))
    apart = good + 3 * np.arange(4)[:, None]
    table = diagnostics.summarise_chains({"good": good, "apart": apart, "fixed": np.ones((4, 500))})
    assert table["good", "R-hat"] < 1.02
    assert table["apart", "R-hat"] > 1.5
    assert 1000 < table["good", "ESS"] < 3000
    assert np.isnan(table["fixed", "R-hat"])
    assert np.isnan(table["fixed", "ESS"])
    np.testing.assert_allclose(table["good", "mean"], good.mean())
    np.testing.assert_allclose(table["good", "95 %"], np.quantile(good, 0.95))


def test_r_hat_sees_chains_that_differ_in_spread_alone_and_tails_that_have_no_variance(generator):
    wide = generator.normal(size=(4, 500)) * np.array([1.0, 1.0, 1.0, 4.0])[:, None]
    heavy = generator.standard_cauchy(size=(4, 500))
    moved = heavy + np.arange(4)[:, None]
    table = diagnostics.summarise_chains({"wide": wide, "heavy": heavy, "moved": moved})
    assert split_gelman_rubin(wide) < 1.02 < 1.1 < table["wide", "R-hat"]
    assert split_gelman_rubin(moved) < 1.02 < 1.1 < table["moved", "R-hat"]
    assert table["heavy", "R-hat"] < 1.02
    assert 1000 < table["heavy", "ESS"] < 3000


def test_r_hat_does_not_depend_on_a_monotone_transformation_nor_on_ties(generator):
    x = generator.normal(size=(3, 101))
    table = diagnostics.summarise_chains({"x": x, "units": 1e6 * x + 3e8, "tied": x.round(1)})
    np.testing.assert_allclose(table["units"]["R-hat"], table["x"]["R-hat"], rtol=1e-6)
    np.testing.assert_allclose(table["units"]["ESS"], table["x"]["ESS"], rtol=1e-6)
    np.testing.assert_allclose(table["tied"]["R-hat"], table["x"]["R-hat"], atol=0.01)
    halves = np.concatenate([x[:, :50], x[:, -50:]])
    scores = norm.ppf((rankdata(halves).reshape(halves.shape) - 3 / 8) / (halves.size + 1 / 4))
    np.testing.assert_allclose(table["x"]["ESS"], effective_sample_size(scores))
    assert table["x"]["R-hat"] >= gelman_rubin(scores)


def test_a_count_of_two_values_has_an_r_hat(generator):
    table = diagnostics.summarise_chains({"count": generator.integers(3, 5, size=(4, 200))})
    assert table["count", "R-hat"] < 1.03  # distances from the median may all be equal
    apart = np.repeat([[3], [3], [3], [4]], 200, axis=1)
    assert not diagnostics.summarise_chains({"count": apart})["count", "R-hat"] < 1.05


def test_few_draws_have_no_r_hat(generator):
    table = diagnostics.summarise_chains({"x": generator.normal(size=(1, 3))})
    assert np.isnan(table["x", "R-hat"])


def test_table_prints_and_says_what_it_does_not_have(generator):
    table = diagnostics.summarise_chains({"alpha": generator.normal(size=(2, 50))})
    assert "2 chains of 50 draws" in repr(table)
    assert "R-hat" in table._repr_html_()
    assert table.to_pandas().loc["alpha", "mean"] == table["alpha"]["mean"]
    with pytest.raises(KeyError, match="'beta' is no row of this table; there are: alpha"):
        table["beta"]
    with pytest.raises(KeyError, match="'median' is no column"):
        table["alpha", "median"]


def test_weighted_table_equals_that_of_repeated_values(generator):
    values = generator.normal(size=7)
    counts = np.array([1, 5, 0, 2, 4, 3, 5])
    log_weights = np.log(np.maximum(counts, 1e-300)) + 12.0
    table = diagnostics.summarise_weighted({"x": values}, log_weights)
    repeated = np.repeat(values, counts)
    np.testing.assert_allclose(table["x", "mean"], repeated.mean())
    np.testing.assert_allclose(table["x", "sd"], repeated.std())
    np.testing.assert_allclose(
        table["x", "5 %"], np.quantile(repeated, 0.05, method="inverted_cdf")
    )
    np.testing.assert_allclose(
        table["x", "95 %"], np.quantile(repeated, 0.95, method="inverted_cdf")
    )


def test_effective_size_of_weights():
    assert diagnostics.weights_effective_size(np.zeros(10)) == pytest.approx(10)
    assert diagnostics.weights_effective_size(np.array([0.0, -np.inf])) == pytest.approx(1)


def test_chosen_draws_follow_the_weights(generator):
    weights = generator.dirichlet(np.ones(20))
    counts = diagnostics.choose_draws(weights, 1000)
    assert counts.sum() == 1000
    assert np.all(np.abs(counts - 1000 * weights) < 1 + 1e-9)


@pytest.mark.parametrize("rows", [None, [4, 0, 2]])
def test_shared_features_are_the_weighted_mean_of_products(generator, rows):
    z = generator.random((9, 6, 4)) < 0.4
    weights = generator.dirichlet(np.ones(9))
    expected = np.einsum("s,snk,smk->nm", weights, z, z)
    if rows is not None:
        expected = expected[np.ix_(rows, rows)]
    shared = diagnostics.shared_features(z, weights, rows)
    np.testing.assert_allclose(shared, expected, rtol=1e-5)


def test_column_means_skip_missing_cells():
    from jaxmf.data import Dense

    data = Dense([[1.0, np.nan], [3.0, 4.0]])
    np.testing.assert_allclose(diagnostics.column_means(data), [2.0, 4.0])
