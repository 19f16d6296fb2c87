"""Analytic variational solutions: against direct minimisation, sparse against dense, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.variational_bayes import analytic, free_energy, lay_out
from jaxmf.variational_bayes.analytic import (
    analytic_solution,
    coded_ones,
    empirical_prior_variance,
    shrunk_components,
)
from jaxmf.variational_bayes.analytic_sigmoid import sigmoid_solution
from jaxmf.variational_bayes.singular import SparsePlusConstant, truncated_svd
from jaxmf.variational_bayes.zeros import All


def made(num_rows, num_columns, seed=0):
    """Two factors and noise of 0.4."""
    generator = np.random.default_rng(seed)
    a, s = generator.normal(size=(num_rows, 2)), generator.normal(size=(2, num_columns))
    return a * [2.0, 1.5] @ s + 0.4 * generator.normal(size=(num_rows, num_columns))


def made_ones(num_rows=60, num_columns=40, seed=0):
    generator = np.random.default_rng(seed)
    scores = 2 * generator.normal(size=(num_rows, 2)) @ generator.normal(size=(2, num_columns)) - 1
    chance = 1 / (1 + np.exp(-scores))
    return sp.csr_array((generator.random(scores.shape) < chance).astype(np.int8))


def unpacked(vector, shape, num_factors):
    """Means and variances of either side, v (K,) and the noise variance, from free parameters."""
    sizes = [shape[0] * num_factors, shape[1] * num_factors]
    cuts = np.cumsum([sizes[0], sizes[0], sizes[1], sizes[1], num_factors])
    a, log_a, s, log_s, log_v, log_noise = jnp.split(vector, cuts)
    rows, columns = (shape[0], num_factors), (shape[1], num_factors)
    return (
        a.reshape(rows),
        jnp.exp(log_a).reshape(rows),
        s.reshape(columns),
        jnp.exp(log_s).reshape(columns),
        jnp.exp(log_v),
        jnp.exp(log_noise[0]),
    )


def naive_free_energy(vector, x, num_factors, learned_v, learned_noise):
    """Equations 3 to 5 of the paper with the logarithms put right, cell by cell."""
    a, var_a, s, var_s, v, noise = unpacked(vector, x.shape, num_factors)
    v = v if learned_v else jnp.ones_like(v)
    noise = noise if learned_noise else 0.2
    spread = var_a @ (s**2).T + a**2 @ var_s.T + var_a @ var_s.T
    cells = ((x - a @ s.T) ** 2 + spread) / (2 * noise) + jnp.log(2 * jnp.pi * noise) / 2
    rows = (a**2 + var_a) / 2 - jnp.log(var_a) / 2 - 0.5
    columns = (s**2 + var_s) / (2 * v) - jnp.log(var_s / v) / 2 - 0.5
    return cells.sum() + rows.sum() + columns.sum()


def directly_minimised(x, num_factors, *, learned_v, learned_noise, num_starts=4):
    """The lowest of several minima found by gradients from random starts."""
    size = 2 * sum(x.shape) * num_factors + num_factors + 1
    with jax.enable_x64(True):
        both = jax.jit(
            jax.value_and_grad(
                lambda vector: naive_free_energy(vector, x, num_factors, learned_v, learned_noise)
            )
        )
        starts = [np.random.default_rng(seed).normal(size=size) for seed in range(num_starts)]
        found = [
            minimize(
                lambda vector: [np.asarray(part, float) for part in both(vector)],
                start,
                jac=True,
                method="BFGS",
                options={"maxiter": 2000, "gtol": 1e-7},
            )
            for start in starts
        ]
        best = min(found, key=lambda one: one.fun)
        parts = [np.asarray(part) for part in unpacked(best.x, x.shape, num_factors)]
    return best.fun, parts


def differences(solution, minimum, parts):
    """Relative differences of the free energy, the fitted matrix and the variances."""
    a, var_a, s, var_s, _, _ = parts
    fitted = solution.row_means @ solution.column_means.T
    return {
        "free energy": abs(solution.free_energy - minimum) / abs(minimum),
        "fit": np.abs(fitted - a @ s.T).max() / np.abs(a @ s.T).max(),
        # any rotation is as good only where factors are equal; here the trace is enough
        "row variances": abs(solution.row_variances.sum() / var_a.sum() - 1),
        "column variances": abs(solution.column_variances.sum() / var_s.sum() - 1),
    }


CASES = {
    "all given": {"learned_v": False, "learned_noise": False},
    "noise learned": {"learned_v": False, "learned_noise": True},
    "empirical Bayes": {"learned_v": True, "learned_noise": True},
}


def solved(x, case):
    return analytic_solution(
        x,
        num_factors=2,
        column_scale=None if case["learned_v"] else 1.0,
        noise_scale=None if case["learned_noise"] else 0.2**0.5,
    )


@pytest.mark.parametrize("shape", [(9, 6), (5, 8)])
@pytest.mark.parametrize("name", CASES)
def test_analytic_solution_is_the_minimum(name, shape):
    x = made(*shape)
    minimum, parts = directly_minimised(x, 2, **CASES[name])
    solution = solved(x, CASES[name])
    for what, difference in differences(solution, minimum, parts).items():
        assert difference < 1e-5, (what, difference)
    if CASES[name]["learned_v"]:
        np.testing.assert_allclose(
            np.sort(solution.column_prior_variance), np.sort(parts[4]), rtol=1e-4
        )
    if CASES[name]["learned_noise"]:
        assert solution.noise_variance == pytest.approx(float(parts[5]), rel=1e-5)


def test_shrinkage_without_its_prior_term_is_refused(monkeypatch):
    """The broken twin: the prior variances forgotten in the shrinkage."""

    def without_prior(values, *, row_prior_variance, column_prior_variance, **rest):
        return shrunk_components(values, row_prior_variance=1e3, column_prior_variance=1e3, **rest)

    monkeypatch.setattr(analytic, "shrunk_components", without_prior)
    x = made(9, 6)
    minimum, parts = directly_minimised(x, 2, **CASES["all given"])
    found = differences(solved(x, CASES["all given"]), minimum, parts)
    assert max(found.values()) > 1e-3


def test_factors_that_do_not_pay_are_off():
    """The free energy of one factor over v: the threshold of empirical Bayes is where 0 wins."""
    shape, noise = (30, 12), 0.7
    grid = np.geomspace(1e-7, 1e4, 4000)
    for value in np.sqrt(noise) * np.array([6.0, 8.0, 8.4, 8.6, 8.8, 9.0, 10.0, 15.0]):
        values = np.full(grid.shape, value)
        priors = {"row_prior_variance": 1.0, "column_prior_variance": grid}
        components = shrunk_components(values, shape=shape, noise_variance=noise, **priors)
        fitted = values * components.row_length * components.column_length
        square = (components.row_length**2 + 30 * components.row_variance) * (
            components.column_length**2 + 12 * components.column_variance
        )
        cost = (square - 2 * fitted) / (2 * noise)
        cost += analytic.divergence(components, shape=shape, **priors)
        best = grid[np.argmin(cost)]
        found = empirical_prior_variance(np.array([value]), shape=shape, noise_variance=noise)[0]
        if cost.min() < -1e-4:
            assert found == pytest.approx(best, rel=2e-2)
        else:
            assert found == 0
    assert found > 0  # the last value pays


def test_sparse_is_dense():
    ones = made_ones()
    for zero in (-1.0, 0.0, 0.3):
        matrix = coded_ones(ones, zero=zero)
        dense = np.where(ones.toarray() == 1, 1.0, zero)
        assert matrix.sum_of_squares() == pytest.approx(np.sum(dense**2))
        v = np.random.default_rng(1).normal(size=(40, 3))
        np.testing.assert_allclose(matrix.operator() @ v, dense @ v, atol=1e-10)
        np.testing.assert_allclose(matrix.operator().T @ (dense @ v), dense.T @ dense @ v)
        sparse_svd = truncated_svd(matrix, num_factors=5)
        dense_svd = np.linalg.svd(dense)
        np.testing.assert_allclose(sparse_svd.values, dense_svd[1][:5], rtol=1e-9)
        sparse, theirs = (
            analytic_solution(form, num_factors=4, column_scale=1.0) for form in (matrix, dense)
        )
        assert sparse.free_energy == pytest.approx(theirs.free_energy, rel=1e-9)
        np.testing.assert_allclose(sparse.row_means, theirs.row_means, atol=1e-7)
        np.testing.assert_allclose(sparse.column_variances, theirs.column_variances, rtol=1e-7)


def test_decomposition_is_the_same_every_time():
    ones = made_ones()
    first, again = (truncated_svd(coded_ones(ones, zero=0.0), num_factors=6) for _ in range(2))
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)
    turned = truncated_svd(SparsePlusConstant(-ones.astype(float)), num_factors=6)
    np.testing.assert_allclose(turned.right, first.right, atol=1e-8)
    np.testing.assert_allclose(turned.left, -first.left, atol=1e-8)
    # dense where there are few columns, the same otherwise
    few = truncated_svd(coded_ones(ones, zero=0.0), num_factors=30)
    np.testing.assert_allclose(few.values[:6], first.values, rtol=1e-10)
    np.testing.assert_allclose(few.right[:, :6], first.right, atol=1e-8)


@pytest.mark.parametrize("zeros", ["shared", "each"])
@pytest.mark.parametrize("v", [1.0, None])
def test_sigmoid_iteration_never_raises_its_bound(zeros, v):
    result = sigmoid_solution(
        made_ones(), num_factors=4, zeros=zeros, num_iterations=8, column_scale=v
    )
    assert (np.diff(result.bounds) <= 1e-9 * abs(result.bounds[0])).all()
    assert result.bounds[0] - result.bounds[-1] > 1.0
    assert result.solution.free_energy == result.bounds[-1]


@pytest.mark.parametrize("zeros", ["shared", "each"])
def test_sigmoid_bound_is_what_it_says(zeros):
    """Term by term over dense matrices; it lies above the expected log-likelihood's negative."""
    ones = made_ones()
    result = sigmoid_solution(ones, num_factors=3, zeros=zeros, num_iterations=3)
    a, var_a, s, var_s, u, v, _, _, bound = result.solution
    x, means = ones.toarray(), a @ s.T
    variances = var_a @ (s**2).T + a**2 @ var_s.T + var_a @ var_s.T
    points = means.copy()
    if zeros == "shared":
        points[x == 0] = means[x == 0].mean()
    slope = 1 / (1 + np.exp(-points)) - x
    cells = np.logaddexp(0, points) - x * points + slope * (means - points)
    cells += ((means - points) ** 2 + variances) / 8
    divergence = sum(
        0.5 * np.sum((mean**2 + var) / prior - np.log(var / prior) - 1)
        for mean, var, prior in ((a, var_a, u), (s, var_s, v))
    )
    assert bound == pytest.approx(cells.sum() + divergence, rel=1e-10)
    draws = np.random.default_rng(0).normal(size=(200, *means.shape)) * np.sqrt(variances) + means
    expected = (np.logaddexp(0, draws) - x * draws).mean(axis=0).sum()
    assert cells.sum() > expected


