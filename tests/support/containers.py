"""Containers that users cannot make."""

import jax
import jax.numpy as jnp

from jaxmf.data import Dense


def without_cells(shape, value=0.0):
    """A matrix without a single observed cell; a value lies in the cells, and nobody must look."""
    seen = Dense(jnp.zeros(shape), jnp.ones(shape, bool).at[0, 0].set(False))
    leaves = [jnp.full(shape, value), jnp.zeros(shape, bool)]
    return jax.tree.unflatten(jax.tree.structure(seen), leaves)
