"""Draws that lie in files while they are made."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.engine import run
from jaxmf.engine.draws import draws_folder
from jaxmf.results import loading
from tests.support.engine_toys import growing

SETTINGS = {"seed": 1, "num_samples": 12, "num_chains": 2}


def test_draws_in_files_are_those_in_memory(tmp_path):
    """As slots grow and a run goes on too."""
    expected = run(growing(), np.zeros(()), **SETTINGS)
    options = SETTINGS | {"checkpoint": tmp_path / "run", "draws_folder": tmp_path / "draws"}
    run(growing(), np.zeros(()), **options | {"num_samples": 5})
    found = run(growing(), np.zeros(()), resume=True, **options)
    assert found.draws.keys() == expected.draws.keys()
    for name, draws in expected.draws.items():
        assert isinstance(found.draws[name], np.memmap)
        np.testing.assert_array_equal(found.draws[name], draws, err_msg=name)
        file = np.load(tmp_path / "draws" / f"{name}.npy", mmap_mode="r")
        np.testing.assert_array_equal(file, draws)
    assert {path.suffix for path in (tmp_path / "draws").iterdir()} == {".npy"}


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for folder, words in ((tmp_path, "is not empty"), (tmp_path / "notes", "is a file")):
        with pytest.raises(ValueError, match=f"draws_folder: .* {words}"):
            run(growing(), np.zeros(()), draws_folder=folder, **SETTINGS)
    with pytest.raises(TypeError, match="draws_folder must be a text"):
        run(growing(), np.zeros(()), draws_folder=3, **SETTINGS)


@pytest.mark.slow
def test_a_posterior_of_draws_in_files_answers_and_is_saved(tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(12, 3))
    settings = {"num_warmup": 5, "num_samples": 5, "num_chains": 2, "seed": 1}
    post = mf.sample(mf.LinearGaussianIBP(), x, draws_folder=tmp_path / "draws", **settings)
    alone = mf.sample(mf.LinearGaussianIBP(), x, **settings)
    assert isinstance(post.draws["z"], np.memmap)
    np.testing.assert_array_equal(post.draws["z"], alone.draws["z"])
    np.testing.assert_array_equal(post.reconstruction(), alone.reconstruction())
    monkeypatch.setattr(loading, "_LEAST_MAPPED", 1)
    loaded = mf.load(post.save(tmp_path / "saved"))
    for name, draws in post.draws.items():
        assert isinstance(loaded.draws[name], np.memmap) != (draws.dtype == bool)
        np.testing.assert_array_equal(loaded.draws[name], draws)
    loaded.draws["noise_scale"][:] = 0  # in memory alone
    assert mf.load(tmp_path / "saved").draws["noise_scale"].min() > 0


class AnotherMachine:
    """The processes of a run of which this one does not see the files of the first."""

    are_several, is_first = True, False

    def from_first(self, make):
        return None, {}

    def any_of(self, flag):
        return flag


def test_a_folder_that_some_process_does_not_see_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"draws_folder: some process .* does not see"):
        draws_folder(tmp_path, AnotherMachine(), resume=False)
