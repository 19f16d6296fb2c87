"""Small algorithms the tests of the engine run; also imported by their subprocesses.

Each is made once, so that tests share what was compiled.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxmf.engine import Info, algorithm, sequence


class Pair(NamedTuple):
    x: jax.Array
    y: jax.Array
    key: jax.Array  # a typed key inside a state
    unused: None


@cache
def pair_gibbs(correlation=0.5):
    """Gibbs sampler of a bivariate normal around the data, as two kernels in sequence."""

    def update_x(key, state, data):
        noise = jnp.sqrt(1 - correlation**2) * jax.random.normal(key)
        x = data[0] + correlation * (state.y - data[1]) + noise
        return Pair(x=x, y=state.y, key=state.key, unused=None), Info(overflow={})

    def update_y(key, state, data):
        noise = jnp.sqrt(1 - correlation**2) * jax.random.normal(key)
        y = data[1] + correlation * (state.x - data[0]) + noise
        inner = jax.random.fold_in(state.key, 1)
        return Pair(x=state.x, y=y, key=inner, unused=None), Info(overflow={})

    sweep = sequence(update_x, update_y)

    def step(key, state, data, progress):
        return sweep(key, state, data)

    def log_joint(state, data):
        x, y = state.x - data[0], state.y - data[1]
        square = (x**2 - 2 * correlation * x * y + y**2) / (1 - correlation**2)
        return -0.5 * square

    return algorithm(
        init=lambda key, data: Pair(x=data[0], y=data[1], key=key, unused=None),
        step=step,
        record=lambda key, state, data: {
            "x": state.x,
            "y": state.y,
            "nothing": jnp.zeros((0, 3)),
            "log_joint": log_joint(state, data),
        },
        average=lambda key, state, data: {"x": state.x, "above": state.x > data[0]},
    )


class Slots(NamedTuple):
    active: jax.Array  # (K,) bool
    value: jax.Array  # (K,) float
    step: jax.Array  # () int32


@cache
def growing(birth=0.35, death=0.25, capacity=4, stable=True):
    """Slots that are born and die; no random choice depends on the number of slots.

    With stable=False the choices of one step are one block over slots, whose entries change with
    the capacity: the fault the tests of growth must see.
    """

    def step(key, state, data, progress):
        keys = jax.random.split(key)
        num_slots = state.active.shape[0]
        chances = jax.random.uniform(keys[0], (num_slots,) if stable else (2, num_slots))
        chances = chances if stable else chances[1]
        survives = chances > death
        active = state.active & survives
        num_born = jnp.sum(jax.random.uniform(keys[1], (3,)) < birth + 0 * data)
        rank = jnp.cumsum(~active)
        born = ~active & (rank <= num_born)
        value = jnp.where(active, state.value, 0.0)
        value = jnp.where(born, chances, value)
        new = Slots(active=active | born, value=value, step=state.step + 1)
        return new, Info(overflow={"slots": num_born > jnp.sum(~active)})

    def grow(state, sizes):
        more = (0, sizes["slots"] - state.active.shape[0])
        return Slots(
            active=jnp.pad(state.active, more), value=jnp.pad(state.value, more), step=state.step
        )

    return algorithm(
        init=lambda key, data: Slots(
            active=jnp.zeros(capacity, bool),
            value=jnp.zeros(capacity),
            step=jnp.zeros((), jnp.int32),
        ),
        step=step,
        record=lambda key, state, data: {
            "active": state.active,
            "value": state.value,
            "num_features": jnp.sum(state.active),
            "log_joint": -1.0 * jnp.sum(state.active),
        },
        grow=grow,
        capacity=lambda state: {"slots": state.active.shape[0]},
        average=lambda key, state, data: {"active": state.active},
    )


class Fuse(NamedTuple):
    position: jax.Array
    charge: jax.Array


@cache
def fuse():
    """Counts its steps; `charge` is not a number after the step the data name."""

    def step(key, state, data, progress):
        charge = jnp.where(state.position == data, jnp.nan, 0.0)
        return Fuse(position=state.position + 1, charge=charge), Info(overflow={})

    return algorithm(
        init=lambda key, data: Fuse(position=jnp.zeros((), jnp.int32), charge=jnp.zeros(())),
        step=step,
        record=lambda key, state, data: {"position": state.position},
    )


@cache
def sharp_edge():
    """A log joint that is minus infinity in draws from the step the data name on."""

    def step(key, state, data, progress):
        return state + 1, Info(overflow={})

    return algorithm(
        init=lambda key, data: jnp.zeros((), jnp.int32),
        step=step,
        record=lambda key, state, data: {"log_joint": jnp.where(state > data, -jnp.inf, 0.0)},
    )


LOOK = {"now": lambda step: None}


@cache
def looked_at(**settings):
    """`growing`, where the host calls ``LOOK["now"](step)`` in every step."""
    toy = growing(**settings)

    def call(index):
        LOOK["now"](int(index))
        return index

    def step(key, state, data, progress):
        new, info = toy.step(key, state, data, progress)
        shape = jax.ShapeDtypeStruct((), state.step.dtype)
        index = jax.pure_callback(call, shape, state.step, vmap_method="sequential")
        return new._replace(step=index + 1), info

    return toy._replace(step=Partial(step))


def assert_same_run(left, right):
    """Draws, averages and state agree bit for bit."""
    for name in ("draws", "averages"):
        one, other = getattr(left, name), getattr(right, name)
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=f"{name} {key}")
            assert one[key].dtype == other[key].dtype
    assert jax.tree.structure(left.state) == jax.tree.structure(right.state)
    pairs = zip(jax.tree.leaves(left.state), jax.tree.leaves(right.state), strict=True)
    for one, other in pairs:
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    assert left.num_steps == right.num_steps
    assert left.num_draws == right.num_draws
    assert left.capacity == right.capacity


def stop_at(step):
    """A progress function that interrupts a run once `step` steps are done."""

    def progress(report):
        if report.step >= step:
            raise KeyboardInterrupt

    return progress
