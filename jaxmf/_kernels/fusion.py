"""One fused CPU kernel for a small loop.

XLA's CPU backend dispatches every operation of a larger loop body by itself, which costs a loop
over a few dozen numbers ten times its arithmetic. `fused_on_cpu` asks for the loop to be compiled
as one function instead. The request is an internal attribute of XLA, so it is made only with
releases of jaxlib that were tested with it and where a trial in a child process went well
(`fusion_probe`), never on other devices and never for a loop over all cases of a `vmap`, which
turns into scatters that must not be wrapped. Without it the same numbers come out, more slowly.
`wide_vectors` asks for longer vectors, on the same conditions.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Jaxpr, jaxprs_in_params
from jax.tree_util import PyTreeDef

from jaxmf._kernels import fusion_probe
from jaxmf.devices import default_platform
from jaxmf.types import Array, PyTree

LONG_ROW = 256
# What XLA's CPU backend cannot put into one kernel (jaxlib 0.10.2): float reductions of this many
# numbers are left to a library, and without `sequential` results of this many numbers are shared
# out to threads where there are several. Either ends in an error of the compiler.
_MANY_REDUCED = 4_096
_MANY_SHARED = 2**15
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")
VARIABLE = "JAXMF_FUSE_LOOPS"


def is_available() -> bool:
    """Whether `fused_on_cpu` fuses.

    The environment variable `JAXMF_FUSE_LOOPS` set to 0 or 1 before the first call says so without
    a trial, and whatever the release: 1 is for trying a new one.
    """
    if default_platform() != "cpu" or jax.config.jax_disable_jit:
        return False
    forced = os.environ.get(VARIABLE)
    return forced == "1" if forced in ("0", "1") else fusion_probe.is_granted()


def fused_on_cpu(fn: Callable[..., PyTree], *, sequential: bool = False) -> Callable[..., PyTree]:
    """Returns `fn` compiled as one CPU kernel where that is possible.

    Args:
      fn: a function of pytrees of arrays without scatters, sorts or calls into libraries such as
        LAPACK. What is traced in the owner of a method, or in the arguments of a `partial`, is
        passed beside the others; nothing traced may be closed over in another way.
      sequential: for loops of many items. Under `vmap` one call follows the other, each a kernel of
        its own, instead of one loop over all. And what the loop calls is fused with it; it must
        change a table first and read it then, or the table is copied for every item.
    Returns:
      A function of the same arguments and values.
    """
    from jax.experimental.xla_metadata import set_xla_metadata

    # a rule of `vmap` that holds what is traced is a leak to `jax.checking_leaks`
    traced, applied = _without_traced(fn)
    del fn

    @partial(jax.jit, static_argnames="structure")
    def inner(*leaves: Array, structure: PyTreeDef) -> tuple[PyTree, list[Array]]:
        # the request is for the loop alone: else each function of JAX that it calls, such as an
        # indexed read, stays a function, and nothing is fused across it
        within = {"xla_cpu_small_call": None, "inlineable": None} if sequential else {}
        with set_xla_metadata(**within):
            out = applied(structure, leaves)
        num_parts = len(leaves) - structure.num_leaves  # what no loop changes is always read
        read = _first_elements(leaves[:num_parts], ())
        return out, read + _first_elements(leaves[num_parts:], out)

    def call(*args: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(args)
        leaves = [*traced, *leaves]

        def plain(*leaves: Array) -> PyTree:
            return applied(structure, leaves)

        @jax.custom_batching.custom_vmap
        def fused(*leaves: Array) -> PyTree:
            # a constant would be put inside, and the array not be used
            leaves = jax.lax.optimization_barrier(leaves)
            with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
                out, read = inner(*leaves, structure=structure)
            # nobody needs what was read: the barrier keeps it from being left out again
            return jax.lax.optimization_barrier((out, read))[0]

        @fused.def_vmap
        def batched(
            axis_size: int, in_batched: Sequence[bool], *leaves: Array
        ) -> tuple[PyTree, PyTree]:
            del axis_size
            if sequential:
                out = _map(fused, in_batched, leaves)
            else:
                axes = tuple(0 if one else None for one in in_batched)
                out = jax.vmap(plain, in_axes=axes)(*leaves)
            return out, jax.tree.map(lambda _: True, out)

        return fused(*leaves) if is_available() and fits(leaves, structure) else plain(*leaves)

    def fits(leaves: Sequence[Array], structure: PyTreeDef) -> bool:
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            traced = inner.trace(*leaves, structure=structure)  # which the call then finds traced
        return _fits_one_kernel(traced.jaxpr.jaxpr, shares=not sequential)

    return call


def _fits_one_kernel(jaxpr: Jaxpr, *, shares: bool) -> bool:
    """Whether no operation of a program, at any depth, is too large for a fused kernel."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in _REDUCTIONS:
            operand: Any = equation.invars[0].aval
            if operand.size >= _MANY_REDUCED and jnp.issubdtype(operand.dtype, jnp.floating):
                return False
        inside = [getattr(each, "jaxpr", each) for each in jaxprs_in_params(equation.params)]
        if not all(_fits_one_kernel(each, shares=shares) for each in inside):
            return False
        results: list[Any] = [] if inside else [each.aval for each in equation.outvars]
        if shares and any(each.size >= _MANY_SHARED for each in results):
            return False
    return True


