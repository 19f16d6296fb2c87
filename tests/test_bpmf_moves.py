"""Moves of BPMF that change no cell: exact, by the joint density of the points moved to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.models.bpmf import moves
from jaxmf.samplers.factors import shifts
from tests.bpmf_setups import COLUMNS, ROWS, SHAPE, everything, parts, plain


def density_along(model, move, num_normals):
    """log p + |normals|^2 / 2 at points a move goes to; log likelihoods there, and at the start.

    Where the move is a draw from the conditional along its orbit, the first are all alike.
    """
    key = jax.random.key(3)
    state, data = model.simulate(key, ROWS, COLUMNS, SHAPE)
    prepared = model.prepare(data)
    normals = np.random.default_rng(1).normal(size=(4, num_normals))
    normals[0] = 0

    @jax.jit
    def at(one):
        moved = move(model, one, state, prepared)
        return (
            model.log_joint(moved, prepared) + jnp.sum(one**2) / 2,
            model.log_likelihood(moved, prepared),
        )

    found = [at(jnp.asarray(one)) for one in normals]
    start = model.log_likelihood(state, prepared)
    return np.array([one for one, _ in found]), np.array([one for _, one in found]), float(start)


def level(model, normals, state, data):
    return moves._shift_level(model, normals, state)


def cells(model, normals, state, data):
    return moves._shift_cells(model, normals, state)


def of_parts(model, normals, state, data):
    none = jnp.zeros((2, 2))
    # only the last part has one level a row
    return moves._shift_parts(model, jnp.concatenate([none, normals[None]]), state, data)


CASES = {
    "level": (plain, level, 2),
    "level of the linked": (everything, level, 2),
    "cells": (everything, cells, 1),
    "part of indicators": (parts, of_parts, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_moves_have_their_conditional_and_change_no_cell(name):
    make, move, number = CASES[name]
    with jax.enable_x64(True):
        densities, likelihoods, start = density_along(make(), move, number)
    np.testing.assert_allclose(densities, densities[0], rtol=1e-9)
    np.testing.assert_allclose(likelihoods, start, rtol=1e-9)


def test_a_move_of_factors_that_leaves_their_covariance_is_caught(monkeypatch):
    """Broken twin: the columns' biases sheared, their covariance with the factors as it was."""
    right = shifts.shift_level

    def wrong(normals, rows, columns, **priors):
        moved, others = right(normals, rows, columns, **priors)
        law = others.law._replace(factor=columns.law.factor)
        return moved, others._replace(law=law)

    monkeypatch.setattr(shifts, "shift_level", wrong)
    with jax.enable_x64(True):
        densities, _, _ = density_along(plain(), level, 2)
    assert np.ptp(densities) > 0.1
