"""Models and the set-up of joint-distribution tests of binary matrix factorisation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from jaxmf import Bernoulli, BetaBernoulli, BinaryMF, Gaussian, IndianBuffet, Poisson
from jaxmf.data import Dense
from jaxmf.models.binary_mf.state import HYPERPARAMETERS
from tests.support.joint_checks import check_setup

SHAPE = (4, 3)
OBSERVED = jnp.array(
    [[True, True, False], [False, True, True], [True, True, True], [True, False, True]]
)
PROCESS = {"row_prior": IndianBuffet(0.6, 1.4), "column_prior": IndianBuffet(0.7, 1.2)}
FINITE = {"row_prior": BetaBernoulli(1.2, 1.4, 2), "column_prior": BetaBernoulli(1.0, 1.2, 2)}
FREE = {
    "row_prior": IndianBuffet(dist.Gamma(20.0, 50.0), dist.Gamma(8.0, 6.0)),
    "column_prior": IndianBuffet(dist.Gamma(20.0, 45.0), 1.2),
}
FIXED = {
    "gaussian": {"noise_scale": 0.6, "weight_scale": 1.0, "weight_mean": 0.4},
    "logistic": {"weight_scale": 1.5, "weight_mean": 0.4},
    "poisson": {"weight_shape": 1.3, "weight_rate": 0.8, "base_rate": 0.4},
}
PRIORS = {
    "gaussian": {
        "noise_scale": dist.LogNormal(-0.5, 0.3),
        "weight_scale": dist.LogNormal(0.0, 0.3),
        "weight_mean": 0.4,
    },
    "logistic": {"weight_scale": dist.LogNormal(0.3, 0.3), "weight_mean": 0.4},
    "poisson": {
        "weight_shape": dist.LogNormal(0.3, 0.3),
        "weight_rate": dist.Gamma(8.0, 10.0),
        "base_rate": dist.Gamma(6.0, 15.0),
    },
}
KNOWN = {
    "row_bias": True,
    "fixed_column_features": jnp.array([[True], [False], [True]]),
}
# as many given features on both sides
BOTH = {"row_bias": True, "column_bias": True}
CAPACITY = 12


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: BinaryMF
    missing: bool = True
    collapsed: bool = False

    def sample_prior(self, key):
        """A state; without weights and with missing cells it holds a complete matrix, which the
        data will hide."""
        state_key, x_key = jax.random.split(key)
        state = self.model.simulate_state(state_key, *SHAPE, CAPACITY)
        if self.collapsed:
            x = self.model.simulate_data(x_key, state) if self.missing else None
            state = state._replace(weights=None, x=x)
        return state

    def simulate(self, key, state):
        if state.x is not None:
            return Dense(jnp.where(OBSERVED, state.x, 0), OBSERVED)
        weights_key, x_key = jax.random.split(key)
        if state.weights is None:
            prior = self.model.weight_prior(state)
            shape = state.u.shape[1], state.v.shape[1]
            state = state._replace(weights=prior.sample(weights_key, *shape))
        x = self.model.simulate_data(x_key, state)
        return Dense(jnp.where(OBSERVED, x, 0), OBSERVED) if self.missing else Dense(x)

    def statistics(self, state, data):
        u = state.u[:, self.model.num_fixed_rows() :].astype(float)
        v = state.v[:, self.model.num_fixed_columns() :].astype(float)
        x = data.values if state.x is None else state.x
        rows, columns = u @ u.T, v @ v.T
        found = {
            "row features": jnp.sum(jnp.any(u > 0, axis=0)),
            "column features": jnp.sum(jnp.any(v > 0, axis=0)),
            "bits of U": jnp.sum(u).astype(int),
            "bits of V": jnp.sum(v).astype(int),
            "rows 0, 1 share": rows[0, 1].astype(int),
            "columns 0, 2 share": columns[0, 2].astype(int),
            "features of one row": jnp.sum(jnp.sum(u, axis=0) == 1),
            "features of one column": jnp.sum(jnp.sum(v, axis=0) == 1),
            "shared times product": rows[0, 2] * x[0, 0] * x[2, 0],
            "columns times product": columns[1, 2] * x[2, 1] * x[2, 2],
            "bits times size": jnp.sum(jnp.diagonal(rows)[:, None] * x**2),
            "column bits times size": jnp.sum(jnp.diagonal(columns) * x**2),
        }
        if state.weights is not None:
            eta = state.u.astype(float) @ state.weights @ state.v.T.astype(float)
            found |= {
                "entry 0, 0": eta[0, 0],
                "entry 1, 0": eta[1, 0],
                "entries times data": jnp.sum(eta * x),
                "squares of entries": jnp.sum(eta**2),
                "weights": jnp.sum(state.weights),
                "squares of weights": jnp.sum(jnp.log1p(state.weights**2)),
            }
        if state.x is not None:
            found |= {
                "missing cell": x[0, 2],
                "missing times its row": x[0, 2] * x[0, 1] * rows[0, 0],
            }
        if jnp.ndim(self.model.weight_mean):  # slots are not alike
            through = u.T @ x @ v
            found |= {"slots 0, 1": through[0, 1], "slots 1, 0": through[1, 0]}
        for name in HYPERPARAMETERS:
            if hasattr(self.model.hyperparameters[name], "log_prob"):
                value = getattr(state, name)
                found[name] = value
                found[f"{name} times bits"] = value * (jnp.sum(u) + jnp.sum(v))
                found[f"log {name} times size"] = jnp.log(value) * jnp.sum(x**2)
        return found

    def check(self, kernel, *, key=None, **options):
        key = jax.random.key(31) if key is None else key
        return check_setup(self, kernel, key=key, **options)


LIKELIHOODS = {"gaussian": Gaussian, "logistic": Bernoulli, "poisson": Poisson}


def with_likelihood(name, hyperparameters):
    """Settings of BinaryMF: the likelihood, which takes its hyperparameters, and the others."""
    likelihood = LIKELIHOODS[name]
    cell_settings = {
        key: value for key, value in hyperparameters.items() if key in likelihood.hyperparameters
    }
    others = {key: value for key, value in hyperparameters.items() if key not in cell_settings}
    return {"likelihood": likelihood(**cell_settings), **others}


def make(likelihood, *, priors=PROCESS, hyperparameters=FIXED, **settings):
    return BinaryMF(
        **priors, **with_likelihood(likelihood, hyperparameters[likelihood]), **settings
    )


def whole_step(model, **options):
    step = model.sampler(**options).step
    return lambda key, state, data: step(key, state, data, jnp.asarray(1.0))


def must_fail(setup, kernel, **options):
    with pytest.raises(AssertionError, match="FAILED") as caught:
        setup.check(kernel, **{"num_replicates": 2_048, **options})
    print(caught.value)
