"""The free energy of a small matrix cell by cell, written apart from the library."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.variational_bayes import Normal, Parameters, Priors, lay_out
from jaxmf.variational_bayes.pieces import Layout

SIZE, FACTORS = 9, 2


class Problem(NamedTuple):
    """A square matrix of -1 and 1 with some cells missing, and parameters drawn at random."""

    x: np.ndarray
    observed: np.ndarray
    layout: Layout
    parameters: Parameters


def problem(seed=0, *, biases=True, missing=True) -> Problem:
    generator = np.random.default_rng(seed)
    ones = generator.random((SIZE, SIZE)) < 0.3
    ones[:, 4] = False
    ones[2] = False
    gaps = np.argwhere(~ones)[generator.permutation((~ones).sum())[:4]].T
    observed = np.ones(ones.shape, bool)
    if missing:
        observed[gaps[0], gaps[1]] = False
    layout = lay_out(*np.nonzero(ones), shape=ones.shape, missing=tuple(gaps) if missing else None)

    def draw(*shape):
        mean = generator.normal(size=shape)
        return Normal(jnp.asarray(mean), jnp.asarray(np.exp(generator.normal(size=shape) - 1)))

    parameters = Parameters(
        rows=draw(SIZE, FACTORS),
        columns=draw(SIZE, FACTORS),
        row_bias=draw(SIZE) if biases else None,
        column_bias=draw(SIZE) if biases else None,
        intercept=draw(),
        priors=Priors(draw(FACTORS), draw(FACTORS), *(jnp.asarray(v) for v in (0.7, 1.3, 2.0))),
        noise=jnp.asarray(0.6),
    )
    return Problem(np.where(ones, 1.0, -1.0), observed, layout, parameters)


def transposed(problem: Problem) -> Problem:
    """The same with rows and columns exchanged."""
    p, layout = problem.parameters, problem.layout
    priors = p.priors._replace(
        rows=p.priors.columns,
        columns=p.priors.rows,
        row_bias=p.priors.column_bias,
        column_bias=p.priors.row_bias,
    )
    return Problem(
        problem.x.T,
        problem.observed.T,
        layout._replace(rows=layout.columns, columns=layout.rows),
        p._replace(
            rows=p.columns,
            columns=p.rows,
            row_bias=p.column_bias,
            column_bias=p.row_bias,
            priors=priors,
        ),
    )


def score_moments(p: Parameters, *, misprint: bool = False):
    """Mean and variance of every score; the misprint is that of eq 7 of the paper."""
    (a, a_var), (s, s_var) = p.rows, p.columns
    mean = jnp.einsum("ik,jk->ij", a, s) + p.intercept.mean
    other = s if misprint else s_var
    variance = (
        jnp.einsum("ik,jk->ij", a**2, other)
        + jnp.einsum("ik,jk->ij", a_var, s**2)
        + jnp.einsum("ik,jk->ij", a_var, s_var)
        + p.intercept.variance
    )
    if p.row_bias is not None:
        mean += p.row_bias.mean[:, None] + p.column_bias.mean[None]
        variance += p.row_bias.variance[:, None] + p.column_bias.variance[None]
    return mean, variance


def cost_at_zeta(p, x, observed, likelihood, zeta_square, *, misprint=False):
    """Sum over the observed cells of the bound at fixed zeta, or of the Gaussian's cost."""
    mean, variance = score_moments(p, misprint=misprint)
    if isinstance(likelihood, Gaussian):
        square = (x - mean) ** 2 + variance
        cells = square / (2 * p.noise) + 0.5 * jnp.log(2 * jnp.pi * p.noise)
    elif likelihood.bound == "tilted":
        tilt = jax.lax.stop_gradient(best_tilt(mean, variance))
        cells = jax.nn.softplus(mean + (1 - 2 * tilt) * variance / 2)
        cells += tilt**2 * variance / 2 - (1 + x) * mean / 2
    else:
        zeta = jnp.sqrt(zeta_square)
        curvature = jnp.tanh(zeta / 2) / (2 * zeta)
        cells = jax.nn.softplus(-zeta) + zeta / 2 - x * mean / 2
        cells += curvature / 2 * (mean**2 + variance - zeta_square)
    return jnp.sum(jnp.where(observed, cells, 0))


def best_tilt(mean, variance):
    """The root of t = sigma(mean + (1 - 2 t) variance / 2), by bisection."""

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        above = jax.nn.sigmoid(mean + (1 - 2 * middle) * variance / 2) > middle
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    ends = jnp.zeros_like(mean), jnp.ones_like(mean)
    return jax.lax.fori_loop(0, 60, halve, ends)[0]


def divergence(p: Parameters):
    """KL(Q || prior), term by term."""

    def one(q, mean, variance):
        terms = ((q.mean - mean) ** 2 + q.variance) / variance - jnp.log(q.variance / variance) - 1
        return jnp.sum(terms) / 2

    total = one(p.rows, *p.priors.rows) + one(p.columns, *p.priors.columns)
    total += one(p.intercept, 0, p.priors.intercept)
    if p.row_bias is not None:
        total += one(p.row_bias, 0, p.priors.row_bias)
        total += one(p.column_bias, 0, p.priors.column_bias)
    return total


def best_zeta_square(p: Parameters, *, misprint=False):
    mean, variance = score_moments(p, misprint=misprint)
    return mean**2 + variance


def dense_free_energy(p, x, observed, likelihood, *, zeta_square=None, misprint=False):
    if zeta_square is None:
        zeta_square = best_zeta_square(p, misprint=misprint)
    cost = cost_at_zeta(p, x, observed, likelihood, zeta_square, misprint=misprint)
    return cost + divergence(p)
