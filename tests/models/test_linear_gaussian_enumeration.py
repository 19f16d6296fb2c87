"""The compiled Gibbs sweeps against enumeration of the left-ordered classes.

Thousands of chains start at exact draws of the posterior, take some steps, and their averages are
held against exact expectations: the distribution of the number of features and E[ZZ'].
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln, logsumexp

from jaxmf.data import Dense
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.linear_gaussian.state import LinearGaussianState
from jaxmf.models.linear_gaussian.updates import update_features
from jaxmf.samplers.feature_layout import num_features
from jaxmf.testing import check_means, enumerate_features
from tests.support import oracles
from tests.support.chain_runs import chain_averages

X = np.array([[1.0, -0.3], [0.7, 0.6], [-0.2, 0.9]])
OBSERVED = np.array([[True, True], [True, False], [True, True]])
SCALES = {"noise_scale": 0.6, "feature_scale": 0.9}
CAPACITY = 9
STANDARD_ERROR = 1e-3


class Case(NamedTuple):
    """A prior, with or without a missing cell; classes are listed up to `max_features`."""

    alpha: float = 0.6
    concentration: float = 1.0
    num_features: int | None = None
    bias: bool = False
    missing: bool = False
    max_features: int = 8

    @property
    def model(self):
        return LinearGaussianIBP(
            alpha=self.alpha,
            concentration=self.concentration,
            num_features=self.num_features,
            bias=self.bias,
            **SCALES,
        )

    @property
    def data(self):
        if not self.missing:
            return Dense(jnp.asarray(X, float))
        return Dense(jnp.asarray(np.where(OBSERVED, X, 0), float), jnp.asarray(OBSERVED))

    def posterior(self):
        settings = {
            "alpha": self.alpha,
            "concentration": self.concentration,
            "observed": OBSERVED if self.missing else None,
            **SCALES,
        }
        if self.num_features is not None:
            return oracles.posterior_of_matrices(X, num_features=self.num_features, **settings)
        return oracles.posterior_of_classes(
            X, max_features=self.max_features, bias=self.bias, **settings
        )


def starts(case, posterior, num_chains, *, capacity=CAPACITY):
    """States drawn from the exact posterior."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(posterior.z), num_chains, p=posterior.probability)
    z = posterior.z[drawn]
    x = None
    if case.missing:
        x = oracles.draw_missing(rng, z, X, observed=OBSERVED, **SCALES)
        x = jnp.asarray(x, jnp.result_type(float))
    if case.num_features is None:
        z = np.pad(z, ((0, 0), (0, 0), (0, capacity - z.shape[2])))

    def fixed(value):
        return jnp.full(num_chains, value, jnp.result_type(float))

    return LinearGaussianState(
        z=jnp.asarray(z),
        x=x,
        alpha=fixed(case.alpha),
        concentration=fixed(case.concentration),
        noise_scale=fixed(SCALES["noise_scale"]),
        feature_scale=fixed(SCALES["feature_scale"]),
    )


def statistics(model, state):
    z = state.z[:, model.first_slot() :].astype(float)
    count = num_features(state.z[:, model.first_slot() :])
    upper = jnp.triu_indices(z.shape[0])
    return {
        "probability of K": (count == jnp.arange(5)).astype(float),
        "shared": (z @ z.T)[upper],
    }


def check_case(case, sweep, *, num_chains, num_steps, max_standard_error, capacity=CAPACITY):
    posterior = case.posterior()
    model, data = case.model, case.data
    averages = chain_averages(
        lambda key, state: update_features(model, key, state, data, sweep=sweep),
        lambda state: statistics(model, state),
        starts(case, posterior, num_chains, capacity=capacity),
        num_steps=num_steps,
        seed=17,
    )
    report = check_means(
        averages,
        posterior.expectations(),
        title=f"{sweep} sweep, {case}; prior mass left out {posterior.left_out:.1e}",
        max_standard_error=max_standard_error,
    )
    print(report)


PROCESS = Case(alpha=0.25, concentration=1.5, bias=True, missing=True)
FINITE = Case(alpha=1.5, concentration=1.3, num_features=3, missing=True)
FEW = Case(alpha=0.15, missing=True, max_features=6)  # whole rows cost 2^capacity


