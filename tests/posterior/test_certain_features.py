"""Features matched across draws and chains: what is known of hand-made draws comes back."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior

ROWS = np.array(
    [[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1, 1]], bool
)
PATTERNS = np.array([[3.0, 0.0, 0.0], [0.0, -5.0, 0.0], [0.0, 0.0, 7.0]])


def draws_of(num_chains=2, num_draws=20, *, permuted=True):
    """Three features in slots of any order; the third is only in chain 0, one row comes and goes.

    A fourth feature, of one row that changes from draw to draw, is in every other draw.
    """
    rng = np.random.default_rng(0)
    z = np.zeros((num_chains, num_draws, 8, 6), bool)
    for chain in range(num_chains):
        for draw in range(num_draws):
            rows = ROWS.copy()
            rows[0, 3] = draw % 4 > 0
            slots = rng.permutation(6)[:4] if permuted else np.arange(4)
            z[chain, draw][:, slots[:3]] = rows.T
            if chain > 0:
                z[chain, draw][:, slots[2]] = False
            if draw % 2:
                z[chain, draw][5 + draw % 3, slots[3]] = True
    return z


def posterior_of(z, names=True, model=None):
    x = ROWS.T.astype(float) @ PATTERNS
    data = mf.Dense.from_array(x)
    if names:
        data = mf.Dense(data.values, None, [f"r{n}" for n in range(8)], ["a", "b", "c"])
    scales = {name: np.full(z.shape[:2], value) for name, value in (("noise_scale", 0.1),)}
    scales |= {"feature_scale": np.full(z.shape[:2], 10.0)}
    log_joint = np.zeros(z.shape[:2])
    log_joint[0, 2] = 1.0
    meta = Meta("sample", 0, {}, {}, {}, "CPU", 1.0, 1.0, True, {})
    draws = {"z": z, "log_joint": log_joint, **scales}
    model = mf.LinearGaussianIBP(offset=0.0) if model is None else model
    return Posterior(model, data, draws, meta)


@pytest.fixture(scope="module")
def found():
    return posterior_of(draws_of()).certain_features()


def test_features_of_all_chains_have_their_probabilities_rows_and_looks(found):
    np.testing.assert_allclose(found.probabilities, [1.0, 1.0, 0.5])
    np.testing.assert_allclose(found.by_chain, [[1, 1, 1], [1, 1, 0]])
    which = [int(np.argmax(np.abs(mean))) for mean in found.mean]
    assert sorted(which[:2]) == [0, 1]
    assert which[2] == 2
    np.testing.assert_allclose(found.mean[[which.index(d) for d in range(3)]], PATTERNS, atol=1.5)
    first = which.index(0)
    np.testing.assert_allclose(found.row_probabilities[first], [1, 1, 1, 0.75, 0, 0, 0, 0])
    assert found.rows(first) == ["r0", "r1", "r2", "r3"]


def test_a_feature_and_that_of_the_other_rows_are_one_beside_a_level():
    """Chain 1 has the first feature in the rows that lack it, with the opposite values."""
    free = draws_of()
    z = np.concatenate([np.ones((*free.shape[:-1], 1), bool), free], axis=-1)
    for draw in z[1]:
        slot = 1 + np.argmax((draw[:, 1:] & ROWS[0][:, None]).sum(axis=0) >= 3)
        draw[:, slot] = ~draw[:, slot]
    found = posterior_of(z, model=mf.LinearGaussianIBP(bias=True, offset=0.0)).certain_features()
    first = int(np.argmax(np.abs(found.mean[:, 0])))
    np.testing.assert_allclose(found.by_chain[:, first], 1)
    np.testing.assert_allclose(found.row_probabilities[first], [1, 1, 1, 0.75, 0, 0, 0, 0])
    np.testing.assert_allclose(found.mean[first], PATTERNS[0], atol=1.5)
    beside = posterior_of(z[..., 1:])
    assert len(beside.certain_features(0.9)) == 1  # without a level they are two


def test_rows_are_compared_by_what_does_not_change_if_a_feature_is_turned():
    free = draws_of(permuted=False)
    turned = free.copy()
    turned[1, ..., 0] = ~turned[1, ..., 0]
    model = mf.LinearGaussianIBP(bias=True, offset=0.0)
    always = np.ones((*free.shape[:-1], 1), bool)
    one, two = (
        posterior_of(np.concatenate([always, z], axis=-1), model=model).quantities()
        for z in (free, turned)
    )
    assert next(name for name in one if "[" in name) == "differ[r0, r2]"
    for name, values in one.items():
        np.testing.assert_array_equal(values, two[name])


def test_features_of_one_row_are_counted_apart(found):
    assert found.num_single == pytest.approx(0.5)
    assert found.num_others == pytest.approx(0.5)


def test_labels_of_features_do_not_matter(found):
    same = posterior_of(draws_of(permuted=False)).certain_features()
    np.testing.assert_allclose(same.probabilities, found.probabilities)
    order, other = (np.argmax(np.abs(each.mean), axis=1) for each in (same, found))
    np.testing.assert_allclose(
        same.row_probabilities[np.argsort(order)], found.row_probabilities[np.argsort(other)]
    )


def test_more_and_fewer_features_are_listed_by_their_probability():
    post = posterior_of(draws_of())
    assert len(post.certain_features(0.9)) == 2
    assert len(post.certain_features(0.4)) == 3
    for wrong in (0, 1.5, "half"):
        with pytest.raises((ValueError, TypeError), match="min_probability"):
            post.certain_features(wrong)


def test_tables_have_the_ids(found):
    table = found.to_pandas()
    assert table["num chains"].tolist() == [2, 2, 1]
    assert found.members().loc["r0"].max() == 1
    assert found.values().index.tolist() == ["a", "b", "c"]
    text = repr(found)
    assert "2 of 2" in text
    assert "r0" in text
    assert "3 features in 40 draws of 2 chains" in text
    assert "<td>1 of 2</td>" in found._repr_html_()


def test_a_bias_is_no_feature_and_shifts_none():
    z = draws_of()
    z = np.concatenate([np.ones((*z.shape[:3], 1), bool), z], axis=3)
    with_bias = posterior_of(
        z, model=mf.LinearGaussianIBP(bias=True, offset=0.0)
    ).certain_features()
    np.testing.assert_allclose(with_bias.probabilities, [1.0, 1.0, 0.5])
    assert sorted(np.argmax(np.abs(with_bias.mean), axis=1)[:2]) == [0, 1]


def test_a_bias_is_told_from_the_features_of_a_draw():
    z = draws_of()
    z = np.concatenate([np.ones((*z.shape[:3], 1), bool), z], axis=3)
    found = posterior_of(z, model=mf.LinearGaussianIBP(bias=True, offset=0.0)).features()
    assert found.slots[found.level] == 0
    assert [line[0] for line in found.lines()].count("level") == 1
    assert f"{len(found.slots) - 1} features of" in found.footer()
    assert "the level of all rows" in found.footer()
    without = posterior_of(z, model=mf.LinearGaussianIBP(bias=False, offset=0.0)).features()
    assert without.level is None
    assert "level" not in repr(without)


def test_draws_without_features_and_models_without_them():
    post = posterior_of(np.zeros((1, 3, 8, 2), bool), names=False)
    found = post.certain_features()
    assert len(found) == 0
    assert repr(found).startswith("0 features in 3 draws")
    with pytest.raises(ValueError, match="certain_features"):
        mf.sample(mf.LDA(2), np.eye(3, dtype=int), num_warmup=1, num_samples=1, num_chains=1,
                  progress=False).certain_features()  # fmt: skip
