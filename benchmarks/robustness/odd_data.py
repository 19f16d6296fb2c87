"""Odd data, drawn at random: scales from 1e-8 to 1e8, offsets, constants, repeats, empties.

Every function takes a generator and a shape, and always returns arrays of the same shapes, so that
whatever is fitted to them is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Generator = np.random.Generator
Shape = tuple[int, int]


def real_matrix(generator: Generator, shape: Shape) -> np.ndarray:
    """(N, D) real numbers: a kind of noise, repeats, a scale, an offset; all finite in float32."""
    values = REAL_KINDS[int(generator.integers(len(REAL_KINDS)))](generator, shape)
    values = _repeated(generator, values)
    if generator.random() < 0.15:  # columns in other units
        values = values * 10 ** generator.uniform(-4, 4, shape[1])
    scale = 10 ** generator.uniform(-8, 8)
    offset = 0.0
    if generator.random() < 0.5:
        offset = generator.choice([-1, 1]) * 10 ** generator.uniform(-2, 6)
    return np.clip(scale * (values + offset), -1e30, 1e30)


def _low_rank(generator: Generator, shape: Shape) -> np.ndarray:
    binary = generator.random((shape[0], 2)) < 0.5
    return binary @ generator.normal(size=(2, shape[1])) + 0.3 * generator.normal(size=shape)


REAL_KINDS: tuple[Callable[[Generator, Shape], np.ndarray], ...] = (
    lambda generator, shape: generator.normal(size=shape),
    _low_rank,
    lambda generator, shape: np.clip(generator.standard_cauchy(shape), -1e6, 1e6),
    lambda generator, shape: generator.lognormal(0, 2, shape),
    lambda generator, shape: generator.integers(-3, 9, shape).astype(float),
    lambda generator, shape: generator.integers(0, 2, shape).astype(float),
    lambda generator, shape: np.zeros(shape),
    lambda generator, shape: np.ones(shape),
)


def _repeated(generator: Generator, values: np.ndarray) -> np.ndarray:
    """Constant or repeated rows and columns, or one cell far from the others."""
    values = values.copy()
    kind = int(generator.integers(0, 10))
    rows, columns = values.shape
    if kind == 0:
        values[:, generator.integers(columns)] = values[0, 0]
    elif kind == 1:
        values[generator.integers(rows)] = values[0, 0]
    elif kind == 2:
        values = values[generator.integers(0, max(1, rows // 3), rows)]
    elif kind == 3:
        values = values[:, generator.integers(0, max(1, columns // 2), columns)]
    elif kind == 4:
        values[generator.integers(rows), generator.integers(columns)] += 1e6
    return values


def with_missing(generator: Generator, values: np.ndarray) -> np.ndarray:
    """Some cells NaN, at least one if there are several: few, half, all but one, a row, ..."""
    if values.size == 1:
        return values
    values = values.astype(float)
    rows, columns = values.shape
    kind = int(generator.integers(0, 8))
    missing = generator.random(values.shape) < (0.5 if kind == 0 else 0.05)
    if kind == 1:
        missing[:] = True
    elif kind == 2:
        missing[generator.integers(rows)] = True
    elif kind == 3:
        missing[:, generator.integers(columns)] = True
    chosen = generator.permutation(values.size)[:2]
    missing.flat[chosen[0]] = True
    missing.flat[chosen[1]] = False
    values[missing] = np.nan
    return values


def binary_matrix(generator: Generator, shape: Shape) -> np.ndarray:
    """(N, D) zeros and ones: none, few, half, many, all; alike rows, constant columns."""
    share = generator.choice([0.0, 0.02, 0.2, 0.5, 0.8, 0.98, 1.0])
    values = (generator.random(shape) < share).astype(float)
    kind = int(generator.integers(0, 6))
    if kind == 0:
        values[:] = values[0]
    elif kind == 1:
        values[:, generator.integers(shape[1])] = 1.0
    elif kind == 2:
        values[generator.integers(shape[0])] = 0.0
    return values


def count_matrix(generator: Generator, shape: Shape) -> np.ndarray:
    """(N, D) counts from 0 to 1e6: one rate or one a column, over-dispersed, one huge cell."""
    rate = 10 ** generator.uniform(-3, 5)
    kind = int(generator.integers(0, 6))
    if kind == 0:
        rates = np.broadcast_to(10 ** generator.uniform(-3, 5.5, shape[1]), shape)
    elif kind == 1:
        rates = rate * generator.gamma(0.2, 5.0, shape)
    else:
        rates = np.full(shape, rate)
    values = np.minimum(generator.poisson(rates), 1e6).astype(float)
    if kind == 2:
        values[generator.integers(shape[0]), generator.integers(shape[1])] = 1e6
    elif kind == 3:
        values[:] = values[0, 0]
    elif kind == 4:
        values[generator.integers(shape[0])] = 0.0
    return values


def categories(generator: Generator, num_categories: int, size: int) -> np.ndarray:
    """(T,) of so many categories: all alike, few, even, or with shares of a Dirichlet."""
    kind = int(generator.integers(0, 6))
    if kind == 0:
        return np.full(size, generator.integers(num_categories))
    if kind == 1:  # in order, every category about as often
        return np.sort(np.arange(size) % num_categories)
    shares = generator.dirichlet(np.full(num_categories, 10 ** generator.uniform(-1, 2)))
    return generator.choice(num_categories, size=size, p=shares)


def cells(generator: Generator, shape: Shape, num_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of so many cells, each once: anywhere, the first rows or columns, skewed."""
    rows, columns = shape
    kind = int(generator.integers(0, 5))
    if kind == 0:  # full rows, then none
        chosen = np.arange(num_cells)
    elif kind == 1:  # full columns
        order = np.arange(rows * columns).reshape(columns, rows)[:, :]
        chosen = np.array([(i % rows) * columns + i // rows for i in order.ravel()[:num_cells]])
    elif kind == 2:  # a few rows and columns have most
        weights = np.outer(1 / (1 + np.arange(rows)) ** 2, 1 / (1 + np.arange(columns))).ravel()
        chosen = generator.choice(
            rows * columns, num_cells, replace=False, p=weights / sum(weights)
        )
    else:
        chosen = generator.choice(rows * columns, num_cells, replace=False)
    found = np.divmod(generator.permutation(chosen), columns)
    return generator.permutation(rows)[found[0]], generator.permutation(columns)[found[1]]


def ratings(generator: Generator, num_cells: int) -> np.ndarray:
    """(T,) whole numbers 1 to 5: all alike, the two ends alone, with shares of a Dirichlet."""
    kind = int(generator.integers(0, 5))
    if kind == 0:
        return np.full(num_cells, generator.integers(1, 6))
    if kind == 1:
        return generator.choice([1, 5], num_cells)
    return 1 + categories(generator, 5, num_cells)
