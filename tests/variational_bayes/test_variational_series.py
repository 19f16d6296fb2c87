"""Paths of a series against plain inverses and the free energy cell by cell, float64."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.variational_bayes import Normal, series
from jaxmf.variational_bayes import paths as gp
from jaxmf.variational_bayes import updates as closed
from jaxmf.variational_bayes.free_energy import divergence_of_others
from jaxmf.variational_bayes.parameters import half
from jaxmf.variational_bayes.paths import Paths
from jaxmf.variational_bayes.pieces import lay_out
from jaxmf.variational_bayes.series import Search, SeriesParameters
from jaxmf.variational_bayes.sums import side_sums
from jaxmf.variational_bayes.zeros import All
from tests.support.sparse_binary_oracle import SIZE, best_zeta_square, cost_at_zeta, problem

TIMES = np.array([0.0, 0.7, 2.0])
ROWS, WIDTH = SIZE // TIMES.size, 3
KERNEL = "matern_3_2"
LIKELIHOODS = {"gaussian": Gaussian(), "sigmoid": Bernoulli("quadratic")}
TOLERANCE = 1e-9


both_likelihoods = pytest.mark.parametrize(
    "likelihood", [pytest.param("gaussian", marks=pytest.mark.slow), "sigmoid"]
)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


class Given(NamedTuple):
    """Nine lines, of three rows at three times, and a Q drawn at random."""

    x: np.ndarray
    observed: np.ndarray
    layout: object
    parameters: SeriesParameters


def series_setup(seed=0, *, missing=True):
    flat = problem(seed, missing=missing)
    generator = np.random.default_rng(seed + 50)
    shape = (ROWS, TIMES.size, WIDTH)
    p = flat.parameters
    parameters = SeriesParameters(
        paths=Paths(
            jnp.asarray(generator.normal(size=shape)),
            jnp.asarray(np.exp(generator.normal(size=shape))),
        ),
        columns=p.columns,
        column_bias=p.column_bias,
        intercept=p.intercept,
        priors=p.priors,
        noise=p.noise,
        lengthscale=jnp.asarray(1.3),
        gaps=jnp.abs(jnp.asarray(TIMES)[:, None] - TIMES),
    )
    return Given(flat.x, flat.observed, flat.layout, parameters)


class Full(NamedTuple):
    """Q of the paths by mean (N, T, L) and whole covariance (N, L, T, T)."""

    mean: jax.Array
    covariance: jax.Array


def prior_covariance(p):
    kernel = gp.correlation(KERNEL, p.gaps, p.lengthscale)
    return series.path_prior(p).variance[:, None, None] * kernel


@jax.jit
def full(p):
    prior, weight = prior_covariance(p), jnp.moveaxis(p.paths.weight, 2, 1)
    mean = jnp.einsum("lst,nlt->nsl", prior, weight) + series.path_prior(p).mean
    precision = jnp.linalg.inv(prior) + jax.vmap(jax.vmap(jnp.diag))(
        jnp.moveaxis(p.paths.precision, 2, 1)
    )
    return Full(mean, jnp.linalg.inv(precision))


def plain_of(p, q):
    variance = jnp.moveaxis(jnp.diagonal(q.covariance, axis1=2, axis2=3), 1, 2)
    return series.stacked(p, Normal(q.mean, variance))


def path_divergence(p, q):
    """KL of multivariate Gaussians, by the book."""
    prior = prior_covariance(p)
    inverse = jnp.linalg.inv(prior)
    away = jnp.moveaxis(q.mean - series.path_prior(p).mean, 2, 1)
    total = jnp.einsum("nls,lst,nlt->", away, inverse, away)
    total += jnp.einsum("lst,nlts->", inverse, q.covariance) - q.mean.size
    total += ROWS * jnp.sum(jnp.linalg.slogdet(prior)[1])
    return (total - jnp.sum(jnp.linalg.slogdet(q.covariance)[1])) / 2


def oracle(p, q, x, observed, likelihood, zeta_square=None):
    plain = plain_of(p, q)
    if zeta_square is None:
        zeta_square = best_zeta_square(plain)
    cost = cost_at_zeta(plain, x, observed, likelihood, zeta_square)
    return cost + path_divergence(p, q) + divergence_of_others(plain)


@pytest.mark.tiers(slow=["sigmoid"], exhaustive=["gaussian"])
@both_likelihoods
def test_the_free_energy_is_that_of_whole_covariances(likelihood):
    setup, family = series_setup(), LIKELIHOODS[likelihood]
    p, q = setup.parameters, full(setup.parameters)
    expected = jax.jit(oracle, static_argnums=4)(p, q, setup.x, setup.observed, family)

    @jax.jit
    def energy(p):
        return series.series_free_energy(
            p, setup.layout, kernel=KERNEL, zeros=All(), likelihood=family
        )

    np.testing.assert_allclose(energy(p), expected, rtol=1e-12)
    # Broken twin: times that have nothing to do with each other.
    assert abs(energy(p._replace(lengthscale=1e-9)) - expected) > 1e-2
    # one length scale for all time makes K singular: still a number, with derivatives
    slopes = jax.jit(jax.grad(energy))(p._replace(lengthscale=jnp.asarray(1e9)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def near_of(setup, family):
    """Values of the paths, and the bound at them from the sums over the cells."""
    of_rows, _ = series.values(setup.parameters, kernel=KERNEL)
    plain = series.stacked(setup.parameters, of_rows)
    view = half(plain, "rows")
    sums = side_sums(
        view, setup.layout.rows, All(), likelihood=family, noise=plain.noise, block=True
    )
    return of_rows, series.quadratic(view, sums, num_times=TIMES.size)


@jax.jit
def updated(parameters, of_rows, near, lengthscale, relaxation):
    """Joint and factor by factor, of a step so many times as long."""
    correlations = gp.correlation(KERNEL, parameters.gaps, lengthscale)
    return {
        joint: gp.update(
            parameters.paths,
            of_rows,
            near,
            correlations=correlations,
            prior=series.path_prior(parameters),
            joint=joint,
            relaxation=relaxation,
        )
        for joint in (True, False)
    }


@pytest.mark.tiers(slow=["sigmoid"], exhaustive=["gaussian"])
@both_likelihoods
def test_an_update_is_the_minimiser_over_whole_covariances(likelihood):
    setup, family = series_setup(), LIKELIHOODS[likelihood]
    p = setup.parameters
    of_rows, near = jax.jit(near_of, static_argnums=1)(setup._replace(x=0, observed=0), family)
    before = full(p)
    zeta_square = best_zeta_square(plain_of(p, before))

    @jax.jit
    def energy(p, q):
        return jax.value_and_grad(oracle, argnums=1)(
            p, q, setup.x, setup.observed, family, zeta_square
        )

    found = updated(p, of_rows, near, p.lengthscale, jnp.ones(()))
    q = full(p._replace(paths=found[True].paths))
    lower, slopes = energy(p, q)
    for slope in jax.tree.leaves(slopes):
        np.testing.assert_allclose(slope, 0, atol=TOLERANCE)
    first, _ = energy(p, before)
    assert lower < first
    np.testing.assert_allclose(found[True].values.mean, q.mean, atol=TOLERANCE)
    variance = jnp.moveaxis(jnp.diagonal(q.covariance, axis1=2, axis2=3), 1, 2)
    np.testing.assert_allclose(found[True].values.variance, variance, atol=TOLERANCE)
    # what an update says of the bound is what it does, at any step and any length scale
    divergence = path_divergence(p, before)
    for lengthscale, relaxation in ((p.lengthscale, 1.0), (p.lengthscale, 1.7), (0.4, 1.7)):
        moved = p._replace(lengthscale=jnp.asarray(lengthscale))
        steps = updated(p, of_rows, near, moved.lengthscale, jnp.asarray(relaxation))
        for joint, step in steps.items():
            after = full(moved._replace(paths=step.paths))
            value, _ = energy(moved, after)
            np.testing.assert_allclose(step.change - divergence, value - first, atol=1e-8)
            if lengthscale == p.lengthscale:
                assert value < first, (joint, relaxation)
    # Broken twin: a step two and a half times as long goes up.
    wild = updated(p, of_rows, near, p.lengthscale, jnp.asarray(2.5))[True]
    quiet = updated(p, of_rows, near, p.lengthscale, jnp.asarray(0.0))[True]
    assert wild.change > quiet.change


def test_factor_by_factor_comes_to_the_joint_update():
    setup = series_setup(3)
    p = setup.parameters
    of_rows, near = jax.jit(near_of, static_argnums=1)(
        setup._replace(x=0, observed=0), Bernoulli("quadratic")
    )
    joint = updated(p, of_rows, near, p.lengthscale, jnp.ones(()))[True]
    paths, values = p.paths, of_rows
    for _ in range(60):
        step = updated(p._replace(paths=paths), values, near, p.lengthscale, jnp.ones(()))[False]
        moved = jnp.einsum("ntlm,ntm->ntl", near.curvature, step.values.mean - values.mean)
        near = near._replace(slope=near.slope + moved)
        paths, values = step.paths, step.values
    np.testing.assert_allclose(paths.weight, joint.paths.weight, atol=1e-8)


@both_likelihoods
def test_a_row_that_never_changes_is_one_row_of_all_matrices_side_by_side(likelihood):
    """K of ones: the update is that of one matrix with the columns of all times."""
    setup, family = series_setup(missing=False), LIKELIHOODS[likelihood]
    constant = jnp.broadcast_to(setup.parameters.paths.weight[:, :1], (ROWS, 3, WIDTH))
    precision = jnp.broadcast_to(setup.parameters.paths.precision[:, :1], (ROWS, 3, WIDTH))
    p = setup.parameters._replace(
        lengthscale=jnp.asarray(1e9), paths=Paths(constant, precision), column_bias=None
    )
    p = p._replace(paths=jax.tree.map(lambda leaf: leaf[..., :2], p.paths))
    side_by_side = setup.x.reshape(ROWS, TIMES.size * SIZE)
    layout = lay_out(*np.nonzero(side_by_side > 0), shape=side_by_side.shape)

    @jax.jit
    def both(p):
        of_rows, near = near_of(setup._replace(parameters=p, x=0, observed=0), family)
        step = updated(p, of_rows, near, p.lengthscale, jnp.ones(()))[True]
        plain = series.stacked(p, jax.tree.map(lambda leaf: leaf[:, :1], of_rows))
        tiled = jax.tree.map(lambda leaf: jnp.tile(leaf, (3, 1)), plain.columns)
        view = half(plain._replace(columns=tiled), "rows")
        sums = side_sums(view, layout.rows, All(), likelihood=family, noise=p.noise, block=True)
        found = closed.slopes(view, sums, block=True)
        mean = view.factors.mean - closed.newton_step(view, sums, found)
        return step.values, Normal(mean, closed.new_variances(view, found, likelihood=Gaussian()))

    of_series, static = both(p)
    for time in range(TIMES.size):
        np.testing.assert_allclose(of_series.mean[:, time], static.mean, atol=1e-8)
        np.testing.assert_allclose(of_series.variance[:, time], static.variance, atol=1e-8)
    # Broken twin: a length scale of the gaps' size lets a row change.
    changing, _ = both(p._replace(lengthscale=jnp.asarray(1.0)))
    assert float(jnp.abs(changing.mean[:, 0] - changing.mean[:, 2]).max()) > 1e-3


@pytest.mark.slow
def test_between_the_times_stands_the_conditional():
    p = series_setup(1).parameters
    q, prior = full(p), prior_covariance(p)
    at = jax.jit(
        lambda time: gp.moments_between(
            p.paths,
            correlations=gp.correlation(KERNEL, p.gaps, p.lengthscale),
            across=gp.correlation(KERNEL, jnp.abs(TIMES - time), p.lengthscale),
            prior=series.path_prior(p),
        )
    )
    path = series.path_prior(p)
    for time in (1.1, 3.5, -2.0):
        found = at(time)
        across = path.variance[:, None] * gp.correlation(
            KERNEL, jnp.abs(TIMES - time), p.lengthscale
        )
        gain = jnp.einsum("lt,lts->ls", across, jnp.linalg.inv(prior))
        mean = path.mean + jnp.einsum("ls,nsl->nl", gain, q.mean - path.mean)
        variance = path.variance - jnp.einsum("ls,ls->l", gain, across)
        variance = variance + jnp.einsum("ls,nlst,lt->nl", gain, q.covariance, gain)
        np.testing.assert_allclose(found.mean, mean, atol=TOLERANCE)
        np.testing.assert_allclose(found.variance, variance, atol=TOLERANCE)
    # at a time of the series it is what it is there
    of_rows, _ = series.values(p, kernel=KERNEL)
    for index, time in enumerate(TIMES):
        found = at(time)
        np.testing.assert_allclose(found.mean, of_rows.mean[:, index], atol=TOLERANCE)
        np.testing.assert_allclose(found.variance, of_rows.variance[:, index], atol=TOLERANCE)
    far = at(1e4)
    np.testing.assert_allclose(far.variance, jnp.broadcast_to(path.variance, (ROWS, WIDTH)))


@pytest.mark.parametrize("kernel", gp.KERNELS)
def test_kernels_are_correlations(kernel):
    generator = np.random.default_rng(0)
    times = np.sort(generator.uniform(0, 10, 8))
    gaps = jnp.abs(jnp.asarray(times)[:, None] - times)
    found = np.asarray(gp.correlation(kernel, gaps, jnp.asarray(2.0)))
    np.testing.assert_allclose(np.diag(found), 1)
    assert np.linalg.eigvalsh(found).min() > 0
    by_gap = found[0]
    assert (np.diff(by_gap) < 0).all()
    # r = 1: the formulas of Rasmussen & Williams (4.9) and (4.17)
    one = float(gp.correlation(kernel, jnp.asarray(2.0), jnp.asarray(2.0)))
    expected = {
        "squared_exponential": np.exp(-0.5),
        "matern_1_2": np.exp(-1),
        "matern_3_2": (1 + np.sqrt(3)) * np.exp(-np.sqrt(3)),
        "matern_5_2": (1 + np.sqrt(5) + 5 / 3) * np.exp(-np.sqrt(5)),
    }[kernel]
    assert one == pytest.approx(expected, abs=1e-14)
    np.testing.assert_array_equal(gp.correlation(kernel, gaps, jnp.asarray(1e-9)), np.eye(8))
    np.testing.assert_allclose(gp.correlation(kernel, gaps, jnp.asarray(1e12)), 1, atol=1e-11)


def test_a_line_of_which_nothing_was_observed_goes_by_its_neighbours():
    """The bound has no curvature there; the path is the conditional of the other times."""
    setup = series_setup(2, missing=False)
    line = 4  # row 1 at the second time
    observed = np.ones((SIZE, SIZE), bool)
    observed[line] = False
    ones = (setup.x > 0) & observed
    layout = lay_out(*np.nonzero(ones), shape=ones.shape, missing=np.nonzero(~observed))
    p = setup.parameters
    of_rows, near = jax.jit(near_of, static_argnums=1)(
        setup._replace(layout=layout, x=0, observed=0), Bernoulli("quadratic")
    )
    for step in updated(p, of_rows, near, p.lengthscale, jnp.ones(())).values():
        q = full(p._replace(paths=step.paths))
        path = series.path_prior(p)
        prior = prior_covariance(p)
        for factor in range(WIDTH):
            others = np.array([0, 2])
            gain = jnp.linalg.solve(prior[factor][np.ix_(others, others)], prior[factor][others, 1])
            mean = path.mean[factor] + gain @ (q.mean[1, others, factor] - path.mean[factor])
            np.testing.assert_allclose(step.values.mean[1, 1, factor], mean, atol=1e-8)
        assert np.isfinite(step.values.variance).all()


def test_the_search_keeps_what_lowers_the_bound():
    setup = series_setup(4)
    p = setup.parameters
    of_rows, near = jax.jit(near_of, static_argnums=1)(
        setup._replace(x=0, observed=0), Bernoulli("quadratic")
    )

    @jax.jit
    def change_at(lengthscale):
        return updated(p, of_rows, near, lengthscale, jnp.ones(()))[True].change

    @jax.jit
    def move(step):
        return series.update_rows(
            p, of_rows, near, Search(step), kernel=KERNEL, joint=True, relaxation=jnp.ones(())
        )

    here = float(change_at(p.lengthscale))
    for step in (0.4, -0.4):
        there = float(change_at(p.lengthscale * np.exp(step)))
        found, _, search = move(jnp.asarray(step))
        taken = float(found.lengthscale) != float(p.lengthscale)
        assert taken == (there < here)
        expected = 1.5 * step if taken else -0.5 * step
        np.testing.assert_allclose(search.step, expected)
    least, most = series.bounds(p.gaps)
    np.testing.assert_allclose((least, most), (0.07, 20.0))
    assert series.bounds(jnp.zeros((1, 1)))[0] > 0


def test_much_data_in_32_bits():
    """A precision of millions beside a K of ones: B is nearly singular beside its largest value."""
    with jax.enable_x64(False):
        num_times, precision = 24, 3e6
        ones = jnp.ones((num_times, num_times))
        h = jnp.full((1, num_times, 1), precision)
        found = jax.jit(gp.spread)(h, ones, jnp.ones(1))
        # as little as 32 bits can tell from nothing
        assert 0 < found.variance.min() <= found.variance.max() < 2e-6
        expected = 0.5 * (np.log1p(num_times * precision) - 1)
        np.testing.assert_allclose(found.divergence, expected, rtol=0.4)
        near = gp.Quadratic(jnp.full((1, num_times, 1), -precision), h[..., None])
        weight = jnp.zeros((1, num_times, 1))

        @jax.jit
        def values(near):
            joint = gp.joint_weights(weight, near, ones[None])
            steps = gp.factor_weights(weight, near, ones[None], relaxation=jnp.ones(()))
            return [gp.drift(found, ones, jnp.ones(1)) for found in (joint, steps)]

        np.testing.assert_allclose(values(near), 1, rtol=0.1)
