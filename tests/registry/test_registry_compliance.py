"""What every method of every model must keep, read off the registry.

A new entry is tested by being registered. Problems are those of `Entry.example`, a few rows each.
"""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf import api, registry
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.data import Dense, Entries, SparseBinary, SparseSeries, Tokens
from jaxmf.model import (
    CompletesDocuments,
    TakesNewRows,
    TakesNewRowsOfCategories,
    TransformsDocuments,
    TransformsRows,
)

# Networks of blocks share one chain: some of them stand for all in the default and slow tests.
SHOWN_NETWORKS = ("dp-mixture", "hdp")
SLOW_NETWORKS = ("bi-lda",)


def is_network(entry):
    return issubclass(entry.model, NetworkModel)


def tier(entry):
    if not is_network(entry) or entry.name in SHOWN_NETWORKS:
        return []
    return [pytest.mark.slow if entry.name in SLOW_NETWORKS else pytest.mark.exhaustive]


CASES = [
    pytest.param(entry, method, id=f"{entry.name}/{method}", marks=tier(entry))
    for entry in registry.ENTRIES
    for method in entry.methods
]
RUN = {
    "sample": {"num_warmup": 3, "num_samples": 5, "num_chains": 2},
    "particle_filter": {"num_particles": 20, "num_runs": 2},
    "variational": {"num_epochs": 6},
}
OPTIONS = {
    "sample": {},
    "particle_filter": {"num_particles": 20},
    "variational": {"num_epochs": 6},
}
ARGUMENTS = {
    "init": ["key", "data"],
    "step": ["key", "state", "data", "progress"],
    "record": ["key", "state", "data"],
    "grow": ["state", "sizes"],
    "capacity": ["state"],
}
KEY = jax.random.key(11)

pytestmark = pytest.mark.parametrize(("entry", "method"), CASES)


def run(method, model, data, **settings):
    settings = RUN[method] | {"progress": False} | settings
    return api.VERBS[method](model, data, **settings)


def build(entry, method, model, **options):
    return entry.builder(model, method)(**OPTIONS[method] | options)


def as_given(method, model, data):
    """The data as the algorithm of a method is given it."""
    return model.prepare(data) if method == "variational" else data


def num_steps(method, data):
    return data.num_rows if method == "particle_filter" else 50


def arrays(posterior):
    found = dict(posterior.draws)
    if posterior.is_weighted:
        found |= {"log_weights": posterior.log_weights} | posterior.trace
    return found


def assert_same_bits(left, right):
    left, right = arrays(left), arrays(right)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def assert_same_discrete(left, right):
    """Equal where whole numbers or bits, near where rounding may differ."""
    left, right = arrays(left), arrays(right)
    for name in left:
        if left[name].dtype.kind in "biu":
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)
        else:
            np.testing.assert_allclose(left[name], right[name], rtol=2e-3, atol=2e-3, err_msg=name)


def assert_near(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, b)


def other_values(values):
    """Other data of the same kind: zeros and ones stay so, whole numbers too."""
    values = np.asarray(values)
    return np.where(np.isin(values, (0, 1)).all(), 1 - values, 2 * values).astype(values.dtype)


def other_data(data):
    """Other data of the same shape."""
    if isinstance(data, SparseBinary):
        mirrored = data.num_columns - 1 - np.asarray(data.columns)
        return SparseBinary(np.asarray(data.rows), mirrored, data.shape)
    if isinstance(data, Entries):
        return Entries(data.rows, data.columns, np.asarray(data.values)[::-1], data.shape)
    if isinstance(data, Tokens):
        last = list(data.columns)[-1]
        return Tokens(dict(data.columns) | {last: np.asarray(data.columns[last])[::-1]}, data.sizes)
    if isinstance(data, SparseSeries):
        mirrored = data.num_columns - 1 - np.asarray(data.columns)
        cells = np.asarray(data.rows), np.asarray(data.steps), mirrored
        return SparseSeries(*cells, data.times, data.shape)
    # arrays of jax, as a container has them
    return jax.tree.map(lambda x: jnp.asarray(other_values(x)) if x.dtype != bool else x, data)


