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
        generator.normal(size=(count, width))
        for count, width in (
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


designed = jax.jit(design, static_argnums=2)
means_of_cells = jax.jit(cell_means, static_argnames="num_factors")


def draw(setup, normals, **changed):
    """`draw_rows` with two groups of priors."""
    data, u = setup["data"], jnp.asarray(setup["u"])
    size = u.shape[1]
    roots = np.random.default_rng(5).normal(size=(2, size, size))
    usual = jnp.asarray(np.random.default_rng(6).normal(size=u.shape))
    priors = row_kernels.RowPriors(
        means=changed.pop("means", usual),
        groups=jnp.arange(u.shape[0]) % 2,
        precisions=jnp.asarray(roots @ np.swapaxes(roots, 1, 2) + np.eye(size)),
    )
    known = Known(*map(jnp.asarray, setup["known"]))
    arguments = {
        "design": designed(jnp.asarray(setup["v"]), known, setup["num_factors"]),
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
    setup = problem(name)["data"]
    monkeypatch.setattr("jaxmf.samplers.factors.layout.chunk_width", lambda *_, **named: width)
    for chunks, rows, other, num_rows in (
        (arranged(setup, (4, 4)).by_row, setup.rows, setup.columns, setup.num_rows),
        (arranged(setup, (4, 4)).by_column, setup.columns, setup.rows, setup.num_columns),
    ):
        filled = np.asarray(chunks.cells) < NUM_CELLS
        indices = np.asarray(chunks.cells)[filled]
        assert sorted(indices) == list(range(NUM_CELLS))
        np.testing.assert_array_equal(np.asarray(chunks.others)[filled], np.asarray(other)[indices])
        of_chunks = np.broadcast_to(np.asarray(chunks.rows)[:, None], filled.shape)[filled]
        np.testing.assert_array_equal(of_chunks, np.asarray(rows)[indices])
        counts = np.bincount(np.asarray(rows), minlength=num_rows)
        np.testing.assert_array_equal(np.diff(chunks.starts), -(-counts // width))


@pytest.mark.parametrize("name", SHAPES)
def test_means_of_cells_are_those_of_table_6_1(name):
    with jax.enable_x64(True):
        setup = problem(name)
        data = setup["data"]
        found = means_of_cells(
            jnp.asarray(setup["u"]),
            jnp.asarray(setup["v"]),
            Known(*map(jnp.asarray, setup["known"])),
            data.rows,
            data.columns,
            num_factors=setup["num_factors"],
        )
        expected = [
            oracle.mean(
                setup["u"][i],
                setup["v"][j],
                setup["known"][0][i],
                setup["known"][1][j],
                setup["known"][2][t],
                num_factors=setup["num_factors"],
                has_bias=setup["has_bias"],
            )
            for t, (i, j) in enumerate(zip(data.rows, data.columns, strict=True))
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


WAYS = {
    "one after the other": lambda patch: None,
    # several blocks of several pieces
    "side by side": lambda patch: (
        patch.setattr(fusion, "is_available", lambda: False),
        patch.setitem(BLOCK_SIZES, "factor numbers", BlockSize(3 * 13**2, 3 * 13**2)),
    ),
}


@pytest.mark.tiers(
    exhaustive=[
        "biases-one after the other",
        "biases-side by side",
        "no factors-one after the other",
        "plain-one after the other",
        "plain-side by side",
    ]
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SHAPES)
def test_rows_have_the_distribution_of_eq_6_25(name, way, monkeypatch):
    """Its mean without noise, its covariance from unit noise."""
    WAYS[way](monkeypatch)
    with jax.enable_x64(True):
        setup = problem(name)
        data, u = setup["data"], setup["u"]
        size = u.shape[1]
        (means, _), priors = draw(setup, jnp.zeros(u.shape))
        drawn = jax.jit(lambda normals: draw(setup, normals)[0][0])
        units = [jnp.zeros(u.shape).at[:, k].set(1.0) for k in range(size)]
        roots = np.stack([np.asarray(drawn(unit) - means) for unit in units], axis=2)
        cells = list(zip(data.rows.tolist(), data.columns.tolist(), strict=True))
        for i in range(NUM_ROWS):
            mean, covariance = oracle.row_posterior(
                i,
                u,
                setup["v"],
                setup["known"],
                cells,
                np.asarray(data.values),
                np.asarray(priors.means[i]),
                np.asarray(priors.precisions[i % 2]),
                1.7,
                num_factors=setup["num_factors"],
                has_bias=setup["has_bias"],
            )
            np.testing.assert_allclose(means[i], mean, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(roots[i] @ roots[i].T, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.tiers(exhaustive=["everything-one after the other"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["everything"])
def test_squares_are_those_of_the_new_residuals(name, way, monkeypatch):
    WAYS[way](monkeypatch)
    with jax.enable_x64(True):
        setup = problem(name)
        data = setup["data"]
        normals = jnp.asarray(np.random.default_rng(8).normal(size=setup["u"].shape))
        part = jnp.asarray(np.arange(setup["u"].shape[1]) >= 3, float)
        (u, sums), _ = draw(setup, normals, part=part)

        def means(u):
            known = Known(*map(jnp.asarray, setup["known"]))
            cells = data.rows, data.columns
            return cell_means(
                u, jnp.asarray(setup["v"]), known, *cells, num_factors=setup["num_factors"]
            )

        residuals, share = data.values - means(u), means(u) - means(u * (1 - part))
        expected = [jnp.sum(x) for x in (residuals**2, residuals * share, share**2)]
        np.testing.assert_allclose(list(sums), expected, rtol=1e-9)
        rest = data.values - means(jnp.where(part == 1, 1.3 * u, u))
        expected = [jnp.sum(x) for x in (rest**2, 1.3 * rest * share, 1.69 * share**2)]
        np.testing.assert_allclose(list(sums.scaled(0.3)), expected, rtol=1e-9)
        (_, alone), _ = draw(setup, normals)
        np.testing.assert_allclose(list(alone), [sums.squares, 0, 0], rtol=1e-12)


@pytest.mark.slow
def test_a_large_level_costs_no_digits():
    """Values of about 10,000 in float32: the sum of the squares of residuals of about one."""
    setup = problem("biases")
    setup["u"][:, -1] += 1e4
    data = setup["data"]
    setup["data"] = Entries(data.rows, data.columns, data.values + 1e4 - 50, data.shape)
    near = {"means": jnp.asarray(setup["u"])}
    (u, (squares, *_)), _ = draw(setup, jnp.zeros(setup["u"].shape), **near)
    with jax.enable_x64(True):
        exact = setup | {
            "data": Entries(
                *map(np.asarray, (data.rows, data.columns)),
                np.asarray(setup["data"].values, float),
                data.shape,
            )
        }
        (expected, (of_exact, *_)), _ = draw(
            exact, jnp.zeros(u.shape), means=jnp.asarray(setup["u"])
        )
    np.testing.assert_allclose(squares, of_exact, rtol=2e-3)
    np.testing.assert_allclose(u, expected, rtol=1e-6, atol=5e-3)
    # broken twin: the textbook form, whose sum of squares is a difference of large numbers
    values = np.asarray(setup["data"].values)
    fitted = values - np.float32(1)
    textbook = np.float32(values @ values - 2 * values @ fitted + fitted @ fitted)
    assert abs(textbook - len(values)) > 0.02 * len(values)


@pytest.mark.slow
def test_what_the_columns_add_is_not_forgotten():
    """Broken twin of the exact prior: without the second term of a cell's mean."""
    setup = problem("everything")
    known = Known(*map(jnp.asarray, setup["known"]))
    whole = design(jnp.asarray(setup["v"]), known, setup["num_factors"])
    zeros = jnp.zeros(setup["u"].shape)
    (right, _), _ = draw(setup, zeros)
    (wrong, _), _ = draw(setup, zeros, design=whole._replace(row_part=0 * whole.row_part))
    assert np.max(np.abs(right - wrong)) > 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [17, 61])
def test_rows_drawn_in_turn_are_those_drawn_side_by_side(size, monkeypatch):
    """Also of vectors so long that what is left of a matrix is cut out half way."""
    generator = np.random.default_rng(2)
    rows, columns = np.divmod(generator.choice(30 * 40, 500, replace=False), 40)
    setup = {
        "data": Entries(rows, columns, generator.normal(size=500) + 3, (30, 40)),
        "u": generator.normal(size=(30, size)),
        "v": generator.normal(size=(40, size)),
        "known": [np.zeros((count, 0)) for count in (30, 40, 500)],
        "num_factors": size - 1,
    }
    normals = jnp.asarray(generator.normal(size=(30, size)))
    with jax.enable_x64(True):
        normals = jnp.asarray(np.asarray(normals), float)
        (found, squares), _ = draw(setup, normals)
        WAYS["side by side"](monkeypatch)
        (expected, expected_squares), _ = draw(setup, normals)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(squares, expected_squares, rtol=1e-10)


def test_the_distribution_of_all_vectors_is_that_of_one_group():
    with jax.enable_x64(True):
        values = jnp.asarray(np.random.default_rng(0).normal(size=(9, 3)) + 2.0)
        prior = NormalInverseWishart(3, location=0.4, weight=1.7, degrees=6.5, scale=1.3)
        expected = jax.jit(lambda rows: prior.statistics(jnp.zeros(9, jnp.int32), rows, 1))
        found = jax.jit(lambda rows: statistics_of_all(prior, rows))
        for a, b in zip(found(values), expected(values), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_density_of_a_distribution_is_scipys():
    with jax.enable_x64(True):
        generator = np.random.default_rng(1)
        prior = NormalInverseWishart(3, location=0.4, weight=1.7, degrees=6.5, scale=1.3)
        root = np.tril(generator.normal(size=(2, 3, 3))) + 2 * np.eye(3)
        moments = NormalParameters(jnp.asarray(generator.normal(size=(2, 3))), jnp.asarray(root))
        density = jax.jit(lambda each: log_hyperprior(prior, each, precisions(each)))
        found = density(moments)
        for group in range(2):
            covariance = root[group] @ root[group].T
            expected = stats.invwishart.logpdf(covariance, 6.5, 1.3 * np.eye(3))
            expected += stats.multivariate_normal.logpdf(
                moments.mean[group], np.full(3, 0.4), covariance / 1.7
            )
            np.testing.assert_allclose(found[group], expected, rtol=1e-10)
