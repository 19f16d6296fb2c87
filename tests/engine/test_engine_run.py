"""The run loop: what it keeps, keys, chains, averages, continuation, bad settings."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info, algorithm, repeat, run, sequence
from jaxmf.engine import loop as engine_loop
from tests.support.engine_toys import assert_same_run, fuse, growing, pair_gibbs, stop_at

DATA = np.array([1.0, -2.0])
TINY = 1e-9  # chunks of one step


def by_hand(toy, data, seed, chain, num_warmup, num_samples, thin):
    """The same chain by the definition of its keys, without the engine."""
    chain_key = jax.random.fold_in(jax.random.key(seed), chain)
    state = toy.init(jax.random.fold_in(chain_key, np.uint32(2**32 - 1)), data)
    step, record = jax.jit(toy.step), jax.jit(toy.record)
    draws = []
    for index in range(num_warmup + num_samples * thin):
        key = jax.random.fold_in(chain_key, index)
        share = jnp.asarray(min(1.0, index / num_warmup) if num_warmup else 1.0)
        state, _ = step(jax.random.fold_in(key, 0), state, data, share)
        if index >= num_warmup and (index + 1 - num_warmup) % thin == 0:
            draws.append(record(jax.random.fold_in(key, 1), state, data))
    return {name: np.stack([draw[name] for draw in draws]) for name in draws[0]}


def test_draws_are_those_of_a_plain_loop_with_the_same_keys():
    toy = pair_gibbs()
    result = run(toy, DATA, seed=3, num_warmup=5, num_samples=7, thin=3, num_chains=2)
    for chain in range(2):
        expected = by_hand(toy, jnp.asarray(DATA), 3, chain, 5, 7, 3)
        for name, values in expected.items():
            np.testing.assert_allclose(result.draws[name][chain], values, rtol=1e-5, atol=1e-5)
    assert result.draws["x"].shape == (2, 7)
    assert result.draws["nothing"].shape == (2, 7, 0, 3)
    assert (result.num_steps, result.num_warmup, result.num_draws) == (26, 5, 7)
    assert result.complete


def test_progress_is_the_share_of_the_warm_up_that_is_over():
    shares = algorithm(
        init=lambda key, data: jnp.zeros(()),
        step=lambda key, state, data, progress: (progress, Info(overflow={})),
        record=lambda key, state, data: {"share": state},
    )
    # a draw shows the progress its last step was given
    seen = [float(run(shares, None, num_samples=0, num_warmup=n).state[0]) for n in (1, 4)]
    assert seen == [0.0, 0.75]
    assert run(shares, None, num_warmup=4, num_samples=2).draws["share"].tolist() == [[1.0, 1.0]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shift:
    """A step with an array of numpy as a setting, wherever it comes from."""

    by: np.ndarray

    def __post_init__(self):
        if isinstance(self.by, jax.Array) and not isinstance(self.by, jax.core.Tracer):
            object.__setattr__(self, "by", np.asarray(self.by))

    def step(self, key, state, data, progress):
        return state + self.by, Info(overflow={})


def test_settings_of_an_algorithm_may_be_arrays_of_numpy():
    toy = algorithm(
        init=lambda key, data: jnp.zeros(2),
        step=Shift(np.array([1.0, 2.0], np.float32)).step,
        record=lambda key, state, data: {"x": state},
    )
    assert run(toy, None, num_samples=2).draws["x"].tolist() == [[[1.0, 2.0], [2.0, 4.0]]]


def test_averages_are_means_of_the_kept_draws():
    result = run(pair_gibbs(), DATA, num_warmup=10, num_samples=50, thin=2, num_chains=2)
    x = result.draws["x"]
    np.testing.assert_allclose(result.averages["x"], x.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(
        result.averages["above"], (x > DATA[0]).mean(axis=1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.tiers(exhaustive=["pair_gibbs-vectorized", "growing-sequential"])
@pytest.mark.parametrize("method", ["sequential", "vectorized"])
@pytest.mark.parametrize("make", [pair_gibbs, growing])
def test_chunk_length_changes_no_bit(make, method):
    settings = {"num_warmup": 7, "num_samples": 12, "thin": 2, "num_chains": 2, "seed": 5}
    data = DATA if make is pair_gibbs else np.zeros(())
    whole = run(make(), data, chain_method=method, **settings)
    cut = run(make(), data, chain_method=method, chunk_seconds=TINY, **settings)
    assert_same_run(whole, cut)


@pytest.mark.tiers(exhaustive=["pair_gibbs"])
@pytest.mark.parametrize("make", [pair_gibbs, growing])
def test_sequential_and_vectorized_chains_agree(make):
    data = DATA if make is pair_gibbs else np.zeros(())
    toy = make()
    one_by_one = run(toy, data, num_samples=40, num_chains=3, chain_method="sequential")
    together = run(toy, data, num_samples=40, num_chains=3, chain_method="vectorized")
    for name, values in one_by_one.draws.items():
        if values.dtype.kind in "bi":
            np.testing.assert_array_equal(values, together.draws[name])
        else:
            np.testing.assert_allclose(values, together.draws[name], rtol=1e-5, atol=1e-5)
    assert one_by_one.capacity == together.capacity


def test_threads_change_no_bit(monkeypatch):
    toy = growing()
    monkeypatch.setattr(engine_loop, "num_cores", lambda: 3)
    threaded = run(toy, np.zeros(()), num_samples=60, num_chains=4, chain_method="sequential")
    monkeypatch.setattr(engine_loop, "num_cores", lambda: 1)
    alone = run(toy, np.zeros(()), num_samples=60, num_chains=4, chain_method="sequential")
    assert_same_run(threaded, alone)


@pytest.mark.slow
def test_settings_of_the_callers_thread_hold_in_all_chains():
    # contexts of JAX are local to a thread; chains that run in threads must not lose them
    with jax.enable_x64(True):
        result = run(growing(capacity=2), np.zeros(()), num_samples=20, num_chains=2)
    assert result.capacity["slots"] > 2
    assert result.draws["value"].dtype == np.float64
    assert result.state.value.dtype == np.float64


def test_transfers_of_chains_in_threads_are_allowed_where_the_caller_allows_them():
    plain = run(pair_gibbs(), DATA, num_samples=3, num_chains=2)
    was = jax.config.jax_transfer_guard
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        with jax.transfer_guard("allow"):
            guarded = run(pair_gibbs(), DATA, num_samples=3, num_chains=2)
    finally:
        jax.config.update("jax_transfer_guard", was)
    assert_same_run(plain, guarded)


def test_a_run_is_compiled_where_the_caller_has_switched_compiling_off():
    toy = pair_gibbs(0.25)
    with jax.disable_jit():
        eager = run(toy, DATA, num_samples=3, num_chains=2)
    assert_same_run(eager, run(toy, DATA, num_samples=3, num_chains=2))


def test_draws_follow_how_random_bits_are_made():
    settings = {"num_samples": 3, "num_chains": 2}
    plain = run(pair_gibbs(), DATA, **settings)
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        other = run(pair_gibbs(), DATA, **settings)
    assert not np.array_equal(plain.draws["x"], other.draws["x"])
    assert_same_run(plain, run(pair_gibbs(), DATA, **settings))


def test_a_seed_is_a_number_or_a_typed_key():
    toy = pair_gibbs()
    seeded = run(toy, DATA, seed=7, num_samples=3)
    assert_same_run(seeded, run(toy, DATA, seed=jax.random.key(7), num_samples=3))
    other = run(toy, DATA, seed=8, num_samples=3)
    assert not np.array_equal(seeded.draws["x"], other.draws["x"])


def test_chains_differ():
    draws = run(pair_gibbs(), DATA, num_samples=5, num_chains=3).draws["x"]
    assert len(np.unique(draws)) == draws.size


def test_the_data_and_the_initial_run_outlive_a_run():
    # init returns arrays of the data, and states are donated to the chunks
    toy, data = pair_gibbs(), jnp.asarray(DATA)
    first = run(toy, data, num_samples=3)
    kept = first.state.x.copy()
    run(toy, data, num_samples=3, initial=first)
    np.testing.assert_array_equal(data, DATA.astype(data.dtype))
    np.testing.assert_array_equal(first.state.x, kept)


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_going_on_from_a_run_is_as_one_longer_run(method):
    toy = pair_gibbs()
    settings = {"seed": 2, "thin": 2, "num_chains": 2, "chain_method": method}
    whole = run(toy, DATA, num_warmup=5, num_samples=20, **settings)
    part = run(toy, DATA, num_warmup=5, num_samples=8, **settings)
    assert_same_run(whole, run(toy, DATA, num_samples=12, initial=part, **settings))


def test_going_on_after_an_interrupt_in_the_warm_up():
    toy = growing()
    whole = run(toy, np.zeros(()), num_warmup=20, num_samples=5)
    part = run(
        toy,
        np.zeros(()),
        num_warmup=20,
        num_samples=5,
        chunk_seconds=TINY,
        progress=stop_at(6),
    )
    assert (part.num_steps, part.num_draws, part.complete) == (6, 0, False)
    assert part.draws["active"].shape[:2] == (1, 0)
    assert_same_run(whole, run(toy, np.zeros(()), num_samples=5, initial=part))


def test_going_on_with_the_earlier_draws_left_out():
    toy = pair_gibbs()
    whole = run(toy, DATA, num_samples=9)
    part = replace(run(toy, DATA, num_samples=4), draws={})
    more = run(toy, DATA, num_samples=5, initial=part)
    np.testing.assert_array_equal(more.draws["x"], whole.draws["x"][:, 4:])
    np.testing.assert_array_equal(more.averages["x"], whole.averages["x"])
    assert more.num_draws == 9


def _other_float(leaf):
    """A leaf in the floats of the other setting of x64; others as they are."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return np.asarray(leaf, np.float32 if leaf.dtype == np.float64 else np.float64)