def named(size, letter):
    return np.array([f"{letter}{i}" for i in range(size)], object)


def with_ids(data):
    """The data with an id for every row, column and level."""
    if isinstance(data, Tokens):
        ids = {label: named(size, label) for label, size in data.sizes.items()}
        return Tokens(dict(data.columns), data.sizes, names=ids)
    ids = {"row_names": named(data.num_rows, "r"), "column_names": named(data.num_columns, "c")}
    if isinstance(data, Dense):
        return Dense(data.values, data.observed, **ids)
    if isinstance(data, Entries):
        return Entries(data.rows, data.columns, data.values, data.shape, **ids)
    if isinstance(data, SparseBinary):
        return SparseBinary(data.rows, data.columns, data.shape, **ids)
    cells = data.rows, data.steps, data.columns
    return SparseSeries(*cells, data.times, data.shape, **ids)


def rearranged(data, *, rename=False):
    """The same data with columns, and all levels but documents, the other way round."""
    if isinstance(data, Tokens):
        turned, ids = {}, dict(data.names)
        for label, size in data.sizes.items():
            turned[label] = np.asarray(data.columns[label])
            if label != "document":
                turned[label] = size - 1 - turned[label]
                ids[label] = renamed(data.names[label][::-1], rename)
        return Tokens(turned, data.sizes, names=ids)
    ids = {"row_names": data.row_names, "column_names": renamed(data.column_names[::-1], rename)}
    if isinstance(data, Dense):
        observed = None if data.observed is None else data.observed[:, ::-1]
        return Dense(data.values[:, ::-1], observed, **ids)
    columns = data.num_columns - 1 - np.asarray(data.columns)
    if isinstance(data, Entries):
        return Entries(data.rows, columns, data.values, data.shape, **ids)
    if isinstance(data, SparseBinary):
        return SparseBinary(data.rows, columns, data.shape, **ids)
    return SparseSeries(data.rows, data.steps, columns, data.times, data.shape, **ids)


def renamed(ids, rename):
    return [*ids[:-1], "strange"] if rename else ids


def answers_of_new_rows(posterior, new):
    """Every answer that a model has for rows not seen in training, by name."""
    model, found = posterior.model, {}
    if posterior.is_weighted:
        found["extend"] = lambda: posterior.extend(new, progress=False).draws["z"]
        if registry.entry_of(model).default == "sample":
            return found  # the others are asked of the sampled posterior
    if isinstance(model, TransformsRows | TransformsDocuments):
        found["transform"] = lambda: posterior.transform(new)
    if isinstance(model, TakesNewRows | TakesNewRowsOfCategories):
        found["predict"] = lambda: posterior.predict(new_rows=new).mean
    if isinstance(model, CompletesDocuments):
        found["completion"] = lambda: posterior.document_completion(new).log_likelihood
    return found


def further_rows(data):
    """The data with ids of rows that are new."""
    if isinstance(data, Tokens):
        return data
    fields = {name: getattr(data, name) for name in ("row_names", "column_names")}
    fields["row_names"] = named(data.num_rows, "new")
    new = jax.tree.map(lambda leaf: leaf, data)
    for name, ids in fields.items():
        object.__setattr__(new, name, ids)
    return new


def with_more_mass(model):
    """The model with another value of a hyperparameter."""
    if isinstance(model, NetworkModel):
        (first, *others), structure = jax.tree.flatten(model)
        return jax.tree.unflatten(structure, [1.5 * first, *others])
    fields = {field.name for field in dataclasses.fields(model)}
    if "row_scale" in fields:
        return dataclasses.replace(model, row_scale=1.5 * model.row_scale)
    if "num_factors" in fields:
        return dataclasses.replace(model, offset=1.5 * model.offset)
    for name in fields & {"row_prior", "prior"}:
        prior = getattr(model, name)
        prior = dataclasses.replace(prior, alpha=prior.alpha * 1.5)
        return dataclasses.replace(model, **{name: prior})
    return dataclasses.replace(model, alpha=model.alpha * 1.5)


