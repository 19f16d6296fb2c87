"""Paths of particles: the same as by brute force."""

import numpy as np

from jaxmf.samplers.cloud import trace_paths


def simulate(rng, num_rows, num_particles, *, resample_share=0.5):
    ancestors = np.tile(np.arange(num_particles), (num_rows, 1))
    for row in range(num_rows):
        if rng.random() < resample_share:
            ancestors[row] = rng.choice(num_particles, num_particles, p=weights(rng, num_particles))
    return rng.integers(0, 1000, (num_rows, num_particles)), ancestors


def weights(rng, num_particles):
    drawn = rng.gamma(0.5, size=num_particles)
    return drawn / drawn.sum()


def brute_force(values, ancestors):
    num_rows, num_particles = ancestors.shape
    index = np.arange(num_particles)
    paths = np.empty((num_particles, num_rows), values.dtype)
    for row in range(num_rows - 1, -1, -1):
        paths[:, row] = values[row, index]
        index = ancestors[row, index]
    return paths


def test_paths_are_those_of_brute_force():
    values, ancestors = simulate(np.random.default_rng(7), 200, 30)
    paths, first = trace_paths({"v": values, "z": values[..., None] % 2 == 0}, ancestors)
    expected = brute_force(values, ancestors)
    np.testing.assert_array_equal(paths["v"], expected)
    np.testing.assert_array_equal(paths["z"], expected[..., None] % 2 == 0)
    # a row before the first one, in which every particle keeps its position
    before = np.vstack([np.zeros((1, 30), int), ancestors])
    everything = brute_force(np.vstack([np.arange(30)[None], values]), before)
    np.testing.assert_array_equal(first, everything[:, 0])


def test_steps_without_a_row_only_choose():
    values, ancestors = simulate(np.random.default_rng(2), 60, 12)
    is_row = np.ones(60, bool)
    is_row[40:] = False
    index = np.arange(12)
    for step in range(59, 39, -1):
        index = ancestors[step, index]
    expected = brute_force(values[:40], ancestors[:40])[index]
    paths, _ = trace_paths({"v": values}, ancestors, is_row=is_row)
    np.testing.assert_array_equal(paths["v"], expected)