def test_an_initial_run_of_something_else_is_refused():
    part = run(pair_gibbs(), DATA, num_samples=2)
    with pytest.raises(ValueError, match="another algorithm"):
        run(fuse(), np.int32(9), num_samples=2, initial=part)
    with pytest.raises(ValueError, match=r"x of its state .* num_chains=1"):
        run(pair_gibbs(), DATA, num_samples=2, initial=twice(part))
    in_other_floats = replace(part, state=jax.tree.map(_other_float, part.state))
    with pytest.raises(ValueError, match="switch jax_enable_x64 as it was in that run"):
        run(pair_gibbs(), DATA, num_samples=2, initial=in_other_floats)
    with pytest.raises(ValueError, match="thin=2, but the initial run has thin=1"):
        run(pair_gibbs(), DATA, num_samples=2, thin=2, initial=part)
    with pytest.raises(ValueError, match="leave it out"):
        run(pair_gibbs(), DATA, num_samples=2, num_warmup=3, initial=part)


def twice(part):
    x = np.zeros((1, 2), part.state.x.dtype)
    return replace(part, state=part.state._replace(x=x))


def test_reports_show_scalars_of_warm_up_and_draws():
    reports = []
    result = run(
        growing(),
        np.zeros(()),
        num_warmup=3,
        num_samples=3,
        num_chains=2,
        chunk_seconds=TINY,
        progress=reports.append,
    )
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert reports[0].scalars.keys() == {"num_features", "log_joint"}
    for report, index in zip(reports[3:], range(3), strict=True):
        shown = result.draws["num_features"][:, index].mean()
        assert report.scalars["num_features"] == pytest.approx(shown)
    assert any(report.scalars["num_features"] > 0 for report in reports[:3])
    assert reports[-1].seconds_left == 0