def first_tokens(data):
    """A few tokens: without jit every operation of a loop is dispatched by itself."""
    if isinstance(data, Tokens):
        return Tokens({name: column[:3] for name, column in data.columns.items()}, data.sizes)
    if isinstance(data, Entries):
        return Entries(data.rows[:3], data.columns[:3], data.values[:3], data.shape)
    return Dense(data.values[:3])


class Compilations:
    """Counts compiled programs while it is open."""

    def __enter__(self):
        self.count = 0
        self.open = True
        jax.monitoring.register_event_duration_secs_listener(self.listen)
        return self

    def listen(self, event, duration, **_):
        self.count += self.open and event.endswith("backend_compile_duration")

    def __exit__(self, *_):
        self.open = False


@pytest.mark.tiers(exhaustive=["bi-lda/sample"])
def test_argument_names(entry, method):
    model, _ = entry.example()
    algorithm = build(entry, method, model)
    for field, names in ARGUMENTS.items():
        function = getattr(algorithm, field)
        if function is None:
            assert field in ("grow", "capacity")
            continue
        parameters = list(inspect.signature(function.func).parameters)[len(function.args) :]
        assert len(parameters) == len(names), (field, parameters)
        if method != "particle_filter":  # a filter calls its state a cloud
            assert parameters == names, field


@pytest.mark.tiers(exhaustive=["bi-lda/sample"])
def test_equal_options_are_equal_programs(entry, method):
    model, _ = entry.example()
    first, second = (build(entry, method, model) for _ in range(2))
    assert jax.tree.structure(first) == jax.tree.structure(second)


