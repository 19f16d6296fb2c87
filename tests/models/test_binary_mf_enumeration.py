"""Compiled chains of binary matrix factorisation against exact posteriors of 3 x 3 data.

Gaussian: all pairs (U, V), the weights summed out in closed form. Logistic and Poisson: two
features of rows and one of columns, the two weights summed out by quadrature. Thousands of chains
start at the exact posterior and their averages are held against exact expectations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, roots_hermitenorm, roots_laguerre

from jaxmf import BetaBernoulli, BinaryMF, IndianBuffet
from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.models.binary_mf import BinaryMFState, updates
from jaxmf.testing import check_means
from tests.support import bilinear_oracle
from tests.support.binary_mf_setups import with_likelihood
from tests.support.chain_runs import chain_averages

OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, True]])
DATA = {
    "gaussian": np.array([[1.1, -0.3, 0.8], [0.7, 0.6, -0.4], [-0.2, 0.9, 1.2]]),
    "logistic": np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "poisson": np.array([[3.0, 0.0, 1.0], [2.0, 1.0, 0.0], [0.0, 0.0, 4.0]]),
}
NOISE, WEIGHT, MEAN, SHAPE, RATE, BASE = 0.6, 0.9, 0.5, 1.3, 0.8, 0.4
MEANS = ((0.9, -0.6), (0.0, 0.4))
STANDARD_ERROR = 1e-3
CAPACITY = 7


class Case(NamedTuple):
    """A likelihood, numbers of features (None for processes) and a way of sampling."""

    likelihood: str = "gaussian"
    num_features: tuple[int | None, int | None] = (2, 2)
    weights: str = "explicit"
    missing: bool = True
    alpha: float = 1.0
    diagonal: bool = False
    max_features: int = 4
    weight_mean: float | tuple[tuple[float, ...], ...] = MEAN

    @property
    def model(self):
        priors = [
            IndianBuffet(self.alpha, 1.4)
            if num_features is None
            else BetaBernoulli(self.alpha, 1.4, num_features)
            for num_features in self.num_features
        ]
        scales = {
            "gaussian": {
                "noise_scale": NOISE,
                "weight_scale": WEIGHT,
                "weight_mean": self.weight_mean,
            },
            "logistic": {"weight_scale": 1.5, "weight_mean": MEAN},
            "poisson": {"weight_shape": SHAPE, "weight_rate": RATE, "base_rate": BASE},
        }
        return BinaryMF(
            row_prior=priors[0],
            column_prior=priors[1],
            diagonal=self.diagonal,
            **with_likelihood(self.likelihood, scales[self.likelihood]),
        )

    @property
    def observed(self):
        return OBSERVED if self.missing else None

    @property
    def data(self):
        x = DATA[self.likelihood]
        if not self.missing:
            return Dense(jnp.asarray(x, float))
        return Dense(jnp.asarray(np.where(OBSERVED, x, 0), float), jnp.asarray(OBSERVED))

    def sides(self):
        return [
            bilinear_oracle.process_side(3, self.max_features, alpha=self.alpha, concentration=1.4)
            if num_features is None
            else bilinear_oracle.finite_side(3, num_features, alpha=self.alpha, concentration=1.4)
            for num_features in self.num_features
        ]


def weight_nodes(likelihood, num_weights, *, num_nodes=40):
    """Nodes (Q, M) of the prior of some weights and their log masses (Q,)."""
    if likelihood == "logistic":
        nodes, masses = roots_hermitenorm(num_nodes)
        nodes, log_masses = MEAN + 1.5 * nodes, np.log(masses)
    else:
        nodes, masses = roots_laguerre(num_nodes)
        log_masses = np.log(masses) + (SHAPE - 1) * np.log(nodes) - gammaln(SHAPE)
        nodes = nodes / RATE
    log_masses = log_masses - logsumexp(log_masses)
    grid = np.stack(np.meshgrid(*[nodes] * num_weights, indexing="ij"), axis=-1)
    total = sum(np.meshgrid(*[log_masses] * num_weights, indexing="ij"))
    return grid.reshape(-1, num_weights), total.reshape(-1)


class Quadrature:
    """The posterior of (U, V) with U (3, K), V (3, 1), W summed out numerically."""

    def __init__(self, case):
        self.u, self.v = case.sides()
        x, likelihood = DATA[case.likelihood], case.likelihood
        self.nodes, log_masses = weight_nodes(likelihood, self.u.z.shape[2])
        seen = OBSERVED if case.missing else np.ones_like(OBSERVED)
        images = self.nodes @ np.swapaxes(self.u.z, 1, 2).astype(float)  # (A, Q, 3)
        # columns of V are 0 or 1: a column of X has one of two likelihoods
        log_columns = []
        for on in (0.0, 1.0):
            eta = (on * images)[..., None]
            if likelihood == "logistic":
                each = x * eta - np.logaddexp(0, eta)
            else:
                each = x * np.log(BASE + eta) - (BASE + eta) - gammaln(x + 1)
            log_columns.append((each * seen).sum(axis=2))
        chosen = np.stack(log_columns)  # (2, A, Q, 3)
        bits = self.v.z[:, :, 0].astype(int)
        log_likelihood = sum(chosen[bits[:, j], :, :, j] for j in range(3))  # (B, A, Q)
        self.log_terms = np.swapaxes(log_likelihood, 0, 1) + log_masses
        log_joint = logsumexp(self.log_terms, axis=2)
        log_joint += self.u.log_prior[:, None] + self.v.log_prior
        self.joint = bilinear_oracle.Joint(self.u, self.v, np.exp(log_joint - logsumexp(log_joint)))
        conditional = np.exp(self.log_terms - logsumexp(self.log_terms, axis=2, keepdims=True))
        self.mean_weights = conditional @ self.nodes  # (A, B, K)

    def draw(self, rng, num_draws):
        flat = rng.choice(self.joint.probability.size, num_draws, p=self.joint.probability.ravel())
        rows, columns = np.unravel_index(flat, self.joint.probability.shape)
        terms = self.log_terms[rows, columns]
        total = np.cumsum(np.exp(terms - terms.max(axis=1, keepdims=True)), axis=1)
        index = (total < rng.random((num_draws, 1)) * total[:, -1:]).sum(axis=1)
        return self.u.z[rows], self.v.z[columns], self.nodes[index][..., None]

    def expectations(self):
        found = self.joint.expectations(measure)
        image = np.einsum("ank,abk->abn", self.u.z.astype(float), self.mean_weights)
        image = np.einsum("abn,bm->abnm", image, self.v.z[:, :, 0].astype(float))
        return found | {"entries": np.einsum("ab,abnm->nm", self.joint.probability, image)}


class Closed:
    """The posterior of (U, V) with Gaussian cells, W summed out in closed form."""

    def __init__(self, case):
        self.case = case
        self.settings = {
            "noise_scale": NOISE,
            "weight_scale": WEIGHT,
            "weight_mean": np.asarray(case.weight_mean),
        }
        u, v = case.sides()
        x = DATA["gaussian"]
        distribution = (
            bilinear_oracle.plaid_cell_distributions
            if case.diagonal
            else bilinear_oracle.cell_distributions
        )
        self.settings["distribution"] = distribution
        self.joint = bilinear_oracle.joint_posterior(
            u, v, x, observed=case.observed, **self.settings
        )

    def draw(self, rng, num_draws):
        u, v = self.joint.draw(rng, num_draws)
        return u, v, None

    def expectations(self):
        return self.joint.expectations(measure)


def measure(z):
    """Of matrices (..., 3, K), whatever library they are arrays of."""
    z = z.astype(float)
    shared = z @ z.swapaxes(-1, -2)
    return {
        "has": shared[..., np.arange(3), np.arange(3)],
        "shares": shared[..., [0, 0, 1], [1, 2, 2]],
    }


def measures(case, state):
    found = {f"u: {name}": value for name, value in measure(state.u).items()}
    found |= {f"v: {name}": value for name, value in measure(state.v).items()}
    if case.likelihood != "gaussian":
        found["entries"] = (
            state.u.astype(float) @ state.weights @ jnp.swapaxes(state.v, -1, -2).astype(float)
        )
    return found


def starts(case, exact, num_chains):
    """States drawn from the exact posterior; weights of Gaussian cells and missing cells are not,
    and come to their distribution in the burn-in."""
    rng = np.random.default_rng(0)
    u, v, weights = exact.draw(rng, num_chains)
    dtype = jnp.result_type(float)

    def padded(z, num_features):
        return (
            z
            if num_features is not None
            else np.pad(z, ((0, 0), (0, 0), (0, CAPACITY - z.shape[2])))
        )

    u, v = (padded(z, value) for z, value in zip((u, v), case.num_features, strict=True))
    x = None
    if case.weights == "collapsed":
        weights = None
        if case.missing:
            x = bilinear_oracle.draw_missing(
                rng, u, v, DATA["gaussian"], observed=OBSERVED, **exact.settings
            )
    elif weights is None:
        weights = np.zeros((num_chains, u.shape[2], v.shape[2]))
    hyperparameters = {
        "gaussian": (NOISE, WEIGHT, 1.0, 1.0, 1.0),
        "logistic": (1.0, 1.5, 1.0, 1.0, 1.0),
        "poisson": (1.0, 1.0, SHAPE, RATE, BASE),
    }[case.likelihood]
    hyperparameters = (case.alpha, 1.4, case.alpha, 1.4, *hyperparameters)
    return BinaryMFState(
        jnp.asarray(u),
        jnp.asarray(v),
        None if weights is None else jnp.asarray(weights, dtype),
        None if x is None else jnp.asarray(x, dtype),
        *(jnp.full(num_chains, value, dtype) for value in hyperparameters),
    )


def check_case(case, *, num_chains, num_steps, max_standard_error, kernel=None):
    exact = (Closed if case.likelihood == "gaussian" else Quadrature)(case)
    model, data = case.model, case.data
    step = model.sampler(weights=case.weights, capacity=CAPACITY).step
    averages = chain_averages(
        kernel or (lambda key, state: step(key, state, data, jnp.asarray(1.0))),
        lambda state: measures(case, state),
        starts(case, exact, num_chains),
        num_steps=num_steps,
        num_burn_in=10,
        seed=5,
    )
    left_out = exact.joint.left_out
    report = check_means(
        averages,
        exact.expectations(),
        title=f"{case}; prior mass left out {left_out:.1e}",
        max_standard_error=max_standard_error,
    )
    print(report)


PROCESS = (None, None)
# each with the steps that bring the standard error under 0.001: weights that are kept make the bits
# slower, most of all those of layers and of counts
CASES = {
    "collapsed": (Case(weights="collapsed"), 400),
    "explicit": (Case(), 800),
    "explicit, complete": (Case(missing=False), 800),
    "diagonal": (Case(diagonal=True), 800),
    "diagonal, collapsed": (Case(diagonal=True, weights="collapsed"), 800),
    "processes, collapsed": (Case(num_features=PROCESS, alpha=0.2, weights="collapsed"), 300),
    "processes, explicit": (Case(num_features=PROCESS, alpha=0.2), 500),
    "matrix of means, collapsed": (Case(weights="collapsed", weight_mean=MEANS), 500),
    "matrix of means, explicit": (Case(weight_mean=MEANS), 800),
    "process and finite": (Case(num_features=(None, 2), alpha=0.2, missing=False), 500),
    "logistic": (Case("logistic", (2, 1)), 700),
    "poisson": (Case("poisson", (2, 1)), 1_700),
}


@pytest.mark.tiers(
    exhaustive=[
        "collapsed",
        "diagonal",
        "diagonal, collapsed",
        "explicit",
        "explicit, complete",
        "logistic",
        "matrix of means, collapsed",
        "matrix of means, explicit",
        "poisson",
        "process and finite",
        "processes, collapsed",
        "processes, explicit",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize(("case", "num_steps"), CASES.values(), ids=CASES)
def test_the_chain(case, num_steps):
    check_case(case, num_chains=2_000, num_steps=num_steps, max_standard_error=STANDARD_ERROR)


@pytest.mark.slow
def test_weights_that_are_never_drawn_are_caught():
    """A chain that keeps the weights it starts from."""
    case = Case("logistic", (2, 1))
    model, data = case.model, case.data

    def twin(key, state):
        state, _ = updates.update_rows(model, jax.random.fold_in(key, 0), state, data)
        # the prior's mean instead of a draw
        return state._replace(weights=jnp.full_like(state.weights, MEAN)), Info(
            overflow={"row_features": jnp.asarray(False)}
        )

    with pytest.raises(AssertionError, match="FAILED"):
        check_case(case, num_chains=1_000, num_steps=30, max_standard_error=0.02, kernel=twin)