def test_a_bound_that_rises_is_seen(monkeypatch):
    """The broken twin: the points of expansion moved twice as far as is best."""
    from jaxmf.variational_bayes import analytic_sigmoid

    best = analytic_sigmoid._Each.at.__func__
    monkeypatch.setattr(
        analytic_sigmoid._Each,
        "at",
        classmethod(lambda cls, ones, solution: cls(3.0 * best(cls, ones, solution).points)),
    )
    result = sigmoid_solution(made_ones(), num_factors=4, zeros="each", num_iterations=8)
    assert (np.diff(result.bounds) > 1e-9 * abs(result.bounds[0])).any()


def laid_out(ones):
    cells = ones.tocoo()
    order = np.lexsort((cells.col, cells.row))
    return lay_out(cells.row[order], cells.col[order], shape=ones.shape)


def test_it_is_the_free_energy_of_every_other_fit():
    """And the minimum of it: no step to any side goes below."""
    ones = made_ones()
    solution = analytic_solution(coded_ones(ones), num_factors=3)
    with jax.enable_x64(True):
        data, parameters = laid_out(ones), solution.as_parameters()

        def cost(parameters):
            return free_energy(parameters, data, zeros=All(), likelihood=Gaussian())

        value, slope = jax.jit(jax.value_and_grad(cost))(parameters)
        assert float(value) == pytest.approx(solution.free_energy, rel=1e-10)
        for name in ("rows", "columns"):
            assert np.abs(getattr(slope, name).mean).max() < 1e-5
            shifted = getattr(slope, name).variance * getattr(parameters, name).variance
            assert np.abs(shifted).max() < 1e-6
        assert abs(float(slope.noise)) < 1e-2  # a thousandth of its curvature
        assert np.abs(slope.priors.columns.variance).max() < 1e-4