@pytest.mark.tiers(
    exhaustive=[
        "False-bi-lda/sample",
        "False-binary-mf/sample",
        "False-bpmf/sample",
        "False-dp-mixture/sample",
        "False-feature-model/particle_filter",
        "False-feature-model/sample",
        "False-hdp/sample",
        "False-linear-gaussian-ibp/particle_filter",
        "False-linear-gaussian-ibp/sample",
        "False-noisy-or-ibp/particle_filter",
        "False-noisy-or-ibp/sample",
        "False-sparse-binary-series/variational",
        "False-sparse-binary/variational",
        "True-bi-lda/sample",
        "True-binary-mf/sample",
        "True-bpmf/sample",
        "True-feature-model/sample",
        "True-hdp/sample",
        "True-noisy-or-ibp/sample",
        "True-sparse-binary-series/variational",
    ]
)
@pytest.mark.parametrize("x64", [False, True])
def test_dtypes_are_kept(entry, method, x64):
    with jax.enable_x64(x64):
        model, data = entry.example()
        data = as_given(method, model, data)
        algorithm = build(entry, method, model)
        state = jax.eval_shape(algorithm.init, KEY, data)
        progress = jnp.zeros(())
        after, info = jax.eval_shape(algorithm.step, KEY, state, data, progress)
        draw = jax.eval_shape(algorithm.record, KEY, state, data)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    kinds = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after) == kinds
    assert all(flag.dtype == bool and flag.shape == () for flag in info.overflow.values())
    for leaf in jax.tree.leaves((state, draw)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert leaf.dtype == (jnp.float64 if x64 else jnp.float32)


@pytest.mark.tiers(
    slow=["noisy-or-ibp/sample", "sparse-binary/variational"],
    exhaustive=[
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "linear-gaussian-ibp/particle_filter",
        "linear-gaussian-ibp/sample",
        "noisy-or-ibp/particle_filter",
        "sparse-binary-series/variational",
    ],
)
def test_same_seed_same_bits_and_nothing_compiled_anew(entry, method):
    model, data = entry.example()
    first = run(method, model, data)
    with Compilations() as compiled:
        again = run(method, model, data)
    assert_same_bits(first, again)
    assert compiled.count == 0, "a second call compiles"

    changed = other_data(data)
    with Compilations() as compiled:
        other = run(method, model, changed)
    assert compiled.count == 0, "a second data set of the same shape compiles"
    name = next(name for name in ("log_joint", "z", "free_energy") if name in other.draws)
    assert not np.array_equal(other.draws[name], first.draws[name])

    other_model = with_more_mass(model)
    with Compilations() as compiled:
        run(method, other_model, data)
    assert compiled.count == 0, "another alpha compiles"

    assert any(
        not np.array_equal(x, y)
        for x, y in zip(
            arrays(first).values(), arrays(run(method, model, data, seed=1)).values(), strict=True
        )
    )


@pytest.mark.tiers(exhaustive=["bi-lda/sample"])
def test_a_changed_shape_is_seen_to_compile(entry, method):
    """The counter can count."""
    del entry, method
    with Compilations() as compiled:
        jax.jit(lambda x: x * 3.25)(jnp.ones(7)).block_until_ready()
    assert compiled.count >= 1


@pytest.mark.tiers(
    slow=["binary-mf/sample"],
    exhaustive=[
        "bi-lda/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
    ],
)
def test_what_lies_beneath_a_missing_cell_does_not_matter(entry, method):
    model, data = entry.example()
    if entry.container is not Dense or is_network(entry):
        pytest.skip("there are no missing cells")
    assert data.num_missing
    leaves, structure = jax.tree.flatten(data)
    garbage = np.where(np.asarray(data.observed), data.values, 1e3)
    leaves = [garbage if leaf is data.values else leaf for leaf in leaves]
    spoiled = jax.tree.unflatten(structure, leaves)
    clean, other = run(method, model, data), run(method, model, spoiled)
    assert_same_bits(clean, other)
    cells = data.missing_cells()
    np.testing.assert_array_equal(clean.predict(cells).mean, other.predict(cells).mean)
    # Broken twin: an observed cell does matter.
    changed = np.array(data.values)
    changed[0, 0] = other_values(changed)[0, 0]
    leaves = [changed if leaf is garbage else leaf for leaf in leaves]
    different = run(method, model, jax.tree.unflatten(structure, leaves))
    assert any(
        not np.array_equal(arrays(clean)[name], arrays(different)[name]) for name in arrays(clean)
    )


@pytest.mark.tiers(
    slow=["linear-gaussian-ibp/particle_filter"],
    exhaustive=[
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "dp-mixture/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "linear-gaussian-ibp/sample",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
    ],
)
def test_chains_by_vmap_and_one_by_one_agree(entry, method):
    if method == "variational":
        pytest.skip("there is one ascent")
    model, data = entry.example()
    settings = {"num_warmup": 0, "num_samples": 3} if method == "sample" else {}
    one_by_one = run(method, model, data, chain_method="sequential", **settings)
    together = run(method, model, data, chain_method="vectorized", **settings)
    assert_same_discrete(one_by_one, together)


@pytest.mark.tiers(
    exhaustive=[
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "dp-mixture/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "linear-gaussian-ibp/particle_filter",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
        "sparse-binary-series/variational",
        "sparse-binary/variational",
    ]
)
@pytest.mark.slow
def test_jit_equals_no_jit(entry, method):
    model, data = entry.example()
    if method == "variational":
        tiny, small = as_given(method, model, data), {"start": "random"}
    elif is_network(entry):
        tiny, small = first_tokens(data), {"capacity": 4}
    elif isinstance(data, Entries):
        tiny, small = first_tokens(data), {}
    else:
        # custom functions may know the number of columns
        num_columns = data.num_columns if entry.has_functions else 2
        tiny = type(data)(data.to_array()[:3, :num_columns])
        small = {"capacity": 2} | ({"num_particles": 2} if method == "particle_filter" else {})
    algorithm = build(entry, method, model, **small)

    def first_steps(algorithm, key, data):
        state = algorithm.init(jax.random.fold_in(key, 0), data)
        state, info = algorithm.step(jax.random.fold_in(key, 1), state, data, jnp.ones(()))
        return state, info, algorithm.record(key, state, data)

    compiled = jax.jit(first_steps)(algorithm, KEY, tiny)
    with jax.disable_jit():
        plain = first_steps(algorithm, KEY, tiny)
    assert_near(compiled, plain)


@pytest.mark.tiers(
    slow=["binary-mf/sample"],
    exhaustive=[
        "bi-lda/sample",
        "bpmf/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
        "sparse-binary-series/variational",
    ],
)
def test_a_run_cut_short_resumes_bit_for_bit(entry, method, tmp_path):
    model, data = entry.example()
    whole = run(method, model, data)

    def interrupt(report):
        if report.step >= 4:
            raise KeyboardInterrupt

    settings = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 0}
    cut = run(method, model, data, progress=interrupt, **settings)
    resumed = run(method, model, data, resume=True, **settings)
    assert_same_bits(whole, resumed)
    if not cut.meta.complete:  # a fast machine may be done before it is interrupted
        assert (
            cut.num_draws < whole.num_draws
            or cut.data.num_rows < data.num_rows
            or cut.draws["num_epochs"] < whole.draws["num_epochs"]
        )


