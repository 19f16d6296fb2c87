"""Products of more factors than a float has exponents for, without a logarithm for each."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxmf.types import Array


class Product(NamedTuple):
    """fraction * 2^exponent, entry by entry."""

    fraction: Array  # float, in [1, 2)
    exponent: Array  # int of as many bits

    @classmethod
    def empty_like(cls, values: Array) -> Product:
        """Products of no factors, 1, in the shape of some floats."""
        whole = jnp.dtype(f"int{jnp.finfo(values.dtype).bits}")
        return cls(jnp.ones_like(values), jnp.zeros(values.shape, whole))

    def times(self, factor: Array) -> Product:
        """Args: factor: positive, and no subnormal float."""
        product = self.fraction * factor
        bits = lax.bitcast_convert_type(product, self.exponent.dtype)
        num_bits, bias = _form(product)
        digits = bits & ((1 << num_bits) - 1) | (bias << num_bits)
        fraction = lax.bitcast_convert_type(digits, product.dtype)
        return Product(fraction, self.exponent + ((bits >> num_bits) - bias))

    def relative(self, counts: Array) -> Array:
        """The products over a power of two that is near the largest of those that count, float.

        Those too small for a float are 0.

        Args: counts: bool, which entries count; at least one does.
        """
        lowest = jnp.iinfo(self.exponent.dtype).min // 2
        exponent = jnp.where(counts, self.exponent, lowest)
        num_bits, bias = _form(self.fraction)
        biased = jnp.maximum(exponent - jnp.max(exponent) + bias, 0)
        power = lax.bitcast_convert_type(biased << num_bits, self.fraction.dtype)
        return self.fraction * power


def _form(value: Array) -> tuple[int, int]:
    """How many bits the digits of a float have, and what is added to its exponent."""
    info = jnp.finfo(value.dtype)
    return info.nmant, info.maxexp - 1
