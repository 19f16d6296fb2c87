"""Split-merge moves: exact transition matrices, joint-distribution tests, broken twins."""

import dataclasses
import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info, run
from jaxmf.likelihoods import bilinear
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.linear_gaussian.updates import update_by_split_merge, update_features
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers import restricted_scans
from jaxmf.samplers import split_merge as moves
from jaxmf.samplers.split_merge_gaussian import (
    GaussianColumns,
    bilinear_columns,
    linear_gaussian_columns,
)
from jaxmf.testing import check_kernel, check_means, enumerate_features
from tests.models.test_linear_gaussian_enumeration import FINITE, PROCESS, starts
from tests.models.test_linear_gaussian_enumeration import statistics as averages_of
from tests.models.test_linear_gaussian_kernels import FAST_COMPILE, FIXED, PRIORS, Setup
from tests.support.chain_runs import chain_averages
from tests.support.oracles import all_matrices, posterior_of_classes, posterior_of_matrices

X = np.array([[1.3, -0.4], [0.9, 0.8], [-0.2, 1.1]])
SETTINGS = {"alpha": 1.2, "noise_scale": 0.5, "feature_scale": 1.1}
TOLERANCE = 1e-12
ORDERS = ((0, 1, 2), (2, 0, 1))
# All ways to share three rows out: (27, 3, 2).
SHARINGS = np.array(list(itertools.product(restricted_scans.SETTINGS, repeat=3)))


# --- transition matrices -------------------------------------------------------------------------


class Tables(NamedTuple):
    """Of one state and one pair of ones, for one order of the rows.

    base (27,): log A without q of each sharing; first (27,): log probability of the first pass;
    again (27, 27): log probability of a scan from one sharing to another; now () the sharing that
    the pair has; splits (); possible (27,) whether a sharing concerns the pair's rows alone.
    """

    base: np.ndarray
    first: np.ndarray
    again: np.ndarray | None
    now: np.ndarray
    splits: np.ndarray
    possible: np.ndarray


@partial(jax.jit, static_argnames="scans")
def compiled_tables(prior, z, rows, columns, order, *, scans):
    """Tables over states (S, N, K) and their pairs of ones (S, P, 2)."""
    likelihood = linear_gaussian_columns(
        jnp.asarray(X),
        noise_scale=jnp.asarray(SETTINGS["noise_scale"]),
        feature_scale=jnp.asarray(SETTINGS["feature_scale"]),
    )

    def of_pair(z, rows, columns):
        pair = moves.pair_of(z, rows, columns)
        fixed = likelihood.start(pair.rest)
        total = jnp.sum(z, dtype=jnp.int32)
        # the pair's rows first, in the order of this table
        order_here = order[jnp.argsort(~pair.rows[order], stable=True)]
        num_visits = jnp.sum(pair.rows)
        sharings = jnp.asarray(SHARINGS) * pair.rows[:, None]
        held = pair.held.astype(float)

        def log_pass(start, target):
            columns = restricted_scans.Columns(
                start, jnp.sum(start, axis=0), likelihood.at(fixed, start)
            )
            return restricted_scans.pass_over_rows(
                columns, held=held, target=target, led=jnp.asarray(True), order=order_here,
                num_visits=num_visits, uniforms=jnp.zeros(3), fixed=fixed, prior=prior,
                likelihood=likelihood,
            )[1]  # fmt: skip

        def base(sharing):
            return moves.log_split_ratio(
                pair, restricted_scans.Passes(sharing, jnp.zeros(())), fixed, total,
                moves.empty_slots(prior, z, num_fixed=0).num_features,
                prior=prior, likelihood=likelihood,
            )  # fmt: skip

        over = jax.vmap(log_pass, in_axes=(None, 0))
        return Tables(
            base=jax.vmap(base)(sharings),
            first=over(held, sharings),
            again=jax.vmap(over, in_axes=(0, None))(sharings, sharings) if scans else None,
            now=jnp.argmax(jnp.all(sharings == pair.now, axis=(1, 2))),
            splits=pair.splits,
            possible=jnp.all(
                pair.rows | jnp.all(jnp.asarray(SHARINGS) == SHARINGS[0], axis=2), axis=1
            ),
        )

    over_pairs = jax.vmap(of_pair, in_axes=(None, 0, 0))
    return jax.lax.map(lambda state: over_pairs(*state), (z, rows, columns))


