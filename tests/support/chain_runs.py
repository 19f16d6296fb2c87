"""Runs of chains and filters of binary features, for averages held against enumerations."""

import jax
import jax.numpy as jnp

from tests import LONG_RUNS


def chain_averages(kernel, measure, state, *, num_steps, seed, num_burn_in=0):
    """Averages over the steps of each chain after the burn-in; no chain may overflow.

    `state` has the chains first, `kernel(key, state)` makes a step, `measure(state)` is averaged.
    """

    def one_chain(key, state):
        def step(index, carry):
            state, total, overflow = carry
            state, info = kernel(jax.random.fold_in(key, index), state)
            total = jax.tree.map(
                lambda sums, new: sums + jnp.where(index >= num_burn_in, new, 0),
                total,
                measure(state),
            )
            return state, total, overflow | jnp.any(jnp.stack(list(info.overflow.values())))

        start = (state, jax.tree.map(jnp.zeros_like, measure(state)), jnp.asarray(False))
        _, total, overflow = jax.lax.fori_loop(0, num_burn_in + num_steps, step, start)
        return jax.tree.map(lambda sums: sums / num_steps, total), overflow

    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(state)[0]))
    averages, overflow = jax.jit(jax.vmap(one_chain), compiler_options=LONG_RUNS)(keys, state)
    assert not overflow.any()
    return jax.device_get(averages)


def run_filter(algorithm, data, key, num_steps):
    """The last cloud, and of every step its draw and whether slots for features were too few."""
    cloud = algorithm.init(jax.random.fold_in(key, 2**31), data)

    def one(cloud, step):
        step_key = jax.random.fold_in(key, step)
        cloud, info = algorithm.step(step_key, cloud, data, jnp.ones(()))
        return cloud, (algorithm.record(step_key, cloud, data), info.overflow["features"])

    return jax.lax.scan(one, cloud, jnp.arange(num_steps))


def paths(draws, cloud, num_rows):
    """(P, N, K) the Z of every particle; steps after the rows bring the cloud to its target."""
    if cloud.particles.z is not None:
        return cloud.particles.z
    index = jnp.arange(cloud.log_weights.shape[0])
    for step in range(draws["ancestor"].shape[0] - 1, num_rows - 1, -1):
        index = draws["ancestor"][step][index]
    rows = []
    for row in range(num_rows - 1, -1, -1):
        rows.append(draws["z"][row][index])
        index = draws["ancestor"][row][index]
    return jnp.stack(rows[::-1], axis=1)
