"""Growing capacity: the same draws as with room enough from the start, whenever it overflows."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info, algorithm, run
from tests.engine_toys import Slots, growing

SETTINGS = {"num_warmup": 10, "num_samples": 20, "thin": 2, "num_chains": 2}
ROOMY = 32


def assert_same_where_both_have_slots(small, large):
    for name, values in small.draws.items():
        wanted = large.draws[name][tuple(slice(0, size) for size in values.shape)]
        np.testing.assert_array_equal(values, wanted, err_msg=name)
        assert np.count_nonzero(large.draws[name]) == np.count_nonzero(values)
    num_slots = small.averages["active"].shape[1]
    np.testing.assert_array_equal(small.averages["active"], large.averages["active"][:, :num_slots])
    np.testing.assert_array_equal(small.state.active, large.state.active[:, :num_slots])


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
@pytest.mark.parametrize("chunk_seconds", [1e-9, 1.0])
def test_growing_gives_the_draws_of_large_capacity(method, chunk_seconds):
    # seeds choose when the overflow comes: in the warm-up, between draws, at a draw
    for seed in range(4):
        settings = SETTINGS | {"seed": seed, "chain_method": method}
        small = run(growing(capacity=2), np.zeros(()), chunk_seconds=chunk_seconds, **settings)
        large = run(growing(capacity=ROOMY), np.zeros(()), **settings)
        assert 2 < small.capacity["slots"] < ROOMY
        assert large.capacity["slots"] == ROOMY
        assert_same_where_both_have_slots(small, large)


def test_choices_that_depend_on_capacity_are_seen():
    small = run(growing(capacity=4, stable=False), np.zeros(()), **SETTINGS)
    large = run(growing(capacity=ROOMY, stable=False), np.zeros(()), **SETTINGS)
    with pytest.raises(AssertionError):
        assert_same_where_both_have_slots(small, large)


def test_each_sequential_chain_grows_by_itself_and_ends_at_common_capacity():
    result = run(growing(capacity=2), np.zeros(()), chain_method="sequential", **SETTINGS)
    num_slots = result.capacity["slots"]
    assert result.state.active.shape == (2, num_slots)
    assert result.draws["active"].shape == (2, 20, num_slots)
    # what was drawn at smaller capacity is padded with zeros
    used = result.draws["num_features"]
    np.testing.assert_array_equal(result.draws["active"].sum(-1), used)


def test_capacity_zero_grows():
    def step(key, state, data, progress):
        filled = jnp.arange(state.active.shape[0]) < state.step + 1
        full = state.step + 1 > state.active.shape[0]
        return Slots(filled, state.value, state.step + 1), Info(overflow={"slots": full})

    toy = growing(capacity=0)
    filling = algorithm(
        init=toy.init,
        step=step,
        record=lambda key, state, data: {"active": state.active},
        grow=toy.grow,
        capacity=toy.capacity,
    )
    result = run(filling, np.zeros(()), num_samples=5)
    np.testing.assert_array_equal(result.draws["active"][0], np.tri(5, 8, dtype=bool))


def test_an_overflow_nobody_can_grow_is_refused():
    toy = growing()
    without = algorithm(init=toy.init, step=toy.step, record=toy.record)
    with pytest.raises(ValueError, match="overflow of \\['slots'\\]"):
        run(without, np.zeros(()), num_samples=3)
    with pytest.raises(ValueError, match="belong together"):
        algorithm(init=toy.init, step=toy.step, record=toy.record, grow=toy.grow)


def test_a_grow_that_does_not_grow_is_refused():
    toy = growing(capacity=2)
    lazy = algorithm(
        init=toy.init,
        step=toy.step,
        record=toy.record,
        grow=lambda state, sizes: state,
        capacity=toy.capacity,
    )
    with pytest.raises(ValueError, match=r"sizes \{'slots': 4\} and gave \{'slots': 2\}"):
        run(lazy, np.zeros(()), num_samples=30)


def test_a_step_that_changes_shapes_or_dtypes_is_refused():
    def wider(key, state, data, progress):
        return state._replace(value=state.value.astype("int32")), Info(overflow={})

    toy = growing()
    wrong = algorithm(init=toy.init, step=wider, record=toy.record)
    with pytest.raises(TypeError, match=r"changed value from float.* to int32"):
        run(wrong, np.zeros(()), num_samples=1)
    other = algorithm(
        init=toy.init,
        step=lambda key, state, data, progress: (tuple(state), Info(overflow={})),
        record=toy.record,
    )
    with pytest.raises(TypeError, match="another structure"):
        run(other, np.zeros(()), num_samples=1)


def test_growth_that_does_not_fit_stops_in_words():
    toy = growing(birth=1.0, death=0.0, capacity=32)
    with pytest.raises(MemoryError, match=r"needs about .* and 1 B are available") as caught:
        run(toy, np.zeros(()), num_samples=100, memory_limit=1)
    for word in ("num_chains", "capacity", "num_samples", "memory_limit"):
        assert word in str(caught.value)
    needed = float(re.search(r"needs about ([\d.]+) MB", str(caught.value))[1]) * 1e6
    # enough to start, not enough at twice the capacity
    reports = []
    with pytest.raises(MemoryError):
        run(
            toy,
            np.zeros(()),
            num_samples=100,
            memory_limit=int(1.3 * needed),
            chunk_seconds=1e-9,
            progress=reports.append,
        )
    assert reports[-1].step == 10


def test_slots_of_the_toy_are_really_used():
    # the comparisons above would be empty if nothing were ever born or died
    active = run(growing(capacity=2), np.zeros(()), num_samples=40).draws["active"][0]
    assert active.any(axis=0).sum() > 4
    assert (active[:-1] & ~active[1:]).any()
    assert isinstance(run(growing(capacity=2), np.zeros(()), num_samples=1).state, Slots)
