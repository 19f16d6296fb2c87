"""Containers that users cannot make."""

import jax
import jax.numpy as jnp

from jaxmf.data import Dense


def without_cells(shape, value=0.0):
    """A matrix without an observed cell. The missing cells hold a value, which must not be used."""
    seen = Dense(jnp.zeros(shape), jnp.ones(shape, bool).at[0, 0].set(False))
    leaves = [jnp.full(shape, value), jnp.zeros(shape, bool)]
    return jax.tree.unflatten(jax.tree.structure(seen), leaves)
