"""The bilinear likelihood with W summed out, against the dense Gaussian over all cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.likelihoods import bilinear, bilinear_rows, gaussian
from jaxmf.likelihoods.spectrum import log_density
from jaxmf.testing import check_means
from tests.support.bilinear_oracle import cell_distributions, log_likelihood

pytestmark = pytest.mark.usefixtures("double_precision")

RNG = np.random.default_rng(3)
U = np.concatenate([RNG.random((6, 3)) < 0.5, np.zeros((6, 1), bool)], axis=1)
V = np.concatenate([RNG.random((5, 2)) < 0.5, np.zeros((5, 1), bool)], axis=1)
V = np.concatenate([V, V[:, :1]], axis=1)  # a column that depends on another, and a free slot
X = RNG.normal(size=(6, 5))
SCALES = {"noise_scale": 0.6, "weight_scale": 1.3}
MEANS = {"zero": 0.0, "number": 0.4, "matrix": RNG.normal(size=(4, 4))}


def arrays(weight_mean):
    settings = {name: jnp.asarray(value) for name, value in SCALES.items()}
    return (jnp.asarray(U), jnp.asarray(V), jnp.asarray(X)), {
        **settings,
        "weight_mean": jnp.asarray(weight_mean),
    }


def dense_distribution(weight_mean):
    """Mean and covariance of vec W (row-major) by the KL x KL matrix."""
    design = np.einsum("ik,jl->ijkl", U, V).reshape(X.size, -1).astype(float)
    ratio = (SCALES["noise_scale"] / SCALES["weight_scale"]) ** 2
    centre = np.broadcast_to(weight_mean, (U.shape[1], V.shape[1])).reshape(-1)
    spread = np.linalg.inv(design.T @ design + ratio * np.eye(design.shape[1]))
    mean = centre + spread @ design.T @ (X.reshape(-1) - design @ centre)
    return mean, SCALES["noise_scale"] ** 2 * spread


@pytest.mark.parametrize("name", MEANS)
def test_likelihood_weights_and_cells_are_those_of_the_dense_gaussian(name):
    (u, v, x), settings = arrays(MEANS[name])
    exact = log_likelihood(U, V, X, weight_mean=MEANS[name], **SCALES)
    np.testing.assert_allclose(bilinear.log_marginal(u, v, x, **settings), exact, rtol=1e-10)
    distribution = bilinear.weight_conditional(u, v, x, **settings)
    mean, covariance = dense_distribution(MEANS[name])
    np.testing.assert_allclose(distribution.mean.reshape(-1), mean, rtol=0, atol=1e-10)
    u_rows, v_rows = np.repeat(U, 5, axis=0), np.tile(V, (6, 1))
    found = bilinear.cell_moments(distribution, jnp.asarray(u_rows), jnp.asarray(v_rows), 0.6)
    design = np.einsum("mk,ml->mkl", u_rows, v_rows).reshape(30, -1).astype(float)
    variance = 0.36 + np.einsum("ma,ab,mb->m", design, covariance, design)
    np.testing.assert_allclose(found[0], design @ mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[1], variance, rtol=1e-10)


def test_the_likelihood_at_other_scales_comes_from_the_same_statistics():
    (u, v, x), settings = arrays(MEANS["matrix"])
    statistics = bilinear.spectrum(u, v, x, weight_mean=settings["weight_mean"])
    found = log_density(statistics, jnp.asarray(1.7), jnp.asarray(0.2))
    exact = log_likelihood(U, V, X, noise_scale=1.7, weight_scale=0.2, weight_mean=MEANS["matrix"])
    np.testing.assert_allclose(found, exact, rtol=1e-10)


def test_drawn_weights_have_the_moments_of_their_distribution():
    (u, v, x), settings = arrays(MEANS["matrix"])
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = jax.jit(jax.vmap(lambda key: bilinear.draw_weights(key, u, v, x, **settings)))(keys)
    drawn = np.asarray(drawn).reshape(len(keys), -1)
    mean, covariance = dense_distribution(MEANS["matrix"])
    centred = drawn - mean
    check_means(
        {"mean": drawn, "products": centred[:, :, None] * centred[:, None, :]},
        {"mean": mean, "products": covariance},
        title="weights drawn",
    )


def test_a_larger_capacity_draws_the_same_weights():
    (u, v, x), settings = arrays(0.4)
    small = bilinear.draw_weights(jax.random.key(1), u, v, x, **settings)
    u, v = jnp.pad(u, ((0, 0), (0, 3))), jnp.pad(v, ((0, 0), (0, 2)))
    large = bilinear.draw_weights(jax.random.key(1), u, v, x, **settings)
    np.testing.assert_allclose(large[:4, :4], small, rtol=0, atol=1e-10)


def test_the_identity_for_v_gives_the_linear_gaussian_likelihood():
    u, x = jnp.asarray(U), jnp.asarray(X)
    scales = jnp.asarray(0.6), jnp.asarray(1.3)
    found = bilinear.log_marginal(
        u, jnp.eye(5, dtype=bool), x, noise_scale=scales[0], weight_scale=scales[1]
    )
    exact = log_density(gaussian.spectrum(u, x), *scales)
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_the_oracle_agrees_with_itself():
    """Its covariance of cells is that of the design matrix of the weights."""
    design = np.einsum("ik,jl->ijkl", U, V).reshape(X.size, -1).astype(float)
    mean, covariance = cell_distributions(U, V, weight_mean=0.4, **SCALES)
    np.testing.assert_allclose(mean, design @ np.full(design.shape[1], 0.4))
    np.testing.assert_allclose(covariance, 1.69 * design @ design.T + 0.36 * np.eye(X.size))


def without(gram, cross, z, x):
    """U'U and U'XB of the rows but one."""
    return gram - jnp.outer(z, z), cross - jnp.outer(z, x)


@pytest.mark.slow
def test_rows_that_come_and_go_keep_single_precision():
    """Strengths of 1e4, features that one row has: what plain rank-one updates lose digits on."""
    rng = np.random.default_rng(5)
    u = rng.random((60, 6)) < 0.4
    u[:, 4:] = False
    u[7, 4] = u[11, 5] = True
    v = rng.random((4_000, 3)) < 0.5
    x = u @ rng.normal(size=(6, 3)) @ v.T + 0.5 * rng.normal(size=(60, 4_000))

    def posteriors(dtype):
        scales = {"noise_scale": jnp.asarray(0.5, dtype), "weight_scale": jnp.asarray(1.0, dtype)}
        turned = bilinear_rows.turn(jnp.asarray(v), weight_mean=0.0, num_slots=6, **scales)
        bits = jnp.asarray(u, dtype)
        turned_x = jnp.asarray(x, dtype) @ turned.basis
        gram, cross = bits.T @ bits, bits.T @ turned_x
        start = bilinear_rows.turned_posterior(gram, cross, turned)

        def visit(row, posterior):
            empty = jnp.diagonal(gram) - bits[row] < 0.5
            alone = jnp.where(empty, bits[row], 0)
            others = without(gram, cross, bits[row], turned_x[row])
            posterior = bilinear_rows.remove_row(
                posterior, bits[row], alone, turned_x[row], turned, lambda _: others
            )
            posterior = bilinear_rows.reset_slots(posterior, empty, turned)
            return bilinear_rows.add_row(posterior, bits[row], alone, turned_x[row], turned)

        after = jax.lax.fori_loop(0, 120, lambda step, found: visit(step % 60, found), start)
        return turned, start, after

    turned, exact, kept = jax.jit(lambda: posteriors(jnp.float64))()
    _, _, single = jax.jit(lambda: posteriors(jnp.float32))()
    assert turned.strength.min() > 1e3
    np.testing.assert_allclose(kept.spread, exact.spread, rtol=0, atol=1e-9)
    np.testing.assert_allclose(kept.mean, exact.mean, rtol=0, atol=1e-9)
    order = np.sign(np.sum(exact.mean * single.mean, axis=0))  # eigenvectors have either sign
    np.testing.assert_allclose(single.spread, exact.spread, rtol=0, atol=2e-5)
    np.testing.assert_allclose(single.mean * order, exact.mean, rtol=0, atol=2e-3)


@pytest.mark.slow
def test_rows_that_alone_tell_features_apart_keep_single_precision(monkeypatch):
    """More features than rows, strengths of 5e3: 1 - z M z lost its digits, and M grew to 1e20.

    Broken twin: rank-one updates alone, without a fresh start where no digit is left.
    """
    rng = np.random.default_rng(0)
    num_rows, num_slots, num_visits = 6, 9, 48
    first = rng.random((num_rows, num_slots)) < 0.4
    first[:, :2] = True  # two features that every row has
    flips = rng.random((num_visits, num_slots)) < 0.15
    flips[:, :2] = False
    v, x = rng.random((60, 1)) < 0.5, rng.normal(size=(num_rows, 1))

    def inflations(dtype):
        """z M z of every row that is visited, M of the others."""
        scales = {"noise_scale": jnp.asarray(0.1, dtype), "weight_scale": jnp.asarray(1.5, dtype)}
        turned = bilinear_rows.turn(jnp.asarray(v), weight_mean=0.0, num_slots=num_slots, **scales)
        start, turned_x = jnp.asarray(first, dtype), jnp.asarray(x, dtype)

        def visit(carry, visited):
            bits, posterior = carry
            index, flip = visited
            row = bits[index]
            empty = jnp.sum(bits, axis=0) - row < 0.5
            alone = jnp.where(empty, row, 0)
            others = without(bits.T @ bits, bits.T @ turned_x, row, turned_x[index])
            posterior = bilinear_rows.remove_row(
                posterior, row, alone, turned_x[index], turned, lambda _: others
            )
            posterior = bilinear_rows.reset_slots(posterior, empty, turned)
            new = jnp.where(flip, 1 - row, row)
            inflation = new @ posterior.spread[:, :, 0] @ new
            new_alone = jnp.where(empty, new, 0)
            posterior = bilinear_rows.add_row(posterior, new, new_alone, turned_x[index], turned)
            return (bits.at[index].set(new), posterior), inflation

        statistics = start.T @ start, start.T @ turned_x
        begin = start, bilinear_rows.turned_posterior(*statistics, turned)
        visits = jnp.arange(num_visits) % num_rows, jnp.asarray(flips)
        return turned.strength[0], *jax.lax.scan(visit, begin, visits)

    strength, (_, after), exact = jax.jit(lambda: inflations(jnp.float64))()
    _, (_, single_after), single = jax.jit(lambda: inflations(jnp.float32))()
    assert 5e3 < strength < 1e4
    assert exact.max() > 3e3
    np.testing.assert_allclose(single, exact, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(single_after.spread, after.spread, rtol=0, atol=0.005 * strength)
    monkeypatch.setattr(gaussian, "row_has_digits", lambda *_: jnp.array(True))
    _, _, broken = jax.jit(lambda: inflations(jnp.float32))()
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(broken, exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("weight_scale", [1e3, 1e9, 1e14])
def test_weights_far_larger_than_the_noise_cost_no_digits(weight_scale):
    # the difference of two sums of squares was off by 2e5 and more, and draws ran off
    u, v = np.array([[1, 0], [1, 0]], bool), np.array([[1, 0]], bool)
    x = np.array([[3e4], [3e4 + 1]], np.float32)
    found = bilinear.log_marginal(
        *map(jnp.asarray, (u, v, x)),
        noise_scale=jnp.float32(0.5),
        weight_scale=jnp.float32(weight_scale),
    )
    # sum and difference of the two cells are independent
    variances = np.array([0.25 + 2 * weight_scale**2, 0.25])
    parts = np.array([6e4 + 1, 1.0]) ** 2 / 2
    exact = -0.5 * np.sum(np.log(2 * np.pi * variances) + parts / variances)
    np.testing.assert_allclose(found, exact, atol=0.1)
