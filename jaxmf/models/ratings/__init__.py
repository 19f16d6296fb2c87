"""Ratings of items by users: groups of both, a distribution for every pair of groups."""

from jaxmf.models.ratings.model import URP as URP
from jaxmf.models.ratings.model import BiHDP as BiHDP
from jaxmf.models.ratings.model import BiLDA as BiLDA