def test_sigmoid_bound_lies_above_the_tighter_one():
    """Every cell with its own zeta (Jaakkola and Jordan) is at most the bound of curvature 1/4."""
    ones = made_ones()
    result = sigmoid_solution(ones, num_factors=3, num_iterations=3)
    with jax.enable_x64(True):
        energy = jax.jit(lambda *given: free_energy(*given, zeros=All(), likelihood=Bernoulli()))
        tighter = energy(result.solution.as_parameters(), laid_out(ones))
    assert float(tighter) < result.bounds[-1]


def test_no_factor_pays():
    noise = np.random.default_rng(0).normal(size=(30, 20))
    solution = analytic_solution(noise, num_factors=3, noise_scale=5.0**0.5)
    assert solution.row_means.shape == (30, 0)
    assert np.isfinite(solution.free_energy)
    kept = analytic_solution(noise, num_factors=3, noise_scale=5.0**0.5, column_scale=1.0)
    assert kept.row_means.shape == (30, 3)
    assert (kept.row_means == 0).all()
    assert (kept.row_variances > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_factors": 0}, "num_factors: 0 factors of a matrix 60 x 40"),
        ({"num_factors": 41}, "it has from 1 to 40"),
        ({"noise_scale": 0.0}, "noise_scale: 0.0; a scale is positive"),
        ({"row_scale": -1.0}, "row_scale: -1.0"),
        ({"column_scale": np.inf}, "column_scale: inf"),
        ({"x": np.full((60, 40), np.nan)}, "a cell that is not finite"),
        ({"x": np.zeros((60, 40))}, "every cell is 0"),
    ],
)
def test_bad_input(change, message):
    options = {"num_factors": 2} | change
    x = options.pop("x", coded_ones(made_ones()))
    with pytest.raises(ValueError, match=message):
        analytic_solution(x, **options)


def test_bad_input_of_the_sigmoid():
    ones = made_ones()
    with pytest.raises(ValueError, match="num_iterations: 0"):
        sigmoid_solution(ones, num_factors=2, num_iterations=0)
    with pytest.raises(ValueError, match="zeros: 'none'"):
        sigmoid_solution(ones, num_factors=2, zeros="none")
    large = sp.csr_array((30_000, 20_000), dtype=np.int8)
    with pytest.raises(ValueError, match="use 'shared'"):
        sigmoid_solution(large, num_factors=2, zeros="each")
