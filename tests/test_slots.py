"""Slots: handing out, freeing, ordering and growing."""

import chex
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from jaxmf import slots
from jaxmf.testing import LEVEL


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 8))
def test_claim_takes_the_lowest_free_slots(occupied, num_new):
    claim = slots.claim(jnp.array(occupied), num_new)
    free = [slot for slot in range(6) if not occupied[slot]]
    assert np.flatnonzero(claim.claimed).tolist() == free[:num_new]
    assert bool(claim.overflow) == (num_new > len(free))
    assert claim.shortage == max(num_new - len(free), 0)


def test_claim_of_a_full_array_overflows_only_when_asked_for_more():
    full = jnp.ones(3, bool)
    assert not slots.claim(full, 0).overflow
    assert slots.claim(full, 1).overflow
    assert not slots.claim(full, 1).claimed.any()


def test_release_zeroes_the_freed_slots_on_the_axis():
    array = jnp.arange(1, 13).reshape(3, 4)
    freed = jnp.array([False, True, False])
    released = slots.release(array, freed, axis=0)
    chex.assert_trees_all_equal(released, array.at[1].set(0))
    freed = jnp.array([True, False, False, True])
    released = slots.release(array, freed, axis=-1)
    chex.assert_trees_all_equal(released, array.at[:, jnp.array([0, 3])].set(0))
    assert released.dtype == array.dtype
    assert slots.release(jnp.ones((2, 3), bool), freed[:3]).dtype == bool


def test_random_order_is_uniform_over_the_occupied_slots():
    occupied = jnp.array([True, False, True, True, False])
    keys = jax.random.split(jax.random.key(0), 6_000)
    orders = np.asarray(jax.vmap(slots.random_order, in_axes=(0, None))(keys, occupied))
    assert set(map(tuple, np.sort(orders[:, :3]))) == {(0, 2, 3)}
    assert set(map(tuple, np.sort(orders[:, 3:]))) == {(1, 4)}
    _, counts = np.unique(orders[:, :3], axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > LEVEL


def test_random_order_does_not_depend_on_the_capacity():
    key = jax.random.key(1)
    occupied = jnp.array([True, False, True, True, False])
    small = slots.random_order(key, occupied)
    large = slots.random_order(key, slots.pad_axis(occupied, 0, 32))
    chex.assert_trees_all_equal(small[:3], large[:3])


def test_pad_axis_appends_zeros_and_refuses_to_shrink():
    array = jnp.ones((2, 3), bool)
    padded = slots.pad_axis(array, 1, 5)
    assert padded.shape == (2, 5)
    assert padded.dtype == bool
    assert not padded[:, 3:].any()
    chex.assert_trees_all_equal(slots.pad_axis(array, 1, 3), array)
    with pytest.raises(ValueError, match="3 slots cannot grow to 2"):
        slots.pad_axis(array, 1, 2)


def test_normals_are_the_same_at_any_capacity_of_either_axis():
    small = slots.normals(jax.random.key(3), 3, 2, float)
    large = slots.normals(jax.random.key(3), 7, 5, float)
    np.testing.assert_array_equal(small, large[:3, :2])
    assert len(np.unique(large)) == large.size


def test_a_visit_goes_through_the_allowed_slots_from_the_smallest_number_up():
    order = jnp.asarray([0.5, 0.1, 0.9, 0.3])
    allowed = jnp.asarray([True, True, False, True])

    def write_down(k, here, state):
        seen, position = state
        return seen + here * (position + 1), position + 1

    seen, count = slots.visit(write_down, (jnp.zeros(4, int), 0), order=order, allowed=allowed)
    assert seen.tolist() == [3, 1, 0, 2]
    assert count == 3


def test_nothing_is_visited_where_nothing_is_allowed():
    nowhere = jnp.zeros(3, bool)
    assert slots.visit(lambda k, here, s: s + 1, 0, order=jnp.zeros(3), allowed=nowhere) == 0


def test_occupied_slots_come_first_and_keep_their_order():
    occupied = np.array([False, True, False, True, True])
    assert slots.occupied_first(jnp.asarray(occupied)).tolist() == [1, 3, 4, 0, 2]
    # at a larger capacity the same slots are at the same positions
    more = jnp.concatenate([jnp.asarray(occupied), jnp.zeros(3, bool)])
    assert slots.occupied_first(more).tolist() == [1, 3, 4, 0, 2, 5, 6, 7]


@pytest.mark.parametrize(("least", "size"), [(0, 3), (2, 3), (4, 4), (9, 6)])
def test_draws_lose_the_last_slots_that_none_of_them_uses(least, size):
    z = np.zeros((2, 3, 4, 6), bool)
    z[0, 1, 2, 0] = z[1, 0, 3, 2] = True
    draws = {"z": z, "y": np.arange(2 * 3 * 6 * 5).reshape(2, 3, 6, 5), "noise": np.ones((2, 3))}
    found = slots.trimmed(draws, "z", {"z": -1, "y": 2, "absent": 2}, least=least)
    assert found.keys() == draws.keys()
    np.testing.assert_array_equal(found["z"], z[..., :size])
    np.testing.assert_array_equal(found["y"], draws["y"][:, :, :size])
    np.testing.assert_array_equal(found["noise"], draws["noise"])


def test_one_slot_is_left_where_no_draw_has_a_feature():
    found = slots.trimmed({"z": np.zeros((1, 2, 3, 4), bool)}, "z", {"z": -1}, least=0)
    assert found["z"].shape == (1, 2, 3, 1)
    assert slots.trimmed({"noise": np.ones(2)}, "z", {"z": -1}, least=0).keys() == {"noise"}
