"""Many cells in single precision: log densities, their changes, and counts, against doubles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf import LinearGaussianIBP, programs
from jaxmf._kernels import compensated
from jaxmf.data import Dense
from jaxmf.likelihoods import bilinear, gaussian
from jaxmf.likelihoods.spectrum import log_density, marginal_change, shrinkage
from jaxmf.models.linear_gaussian import particle as particles

NUM_ROWS, NUM_COLUMNS, NUM_FEATURES = 10_000, 100, 6
SCALES = (np.float32(0.5), np.float32(1.0))


def cells(offset, num_rows=NUM_ROWS, num_columns=NUM_COLUMNS):
    """Z, whose first feature is always on and carries the offset, and X."""
    generator = np.random.default_rng(0)
    z = generator.random((num_rows, NUM_FEATURES)) < 0.3
    z[:, 0] = True
    y = generator.normal(size=(NUM_FEATURES, num_columns))
    y[0] += offset
    noise = 0.5 * generator.normal(size=(num_rows, num_columns))
    return z, (z @ y + noise).astype(np.float32)


def exact_log_likelihood(z, x, noise, feature):
    """log p(X | Z) in double precision."""
    z, x, noise, feature = z.astype(float), x.astype(float), float(noise), float(feature)
    num_rows, num_columns = x.shape
    ratio = (noise / feature) ** 2
    inner = z.T @ z + ratio * np.eye(z.shape[1])
    y = np.linalg.solve(inner, z.T @ x)
    squares = np.sum((x - z @ y) ** 2) + ratio * np.sum(y**2)
    log_determinant = np.linalg.slogdet(inner / ratio)[1] + num_rows * np.log(noise**2)
    log_two_pi = num_rows * num_columns * np.log(2 * np.pi)
    return -0.5 * (log_two_pi + num_columns * log_determinant + squares / noise**2)


@programs.jit
def single_log_likelihood(z, x, noise, feature):
    return gaussian.log_likelihood(z, x, gaussian.gram_statistics(z, x), noise, feature)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_the_log_density_of_a_million_cells_is_right_to_a_tenth_of_a_nat(offset):
    # with the eigenvectors of Z'Z alone it is off by .9 where the offset is 100
    z, x = cells(offset)
    single = single_log_likelihood(z, x, *SCALES)
    exact = exact_log_likelihood(z, x, *SCALES)
    rounding = np.spacing(np.float32(exact)) / 2
    assert abs(float(single) - exact) < 0.1 + abs(rounding)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_changes_of_scales_of_a_million_cells_are_right_to_a_hundredth_of_a_nat(offset):
    # five standard deviations of the posterior of the noise scale either way
    z, x = cells(offset)
    statistics = programs.jit(gaussian.spectrum)(z, x)
    change = jax.jit(marginal_change)
    start = exact_log_likelihood(z, x, *SCALES)
    deviation = 1 / np.sqrt(2 * x.size)
    for steps in (-5, -1, 1, 5):
        noise = np.float32(SCALES[0] * (1 + steps * deviation))
        exact = exact_log_likelihood(z, x, noise, SCALES[1]) - start
        single = change(statistics, SCALES, (noise, SCALES[1]))
        assert abs(float(single) - exact) < 0.01


def test_changes_are_differences_of_log_densities_however_far_apart_the_scales():
    z, x = cells(1.0, 30, 5)
    z[:, 5] = False  # a free slot
    z[:, 4] = z[:, 3]  # a repeated feature
    statistics = gaussian.spectrum(z, jnp.asarray(x))
    u, v = z[:, :3], np.random.default_rng(1).random((5, 2)) < 0.6
    of_pairs = bilinear.spectrum(u, v, jnp.asarray(x))
    before = (0.7, 1.3)
    changes = programs.jit(
        lambda after: (
            marginal_change(statistics, before, after),
            marginal_change(of_pairs, before, after),
        )
    )
    values = programs.jit(
        lambda scales: (
            log_density(statistics, *scales),
            log_density(of_pairs, scales[0], scales[1]),
        )
    )
    for after in ((0.7, 1.3), (0.69, 1.3), (0.7, 1.4), (7.0, 0.1), (0.05, 20.0), (2.0, 1e3)):
        difference = np.subtract(values(after), values(before))
        np.testing.assert_allclose(changes(after), difference, rtol=1e-4, atol=2e-3)


def test_scales_beyond_the_range_of_floats_are_nowhere_likely():
    z, x = cells(1.0, 30, 5)
    z[:, 5] = False
    statistics = gaussian.spectrum(z, jnp.asarray(x))
    before = (np.float32(0.7), np.float32(1.3))
    change = programs.jit(marginal_change)
    for after in ((0.0, 1.0), (np.inf, 1.0), (1e-30, 1.0), (1.0, 1e-30)):
        scales = tuple(np.float32(scale) for scale in after)
        assert not change(statistics, before, scales) > -50


def test_normal_residuals_at_other_scales():
    count, squares = 40, np.float32(35.0)
    for new in (0.02, 0.69, 0.7, 0.71, 30.0):
        exact = -count * np.log(new / 0.7) - squares / 2 * (new**-2 - 0.7**-2)
        found = compensated.normal_change(count, squares, np.float32(0.7), np.float32(new))
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@jax.jit
def counted(count):
    """1 + 1 + ... with what rounding takes carried along, and without."""
    one = jnp.ones((), jnp.float32)

    def add(_, carry):
        sums, plain = carry
        return compensated.add(sums, one), plain + one

    start = compensated.start(jnp.zeros((), jnp.float32)), jnp.zeros((), jnp.float32)
    sums, plain = jax.lax.fori_loop(0, count, add, start)
    return sums.total, plain


def test_sums_of_many_terms_do_not_stop():
    count = 2**24 + 1_000
    total, plain = counted(count)
    assert total == count
    assert plain == 2**24, "without the correction nothing is added any more"


def test_a_feature_that_more_than_two_to_the_24_rows_have_is_counted():
    num_rows = 2**24 + 4_098
    z = np.ones((num_rows, 1), bool)
    gram, cross = programs.jit(gaussian.gram_statistics)(z, np.ones((num_rows, 1), np.float32))
    assert gram[0, 0] == num_rows
    assert cross[0, 0] == num_rows


def filtered_particle(z, x, scales):
    """A particle after all rows, at other scales half of the way."""
    model = LinearGaussianIBP(alpha=1.0, noise_scale=1.0, feature_scale=1.0)
    plan = particles.GaussianFilterPlan(z.shape[1], "prior", False, False, 1.0, 1)
    start = particles.init(plan, model, jax.random.key(0), Dense(x))

    @jax.jit
    def run(particle, z, x):
        def add(particle, row):
            return particles.add_row(particle, row[0], row[1], 0), None

        half = z.shape[0] // 2
        particle, _ = jax.lax.scan(add, particle, (z[:half], x[:half]))
        moved = particle._replace(noise_scale=scales[0], feature_scale=scales[1])
        particle = particles.recomputed(moved, particle.scales.ratio)
        return jax.lax.scan(add, particle, (z[half:], x[half:]))[0]

    return run(start, z, jnp.asarray(x))


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_the_sums_of_squares_of_a_filter_do_not_cancel(offset):
    # with tr X'X less what Z explains: off by hundreds of nats where the offset is 100
    z, x = cells(offset, 8_000, 10)
    noise, feature = SCALES
    particle = filtered_particle(z, x, SCALES)
    statistics = particles.spectrum_of(particle, z.shape[0])
    ratio = (noise / feature) ** 2
    penalised = statistics.residual + jnp.sum(shrinkage(statistics, ratio))
    mean = np.linalg.solve(
        z.T.astype(float) @ z + ratio * np.eye(NUM_FEATURES), z.T @ x.astype(float)
    )
    exact = np.sum((x - z @ mean) ** 2) + ratio * np.sum(mean**2)
    np.testing.assert_allclose(penalised, exact, rtol=2e-5)
    change = marginal_change(statistics, SCALES, (noise * 1.01, feature))
    start = exact_log_likelihood(z, x, *SCALES)
    difference = exact_log_likelihood(z, x, np.float32(noise * 1.01), feature) - start
    np.testing.assert_allclose(change, difference, atol=0.05)