@pytest.mark.tiers(
    exhaustive=[
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "linear-gaussian-ibp/particle_filter",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
        "sparse-binary-series/variational",
    ]
)
@pytest.mark.slow
def test_grown_capacity_makes_the_same_choices(entry, method):
    """Capacity 8, grown to 32 half-way, against 32 from the start; float64."""
    if method == "variational":
        pytest.skip("nothing grows")
    if build(entry, method, entry.example()[0]).grow is None:
        pytest.skip("nothing grows")
    with jax.enable_x64(True):
        model, data = entry.example()
        step = jax.jit(lambda algorithm, *rest: algorithm.step(*rest)[0])
        small, large = (build(entry, method, model, capacity=size) for size in (8, 32))
        init_key = jax.random.fold_in(KEY, 2**20)
        left, right = small.init(init_key, data), large.init(init_key, data)
        total = num_steps(method, data)
        for index in range(total):
            if index == total // 2:
                left = small.grow(left, large.capacity(right))
            key = jax.random.fold_in(KEY, index)
            progress = jnp.ones(())
            left = step(small, key, left, data, progress)
            right = step(large, key, right, data, progress)
    assert_near(left, right)


@pytest.mark.tiers(
    exhaustive=[
        "bi-lda/sample",
        "binary-mf/sample",
        "bpmf/sample",
        "dp-mixture/sample",
        "feature-model/particle_filter",
        "feature-model/sample",
        "hdp/sample",
        "linear-gaussian-ibp/particle_filter",
        "noisy-or-ibp/particle_filter",
        "noisy-or-ibp/sample",
        "sparse-binary-series/variational",
        "sparse-binary/variational",
    ]
)
def test_columns_of_new_rows_are_matched_by_id(entry, method):
    """Columns, items and words in another order, then one of another name."""
    model, data = entry.example()
    if (
        is_network(entry)
        and not isinstance(model, TransformsDocuments)
        and entry.container is Tokens
    ):
        posterior = run(method, model, data)
        with pytest.raises(ValueError, match="no latent representation of new rows"):
            posterior.transform(data)
        return
    data = with_ids(data)
    posterior = run(method, model, data)
    new = further_rows(data)
    plain, turned = (answers_of_new_rows(posterior, x) for x in (new, rearranged(new)))
    refused = answers_of_new_rows(posterior, rearranged(new, rename=True))
    assert plain, "no answer for new rows: the test asks nothing"
    for name in plain:
        np.testing.assert_array_equal(turned[name](), plain[name](), err_msg=name)
        argument = "new_documents" if name == "completion" else "new_rows"
        with pytest.raises(ValueError, match=f"^{argument}: the .* 'strange' at position"):
            refused[name]()
