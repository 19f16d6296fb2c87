"""Products of matrices are full on every device: programs are lowered for CUDA and looked at."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf
from jaxmf import programs, registry
from jaxmf.data import as_container
from jaxmf.engine import executables
from jaxmf.engine.chain_kernel import prepared
from jaxmf.engine.chunk import Batch, ChunkPlan, record_draw, run_chunk, start_chain
from jaxmf.engine.executables import ExecutableCache

# One of every kind of kernel; the others are slow tests.
SHOWN = {
    ("linear-gaussian-ibp", "sample"),
    ("linear-gaussian-ibp", "particle_filter"),
    ("bpmf", "sample"),
    ("sparse-binary", "variational"),
}
OPTIONS = {"sample": {}, "particle_filter": {"num_particles": 20}, "variational": {"num_epochs": 6}}
CASES = [
    pytest.param(
        entry,
        method,
        id=f"{entry.name}/{method}",
        marks=[] if (entry.name, method) in SHOWN else [pytest.mark.slow],
    )
    for entry in registry.ENTRIES
    for method in entry.methods
]
BATCH = Batch(batched=True)


def as_arrays(tree):
    """Python's numbers as arrays, as the engine has them."""
    return jax.tree.map(lambda x: x if hasattr(x, "shape") else jnp.asarray(x), tree)


def lowered_for_cuda(entry, method, monkeypatch):
    """Texts of the engine's programs of a method: what prepares the data, starts and advances."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    model, data = entry.example()
    data = as_container(data, entry.container)
    model = model.matched(data)
    data = model.prepare(data) if method == "variational" else data
    algorithm, data = as_arrays((entry.builder(model, method)(**OPTIONS[method]), data))
    cache, texts = ExecutableCache(8), []

    def get(function, args, **static):
        program = cache.get(function, args, static)
        texts.append(program._traced.lower(lowering_platforms=("cuda",)).as_text())
        return program.shapes

    if algorithm.prepare is not None:
        # a program of its own: one that another test has traced has the choices of a CPU
        program = programs.jit(prepared.__wrapped__)
        traced = program.trace(algorithm.prepare, data)
        texts.append(traced.lower(lowering_platforms=("cuda",)).as_text())
        data = jax.eval_shape(algorithm.prepare, data)
    keys = jax.random.split(jax.random.key(1), 2)
    states, averages = get(start_chain, (algorithm, data, keys), batch=BATCH)
    draws = jax.eval_shape(lambda *a: record_draw(*a, batch=BATCH), algorithm, data, keys, states)
    plan = ChunkPlan(*(jnp.asarray(value, jnp.int32) for value in (0, 8, 4, 1)))
    arguments = (algorithm, data, keys, states, averages, plan)
    get(run_chunk, arguments, draw_shapes=tuple(sorted(draws.items())), num_rows=4, batch=BATCH)
    return texts


def products(texts):
    """Lines of all products of matrices and convolutions of lowered programs."""
    pattern = r"^.*stablehlo\.(?:dot_general|dot|convolution)\b.*$"
    return [line for text in texts for line in re.findall(pattern, text, re.M)]


def not_full(lines):
    return [line for line in lines if not re.search(r"HIGHEST\W+HIGHEST", line)]


def sorted_scatters(texts):
    """Scatters that declare indices sorted, none of one index: forty times as slow on an H100."""
    pattern = r"^.*stablehlo\.scatter\b.*indices_are_sorted = true(?!.*unique_indices = true).*$"
    return [line for text in texts for line in re.findall(pattern, text, re.M)]


def test_a_scatter_that_is_declared_sorted_is_found():
    def lowered(is_sorted):
        def add(x, i, y):
            return x.at[i].add(y, indices_are_sorted=is_sorted)

        arguments = jnp.zeros((9, 2)), jnp.arange(3), jnp.ones((3, 2))
        return jax.jit(add).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()

    assert len(sorted_scatters([lowered(True)])) == 1
    assert not sorted_scatters([lowered(False)])


@pytest.mark.tiers(
    exhaustive=[
        "bi-hdp/sample",
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "dcm/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "flexible-mixture/sample",
        "hdp/sample",
        "hfp/sample",
        "lda/sample",
        "mixture-of-gaussians/sample",
        "multi-hdp/sample",
        "multi-lda/sample",
        "network/sample",
        "pam/sample",
        "sparse-binary-series/variational",
        "urp/sample",
    ]
)
@pytest.mark.parametrize(("entry", "method"), CASES)
def test_products_are_full_and_no_scatter_is_sorted_on_an_accelerator(entry, method, monkeypatch):
    texts = lowered_for_cuda(entry, method, monkeypatch)
    lines = products(texts)
    assert not not_full(lines)
    assert not sorted_scatters(texts)
    if (entry.name, method) in SHOWN:
        assert lines, "this case shows nothing: it has no products any more"


def test_a_program_that_is_compiled_without_full_products_is_found_out(monkeypatch):
    monkeypatch.setattr(executables, "jit", jax.jit)
    entry = registry.get("linear-gaussian-ibp")
    assert not_full(products(lowered_for_cuda(entry, "sample", monkeypatch)))


def compiles(node):
    """Whether a node of a syntax tree is jax.jit or jax.pmap, by either name."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "jax" and any(one.name in ("jit", "pmap") for one in node.names)
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_attribute and node.value.id == "jax" and node.attr in ("jit", "pmap")


