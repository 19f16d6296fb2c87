"""Transition matrices of the noisy-OR kernels on tiny data, from the library's own conditionals.

States are sets of at most three causes, each with a history over two rows and an activity over two
columns; the number of causes is capped in the kernels and in the posterior alike. pi P = pi to
1e-12 sees what no long run does: new rows of Y drawn with right marginals but independently move
the posterior by less than a thousandth.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.likelihoods import noisy_or
from jaxmf.likelihoods.noisy_or import NoisyOrCells, NoisyOrParameters
from jaxmf.priors.features import IndianBuffet
from jaxmf.samplers.feature_layout import row_prior
from jaxmf.samplers.noisy_or import moves
from jaxmf.samplers.noisy_or.new_causes import count_table, new_cause_log_weights
from jaxmf.samplers.noisy_or.sweep import flip_log_odds

pytestmark = pytest.mark.usefixtures("double_precision")

NUM_ROWS, NUM_COLUMNS, NUM_SLOTS = 2, 2, 3
ALPHA, CONCENTRATION = 1.3, 0.7
VALUES = {"cause_probability": 0.35, "efficacy": 0.85, "leak": 0.15}
X = np.array([[1.0, 0.0], [1.0, 1.0]])
OBSERVED = np.array([[True, True], [True, False]])
TOLERANCE = 1e-12
PATTERNS = np.array(list(itertools.product([False, True], repeat=NUM_SLOTS)))
# a cause is a history and an activity: bits of the rows, then bits of the columns
KINDS = [
    (history, activity)
    for history in itertools.product([0, 1], repeat=NUM_ROWS)
    for activity in itertools.product([0, 1], repeat=NUM_COLUMNS)
    if any(history)
]
STATES = [
    state
    for size in range(NUM_SLOTS + 1)
    for state in itertools.combinations_with_replacement(range(len(KINDS)), size)
]
STATE_INDEX = {state: index for index, state in enumerate(STATES)}


def arrays_of(state):
    """z (N, K) and y (K, D) with the causes in the first slots."""
    z = np.zeros((NUM_ROWS, NUM_SLOTS), bool)
    y = np.zeros((NUM_SLOTS, NUM_COLUMNS), bool)
    for slot, kind in enumerate(state):
        z[:, slot], y[slot] = KINDS[kind]
    return z, y


KIND_OF = {kind: index for index, kind in enumerate(KINDS)}


def state_index(z, y):
    """The state of arrays, whatever the slots; empty columns are no causes."""
    columns = zip(z.T.astype(int).tolist(), y.astype(int).tolist(), strict=True)
    causes = [(tuple(history), tuple(activity)) for history, activity in columns if any(history)]
    return STATE_INDEX[tuple(sorted(KIND_OF[cause] for cause in causes))]


def parameters():
    return NoisyOrParameters(**{name: jnp.asarray(value, float) for name, value in VALUES.items()})


def prior():
    return IndianBuffet(jnp.asarray(ALPHA, float), jnp.asarray(CONCENTRATION, float))


def posterior():
    """pi over the states: a Poisson process of causes times the likelihood, written out."""
    from scipy.special import betaln, gammaln

    log_joint = []
    for state in STATES:
        z, y = (array.astype(float) for array in arrays_of(state))
        ones, num_causes = z.sum(axis=0)[: len(state)], len(state)
        log_prior = num_causes * np.log(ALPHA * CONCENTRATION)
        log_prior += betaln(ones, NUM_ROWS - ones + CONCENTRATION).sum()
        active = y[:num_causes].sum()
        p = VALUES["cause_probability"]
        log_prior += active * np.log(p) + (num_causes * NUM_COLUMNS - active) * np.log(1 - p)
        log_prior -= gammaln(np.unique(state, return_counts=True)[1] + 1).sum() if num_causes else 0
        zero = (1 - VALUES["leak"]) * (1 - VALUES["efficacy"]) ** (z @ y)
        log_joint.append(log_prior + np.log(np.where(X == 1, 1 - zero, zero))[OBSERVED].sum())
    probability = np.exp(np.array(log_joint) - max(log_joint))
    return probability / probability.sum()


@functools.cache
def tables():
    """The library's conditionals for every state; call it with 64-bit floats on."""
    cells = noisy_or.cells_of(jnp.asarray(X), jnp.asarray(OBSERVED))
    values, given = parameters(), prior()

    def flips(z_row, y, ones, zeros, num_singletons, log_odds):
        """Log odds of flipping each bit of a row."""
        eta = noisy_or.num_active(z_row, y, X.dtype)
        off = (eta - z_row[:, None] * y).astype(int)
        with_it = noisy_or.log_one(off + 1, values, num_singletons)
        gain = y * (with_it - noisy_or.log_one(off, values, num_singletons))
        return flip_log_odds(z_row, log_odds, gain @ ones + values.log_fail * (y @ zeros))

    def of_row(z, y, row):
        counts = jnp.sum(z, axis=0, dtype=float) - z[row]
        conditional = row_prior(given, counts, NUM_ROWS, num_fixed=0)
        singletons = z[row] & conditional.free
        y = jnp.where(conditional.free[:, None], 0, y.astype(float))
        row_cells = NoisyOrCells(cells.ones[row], cells.zeros[row])

        def of_bits(bits, num_singletons):
            eta = noisy_or.num_active(bits, y, float)
            tally = noisy_or.tally_of(eta, row_cells, NUM_SLOTS + 1)
            odds = flips(
                bits,
                y,
                row_cells.ones * 1.0,
                row_cells.zeros * 1.0,
                num_singletons,
                conditional.log_odds,
            )
            table = count_table(NUM_SLOTS, values)
            return odds, new_cause_log_weights(tally, conditional.rate, table)[0], eta

        return {
            "movable": conditional.movable,
            "with singletons": jax.vmap(of_bits, (0, None))(PATTERNS, jnp.sum(singletons) * 1.0),
            "without singletons": jax.vmap(of_bits, (0, None))(PATTERNS, 0.0),
        }

    def of_column(z, column):
        """Log odds of flipping each cause's activity, for every setting of the column."""

        def of_setting(active):
            ones, zeros = cells.ones[:, column] * 1.0, cells.zeros[:, column] * 1.0
            eta = noisy_or.num_active(z, active[:, None], float)[:, 0]
            off = (eta[:, None] - active * z).astype(int)
            gain = z * noisy_or.gain_table(NUM_SLOTS + 1, values)[off]
            in_zeros = values.log_fail * (zeros @ z.astype(float))
            return flip_log_odds(active, values.log_odds, ones @ gain + in_zeros)

        return jax.vmap(of_setting)(PATTERNS)

    z, y = (jnp.asarray(np.array(each)) for each in zip(*map(arrays_of, STATES), strict=True))
    over_rows = jax.vmap(of_row, (None, None, 0))
    over_columns = jax.vmap(of_column, (None, 0))
    etas = jnp.arange(NUM_SLOTS + 1.0)

    def of_new(row_cells, to_come):
        spread = NoisyOrCells(*(jnp.broadcast_to(each, etas.shape) for each in row_cells))
        return jax.nn.sigmoid(noisy_or.unseen_log_odds(etas, spread, values, to_come))

    new = jax.vmap(jax.vmap(of_new, (None, 0)), (0, None))
    flat = NoisyOrCells(cells.ones.reshape(-1), cells.zeros.reshape(-1))

    def everything(z, y):
        return {
            "rows": jax.vmap(over_rows, (0, 0, None))(z, y, jnp.arange(NUM_ROWS)),
            "columns": jax.vmap(over_columns, (0, None))(z, jnp.arange(NUM_COLUMNS)),
            "new": new(flat, jnp.arange(NUM_SLOTS * 1.0)),
        }

    return jax.device_get(jax.jit(everything)(z, y))


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def bit_distributions(table, movable, start):
    """P (8,) of the bits after a scan in a random order of the movable slots."""
    slots = np.flatnonzero(movable)
    orders = list(itertools.permutations(slots))
    total = np.zeros(len(PATTERNS))
    for order in orders:
        distribution = np.zeros(len(PATTERNS))
        distribution[start] = 1.0
        for slot in order:
            chance = sigmoid(table[:, slot])
            target = np.arange(len(PATTERNS)) ^ (1 << (NUM_SLOTS - 1 - slot))
            after = distribution * (1 - chance)
            np.add.at(after, target, distribution * chance)
            distribution = after
        total += distribution / len(orders)
    return total


