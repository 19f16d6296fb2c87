"""Moves of BPMF that change no cell: exact, by the joint density of the points moved to."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxmf import NormalInverseWishart
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.models.bpmf import moves, updates
from jaxmf.samplers.factors import scales, shifts
from jaxmf.samplers.factors.moments import log_determinant, log_hyperprior, precisions
from jaxmf.samplers.factors.rows import Residuals
from jaxmf.testing import LEVEL
from tests.support.bpmf_setups import COLUMNS, ROWS, SHAPE, everything, parts, plain


def turned():
    return everything(row_prior=TURNED, column_prior=PRIORS[1])


@functools.cache
def _simulated(make, x64):
    model = make()
    simulate = jax.jit(lambda key: model.simulate(key, ROWS, COLUMNS, SHAPE))
    return model, *simulate(jax.random.key(3))


def simulated(make):
    """A model, a state and data of it, by one program: operations compile one by one."""
    return _simulated(make, jax.config.jax_enable_x64)


@functools.cache
def log_likelihood(make):
    """Of the simulated state."""
    model, state, data = simulated(make)
    return float(jax.jit(model.log_likelihood)(state, model.prepare(data)))


def density_along(make, move, num_normals):
    """log p + |normals|^2 / 2 at points a move goes to, and log likelihoods there.

    Where the move is a draw from the conditional along its orbit, the first are all alike.
    """
    model, state, data = simulated(make)
    prepared = model.prepare(data)
    normals = np.random.default_rng(1).normal(size=(4, num_normals))
    normals[0] = 0

    @jax.jit
    def at(one):
        moved = move(model, one, state, prepared)
        return (
            model.log_joint(moved, prepared) + jnp.sum(one**2) / 2,
            model.log_likelihood(moved, prepared),
        )

    found = [at(jnp.asarray(one)) for one in normals]
    return np.array([one for one, _ in found]), np.array([one for _, one in found])


def level(model, normals, state, data):
    return moves._shift_level(model, normals, state)


def cells(model, normals, state, data):
    return moves._shift_cells(normals, state)


def of_parts(model, normals, state, data):
    none = jnp.zeros((2, 2))
    # only the last part has one level a row
    return moves._shift_parts(model, jnp.concatenate([none, normals[None]]), state, data)


def features(model, normals, state, data):
    return moves._shift_features(model, normals.reshape(2, 1), state, data)


CASES = {
    "features": (everything, features, 2),
    "level": (plain, level, 2),
    "level of the linked": (everything, level, 2),
    "cells": (everything, cells, 1),
    "part of indicators": (parts, of_parts, 2),
}


@pytest.mark.tiers(exhaustive=["features", "level", "part of indicators"])
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_moves_have_their_conditional_and_change_no_cell(name):
    make, move, degrees = CASES[name]
    with jax.enable_x64(True):
        densities, likelihoods = density_along(make, move, degrees)
        start = log_likelihood(make)
    np.testing.assert_allclose(densities, densities[0], rtol=1e-9)
    np.testing.assert_allclose(likelihoods, start, rtol=1e-9)


def test_a_move_of_factors_that_leaves_their_covariance_is_caught(monkeypatch):
    """Broken twin: the columns' biases sheared, their covariance with the factors as it was."""
    right = shifts.shift_level

    def wrong(normals, rows, columns, **priors):
        moved, others = right(normals, rows, columns, **priors)
        moments = others.moments._replace(factor=columns.moments.factor)
        return moved, others._replace(moments=moments)

    monkeypatch.setattr(shifts, "shift_level", wrong)
    with jax.enable_x64(True):
        densities, _ = density_along(plain, level, 2)
    assert np.ptp(densities) > 0.1


@pytest.mark.slow
def test_features_whose_link_stays_are_caught(monkeypatch):
    """Broken twin: coefficients moved as if the columns' link had no prior."""
    right = shifts.shift_features

    def wrong(*arguments, line_precision, **given):
        return right(*arguments, line_precision=0.01 * line_precision, **given)

    monkeypatch.setattr(shifts, "shift_features", wrong)
    with jax.enable_x64(True):
        densities, _ = density_along(everything, features, 2)
    assert np.ptp(densities) > 0.1


# --- scales ---------------------------------------------------------------------------------------

