"""The child process of `jaxmf._kernels.fusion_probe`: a small loop with and without the request.

The loop is as a sweep over tokens has it, with tables that it reads and changes, and one time also
with arguments that nothing reads, neither as written nor once the compiler has simplified it.
``python -m jaxmf._kernels.fusion_trial FOLDER`` prints what it saw as one line of JSON; `FOLDER`
is where XLA's flags say that compiled programs are dumped.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf._kernels.fusion import fused_on_cpu
from jaxmf.types import Array


def main(dumps: Path) -> None:
    """The child: compiles, runs and prints what it saw of each kind of request."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 5, (500, 32)).astype(np.float32)
    arguments = (table, rng.integers(0, 500, 400), rng.random(400, dtype=np.float32))

    def plain(table: Array, items: Array, uniforms: Array) -> tuple[Array, Array]:
        return _loop(table, items, uniforms)

    def results(name: str, fn: Callable[..., tuple[Array, ...]]) -> tuple[list[np.ndarray], int]:
        fn.__name__ = f"probe_{name}"
        values = [np.asarray(value) for value in jax.jit(fn)(*arguments)]
        kernels = {file.name for file in dumps.glob(f"*jit_probe_{name}.*kernel_module*.o")}
        return values, len(kernels)

    expected, num_plain = results("plain", plain)
    kinds = {
        "once": fused_on_cpu(_loop),
        "sequential": fused_on_cpu(_loop, sequential=True),
        "unread": partial(
            fused_on_cpu(_loop_with_more, sequential=True), jnp.zeros(400), table[:1]
        ),
    }
    findings = {}
    for name, fused in kinds.items():
        values, num_kernels = results(name, lambda *args, fused=fused: fused(*args))
        pairs = zip(values, expected, strict=True)
        findings[name] = {
            "same_bits": all(bool((value == other).all()) for value, other in pairs),
            "num_kernels": num_kernels,
            "num_kernels_plain": num_plain,
        }
    sys.stdout.write(json.dumps(findings) + "\n")


def _loop(table: Array, items: Array, uniforms: Array) -> tuple[Array, Array]:
    """A sweep in small: for each item, weights of its row, a draw, and a count that goes up."""

    def visit(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        table, chosen = carry
        row = jax.lax.dynamic_index_in_dim(table, items[i], 0, keepdims=False)
        weights = (row + 0.5) / (jnp.sum(row) + 1.0)
        sums = jnp.sum(jnp.where(jnp.tri(row.size, dtype=bool), weights, 0), axis=1)
        choice = jnp.sum(sums < uniforms[i] * sums[-1])
        table = jax.lax.dynamic_update_slice(
            table, jax.lax.dynamic_slice(table, (items[i], choice), (1, 1)) + 1, (items[i], choice)
        )
        return table, jax.lax.dynamic_update_index_in_dim(chosen, choice, i, 0)

    chosen = jnp.zeros(items.shape, jnp.int32)
    return jax.lax.fori_loop(0, items.shape[0], visit, (table, chosen))


def _loop_with_more(
    unread: Array, one_row: Array, table: Array, items: Array, uniforms: Array
) -> tuple[Array, Array]:
    """The same, where `unread` is not used and the row of `one_row` is found without an index."""
    del unread
    table, chosen = _loop(table, items, uniforms)
    row = jax.lax.dynamic_index_in_dim(one_row, items[-1], 0, keepdims=False)
    return table + 0 * row, chosen


if __name__ == "__main__":
    main(Path(sys.argv[1]))
