"""Where a chain of binary features of rows and columns starts: at features that the data show.

X = U W V' + noise has few singular values above those of noise. In the coordinates of the singular
vectors the rows are then the corners of a parallelepiped, U times a matrix, plus noise that is
alike in all directions. Two rows that differ in one feature only differ in the direction of its
edge, and the discriminant between the two (their difference over the covariance of all rows) sets
all rows with the feature apart from all without. Many pairs of rows are drawn at random, each
divides the rows in two, and features are taken from these divisions one after another, the one
first that shortens a description of the rows the most: squared distances over twice the noise's
variance, against the entropy of the bits. Some rounds of least squares follow, bit by bit. Columns
likewise.

A start needs to be good, not exact: kernels leave the posterior invariant from anywhere. Pairs are
drawn for every chain anew, so chains start apart where the data leave a choice.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmf._kernels.linalg import after
from jaxmf.types import Array, Key

_MOST_DIRECTIONS = 24  # singular vectors that are looked at
_POWER_STEPS = 4  # by which they are found
_FILLINGS = 6  # of missing cells, by the singular vectors of the rest
_MOST_LINES = 1_000  # rows, or columns, by which divisions are chosen
_DIVISIONS = 256  # pairs of lines of one attempt, each of which divides all lines in two
_ROUNDS = 8  # of least squares, after features were taken
_ATTEMPTS = 8  # of which the shortest description is kept
_LEAST_NOISE = 1e-3  # of cells whose root mean square is 1: distances are over its square
# A division whose residual after projection has squared length below .5 adds nothing.
_HALF_A_ROW = 0.5
_LEAST_LENGTH = 1e-3  # squared, of given features that are projected out: less is rounding
_RIDGE = 1e-2  # on counts of rows: features that say the same share their edge, and no more


class Start(NamedTuple):
    """Features that the data show."""

    u: Array  # (I, K) bool, given features first; the others False where the data show none
    v: Array  # (J, L) bool
    weights: Array  # (K, L) float, of least squares
    noise_scale: Array  # () float, root mean square of the observed cells about U W V'


def start_from_data(
    key: Key,
    x: Array,
    observed: Array | None,
    *,
    fixed: tuple[Array, Array],
    slots: tuple[int, int],
) -> Start:
    """Features of rows and of columns, and weights between them.

    Args: x (I, J) float, about the mean of a cell without features; observed (I, J) bool, or None
    when nothing is missing; fixed (I, F) and (J, G) bool, features in the first slots.
    """
    keys = jax.random.split(key, 3)
    seen = jnp.ones(x.shape, bool) if observed is None else observed
    num_cells = jnp.sum(seen, dtype=x.dtype)
    x = jnp.where(seen, x, 0)
    largest = jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)
    unit = largest * jnp.sqrt(jnp.sum((x / largest) ** 2) / num_cells)
    unit = jnp.where(unit > 0, unit, 1)
    x = x / unit
    left, values, right, noise = directions_above_noise(keys[0], x, observed)
    u = _features(keys[1], left * values, noise, fixed[0], slots[0])
    rows = u.astype(x.dtype)
    # one decomposition at a time, see `after`
    v = _features(keys[2], after(right * values, rows), noise, fixed[1], slots[1])
    columns = v.astype(x.dtype)
    filled = jnp.where(seen, x, (left * values) @ right.T)
    partly_solved = _solve(columns, filled.T).T
    weights = _solve(after(rows, partly_solved), partly_solved)
    fit = rows @ weights @ columns.T
    errors = jnp.sum(jnp.where(seen, x - fit, 0) ** 2) / num_cells
    return Start(u, v, unit * weights, unit * jnp.sqrt(errors))


def _solve(features: Array, values: Array) -> Array:
    """Least squares (K, D) of values (N, D) on features (N, K), 0 for empty ones."""
    size = features.shape[1]
    square = features.T @ features + _RIDGE * jnp.eye(size, dtype=features.dtype)
    solved: Array = jax.scipy.linalg.solve(square, features.T @ values, assume_a="pos")
    return solved


def directions_above_noise(
    key: Key, x: Array, observed: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Singular vectors (I, R), (J, R) and values (R,) above noise, others 0; and the noise's sd.

    Args: x (I, J) float, 0 where it is missing; observed (I, J) bool, or None.
    """
    share = 1.0 if observed is None else jnp.mean(observed, dtype=x.dtype)

    def once(_: int | Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
        left, values, right, _ = found
        filled = x if observed is None else jnp.where(observed, x, (left * values) @ right.T)
        left, values, right = _leading(key, filled)
        num_rows, num_columns = x.shape
        before = jnp.arange(values.size)
        free_rows = jnp.maximum(num_rows - before, 1).astype(x.dtype)
        free_columns = jnp.maximum(num_columns - before, 1).astype(x.dtype)
        explained = jnp.concatenate([jnp.zeros(1, x.dtype), jnp.cumsum(values**2)])
        rest = jnp.sum(filled**2) - explained
        rest = jnp.maximum(rest, jnp.finfo(x.dtype).eps * rest[0])
        # a matrix of noise alone has a largest singular value of this
        edge = jnp.sqrt(rest[:-1]) * (free_rows**-0.5 + free_columns**-0.5)
        stands_out = values > edge
        kept = jnp.cumprod(stands_out).astype(bool)
        num_kept = jnp.sum(kept)
        left_over = jnp.maximum((num_rows - num_kept) * (num_columns - num_kept), 1)
        noise = jnp.sqrt(rest[num_kept] / left_over / share)
        return left, jnp.where(kept, values, 0), right, noise

    rank = min(_MOST_DIRECTIONS, *x.shape)
    empty = (
        jnp.zeros((x.shape[0], rank), x.dtype),
        jnp.zeros(rank, x.dtype),
        jnp.zeros((x.shape[1], rank), x.dtype),
        jnp.zeros((), x.dtype),
    )
    left, values, right, noise = jax.lax.fori_loop(
        0, 1 if observed is None else _FILLINGS, once, empty
    )
    return left, values, right, noise


def _leading(key: Key, x: Array) -> tuple[Array, Array, Array]:
    """Leading singular vectors and values, by randomised subspace iteration."""
    rank = min(_MOST_DIRECTIONS, *x.shape)

    def once(_: int, basis: Array) -> Array:
        left = jnp.linalg.qr(x @ basis)[0]
        return jnp.linalg.qr(x.T @ left)[0]

    start = jax.random.normal(key, (x.shape[1], rank), x.dtype)
    basis = jax.lax.fori_loop(0, _POWER_STEPS, once, jnp.linalg.qr(start)[0])
    left, values, small = jnp.linalg.svd(x @ basis, full_matrices=False)
    return left, values, basis @ small.T


def _features(key: Key, points: Array, noise: Array, fixed: Array, num_slots: int) -> Array:
    """Features (N, K) bool of lines whose coordinates are `points` (N, R), given ones first."""
    keys = jax.random.split(key, 2)
    few = jax.random.permutation(keys[0], points.shape[0])[:_MOST_LINES]
    noise = jnp.maximum(noise, _LEAST_NOISE)
    tried = jax.vmap(lambda key: _attempt(key, points, few, noise, fixed, num_slots))
    found = tried(jax.random.split(keys[1], _ATTEMPTS))
    best = jnp.argmin(found.length)
    taken = points @ found.directions[best] > found.cuts[best]
    bits = jnp.concatenate([fixed, taken], axis=1).astype(points.dtype)
    return _refined(bits, points, noise, fixed.shape[1], _ROUNDS) > 0.5


class _Attempt(NamedTuple):
    """Divisions of all lines that became features."""

    length: Array  # () float, of the description by them, in nats
    # directions, cuts: (R, K - F) and (K - F,) float: who is beyond the cut has the feature
    directions: Array
    cuts: Array


def _attempt(
    key: Key, points: Array, few: Array, noise: Array, fixed: Array, num_slots: int
) -> _Attempt:
    """Features taken one after another, refined, and taken back while that says the same."""
    num_fixed, dtype = fixed.shape[1], points.dtype
    directions, cuts = _divisions(key, points, noise)
    some, known = points[few], fixed[few].astype(dtype)
    divided = jnp.concatenate(
        [(some @ directions > cuts).astype(dtype), jnp.ones((few.size, 1), dtype)], axis=1
    )
    chosen = _choose(divided, known, some, noise, num_slots - num_fixed)
    taken = jnp.take(divided, jnp.maximum(chosen, 0), axis=1) * (chosen >= 0)
    bits = jnp.concatenate([known, taken], axis=1)
    length, kept = _shortened(
        _refined(bits, some, noise, num_fixed, _ROUNDS), some, noise, num_fixed
    )
    # index M is that of everyone
    directions = jnp.concatenate([directions, jnp.zeros_like(directions[:, :1])], axis=1)
    cuts = jnp.concatenate([cuts, jnp.full(1, -jnp.inf, dtype)])
    at = jnp.maximum(chosen, 0)
    cuts = jnp.where(kept[num_fixed:] & (chosen >= 0), cuts[at], jnp.inf)
    return _Attempt(length, directions[:, at], cuts)


def _price(bits: Array, points: Array) -> Array:
    """Nats (K,) that it takes to say who has each feature, and where its edge goes."""
    share, rank = jnp.mean(bits, axis=0), jnp.sum(jnp.any(points != 0, axis=0))
    entropy = jax.scipy.special.entr(share) + jax.scipy.special.entr(1 - share)
    edge = 0.5 * rank * jnp.log(points.shape[0] + 1.0)
    return jnp.where(share > 0, points.shape[0] * entropy + edge, 0).astype(points.dtype)


def _shortened(z: Array, points: Array, noise: Array, num_fixed: int) -> tuple[Array, Array]:
    """Features taken away one after another, and refined: the shortest description on the way.

    Returns its length, () float in nats, and which features are left in it, (K,) bool.
    """
    size = z.shape[1]

    def length(z: Array) -> Array:
        errors = points - z @ _solve(z, points)
        return jnp.sum(errors**2) / (2 * noise**2) + jnp.sum(_price(z, points))

    def once(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        z, best, kept = carry
        inverse = jnp.linalg.inv(z.T @ z + _RIDGE * jnp.eye(size, dtype=z.dtype))
        edges = inverse @ (z.T @ points)
        loss = jnp.sum(edges**2, axis=1) / (2 * noise**2 * jnp.diagonal(inverse))
        there = jnp.any(z > 0, axis=0) & (jnp.arange(size) >= num_fixed)
        worst = jnp.argmin(jnp.where(there, loss - _price(z, points), jnp.inf))
        drop = (jnp.arange(size) == worst) & (jnp.sum(there) > 1)
        z = _refined(jnp.where(drop, 0, z), points, noise, num_fixed, 2)
        now = length(z)
        kept = jnp.where(now < best, jnp.any(z > 0, axis=0), kept)
        return z, jnp.minimum(now, best), kept

    start = (z, length(z), jnp.any(z > 0, axis=0))
    _, best, kept = jax.lax.fori_loop(0, size - num_fixed, once, start)
    return best, kept


def _divisions(key: Key, points: Array, noise: Array) -> tuple[Array, Array]:
    """Discriminants (R, M) between pairs of lines, and their values halfway, (M,)."""
    num_lines, rank = points.shape
    pairs = jax.random.randint(key, (2, _DIVISIONS), 0, num_lines)
    first, second = points[pairs[0]], points[pairs[1]]
    about = points - jnp.mean(points, axis=0)
    spread = about.T @ about / num_lines + noise**2 * jnp.eye(rank, dtype=points.dtype)
    directions = jax.scipy.linalg.solve(spread, (first - second).T, assume_a="pos")
    return directions, jnp.sum((first + second) / 2 * directions.T, axis=1)


def _choose(divided: Array, known: Array, points: Array, noise: Array, num_new: int) -> Array:
    """Which divisions (N, M) become features, one after another: indices, -1 for none."""
    price = _price(divided, points)

    def without(rest: Array, vector: Array) -> Array:
        length = jnp.sum(vector**2)
        unit = vector / jnp.sqrt(jnp.maximum(length, _LEAST_LENGTH))
        unit = jnp.where(length > _LEAST_LENGTH, unit, 0)
        return rest - unit[:, None] * (unit @ rest)

    basis, rest = known, divided
    for index in range(known.shape[1]):
        vector = basis[:, index]
        basis, rest = without(basis, vector), without(rest, vector)

    def take(index: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, chosen = carry
        lengths = jnp.sum(rest**2, axis=0)
        explained = jnp.sum((points.T @ rest) ** 2, axis=0) / jnp.maximum(lengths, _HALF_A_ROW)
        gain = jnp.where(lengths > _HALF_A_ROW, explained / (2 * noise**2) - price, -jnp.inf)
        best = jnp.argmax(gain)
        is_worth = gain[best] > 0
        rest = jnp.where(is_worth, without(rest, rest[:, best]), rest)
        return rest, chosen.at[index].set(jnp.where(is_worth, best, -1))

    _, chosen = jax.lax.fori_loop(0, num_new, take, (rest, jnp.full(num_new, -1)))
    return chosen


def _refined(z: Array, points: Array, noise: Array, num_fixed: int, rounds: int) -> Array:
    """Features after some rounds of least squares, one bit after another, given ones held."""
    num_lines, num_slots = z.shape

    def once(_: int, z: Array) -> Array:
        edges = _solve(z, points)

        def one(k: Array | int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            z, errors = carry
            edge = edges[k]
            without = errors + z[:, k, None] * edge
            share = (jnp.sum(z[:, k]) + 0.5) / (num_lines + 1)
            price = noise**2 * (jnp.log1p(-share) - jnp.log(share))
            better = (2 * without @ edge > edge @ edge + 2 * price) & jnp.any(z[:, k] > 0)
            new = jnp.where(k < num_fixed, z[:, k], better.astype(z.dtype))
            return z.at[:, k].set(new), without - new[:, None] * edge

        return jax.lax.fori_loop(0, num_slots, one, (z, points - z @ edges))[0]

    refined: Array = jax.lax.fori_loop(0, rounds, once, z)
    return refined