def pattern_index(bits):
    return int(np.asarray(bits) @ (1 << np.arange(NUM_SLOTS - 1, -1, -1)))


def new_activity_distributions(eta, row, num_new, *, joint=True):
    """Every (num_new, D) activity of new causes of a row and its probability."""
    chance = tables()["new"].reshape(NUM_ROWS, NUM_COLUMNS, NUM_SLOTS, NUM_SLOTS + 1)[row]
    for bits in itertools.product([0, 1], repeat=num_new * NUM_COLUMNS):
        activity = np.reshape(bits, (num_new, NUM_COLUMNS))
        probability = 1.0
        for new, column in itertools.product(range(num_new), range(NUM_COLUMNS)):
            before = activity[:new, column].sum() if joint else 0
            to_come = num_new - new - 1 if joint else num_new - 1
            on = chance[column, to_come, int(eta[column]) + before]
            probability *= on if activity[new, column] else 1 - on
        yield activity.astype(bool), probability


@functools.cache
def row_matrix(row, *, forget_singletons=False, joint=True):
    """The update of one row: bits, number of new causes, their activity."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for index, state in enumerate(STATES):
        table = jax.tree.map(lambda leaf, index=index: leaf[index, row], tables()["rows"])
        z, y = arrays_of(state)
        odds, log_weights, etas = table[
            "without singletons" if forget_singletons else "with singletons"
        ]
        movable = table["movable"]
        distributions = bit_distributions(odds, movable, pattern_index(z[row] & movable))
        free = np.flatnonzero(~movable)
        for pattern in np.flatnonzero(distributions):
            weights = np.exp(log_weights[pattern][: len(free) + 1])
            for num_new, weight in enumerate(weights / weights.sum()):
                for activity, chance in new_activity_distributions(
                    etas[pattern], row, num_new, joint=joint
                ):
                    new_z, new_y = z.copy(), y.copy()
                    new_z[row] = PATTERNS[pattern]
                    new_z[row, free[:num_new]] = True
                    new_y[free[:num_new]] = activity
                    matrix[index, state_index(new_z, new_y)] += (
                        distributions[pattern] * weight * chance
                    )
    return matrix


@functools.cache
def activity_matrix():
    """The pass over Y: one random order for all columns."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for index, state in enumerate(STATES):
        z, y = arrays_of(state)
        orders = list(itertools.permutations(range(len(state))))
        for order in orders:
            distributions = []
            for column in range(NUM_COLUMNS):
                distribution = np.zeros(len(PATTERNS))
                distribution[pattern_index(y[:, column])] = 1.0
                for slot in order:
                    chance = sigmoid(tables()["columns"][index, column][:, slot])
                    target = np.arange(len(PATTERNS)) ^ (1 << (NUM_SLOTS - 1 - slot))
                    after = distribution * (1 - chance)
                    np.add.at(after, target, distribution * chance)
                    distribution = after
                distributions.append(distribution)
            for first, second in itertools.product(
                *(np.flatnonzero(distribution) for distribution in distributions)
            ):
                new_y = np.stack([PATTERNS[first], PATTERNS[second]], axis=1)
                probability = distributions[0][first] * distributions[1][second] / len(orders)
                matrix[index, state_index(z, new_y)] += probability
    return matrix