TURNED = NormalInverseWishart(
    2, location=[0.4, -0.3], weight=1.5, degrees=6.0, scale=[[2.0, 0.7], [0.7, 1.0]]
)
PRIORS = TURNED, NormalInverseWishart(2, location=[-0.2, 0.5], weight=0.7, degrees=9.0, scale=3.0)


def of_factors(model, state, prepared):
    """log p along the orbit of a factor's scale, and the joint density with its Jacobian."""
    sides = [moves._core(each.u, each.row_side, 2) for each in (state, state.transpose())]
    terms = [
        scales.terms(precisions(side.moments)[0], side.moments.mean[0], prior).at(0, jnp.zeros(2))
        for side, prior in zip(sides, PRIORS, strict=True)
    ]
    # of vectors and mean one each, of a covariance of size two three, of the link its lines
    volumes = [side.vectors.shape[0] + 1 + 3 + side.link.shape[0] for side in sides]

    def joint(t):
        moved = [
            scales.scaled(side, by) for side, by in zip(sides, (t[None], -t[None]), strict=True)
        ]
        density = model.log_joint(moves._with_sides(state, *moved), prepared)
        return density + (volumes[0] - volumes[1]) * t

    return lambda t: scales.log_density_of_factor(t, *terms), joint, volumes


@pytest.mark.exhaustive
def test_terms_of_a_factor_follow_the_scales_of_the_others():
    with jax.enable_x64(True):
        _, state, _ = simulated(turned)
        side = moves._core(state.u, state.row_side, 2)
        by = jnp.asarray([0.3, 0.0])
        scaled = scales.scaled(side, by[:1])
        bias = 1  # an entry like any other, here with a factor that was scaled before it
        inverses = [precisions(each.moments)[0] for each in (side, scaled)]
        first = scales.terms(inverses[0], side.moments.mean[0], TURNED)
        after = scales.terms(inverses[1], scaled.moments.mean[0], TURNED)
        np.testing.assert_allclose(first.at(bias, by), after.at(bias, 0 * by), rtol=1e-12)
        # broken twin: the scale of the first entry forgotten
        assert abs(first.at(bias, 0 * by)[2] - after.at(bias, 0 * by)[2]) > 1e-3


def of_part(model, state, prepared):
    """Likewise of the scale of the rows' coefficients for features of the columns."""
    width, means = model.core_width, lambda state: updates.means_of_data(model, state, prepared)
    mask = jnp.asarray([0.0, 0.0, 1.0, 1.0, 0.0])
    residuals = prepared.values - means(state)
    share = means(state) - means(state._replace(u=state.u * (1 - mask)))
    sums = Residuals(*(jnp.sum(x) for x in (residuals**2, residuals * share, share**2)))
    degrees, coefficients = state.u.shape[0] * 2, state.row_side.coefficients
    assert mask.shape[0] == width + coefficients.mean.shape[0]

    def by_sums(t):
        return scales.log_density_of_part(
            t,
            coefficients.precision[0],
            residuals=sums,
            noise_precision=prepared.unit**2 / state.noise,
            precision_prior=model.coefficient_precision,
        )

    def joint(t):
        moved = updates._with_scale(state, mask, 0, jnp.exp(t))
        return model.log_joint(moved, prepared) + (degrees - 2) * t

    return by_sums, joint, (degrees, 0)


