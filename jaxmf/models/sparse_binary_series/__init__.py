"""Factors of a series of sparse 0/1 matrices that change with time; open `model.py` first."""

from jaxmf.models.sparse_binary_series.model import SparseBinarySeries as SparseBinarySeries
