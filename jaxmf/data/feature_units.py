"""Features in units that priors of their coefficients can be stated in, whatever those of the user.

Columns of numbers are brought to mean 0 and standard deviation 1 over the lines, and each part is
divided by the root mean square length of its lines: a coefficient of variance v for every column of
a part then adds v to the variance of a line, for one column as for a thousand. Indicators are not
centred, nor scaled apart: a rare level is not to weigh more than a frequent one.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import scipy.sparse

from jaxmf.data.cell_features import CellFeatures
from jaxmf.data.container import bare
from jaxmf.data.features import Features, part_widths

_CONSTANT = 1e-6  # spread beside the mean, in which 32-bit floats still differ
_ALIKE = 1e-4


def in_units(features: Features) -> Features:
    """The features in units of their own lines; unchanged where they are in these already.

    What was subtracted and divided by is noted in the columns' descriptions. Sparse features are
    not centred.
    """
    if not features.width:
        return features
    matrix = scipy.sparse.csc_array(features.to_scipy(), dtype=float)
    centre, scale = np.zeros(features.width), np.ones(features.width)
    blocks = [column.block for column in features.described]
    for index, column in enumerate(features.described):
        values = matrix[:, [index]].toarray()[:, 0]
        is_numeric = column.level is None and blocks.count(column.block) == 1
        if is_numeric and not np.isin(values, (0, 1)).all():
            centre[index], scale[index] = _moments(values, is_centred=not features.is_sparse)
    spread = _changed(matrix, centre, scale, is_sparse=features.is_sparse)
    squares = np.asarray(spread.multiply(spread).mean(axis=0)).ravel()
    ends = [0, *itertools.accumulate(part_widths(features.described))]
    for start, stop in itertools.pairwise(ends):
        length = float(np.sqrt(squares[start:stop].sum()))
        scale[start:stop] *= length if length > 0 else 1
    return _with_units(features, centre, scale)


def in_units_of(features: Features, reference: Features) -> Features:
    """New lines in the units of the lines in training, both as their columns are described."""
    if len(features.described) != len(reference.described):
        return features
    pairs = list(zip(features.described, reference.described, strict=True))
    centre = np.array([(old.centre - new.centre) / new.scale for new, old in pairs])
    scale = np.array([old.scale / new.scale for new, old in pairs])
    return _with_units(features, centre, scale)


def cells_in_units(features: CellFeatures) -> CellFeatures:
    """Features of cells divided by root mean squares; a cell without features stays at zero."""
    values = np.asarray(features.values, float)
    lengths = np.sqrt(np.mean(values**2, axis=0))
    is_indicator = np.isin(values, (0, 1)).all(axis=0)
    scale = np.where(is_indicator | (lengths == 0), 1.0, lengths)
    total = float(np.sqrt(np.sum((lengths / scale) ** 2)))
    scale = scale * (total if total > 0 else 1.0)
    if np.abs(scale - 1).max() < _ALIKE:
        return features
    changed = jnp.asarray((values / scale).astype(features.values.dtype))
    columns = tuple(
        column._replace(scale=column.scale * float(one))
        for column, one in zip(features.described, scale, strict=True)
    )
    return bare(CellFeatures, **vars(features) | {"values": changed, "described": columns})


def _moments(values: np.ndarray, *, is_centred: bool) -> tuple[float, float]:
    """Location and divisor of a column of numbers."""
    mean = float(values.mean()) if is_centred else 0.0
    spread = float(np.sqrt(np.mean((values - mean) ** 2)))
    return mean, spread if spread > _CONSTANT * abs(mean) else 1.0


def _changed(
    matrix: scipy.sparse.csc_array, centre: np.ndarray, scale: np.ndarray, *, is_sparse: bool
) -> scipy.sparse.csc_array:
    if is_sparse and not centre.any():
        return matrix @ scipy.sparse.diags_array(1 / scale, format="csc")
    return scipy.sparse.csc_array((matrix.toarray() - centre) / scale)


def _with_units(features: Features, centre: np.ndarray, scale: np.ndarray) -> Features:
    if np.all(np.abs(centre) < _ALIKE * scale) and np.abs(scale - 1).max() < _ALIKE:
        return features
    matrix = scipy.sparse.csc_array(features.to_scipy(), dtype=float)
    is_sparse = features.is_sparse and not centre.any()
    matrix = _changed(matrix, centre, scale, is_sparse=is_sparse)
    columns = [
        column._replace(
            centre=column.centre + float(less) * column.scale, scale=column.scale * float(by)
        )
        for column, less, by in zip(features.described, centre, scale, strict=True)
    ]
    return Features(
        matrix if is_sparse else matrix.toarray(),
        features.ids,
        columns=columns,
        missing=features.missing,
    )