@pytest.mark.slow
def test_the_default_sweep_quickly():
    """The case with the most code in it, at a standard error that seconds allow."""
    check_case(PROCESS, "collapsed", num_chains=2_000, num_steps=20, max_standard_error=0.01)


@pytest.mark.tiers(
    exhaustive=["-collapsed-0", "-collapsed-1", "-parallel-0", "-parallel-1", "-whole_rows-"]
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "sweep", "num_steps"),
    [
        (PROCESS, "collapsed", 250),
        (PROCESS, "parallel", 500),
        (FINITE, "collapsed", 500),
        (FINITE, "parallel", 1_250),
        (FEW, "whole_rows", 220),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sweeps(case, sweep, num_steps):
    check_case(
        case,
        sweep,
        num_chains=2_000,
        num_steps=num_steps,
        max_standard_error=STANDARD_ERROR,
        capacity=FEW.max_features if case is FEW else CAPACITY,
    )


class Grid:
    """The posterior with priors on all four hyperparameters, by sums over a grid.

    alpha is integrated out in closed form; the scales meet Z through the likelihood alone, alpha
    and the concentration through the prior of Z alone.
    """

    alpha = (6.0, 40.0)  # Gamma, shape and rate
    concentration = (15.0, 10.0)  # Gamma
    noise = (np.log(0.6), 0.2)  # log-normal
    feature = (np.log(0.9), 0.2)
    num_points = 40

    def __init__(self):
        self.model = LinearGaussianIBP(
            alpha=dist.Gamma(*self.alpha),
            concentration=dist.Gamma(*self.concentration),
            noise_scale=dist.LogNormal(*self.noise),
            feature_scale=dist.LogNormal(*self.feature),
        )
        self.classes = enumerate_features(len(X), CAPACITY - 1)
        offsets = np.linspace(-4.5, 4.5, self.num_points)
        self.noises = np.exp(self.noise[0] + self.noise[1] * offsets)
        self.features = np.exp(self.feature[0] + self.feature[1] * offsets)
        self.log_normal = -0.5 * offsets**2
        self.concentrations = np.exp(np.linspace(np.log(0.35), np.log(5.0), self.num_points))
        self.rates = sum(self.concentrations / (self.concentrations + row) for row in range(len(X)))
        self._sum_priors()
        self._sum_likelihoods()
        log_joint = self.log_prior + logsumexp(self.log_by_noise, axis=0)
        self.probability = np.exp(log_joint - logsumexp(log_joint))
        self.left_out = 1 - np.exp(self.log_prior).sum()

    def _sum_priors(self):
        """(B, C) log p(class, concentration), alpha integrated out, normalised over the grid."""
        shape, rate = self.alpha
        count = self.classes.num_features
        rows = []
        for value, total in zip(self.concentrations, self.rates, strict=True):
            at_one = oracles.log_prior_of_classes(self.classes, alpha=1.0, concentration=value)
            log_alpha = (
                shape * np.log(rate)
                + gammaln(shape + count)
                - gammaln(shape)
                - (shape + count) * np.log(rate + total)
            )
            first, second = self.concentration
            rows.append(at_one + total + log_alpha + first * np.log(value) - second * value)
        self.log_by_concentration = np.array(rows)
        first, second = self.concentration
        weights = first * np.log(self.concentrations) - second * self.concentrations
        self.log_by_concentration -= logsumexp(weights)
        self.log_prior = logsumexp(self.log_by_concentration, axis=0)

    def _log_likelihoods(self, z, noise):
        """(C, F) of classes z (C, N, K) at one noise scale and all feature scales."""
        z = z.astype(float)
        values, vectors = np.linalg.eigh(z @ z.swapaxes(1, 2))
        squares = ((vectors.swapaxes(1, 2) @ X) ** 2).sum(axis=2)
        variance = noise**2 + self.features[:, None] ** 2 * values[:, None]
        return -0.5 * (X.shape[1] * np.log(variance) + squares[:, None] / variance).sum(axis=2)

    def _sum_likelihoods(self):
        """(G, C) log sum over feature scales, and the mean feature scale."""
        by_noise, mean = [], []
        for noise, log_weight in zip(self.noises, self.log_normal, strict=True):
            log_density = self._log_likelihoods(self.classes.z, noise) + self.log_normal
            total = logsumexp(log_density, axis=1)
            by_noise.append(total + log_weight)
            mean.append(np.exp(log_density - total[:, None]) @ self.features)
        self.log_by_noise, self.mean_feature = np.array(by_noise), np.array(mean)

    def expectations(self):
        z, probability = self.classes.z, self.probability
        posterior = oracles.Posterior(z, probability, 0.0, self.left_out, False)
        given_class = np.exp(self.log_by_noise - logsumexp(self.log_by_noise, axis=0))
        by_concentration = np.exp(self.log_by_concentration - self.log_prior)
        shape, rate = self.alpha
        mean_alpha = (shape + self.classes.num_features) * (
            (1 / (rate + self.rates)) @ by_concentration
        )
        return {
            **posterior.expectations(),
            "alpha": probability @ mean_alpha,
            "concentration": probability @ (self.concentrations @ by_concentration),
            "noise scale": probability @ (self.noises @ given_class),
            "feature scale": probability @ (given_class * self.mean_feature).sum(axis=0),
        }

    def starts(self, num_chains):
        """States drawn from the posterior on the grid."""
        rng = np.random.default_rng(1)
        drawn = rng.choice(len(self.probability), num_chains, p=self.probability)

        def choose(log_weights):
            """An index of the first axis for each chain."""
            total = np.cumsum(np.exp(log_weights - log_weights.max(axis=0)), axis=0)
            return (total < rng.random(num_chains) * total[-1]).sum(axis=0)

        noise = choose(self.log_by_noise[:, drawn])
        z = self.classes.z[drawn]
        feature = np.empty(num_chains, int)
        for index in np.unique(noise):
            chains = np.flatnonzero(noise == index)
            log_density = self._log_likelihoods(z[chains], self.noises[index]) + self.log_normal
            total = np.cumsum(np.exp(log_density - log_density.max(axis=1)[:, None]), axis=1)
            uniforms = rng.random((len(chains), 1))
            feature[chains] = (total < uniforms * total[:, -1:]).sum(axis=1)
        concentration = choose(self.log_by_concentration[:, drawn])
        shape, rate = self.alpha
        alpha = rng.gamma(shape + z.any(axis=1).sum(axis=1)) / (rate + self.rates[concentration])
        scalars = (
            alpha,
            self.concentrations[concentration],
            self.noises[noise],
            self.features[feature],
        )
        dtype = jnp.result_type(float)
        padded = np.pad(z, ((0, 0), (0, 0), (0, CAPACITY - z.shape[2])))
        return LinearGaussianState(
            jnp.asarray(padded), None, *(jnp.asarray(scalar, dtype) for scalar in scalars)
        )


@pytest.mark.tiers(exhaustive=["collapsed-230", "parallel-320"])
@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "num_steps"), [("collapsed", 230), ("parallel", 320)])
def test_the_whole_step_with_priors_on_hyperparameters(sweep, num_steps):
    grid = Grid()
    assert grid.left_out < 1e-6
    model, data = grid.model, Dense(jnp.asarray(X, float))
    step = model.sampler(sweep=sweep, anneal=False).step

    def measure(state):
        return {
            **statistics(model, state),
            "alpha": state.alpha,
            "concentration": state.concentration,
            "noise scale": state.noise_scale,
            "feature scale": state.feature_scale,
        }

    averages = chain_averages(
        lambda key, state: step(key, state, data, jnp.asarray(1.0)),
        measure,
        grid.starts(2_000),
        num_steps=num_steps,
        seed=18,
    )
    exact = grid.expectations()
    title = f"whole step, {sweep}; prior mass left out {grid.left_out:.1e}"
    for names, standard_error in (
        (("probability of K", "shared"), STANDARD_ERROR),
        (("alpha", "concentration", "noise scale", "feature scale"), 2 * STANDARD_ERROR),
    ):
        report = check_means(
            {name: averages[name] for name in names},
            {name: exact[name] for name in names},
            title=title,
            max_standard_error=standard_error,
        )
        print(report)
