"""No program has two batched decompositions that may run at the same time.

A batched decomposition of LAPACK holds a thread of XLA's pool on a CPU while it waits for others of
the pool, which has as many as there are cores. With two cores two of them at once wait for ever
(jaxlib 0.10; `jaxmf._kernels.linalg.after`). Programs are traced here, not run: a run that hangs
does so once in many.
"""

import math

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Literal, jaxprs_in_params

from jaxmf import registry
from jaxmf._kernels.linalg import after
from jaxmf.likelihoods import bilinear, gaussian
from jaxmf.preparation import matched_to

DECOMPOSITIONS = {"cholesky", "eigh", "eig", "svd", "lu", "geqrf", "householder_product", "schur"}
DECOMPOSITIONS |= {"triangular_solve", "tridiagonal"}
CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"}
OPTIONS = {"particle_filter": {"num_particles": 4}, "variational": {"num_epochs": 2}}


def decomposes(equation):
    """Whether an equation is a batched decomposition, or has one within."""
    if equation.primitive.name in DECOMPOSITIONS:
        shape = equation.invars[0].aval.shape
        return math.prod(shape[:-2]) > 1
    return any(
        decomposes(each)
        for within in jaxprs_in_params(equation.params)
        for each in getattr(within, "jaxpr", within).eqns
    )


def unordered(jaxpr):
    """Pairs of decompositions, in a program and those within it, of which none waits."""
    found, known = [], []
    _visit(jaxpr, [frozenset()] * len(jaxpr.invars), known, found)
    return found


def _visit(jaxpr, waits, known, found):
    """What each output waits for; functions that are called are taken as part of the program."""
    before = dict(zip(jaxpr.invars, waits, strict=True))
    for equation in jaxpr.eqns:
        of_inputs = [
            frozenset() if isinstance(each, Literal) else before.get(each, frozenset())
            for each in equation.invars
        ]
        within = [getattr(each, "jaxpr", each) for each in jaxprs_in_params(equation.params)]
        if equation.primitive.name in CALLS and len(within) == 1:
            outputs = _visit(within[0], of_inputs, known, found)
            before |= dict(zip(equation.outvars, outputs, strict=True))
            continue
        waited_for = frozenset().union(*of_inputs)
        if decomposes(equation):
            found += [(each, equation) for n, each in enumerate(known) if n not in waited_for]
            waited_for |= {len(known)}
            known.append(equation)
        before |= dict.fromkeys(equation.outvars, waited_for)
        for each in within:
            found += unordered(each)
    return [
        frozenset() if isinstance(each, Literal) else before.get(each, frozenset())
        for each in jaxpr.outvars
    ]


def programs_of(name, method, options):
    """The start and a step of three chains, or of one ascent."""
    entry = registry.get(name)
    model, data = matched_to(*entry.example(), None, method=method)
    data = model.prepare(data) if method == "variational" else data
    algorithm = entry.builder(model, method)(**OPTIONS.get(method, {}), **options)
    start, step, keys = algorithm.init, algorithm.step, jax.random.key(0)
    if method != "variational":
        keys = jax.random.split(keys, 3)
        start, step = jax.vmap(start, (0, None)), jax.vmap(step, (0, 0, None, None))
    progress = jnp.zeros((), jnp.int32 if method == "particle_filter" else float)
    state = jax.eval_shape(start, keys, data)
    yield jax.make_jaxpr(start)(keys, data).jaxpr
    yield jax.make_jaxpr(step)(keys, state, data, progress).jaxpr


TEMPERED = {"anneal_from": 0.5, "anneal_steps": 3, "rejuvenate_every": 1}
CASES = [("linear-gaussian-ibp", "particle_filter", TEMPERED)]
CASES += [("binary-mf", "sample", {"weights": "explicit"}), ("bpmf", "sample", {})]
MORE = [
    ("binary-mf", "sample", {"start": "data"}),
    ("binary-mf", "sample", {"weights": "collapsed"}),
    ("bpmf", "sample", {"split_merge": 1}),
]
MORE += [("linear-gaussian-ibp", "sample", {"split_merge": 1, "sweep": "parallel"})]
MORE += [(entry.name, method, {}) for entry in registry.ENTRIES for method in entry.methods]
# Networks of counts, whose sweep factorises nothing: one of them stands for all.
COUNTS = {"lda", "hfp", "pam", "dcm", "urp", "bi-lda", "bi-hdp", "multi-lda", "multi-hdp"}


def marks(name):
    return [pytest.mark.slow, *([pytest.mark.exhaustive] if name in COUNTS else [])]


@pytest.mark.tiers(
    slow=["binary-mf-sample-options1", "linear-gaussian-ibp-particle_filter-options0"],
    exhaustive=["bpmf-sample-options2"],
)
@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        *CASES,
        *(pytest.param(*case, marks=marks(case[0])) for case in MORE if case not in CASES),
    ],
)
def test_decompositions_wait_for_one_another(name, method, options):
    for program in programs_of(name, method, options):
        assert not unordered(program)


@pytest.mark.parametrize("question", [bilinear.weight_conditional, bilinear.spectrum])
def test_answers_of_many_draws_of_a_factorisation_wait_too(question):
    scales = {"noise_scale": 1.0, "weight_scale": 1.0}
    options = scales if question is bilinear.weight_conditional else {}
    arrays = jnp.ones((2, 5, 3), bool), jnp.ones((2, 4, 2), bool), jnp.ones((2, 5, 4))
    program = jax.make_jaxpr(jax.vmap(lambda *each: question(*each, **options)))(*arrays)
    assert not unordered(program.jaxpr)


def test_two_decompositions_side_by_side_are_found():
    def both(a, b):
        return jnp.linalg.cholesky(a), jnp.linalg.eigh(b)

    def in_order(a, b):
        factor = jnp.linalg.cholesky(a)
        return factor, jnp.linalg.eigh(after(b, factor))

    def looped(a, b):
        def body(_, pair):
            factor, (_, vectors) = both(*pair)
            return factor, vectors

        return jax.lax.fori_loop(0, 3, body, (a, b))

    many, one = jnp.ones((5, 3, 3)), jnp.ones((1, 3, 3))
    assert unordered(jax.make_jaxpr(both)(many, many).jaxpr)
    assert unordered(jax.make_jaxpr(looped)(many, many).jaxpr)
    assert not unordered(jax.make_jaxpr(in_order)(many, many).jaxpr)
    assert not unordered(jax.make_jaxpr(both)(one, many).jaxpr)


def test_a_decomposition_in_a_loop_of_one_turn_stays_there():
    """The compiler moves what does not change out of loops: this one would be beside another."""

    def program(gram, cross, ratio):
        return jax.vmap(gaussian.row_posterior)(gram, cross, ratio)

    arguments = jnp.zeros((3, 4, 4)), jnp.zeros((3, 4, 2)), jnp.ones(3)
    text = jax.jit(program).lower(*arguments).compile().as_text()
    before, entry = text.split("ENTRY")
    assert "syevd" in before
    assert "potrf" in entry
    assert "syevd" not in entry
