"""The sum over all settings of a row, in blocks and pieces, against the plain sum."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.likelihoods.gaussian import RowPosterior, log_normal_row
from jaxmf.samplers.feature_layout import RowPrior, Scales
from jaxmf.samplers.feature_rows import row_fit
from jaxmf.samplers.row_enumeration import (
    all_settings,
    draw_bits,
    draw_num_new,
    sum_settings,
)

NOISE, FEATURE = 0.5, 1.0


def problem(num_used, num_slots, first, rate, num_columns=3, outlier=1.0):
    rng = np.random.default_rng(num_used)
    z = rng.random((12, num_slots)) < 0.5
    z[:, first + num_used :] = False
    if first:
        z[:, 0] = True
    gram = z.T.astype(float) @ z + (NOISE / FEATURE) ** 2 * np.eye(num_slots)
    spread = np.linalg.inv(gram)
    mean = spread @ z.T @ rng.normal(size=(12, num_columns))
    x = outlier * rng.normal(size=num_columns)
    movable = (np.arange(num_slots) >= first) & (np.arange(num_slots) < first + num_used)
    log_odds = np.where(movable, rng.normal(size=num_slots), -np.inf)
    always = np.arange(num_slots) < first
    prior = RowPrior(
        log_odds=jnp.asarray(log_odds),
        rate=jnp.asarray(rate),
        movable=jnp.asarray(movable),
        free=jnp.asarray(~movable & ~always),
    )
    posterior = RowPosterior(jnp.asarray(spread), jnp.asarray(mean))
    observed = jnp.asarray(np.arange(num_columns) != 1)
    fit = jax.jit(row_fit)(posterior, jnp.asarray(always), jnp.asarray(x), observed)
    return fit, prior, posterior, x


def plain_sum(posterior, prior, x, always):
    """Log weight of every (bits, num_new)."""
    spread, mean = map(np.asarray, posterior)
    slots = np.flatnonzero(prior.movable)
    seen = np.arange(len(x)) != 1
    rate = float(prior.rate)
    table = {}
    log_normal = jax.jit(log_normal_row)  # of all numbers of new features at once
    for bits in itertools.product([0, 1], repeat=len(slots)):
        z = always.astype(float)
        z[slots] = bits
        error = (x - z @ mean)[seen]
        log_odds = np.asarray(prior.log_odds)[slots]
        log_prior = -(np.logaddexp(0, np.where(np.array(bits) == 1, -log_odds, log_odds))).sum()
        inflation = 1 + z @ spread @ z + np.arange(80) * (FEATURE / NOISE) ** 2
        log_densities = log_normal(error @ error, inflation, float(seen.sum()), NOISE**2)
        for num_new, log_density in enumerate(np.asarray(log_densities)):
            if num_new and not rate:
                break
            log_poisson = num_new * math.log(rate or 1) - rate - math.lgamma(num_new + 1)
            table[bits, num_new] = log_prior + log_poisson + log_density
    return table


@pytest.mark.parametrize(
    ("num_used", "num_slots", "first", "rate", "outlier"),
    [
        (0, 3, 0, 1.3, 1.0),
        (3, 5, 0, 0.1, 1.0),
        (3, 3, 0, 0.0, 1.0),
        (6, 9, 1, 0.4, 1.0),
        (2, 8, 1, 0.02, 30.0),
        (1, 4, 0, 15.0, 3.0),
    ],
)
def test_sum_and_draws(num_used, num_slots, first, rate, outlier):
    with jax.enable_x64(True):
        fit, prior, posterior, x = problem(num_used, num_slots, first, rate, outlier=outlier)
        scales = Scales(noise=jnp.asarray(NOISE), feature=jnp.asarray(FEATURE))
        always = np.arange(num_slots) < first
        table = plain_sum(posterior, prior, x, always)
        exact = np.logaddexp.reduce(list(table.values()))

        def one(key):
            total, block = sum_settings(jax.random.fold_in(key, 0), fit, prior, scales, first=first)
            uniforms = jax.random.uniform(jax.random.fold_in(key, 1), (2,))
            bits = draw_bits(uniforms[0], block, prior.movable, first=first)
            on = (bits | jnp.asarray(always)).astype(float)
            error = jnp.where(jnp.arange(3) != 1, jnp.asarray(x) - on @ posterior.mean, 0)
            num_new = draw_num_new(
                uniforms[1], error @ error, on @ posterior.spread @ on, 2.0, rate=prior.rate,
                scales=scales,
            )  # fmt: skip
            return total, bits, num_new

        num_draws = 4000
        keys = jax.random.split(jax.random.key(1), num_draws)
        totals, bits, counts_new = jax.jit(jax.vmap(one))(keys)
        np.testing.assert_allclose(totals, exact, atol=1e-10)
        # Expected counts of the settings, of the number of new features and of both together.
        slots = np.flatnonzero(prior.movable)
        counts = {}
        for pattern, num_new in zip(
            np.asarray(bits)[:, slots], np.asarray(counts_new), strict=True
        ):
            setting = (tuple(int(bit) for bit in pattern), int(num_new))
            counts[setting] = counts.get(setting, 0) + 1
        assert set(counts) <= set(table)
        chi, cells, rest_expected, rest_found = 0.0, 0, 0.0, 0
        for setting, log_weight in table.items():
            expected = num_draws * math.exp(log_weight - exact)
            if expected < 5:
                rest_expected += expected
                rest_found += counts.get(setting, 0)
                continue
            chi += (counts.get(setting, 0) - expected) ** 2 / expected
            cells += 1
        if rest_expected >= 1:
            chi += (rest_found - rest_expected) ** 2 / rest_expected
            cells += 1
        assert chi < cells + 6 * math.sqrt(2 * cells) + 10
        assert not np.any(np.asarray(bits) & ~np.asarray(prior.movable))


def test_all_settings_one_by_one():
    with jax.enable_x64(True):
        fit, prior, posterior, x = problem(3, 6, 1, 1.2)
        scales = Scales(noise=jnp.asarray(NOISE), feature=jnp.asarray(FEATURE))
        table = plain_sum(posterior, prior, x, np.arange(6) < 1)
        listed = jax.jit(functools.partial(all_settings, first=1, num_counts=4))
        patterns, log_weights = listed(fit, prior, scales)
        assert log_weights.shape == (32, 4)
        found = {}
        for pattern, weights in zip(np.asarray(patterns), np.asarray(log_weights), strict=True):
            for num_new, weight in enumerate(weights):
                if weight > -np.inf:
                    found[tuple(pattern[1:4].astype(int).tolist()), num_new] = weight
        assert len(found) == 8 * 4
        for (bits, num_new), weight in found.items():
            if num_new < 3:
                expected = table[bits, num_new]
            else:
                expected = np.logaddexp.reduce([table[bits, j] for j in range(3, 80)])
            assert weight == pytest.approx(expected, abs=1e-9)

        def draw(uniform):
            return draw_num_new(
                uniform, fit.squared_error, fit.inflation, 2.0, rate=prior.rate, scales=scales,
                at_least=3,
            )  # fmt: skip

        drawn = jax.jit(jax.vmap(draw))(np.linspace(0.0005, 0.9995, 1000))
        terms = np.array([table[(0, 0, 0), j] for j in range(3, 80)])
        expected = np.exp(terms - np.logaddexp.reduce(terms))
        share = np.bincount(np.asarray(drawn), minlength=80)[3:80] / 1000
        np.testing.assert_allclose(share, expected, atol=2e-3)


def test_draws_do_not_depend_on_the_capacity():
    with jax.enable_x64(True):
        scales = Scales(noise=jnp.asarray(NOISE), feature=jnp.asarray(FEATURE))
        drawn = []
        for num_slots in (5, 9):
            fit, prior, *_ = problem(5, num_slots, 0, 0.3)
            # The same features whatever the capacity.
            rng = np.random.default_rng(0)
            curvature = rng.normal(size=(9, 3))
            curvature[5:] = 0
            curvature = curvature[:num_slots] @ curvature[:num_slots].T
            log_odds = np.where(np.arange(num_slots) < 5, 0.3, -np.inf)
            fit = fit._replace(
                curvature=jnp.asarray(curvature),
                slope=jnp.where(jnp.arange(num_slots) < 5, 0.5, 0.0),
                spread=jnp.eye(num_slots),
                m_z=jnp.zeros(num_slots),
                inflation=jnp.asarray(0.0),
                squared_error=jnp.asarray(3.0),
            )
            prior = prior._replace(log_odds=jnp.asarray(log_odds))

            def one(key, fit=fit, prior=prior):
                _, block = sum_settings(key, fit, prior, scales, first=0)
                return draw_bits(jax.random.uniform(key), block, prior.movable, first=0)

            keys = jax.random.split(jax.random.key(2), 200)
            drawn.append(np.asarray(jax.jit(jax.vmap(one))(keys))[:, :5])
        np.testing.assert_array_equal(drawn[0], drawn[1])