def tables(prior, z, order, *, scans):
    """`compiled_tables`, the pairs of ones and their probabilities (S, P)."""
    rows, columns, probability = all_pairs(z)
    found = compiled_tables(prior, z, rows, columns, np.asarray(order, np.int32), scans=scans)
    return jax.device_get(found), columns, probability


def all_pairs(z):
    """Ordered pairs of ones of every state, padded with probability 0."""
    most = int(z.sum(axis=(1, 2)).max()) ** 2
    rows, columns = (np.zeros((len(z), most, 2), np.int32) for _ in range(2))
    probability = np.zeros((len(z), most))
    for state, matrix in enumerate(z):
        ones = np.argwhere(matrix)
        for index, (first, second) in enumerate(itertools.product(ones, ones)):
            rows[state, index] = first[0], second[0]
            columns[state, index] = first[1], second[1]
            probability[state, index] = 1 / len(ones) ** 2
    return rows, columns, probability


def transition_matrix(z, state_index, found, columns, probability, *, finite, twin=None):
    """Of one proposal, over the states that `state_index` orders; full slots refuse a split."""
    size = len(z)
    matrix = np.zeros((size, size))
    for state, index in zip(*np.nonzero(probability), strict=True):
        table = jax.tree.map(lambda leaf, s=state, p=index: leaf[s, p], found)
        chance = probability[state, index]
        left = chance
        slots = columns[state, index]
        free = np.flatnonzero(~z[state].any(axis=0))
        in_pair = z[state][:, slots].any(axis=1)
        for sharing, flow in pair_flows(table, in_pair, z[state].sum(), twin).items():
            targets = [slots[1]] if not table.splits else free if finite else free[:1]
            for slot in targets:
                target = z[state].copy()
                if table.splits:
                    shared = (SHARINGS[sharing] > 0) & in_pair[:, None]
                    target[:, slots[0]], target[:, slot] = shared.T
                else:
                    target[:, slots[0]] = in_pair
                    target[:, slots[1]] = False
                amount = chance * flow / len(targets)
                matrix[state, state_index(target)] += amount
                left -= amount
        matrix[state, state] += left
    empty = z.sum(axis=(1, 2)) == 0
    matrix[empty] = np.eye(size)[empty]
    return matrix


def pair_flows(table, in_pair, total, twin):
    """Accepted probability of each sharing of a split, or of the merge (one entry)."""

    def accepted(log_q, sharing):
        log_ratio = table.base[sharing] - (0 if twin == "no q" else log_q)
        if twin == "no picks":
            both = ((SHARINGS[sharing].sum(axis=1) == 2) & in_pair).sum()
            merged = total - (0 if table.splits else both)
            log_ratio += 2 * np.log((merged + both) / merged)
        return min(1.0, np.exp(min(0.0, log_ratio if table.splits else -log_ratio)))

    flows = {}
    starts_from = [(0.0, table.first)]
    if table.again is not None:
        starts_from = [
            (table.first[launch], table.again[launch])
            for launch in np.flatnonzero(table.possible & np.isfinite(table.first))
        ]
    targets = np.flatnonzero(table.possible) if table.splits else [int(table.now)]
    for log_start, log_q in starts_from:
        for sharing in targets:
            if log_q[sharing] == -np.inf:
                continue
            flow = np.exp(log_start) * accepted(log_q[sharing], sharing)
            flow *= np.exp(log_q[sharing]) if table.splits else 1.0
            flows[sharing] = flows.get(sharing, 0.0) + flow
    return flows


def class_key(matrix):
    return tuple(sorted((matrix * np.array([4, 2, 1])[:, None]).sum(axis=0)))


def classes_case(max_features, concentration):
    z = enumerate_features(3, max_features).z
    posterior = posterior_of_classes(
        X, max_features=max_features, concentration=concentration, **SETTINGS
    )
    indices = {class_key(matrix): index for index, matrix in enumerate(z)}
    exact = np.zeros(len(z))
    for matrix, chance in zip(posterior.z, posterior.probability, strict=True):
        exact[indices[class_key(matrix)]] = chance
    return z, lambda matrix: indices[class_key(matrix)], exact


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


