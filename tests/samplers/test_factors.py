"""The kernels of `samplers/factors` against the formulas written out in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxmf._kernels import fusion
from jaxmf.data import Entries
from jaxmf.devices import BLOCK_SIZES, BlockSize
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart, NormalParameters
from jaxmf.samplers.factors import rows as row_kernels
from jaxmf.samplers.factors.layout import arranged
from jaxmf.samplers.factors.moments import log_hyperprior, precisions, statistics_of_all
from jaxmf.samplers.factors.vectors import Known, cell_means, design
from tests.support import bpmf_oracle as oracle

NUM_ROWS, NUM_COLUMNS, NUM_CELLS = 7, 5, 19
SHAPES = {
    "plain": (2, False, 0, 0, 0),
    "biases": (2, True, 0, 0, 0),
    "everything": (2, True, 3, 2, 2),
    "no factors": (0, True, 1, 2, 0),
}


def problem(name, num_rows=NUM_ROWS, num_columns=NUM_COLUMNS, num_cells=NUM_CELLS):
    num_factors, has_bias, num_row, num_column, num_cell = SHAPES[name]
    generator = np.random.default_rng(3)
    # the first row and the last column have no cells
    free = np.arange(num_columns, num_rows * num_columns)
    free = free[free % num_columns != num_columns - 1]
    rows, columns = np.divmod(generator.choice(free, num_cells, replace=False), num_columns)
    known = [
        generator.normal(size=(number, width))
        for number, width in (
            (num_rows, num_row),
            (num_columns, num_column),
            (num_cells, num_cell),
        )
    ]
    base = num_factors + has_bias + num_cell
    values = 50 + generator.normal(size=num_cells)
    return {
        "data": Entries(rows, columns, values, (num_rows, num_columns)),
        "u": generator.normal(size=(num_rows, base + num_column)),
        "v": generator.normal(size=(num_columns, base + num_row)),
        "known": known,
        "num_factors": num_factors,
        "has_bias": has_bias,
    }


def draw(given, normals, **changed):
    """`draw_rows` with two groups of priors."""
    data, u = given["data"], jnp.asarray(given["u"])
    size = u.shape[1]
    roots = np.random.default_rng(5).normal(size=(2, size, size))
    usual = jnp.asarray(np.random.default_rng(6).normal(size=u.shape))
    priors = row_kernels.RowPriors(
        means=changed.pop("means", usual),
        groups=jnp.arange(u.shape[0]) % 2,
        precisions=jnp.asarray(roots @ np.swapaxes(roots, 1, 2) + np.eye(size)),
    )
    known = Known(*map(jnp.asarray, given["known"]))
    arguments = {
        "design": design(jnp.asarray(given["v"]), known, given["num_factors"]),
        "chunks": arranged(data, (size, size)).by_row,
        "precision": 1.7,
    } | changed
    whole, values = arguments.pop("design"), jnp.append(data.values, 0.0)

    @jax.jit
    def drawn(normals):
        return row_kernels.draw_rows(normals, u, whole, values, priors=priors, **arguments)

    return drawn(normals), priors


@pytest.mark.parametrize("name", ["plain"])
@pytest.mark.parametrize("width", [1, 8])
def test_cells_stand_in_chunks_by_rows(name, width, monkeypatch):
    given = problem(name)["data"]
    monkeypatch.setattr("jaxmf.samplers.factors.layout._width", lambda *_: width)
    for chunks, own, other, number in (
        (arranged(given, (4, 4)).by_row, given.rows, given.columns, given.num_rows),
        (arranged(given, (4, 4)).by_column, given.columns, given.rows, given.num_columns),
    ):
        filled = np.asarray(chunks.cells) < NUM_CELLS
        places = np.asarray(chunks.cells)[filled]
        assert sorted(places) == list(range(NUM_CELLS))
        np.testing.assert_array_equal(np.asarray(chunks.others)[filled], np.asarray(other)[places])
        of_chunks = np.broadcast_to(np.asarray(chunks.rows)[:, None], filled.shape)[filled]
        np.testing.assert_array_equal(of_chunks, np.asarray(own)[places])
        counts = np.bincount(np.asarray(own), minlength=number)
        np.testing.assert_array_equal(np.diff(chunks.starts), -(-counts // width))


@pytest.mark.parametrize("name", SHAPES)
def test_means_of_cells_are_those_of_table_6_1(name):
    with jax.enable_x64(True):
        given = problem(name)
        data = given["data"]
        found = cell_means(
            jnp.asarray(given["u"]),
            jnp.asarray(given["v"]),
            Known(*map(jnp.asarray, given["known"])),
            data.rows,
            data.columns,
            num_factors=given["num_factors"],
        )
        wanted = [
            oracle.mean(
                given["u"][i],
                given["v"][j],
                given["known"][0][i],
                given["known"][1][j],
                given["known"][2][t],
                num_factors=given["num_factors"],
                has_bias=given["has_bias"],
            )
            for t, (i, j) in enumerate(zip(data.rows, data.columns, strict=True))
        ]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


WAYS = {
    "one after the other": lambda patch: None,
    # several blocks of several pieces
    "side by side": lambda patch: (
        patch.setattr(fusion, "is_available", lambda: False),
        patch.setitem(BLOCK_SIZES, "factor numbers", BlockSize(3 * 13**2, 3 * 13**2)),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SHAPES)
def test_rows_have_the_distribution_of_eq_6_25(name, way, monkeypatch):
    """Its mean without noise, its covariance from unit noise."""
    WAYS[way](monkeypatch)
    with jax.enable_x64(True):
        given = problem(name)
        data, u = given["data"], given["u"]
        size = u.shape[1]
        (means, _), priors = draw(given, jnp.zeros(u.shape))
        drawn = jax.jit(lambda normals: draw(given, normals)[0][0])
        units = [jnp.zeros(u.shape).at[:, k].set(1.0) for k in range(size)]
        roots = np.stack([np.asarray(drawn(unit) - means) for unit in units], axis=2)
        cells = list(zip(data.rows.tolist(), data.columns.tolist(), strict=True))
        for i in range(NUM_ROWS):
            mean, covariance = oracle.row_posterior(
                i,
                u,
                given["v"],
                given["known"],
                cells,
                np.asarray(data.values),
                np.asarray(priors.means[i]),
                np.asarray(priors.precisions[i % 2]),
                1.7,
                num_factors=given["num_factors"],
                has_bias=given["has_bias"],
            )
            np.testing.assert_allclose(means[i], mean, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(roots[i] @ roots[i].T, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["everything"])
def test_squares_are_those_of_the_new_residuals(name, way, monkeypatch):
    WAYS[way](monkeypatch)
    with jax.enable_x64(True):
        given = problem(name)
        data = given["data"]
        normals = jnp.asarray(np.random.default_rng(8).normal(size=given["u"].shape))
        part = jnp.asarray(np.arange(given["u"].shape[1]) >= 3, float)
        (u, sums), _ = draw(given, normals, part=part)

        def means(u):
            known = Known(*map(jnp.asarray, given["known"]))
            cells = data.rows, data.columns
            return cell_means(
                u, jnp.asarray(given["v"]), known, *cells, num_factors=given["num_factors"]
            )

        residuals, share = data.values - means(u), means(u) - means(u * (1 - part))
        wanted = [jnp.sum(x) for x in (residuals**2, residuals * share, share**2)]
        np.testing.assert_allclose(list(sums), wanted, rtol=1e-9)
        rest = data.values - means(jnp.where(part == 1, 1.3 * u, u))
        wanted = [jnp.sum(x) for x in (rest**2, 1.3 * rest * share, 1.69 * share**2)]
        np.testing.assert_allclose(list(sums.scaled(0.3)), wanted, rtol=1e-9)
        (_, alone), _ = draw(given, normals)
        np.testing.assert_allclose(list(alone), [sums.squares, 0, 0], rtol=1e-12)


def test_a_large_level_costs_no_digits():
    """Values of about 10,000 in float32: the sum of the squares of residuals of about one."""
    given = problem("biases")
    given["u"][:, -1] += 1e4
    data = given["data"]
    given["data"] = Entries(data.rows, data.columns, data.values + 1e4 - 50, data.shape)
    near = {"means": jnp.asarray(given["u"])}
    (u, (squares, *_)), _ = draw(given, jnp.zeros(given["u"].shape), **near)
    with jax.enable_x64(True):
        exact = given | {
            "data": Entries(
                *map(np.asarray, (data.rows, data.columns)),
                np.asarray(given["data"].values, float),
                data.shape,
            )
        }
        (wanted, (of_exact, *_)), _ = draw(exact, jnp.zeros(u.shape), means=jnp.asarray(given["u"]))
    np.testing.assert_allclose(squares, of_exact, rtol=2e-3)
    np.testing.assert_allclose(u, wanted, rtol=1e-6, atol=5e-3)
    # broken twin: the textbook form, whose sum of squares is a difference of large numbers
    values = np.asarray(given["data"].values)
    fitted = values - np.float32(1)
    textbook = np.float32(values @ values - 2 * values @ fitted + fitted @ fitted)
    assert abs(textbook - len(values)) > 0.02 * len(values)


def test_what_the_columns_add_is_not_forgotten():
    """Broken twin of the exact prior: without the second term of a cell's mean."""
    given = problem("everything")
    known = Known(*map(jnp.asarray, given["known"]))
    whole = design(jnp.asarray(given["v"]), known, given["num_factors"])
    zeros = jnp.zeros(given["u"].shape)
    (right, _), _ = draw(given, zeros)
    (wrong, _), _ = draw(given, zeros, design=whole._replace(row_part=0 * whole.row_part))
    assert np.max(np.abs(right - wrong)) > 0.1


