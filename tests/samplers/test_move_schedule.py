"""Schedules of optional moves: what is kept, that nothing changes after the warm-up, exactness."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.engine import Info
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.noisy_or.updates import propose
from jaxmf.report import report
from jaxmf.samplers.move_schedule import (
    MoveRecord,
    OptionalMove,
    facts,
    make_moves,
    start_schedule,
)
from jaxmf.samplers.noisy_or import informed
from tests.models import test_noisy_or_kernels as noisy_or


class Toy(NamedTuple):
    """How often each move was proposed."""

    made: dict[str, jax.Array]
    schedule: Any = None


def proposal_of(name, acceptance):
    """A move that counts itself; every 1 / acceptance-th proposal is accepted."""

    def kernel(state, count):
        before, after = state.made[name], state.made[name] + count
        accepted = jnp.floor(after * acceptance) - jnp.floor(before * acceptance)
        state = state._replace(made=state.made | {name: after})
        return state, Info(overflow={}), accepted.astype(jnp.int32)

    return kernel


MOVES = [
    OptionalMove("never", 2, 0.2, proposal_of("never", 0.0)),
    OptionalMove("often", 3, 0.2, proposal_of("often", 0.1)),
    OptionalMove("dear", 1, 8.0, proposal_of("dear", 0.1)),
    OptionalMove("absent", 0, 0.2, proposal_of("absent", 1.0)),
]


def run_of(num_warmup, num_steps):
    """The states after every step."""
    start = Toy(
        {move.name: jnp.zeros((), jnp.int32) for move in MOVES},
        start_schedule({move.name: move.num_proposals for move in MOVES}),
    )
    states = [start]
    step = jax.jit(lambda state, progress: make_moves(state, MOVES, progress)[0])
    for index in range(num_steps):
        progress = index / num_warmup if index < num_warmup else 1.0
        states.append(step(states[-1], jnp.asarray(progress)))
    return jax.device_get(states)


def test_a_move_stays_where_it_is_accepted_often_enough_for_what_it_costs():
    states = run_of(num_warmup=800, num_steps=810)
    last = states[-1]
    assert {name: int(each.num_proposals) for name, each in last.schedule.items()} == {
        "never": 0,
        "often": 3,
        "dear": 0,
    }
    made = {name: int(count) for name, count in last.made.items()}
    assert made == {"never": 1600, "often": 2430, "dear": 800, "absent": 0}
    assert int(last.schedule["often"].num_tried) == 3 * 200
    assert int(last.schedule["often"].num_accepted) == 60


def test_nothing_is_counted_before_the_last_quarter_of_the_warm_up_or_after_it():
    states = run_of(num_warmup=800, num_steps=810)
    for state in states[:601]:
        assert state.schedule == states[0].schedule
    for state in states[801:]:
        assert state.schedule == states[800].schedule


def test_without_a_warm_up_or_a_schedule_every_move_is_made():
    assert int(run_of(num_warmup=0, num_steps=5)[-1].made["never"]) == 10
    state = Toy({move.name: jnp.zeros((), jnp.int32) for move in MOVES})
    state, _ = make_moves(state, MOVES, 0.7)
    assert int(state.made["never"]) == 2
    assert state.schedule is None
    assert facts(state) == {}


def data_of(seed=0):
    generator = np.random.default_rng(seed)
    z, y = generator.random((12, 2)) < 0.5, generator.random((2, 10)) < 0.5
    return (generator.random((12, 10)) < 0.1 + 0.8 * (z.astype(int) @ y > 0)).astype(float)


# A sweep and these moves alone: with all others a program takes twice as long to compile.


@pytest.mark.slow
def test_the_schedule_of_a_chain_is_constant_after_the_warm_up():
    model, data = NoisyOrIBP(**noisy_or.FIXED), mf.Dense(data_of())
    sampler = model.sampler(num_moves=0, shared_births=2, capacity=16)
    state, step = jax.jit(sampler.init)(jax.random.key(0), data), jax.jit(sampler.step)
    schedules = []
    for index in range(60):
        progress = jnp.asarray(min(index / 30, 1.0))
        state, _ = step(jax.random.key(index), state, data, progress)
        schedules.append(jax.device_get(state.schedule))
    assert int(schedules[29]["births"].num_tried) == 2 * 7
    assert schedules[21]["births"].num_tried == 0
    assert all(schedule == schedules[29] for schedule in schedules[30:])


@pytest.mark.slow
def test_a_run_its_files_and_its_report_say_what_was_kept(tmp_path):
    post = mf.sample(
        NoisyOrIBP(**noisy_or.FIXED), data_of(), num_moves=0, shared_births=2, num_warmup=20,
        num_samples=20, num_chains=2, progress=False,
    )  # fmt: skip
    births = post.meta.run["moves"]["births"]
    assert len(births["proposals"]) == 2
    assert 0 <= births["accepted"] <= 1
    post.save(tmp_path / "run")
    loaded = mf.load(tmp_path / "run")
    assert loaded.meta.run["moves"] == {"births": births}
    line = post.facts()["moves"]
    assert line.startswith("births: ")
    report(post, tmp_path / "page.html")
    assert line in (tmp_path / "page.html").read_text()


# --- exactness -----------------------------------------------------------------------------------


def scheduled_kernel(model, proposals_of):
    """The step after a warm-up whose schedule makes so many births a step of this state."""
    step = model.sampler(shared_births=3).step

    def kernel(key, state, data):
        zero = jnp.zeros((), jnp.int32)
        record = MoveRecord(jnp.asarray(proposals_of(state), jnp.int32), zero, zero)
        state, info = step(key, state._replace(schedule={"births": record}), data, jnp.asarray(1.0))
        return state._replace(schedule=None), info

    return kernel


@pytest.mark.tiers(exhaustive=["0"])  # a number in the same program
@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 3])
def test_a_step_with_each_schedule_agrees_with_fresh_data(count):
    model = NoisyOrIBP(**noisy_or.PRIORS)
    kernel = scheduled_kernel(model, lambda state: count)
    noisy_or.Setup(model).check(kernel, key=jax.random.key(81), num_steps=3)


def births_kernel(model, proposals_of):
    """The births of that step alone."""

    def kernel(key, state, data):
        zero = jnp.zeros((), jnp.int32)
        record = MoveRecord(jnp.asarray(proposals_of(state), jnp.int32), zero, zero)
        births = OptionalMove(
            "births", 4, 0.2, partial(propose, model, informed.birth_or_death, key, data=data)
        )
        scheduled = state._replace(schedule={"births": record})
        state, info = make_moves(scheduled, [births], 1.0)
        return state._replace(schedule=None), info

    return kernel


@pytest.mark.slow
def test_a_schedule_that_goes_on_learning_from_the_state_is_caught():
    """Births and deaths only while there are few causes: the causes they bring never go."""
    model = NoisyOrIBP(**noisy_or.FIXED | {"alpha": 1.5})
    setup = noisy_or.Setup(model, False, 32)
    setup.check(births_kernel(model, lambda state: 4), key=jax.random.key(82), num_steps=3)
    kernel = births_kernel(model, lambda state: 4 * (jnp.sum(state.z.any(0)) < 3))
    noisy_or.must_fail(setup, kernel, num_replicates=4_096, num_steps=3)