def check_balance(matrix, exact):
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=0, atol=TOLERANCE)
    flow = exact[:, None] * matrix
    assert np.abs(exact @ matrix - exact).max() < TOLERANCE
    np.testing.assert_allclose(flow, flow.T, rtol=0, atol=TOLERANCE)
    moved = 1 - exact @ np.diag(matrix)
    assert moved > 0.02, "the move hardly ever moves"


@pytest.mark.usefixtures("double_precision")
def test_one_proposal_leaves_the_posterior_of_the_process_invariant():
    """Also: a factor that is forgotten is seen."""
    z, state_index, exact = classes_case(3, 0.4)
    prior = IndianBuffet(SETTINGS["alpha"], 0.4)
    for order in ORDERS:
        found = tables(prior, z, order, scans=False)
        check_balance(transition_matrix(z, state_index, *found, finite=False), exact)
    for twin in ("no q", "no picks"):
        matrix = transition_matrix(z, state_index, *found, finite=False, twin=twin)
        assert np.abs(exact @ matrix - exact).max() > 1e-3


@pytest.mark.exhaustive
@pytest.mark.usefixtures("double_precision")
def test_one_proposal_after_a_restricted_scan():
    """The first pass only launches the second, whose probability is q."""
    z, state_index, exact = classes_case(2, 1.0)
    prior = IndianBuffet(SETTINGS["alpha"], 1.0)
    for order in ORDERS:
        found = tables(prior, z, order, scans=True)
        check_balance(transition_matrix(z, state_index, *found, finite=False), exact)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
def test_one_proposal_leaves_the_posterior_of_the_finite_model_invariant():
    """Over labelled matrices: the empty column that a split takes is a random one."""
    z = all_matrices(3, 3)
    powers = 2 ** np.arange(8, -1, -1)
    posterior = posterior_of_matrices(X, num_features=3, concentration=1.3, **SETTINGS)
    exact = np.zeros(len(z))
    exact[posterior.z.reshape(len(z), -1) @ powers] = posterior.probability
    prior = BetaBernoulli(SETTINGS["alpha"], 1.3, 3)
    found = tables(prior, z, ORDERS[1], scans=False)
    matrix = transition_matrix(z, lambda target: target.reshape(-1) @ powers, *found, finite=True)
    check_balance(matrix, exact)


# --- statistics of the pair ----------------------------------------------------------------------


def random_problem(seed, num_slots=5):
    """Z (7, 5), groups of columns of which the last has no signal, and prior means."""
    rng = np.random.default_rng(seed)
    z = rng.random((7, num_slots)) < 0.5
    z[:, 3] = False
    mean = np.repeat(rng.normal(size=(1, 3, 2)), num_slots, axis=0)
    mean[:, 2] = 0
    likelihood = GaussianColumns(
        jnp.asarray(rng.normal(size=(7, 3, 2))), jnp.asarray([0.7, 2.5, 0.0]), jnp.asarray(0.3)
    )
    return jnp.asarray(z & (np.arange(num_slots) > 1)), likelihood, jnp.asarray(mean)


@pytest.mark.tiers(exhaustive=["False"])
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("has_mean", [pytest.param(False, marks=pytest.mark.slow), True])
def test_statistics_kept_up_row_by_row_are_those_from_nothing(has_mean):
    rest, likelihood, mean = random_problem(0)
    if has_mean:
        likelihood = dataclasses.replace(likelihood, mean=mean)
    rng = np.random.default_rng(1)

    @jax.jit
    def visit_all(rows, settings):
        fixed = likelihood.start(rest)

        def visit(carry, visit):
            pair, statistics = carry
            row, new = visit
            candidate = likelihood.log_likelihoods(fixed, statistics, row, pair[row], new[None])[0]
            statistics = likelihood.change(fixed, statistics, row, pair[row], new)
            difference = candidate - likelihood.log_likelihood(fixed, statistics)
            return (pair.at[row].set(new), statistics), difference

        pair = jnp.zeros((7, 2))
        start = (pair, likelihood.at(fixed, pair))
        (pair, statistics), differences = jax.lax.scan(visit, start, (rows, settings))
        return statistics, likelihood.at(fixed, pair), differences

    visited, from_nothing, differences = visit_all(
        rng.integers(0, 7, 30), 1.0 * rng.integers(0, 2, (30, 2))
    )
    np.testing.assert_allclose(differences, 0, atol=1e-10)
    for left, right in zip(visited, from_nothing, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-10)


