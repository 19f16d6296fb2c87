"""Checkpoints: going on bit for bit from anywhere, and refusing what does not belong."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.robustness.tampers import changed
from jaxmf.engine import Info, algorithm, load_run, run
from jaxmf.engine import checkpoint as files
from jaxmf.engine import files as stored
from tests.support.engine_toys import assert_same_run, growing, pair_gibbs, stop_at

TINY = 1e-9  # chunks of one step
DATA = np.array([1.0, -2.0])
SETTINGS = {"seed": 4, "num_warmup": 6, "num_samples": 5, "thin": 2, "num_chains": 2}
TOYS = [(pair_gibbs, DATA), (growing, np.zeros(()))]


def start(folder, toy=pair_gibbs, data=DATA, stop=None, **settings):
    """A run that writes a checkpoint a step, up to `stop`."""
    return run(
        toy(),
        data,
        checkpoint=folder,
        checkpoint_seconds=0,
        chunk_seconds=TINY,
        progress=None if stop is None else stop_at(stop),
        **(SETTINGS | settings),
    )


def go_on(folder, toy=pair_gibbs, data=DATA, **settings):
    return run(toy(), data, checkpoint=folder, resume=True, **(SETTINGS | settings))


@pytest.mark.tiers(
    slow=["growing-data1-sequential"],
    exhaustive=["growing-data1-vectorized", "pair_gibbs-data0-sequential"],
)
@pytest.mark.parametrize("method", ["sequential", "vectorized"])
@pytest.mark.parametrize(("toy", "data"), TOYS)
def test_stopped_at_any_step_it_goes_on_bit_for_bit(tmp_path, toy, data, method):
    whole = run(toy(), data, chain_method=method, **SETTINGS)
    for stop in range(1, 16):
        folder = tmp_path / str(stop)
        part = start(folder, toy, data, stop, chain_method=method)
        assert (part.num_steps, part.complete) == (stop, False)
        resumed = go_on(folder, toy, data, chain_method=method)
        assert resumed.complete
        assert_same_run(whole, resumed)


def test_stopped_again_and_again(tmp_path):
    whole = run(growing(), np.zeros(()), **SETTINGS)
    for stop in (2, 5, 6, 9, 13):
        start(tmp_path, growing, np.zeros(()), stop, resume=True)
    assert_same_run(whole, go_on(tmp_path, growing, np.zeros(())))


class Killed(BaseException):
    """Stands for the death of the process."""


def test_killed_in_the_middle_of_any_write(tmp_path, monkeypatch):
    settings = {"num_warmup": 1, "num_samples": 2, "thin": 1}
    whole = run(pair_gibbs(), DATA, **(SETTINGS | settings))
    replace, counts = os.replace, []
    for death in range(100):
        folder, counts[:] = tmp_path / str(death), []

        def dying(source, target, death=death):
            counts.append(target)
            if len(counts) == death // 2 + 1:
                if death % 2:  # just after the renaming, else just before
                    replace(source, target)
                raise Killed
            replace(source, target)

        monkeypatch.setattr(os, "replace", dying)
        died = False
        try:
            start(folder, **settings)
        except Killed:
            died = True
        monkeypatch.setattr(os, "replace", replace)
        assert_same_run(whole, go_on(folder, **settings))
        assert not list(folder.glob("*.partial"))
        assert len(list(folder.glob("state-*"))) == 1
        if not died:
            break
    assert death == 18  # nine files, before and after


def test_a_finished_run_is_given_back_at_once(tmp_path):
    first = start(tmp_path)

    def never(report):
        raise AssertionError("a step was made")

    again = go_on(tmp_path, progress=never)
    assert_same_run(first, again)
    assert again.complete
    # and goes on if more draws are asked for
    more = go_on(tmp_path, num_samples=9)
    assert_same_run(more, run(pair_gibbs(), DATA, **(SETTINGS | {"num_samples": 9})))
    with pytest.raises(ValueError, match="has 9 draws already, more than the 5"):
        go_on(tmp_path)


def test_resume_starts_anew_where_nothing_was_saved(tmp_path):
    whole = run(pair_gibbs(), DATA, **SETTINGS)
    assert_same_run(whole, go_on(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    assert_same_run(whole, go_on(tmp_path / "empty"))


def test_a_continued_run_resumes_too(tmp_path):
    part = run(pair_gibbs(), DATA, **SETTINGS)
    whole = run(pair_gibbs(), DATA, **(SETTINGS | {"num_samples": 12}))
    more = {"num_samples": 7, "num_warmup": 0, "initial": part}
    start(tmp_path, stop=20, **more)
    assert_same_run(whole, go_on(tmp_path, **more))


def test_the_interval_is_kept(tmp_path):
    run(pair_gibbs(), DATA, checkpoint=tmp_path, chunk_seconds=TINY, **SETTINGS)
    # seconds apart, so that the end is all there is to save
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint.json",
        f"draws-0-{SETTINGS['num_samples']}.npz",
        "state-16.npz",
    ]
    start(tmp_path / "each")
    assert len(list((tmp_path / "each").glob("draws-*.npz"))) == SETTINGS["num_samples"]


def test_the_files_hold_no_pickles(tmp_path):
    start(tmp_path)
    for path in tmp_path.glob("*.npz"):
        with np.load(path, allow_pickle=False) as archive:
            assert archive.files
            assert all(archive[name].dtype != object for name in archive.files)
    json.loads((tmp_path / "checkpoint.json").read_text())


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_draws_are_read_without_the_algorithm(tmp_path, method):
    identity = {"model": "growing", "sizes": (1, 2)}
    data = np.zeros(())
    first = start(tmp_path, growing, data, chain_method=method, identity=identity)
    loaded, found = load_run(tmp_path)
    assert found == {"model": "growing", "sizes": [1, 2]}
    assert loaded.state is None
    assert loaded.complete
    for part in ("draws", "averages"):
        for name, values in getattr(first, part).items():
            there = getattr(loaded, part)[name]
            np.testing.assert_array_equal(there, values, err_msg=name)
    for name in ("num_steps", "num_warmup", "num_draws", "thin", "capacity"):
        assert getattr(loaded, name) == getattr(first, name)
    with pytest.raises(ValueError, match="no state to continue from"):
        run(growing(), data, num_samples=1, initial=loaded)


def test_an_algorithm_that_keeps_nothing(tmp_path):
    silent = algorithm(
        init=lambda key, data: jnp.zeros(()),
        step=lambda key, state, data, progress: (state + 1, Info(overflow={})),
        record=lambda key, state, data: {},
    )
    settings = {"num_samples": 6, "checkpoint": tmp_path, "checkpoint_seconds": 0}
    run(silent, None, chunk_seconds=TINY, progress=stop_at(3), **settings)
    result = run(silent, None, resume=True, **settings)
    assert (result.state.tolist(), result.draws, result.num_draws) == ([6.0], {}, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 5}, "seed was 4 and is now 5"),
        ({"thin": 3}, "thin was 2 and is now 3"),
        ({"num_warmup": 7}, "num warmup was 6 and is now 7"),
        ({"num_chains": 3}, "num chains was 2 and is now 3"),
        ({"chain_method": "vectorized"}, "chain method was 'sequential'"),
        ({"identity": {"data": "f00d", "model": "m"}}, "data was 'beef' and is now 'f00d'"),
        ({"identity": {"data": "beef"}}, "model was 'm' and is now None"),
        ({"identity": {"sums": {"data": "f" * 64}}}, "sums data differ in a value or an id"),
        ({"num_samples": 1}, "has 5 draws already, more than the 1"),
    ],
)
def test_another_run_is_refused(tmp_path, settings, message):
    identity = {"data": "beef", "model": "m", "sums": {"data": "a" * 64}}
    start(tmp_path, identity=identity)
    with pytest.raises(ValueError, match=message):
        go_on(tmp_path, **({"identity": identity} | settings))


def test_another_algorithm_is_refused(tmp_path):
    start(tmp_path)
    with pytest.raises(ValueError, match="written by another algorithm"):
        go_on(tmp_path, growing, np.zeros(()))
    start(tmp_path / "slots", growing, np.zeros(()))
    with pytest.raises(ValueError, match="written by another algorithm"):
        go_on(tmp_path / "slots")


def test_data_of_another_shape_are_refused(tmp_path):
    toy = algorithm(
        init=lambda key, data: data,
        step=lambda key, state, data, progress: (state + 1, Info(overflow={})),
        record=lambda key, state, data: {},
    )
    run(toy, np.zeros(3), num_samples=2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"float.*\[3\], and this algorithm's is float.*\[4\]"):
        run(toy, np.zeros(4), num_samples=3, checkpoint=tmp_path, resume=True)


def test_another_environment_is_a_warning(tmp_path):
    whole = run(pair_gibbs(), DATA, **SETTINGS)
    start(tmp_path, stop=8)
    with changed(tmp_path) as manifest:
        manifest["environment"]["versions"]["jax"] = "0.0.1"
    with pytest.warns(UserWarning, match="versions jax was '0.0.1' and is now"):
        resumed = go_on(tmp_path)
    assert_same_run(whole, resumed)


def test_other_random_bits_from_the_same_key_are_a_warning(tmp_path):
    start(tmp_path, stop=8)
    was = jax.config.jax_threefry_partitionable
    with (
        jax.threefry_partitionable(not was),
        pytest.warns(UserWarning, match=f"threefry partitionable was {was} and is now {not was}"),
    ):
        go_on(tmp_path)


def _truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def _without_draws(path):
    manifest = json.loads(path.read_text())
    del manifest["draws"]
    path.write_text(json.dumps(manifest))


def _newer(path):
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"format": 99}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("checkpoint.json", _truncate, "cannot be read as a manifest"),
        ("checkpoint.json", lambda path: path.write_text("[]"), "cannot be read as a manifest"),
        ("checkpoint.json", _without_draws, "does not agree with its check sum"),
        ("checkpoint.json", _newer, "has format 99, and this version of jaxmf reads format 2"),
        ("checkpoint.json", lambda path: path.unlink(), "has no checkpoint.json but other files"),
        ("draws-0-1.npz", lambda path: path.unlink(), "draws-0-1.npz is missing"),
        ("draws-0-1.npz", _truncate, "draws-0-1.npz has .* bytes and should have"),
        ("state-9.npz", lambda path: path.unlink(), "state-9.npz is missing"),
        ("state-9.npz", _flip, "state-9.npz does not agree with the check sum"),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, name, damage, message):
    start(tmp_path, stop=9)
    damage(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        go_on(tmp_path)


def test_draws_of_the_wrong_number_are_refused(tmp_path):
    start(tmp_path)
    with changed(tmp_path) as manifest:
        wrong = stored.write_arrays(tmp_path, "draws-0-1.npz", {"x": np.zeros((2, 7))})
        manifest["draws"][0] = {**wrong, "num_draws": 1}
    with pytest.raises(ValueError, match="should hold 1 draws of 'x' for each of 2 chains"):
        load_run(tmp_path)


def test_a_folder_in_use_is_refused(tmp_path):
    start(tmp_path / "run", stop=3)
    with pytest.raises(ValueError, match="not empty; pass resume=True"):
        start(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        start(tmp_path / "other")
    with pytest.raises(ValueError, match=r"has no checkpoint\.json but other files"):
        go_on(tmp_path / "other")
    file = tmp_path / "other" / "notes.txt"
    for attempt in (start, go_on):
        with pytest.raises(ValueError, match="is a file; give a folder"):
            attempt(file)
    assert file.read_text() == "mine"
    with pytest.raises(ValueError, match=r"there is no checkpoint\.json"):
        load_run(tmp_path / "other")


def test_leaves_survive_packing(tmp_path):
    import jax

    tree = {
        "key": jax.random.split(jax.random.key(3), 2),
        "half": jnp.arange(3, dtype=jnp.bfloat16),
        "empty": jnp.zeros((0, 2)),
        "none": None,
        "flag": jnp.array(True),
    }
    names = ["empty", "flag", "half", "key"]
    record = stored.write_arrays(tmp_path, "tree-0.npz", files.pack("p", tree, names))
    arrays = stored.read_arrays(tmp_path, record)
    back = files.unpack(tmp_path, "p", arrays, jax.eval_shape(lambda: tree), names)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert back["half"].dtype == tree["half"].dtype
    np.testing.assert_array_equal(back["half"], tree["half"])
    np.testing.assert_array_equal(
        jax.random.key_data(back["key"]), jax.random.key_data(tree["key"])
    )


def test_arrays_that_differ_are_named_and_not_printed(tmp_path):
    saved = {"identity": {"data": "a" * 64, "model": {"offset": [0.123456789] * 12, "alpha": 1}}}
    now = {"identity": {"data": "b" * 64, "model": {"offset": [0.5] * 12, "alpha": 2}}}
    with pytest.raises(ValueError, match=r"data differ in .*offset has other") as error:
        files.compare(tmp_path, saved, now)
    assert "alpha was 1 and is now 2" in str(error.value)
    assert "0.12" not in str(error.value)