def wide_vectors() -> dict[str, object]:
    """Options of the compiler for a program of loops over long rows, of `LONG_ROW` numbers on.

    XLA's CPU backend uses half of the longest vectors of the processor unless asked otherwise.
    Sweeps over 400 and 1,000 groups take 1.07 and 1.17 times as long with those; loops over short
    rows become slower with whole ones.

    Returns:
      Options for `jax.jit`, for one program alone; none where `fused_on_cpu` asks for nothing.
    """
    return {"xla_cpu_prefer_vector_width": 512} if is_available() else {}


def sequential_on_cpu(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Returns `fn`, of which `vmap` makes one call after the other on a CPU.

    Args: fn: a function of pytrees of arrays, such as a scatter, whose batched form is many times
    slower there.
    Returns a function of the same arguments and values.
    """
    traced, applied = _without_traced(fn)
    del fn

    def call(*args: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(args)
        leaves = [*traced, *leaves]

        def plain(*leaves: Array) -> PyTree:
            return applied(structure, leaves)

        @jax.custom_batching.custom_vmap
        def one(*leaves: Array) -> PyTree:
            return plain(*leaves)

        @one.def_vmap
        def batched(
            axis_size: int, in_batched: Sequence[bool], *leaves: Array
        ) -> tuple[PyTree, PyTree]:
            del axis_size
            if default_platform() == "cpu":
                out = _map(one, in_batched, leaves)
            else:
                axes = tuple(0 if is_batched else None for is_batched in in_batched)
                out = jax.vmap(plain, in_axes=axes)(*leaves)
            return out, jax.tree.map(lambda _: True, out)

        return one(*leaves)

    return call


def _without_traced(
    fn: Callable[..., PyTree],
) -> tuple[list[Array], Callable[[PyTreeDef, Sequence[Array]], PyTree]]:
    """What is traced in the owner of a method or the arguments of a `partial`, and the rest of it.

    Returns the traced arrays; and a function of the structure of arguments and of leaves, first
    these arrays and then those of the arguments, which holds nothing traced.
    """
    whole: PyTree = (fn, (), {})
    if isinstance(fn, partial):
        whole = (fn.func, fn.args, fn.keywords)
    elif isinstance(fn, MethodType):
        whole = (fn.__func__, (fn.__self__,), {})
    parts, form = jax.tree.flatten(whole)
    traced = {index: leaf for index, leaf in enumerate(parts) if isinstance(leaf, Tracer)}
    rest = [None if index in traced else leaf for index, leaf in enumerate(parts)]
    positions = [*traced]

    def applied(structure: PyTreeDef, leaves: Sequence[Array]) -> PyTree:
        filled = list(rest)
        for index, leaf in zip(positions, leaves, strict=False):
            filled[index] = leaf
        function, first, keywords = jax.tree.unflatten(form, filled)
        args = jax.tree.unflatten(structure, leaves[len(positions) :])
        return function(*first, *args, **keywords)

    return [*traced.values()], applied


def _first_elements(leaves: Sequence[Array], out: object) -> list[Array]:
    """The first element of each argument of a fused function, to be returned beside its values.

    XLA ends the process where such a function has an argument that nothing in it reads, and whether
    one is read is known only when all simplifications are done: rows of a table of one row are
    found without their index. Tables that may be those that the function changes are left out: they
    are read in any case, and would be copied if they were also read beside the loop.
    """
    changed = {(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(out) if leaf.ndim > 1}
    return [
        jax.lax.slice(leaf, (0,) * leaf.ndim, (1,) * leaf.ndim) if leaf.size else leaf
        for leaf in leaves
        if (leaf.shape, leaf.dtype) not in changed
    ]


def _map(fn: Callable[..., PyTree], is_batched: Sequence[bool], args: Sequence[Array]) -> PyTree:
    """`fn` of each case in turn; arguments that are not batched are the same for all."""
    pairs = tuple(zip(args, is_batched, strict=True))

    def one(batched_args: list[Array]) -> PyTree:
        left = iter(batched_args)
        return fn(*(next(left) if batched else arg for arg, batched in pairs))

    return jax.lax.map(one, [arg for arg, batched in pairs if batched])