def log_normal_columns(x, z, mean, gain, noise_variance):
    """log p(X | Z) with loadings summed out, group by group, from whole covariances."""
    total = 0.0
    for group in range(x.shape[1]):
        covariance = noise_variance * (np.eye(len(x)) + gain[group] * z @ z.T)
        error = x[:, group] - z @ mean[: z.shape[1], group]
        total -= 0.5 * np.sum(error * np.linalg.solve(covariance, error))
        total -= 0.5 * error.shape[1] * np.linalg.slogdet(2 * np.pi * covariance)[1]
    return total


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("has_mean", [False, True])
def test_the_likelihood_of_a_pair_is_that_of_the_model(has_mean):
    """Differences between settings of the pair, against the whole collapsed likelihood."""
    rest, likelihood, mean = random_problem(2)
    if has_mean:
        likelihood = dataclasses.replace(likelihood, mean=mean)
    else:
        mean = 0 * mean
    pairs = (np.random.default_rng(3).random((4, 7, 2)) < 0.5) * 1.0
    pairs[0, :, 1] = 0

    @jax.jit
    def log_likelihood(pair):
        fixed = likelihood.start(rest)
        return likelihood.log_likelihood(fixed, likelihood.at(fixed, pair))

    found = [float(log_likelihood(pair)) for pair in pairs]
    exact = [
        log_normal_columns(
            np.asarray(likelihood.x), np.concatenate([pair, rest[:, 2:]], axis=1),
            np.asarray(mean), np.asarray(likelihood.gain), 0.3,
        )
        for pair in pairs
    ]  # fmt: skip
    np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_the_collapsed_bilinear_likelihood_is_a_pair_likelihood():
    rng = np.random.default_rng(4)
    rest, _, _ = random_problem(5)
    v, x = jnp.asarray(rng.random((6, 4)) < 0.5), jnp.asarray(rng.normal(size=(7, 6)))
    v = v.at[:, 3].set(v[:, 0])  # a turned column without strength
    settings = {"noise_scale": jnp.asarray(0.6), "weight_scale": jnp.asarray(0.9)}
    pairs = (rng.random((3, 7, 2)) < 0.5) * 1.0
    for weight_mean in (0.0, 0.7):

        @jax.jit
        def both(pair, weight_mean=weight_mean):
            likelihood = bilinear_columns(v, x, weight_mean=weight_mean, num_slots=5, **settings)
            fixed = likelihood.start(rest)
            u = jnp.concatenate([pair > 0, rest[:, 2:]], axis=1)
            return likelihood.log_likelihood(
                fixed, likelihood.at(fixed, pair)
            ), bilinear.log_marginal(u, v, x, weight_mean=weight_mean, **settings)

        found, exact = np.array([both(pair) for pair in pairs]).T
        np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-9)


# --- the compiled kernel -------------------------------------------------------------------------


class Flat(NamedTuple):
    """A likelihood that says nothing: the prior must come back."""

    def start(self, rest):
        return jnp.zeros(())

    def at(self, fixed, pair):
        return jnp.zeros(())

    def log_likelihood(self, fixed, statistics):
        return jnp.zeros(())

    def log_likelihoods(self, fixed, statistics, row, setting, candidates):
        return jnp.zeros(3)

    def change(self, fixed, statistics, row, setting, new):
        return jnp.zeros(())


def prior_statistics(z, data):
    del data
    z = z.astype(float)
    counts = jnp.sum(z, axis=0)
    return {
        "number of features": jnp.sum(counts > 0),
        "number of bits": jnp.sum(counts).astype(int),
        "features of one row": jnp.sum(counts == 1),
        "most frequent": jnp.max(counts).astype(int),
        "squares": jnp.sum(counts**2).astype(int),
        "shared 0, 1": jnp.sum(z[0] * z[1]).astype(int),
        "shared by three": jnp.sum(z[0] * z[1] * z[2]).astype(int),
    }


