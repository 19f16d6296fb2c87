"""Where a chain of binary matrix factorisation starts from the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.models.binary_mf import starts
from jaxmf.samplers.annealing import ANNEALED_START
from jaxmf.samplers.bilinear.start import start_from_data

NONE = jnp.zeros((40, 0), bool), jnp.zeros((30, 0), bool)
START = jax.jit(start_from_data, static_argnames="slots")
FINITE = mf.BetaBernoulli(1.0, 1.0, 5)
SIDES = {"row_prior": FINITE, "column_prior": FINITE}


def blocks(seed=11):
    rng = np.random.default_rng(seed)
    u, v = rng.random((40, 3)) < 0.4, rng.random((30, 3)) < 0.4
    mean = u @ rng.normal(0, 2, (3, 3)) @ v.T
    return u, v, (mean + 0.3 * rng.normal(size=mean.shape)).astype(np.float32)


def wrong(found, truth):
    """How many lines are wrong, at least, of every true feature."""
    return np.abs(truth.T[:, None] ^ np.asarray(found).T[None]).sum(axis=-1).min(axis=1)


@pytest.mark.tiers(exhaustive=["1000000.0"])
@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_the_features_that_made_the_data_are_found(unit):
    u, v, x = blocks()
    found = START(jax.random.key(0), unit * x, None, fixed=NONE, slots=(5, 5))
    assert wrong(found.u, u).sum() <= 1
    assert wrong(found.v, v).sum() <= 1
    assert 0.25 < found.noise_scale / unit < 0.35
    fit = np.asarray(found.u, float) @ np.asarray(found.weights) @ np.asarray(found.v, float).T
    np.testing.assert_allclose(
        np.sqrt(np.mean((unit * x - fit) ** 2)), found.noise_scale, rtol=1e-3
    )
    # the columns of another matrix are no features of this one
    assert wrong(found.u, blocks(seed=5)[0]).sum() > 9


@pytest.mark.exhaustive
def test_missing_cells_do_not_matter_and_the_features_are_found_without_them():
    u, _, x = blocks()
    seen = np.random.default_rng(0).random(x.shape) < 0.7
    first, second = (
        START(jax.random.key(0), np.where(seen, x, beneath), seen, fixed=NONE, slots=(5, 5))
        for beneath in (0.0, 1e4)
    )
    np.testing.assert_array_equal(first.u, second.u)
    assert first.noise_scale == second.noise_scale < 0.45
    assert wrong(first.u, u).sum() <= 4


@pytest.mark.exhaustive
def test_given_features_stay_and_are_not_found_again():
    u, _, x = blocks()
    fixed = jnp.asarray(u[:, :1]), NONE[1]
    found = np.asarray(START(jax.random.key(0), x, None, fixed=fixed, slots=(5, 5)).u)
    np.testing.assert_array_equal(found[:, :1], u[:, :1])
    assert wrong(found[:, 1:], u[:, 1:]).sum() <= 1
    assert wrong(found[:, 1:], u[:, :1]).sum() > 2


@pytest.mark.tiers(exhaustive=["x1"])
@pytest.mark.slow
@pytest.mark.parametrize("x", [np.random.default_rng(4).normal(size=(40, 30)), np.zeros((40, 30))])
def test_a_chain_starts_from_the_prior_where_the_data_show_nothing(x):
    model, data = mf.BinaryMF(**SIDES), mf.Dense(jnp.asarray(x, jnp.float32))
    states = [model.sampler(start=one).init(jax.random.key(3), data) for one in ("data", "prior")]
    jax.tree.map(np.testing.assert_array_equal, *states)


@pytest.mark.tiers(exhaustive=["likelihood1"])
@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [mf.Gaussian(), mf.Bernoulli()])
def test_a_chain_of_any_cells_starts_with_more_probable_features(likelihood):
    x = blocks()[2]
    if isinstance(likelihood, mf.Bernoulli):
        x = (x > 0).astype(np.float32)
    model, data = mf.BinaryMF(**SIDES, likelihood=likelihood), mf.Dense(jnp.asarray(x))
    log_joint = {}
    is_binary = isinstance(likelihood, mf.Bernoulli)
    for start in ("data", "prior", "search") if is_binary else ("data", "prior"):
        init = jax.jit(model.sampler(start=start, weights="explicit").init)
        state = init(jax.random.key(0), data)
        log_joint[start] = float(model.log_joint(state, data))
    assert np.isfinite(log_joint["data"])
    assert log_joint["data"] > log_joint["prior"] + 100
    assert not is_binary or log_joint["search"] > log_joint["data"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_the_scale_of_weights_starts_at_that_of_features_that_are_there(mean):
    # two thirds of the slots are empty
    u, v, _ = blocks()
    weights = mean + 2 * np.asarray([[1.0, -1, 1], [-1, 1, 1], [1, 1, -1]])
    x = u @ weights @ v.T + 0.1 * np.random.default_rng(0).normal(size=(40, 30))
    wide = mf.BetaBernoulli(1.0, 1.0, 9)
    model = mf.BinaryMF(row_prior=wide, column_prior=wide, weight_mean=mean)
    sampler = model.sampler(start="data", weights="explicit")
    state = jax.jit(sampler.init)(jax.random.key(0), mf.Dense(jnp.asarray(x, jnp.float32)))
    pairs = np.ix_(np.any(state.u, axis=0), np.any(state.v, axis=0))
    assert 4 <= np.asarray(state.weights)[pairs].size < 50
    expected = np.sqrt(np.mean((np.asarray(state.weights)[pairs] - mean) ** 2))
    np.testing.assert_allclose(state.weight_scale, expected, rtol=1e-5)


def test_starts_that_are_not_there_are_refused():
    with pytest.raises(
        ValueError, match="start must be one of 'prior', 'data', 'search', got 'svd'"
    ):
        mf.BinaryMF().sampler(start="svd")
    with pytest.raises(ValueError, match="start='data' is not there with diagonal=True"):
        mf.BinaryMF(**SIDES, diagonal=True).sampler(start="data")
    with pytest.raises(ValueError, match=r"start='data' is not there with likelihood=Poisson"):
        mf.BinaryMF(likelihood=mf.Poisson()).sampler(start="data")
    with pytest.raises(ValueError, match=r"start='search' is not there with likelihood=Gaussian"):
        mf.BinaryMF(**SIDES).sampler(start="search")


def searched(monkeypatch, score_of):
    """What a search of sweeps does that add one to row_alpha, and log joints `score_of` (it).

    Returns its state, and of every sweep row_alpha, noise factor and which sides were held.
    """
    seen = []

    def sweep(model, key, state, data, noise_factor, held, several):
        jax.debug.callback(
            lambda *here: seen.append([float(each) for each in here]),
            state.row_alpha, noise_factor, *held, ordered=True,
        )  # fmt: skip
        return state._replace(row_alpha=state.row_alpha + 1)

    monkeypatch.setattr(starts, "_sweep", sweep)
    monkeypatch.setattr(starts.density, "log_joint", lambda *args: score_of(args[1].row_alpha))
    model = mf.BinaryMF(**SIDES, likelihood=mf.Bernoulli())
    data = mf.Dense(jnp.zeros((4, 3)))
    state = model.simulate_state(jax.random.key(0), 4, 3, 5)._replace(row_alpha=jnp.asarray(0.0))
    found = jax.jit(
        lambda state: starts.search(
            model, jax.random.key(1), state, data, several=1, mend=lambda _, state, __: state
        )
    )(state)
    jax.effects_barrier()
    return found, np.array(seen)


def test_a_search_keeps_its_best_state_and_heats_one_side_at_a_time(monkeypatch):
    first, each, rounds = starts._FIRST_SWEEPS, starts._SWEEPS, starts._ROUNDS
    # better up to the third round, which later ones then start from, and worse beyond
    best = first + 3.0 * each
    found, seen = searched(monkeypatch, lambda alpha: -jnp.abs(alpha - best))
    assert float(found.row_alpha) == best
    assert seen.shape == (first + rounds * each, 4)
    later = seen[first:].reshape(rounds, each, 4)
    np.testing.assert_array_equal(later[:, 0, 0], first + each * np.minimum(np.arange(rounds), 3))
    np.testing.assert_allclose(seen[0, 1], 1 / ANNEALED_START, rtol=1e-6)
    np.testing.assert_allclose(later[:, 0, 1], 1 / starts._REHEATED, rtol=1e-6)
    # at the power one where log joints count, and nothing held there
    assert np.all(later[:, -(each // starts._SCORED) :, 1:] == [1.0, 0, 0])
    assert not seen[:first, 2:].any()
    hot = later[:, : each // 2, 2:]
    assert np.all(hot.sum(axis=2) == 1)
    assert np.all(hot[0::2, :, 1] == 1)
    assert np.all(hot[1::2, :, 0] == 1)


@pytest.mark.slow
def test_a_held_side_stays():
    model = mf.BinaryMF(**SIDES, likelihood=mf.Bernoulli())
    data = mf.Dense(jnp.asarray(blocks()[2] > 0, jnp.float32))
    state = model.simulate_state(jax.random.key(0), 40, 30, 5)
    sweep = jax.jit(lambda held: starts._sweep(model, jax.random.key(1), state, data, 1.0, held, 1))
    for held in ((True, False), (False, True)):
        moved = sweep(tuple(map(jnp.asarray, held)))
        assert np.array_equal(moved.u, state.u) == held[0]
        assert np.array_equal(moved.v, state.v) == held[1]
