"""Single cells of tables, and draws with given weights."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf._kernels import tables
from jaxmf._kernels.tables import Lanes, choose
from jaxmf.devices import BLOCK_SIZES, BlockSize
from tests import FAST_COMPILE

NUM_UNIFORMS = 4_000
EDGES = (0.0, 2.0**-30, 0.5, 1 - 2.0**-23, 1 - 2.0**-24)


def choices(all_weights, uniforms, choose_fn=choose):
    """The indices chosen from each of several vectors of weights: a list of (U,)."""

    def together(all_weights, uniforms):
        return [
            jax.vmap(choose_fn, in_axes=(None, 0))(weights, row_uniforms)
            for weights, row_uniforms in zip(all_weights, uniforms, strict=True)
        ]

    arguments = jax.tree.map(jnp.asarray, (list(all_weights), list(uniforms)))
    return jax.tree.map(np.asarray, jax.jit(together, compiler_options=FAST_COMPILE)(*arguments))


def assert_distribution(all_weights, choose_fn=choose):
    """Each index has one interval of uniforms, as long as its probability."""
    uniforms = (np.arange(NUM_UNIFORMS) + 0.5) / NUM_UNIFORMS
    chosen = choices(all_weights, [uniforms] * len(all_weights), choose_fn)
    for weights, indices in zip(all_weights, chosen, strict=True):
        shares = np.bincount(indices, minlength=len(weights)) / NUM_UNIFORMS
        np.testing.assert_allclose(shares, weights / weights.sum(), atol=1.01 / NUM_UNIFORMS)


def some_weights(size, seed=0):
    generator = np.random.default_rng([seed, size])
    weights = generator.gamma(0.4, size=size)
    weights[generator.uniform(size=size) < 0.3] = 0
    weights[generator.integers(size)] = 1.0
    return weights


def test_an_index_is_chosen_in_proportion_to_its_weight():
    with jax.enable_x64(True):
        assert_distribution([some_weights(size) for size in (1, 2, 15, 16, 17, 33, 70)])


@pytest.mark.parametrize(("num_lanes", "sizes"), [(8, (7, 24)), (32, (32, 100))])
def test_the_distribution_is_the_same_in_fewer_and_more_lanes(num_lanes, sizes):
    with jax.enable_x64(True):
        assert_distribution(
            [some_weights(size) for size in sizes], partial(choose, num_lanes=num_lanes)
        )


@pytest.mark.exhaustive
def test_every_size_up_to_seventy():
    with jax.enable_x64(True):
        assert_distribution([some_weights(size, seed=1) for size in range(1, 71)])


def test_choosing_by_another_distribution_is_caught():
    def with_one_index_left_out(weights, uniform):
        index = jnp.argmax(jnp.cumsum(weights) > uniform * jnp.sum(weights))
        return jnp.where(index == jnp.argmin(weights + (weights == 0)), 0, index)

    with jax.enable_x64(True), pytest.raises(AssertionError):
        assert_distribution([np.array([0.5, 0.01, 0.2])], with_one_index_left_out)


def test_an_index_of_weight_zero_is_never_chosen():
    far_apart, alone, smallest = np.zeros((3, 40), np.float32)
    far_apart[[3, 19, 38]] = 1e-30, 1e30, 1e-30
    alone[[3, 38]] = 1e-30
    smallest[:20] = np.finfo(np.float32).tiny
    some = [some_weights(size).astype(np.float32) for size in (16, 70)]
    all_weights = [far_apart, alone, smallest, *some]
    # both ends, and where running sums end
    sums = [np.cumsum(weights, dtype=np.float64) / weights.sum() for weights in all_weights]
    uniforms = [
        np.clip(np.append(row, EDGES), 0, 1 - 2.0**-24).astype(np.float32)
        for row in (*sums[:2], np.linspace(0, 0.999, 50), *sums[3:])
    ]
    chosen = choices(all_weights, uniforms)
    for weights, row in zip(all_weights, chosen, strict=True):
        assert np.all(weights[row] > 0)
    assert set(chosen[1]) == {3, 38}
    assert len(set(chosen[2])) == 20


def test_more_indices_of_weight_zero_change_nothing():
    uniforms = np.random.default_rng(3).uniform(size=2_000)
    for size, wider in ((5, (9, 16, 32)), (20, (32, 64))):
        weights = some_weights(size, seed=2)
        padded = [np.pad(weights, (0, more - size)) for more in wider]
        with jax.enable_x64(True):
            expected, *others = choices([weights, *padded], [uniforms] * (1 + len(wider)))
        for other in others:
            np.testing.assert_array_equal(other, expected)


def test_lanes_are_the_indices_of_one_axis():
    shape = (3, 4, 5)
    table = np.arange(60, dtype=np.float32)
    grid = table.reshape(shape)
    lanes = {
        0: (Lanes(jnp.asarray(2 * 5 + 3), 20, 3), grid[:, 2, 3]),
        1: (Lanes(jnp.asarray(1 * 20 + 3), 5, 4), grid[1, :, 3]),
        2: (Lanes(jnp.asarray(1 * 20 + 2 * 5), 1, 5), grid[1, 2, :]),
    }
    for lane, expected in lanes.values():
        assert lane.is_run == (lane.stride == 1)
        pair = np.stack([table, -table])

        def read(start, table, pair, lane=lane):
            lane = lane._replace(start=start)
            taken = tables.take(table, lane), tables.take_from_row(pair, jnp.asarray(1), lane)
            return lane.positions(), *taken, tables.take_from_column(pair.T, lane, jnp.asarray(1))

        indices, *taken = jax.jit(read)(lane.start, table, pair)
        np.testing.assert_array_equal(table[indices], expected)
        np.testing.assert_array_equal(taken, [expected, -expected, -expected])
    looked_up = Lanes(jnp.asarray(1), 1, 2, jnp.asarray([5, 7, 50]))
    assert not looked_up.is_run
    np.testing.assert_array_equal(tables.take(jnp.asarray(table), looked_up), [7, 50])


def test_cells_are_read_and_written():
    table = jnp.arange(12.0).reshape(3, 4)
    assert tables.entry(table, jnp.asarray(2), jnp.asarray(1)) == 9
    changed = tables.add_entry(table, jnp.asarray(2), jnp.asarray(1), -1)
    expected = np.arange(12.0).reshape(3, 4)
    expected[2, 1] -= 1
    np.testing.assert_array_equal(changed, expected)
    np.testing.assert_array_equal(tables.row(changed, jnp.asarray(2)), expected[2])
    expected[0] += 2
    np.testing.assert_array_equal(tables.add(changed, jnp.asarray(0), 2), expected)
    whole = tables.add(jnp.arange(3, dtype=jnp.int32), jnp.asarray(1), True)
    assert (whole.tolist(), whole.dtype) == ([0, 2, 2], jnp.int32)
    assert tables.lowest(jnp.asarray([False, True, True])) == 1
    assert tables.lowest(jnp.asarray([False, False])) == 2


@pytest.mark.parametrize("size", [8, 9, 16, 21])
def test_the_lowest_of_many_and_their_total(size):
    free = np.random.default_rng(size).random((8, size)) < np.linspace(0, 0.6, 8)[:, None]
    expected = [int(np.argmax(one)) if one.any() else size for one in free]
    assert expected[0] == size
    np.testing.assert_array_equal(jax.jit(jax.vmap(tables.lowest))(jnp.asarray(free)), expected)
    totals = jax.jit(jax.vmap(tables.total))(jnp.asarray(free, jnp.result_type(float)))
    np.testing.assert_array_equal(totals, free.sum(axis=1))


@pytest.mark.parametrize("most_flat", [tables.MOST_FLAT, 10])
@pytest.mark.parametrize("piece", [BLOCK_SIZES["table entries"].cpu, 64])
def test_pairs_are_counted(piece, most_flat, monkeypatch):
    monkeypatch.setattr(tables, "MOST_FLAT", most_flat)
    monkeypatch.setitem(BLOCK_SIZES, "table entries", BlockSize(piece, piece))
    generator = np.random.default_rng(4)
    first, second = generator.integers(3, size=200), generator.integers(7, size=200)
    expected = np.zeros((4, 7), int)
    np.add.at(expected, (first, second), 1)
    counts = tables.count_pairs(jnp.asarray(first), jnp.asarray(second), (4, 7))
    np.testing.assert_array_equal(counts, expected)
    assert counts.dtype == jnp.int32
    none = tables.count_pairs(jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32), (2, 2))
    assert none.tolist() == [[0, 0], [0, 0]]


def test_weights_in_rows_are_chosen_by_their_shares():
    """Every position where its uniforms are, also where earlier sweeps left weights behind."""
    weights = np.array([[0, 1, 0, 3, 0, 0, 4, 0], [0, 0, 2, 0, 0, 0, 0, 6], [9] * 8], float)
    ends = np.cumsum(weights.sum(1))
    uniforms = (np.arange(1_600) + 0.5) / 1_600
    choose = jax.jit(jax.vmap(tables.choose_in_rows, in_axes=(None, None, None, 0)))
    arrays = [jnp.asarray(each, jnp.result_type(float)) for each in (weights, ends, uniforms)]
    drawn = choose(*arrays[:2], jnp.asarray(2), arrays[2])
    counts = np.bincount(drawn, minlength=weights.size)
    np.testing.assert_array_equal(counts, np.r_[weights[:2].ravel(), np.zeros(8)] * 100)
    first = choose(*arrays[:2], jnp.asarray(1), arrays[2])
    np.testing.assert_array_equal(np.bincount(first, minlength=8), weights[0] * 200)


def test_sums_in_lanes_are_those_of_every_eighth_entry():
    run = np.arange(1.0, 22.0)
    found = jax.jit(tables.in_lanes)(jnp.asarray(run))
    np.testing.assert_array_equal(found, np.pad(run, (0, 3)).reshape(-1, 8).sum(0))


def test_positions_of_flags_are_those_of_numpy():
    @jax.jit
    def positions(is_set, start):
        return tables.positions_of_flags(tables.as_flags(is_set), start, 40)

    generator = np.random.default_rng(24)
    for share in (0.0, 0.02, 0.5, 1.0):
        is_set = generator.random(1_001) < share
        expected = np.append(np.nonzero(is_set)[0], np.full(1_100, 1_024))
        for start in (0, 15, 40, 500):
            np.testing.assert_array_equal(positions(is_set, start), expected[start : start + 40])
