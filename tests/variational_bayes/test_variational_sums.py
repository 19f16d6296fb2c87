"""Sums over pieces of lines and blocks of lines, against dense ones."""

import gc
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.devices import BLOCK_SIZES
from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.variational_bayes import Normal
from jaxmf.variational_bayes.held_out import leave_out
from jaxmf.variational_bayes.parameters import Half
from jaxmf.variational_bayes.pieces import (
    PIECE_LENGTH,
    SHORT_PIECE_LENGTH,
    lay_out,
    sum_over_ones,
)
from jaxmf.variational_bayes.sums import map_lines, positions, side_sums
from jaxmf.variational_bayes.zeros import Shared


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def uneven_ones(num_rows, num_columns):
    """Rows without ones, with less than a piece, with whole pieces, with pieces and a bit."""
    generator = np.random.default_rng(0)
    dense = np.zeros((num_rows, num_columns))
    for row in range(num_rows):
        count = [0, 3, PIECE_LENGTH, 2 * PIECE_LENGTH, 2 * PIECE_LENGTH + 1][row % 5]
        dense[row, generator.choice(num_columns, count, replace=False)] = 1
    return dense


def test_sums_over_ones_and_their_derivatives():
    """Values, forward and reverse derivatives, and those of several at once."""
    dense = uneven_ones(4 * BLOCK_SIZES["sparse pieces"].cpu, 80)
    layout = lay_out(*np.nonzero(dense), shape=dense.shape)
    generator = np.random.default_rng(1)
    others, change = generator.normal(size=(2, 80, 3))

    def total(others):
        return sum_over_ones(layout.rows.ones, others, num_lines=dense.shape[0])

    assert layout.rows.ones.line.shape[0] > 1  # several chunks
    value, moved = jax.jit(lambda a, b: jax.jvp(total, (a,), (b,)))(others, change)
    np.testing.assert_allclose(value, dense @ others, atol=1e-12)
    np.testing.assert_allclose(moved, dense @ change, atol=1e-12)
    gradient = jax.jit(jax.grad(lambda others: jnp.sum(total(others) ** 2)))(others)
    np.testing.assert_allclose(gradient, 2 * dense.T @ (dense @ others), atol=1e-11)
    both = jax.jit(jax.vmap(total))(np.stack([others, change]))
    np.testing.assert_allclose(both[1], dense @ change, atol=1e-12)
    # Broken twin: what stands behind the end of a piece is counted.
    ones = layout.rows.ones._replace(counts=jnp.full_like(layout.rows.ones.counts, PIECE_LENGTH))
    wrong = sum_over_ones(ones, others, num_lines=dense.shape[0])
    assert float(jnp.abs(wrong - dense @ others).max()) > 0.1


def test_lines_of_few_ones_are_cut_into_short_pieces():
    """Rows of none to nine ones: most of a piece of 32 would be padding."""
    generator = np.random.default_rng(3)
    dense = (generator.random((40, 30)) < 0.1).astype(float)
    dense[0, :9], dense[1] = 1, 0
    layout = lay_out(*np.nonzero(dense), shape=dense.shape)
    assert layout.rows.ones.indices.shape[-1] == SHORT_PIECE_LENGTH
    others = generator.normal(size=(30, 3))
    total = sum_over_ones(layout.rows.ones, others, num_lines=40)
    np.testing.assert_allclose(total, dense @ others, atol=1e-12)
    many = lay_out(*np.nonzero(np.ones((4, 30))), shape=(4, 30))
    assert many.rows.ones.indices.shape[-1] == PIECE_LENGTH


def num_bytes(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


@pytest.mark.slow
def test_ones_are_laid_out_beside_little_of_their_size():
    """In the bytes of the ones: 2.7 are kept; all at once took 5.3, and 5.4 to leave some out.

    Now 3.9 and 4.3. JAX copies an array of NumPy's that is not aligned, and may hold it for a while
    until it has; so the large ones are aligned, and JAX takes them over.
    """
    shape, random = (30_000, 10_000), np.random.default_rng(0)
    cells = np.unique(random.integers(shape[0] * shape[1], size=300_000))
    rows, columns = (side.astype(np.int32) for side in np.divmod(cells, shape[1]))
    lay_out(rows[:9], columns[:9], shape=(9, 10_000))  # compiles what it needs
    tracemalloc.start()
    try:
        layout = lay_out(rows, columns, shape=shape)
        assert tracemalloc.get_traced_memory()[1] < 4.5 * 8 * rows.size
        leave_out(layout, rows[:30:7], columns[:30:7])  # compiles what it needs, likewise
        gc.collect()
        # what compiling left behind is no part of it
        kept, before = num_bytes(layout), tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        leave_out(layout, rows[:30:7], columns[:30:7])
        assert kept + tracemalloc.get_traced_memory()[1] - before < 4.5 * 8 * rows.size
    finally:
        tracemalloc.stop()


def test_sums_of_many_pieces_are_the_dense_ones():
    """All sums of the block form over the ones alone, of several chunks."""
    dense = uneven_ones(4 * BLOCK_SIZES["sparse pieces"].cpu, 80)
    layout = lay_out(*np.nonzero(dense), shape=dense.shape)
    generator = np.random.default_rng(2)
    rows, others = (
        Normal(generator.normal(size=(size, 3)), generator.uniform(0.1, 1, (size, 3)))
        for size in dense.shape
    )
    intercept, unit = Normal(np.array(-0.5), np.array(0.1)), np.ones(3)
    view = Half(rows, others, intercept, Normal(0 * unit, unit), np.ones(3, bool))
    no_zeros = Shared(indices=jnp.zeros((1,), jnp.int32), weight=jnp.zeros((1,)))
    found = jax.jit(side_sums, static_argnames=("block",))(
        jax.tree.map(jnp.asarray, view), layout.rows, no_zeros,
        likelihood=Bernoulli("quadratic"), noise=jnp.ones(()), block=True,
    )  # fmt: skip
    (a, a_var), (s, s_var) = rows, others
    mean = a @ s.T + intercept.mean
    zeta = np.sqrt(mean**2 + (a**2 + a_var) @ s_var.T + a_var @ (s**2).T + intercept.variance)
    q = dense * np.tanh(zeta / 2) / (2 * zeta)
    r = q * mean - dense / 2
    upper = np.triu_indices(3)
    expected = (
        r @ s, r.sum(axis=1, keepdims=True), q.sum(axis=1, keepdims=True), q @ s, q @ s_var,
        q @ (s[:, upper[0]] * s[:, upper[1]]),
    )  # fmt: skip
    found = found._replace(square=found.square[:, positions(found.square, 3)[upper]])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    # Broken twin: one variance for the other.
    assert np.abs(np.asarray(found.spread) - q @ s**2).max() > 0.1


@pytest.mark.parametrize("num_rows", [3, 10, 12])
def test_blocks_of_lines_are_the_whole(num_rows):
    """One block, blocks of which the last is filled up, blocks of one size."""
    sizes = []

    def double(lines):
        sizes.append(lines[0].shape[0])
        return 2 * lines[0], lines[1].sum(axis=1)

    first, second = np.arange(num_rows), np.random.default_rng(0).normal(size=(num_rows, 4))
    doubled, sums = map_lines(double, (first, second), num_cells=2**18)
    np.testing.assert_array_equal(doubled, 2 * first)
    np.testing.assert_allclose(sums, second.sum(axis=1))
    assert set(sizes) == {min(num_rows, 4)}
