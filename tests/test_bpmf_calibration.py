"""BPMF against long Hamiltonian chains on a 3 x 3 problem, and the coverage of its intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf

ROWS, COLUMNS = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 2, 1, 2])
VALUES = np.array([1.2, -0.4, 0.3, 0.9, -1.1, 0.6])
SIDE = {"degrees": 8.0, "weight": 2.0, "scale": 4.0}


def by_numpyro(num_samples):
    """Means of all nine cells and of the noise, given the same six cells, by NUTS."""
    import numpyro
    from numpyro.infer import MCMC, NUTS

    def side(name, number):
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
        normals = numpyro.sample(name, dist.Normal().expand([number, size]).to_event(2))
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


def error_of_mean(values):
    """Standard error of the mean of (chains, draws, ...), by the effective sample size."""
    from numpyro.diagnostics import effective_sample_size

    return values.std(axis=(0, 1)) / np.sqrt(effective_sample_size(values))


@pytest.mark.slow
def test_three_by_three_is_what_hamiltonian_chains_say():
    prior = mf.NormalInverseWishart(**SIDE)
    model = mf.BPMF(
        1,
        likelihood=mf.Gaussian(dist.InverseGamma(5.0, 2.0)),
        row_prior=prior,
        column_prior=prior,
        level=0.0,
    )
    data = mf.Entries(ROWS, COLUMNS, VALUES, (3, 3))
    run = {"num_warmup": 500, "num_samples": 8_000, "num_chains": 2, "progress": False}
    post = mf.sample(model, data, seed=0, **run)
    u, v = post.draws["u"].astype(float), post.draws["v"].astype(float)
    ours = u[..., :1] @ np.swapaxes(v[..., :1], -1, -2) + u[..., 1:] + v[..., None, :, 1]
    theirs, variance = by_numpyro(2_000)
    bound = 4.5  # nine means, nine spreads and the noise: false alarms of 1e-4 in all
    for a, b in ((ours, theirs), (np.abs(ours), np.abs(theirs))):
        error = np.sqrt(error_of_mean(a) ** 2 + error_of_mean(b) ** 2)
        distance = (a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / error
        assert np.abs(distance).max() < bound, distance
        assert error.max() < 0.15
    own = post.draws["noise_scale"].astype(float) ** 2
    error = np.sqrt(error_of_mean(own) ** 2 + error_of_mean(variance) ** 2)
    assert abs(own.mean() - variance.mean()) < bound * error
    # it can fail: a variance larger by a third would be told apart
    assert abs(own.mean() * 1.33 - variance.mean()) > bound * error


@pytest.mark.slow
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