@pytest.mark.parametrize("size", [17, 61])
def test_rows_drawn_in_turn_are_those_drawn_side_by_side(size, monkeypatch):
    """Also of vectors so long that what is left of a matrix is cut out half way."""
    generator = np.random.default_rng(2)
    rows, columns = np.divmod(generator.choice(30 * 40, 500, replace=False), 40)
    given = {
        "data": Entries(rows, columns, generator.normal(size=500) + 3, (30, 40)),
        "u": generator.normal(size=(30, size)),
        "v": generator.normal(size=(40, size)),
        "known": [np.zeros((number, 0)) for number in (30, 40, 500)],
        "num_factors": size - 1,
    }
    normals = jnp.asarray(generator.normal(size=(30, size)))
    with jax.enable_x64(True):
        normals = jnp.asarray(np.asarray(normals), float)
        (found, squares), _ = draw(given, normals)
        WAYS["side by side"](monkeypatch)
        (wanted, of_wanted), _ = draw(given, normals)
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(squares, of_wanted, rtol=1e-10)


def test_the_distribution_of_all_vectors_is_that_of_one_group():
    with jax.enable_x64(True):
        values = jnp.asarray(np.random.default_rng(0).normal(size=(9, 3)) + 2.0)
        prior = NormalInverseWishart(3, location=0.4, weight=1.7, degrees=6.5, scale=1.3)
        wanted = prior.statistics(jnp.zeros(9, jnp.int32), values, 1)
        found = statistics_of_all(prior, values)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_density_of_a_distribution_is_scipys():
    with jax.enable_x64(True):
        generator = np.random.default_rng(1)
        prior = NormalInverseWishart(3, location=0.4, weight=1.7, degrees=6.5, scale=1.3)
        root = np.tril(generator.normal(size=(2, 3, 3))) + 2 * np.eye(3)
        moments = NormalParameters(jnp.asarray(generator.normal(size=(2, 3))), jnp.asarray(root))
        found = log_hyperprior(prior, moments, precisions(moments))
        for group in range(2):
            covariance = root[group] @ root[group].T
            wanted = stats.invwishart.logpdf(covariance, 6.5, 1.3 * np.eye(3))
            wanted += stats.multivariate_normal.logpdf(
                moments.mean[group], np.full(3, 0.4), covariance / 1.7
            )
            np.testing.assert_allclose(found[group], wanted, rtol=1e-10)