def test_scalars_between_thinned_draws_are_of_the_last_step():
    counting = algorithm(
        init=lambda key, data: jnp.zeros((), jnp.int32),
        step=lambda key, state, data, progress: (state + 1, Info(overflow={})),
        record=lambda key, state, data: {"count": state},
    )
    seen = []
    result = run(
        counting,
        None,
        num_samples=3,
        thin=3,
        chunk_seconds=TINY,
        progress=lambda report: seen.append(report.scalars["count"]),
    )
    assert seen == list(range(1, 10))
    assert result.draws["count"].tolist() == [[3, 6, 9]]


def test_a_full_buffer_of_draws_is_emptied_and_filled_again(monkeypatch):
    from jaxmf.engine import bound

    toy = growing()
    whole = run(toy, np.zeros(()), num_samples=50, num_chains=2)
    monkeypatch.setattr(bound, "BUFFER_BYTES", 100)
    cut = run(toy, np.zeros(()), num_samples=50, num_chains=2)
    assert_same_run(whole, cut)


def test_the_bar_is_drawn_when_asked_for(capsys):
    run(pair_gibbs(), DATA, num_samples=4, progress=True)
    assert "4/4 steps" in capsys.readouterr().err
    run(pair_gibbs(), DATA, num_samples=4)
    assert capsys.readouterr().err == ""


