"""Compiled programs, kept by the shapes of their arguments.

`jax.jit` has a cache of its own; this one makes the compiled program available before it is run,
so that its memory can be read first, and lets a test count what was compiled.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jaxlib
import numpy as np

from jaxmf.devices import default_platform
from jaxmf.engine.environment import config_value
from jaxmf.engine.fixed_order import in_fixed_order, restored
from jaxmf.engine.turns import Turns, batched_factorisations, batches_of
from jaxmf.programs import jit
from jaxmf.types import Array, PyTree

P = ParamSpec("P")
R = TypeVar("R")

MAX_EXECUTABLES = 256
# settings of JAX that change what a program is
CONFIG = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_threefry_partitionable",
    "jax_debug_nans",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)

# XLA refuses an option that it does not know: a release is added after a look at its options and
# at what programs of both emitters take
_RELEASES = ("0.10",)
_OPTION = "xla_cpu_use_fusion_emitters"
_LEVEL = "xla_backend_optimization_level"


class Executable:
    """One traced program, compiled when first wanted; safe to share between threads."""

    def __init__(self, traced: jax.stages.Traced):
        self._traced = traced
        self._lock = threading.Lock()
        self._compiled: Any = None
        self._memory: tuple[int, int] | None = None

    @property
    def shapes(self) -> PyTree:
        """Shapes and dtypes of what the program returns."""
        return shapes_of(self._traced.out_info)

    @property
    def compiled(self) -> jax.stages.Compiled:
        """The compiled program."""
        with self._lock:
            if self._compiled is None:
                self._compiled = self._traced.lower().compile()
                CACHE.num_compilations += 1
            return self._compiled

    @functools.cached_property
    def batches(self) -> frozenset[int]:
        """How many matrices its factorisations take at once, where it is more than one."""
        return batches_of(self._traced.jaxpr)

    @functools.cached_property
    def turns(self) -> Turns:
        """Whose turn it is to run such a program."""
        return batched_factorisations() if self.batches else Turns(None)

    def __call__(self, *args: PyTree) -> PyTree:
        return self.compiled(*map(in_fixed_order, args))

    def memory(self) -> tuple[int, int]:
        """Bytes of the arguments, and bytes needed beside them, on each device."""
        if self._memory is None:
            self._memory = self._measure()
        return self._memory

    def _measure(self) -> tuple[int, int]:
        stats = self.compiled.memory_analysis()
        if stats is None:
            return 0, 0
        beside = (
            stats.temp_size_in_bytes
            + stats.output_size_in_bytes
            - stats.alias_size_in_bytes
            + stats.generated_code_size_in_bytes
        )
        return stats.argument_size_in_bytes, max(beside, 0)


class ExecutableCache:
    """Executables by function, tree structure, shapes, dtypes and shardings; the oldest leave."""

    def __init__(self, max_size: int):
        self.num_compilations = 0
        self._max_size = max_size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Executable] = OrderedDict()

    def get(
        self,
        function: Callable[..., PyTree],
        args: tuple[PyTree, ...],
        static: dict[str, Hashable],
        **jit_options: object,
    ) -> Executable:
        """The program of `function` for arguments like `args`, traced if it is new.

        Args:
            function: a module-level function ``(*args, **static)``.
            args: arrays, or `jax.ShapeDtypeStruct` instead of them.
            **jit_options: passed to `jax.jit`; only as a function of `args` and `static`.
        """
        key = _signature(function, args, static)
        with self._lock:
            found = self._entries.get(key)
            if found is None:

                def program(*args: PyTree) -> PyTree:
                    return function(*map(restored, args), **static)

                traced = jit(program, **jit_options).trace(*map(in_fixed_order, args))
                found = Executable(traced)
                self._entries[key] = found
                while len(self._entries) > self._max_size:
                    self._entries.popitem(last=False)
            self._entries.move_to_end(key)
            return found

    def clear(self) -> None:
        """Forgets all programs."""
        with self._lock:
            self._entries.clear()


CACHE = ExecutableCache(MAX_EXECUTABLES)


def shapes_of(tree: PyTree, sharding: jax.sharding.Sharding | None = None) -> PyTree:
    """The tree with every array replaced by its shape and dtype."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def num_bytes(tree: PyTree) -> int:
    """Bytes of the arrays of a tree of arrays or shapes."""
    return sum(
        int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def bytes_on_device(tree: PyTree) -> int:
    """Bytes of the arrays of a tree on one of the devices that hold them.

    An array of numpy or a number, such as a setting of a model, is whole on every device.
    """
    return num_bytes(jax.tree.map(_shape_on_device, tree))


def _shape_on_device(leaf: Array | np.ndarray | float) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)
    array = np.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _signature(
    function: Callable[..., PyTree], args: tuple[PyTree, ...], static: dict[str, Hashable]
) -> Hashable:
    leaves, structure = jax.tree.flatten(args)
    return (
        function,
        structure,
        tuple(_leaf_signature(leaf) for leaf in leaves),
        tuple(sorted(static.items(), key=lambda item: item[0])),
        *(config_value(name) for name in CONFIG),
    )


def _leaf_signature(leaf: PyTree) -> Hashable:
    weak = bool(getattr(leaf, "weak_type", False))
    return tuple(leaf.shape), str(leaf.dtype), weak, getattr(leaf, "sharding", None)


def quick_to_compile() -> dict[str, object]:
    """Options under which programs compile sooner and run as fast; empty where nothing is known.

    On CPUs the older of XLA's two emitters of fused operations takes two thirds to a half of the
    time to compile a sweep, which then takes .8 to 1 times as long. Nothing is set
    where `XLA_FLAGS` names the option.
    """
    return _known(_OPTION, False)


def jit_quickly(fn: Callable[P, R]) -> Callable[P, R]:
    """`jit` of `fn` with the options of `quick_to_compile`, as they are at the first call.

    For programs that are run a few times: not to be called inside of other programs.
    """

    @functools.cache
    def program() -> Callable[P, R]:
        return cast(Callable[P, R], jit(fn, compiler_options=quick_to_compile()))

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return program()(*args, **kwargs)

    return call


def lower_level() -> dict[str, object]:
    """Options for a program of many small operations, for which LLVM's third level does little.

    A step of `LinearGaussianIBP` is compiled in .8 to .9 of the time, and its sweeps take .93 to
    1.04 times as long, with the same draws. Loops over tokens and ratings take 1.3 times as long at
    a lower level, so it is for a method to ask for this. Nothing is set where `XLA_FLAGS` names the
    option.
    """
    return _known(_LEVEL, 2)


def _known(option: str, value: object) -> dict[str, object]:
    is_chosen = option in os.environ.get("XLA_FLAGS", "")
    return {option: value} if has_known_options() and not is_chosen else {}


def has_known_options() -> bool:
    """Whether this release of jaxlib is on the list and programs run on a CPU."""
    is_listed = f"{jaxlib.__version__}.".startswith(tuple(f"{release}." for release in _RELEASES))
    return is_listed and default_platform() == "cpu"
