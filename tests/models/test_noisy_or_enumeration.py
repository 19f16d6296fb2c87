"""The compiled noisy-OR sweeps against enumeration of the left-ordered classes.

Thousands of chains start at exact draws of the posterior, take some steps, and their averages are
held against exact expectations: the distribution of the number of causes, E[ZZ'] and the activity
of causes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.data import Dense
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.noisy_or.noisy_or_spec import NoisyOrState
from jaxmf.models.noisy_or.updates import update_features
from jaxmf.testing import check_means
from tests.support import noisy_or_oracles as oracles
from tests.support.chain_runs import chain_averages

X = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, True]])
PARAMETERS = {"cause_probability": 0.4, "efficacy": 0.8, "leak": 0.1}
CAPACITY = 9
STANDARD_ERROR = 1e-3


class Case(NamedTuple):
    """A prior, with or without missing cells; classes are listed up to `max_features`."""

    alpha: float = 0.3
    concentration: float = 1.0
    num_features: int | None = None
    missing: bool = False
    max_features: int = 8

    @property
    def model(self):
        return NoisyOrIBP(
            alpha=self.alpha,
            concentration=self.concentration,
            num_features=self.num_features,
            **PARAMETERS,
        )

    @property
    def observed(self):
        return OBSERVED if self.missing else np.ones(X.shape, bool)

    @property
    def data(self):
        if not self.missing:
            return Dense(X)
        # ones beneath the missing cells: they must not matter
        values = jnp.asarray(np.where(OBSERVED, X, 1), float)
        whole = Dense(np.where(OBSERVED, X, np.nan))
        return jax.tree.unflatten(jax.tree.structure(whole), [values, whole.observed])

    def posterior(self):
        settings = {"alpha": self.alpha, "concentration": self.concentration, **PARAMETERS}
        if self.num_features is not None:
            return oracles.posterior_of_matrices(
                X, self.observed, num_features=self.num_features, **settings
            )
        return oracles.posterior_of_classes(
            X, self.observed, max_features=self.max_features, **settings
        )

    def expectations(self, posterior):
        activity = oracles.expected_activity(posterior.z, X, self.observed, **PARAMETERS)
        if self.num_features is None:
            activity = activity * posterior.z.any(axis=1)[:, :, None]
        return {
            **posterior.expectations(),
            "active": np.einsum("c,ckd->d", posterior.probability, activity),
            "active causes": np.einsum(
                "c,cnk,ckd->nd", posterior.probability, posterior.z, activity
            ),
        }


def starts(case, posterior, num_chains, capacity=CAPACITY):
    """States drawn from the exact posterior."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(posterior.z), num_chains, p=posterior.probability)
    z = posterior.z[drawn]
    y = oracles.draw_activity(rng, z, X, case.observed, **PARAMETERS)
    if case.num_features is None:
        y &= z.any(axis=1)[:, :, None]
        z = np.pad(z, ((0, 0), (0, 0), (0, capacity - z.shape[2])))
        y = np.pad(y, ((0, 0), (0, capacity - y.shape[1]), (0, 0)))

    def fixed(value):
        return jnp.full(num_chains, value, jnp.result_type(float))

    return NoisyOrState(
        z=jnp.asarray(z),
        y=jnp.asarray(y),
        alpha=fixed(case.alpha),
        concentration=fixed(case.concentration),
        **{name: fixed(value) for name, value in PARAMETERS.items()},
    )


def statistics(state):
    z, y = state.z.astype(float), state.y.astype(float)
    num_features = jnp.sum(jnp.any(state.z, axis=0))
    return {
        "probability of K": (num_features == jnp.arange(5)).astype(float),
        "shared": (z @ z.T)[jnp.triu_indices(z.shape[0])],
        "active": jnp.sum(y, axis=0),
        "active causes": z @ y,
    }


def kernel_of(case, kind):
    if kind == "step":
        step = case.model.sampler().step
        return lambda key, state: step(key, state, case.data, jnp.asarray(1.0))
    return lambda key, state: update_features(case.model, key, state, case.data, sweep=kind)


def check_case(case, kind, *, num_chains=2_000, num_steps, max_standard_error=STANDARD_ERROR):
    posterior = case.posterior()
    kernel, start = kernel_of(case, kind), starts(case, posterior, num_chains)
    averages = chain_averages(kernel, statistics, start, num_steps=num_steps, seed=17)
    print(
        check_means(
            averages,
            case.expectations(posterior),
            title=f"{kind}, {case}; prior mass left out {posterior.left_out:.1e}",
            max_standard_error=max_standard_error,
        )
    )


PROCESS = Case(concentration=1.5)
MISSING = Case(missing=True)
FINITE = Case(alpha=1.5, concentration=1.3, num_features=3, missing=True)


def test_the_likelihood_with_activity_summed_out():
    """The oracle at cost 2^N against a sum over all Y."""
    z = oracles.all_matrices(3, 2)
    total = 0.0
    for y in oracles.all_matrices(2, 3):
        prior = np.where(y, PARAMETERS["cause_probability"], 1 - PARAMETERS["cause_probability"])
        whole = np.broadcast_to(y, (len(z), *y.shape))
        log_likelihood = oracles.log_likelihood_given_activity(z, whole, X, OBSERVED, **PARAMETERS)
        total = total + prior.prod() * np.exp(log_likelihood)
    np.testing.assert_allclose(
        np.exp(oracles.log_likelihood(z, X, OBSERVED, **PARAMETERS)), total, rtol=1e-12
    )


@pytest.mark.tiers(exhaustive=["-step--1", "-parallel--0", "-parallel--1", "-sequential--"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kind", "num_steps", "standard_error"),
    [
        (MISSING, "step", 100, 2 * STANDARD_ERROR),
        (MISSING, "step", 340, STANDARD_ERROR),
        (PROCESS, "parallel", 150, 2 * STANDARD_ERROR),
        (FINITE, "sequential", 150, 2 * STANDARD_ERROR),
        (FINITE, "parallel", 150, 2 * STANDARD_ERROR),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sweeps(case, kind, num_steps, standard_error):
    check_case(case, kind, num_steps=num_steps, max_standard_error=standard_error)
