"""Factors of a sparse matrix of zeros and ones by variational Bayes; open `model.py` first."""

from jaxmf.models.sparse_binary_mf.model import SparseBinaryMF as SparseBinaryMF
from jaxmf.variational_bayes.state import AscentState as AscentState