@pytest.mark.tiers(exhaustive=["finite", "two-parameter process, with scans"])
@pytest.mark.parametrize(
    ("prior", "num_scans"),
    [
        pytest.param(IndianBuffet(1.5, 1.0), 0, marks=pytest.mark.exhaustive),
        pytest.param(IndianBuffet(1.0, 2.5), 2, marks=pytest.mark.slow),
        pytest.param(BetaBernoulli(1.5, 1.4, 5), 1, marks=pytest.mark.slow),
    ],
    ids=["process", "two-parameter process, with scans", "finite"],
)
def test_the_prior_comes_back_with_the_likelihood_off(prior, num_scans):
    """The move alone, many proposals on six rows, where nothing but the prior is in it."""
    capacity = 5 if isinstance(prior, BetaBernoulli) else 24

    def kernel(key, z, data):
        z, overflow, _ = moves.split_merge(
            key, z, prior=prior, likelihood=Flat(), num_proposals=10, num_scans=num_scans
        )
        return z, Info(overflow={"features": overflow})

    check_kernel(
        kernel,
        sample_prior=lambda key: prior.sample(key, 6, capacity)[0],
        simulate=lambda key, z: jnp.zeros(()),
        statistics=prior_statistics,
        key=jax.random.key(31),
        compiler_options=FAST_COMPILE,
    )


def alone(model, **options):
    options = {"num_proposals": 4} | options
    return partial(update_by_split_merge, model, **options)


def after_a_sweep(model):
    def kernel(key, state, data):
        first, second = jax.random.split(key)
        state, swept = update_features(model, first, state, data, sweep="collapsed")
        state, moved = update_by_split_merge(model, second, state, data, num_proposals=2)
        overflow = swept.overflow["features"] | moved.overflow["features"]
        return state, Info(overflow={"features": overflow})

    return kernel


ALONE = {"alpha": 1.5, "noise_scale": 0.6, "feature_scale": 1.0}


@pytest.mark.tiers(exhaustive=["finite"])
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"concentration": 1.4, "bias": True}, {"num_features": 4, "concentration": 1.4}],
    ids=["two-parameter process with a bias", "finite"],
)
def test_the_move_alone(settings):
    model = LinearGaussianIBP(**ALONE, **settings)
    Setup(model, True, 26).check(alone(model), key=jax.random.key(32), num_steps=4)


@pytest.mark.exhaustive
def test_the_move_with_the_sweep():
    model = LinearGaussianIBP(**FIXED, bias=True)
    Setup(model).check(after_a_sweep(model), key=jax.random.key(33))


@pytest.mark.exhaustive
def test_the_whole_step_with_the_move():
    model = LinearGaussianIBP(**PRIORS)
    step = model.sampler(anneal=False, split_merge=3).step
    Setup(model).check(
        lambda key, state, data: step(key, state, data, jnp.asarray(1.0)),
        key=jax.random.key(34),
    )


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param("no q", marks=pytest.mark.slow),
        pytest.param("no picks", marks=pytest.mark.exhaustive),
    ],
)
def test_a_forgotten_factor_is_caught(twin, monkeypatch):
    if twin == "no picks":
        monkeypatch.setattr(moves, "log_pick_probability", lambda total: 0.0 * total)
    else:
        right = moves.run_passes
        monkeypatch.setattr(
            moves,
            "run_passes",
            lambda *arguments, **options: right(*arguments, **options)._replace(
                log_proposal=jnp.zeros(())
            ),
        )
    model = LinearGaussianIBP(**ALONE)
    with pytest.raises(AssertionError, match="FAILED") as caught:
        Setup(model, False, 26).check(
            alone(model), key=jax.random.key(35), num_steps=6, num_replicates=4_096
        )
    print(caught.value)


@pytest.mark.tiers(exhaustive=["process"])
@pytest.mark.parametrize(
    ("case", "kernel", "num_steps"),
    [
        pytest.param(PROCESS, alone, 100, marks=pytest.mark.exhaustive, id="process, alone"),
        pytest.param(PROCESS, after_a_sweep, 130, marks=pytest.mark.slow, id="process"),
        pytest.param(FINITE, after_a_sweep, 260, marks=pytest.mark.exhaustive, id="finite"),
    ],
)
def test_many_chains_against_enumeration(case, kernel, num_steps):
    posterior = case.posterior()
    model, data = case.model, case.data
    move = kernel(model)
    averages = chain_averages(
        lambda key, state: move(key, state, data),
        lambda state: averages_of(model, state),
        starts(case, posterior, 4_000),
        num_steps=num_steps,
        seed=36,
    )
    # alone the move cannot reach every class from each: chains differ by where they start
    report = check_means(
        averages,
        posterior.expectations(),
        title=f"split-merge, {case}; prior mass left out {posterior.left_out:.1e}",
        max_standard_error=0.01 if kernel is alone else 1e-3,
    )
    print(report)


