"""Real factors of rows and columns, in a form that is the same for every rotation of them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from jaxmf.answers import Answer, Lines, shortened
from jaxmf.column_units import units_of
from jaxmf.data.names import ids_or_positions
from jaxmf.model import HasFactors, lacks
from jaxmf.posterior import cells
from jaxmf.posterior.draws import Draws

_ROUNDING = 1e-5  # of what the largest part adds, which may be rounding of 32-bit floats
_ENDS = 4  # columns at each end of a factor in what is printed


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Factors(Answer):
    """The factors, those that vary cells most first; K or fewer.

    Only the products of the vectors of rows and columns are known, not the vectors. So a draw's
    products UV' are split into their principal parts, which are known up to their signs; the parts
    of every draw are turned to those of the reference draw (orthogonal Procrustes) and averaged.
    In models with biases vectors are about their means: what all rows of a column share, or all
    columns of a row, is a level, of which the cells do not say whether a bias or a factor has it.

    Args:
        sizes: (K,) float, root mean square over all cells of what each part adds to them, in the
            unit of the data or of the scores, with columns in units of their own in these;
            averaged over draws.
        size_bounds: (2, K) float, 5 and 95 % quantiles over draws.
        columns: (D, K) float, what a column changes for a row with value one; in the unit of the
            data.
        column_sd: (D, K) float, over draws; NaN of a single draw.
        rows: (N, K) float, values of rows, of mean square about one.
        row_sd: (N, K) float, likewise.
        row_names: N ids, or positions.
        column_names: D ids, or positions.
        num_draws: how many draws are averaged over.
        column_units: (D,) float, the units of the columns, by which those at the ends are compared;
            1 where all have one.
    """

    sizes: np.ndarray
    size_bounds: np.ndarray
    columns: np.ndarray
    column_sd: np.ndarray
    rows: np.ndarray
    row_sd: np.ndarray
    row_names: np.ndarray
    column_names: np.ndarray
    num_draws: int
    column_units: np.ndarray

    _axes: ClassVar = {
        "sizes": "factor",
        "size_bounds": "bound factor",
        "columns column_sd": "column factor",
        "column_units": "column",
        "rows row_sd": "row factor",
    }

    def coordinates(self) -> dict[str, object]:
        return {"row": self.row_names, "column": self.column_names, "bound": [0.05, 0.95]}

    def __len__(self) -> int:
        return self.sizes.size

    def ends(self, factor: int, n: int = 8) -> tuple[list[object], list[object]]:
        """The columns with the largest values of a factor, and those with the smallest.

        Args:
            factor: its position, 0 for the largest.
            n: how many at each end; no column is at both.
        """
        order = np.argsort(-self.columns[:, factor] / self.column_units, kind="stable")
        n = min(n, (order.size + 1) // 2)
        low = order[::-1][: min(n, order.size - n)]
        return self.column_names[order[:n]].tolist(), self.column_names[low].tolist()

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line for each factor and column of the data."""
        num_columns, num_factors = self.columns.shape
        return {
            "factor": np.repeat(np.arange(num_factors), num_columns),
            "size": np.repeat(self.sizes, num_columns),
            "column": np.tile(self.column_names, num_factors),
            "value": self.columns.T.ravel(),
            "sd": self.column_sd.T.ravel(),
        }

    def lines(self) -> Lines:
        """A heading, and a line for each factor: its size, and the columns at its ends."""
        table: Lines = [("factor", "size", "5%", "95%", "highest", "lowest")]
        for factor, size in enumerate(self.sizes):
            bounds = (f"{bound:.3g}" for bound in self.size_bounds[:, factor])
            ends = (shortened(ids, _ENDS) for ids in self.ends(factor, _ENDS))
            table.append((str(factor), f"{size:.3g}", *bounds, *ends))
        return table


