"""One run over the devices of several processes of `jax.distributed`.

Every process makes the same calls with the same arguments and goes through the same steps: programs
on such a mesh are run by all of them together. What a host decides by its clock, its files, its
memory or its signals is therefore decided together as well, here. Among the devices of one process
nothing is exchanged, and every function gives what it was given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from jaxmf.engine.fixed_order import in_fixed_order
from jaxmf.programs import jit
from jaxmf.types import PyTree, is_key

# broadcast in pieces: devices need room for one at a time
PIECE_BYTES = 64 * 2**20


class Processes:
    """The processes that the devices of a mesh belong to.

    Attributes:
        are_several: whether there is another one beside this.
        is_first: whether this is the one that writes, shows progress and warns.
    """

    def __init__(self, mesh: Mesh | None):
        self._mesh = mesh
        self.are_several = mesh is not None and len(owners(mesh)) > 1
        self.is_first = is_first(mesh)

    def put(self, leaf: PyTree, sharding: Sharding) -> jax.Array:
        """An array on its devices; each process, which has all of it, fills its devices."""
        if not self.are_several or getattr(leaf, "is_fully_addressable", True) is False:
            return jax.device_put(leaf, sharding)
        if getattr(leaf, "weak_type", False):
            return jit(_same, out_shardings=sharding)(leaf)
        if not is_key(leaf):
            leaf = np.asarray(leaf)
            leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype), copy=False)
        return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])

    def gather(self, tree: PyTree, num_rows: int | None = None) -> PyTree:
        """Arrays whole in every process, of their first axis `num_rows` at least."""
        if not self.are_several:
            return tree
        assert self._mesh is not None
        if num_rows is not None:
            num_rows = 1 << (num_rows - 1).bit_length()  # few programs for all numbers
        everywhere = NamedSharding(self._mesh, PartitionSpec())
        whole = jit(partial(_first_rows, num_rows=num_rows), out_shardings=everywhere)(tree)
        return jax.tree.map(_on_host, whole)

    def from_all(self, value: float) -> list[float]:
        """The values that the processes pass, in order."""
        if not self.are_several:
            return [value]
        words = np.asarray(value, np.float64).reshape(1).view(np.uint8)
        return _gathered(words).view(np.float64).ravel().tolist()

    def first_value(self, value: float) -> float:
        """The value that the first process passes."""
        return self.from_all(value)[0]

    def any_of(self, flag: bool) -> bool:
        """Whether some process passes True."""
        return any(self.from_all(flag))

    def from_first(
        self, call: Callable[[], tuple[PyTree, dict[str, np.ndarray]]]
    ) -> tuple[PyTree, dict[str, np.ndarray]]:
        """Result of a call made by the first process alone: a JSON value and arrays.

        Raises RuntimeError: in the others, where it raised something in the first.
        """
        if not self.are_several:
            return call()
        value, error = None, None
        arrays: dict[str, np.ndarray] = {}
        if self.is_first:
            try:
                value, arrays = call()
            except Exception as raised:
                error = raised
        kinds = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        text = None if error is None else f"{type(error).__name__}: {error}"
        head = json.dumps([value, kinds, text]).encode()
        size = int(self.first_value(len(head)))
        value, kinds, text = json.loads(
            self._broadcast(np.frombuffer(head, np.uint8), size).tobytes()
        )
        if error is not None:
            raise error
        if text is not None:
            raise RuntimeError(f"the first process of this run has ended with {text}")
        found = {}
        for name, (kind, shape) in kinds.items():
            here = np.ascontiguousarray(arrays[name]) if arrays else np.empty(shape, kind)
            words = self._broadcast(here.reshape(-1).view(np.uint8), here.nbytes)
            found[name] = here if arrays else words.view(kind).reshape(shape)
        return value, found

    def check_alike(self, settings: Mapping[str, object], trees: PyTree) -> None:
        """Refuses processes that were given other settings, models or data than the first.

        Raises ValueError: in all of them.
        """
        if not self.are_several:
            return
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for leaf in jax.tree.leaves(in_fixed_order(trees)):
            if not getattr(leaf, "is_fully_addressable", True):
                # one array of all processes, which made it together
                digest.update(f"{leaf.dtype}{leaf.shape}".encode())
                continue
            array = np.ascontiguousarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
        all_words = _gathered(np.frombuffer(digest.digest(), np.uint8))
        others = np.flatnonzero(np.any(all_words != all_words[0], axis=1))
        if others.size:
            raise ValueError(
                f"mesh: process {others[0]} of jax.distributed was given other settings, another "
                "model or other data than process 0. Pass the same to all of them, the whole data "
                "in the same order"
            )

    def _broadcast(self, words: np.ndarray, size: int) -> np.ndarray:
        """Bytes of the first process, in all."""
        found = np.empty(size, np.uint8)
        for start in range(0, size, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, size)
            here = words[start:stop] if self.is_first else np.zeros(stop - start, np.uint8)
            found[start:stop] = multihost_utils.broadcast_one_to_all(here)
        return found


def owners(mesh: Mesh) -> list[int]:
    """The processes whose devices a mesh has."""
    return sorted({device.process_index for device in mesh.devices.flat})


def refuse_several(mesh: object, name: str) -> None:
    """Refuses a mesh of several processes, by the name of what cannot use it.

    Raises ValueError: if it is one.
    """
    if isinstance(mesh, Mesh) and len(owners(mesh)) > 1:
        raise ValueError(
            f"mesh: {name} cannot run over several processes of jax.distributed; use a mesh of "
            "jax.local_devices()"
        )


def is_first(mesh: object) -> bool:
    """Whether this process speaks for all that the devices of a mesh belong to."""
    return not isinstance(mesh, Mesh) or owners(mesh)[0] == jax.process_index()


def _gathered(words: np.ndarray) -> np.ndarray:
    """The bytes (B,) that each of P processes passes, (P, B)."""
    return np.asarray(multihost_utils.process_allgather(words))


def from_process(arrays: tuple[np.ndarray, ...], process: int) -> tuple[np.ndarray, ...]:
    """Arrays of a process, in all; each passes some of the same shapes and dtypes."""
    if jax.process_count() == 1:
        return arrays
    # as bits, for a sum with zeros would lose the sign of a zero
    words = tuple(array.view(f"uint{8 * array.dtype.itemsize}") for array in arrays)
    found = multihost_utils.broadcast_one_to_all(words, is_source=jax.process_index() == process)
    return tuple(
        np.asarray(one).astype(word.dtype, copy=False).view(array.dtype)
        for one, word, array in zip(found, words, arrays, strict=True)
    )


def gather_texts(text: str) -> list[str]:
    """The values that the processes pass, in order; all of them call it."""
    if jax.process_count() == 1:
        return [text]
    words = np.frombuffer(text.encode(), np.uint8)
    sizes = _gathered(np.asarray([words.size], np.int64).view(np.uint8)).view(np.int64).ravel()
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: words.size] = words
    return [
        row[:size].tobytes().decode() for row, size in zip(_gathered(padded), sizes, strict=True)
    ]


def _same(leaf: PyTree) -> PyTree:
    return leaf


def _first_rows(tree: PyTree, num_rows: int | None) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:num_rows], tree) if num_rows else tree


def _on_host(leaf: PyTree) -> PyTree:
    if not is_key(leaf):
        return np.asarray(leaf)
    words = np.asarray(jax.random.key_data(leaf))
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(leaf))
