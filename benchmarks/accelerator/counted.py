"""What one sweep of four chains starts on a GPU, counted without one.

With the plugin of JAX for CUDA the step is compiled ahead of time for an H100, and the launches are
the kernels, copies and library calls of the compiled program times the turns of their loops.
Without it they are the operations of the traced program that do arithmetic or move numbers, of
which the compiler will make fewer: an upper bound. Rounds are turns of loops either way, and every
one is at least one launch.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from jax.extend import core as jax_core

from benchmarks.accelerator import ahead
from benchmarks.accelerator.problems import PROBLEMS, arguments, step_of_chains
from benchmarks.harness import Row, row

NUM_CHAINS = 4
COUNTED = "counted, not measured"
# shapes and types alone: the compiler makes no kernel of them
_FREE = {
    "broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "iota", "copy", "transpose",
    "expand_dims", "stop_gradient", "bitcast_convert_type", "random_wrap", "random_unwrap", "split",
    "optimization_barrier", "slice", "rev",
}  # fmt: skip


class Count(NamedTuple):
    """Of a program: operations and turns of loops, and loops whose turns only a run can tell.

    What is in such a loop is counted for one turn.
    """

    operations: int = 0
    rounds: int = 0
    open_loops: int = 0

    def plus(self, other: Count, times: int = 1) -> Count:
        return Count(*(a + times * b for a, b in zip(self, other, strict=True)))


def measure(name: str, quick: bool) -> list[Row]:
    """The rows of a problem: at both sizes, so that what grows with the data is seen."""
    problem = PROBLEMS[name]
    missing = ahead.what_is_missing()
    rows = []
    for size in problem.sizes[:1] if quick else problem.sizes:
        case = f"accelerator/counts/{name}/{size}"
        with mock.patch.object(jax, "default_backend", return_value="gpu"):
            algorithm, data, keys, states = arguments(problem, size, NUM_CHAINS)
            if missing is None:
                rows += _compiled_rows(case, algorithm, data, keys, states)
            else:
                rows += _traced_rows(case, missing, algorithm, data, keys, states)
    return rows


def _traced_rows(case: str, missing: str, *traced: Any) -> list[Row]:
    found = count(jax.make_jaxpr(step_of_chains)(*traced))
    note = (
        f"{COUNTED}: operations of the traced step of {NUM_CHAINS} chains, of which the compiler "
        f"makes fewer, {found.open_loops} loops of unknown length at one turn each; {missing}"
    )
    num_bytes = sum(_num_bytes(leaf) for leaf in jax.tree.leaves(traced))
    return [
        row(f"{case}/operations", "count", "a sweep", float(found.operations), note=note),
        row(f"{case}/rounds", "count", "turns of loops a sweep", float(found.rounds), note=note),
        row(f"{case}/arguments", "memory", "MB", num_bytes / 1e6, note=COUNTED),
    ]


def _compiled_rows(case: str, *traced: Any) -> list[Row]:
    found = ahead.compile_for_h100(step_of_chains, *traced)
    note = (
        f"{COUNTED}: compiled ahead of time for one H100, {NUM_CHAINS} chains, "
        f"{found.open_loops} loops of unknown length at one turn each"
    )
    return [
        row(f"{case}/launches", "count", "a sweep", float(found.launches), note=note),
        row(f"{case}/rounds", "count", "turns of loops a sweep", float(found.rounds), note=note),
        row(f"{case}/arguments", "memory", "MB", found.argument_bytes / 1e6, note=note),
        row(f"{case}/temporaries", "memory", "MB", found.temporary_bytes / 1e6, note=note),
        row(
            f"{case}/short-products",
            "count",
            "products of fewer bits",
            float(found.num_short_products),
            note=note,
        ),
    ]


def _num_bytes(leaf: Any) -> int:
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return 8 * int(np.prod(leaf.shape))
    return int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize


def count(closed: Any) -> Count:
    """What a traced program does."""
    return _walk(closed.jaxpr, [None] * len(closed.jaxpr.invars))[0]


def _walk(jaxpr: Any, known: list[Any]) -> tuple[Count, list[Any]]:
    """The count of a program, and those of its results that follow from constants alone."""
    values = dict(zip(jaxpr.invars, known, strict=True))
    total = Count()

    def read(variable: Any) -> Any:
        if isinstance(variable, jax_core.Literal):
            return variable.val
        return values.get(variable)

    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        found, outputs = _step(equation, inputs)
        total = total.plus(found)
        values.update(zip(equation.outvars, outputs, strict=True))
    return total, [read(variable) for variable in jaxpr.outvars]


def _step(equation: Any, inputs: list[Any]) -> tuple[Count, list[Any]]:
    name, params = equation.primitive.name, equation.params
    unknown = [None] * len(equation.outvars)
    if name == "scan":
        inside, length = params["jaxpr"].jaxpr, params["length"]
        num_consts = params["num_consts"]
        known = inputs[:num_consts] + [None] * (len(inside.invars) - num_consts)
        return Count(rounds=length).plus(_walk(inside, known)[0], length), unknown
    if name == "while":
        inside = params["body_jaxpr"].jaxpr
        first = params["cond_nconsts"]
        num_consts = params["body_nconsts"]
        known = inputs[first : first + num_consts] + [None] * (len(inside.invars) - num_consts)
        turns = _turns(params, inputs)
        once = _walk(inside, known)[0]
        if turns is None:
            return Count(rounds=1, open_loops=1).plus(once), unknown
        return Count(rounds=turns).plus(once, turns), unknown
    if name == "cond":
        branches = [_walk(one.jaxpr, inputs[1:])[0] for one in params["branches"]]
        return max(branches), unknown
    if name == "pallas_call":  # one kernel, whatever is in it
        return Count(operations=1), unknown
    for inside in _programs(params):
        return _walk(inside, inputs)
    if all(value is not None for value in inputs) and _is_whole(equation):
        return Count(), [equation.primitive.bind(*inputs, **params)]
    return Count(operations=name not in _FREE), unknown


def _turns(params: Any, inputs: list[Any]) -> int | None:
    """How often a loop from one known whole number to another turns."""
    condition = params["cond_jaxpr"].jaxpr
    if len(condition.eqns) != 1 or condition.eqns[0].primitive.name != "lt":
        return None
    first, num_consts = params["cond_nconsts"], params["body_nconsts"]
    known = inputs[:first] + inputs[first + num_consts :]
    values = dict(zip(condition.invars, known, strict=True))
    bounds = [
        variable.val if isinstance(variable, jax_core.Literal) else values.get(variable)
        for variable in condition.eqns[0].invars
    ]
    if any(bound is None for bound in bounds):
        return None
    return max(0, int(bounds[1]) - int(bounds[0]))


def _programs(params: Any) -> list[Any]:
    """The program that an operation calls, if it is a call."""
    for label in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        if label in params:
            return [getattr(params[label], "jaxpr", params[label])]
    return []


def _is_whole(equation: Any) -> bool:
    variables = equation.outvars
    return (
        len(variables) == 1
        and variables[0].aval.shape == ()
        and np.issubdtype(variables[0].aval.dtype, np.integer)
    )
