"""Biclusters of binary matrix factorisation: weights, members, and what they do not depend on."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data import Dense

U = np.array([[1, 0], [1, 1], [0, 1], [1, 0], [0, 1]], bool)
V = np.array([[1, 0], [0, 1], [1, 1], [0, 1]], bool)
FINITE, PRIOR = mf.BetaBernoulli(1.0, 1.0, 2), mf.BetaBernoulli(1.0, 1.0, 3)


ROWS, COLUMNS = 10, 8


@pytest.fixture(scope="module")
def planted():
    """A posterior of two planted blocks, with ids; its draws are written down, not sampled."""
    generator = np.random.default_rng(0)
    z, v = np.zeros((ROWS, 3), bool), np.zeros((COLUMNS, 3), bool)
    z[:4, 0] = z[5:9, 2] = True
    v[:3, 2] = v[4:, 0] = True
    z[[0, 5], 2], v[3, 2] = True, True
    weights = np.zeros((3, 3))
    weights[0, 2], weights[2, 0] = 5.0, -3.0
    values = z @ weights @ v.T + 0.1 * generator.normal(size=(ROWS, COLUMNS))
    z_draws, v_draws = np.array([[z] * 4]), np.array([[v] * 4])
    z_draws[0, 3, 0, 0] = False  # in one draw of four the first row is not in the first feature
    scalars = {"row_alpha": 1.0, "noise_scale": 0.1, "weight_scale": 3.0}
    draws = {name: np.full((1, 4), value, np.float32) for name, value in scalars.items()}
    draws |= {"z": z_draws, "v": v_draws, "log_joint": np.array([[3.0, 2.0, 1.0, 0.0]])}
    return mf.Posterior(
        model=mf.BinaryMF(row_prior=PRIOR, column_prior=PRIOR, offset=0.0),
        data=Dense(
            values,
            row_names=[f"row {i}" for i in range(ROWS)],
            column_names=[f"column {j}" for j in range(COLUMNS)],
        ),
        draws=draws,
        meta=None,
    )


def test_planted_blocks_are_the_biclusters_with_their_ids(planted):
    found = planted.biclusters()
    assert sorted(np.round(found.weights)) == [-3, 5]
    first = int(np.argmax(found.weights))
    assert found.ids(first) == ["row 1", "row 2", "row 3", "row 0"]
    assert found.ids(first, "column") == [f"column {j}" for j in range(4)]
    np.testing.assert_allclose(found.row_probabilities[first, :6], [0.75, 1, 1, 1, 0, 0])
    second = 1 - first
    assert found.rows[second].nonzero()[0].tolist() == [0, 5, 6, 7, 8]
    table = found.to_pandas()
    assert table["num rows"].tolist()[first] == 4
    assert table["rows"][second] == found.ids(second)
    members = found.members()
    assert len(members) == found.rows.sum() + found.columns.sum()
    lowest = members[members["bicluster"] == first].sort_values("probability").iloc[0]
    assert (lowest["side"], lowest["id"], lowest["probability"]) == ("row", "row 0", 0.75)
    assert "row 1, row 2" in repr(found)
    assert "<td>" in found._repr_html_()


def test_a_weight_within_its_uncertainty_is_no_bicluster(planted):
    none = planted.biclusters(num_sd=1e6)
    assert len(none) == 0
    assert "no bicluster" in repr(none)
    assert "no bicluster" in none._repr_html_()
    assert len(planted.biclusters(num_sd=0)) == 4  # features in use on either side: 2 x 2


def test_labels_of_other_draws_do_not_matter(planted):
    draws = {name: values.copy() for name, values in planted.draws.items()}
    draws["z"][0, 1:], draws["v"][0, 1:] = draws["z"][0, 1:, :, ::-1], draws["v"][0, 1:, :, ::-1]
    other = dataclasses.replace(planted, draws=draws).biclusters()
    np.testing.assert_array_equal(other.row_probabilities, planted.biclusters().row_probabilities)


def test_a_draw_without_the_feature_adds_nothing_to_its_probability(planted):
    draws = {name: values.copy() for name, values in planted.draws.items()}
    draws["z"][0, 1] = False
    draws["z"][0, 1, 4, 0] = True  # the one row without a feature in the reference draw
    expected = planted.biclusters().row_probabilities - 0.25 * planted.biclusters().rows
    found = dataclasses.replace(planted, draws=draws).biclusters()
    np.testing.assert_allclose(found.row_probabilities, expected)


def test_found_is_the_share_of_draws_that_have_both_features(planted):
    """A block that one chain alone has must not look as sure as one of all."""
    assert planted.biclusters().found.tolist() == [1.0, 1.0]
    draws = {name: values.copy() for name, values in planted.draws.items()}
    draws["z"][0, 2, :, 0] = np.arange(ROWS) > 2  # rows 0 to 3 before
    draws["v"][0, 3, :, 0] = np.arange(COLUMNS) == 4  # columns 4 to 7 before
    posterior = dataclasses.replace(planted, draws=draws)
    found = posterior.biclusters()
    first = int(np.argmax(found.weights))
    assert found.found[[first, 1 - first]].tolist() == [0.75, 0.75]
    assert found.to_pandas()["found"].tolist() == [0.75, 0.75]
    assert "75%" in repr(found)


def test_a_bias_is_no_match_of_a_feature_that_a_draw_lacks(planted):
    """All rows have it, so it would be a match of any feature, and each row a member."""
    draws = {name: values.copy() for name, values in planted.draws.items()}
    draws["z"][0, :, :, 1] = True
    draws["z"] = draws["z"][..., [1, 0, 2]]
    draws["z"][0, 2:, :, 1] = False
    model = dataclasses.replace(planted.model, row_bias=True)
    found = dataclasses.replace(planted, model=model, draws=draws).biclusters()
    first = int(np.argmax(found.weights))
    np.testing.assert_allclose(found.row_probabilities[first, :6], [0.5, 0.5, 0.5, 0.5, 0, 0])
    assert found.found[first] == 0.5


def test_a_model_without_weights_and_a_wrong_setting_are_refused(planted):
    model = dataclasses.replace(planted, model=mf.LinearGaussianIBP(alpha=1.0))
    with pytest.raises(ValueError, match="biclusters: LinearGaussianIBP"):
        model.biclusters()
    with pytest.raises(ValueError, match="num_sd"):
        planted.biclusters(num_sd=-1.0)
    with pytest.raises(ValueError, match="side"):
        planted.biclusters().ids(0, "rows")


def _draw(**others):
    draw = {"z": U, "v": V, "row_alpha": 1.0, "weight_scale": 1.5, **others}
    return jax.tree.map(jax.numpy.asarray, draw)


@pytest.mark.parametrize("missing", [False, True])
def test_moments_of_gaussian_weights_are_those_of_the_regression(missing):
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    if missing:
        x[1, 2] = np.nan
    model = mf.BinaryMF(
        row_prior=FINITE, column_prior=FINITE, likelihood=mf.Gaussian(0.7), weight_scale=1.5
    )
    mean, sd = model.weight_moments(jax.random.key(0), _draw(noise_scale=0.7), Dense(x))
    design = np.kron(U, V).astype(float)
    seen = np.isfinite(x.ravel())
    precision = design[seen].T @ design[seen] / 0.7**2 + np.eye(4) / 1.5**2
    expected = np.linalg.solve(precision, design[seen].T @ x.ravel()[seen] / 0.7**2)
    np.testing.assert_allclose(np.asarray(mean).ravel(), expected, atol=1e-5)
    expected_sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(np.asarray(sd).ravel(), expected_sd, atol=1e-5)


@pytest.mark.exhaustive
def test_moments_of_poisson_weights_are_those_of_the_gamma():
    one = mf.BetaBernoulli(1.0, 1.0, 1)
    model = mf.BinaryMF(
        row_prior=one,
        column_prior=one,
        likelihood=mf.Poisson(1e-6),
        weight_shape=2.0,
        weight_rate=0.5,
    )
    x = np.random.default_rng(2).poisson(3.0, size=(3, 2)).astype(np.float32)
    draw = {"z": np.ones((3, 1), bool), "v": np.ones((2, 1), bool), "row_alpha": 1.0}
    draw |= {"weights": np.ones((1, 1), np.float32), "base_rate": np.float32(1e-6)}
    draw |= {"weight_shape": np.float32(2.0), "weight_rate": np.float32(0.5)}
    draw = jax.tree.map(jax.numpy.asarray, draw)
    mean, sd = model.weight_moments(jax.random.key(0), draw, Dense(x))
    shape, rate = 2.0 + x.sum(), 0.5 + x.size
    # 150 independent draws: four standard errors of a mean and of a standard deviation
    assert abs(float(mean[0, 0]) - shape / rate) < 4 * np.sqrt(shape) / rate / np.sqrt(150)
    assert abs(float(sd[0, 0]) / (np.sqrt(shape) / rate) - 1) < 4 / np.sqrt(2 * 150)


def test_the_picture_is_sorted_by_biclusters_with_ids_frames_and_known_features(planted):
    figure = planted.plot.biclusters()
    (axes, _) = figure.axes
    shown = np.asarray(axes.images[0].get_array())
    rows = [int(label.get_text().removeprefix("row ")) for label in axes.get_yticklabels()]
    columns = [int(label.get_text().removeprefix("column ")) for label in axes.get_xticklabels()]
    np.testing.assert_allclose(shown, planted.data.to_array()[np.ix_(rows, columns)])
    found = planted.biclusters()
    for index, patch in zip(reversed(range(len(found))), axes.patches, strict=True):
        left, top = round(patch.get_x() + 0.5), round(patch.get_y() + 0.5)
        inside = np.ix_(
            rows[top : top + round(patch.get_height())],
            columns[left : left + round(patch.get_width())],
        )
        assert np.outer(found.rows[index], found.columns[index])[inside].all()
        np.testing.assert_allclose(
            planted.data.to_array()[inside].mean(), found.weights[index], atol=1.5
        )
    known = np.arange(ROWS)[:, None] % 2 == 0
    model = dataclasses.replace(planted.model, fixed_row_features=known)
    strip = dataclasses.replace(planted, model=model).plot.biclusters().axes[0]
    np.testing.assert_allclose(np.asarray(strip.images[0].get_array()), known[rows])
    assert len(planted.plot.biclusters(max_biclusters=1, max_rows=3).axes[0].patches) <= 1