def factors(posterior: Draws) -> Factors:
    """The real factors of rows and columns, the largest first, with the columns of extreme values.

    Returns:
        Sizes, and values of rows and columns with their standard deviations over draws. The factors
        of every draw are rotated to those of the reference draw (highest log joint). It prints
        itself; `.to_pandas()` is the table.
    Raises:
        ValueError: the model has no real factors, or the draws were made without them.
    """
    if not isinstance(posterior.model, HasFactors):
        raise lacks(posterior.model, HasFactors, "factors")
    cells.check_draws(posterior)
    data = posterior.data
    fixed = principal(*_vectors(posterior, *posterior.reference()))
    added = (fixed[0] ** 2).sum(axis=0)
    # without levels fewer rows, or columns, than factors leave parts that are rounding
    num_parts = int(np.sum(added >= _ROUNDING * added[0]))
    fixed = fixed[0][:, :num_parts], fixed[1][:, :num_parts]
    scale = np.sqrt(np.maximum((fixed[0] ** 2).mean(axis=0), np.finfo(float).tiny))
    chains, draws, weights = posterior.spread_draws()
    sizes = []
    means, squares = ([np.zeros(part.shape) for part in fixed] for _ in range(2))
    for chain, draw, weight in zip(chains, draws, weights, strict=True):
        rows, columns = (
            part[:, :num_parts] for part in principal(*_vectors(posterior, chain, draw))
        )
        sizes.append(np.sqrt((rows**2).mean(axis=0) * (columns**2).mean(axis=0)))
        turn = rotation((rows, columns), fixed)
        for side, values in enumerate((rows @ turn / scale, columns @ turn * scale)):
            # West's running update: no difference of large squares
            step = values - means[side]
            means[side] = means[side] + weight / weights[: len(sizes)].sum() * step
            squares[side] = squares[side] + weight * step * (values - means[side])
    all_sizes = np.array(sizes)
    if len(sizes) == 1:
        squares = [np.full(mean.shape, np.nan) for mean in means]
    row_sd, column_sd = (np.sqrt(np.maximum(square, 0)) for square in squares)
    # parts are of cells in units of columns, or that of the largest unit were all there is
    units = units_of(posterior.model, np.arange(data.num_columns))
    return Factors(
        sizes=weights @ all_sizes,
        size_bounds=np.quantile(all_sizes, (0.05, 0.95), axis=0),
        columns=means[1] * units[:, None],
        column_sd=column_sd * units[:, None],
        rows=means[0],
        row_sd=row_sd,
        row_names=ids_or_positions(data.row_names, data.num_rows),
        column_names=ids_or_positions(data.column_names, data.num_columns),
        num_draws=len(sizes),
        column_units=units,
    )


def _vectors(posterior: Draws, chain: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = posterior.model.factors(posterior.draw_at(chain, draw), posterior.data)
    return np.asarray(rows, float), np.asarray(columns, float)


def principal(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The singular vectors of UV', each side times the roots of the singular values.

    Args: rows, columns: U (N, K) and V (D, K).
    Returns (N, L) and (D, L), L the smallest of the three sizes, with the same products. The
    largest entry of each vector of columns is positive.
    """
    (row_basis, row_part), (column_basis, column_part) = map(np.linalg.qr, (rows, columns))
    left, singular, right = np.linalg.svd(row_part @ column_part.T, full_matrices=False)
    root = np.sqrt(singular)
    rows, columns = row_basis @ left * root, column_basis @ right.T * root
    largest = np.abs(columns).argmax(axis=0)
    signs = np.where(columns[largest, np.arange(root.size)] < 0, -1.0, 1.0)
    return rows * signs, columns * signs


def rotation(
    parts: tuple[np.ndarray, np.ndarray], fixed: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """The orthogonal matrix (L, L) that turns both sides of a draw closest to those of another."""
    crossed = sum(part.T @ other for part, other in zip(parts, fixed, strict=True))
    left, _, right = np.linalg.svd(crossed)
    return left @ right