def assert_invariant(matrix, exact):
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=TOLERANCE)
    np.testing.assert_allclose(exact @ matrix, exact, rtol=0, atol=TOLERANCE)


def test_the_update_of_a_row():
    for row in range(NUM_ROWS):
        assert_invariant(row_matrix(row), posterior())


def test_the_pass_over_activity():
    assert_invariant(activity_matrix(), posterior())


def total_variation(twin):
    """Of the stationary distribution of whole sweeps and the posterior."""
    sweep = functools.reduce(
        np.matmul, [*(twin(row) for row in range(NUM_ROWS)), activity_matrix()]
    )
    for _ in range(10):  # 1,024 sweeps
        sweep = sweep @ sweep
    return 0.5 * np.abs(sweep[0] - posterior()).sum()


@pytest.mark.parametrize(
    ("twin", "at_least"),
    [
        ({}, None),
        ({"forget_singletons": True}, 1e-2),
        ({"joint": False}, 1e-5),
    ],
    ids=["right", "own causes forgotten", "new rows of Y independent"],
)
def test_broken_twins_are_seen(twin, at_least):
    found = total_variation(functools.partial(row_matrix, **twin))
    print(f"total variation {found:.2e}")
    if at_least is None:
        assert found < 1e-10
    else:
        assert found > at_least


# --- moves of whole causes ----------------------------------------------------------------------


def padded_pairs(state):
    """All (weight, is split, pair, remaining causes) of the split-merge proposal."""
    causes = [KINDS[kind] for kind in state]
    num_causes = len(causes)
    for position, (history, _) in enumerate(causes):
        rows = np.flatnonzero(history)
        for parts in itertools.product(range(3), repeat=len(rows)):
            first, second = np.zeros((2, NUM_ROWS), bool)
            first[rows], second[rows] = np.array(parts) != 1, np.array(parts) != 0
            if first.any() and second.any() and num_causes < NUM_SLOTS:
                pair = moves.CausePair(np.array(history, bool), first, second)
                weight = 0.5 / num_causes / 3 ** len(rows)
                yield weight, True, pair, causes[:position] + causes[position + 1 :]
    for first, second in itertools.permutations(range(num_causes), 2):
        a, b = (np.array(causes[position][0], bool) for position in (first, second))
        rest = [cause for position, cause in enumerate(causes) if position not in (first, second)]
        yield 0.5 / num_causes / (num_causes - 1), False, moves.CausePair(a | b, a, b), rest