def of_all_factors(model, state, prepared):
    """Likewise of the scale of all factors of the rows, two of them, with what cells say."""
    del model, prepared
    width, num_factors, num_rows = 3, 2, state.u.shape[0]
    random = np.random.default_rng(4)
    given = jnp.asarray(random.normal(size=(5, max(num_rows, width), width)))
    factor = jnp.linalg.cholesky(given[0, :width].T @ given[0, :width] + jnp.eye(width))
    moments = NormalParameters(given[1, :1], factor[None])
    side = shifts.FactorSide(given[2, :num_rows], moments, given[3, :2])
    part, rest = jnp.asarray(random.normal(size=(2, 7)))
    sums = Residuals(jnp.sum(rest**2), jnp.sum(rest * part), jnp.sum(part**2))
    terms = scales.terms(precisions(moments)[0], moments.mean[0], WIDE)

    def by_sums(t):
        return scales.log_density_of_factors(
            t, terms, num_factors=num_factors, residuals=sums, noise_precision=jnp.asarray(0.8)
        )

    def joint(t):
        moved = scales.scaled(side, jnp.full((num_factors,), t))
        inverse = precisions(moved.moments)
        normal = stats_of(moved, inverse[0]) + log_hyperprior(WIDE, moved.moments, inverse)[0]
        cells = -0.4 * jnp.sum((rest - jnp.expm1(t) * part) ** 2)
        # of vectors, mean and link one for a factor, of a covariance of size three four
        return normal + cells + volume * t

    def stats_of(side, inverse):
        """Log density of vectors and of the link's lines, these with mean zero."""
        residuals = jnp.concatenate([side.vectors - side.moments.mean[0], side.link])
        level = log_determinant(side.moments)[0]
        return -0.5 * (len(residuals) * level + jnp.sum((residuals @ inverse) * residuals))

    volume = num_factors * (num_rows + 1 + 2 + width + 1)
    return by_sums, joint, (num_factors * WIDE.degrees, 0)


WIDE = NormalInverseWishart(
    3,
    location=[0.4, -0.3, 0.2],
    weight=1.5,
    degrees=6.0,
    scale=[[2.0, 0.7, 0.1], [0.7, 1.0, -0.4], [0.1, -0.4, 1.5]],
)


@pytest.mark.tiers(slow=["of_factors"], exhaustive=["of_all_factors", "of_part"])
@pytest.mark.parametrize("orbit", [of_factors, of_part, of_all_factors])
def test_scales_have_the_joint_density_with_its_jacobian(orbit):
    with jax.enable_x64(True):
        model, state, data = simulated(turned)
        conditional, joint, volumes = orbit(model, state, model.prepare(data))
        points = jnp.asarray([-0.7, 0.0, 0.4, 1.1])
        both = jax.jit(jax.vmap(lambda point: (conditional(point), joint(point))))
        found, expected = both(points)
        np.testing.assert_allclose(found - found[1], expected - expected[1], rtol=1e-8, atol=1e-8)
        # broken twin: the Jacobian determinant of the rows forgotten
        wrong = expected - volumes[0] * points
        assert np.ptp(found - wrong) > 0.5


@pytest.mark.exhaustive
def test_the_scale_of_a_factor_has_its_distribution_wherever_it_starts():
    """4,096 starts from the density along the orbit, by quadrature, and one update of each."""
    model, state, data = simulated(turned)
    sides = [moves._core(each.u, each.row_side, 2) for each in (state, state.transpose())]
    log_density = of_factors(model, state, model.prepare(data))[0]
    grid = jnp.linspace(-6, 6, 20_001)
    weights = np.exp(np.asarray(jax.jit(jax.vmap(log_density))(grid), float))
    below = np.cumsum(weights) / weights.sum()
    starts = np.interp(np.random.default_rng(0).random(4_096), below, np.asarray(grid))
    draws = np.random.default_rng(1).random((2, 4_096)).astype(np.float32)

    def update(row_prior, start, normal, uniform):
        moved = [scales.scaled(side, by) for side, by in zip(sides, (start, -start), strict=True)]
        given = {"row_prior": row_prior, "column_prior": PRIORS[1]}
        rows, _ = scales.scale_factors(normal, uniform, *moved, **given)
        return jnp.log(rows.vectors[0, 0] / sides[0].vectors[0, 0])

    starts = jnp.asarray(starts, jnp.float32)
    lines = [each[:, None] for each in (starts, jnp.asarray(stats.norm.ppf(draws[0])), draws[1])]
    many = jax.jit(jax.vmap(update, in_axes=(None, 0, 0, 0)))
    after = np.asarray(many(PRIORS[0], *lines))
    assert stats.kstest(np.interp(after, np.asarray(grid), below), "uniform").pvalue > LEVEL
    assert np.mean(np.abs(after - starts) > 1e-4) > 0.5
    assert np.abs(np.corrcoef(after, starts)[0, 1]) < 0.5
    # broken twin: the scale of the rows as if there were four vectors less, or no Jacobian for them
    wrong = np.asarray(many(replace(PRIORS[0], degrees=10.0), *lines))
    assert stats.kstest(np.interp(wrong, np.asarray(grid), below), "uniform").pvalue < LEVEL
