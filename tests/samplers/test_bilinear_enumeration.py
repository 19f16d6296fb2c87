"""Compiled collapsed sweeps of U and V in turn against enumeration of all pairs (U, V).

Thousands of chains start at exact draws of the posterior, take some steps, and their averages are
held against exact expectations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.bilinear.collapsed import collapsed_bilinear_sweep
from jaxmf.samplers.collapsed_sweep import collapsed_sweep
from jaxmf.samplers.feature_layout import Scales
from jaxmf.testing import check_means
from tests.support import bilinear_oracle
from tests.support.chain_runs import chain_averages

X = np.array([[1.1, -0.3, 0.8], [0.7, 0.6, -0.4], [-0.2, 0.9, 1.2]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, False]])
SCALES = {"noise_scale": 0.6, "weight_scale": 0.9}
STANDARD_ERROR = 1e-3


class Case(NamedTuple):
    """Priors of the two sides; a number of features, or at most `max_features` of a process."""

    num_features: int | None = 2
    alpha: float = 1.0
    missing: bool = False
    weight_mean: float = 0.0
    num_proposals: int = 0
    max_features: int = 4
    capacity: int = 7

    @property
    def prior(self):
        if self.num_features is None:
            return IndianBuffet(self.alpha, 1.4)
        return BetaBernoulli(self.alpha, 1.4, self.num_features)

    @property
    def observed(self):
        return OBSERVED if self.missing else None

    @property
    def settings(self):
        return {**SCALES, "weight_mean": self.weight_mean}

    def posterior(self):
        if self.num_features is None:
            side = bilinear_oracle.process_side(
                3, self.max_features, alpha=self.alpha, concentration=1.4
            )
        else:
            side = bilinear_oracle.finite_side(
                3, self.num_features, alpha=self.alpha, concentration=1.4
            )
        return bilinear_oracle.joint_posterior(
            side, side, X, observed=self.observed, **self.settings
        )

    def starts(self, posterior, num_chains):
        rng = np.random.default_rng(0)
        u, v = posterior.draw(rng, num_chains)
        x = np.broadcast_to(X, (num_chains, *X.shape))
        if self.missing:
            x = bilinear_oracle.draw_missing(rng, u, v, X, observed=OBSERVED, **self.settings)
        if self.num_features is None:
            widths = ((0, 0), (0, 0), (0, self.capacity - u.shape[2]))
            u, v = np.pad(u, widths), np.pad(v, widths)
        return jnp.asarray(u), jnp.asarray(v), jnp.asarray(x, jnp.result_type(float))

    def step(self, key, u, v, x):
        """One sweep over the rows of U and one over those of V."""
        observed = None if self.observed is None else jnp.asarray(self.observed)
        settings = {
            **{name: jnp.asarray(value) for name, value in self.settings.items()},
            "prior": self.prior,
            "num_proposals": self.num_proposals,
        }
        u_key, v_key = jax.random.split(key)
        u, x, first = collapsed_bilinear_sweep(u_key, u, v, x, observed, **settings)
        seen = None if observed is None else observed.T
        v, x, second = collapsed_bilinear_sweep(v_key, v, u, x.T, seen, **settings)
        return u, v, x.T, first | second


def measure(z):
    """Of matrices (..., N, K), whatever library they are arrays of."""
    z = z.astype(float)
    shared = z @ z.swapaxes(-1, -2)
    return {
        "has": shared[..., np.arange(3), np.arange(3)],
        "shares": shared[..., [0, 0, 1], [1, 2, 2]],
        "number": z.any(axis=-2).sum(axis=-1).astype(float),
    }


def measures(state):
    u, v, _ = state
    found = {f"u: {name}": value for name, value in measure(u).items()}
    return found | {f"v: {name}": value for name, value in measure(v).items()}


def check_case(case, *, num_chains, num_steps, max_standard_error):
    posterior = case.posterior()

    def kernel(key, state):
        *state, overflow = case.step(key, *state)
        return tuple(state), Info(overflow={"features": overflow})

    starts = case.starts(posterior, num_chains)
    averages = chain_averages(kernel, measures, starts, num_steps=num_steps, seed=5)
    report = check_means(
        averages,
        posterior.expectations(measure),
        title=f"{case}; prior mass left out {posterior.left_out:.1e}",
        max_standard_error=max_standard_error,
    )
    print(report)


PROCESS = Case(num_features=None, alpha=0.1, missing=True, weight_mean=0.5, capacity=5)


@pytest.mark.tiers(exhaustive=["finite, missing", "finite, proposals", "process, missing"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "num_steps"),
    [
        (Case(alpha=0.5, num_proposals=2), 520),
        (Case(alpha=0.5, missing=True, weight_mean=0.5), 520),
        (PROCESS, 250),
    ],
    ids=["finite, proposals", "finite, missing", "process, missing"],
)
def test_sweeps(case, num_steps):
    check_case(case, num_chains=2_000, num_steps=num_steps, max_standard_error=STANDARD_ERROR)


@pytest.mark.slow
def test_the_identity_for_v_gives_the_linear_gaussian_sweep():
    """The same random numbers give the same Z, step by step, in double precision."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        z = rng.random((40, 4)) < 0.5
        x = z @ rng.normal(size=(4, 6)) + 0.5 * rng.normal(size=(40, 6))
        prior = IndianBuffet(jnp.asarray(1.3))
        noise, feature = jnp.asarray(0.5), jnp.asarray(0.9)
        x, z = jnp.asarray(x), jnp.asarray(np.pad(z, ((0, 0), (0, 6))))

        @jax.jit
        def both(key, ours, theirs):
            ours, _, _ = collapsed_bilinear_sweep(
                key, ours, jnp.eye(6, dtype=bool), x, None,
                prior=prior, noise_scale=noise, weight_scale=feature,
            )  # fmt: skip
            theirs, _, _ = collapsed_sweep(
                key, theirs, x, None, prior=prior, scales=Scales(noise, feature)
            )
            return ours, theirs

        ours, theirs = z, z
        for index in range(20):
            ours, theirs = both(jax.random.key(index), ours, theirs)
            np.testing.assert_array_equal(ours, theirs)
        assert (np.asarray(ours) != np.asarray(z)).any()