def to_arrays(causes):
    z = np.zeros((NUM_ROWS, NUM_SLOTS + 1), bool)
    y = np.zeros((NUM_SLOTS + 1, NUM_COLUMNS), bool)
    for slot, (history, activity) in enumerate(causes):
        z[:, slot], y[slot] = history, activity
    return z, y


def split_merge_matrix():
    proposals = [
        (start, *each) for start, state in enumerate(STATES) for each in padded_pairs(state)
    ]
    z, y = (np.array(each) for each in zip(*(to_arrays(p[-1]) for p in proposals), strict=True))
    pairs = moves.CausePair(
        *(np.array(each) for each in zip(*(p[3] for p in proposals), strict=True))
    )
    is_split = np.array([p[2] for p in proposals])
    num_after = np.array([len(STATES[p[0]]) + p[2] for p in proposals])

    def evaluate(z, y, pair, num_after):
        weights = moves.activity_log_weights(
            z, y, jnp.asarray(X), jnp.asarray(OBSERVED), pair, parameters()
        )
        ratio = moves.log_split_ratio(
            pair, weights, num_after, prior=prior(), parameters=parameters(), num_rows=NUM_ROWS
        )
        return ratio, jax.nn.softmax(weights.whole, axis=0), jax.nn.softmax(weights.parts, axis=0)

    ratio, whole, parts = jax.device_get(jax.jit(jax.vmap(evaluate))(z, y, pairs, num_after))
    accept = np.minimum(1, np.exp(np.where(is_split, ratio, -ratio)))
    matrix = np.eye(len(STATES))
    for index, (start, weight, split, pair, rest) in enumerate(proposals):
        chances = parts[index] if split else whole[index]
        for choice in itertools.product(range(len(chances)), repeat=NUM_COLUMNS):
            active = np.array(choice)
            new = [(pair.first, active % 2), (pair.second, active // 2)]
            causes = rest + (new if split else [(pair.whole, active)])
            probability = weight * accept[index] * np.prod(chances[active, range(NUM_COLUMNS)])
            matrix[start, state_index(*to_arrays(causes))] += probability
            matrix[start, start] -= probability
    return matrix


def birth_death_matrix():
    proposals = []
    for start, state in enumerate(STATES):
        causes = [KINDS[kind] for kind in state]
        for row in range(NUM_ROWS):
            alone = tuple(int(other == row) for other in range(NUM_ROWS))
            singletons = [slot for slot, (history, _) in enumerate(causes) if history == alone]
            if len(causes) < NUM_SLOTS:
                proposals.append((start, row, True, 1.0, len(singletons) + 1, causes))
            for slot in singletons:
                rest = causes[:slot] + causes[slot + 1 :]
                proposals.append((start, row, False, 1 / len(singletons), len(singletons), rest))
    eta = []
    for _, row, *_, rest in proposals:
        z, y = to_arrays(rest)
        eta.append(z[row].astype(float) @ y)
    rows = np.array([p[1] for p in proposals])
    cells = noisy_or.cells_of(jnp.asarray(X), jnp.asarray(OBSERVED))

    def evaluate(eta, row, num_new):
        row_cells = NoisyOrCells(cells.ones[row], cells.zeros[row])
        ratio = moves.log_birth_ratio(
            eta, row_cells, num_new, rate=prior().new_rate(NUM_ROWS), parameters=parameters()
        )
        odds = noisy_or.unseen_log_odds(eta, row_cells, parameters(), jnp.asarray(0.0))
        return ratio, jax.nn.sigmoid(odds)

    counts = np.array([p[4] for p in proposals])
    ratio, chance = jax.device_get(jax.jit(jax.vmap(evaluate))(np.array(eta), rows, counts))
    matrix = np.eye(len(STATES))
    for index, (start, row, birth, share, _, rest) in enumerate(proposals):
        accept = min(1, np.exp(ratio[index] if birth else -ratio[index]))
        weight = 0.5 / NUM_ROWS * share * accept
        alone = np.arange(NUM_ROWS) == row
        for active in itertools.product([0, 1], repeat=NUM_COLUMNS if birth else 0):
            causes = rest + ([(alone, active)] if birth else [])
            chances = np.where(active, chance[index], 1 - chance[index]) if birth else 1.0
            matrix[start, state_index(*to_arrays(causes))] += weight * np.prod(chances)
            matrix[start, start] -= weight * np.prod(chances)
    return matrix


@pytest.mark.parametrize("make", [split_merge_matrix, birth_death_matrix])
def test_moves_of_whole_causes(make):
    matrix, exact = make(), posterior()
    assert_invariant(matrix, exact)
    flow = exact[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-15)  # detailed balance
    assert matrix.diagonal().min() < 0.9  # it does move
