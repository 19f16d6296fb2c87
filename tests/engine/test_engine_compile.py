"""Nothing is compiled twice, and the persistent cache is where it should be."""

import logging
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxmf.cli.options import start_compilation_cache
from jaxmf.engine import Info, algorithm, executables, run
from jaxmf.engine.disk_cache import default_folder, use_compilation_cache
from jaxmf.engine.executables import CACHE
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from tests.support.engine_toys import growing, pair_gibbs


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drift:
    """A model whose hyperparameters are leaves; its methods are an algorithm."""

    rate: float

    def init(self, key, data):
        return jnp.mean(data)

    def step(self, key, state, data, progress):
        return state + self.rate * jax.random.uniform(key), Info(overflow={})

    def record(self, key, state, data):
        return {"x": state}

    def sampler(self):
        return algorithm(init=self.init, step=self.step, record=self.record)


def compiled_in(caplog, function):
    """The names of the programs XLA compiled while the function ran."""
    caplog.clear()
    before = CACHE.num_compilations
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        result = function()
    names = [r.getMessage() for r in caplog.records if "Finished XLA comp" in r.getMessage()]
    return result, names, CACHE.num_compilations - before


def test_the_older_emitter_is_asked_for_where_it_is_known_and_not_chosen_by_the_user(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.setattr(executables.jaxlib, "__version__", "0.10.1")
    is_cpu = jax.default_backend() == "cpu"
    assert bool(executables.quick_to_compile()) is is_cpu
    for other in ("0.9.2", "0.100.0", "0.11.0"):
        with monkeypatch.context() as patch:
            patch.setattr(executables.jaxlib, "__version__", other)
            assert executables.quick_to_compile() == {}
    monkeypatch.setattr(executables, "default_platform", lambda: "gpu")
    assert executables.quick_to_compile() == {}
    monkeypatch.setattr(executables, "default_platform", lambda: "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert executables.quick_to_compile() == {}


@pytest.mark.skipif(not executables.has_known_options(), reason="none is known for this jaxlib")
def test_a_lower_level_is_asked_for_where_the_user_chose_none(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    sampler = LinearGaussianIBP(noise_scale=0.5, feature_scale=1.0).sampler()
    assert sampler.compiler_options() == {"xla_backend_optimization_level": 2}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    assert sampler.compiler_options() == {}


@pytest.mark.slow
@pytest.mark.skipif(not executables.has_known_options(), reason="none is known for this jaxlib")
def test_options_of_the_run_loop_and_of_the_algorithm_reach_the_compiler(monkeypatch):
    asked = []
    compile_lowered = jax.stages.Lowered.compile

    def look(lowered, compiler_options=None):
        asked.append(lowered._lowering._compiler_options_kvs)
        return compile_lowered(lowered, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", look)
    monkeypatch.setenv("XLA_FLAGS", "")
    CACHE.clear()
    settings = {"num_warmup": 1, "num_samples": 20}
    quick = run(pair_gibbs(), np.zeros(2), **settings)
    assert asked
    assert all(dict(options) == executables.quick_to_compile() for options in asked)
    CACHE.clear()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    plain = run(pair_gibbs(), np.zeros(2), **settings)
    assert dict(asked[-1]) == {}
    np.testing.assert_array_equal(quick.draws["x"], plain.draws["x"])
    CACHE.clear()


def test_a_second_model_and_second_data_compile_nothing(caplog):
    settings = {"num_warmup": 2, "num_samples": 5, "num_chains": 2}
    first, names, count = compiled_in(
        caplog, lambda: run(Drift(1.0).sampler(), np.arange(3.0), **settings)
    )
    assert count == 2  # start and chunk
    assert names
    second, names, count = compiled_in(
        caplog, lambda: run(Drift(0.5).sampler(), np.ones(3), seed=1, **settings)
    )
    assert (names, count) == ([], 0)
    assert not np.array_equal(first.draws["x"], second.draws["x"])
    # nor do other numbers of steps and draws; a last state of another kind could not be shared
    _, names, count = compiled_in(
        caplog,
        lambda: run(
            Drift(0.5).sampler(),
            np.ones(3),
            num_warmup=7,
            num_samples=31,
            thin=2,
            num_chains=2,
            chunk_seconds=1e-9,
        ),
    )
    assert (names, count) == ([], 0)


def test_other_shapes_compile_anew(caplog):
    settings = {"num_samples": 2}
    run(Drift(1.0).sampler(), np.ones(3), **settings)
    _, _, count = compiled_in(caplog, lambda: run(Drift(1.0).sampler(), np.ones(4), **settings))
    assert count == 2


def test_growth_compiles_nothing_the_second_time(caplog):
    def grown():
        return run(growing(capacity=2), np.zeros(()), num_samples=20, num_chains=2)

    first = grown()
    second, names, count = compiled_in(caplog, grown)
    assert first.capacity["slots"] > 2
    assert (names, count) == ([], 0)
    np.testing.assert_array_equal(first.draws["value"], second.draws["value"])


def test_chains_that_grow_together_compile_once():
    # two threads want the same program at the same moment
    toy = algorithm(**growing(capacity=2)._asdict())
    CACHE.clear()
    before = CACHE.num_compilations
    result = run(toy, np.zeros(()), num_samples=1, num_chains=8)
    programs = 2 + 2 * int(np.log2(result.capacity["slots"] / 2))
    assert CACHE.num_compilations - before <= programs


@pytest.fixture
def jax_cache_settings():
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_of_the_persistent_cache(tmp_path, monkeypatch, jax_cache_settings):
    monkeypatch.delenv("JAXMF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert use_compilation_cache() == tmp_path / "xdg" / "jaxmf" / "compilation"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "xdg" / "jaxmf" / "compilation")
    monkeypatch.setenv("JAXMF_CACHE", str(tmp_path / "own"))
    assert use_compilation_cache() == tmp_path / "own" / "compilation"
    assert (tmp_path / "own" / "compilation").is_dir()
    assert use_compilation_cache(tmp_path / "said") == tmp_path / "said" / "compilation"
    (tmp_path / "file").write_text("")
    assert use_compilation_cache(tmp_path / "file") is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("JAXMF_CACHE")
    assert default_folder().parts[-2:] == (".cache", "jaxmf")
    for off in ("", "0", "off"):
        monkeypatch.setenv("JAXMF_CACHE", off)
        assert use_compilation_cache() is None


def test_the_command_line_keeps_the_folder_that_jax_was_given(
    tmp_path, monkeypatch, jax_cache_settings
):
    monkeypatch.setenv("JAXMF_CACHE", str(tmp_path / "own"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "given"))
    start_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "given")
    jax.config.update("jax_compilation_cache_dir", None)
    start_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own" / "compilation")


def test_an_algorithm_says_how_its_programs_are_compiled():
    def compiled_by(options):
        algorithm = Drift(1.0).sampler()._replace(compiler_options=Partial(options))
        return run(algorithm, np.arange(3.0), num_warmup=0, num_samples=3, num_chains=1)

    wide = compiled_by(lambda: {"xla_cpu_prefer_vector_width": 512})
    plain = run(Drift(1.0).sampler(), np.arange(3.0), num_warmup=0, num_samples=3, num_chains=1)
    np.testing.assert_array_equal(wide.draws["x"], plain.draws["x"])
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        compiled_by(lambda: {"no_such_option": 1})
