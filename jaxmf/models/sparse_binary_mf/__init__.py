"""Factors of a sparse 0/1 matrix by variational Bayes; open `sparse_binary_mf.py` first."""

from jaxmf.models.sparse_binary_mf.sparse_binary_mf import SparseBinaryMF as SparseBinaryMF
from jaxmf.variational_bayes.state import AscentState as AscentState
