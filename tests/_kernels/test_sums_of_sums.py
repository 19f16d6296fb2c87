"""No program sums products of sums of products that share a factor.

XLA of jaxlib 0.10.2 makes a CPU program with wrong results of ``sum(sum(A * x) * x)`` where all x
share A and there are more than 32,768 inner sums (jax issue 39103). Programs are traced here, not
compiled, so that the pattern is seen at any size.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal, jaxprs_in_params

import jaxmf as mf
from jaxmf import registry
from jaxmf._kernels import tables
from jaxmf.likelihoods.families import multivariate_normal
from jaxmf.preparation import matched_to

SHAPES = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy"}
SHAPES |= {"slice", "dynamic_slice"}
PRODUCTS = {"mul", "integer_pow", "square"}
ELEMENTWISE = SHAPES | PRODUCTS | {"add", "sub", "neg", "div", "max", "min", "select_n", "abs"}
NUM_GROUPS = 4
FAMILY = mf.NormalInverseWishart(3)


def nested_sums(jaxpr):
    """The sums, in a program and those within it, of products of sums with a shared factor."""
    producer = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    sums = [equation for equation in jaxpr.eqns if equation.primitive.name == "reduce_sum"]
    shared = {id(each) for each in sums if has_shared_factor(each.invars[0], producer)}
    found = [each for each in sums if shared & inner_sums(each.invars[0], producer)]
    for equation in jaxpr.eqns:
        for within in jaxprs_in_params(equation.params):
            found += nested_sums(getattr(within, "jaxpr", within))
    return found


def inner_sums(var, producer):
    """Identities of the sums that reach `var` by operations on cells, a product among them."""
    reached, seen, waiting = set(), set(), [(var, False)]
    while waiting:
        var, is_product = waiting.pop()
        if isinstance(var, Literal) or (var, is_product) in seen or var not in producer:
            continue
        seen.add((var, is_product))
        equation = producer[var]
        name = equation.primitive.name
        if name == "reduce_sum" and is_product:
            reached.add(id(equation))
        if name in ELEMENTWISE:
            waiting += [(each, is_product or name in PRODUCTS) for each in equation.invars]
    return reached


def has_shared_factor(var, producer):
    """Whether `var` is a product with an array that is repeated along a new axis."""
    equation = producer.get(var)
    while equation is not None and equation.primitive.name in SHAPES:
        equation = producer.get(equation.invars[0])
    if equation is None or equation.primitive.name != "mul":
        return False
    return any(is_repeated(each, producer) for each in equation.invars)


def is_repeated(var, producer):
    while not isinstance(var, Literal) and var in producer:
        equation = producer[var]
        if equation.primitive.name not in SHAPES:
            return False
        var = equation.invars[0]
        if equation.primitive.name == "broadcast_in_dim" and np.ndim(var.aval) > 0:
            return True
    return False


def cache_of_groups():
    """What a family keeps of groups with seven values each."""
    factors = np.random.default_rng(0).normal(size=(NUM_GROUPS, 3, 6))
    inverse = factors @ factors.swapaxes(1, 2)
    log_determinant = np.zeros(NUM_GROUPS)
    one = np.zeros((), np.int32), np.zeros(3), np.eye(3), np.zeros(())
    arrays = np.full(NUM_GROUPS, 7, np.int32), np.zeros((NUM_GROUPS, 3)), inverse, log_determinant
    cache = multivariate_normal._VectorCache(*arrays, prior=np.array([1.0, 5.0]), empty=one)
    return jax.tree.map(lambda x: jnp.asarray(x, None if x.dtype == np.int32 else float), cache)


def log_determinants(rows, cache):
    """Of one group after each row alone has come to it."""
    return jax.vmap(lambda x: FAMILY.move(cache, jnp.int32(1), x, 1).log_determinant[1])(rows)


def predictive(rows, cache):
    lanes = tables.Lanes(jnp.zeros((), jnp.int32), 1, NUM_GROUPS)
    return jax.vmap(lambda x: FAMILY.predictive(cache, lanes, x))(rows)


def sum_of_sums(matrices, vectors):
    """The twin: what `_squared_lengths` was."""
    return jnp.sum(jnp.sum(matrices * vectors[:, None, :], axis=2) * vectors, axis=1)


QUESTIONS = {"a row that comes": log_determinants, "predictive": predictive}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_groups_have_no_sum_of_sums(question, monkeypatch):
    arguments = jnp.ones((5, 3)), cache_of_groups()
    assert not nested_sums(jax.make_jaxpr(question)(*arguments).jaxpr)
    monkeypatch.setattr(multivariate_normal, "_squared_lengths", sum_of_sums)
    again = jax.make_jaxpr(lambda *each: question(*each))(*arguments)  # else the trace is reused
    assert nested_sums(again.jaxpr)


def test_many_rows_that_come_to_one_group_at_once():
    rows = np.random.default_rng(1).normal(size=(20_000, 3)).astype(np.float32)
    cache = cache_of_groups()
    squared = np.einsum("ni,ij,nj->n", rows, np.asarray(cache.inverse[1], float), rows)
    moved = jax.jit(log_determinants)(rows, cache)
    np.testing.assert_allclose(moved, np.log1p(8 / 9 * squared), rtol=1e-4, atol=1e-4)


def steps_of(entry, method):
    """The program of a step of three chains."""
    model, data = entry.example()
    model, data = matched_to(model, data, None, method=method)
    data = model.prepare(data) if method == "variational" else data
    options = {"particle_filter": {"num_particles": 4}, "variational": {"num_epochs": 2}}
    algorithm = entry.builder(model, method)(**options.get(method, {}))
    keys = jax.random.split(jax.random.key(0), 3)
    state = jax.eval_shape(jax.vmap(algorithm.init, (0, None)), keys, data)
    progress = jnp.zeros((), jnp.int32 if method == "particle_filter" else float)
    return jax.make_jaxpr(jax.vmap(algorithm.step, (0, 0, None, None)))(keys, state, data, progress)


SHOWN = ("lda", "network")


@pytest.mark.parametrize(
    ("entry", "method"),
    [
        pytest.param(
            *(entry, method),
            id=f"{entry.name}/{method}",
            marks=[] if entry.name in SHOWN else pytest.mark.exhaustive,
        )
        for entry in registry.ENTRIES
        for method in entry.methods
    ],
)
def test_steps_have_no_sum_of_sums(entry, method):
    assert not nested_sums(steps_of(entry, method).jaxpr)


def test_on_accelerators_no_row_of_a_matrix_is_a_turn_of_a_loop(monkeypatch):
    generator = np.random.default_rng(0)
    half = generator.normal(size=(3, 9, 9))
    matrices, vectors = half @ half.transpose(0, 2, 1), generator.normal(size=(3, 9))

    def both(matrices, vectors):
        product = multivariate_normal._product(matrices, vectors)
        return product, multivariate_normal._squared_lengths(matrices, vectors)

    on_cpu = both(matrices, vectors)
    assert "scan[" in str(jax.make_jaxpr(both)(matrices, vectors))
    monkeypatch.setattr(multivariate_normal, "default_platform", lambda: "gpu")
    program = str(jax.make_jaxpr(lambda *of: both(*of))(matrices, vectors))
    assert "scan[" not in program
    for ours, other in zip(both(matrices, vectors), on_cpu, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-5)
    np.testing.assert_allclose(on_cpu[0], np.einsum("lij,lj->li", matrices, vectors), rtol=1e-5)
