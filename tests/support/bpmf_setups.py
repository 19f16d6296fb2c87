"""Models and the set-up of joint-distribution tests of BPMF."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse

from jaxmf import BPMF, HDP, DirichletProcess, Gaussian, NormalInverseWishart, RootInverseGamma
from jaxmf.data import CellFeatures, Features

SHAPE = (4, 3)
CAPACITY = 4  # as many groups as there are rows
# the last row has no cells
ROWS = jnp.array([0, 0, 1, 1, 2, 2, 2], jnp.int32)
COLUMNS = jnp.array([0, 2, 0, 1, 0, 1, 2], jnp.int32)
FAST_COMPILE = {"xla_backend_optimization_level": 0}  # the runs themselves are short
NOISE = Gaussian(RootInverseGamma(12.0, 4.0))


def features(num_rows, width, seed):
    return Features(np.random.default_rng(seed).normal(size=(num_rows, width)).astype(np.float32))


def prior(num_extra):
    """Degrees of freedom enough for moments that the tests average."""
    return NormalInverseWishart(location=0.3, weight=2.0, degrees=14.0 + num_extra, scale=8.0)


def plain(**settings):
    usual = {"likelihood": NOISE, "row_prior": prior(0), "column_prior": prior(1), "offset": 0.5}
    usual |= {"scale": 1.5}  # else the data's
    return BPMF(1, **(usual | settings))


def everything(**settings):
    cells = CellFeatures(
        ROWS, COLUMNS, np.random.default_rng(2).normal(size=(7, 1)).astype(np.float32), SHAPE
    )
    known = {
        "row_features": features(4, 1, 0),
        "column_features": features(3, 2, 1),
        "cell_features": cells,
        "link_precision": dist.Gamma(12.0, 6.0),
        "coefficient_precision": dist.Gamma(12.0, 6.0),
        "offset": (0.5, 1.0, 0.0),
        "column_unit": (1.5, 0.5, 4.0),
    }
    return plain(**(known | settings))


def separate(**settings):
    """Coefficients with a mean of all rows, as there is no link."""
    known = {
        "row_features": features(4, 2, 0),
        "column_features": Features.from_columns({"kind": ["a", "b", "a"]}),
        "coefficient_precision": dist.Gamma(12.0, 6.0),
        "link": False,
    }
    return plain(**(known | settings))


def classed(**settings):
    """Rows of two classes, which share groups; one of them of neither."""
    rows = Features.from_columns({"job": ["a", "b", "", "a"]}, missing="zero")
    usual = {
        "row_features": rows,
        "row_classes": "job",
        "mixture": (HDP(dist.Gamma(3.0, 2.0), 1.2), None),
    }
    return plain(**(usual | settings))


def linked(**settings):
    """Groups of rows and of columns whose vectors depend on features too."""
    usual = {
        "row_features": features(4, 2, 0),
        "mixture": (DirichletProcess(1.5), None),
        "link": True,
        "coefficients": False,
        "link_precision": dist.Gamma(12.0, 80.0),
    }
    return plain(column_prior=prior(0), **(usual | settings))


def parts(**settings):
    """A link of three parts, one with more columns than there are rows, one that is constant."""
    blocks = {
        "one": Features(scipy.sparse.coo_array(np.array([[1.5], [0.0], [-1.0], [0.5]]))),
        "many": features(4, 5, 3),
        "alike": Features.from_columns({"kind": ["a", "b", "a", "a"]}),
    }
    known = {
        "row_features": Features.from_blocks(blocks),
        "link_precision": dist.Gamma(12.0, 6.0),
        "coefficients": False,
        "column_prior": prior(0),
    }
    return plain(**(known | settings))


class Setup(NamedTuple):
    """What `check_kernel` needs beside the kernel."""

    model: BPMF

    def sample_prior(self, key):
        return self.model.simulate_state(key, *SHAPE, capacity=CAPACITY)

    def simulate(self, key, state):
        return self.model.simulate_data(key, state, ROWS, COLUMNS)

    def statistics(self, state, data):
        found = {
            "row": jnp.tanh(state.u[0, 0] * state.v[0, 0]),
            "rows squared": jnp.log(jnp.sum(state.u**2)),
            "columns squared": jnp.log(jnp.sum(state.v**2)),
            "residual": jnp.tanh(data.values[1] - state.u[0, -1]),
            # rounded: two programs add the same values in other orders
            "value": jnp.round(jnp.tanh(jnp.sum(data.values) / 10), 3),
            "row mean": jnp.tanh(state.row_side.moments.mean[0, 0]),
            "column deviation": jnp.log(state.column_side.moments.factor[0, 0, 0]),
            "last deviation": jnp.log(state.row_side.moments.factor[0, -1, -1]),
        }
        if state.noise.size:
            found["noise"] = jnp.log(jnp.abs(state.noise.ravel()[0]))
        if state.row_side.mixture is not None:
            groups = state.row_side.groups
            found |= {
                "pair": groups[0] == groups[1],
                "pairs": jnp.sum(groups[:, None] == groups),
                "near": jnp.where(
                    groups[0] == groups[1], jnp.tanh(jnp.sum((state.u[0] - state.u[1]) ** 2)), 0
                ),
            }
            hyperparameters = state.row_side.mixture.hyperparameters["group"]
            if "rest" in hyperparameters:
                found["rest"] = jnp.log(hyperparameters["rest"])
        others = state.row_side.coefficients
        if others.mean.size:
            found |= {
                "coefficient mean": jnp.tanh(others.mean[-1]),
                "coefficient precision": jnp.log(others.precision[0]),
                "last coefficient precision": jnp.log(others.precision[-1]),
                "coefficients": jnp.log(jnp.sum((state.u[:, -1] - others.mean[-1]) ** 2)),
                "columns' coefficient": jnp.tanh(state.v[0, -1] * others.mean[-1]),
            }
        if state.row_side.link.size:
            link = state.row_side.link
            found |= {
                "link": jnp.tanh(link[0, 0]),
                "link squared": jnp.log(jnp.sum(link**2)),
                "link precision": jnp.log(state.row_side.link_precision[0]),
                "last link precision": jnp.log(state.row_side.link_precision[-1]),
                "linked": jnp.tanh(jnp.sum(link[0] * state.u[0, : link.shape[1]])),
            }
        return found


def whole_step(model):
    """The kernel of a sampler's step."""
    algorithm = model.sampler(capacity=CAPACITY)

    def kernel(key, state, data):
        return algorithm.step(key, state, data, jnp.ones(()))

    return kernel
