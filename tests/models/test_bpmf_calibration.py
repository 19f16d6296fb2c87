"""BPMF against long Hamiltonian chains on a 3 x 3 problem, and the coverage of its intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import ndtr

import jaxmf as mf
from jaxmf.testing import LEVEL, Comparison, Report

ROWS, COLUMNS = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 2, 1, 2])
VALUES = np.array([1.2, -0.4, 0.3, 0.9, -1.1, 0.6])
SIDE = {"degrees": 8.0, "weight": 2.0, "scale": 4.0}


def by_numpyro(num_samples):
    """Means of all nine cells and of the noise, given the same six cells, by NUTS."""
    import numpyro
    from numpyro.infer import MCMC, NUTS

    def side(name, num_rows):
        # an inverse-Wishart covariance by the Bartlett decomposition of its inverse
        size = 2
        squares = numpyro.sample(
            f"{name}_squares", dist.Chi2(SIDE["degrees"] - jnp.arange(size)).to_event(1)
        )
        below = numpyro.sample(f"{name}_below", dist.Normal())
        root = jnp.array([[jnp.sqrt(squares[0]), 0.0], [below, jnp.sqrt(squares[1])]])
        inverse = jnp.linalg.inv(root)
        factor = jnp.sqrt(SIDE["scale"]) * inverse.T  # factor factor' is the covariance
        mean = numpyro.sample(f"{name}_mean", dist.Normal().expand([size]).to_event(1))
        normals = numpyro.sample(name, dist.Normal().expand([num_rows, size]).to_event(2))
        return (mean / jnp.sqrt(SIDE["weight"]) + normals) @ factor.T

    def model():
        u, v = side("u", 3), side("v", 3)
        means = u[:, :1] @ v[:, :1].T + u[:, 1:] + v[:, 1]
        numpyro.deterministic("means", means)
        variance = numpyro.sample("variance", dist.InverseGamma(5.0, 2.0))
        noise = dist.Normal(means[ROWS, COLUMNS], jnp.sqrt(variance))
        numpyro.sample("values", noise, obs=jnp.asarray(VALUES))

    chains = MCMC(
        NUTS(model, target_accept_prob=0.95),
        num_warmup=500,
        num_samples=num_samples,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.key(0))
    found = chains.get_samples(group_by_chain=True)
    return np.asarray(found["means"]), np.asarray(found["variance"])


def moments(means, variance):
    """What is compared: means of the nine cells, their spreads, the noise; (chains, draws) each."""
    found = {"variance": variance}
    for row, column in np.ndindex(3, 3):
        cell = means[..., row, column]
        found |= {f"mean {row}, {column}": cell, f"spread {row}, {column}": np.abs(cell)}
    return found


def compared(ours, theirs):
    """Means of two runs, each by its own effective sample size, at the suite's false-alarm rate.

    Raises:
        AssertionError: one of them differs.
    """
    from numpyro.diagnostics import effective_sample_size

    comparisons = []
    for name, other in theirs.items():
        (estimate, estimate_error), (expected, error) = (
            (x.mean(), x.std() / np.sqrt(effective_sample_size(x))) for x in (ours[name], other)
        )
        standard_error = float(np.hypot(estimate_error, error))
        p_value = float(2 * ndtr(-abs(estimate - expected) / standard_error))
        comparisons.append(Comparison(name, "mean", expected, estimate, standard_error, p_value))
    return Report("Gibbs beside Hamiltonian chains", tuple(comparisons), LEVEL).require()


def by_gibbs(noise, *, degrees=SIDE["degrees"]):
    """The same by BPMF, with a prior of the noise."""
    prior = mf.NormalInverseWishart(**(SIDE | {"degrees": degrees}))
    settings = {"row_prior": prior, "column_prior": prior, "offset": 0.0, "scale": 1.0}
    model = mf.BPMF(1, likelihood=mf.Gaussian(noise), **settings)
    data = mf.Entries(ROWS, COLUMNS, VALUES, (3, 3))
    run = {"num_warmup": 500, "num_samples": 8_000, "num_chains": 2, "progress": False}
    draws = mf.sample(model, data, seed=0, **run).draws
    u, v = draws["u"].astype(float), draws["v"].astype(float)
    means = u[..., :1] @ np.swapaxes(v[..., :1], -1, -2) + u[..., 1:] + v[..., None, :, 1]
    return moments(means, draws["noise_scale"].astype(float) ** 2)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_three_by_three_is_what_hamiltonian_chains_say():
    theirs = moments(*by_numpyro(2_000))
    compared(by_gibbs(mf.RootInverseGamma(5.0, 2.0)), theirs)
    # broken twins: the prior of the precision taken for that of the scale, and covariances with
    # fewer degrees of freedom
    for noise, degrees in ((dist.Gamma(5.0, 2.0), 8.0), (mf.RootInverseGamma(5.0, 2.0), 5.0)):
        with pytest.raises(AssertionError):
            compared(by_gibbs(noise, degrees=degrees), theirs)


@pytest.mark.exhaustive
def test_nine_of_ten_cells_lie_in_their_intervals():
    """90 % intervals of 36,000 simulated cells that were held out: 90 +- 1.5 %."""
    generator = np.random.default_rng(0)
    shape = 300, 200
    means = generator.normal(size=(300, 4)) @ generator.normal(size=(4, 200))
    means += generator.normal(size=(300, 1)) + generator.normal(size=200)
    values = means + 0.7 * generator.normal(size=shape)
    seen = generator.random(shape) < 0.4
    data = mf.Entries(*np.nonzero(seen), values[seen], shape)
    settings = {"num_warmup": 100, "num_samples": 150, "num_chains": 1, "progress": False}
    found = mf.sample(mf.BPMF(4), data, seed=0, **settings).predict(quantiles=(0.05, 0.95))
    held_out = values[~seen]
    inside = (held_out > found.quantiles[0]) & (held_out < found.quantiles[1])
    assert abs(inside.mean() - 0.9) < 0.015
    # broken twin: intervals without the uncertainty of the factors are too short
    sd = 0.7 * np.ones(held_out.size)
    short = np.abs(held_out - found.mean) < 1.645 * sd
    assert short.mean() < 0.885
