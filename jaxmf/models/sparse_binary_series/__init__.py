"""Factors of 0/1 matrices that change with time; open `sparse_binary_series.py` first."""

from jaxmf.models.sparse_binary_series.sparse_binary_series import (
    SparseBinarySeries as SparseBinarySeries,
)