def test_nothing_but_the_one_helper_compiles_programs():
    folder = Path(jaxmf.__file__).parent
    found = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        if any(map(compiles, ast.walk(ast.parse(file.read_text(encoding="utf-8")))))
    }
    # a loop inside of a program, and the trial of such loops in a process of its own
    assert found == {"programs.py", "_kernels/fusion.py", "_kernels/fusion_trial.py"}


@pytest.fixture
def products_seen(monkeypatch):
    """The precisions of all products that are traced or run meanwhile."""
    seen, bind = [], jax.lax.dot_general_p.bind

    def noted(*args, **settings):
        seen.append(settings["precision"])
        return bind(*args, **settings)

    jax.clear_caches()
    monkeypatch.setattr(jax.lax.dot_general_p, "bind", noted)
    return seen


HIGHEST = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
KEY = jax.random.key(2)
SIMULATIONS = {
    "linear-gaussian-ibp": lambda model: model.simulate(KEY, 6, 5),
    "binary-mf": lambda model: model.simulate(KEY, 6, 5),
    "bpmf": lambda model: model.simulate(KEY, jnp.arange(5), jnp.arange(5) % 3, (8, 6)),
}


@pytest.mark.tiers(exhaustive=["binary-mf"])
@pytest.mark.parametrize(
    "name",
    [
        "linear-gaussian-ibp",
        pytest.param("binary-mf", marks=pytest.mark.slow),
        pytest.param("bpmf", marks=pytest.mark.slow),
    ],
)
def test_data_are_simulated_with_full_products(name, products_seen):
    model = registry.get(name).example()[0]
    jax.eval_shape(lambda: SIMULATIONS[name](model))
    assert products_seen
    assert set(products_seen) == {HIGHEST}


@pytest.mark.slow
def test_runs_and_their_predictions_have_full_products_whatever_the_caller_has_set(products_seen):
    model, data = registry.get("linear-gaussian-ibp").example()
    with jax.default_matmul_precision("bfloat16"):
        posterior = jaxmf.sample(
            model, data, num_warmup=2, num_samples=2, num_chains=1, progress=False
        )
        posterior.predict(([0, 1], [1, 2]))
        posterior.transform(data.values[:3])
        posterior.reconstruction()
        assert products_seen
        assert set(products_seen) == {HIGHEST}
        # nothing of the caller's process has changed
        assert jax.config.jax_default_matmul_precision == "bfloat16"
        jnp.ones((2, 2)) @ jnp.ones((2, 2))
        assert set(products_seen) > {HIGHEST}


def test_a_function_keeps_its_name_and_options():
    @programs.jit(static_argnames="power")
    def raised(x, power):
        """Doc."""
        return x**power

    assert raised.__name__ == "raised"
    assert raised.__doc__ == "Doc."
    np.testing.assert_array_equal(raised(jnp.arange(3), power=2), [0, 1, 4])


@pytest.fixture
def strict_caller():
    """A caller who has JAX refuse whatever shapes and dtypes are not spelled out."""
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield  # JAX keeps what it traces by these settings


@pytest.mark.tiers(
    slow=["bpmf"],
    exhaustive=[
        "bi-hdp",
        "binary-mf",
        "dcm",
        "dp-mixture",
        "hfp",
        "lda",
        "mixture-of-gaussians",
        "multi-hdp",
        "multi-lda",
        "noisy-or-ibp",
        "urp",
    ],
)
@pytest.mark.parametrize(
    "entry", [e for e in registry.ENTRIES if "sample" in e.methods], ids=lambda e: e.name
)
def test_a_strict_caller_can_have_a_chain_of_every_model(entry, strict_caller):
    with pytest.raises(ValueError, match="broadcast"):
        jnp.ones((2, 2)) + jnp.ones(2)
    kernel = jaxmf.kernel(*entry.example())
    start = jax.eval_shape(kernel.init, jax.random.key(0))
    after = jax.eval_shape(kernel.step, jax.random.key(1), start)
    assert jax.eval_shape(kernel.read, jax.random.key(2), after)


@pytest.mark.slow
def test_a_strict_caller_can_run_and_ask(strict_caller):
    model, data = registry.get("linear-gaussian-ibp").example()
    few = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress": False}
    posterior = jaxmf.sample(model, data, **few)
    posterior.predict(([0, 1], [1, 2]))
    posterior.transform(data.values[:3])
    posterior.reconstruction()
    posterior.summary()
    ones = jaxmf.SparseBinary.from_array(np.eye(4, dtype=bool))
    fit = jaxmf.variational(jaxmf.SparseBinaryMF(1), ones, num_epochs=1, progress=False)
    fit.recommend([0], n=1)
