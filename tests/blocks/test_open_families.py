"""Settings of families that are left open are taken from the data; those that are stated stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf

KIND = np.arange(40) % 2
VALUES = np.random.default_rng(0).normal(size=40) + 8 * KIND
SETTINGS = {"num_warmup": 20, "num_samples": 10, "num_chains": 1, "progress": False}
SHOPS = {"shop": ["01", "02"] * 20}


def network(**families):
    """Blocks of values by one of two kinds of a shop."""
    blocks = {name: mf.Block(family, by="kind", observed=True) for name, family in families.items()}
    return mf.Network(kind=mf.Block(mf.Dirichlet(2), by="shop"), **blocks)


def tokens(**values):
    return mf.Tokens.from_columns(SHOPS, values=values)


def family_of(model, name="price"):
    return model.blocks[name].distribution


def test_an_open_family_is_that_of_a_mixture_of_the_same_columns():
    """Blocks by one indicator have the prior of rows of independent columns."""
    other = 1e6 + 0.1 * VALUES[::-1]
    data = tokens(price=VALUES, other=other)
    known = network(price=mf.NormalInverseGamma(), other=mf.NormalInverseGamma()).matched(data)
    rows = mf.IndependentColumns.from_data(np.stack([VALUES, other], 1), num_groups=2)
    for column, name in enumerate(("price", "other")):
        family = family_of(known, name)
        assert (family.weight, family.shape) == (0.01, 1.5)
        np.testing.assert_allclose(family.location, rows.location[column], rtol=1e-6)
        np.testing.assert_allclose(family.rate, rows.scale[column] ** 2 / 2, rtol=1e-4)
    assert isinstance(family.location, float)  # as it is written and saved
    assert known.matched(data) is known
    assert len(known.notes(data)) == 2
    assert "location, rate of its family follow from its values" in known.notes(data)[0]


def test_what_is_stated_stays_and_what_is_not_goes_with_it():
    data = tokens(price=VALUES)
    stated = mf.NormalInverseGamma(location=3.0, shape=6.0)
    known = family_of(network(price=stated).matched(data))
    opened = family_of(network(price=mf.NormalInverseGamma()).matched(data))
    assert (known.location, known.shape, known.weight) == (3.0, 6.0, 0.01)
    np.testing.assert_allclose(known.rate / 6.0, opened.rate / 1.5, rtol=1e-5)  # E[1 / variance]
    whole = network(price=mf.NormalInverseGamma(0.0, 1.0, 2.0, 1.0))
    assert whole.matched(data) is whole
    assert whole.notes(data) == ()
    assert network(price=stated).matched(data).notes(data)[0].startswith("price: rate of")


def test_without_data_an_open_family_is_the_standard_one():
    """Simulations, and kernels that no run prepared, have the prior that is written down."""
    data, key = tokens(price=VALUES), jax.random.key(0)
    states = [
        network(price=family).simulate(key, data)[1].values["price"]
        for family in (mf.NormalInverseGamma(), mf.NormalInverseGamma(0.0, 1.0, 2.0, 1.0))
    ]
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        (mf.GammaPoisson(), 1000.0 + KIND, {"shape": 1.0, "rate": 1 / 1000.5}),
        (mf.GammaPoisson(shape=2.0), 0 * KIND, {"shape": 2.0, "rate": 2.0}),
        (mf.NormalInverseGamma(), 7.0 + 0 * KIND, {"location": 7.0, "rate": 49 / 8}),
        (mf.NormalInverseWishart(), np.stack([VALUES, 0 * KIND], 1), {"weight": 0.01}),
    ],
    ids=["counts", "zeros", "one value", "vectors"],
)
def test_counts_constants_and_vectors_are_matched(family, values, expected):
    known = family_of(network(price=family).matched(tokens(price=np.asarray(values, float))))
    assert not known.is_of_data
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(known, name), value, rtol=1e-5)
    shape = () if values.ndim == 1 else values.shape[1:]
    assert np.shape(getattr(known, "location", 0.0)) == shape


def test_columns_of_rows_in_a_network_are_matched_and_cells_may_be_missing():
    rows = np.stack([1e4 + VALUES, np.random.default_rng(1).poisson(30, 40)], 1)
    rows[3, 0] = np.nan
    families = [None, mf.GammaPoisson()]
    data = tokens(price=rows)
    known = family_of(network(price=mf.MixedColumns(families)).matched(data))
    np.testing.assert_allclose(known.normal.location, np.nanmean(rows[:, :1], axis=0), rtol=1e-6)
    np.testing.assert_allclose(known.families[1].rate, 1 / rows[:, 1].mean(), rtol=1e-5)
    stated = mf.MixedColumns([mf.NormalInverseGamma(weight=0.5), *families])
    wide = family_of(network(price=stated).matched(tokens(price=rows[:, [0, 0, 1]])))
    assert wide.families[0].weight == 0.5
    assert wide.kinds == (0, 1, 2)
    np.testing.assert_allclose(wide.families[0].location, known.normal.location[0], rtol=1e-6)


@pytest.mark.slow
def test_a_run_far_from_zero_finds_groups_says_its_prior_and_keeps_it(tmp_path):
    """Without an alarm; the model that is saved states what was chosen."""
    data = tokens(price=VALUES + 1e6)
    post = mf.sample(network(price=mf.NormalInverseGamma()), data, **SETTINGS)
    assert sorted(post.reference_draw()["price_number"]) == [20, 20]
    assert not [alarm for alarm in post.alarms() if alarm.kind == "prior far away"]
    assert "follow from its values" in post.meta.notes[0]
    assert "location, rate of its family" in str(post)
    path = tmp_path / "post"
    post.save(path)
    loaded = mf.load(path)
    assert family_of(loaded.model) == family_of(post.model)
    assert not family_of(post.model).is_of_data
    assert loaded.meta.notes == post.meta.notes


def test_real_ratings_are_matched():
    rows, columns = np.divmod(np.arange(40), 5)
    data = mf.Entries(rows, columns, 500 + VALUES, (8, 5))
    known = mf.URP(2, family=mf.NormalInverseGamma()).matched(data)
    np.testing.assert_allclose(known.family.location, 500 + VALUES.mean(), rtol=1e-6)
    assert known.notes(data)[0].startswith("rating: location")
    stars = mf.BiLDA(2, 2)
    assert stars.matched(mf.Entries(rows, columns, 1.0 + KIND, (8, 5))) is stars


def test_a_mixture_takes_open_settings_of_a_stated_family():
    rows = mf.Dense(VALUES[:, None] + 1e6)
    network, _ = mf.DPMixture(family=mf.NormalInverseGamma(weight=0.5)).over(rows)
    family = family_of(network, "x")
    assert family.weight == 0.5
    np.testing.assert_allclose(family.location, 1e6 + VALUES.mean(), rtol=1e-6)
    columns = mf.IndependentColumns(mf.NormalInverseGamma(weight=0.5))
    known = columns.known_from(jnp.asarray(rows.values))
    assert known.family == mf.NormalInverseGamma(0.0, 0.5, 1.5, 0.5)
    np.testing.assert_array_equal(
        known.location, mf.IndependentColumns.from_data(rows.values).location
    )


def test_columns_with_a_stated_location_or_rate_take_the_rest_from_the_data():
    rows = jnp.asarray(np.stack([1e3 * VALUES, VALUES], axis=1))
    found = mf.IndependentColumns.from_data(rows)
    placed = mf.IndependentColumns(mf.NormalInverseGamma(location=50.0)).known_from(rows)
    assert placed.location == 50.0
    np.testing.assert_array_equal(placed.scale, found.scale)
    assert placed.family == found.family
    rated = mf.IndependentColumns(mf.NormalInverseGamma(rate=7.0)).known_from(rows)
    np.testing.assert_array_equal(rated.location, found.location)
    assert (rated.scale, rated.family.rate) == (1.0, 7.0)


def test_columns_in_stated_units_follow_from_no_data():
    columns = mf.IndependentColumns(mf.NormalInverseGamma(), location=0.0, scale=2.0)
    assert not columns.is_of_data
    assert columns.known_from(jnp.asarray(VALUES[:, None])) == columns.standard()
    assert columns.standard().family == mf.NormalInverseGamma().standard()


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_values_whose_squares_leave_the_range_are_refused(size):
    data = tokens(price=VALUES * (size**9 if jax.config.jax_enable_x64 else size))
    with pytest.raises(ValueError, match=r"data: what families leave open .* power of ten"):
        network(price=mf.NormalInverseGamma()).matched(data)
