"""Data containers: validation and missing data live here and nowhere else.

Open ``dense.py`` first: the other containers have the same shape. ``checks.py`` holds the checks,
``names.py`` the ids, ``features.py`` side information, ``convert.py`` what is made of users' own
objects, ``readers.py`` and ``ones.py`` files.
"""

from jaxmf.data.cell_features import CellFeatures as CellFeatures
from jaxmf.data.container import LabelledMatrix as LabelledMatrix
from jaxmf.data.convert import Container as Container
from jaxmf.data.convert import MatrixContainer as MatrixContainer
from jaxmf.data.convert import as_container as as_container
from jaxmf.data.corpora import read_tokens as read_tokens
from jaxmf.data.dense import Dense as Dense
from jaxmf.data.entries import Entries as Entries
from jaxmf.data.features import Features as Features
from jaxmf.data.from_ratings import implicit_features as implicit_features
from jaxmf.data.from_ratings import rating_features as rating_features
from jaxmf.data.headed_tables import read_columns as read_columns
from jaxmf.data.headed_tables import read_features as read_features
from jaxmf.data.names import Positions as Positions
from jaxmf.data.ones import read_ones as read_ones
from jaxmf.data.ones import read_series as read_series
from jaxmf.data.rating_files import read_entries as read_entries
from jaxmf.data.readers import read_matrix as read_matrix
from jaxmf.data.sparse_binary import SparseBinary as SparseBinary
from jaxmf.data.sparse_series import SparseSeries as SparseSeries
from jaxmf.data.tokens import Tokens as Tokens
