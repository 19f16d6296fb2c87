"""Ratings of items by users: groups of both, a distribution for every pair of groups."""

from jaxmf.models.ratings.rating_models import URP as URP
from jaxmf.models.ratings.rating_models import BiHDP as BiHDP
from jaxmf.models.ratings.rating_models import BiLDA as BiLDA