def test_sequence_and_repeat_fold_the_index_into_the_key():
    def add(key, state, data):
        return state + jax.random.normal(key), Info(overflow={"a": state > data})

    def other(key, state, data):
        return state + jax.random.uniform(key), Info(overflow={"b": state > data})

    key, state = jax.random.key(1), jnp.zeros(())
    result, info = sequence(add, other)(key, state, 100.0)
    folded = [jax.random.fold_in(key, i) for i in range(3)]
    expected = jax.random.normal(folded[0]) + jax.random.uniform(folded[1])
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert {axis: bool(flag) for axis, flag in info.overflow.items()} == {"a": False, "b": False}

    result, info = repeat(add, 3)(key, state, 100.0)
    np.testing.assert_allclose(result, sum(jax.random.normal(k) for k in folded), rtol=1e-6)

    # an overflow at any of the times counts, not only at the last
    def falls(key, state, data):
        return state - 1.0, Info(overflow={"a": state > data})

    _, info = repeat(falls, 3)(key, jnp.zeros(()), -0.5)
    assert bool(info.overflow["a"])
    _, info = repeat(falls, 0)(key, jnp.zeros(()), -0.5)
    assert not bool(info.overflow["a"])
    _, info = sequence(falls, add)(key, jnp.zeros(()), -0.5)
    assert bool(info.overflow["a"])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_samples": -1}, ValueError, "num_samples must be at least 0"),
        ({"num_samples": 2.5}, TypeError, "num_samples must be a whole number"),
        ({"num_samples": 1, "thin": 0}, ValueError, "thin must be at least 1"),
        ({"num_samples": 1, "num_chains": 0}, ValueError, "num_chains must be at least 1"),
        ({"num_samples": 1, "num_warmup": True}, TypeError, "num_warmup must be a whole"),
        ({"num_samples": 1, "chain_method": "parallel"}, ValueError, "'auto', 'sequential'"),
        ({"num_samples": 1, "chunk_seconds": 0}, ValueError, "chunk_seconds must be finite"),
        ({"num_samples": 1, "resume": True}, ValueError, "needs checkpoint"),
        ({"num_samples": 1, "seed": "today"}, TypeError, "seed must be a whole number"),
        ({"num_samples": 1, "seed": np.zeros(2, np.uint32)}, TypeError, "one typed key"),
        ({"num_samples": 1, "mesh": "all"}, TypeError, "must be a jax.sharding.Mesh"),
        ({"num_samples": 1, "memory_limit": 10}, MemoryError, "Lower num_chains"),
    ],
)
def test_bad_settings_are_refused_in_words(settings, error, message):
    with pytest.raises(error, match=message):
        run(pair_gibbs(), DATA, **settings)


@pytest.mark.parametrize("num_chains", [1, 2])
def test_chains_share_no_blas_threads_and_the_callers_come_back(num_chains):
    import scipy.linalg  # noqa: F401  the library that programs on CPU call
    from threadpoolctl import threadpool_info, threadpool_limits

    def num_threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    seen = []
    with threadpool_limits(limits=2, user_api="blas"):
        before = num_threads()
        run(
            pair_gibbs(),
            DATA,
            num_samples=5,
            num_chains=num_chains,
            progress=lambda report: seen.append(num_threads()),
        )
        assert seen
        assert all(set(one) == {1} for one in seen)
        assert num_threads() == before
