"""Growing capacity: the same draws as with room enough from the start, whenever it overflows."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxmf.engine import (
    GrowthError,
    GrowthWarning,
    Info,
    Limit,
    algorithm,
    load_run,
    memory,
    run,
    short_of,
)
from jaxmf.engine.algorithm import MAX_CAPACITY, next_size
from jaxmf.engine.draws import DrawStore
from tests.support.engine_toys import Slots, growing

SETTINGS = {"num_warmup": 10, "num_samples": 20, "thin": 2, "num_chains": 2}
ROOMY = 32


def assert_same_where_both_have_slots(small, large):
    for name, values in small.draws.items():
        expected = large.draws[name][tuple(slice(0, size) for size in values.shape)]
        np.testing.assert_array_equal(values, expected, err_msg=name)
        assert np.count_nonzero(large.draws[name]) == np.count_nonzero(values)
    num_slots = small.averages["active"].shape[1]
    np.testing.assert_array_equal(small.averages["active"], large.averages["active"][:, :num_slots])
    np.testing.assert_array_equal(small.state.active, large.state.active[:, :num_slots])


@pytest.mark.tiers(exhaustive=["1.0-vectorized", "1e-09-sequential", "1e-09-vectorized"])
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


def test_a_step_that_says_how_many_slots_it_is_short_of_grows_once():
    toy, grown = growing(capacity=4), {True: set(), False: set()}

    def filling(knows):
        def step(key, state, data, progress):
            num_slots = state.active.shape[0]
            needed = jax.random.randint(key, (), 17, 33)
            info = short_of("slots", jnp.maximum(needed - num_slots, 0))
            info = info if knows else Info(overflow=info.overflow)
            return Slots(jnp.arange(num_slots) < needed, state.value, state.step + 1), info

        def grow(state, sizes):
            grown[knows].add(sizes["slots"])
            return toy.grow(state, sizes)

        return toy._replace(step=Partial(step), grow=Partial(grow))

    settings = {"num_samples": 5, "num_chains": 2, "chain_method": "vectorized"}
    results = {knows: run(filling(knows), np.zeros(()), **settings) for knows in (True, False)}
    assert grown == {True: {32}, False: {8, 16, 32}}
    assert results[True].capacity == results[False].capacity == {"slots": 32}
    np.testing.assert_array_equal(*(result.draws["active"] for result in results.values()))


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


def test_growth_that_does_not_fit_stops_in_words(monkeypatch):
    # what compiling takes of the process depends on all that it did before
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)
    toy = growing(birth=1.0, death=0.0, capacity=32)
    with pytest.raises(MemoryError, match=r"needs about .* and 1 B are available") as caught:
        run(toy, np.zeros(()), num_samples=100, memory_limit=1)
    for word in ("num_chains", "capacity", "num_samples", "memory_limit"):
        assert word in str(caught.value)
    needed = float(re.search(r"needs about ([\d.]+) MB", str(caught.value))[1]) * 1e6
    # enough to start, not enough at twice the capacity
    limit = {"memory_limit": int(1.3 * needed)}
    with pytest.warns(GrowthWarning, match="needs about .* are available.* returns the 10 draws"):
        part = run(toy, np.zeros(()), num_samples=100, **limit)
    assert (part.num_draws, part.complete, part.capacity) == (10, False, {"slots": 32})
    # before the first draw there is nothing to return
    with pytest.raises(MemoryError, match="needs about"):
        run(toy, np.zeros(()), num_warmup=50, num_samples=50, **limit)


def limited(size, birth=0.35, death=0.25, capacity=2):
    """The toy of growth with a limit that it states."""
    toy = growing(birth=birth, death=death, capacity=capacity)
    return toy._replace(limit=Partial(lambda data: {"slots": Limit(size, "Use fewer slots")}))


def test_growth_stops_at_the_limit_first_and_the_limit_is_enough_for_those_who_need_no_more():
    # three births a step: 12 slots hold 4 steps, though doubling 8 would give 16
    result = run(limited(12, birth=1.0, death=0.0), np.zeros(()), num_samples=4)
    assert result.complete
    assert result.capacity == {"slots": 12}


@pytest.mark.tiers(slow=["1.0-sequential", "1e-09-vectorized"], exhaustive=["1.0-vectorized"])
@pytest.mark.parametrize("method", ["sequential", "vectorized"])
@pytest.mark.parametrize("chunk_seconds", [1e-9, 1.0])
def test_beyond_the_limit_the_draws_so_far_are_returned_with_a_warning(method, chunk_seconds):
    settings = {"num_samples": 400, "num_chains": 3, "chain_method": method, "seed": 1}
    with pytest.warns(GrowthWarning, match=r"more than 5 slots of 'slots' at step \d+.* Use fewer"):
        part = run(limited(5), np.zeros(()), chunk_seconds=chunk_seconds, **settings)
    assert not part.complete
    assert part.capacity == {"slots": 5}
    assert 0 < part.num_draws == part.num_steps < 400
    # all chains are at the step where the first of them stopped, as if asked for no more
    short = run(limited(5), np.zeros(()), **(settings | {"num_samples": part.num_draws}))
    for name in ("draws", "averages"):
        for key, values in getattr(short, name).items():
            there = getattr(part, name)[key][tuple(slice(0, size) for size in values.shape)]
            np.testing.assert_array_equal(there, values, err_msg=key)
    np.testing.assert_array_equal(
        part.state.active[..., : short.state.active.shape[-1]], short.state.active
    )


def test_beyond_the_limit_in_the_warm_up_is_an_error_and_its_checkpoint_is_kept(tmp_path):
    with pytest.raises(GrowthError, match=r"chain 0 needs more than 5 slots .* kept in") as caught:
        run(limited(5, birth=1.0), np.zeros(()), num_warmup=100, num_samples=5, checkpoint=tmp_path)
    error = caught.value
    assert (error.axis, error.size) == ("slots", 5)
    kept, _ = load_run(tmp_path)
    assert kept.num_steps == error.step > 0


def test_without_a_stated_limit_growth_ends_all_the_same(monkeypatch):
    monkeypatch.setattr(Limit.__new__, "__defaults__", (16, "Look at the scales"))
    endless = growing(birth=1.0, death=0.0, capacity=2)
    with pytest.warns(GrowthWarning, match="16 slots of 'slots' .* Look at the scales"):
        part = run(endless, np.zeros(()), num_samples=10**6)
    assert part.num_draws == 5
    assert next_size(MAX_CAPACITY, MAX_CAPACITY) is None


def test_slots_of_the_toy_are_really_used():
    # the comparisons above would be empty if nothing were ever born or died
    active = run(growing(capacity=2), np.zeros(()), num_samples=40).draws["active"][0]
    assert active.any(axis=0).sum() > 4
    assert (active[:-1] & ~active[1:]).any()
    assert isinstance(run(growing(capacity=2), np.zeros(()), num_samples=1).state, Slots)


def test_draws_whose_integers_become_wider_are_kept_whole():
    store = DrawStore(num_chains=1, num_samples=2)
    store.put(slice(None), 0, {"group": np.array([[[200]]], np.uint8)})
    store.put(slice(None), 1, {"group": np.array([[[300, 7]]], np.uint16)})
    assert store.get(0, 2)["group"].tolist() == [[[200, 0], [300, 7]]]
