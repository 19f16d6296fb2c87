"""The words of the house: aliases, the table of names and the shape legend. Read it first.

Shapes
------
Docstrings give shapes and kinds as ``(N, K) bool``. Letters are array axes and nothing else:

======  ===============================================================================
letter  axis
======  ===============================================================================
N       rows: observations, users, documents, baskets
D       columns: measured quantities, items, words
K       slots of a growing axis (features or groups), padded to the capacity
P       particles of a filter
C       chains
S       kept draws of a chain
B       children of a particle, or a batch
T       lines of a long table: observed cells, tokens, ones
======  ===============================================================================

``float`` is the default floating dtype, ``jnp.result_type(float)``: float32, or float64 when x64 is
on. Indices are int32.

Names
-----
===================  ==================================================================
name                 meaning
===================  ==================================================================
key                  a typed random key (``jax.random.key``)
seed                 an int or a typed key, what users pass
model                frozen dataclass: the generative process and its hyperpriors
data                 a validated container of :mod:`jaxmf.data`
state                pytree of arrays of fixed shapes, all that the next step needs
info                 what a step tells besides the state: overflow, acceptance
draw                 what is kept of a state
capacity             padded sizes of the growing axes, by the name of the axis
active               mask of the slots in use
observed             mask of the cells that were seen; missing cells hold 0
row_names,           ids of any type, kept on the host only and returned with results
column_names
num_*                a count: num_rows, num_features, num_samples
log_*                a natural logarithm: log_weights, log_joint
*_fn                 a function: log_density_fn, resample_fn
*_scale              a standard deviation: noise_scale, feature_scale
concentration        the second parameter of a two-parameter prior, or a Dirichlet's
z, y, x              binary features (N, K), their weights (K, D), the data (N, D)
===================  ==================================================================
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = jax.Array
"""An array on a device (or a tracer of one)."""

ArrayLike = npt.ArrayLike
"""What numpy makes an array of."""

Key = jax.Array
"""A typed random key, shape ()."""

Seed = int | jax.Array
"""What users pass for randomness: a whole number or a typed key."""

PyTree = Any
"""A nested structure of arrays."""

Names = np.ndarray
"""(N,) or (D,): ids of rows or columns, of any dtype, on the host."""

Draw = dict[str, jax.Array]
"""What one draw keeps, by name."""

STATIC = {"static": True}
"""The metadata of a dataclass field that holds no array: programs are compiled anew for others."""


def is_key(value: object) -> bool:
    """Whether a value is a typed random key, an array of such, or the shape of one."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
