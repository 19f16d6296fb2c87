"""Compact ancestry: the same paths as brute force, in memory like N + P log P."""

import numpy as np
import pytest

from jaxmf.samplers.history import History


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


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_trace_is_brute_force(chunk):
    values, ancestors = simulate(np.random.default_rng(chunk), 200, 30)
    history = History(30)
    for start in range(0, 200, chunk):
        part = slice(start, start + chunk)
        history.append({"value": values[part]}, ancestors[part])
        expected = brute_force(values[: start + chunk], ancestors[: start + chunk])
        np.testing.assert_array_equal(history.trace()["value"], expected)
    np.testing.assert_array_equal(history.trace([3, 3, 0])["value"], expected[[3, 3, 0]])


def test_every_node_has_a_descendant():
    values, ancestors = simulate(np.random.default_rng(5), 300, 20)
    history = History(20)
    for start in range(0, 300, 10):
        history.append({"v": values[start : start + 10]}, ancestors[start : start + 10])
    nodes = history._leaves
    alive = set()
    while np.any(nodes >= 0):
        alive |= set(nodes[nodes >= 0].tolist())
        nodes = np.where(nodes >= 0, history._parent[nodes], -1)
    assert history.num_nodes == len(alive)


def test_steps_without_a_row_only_choose():
    rng = np.random.default_rng(2)
    values, ancestors = simulate(rng, 60, 12)
    is_row = np.ones(60, bool)
    is_row[40:] = False
    history = History(12)
    for start in range(0, 60, 9):
        part = slice(start, start + 9)
        history.append({"v": values[part]}, ancestors[part], is_row=is_row[part])
    index = np.arange(12)
    for step in range(59, 39, -1):
        index = ancestors[step, index]
    expected = brute_force(values[:40], ancestors[:40])[index]
    np.testing.assert_array_equal(history.trace()["v"], expected)


@pytest.mark.parametrize("num_particles", [100, 1000])
def test_memory_grows_like_rows_plus_particles(num_particles):
    # Multinomial resampling at every row: N + c P log P nodes, far below N P.
    rng = np.random.default_rng(1)
    history = History(num_particles)
    sizes = []
    for _ in range(12):
        ancestors = np.sort(rng.integers(0, num_particles, (500, num_particles)), axis=1)
        history.append({"z": np.ones((500, num_particles, 4), bool)}, ancestors)
        sizes.append(history.num_nodes - history.num_rows)
    bound = 4 * num_particles * np.log(num_particles)
    assert max(sizes) < bound
    assert history.num_nodes < 0.08 * history.num_rows * num_particles
    assert history.num_bytes < 60 * (history.num_rows + bound)


def test_features_may_grow():
    history = History(2)
    same = np.array([[0, 1], [0, 1]])
    history.append({"z": np.ones((2, 2, 3), bool)}, same)
    history.append({"z": np.ones((2, 2, 5), bool)}, same)
    history.append({"z": np.ones((1, 2, 4), bool)}, same[:1])
    path = history.trace()["z"][0]
    assert path.shape == (5, 5)
    np.testing.assert_array_equal(path.sum(1), [3, 3, 5, 5, 4])


def test_shapes_are_checked():
    history = History(3)
    with pytest.raises(ValueError, match="ancestors"):
        history.append({}, np.zeros((2, 4), int))
    with pytest.raises(ValueError, match="z must start"):
        history.append({"z": np.zeros((2, 4))}, np.zeros((2, 3), int))
