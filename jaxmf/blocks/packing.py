"""Entries of lists of topics: a topic and its count in one word of 32 bits.

A line of the cache then holds sixteen of them. The count has the lower bits, as many as topics
leave; a topic with a larger count than these can hold has several entries.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxmf.types import Array


class Packing(NamedTuple):
    """How topics and counts are packed; all of it is known when a program is traced."""

    bits: int  # of the count

    @classmethod
    def of(cls, num_topics: int) -> Packing:
        """For as many topics."""
        return cls(32 - max(1, (num_topics - 1).bit_length()))

    @property
    def most(self) -> int:
        """The largest count of an entry."""
        return (1 << self.bits) - 1

    def topics(self, entries: Array) -> Array:
        """The topics (...) int32 of entries (...) uint32."""
        return (entries >> self.bits).astype(jnp.int32)

    def counts(self, entries: Array) -> Array:
        """Their counts (...) int32."""
        return (entries & self.most).astype(jnp.int32)

    def entry(self, topic: Array, count: int) -> Array:
        """The entry () uint32 of a topic with a count."""
        return (topic.astype(jnp.uint32) << self.bits) + count

    def raised(self, entry: Array, topic: Array) -> Array:
        """An entry () uint32 with a token more; of the topic, which it may not have had before."""
        return self.entry(topic, 1) + (entry & self.most)

    def room(self, sizes: Array, num_topics: int) -> Array:
        """How long lists of as many tokens may become, (M,) int32.

        Each entry has a token; and where one entry can hold all of them no topic has a second.
        """
        return jnp.where(sizes <= self.most, jnp.minimum(sizes, num_topics), sizes)