# --- structure -----------------------------------------------------------------------------------


def small_data(num_rows=14):
    rng = np.random.default_rng(3)
    z = rng.random((num_rows, 3)) < 0.5
    return z @ rng.normal(size=(3, 4)) + 0.3 * rng.normal(size=(num_rows, 4))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_grown_is_the_same_as_large_from_the_start():
    from jaxmf.data import Dense

    with jax.enable_x64(True):
        model = LinearGaussianIBP(alpha=2.0, noise_scale=0.3, feature_scale=1.0)
        runs = [
            run(
                model.sampler(capacity=capacity, anneal=False, split_merge=5),
                Dense.from_array(small_data()),
                num_samples=30,
                seed=5,
                progress=False,
            )
            for capacity in (2, 16)
        ]
        small, large = (found.draws["z"] for found in runs)
        width = min(small.shape[-1], large.shape[-1])
        assert runs[0].capacity["features"] > 2
        np.testing.assert_array_equal(small[..., :width], large[..., :width])
        assert not small[..., width:].any()
        assert not large[..., width:].any()


@partial(jax.jit, static_argnames="num_fixed")
def propose_often(z, prior, *, num_fixed=0):
    return moves.split_merge(
        jax.random.key(1), z, prior=prior, likelihood=Flat(), num_proposals=200, num_scans=0,
        num_fixed=num_fixed,
    )  # fmt: skip


def test_given_features_are_never_touched_and_slots_run_out():
    z = np.zeros((5, 12), bool)
    z[:, 0] = True
    z[1:4, 1] = True
    z[:3, 2] = True
    after, overflow, accepted = propose_often(z, IndianBuffet(2.0), num_fixed=2)
    np.testing.assert_array_equal(after[:, :2], z[:, :2])
    assert accepted > 0
    assert not overflow
    rows = np.any(np.asarray(after)[:, 2:], axis=1)
    np.testing.assert_array_equal(rows, z[:, 2])

    full = np.random.default_rng(0).random((5, 12)) < 0.7
    assert full.any(axis=0).all()
    _, overflow, accepted = propose_often(full, IndianBuffet(50.0), num_fixed=2)
    assert overflow
    assert accepted > 0

    nothing = np.zeros((5, 12), bool)
    after, overflow, accepted = propose_often(nothing, IndianBuffet(3.0), num_fixed=2)
    assert not after.any()
    assert not overflow
    assert accepted == 0


@pytest.mark.slow
def test_a_finite_model_without_an_empty_feature_does_not_split():
    z = np.ones((3, 1), bool)
    after, overflow, accepted = propose_often(z, BetaBernoulli(1.0, 1.0, 1))
    np.testing.assert_array_equal(after, z)
    assert not overflow
    assert accepted == 0


def test_a_pair_is_picked_uniformly_whatever_the_capacity():
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.random((5, 4)) < 0.4)
    keys = jax.random.split(jax.random.key(0), 4_000)
    pick = jax.jit(jax.vmap(moves.pick_ones, in_axes=(0, None)))
    rows, columns, total = pick(keys, z)
    assert z[rows, columns].all()
    counts = np.unique(np.asarray(rows) * 4 + np.asarray(columns), return_counts=True)[1]
    assert len(counts) == int(total[0]) == int(z.sum())
    assert (np.abs(counts - 8_000 / len(counts)) < 5 * np.sqrt(8_000 / len(counts))).all()
    wider = jnp.pad(z, ((0, 0), (0, 9)))
    again = pick(keys, wider)
    np.testing.assert_array_equal(again[1], columns)


@pytest.mark.parametrize(
    ("num_proposals", "error"), [(-1, ValueError), (True, TypeError), (1.5, TypeError)]
)
def test_bad_number_of_proposals(num_proposals, error):
    with pytest.raises(error, match="split_merge"):
        LinearGaussianIBP(**FIXED).sampler(split_merge=num_proposals)
