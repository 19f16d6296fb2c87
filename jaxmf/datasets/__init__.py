"""Data sets: the papers' generated data, bundled images, and readers of public sets.

Generators (:func:`section_4_2`, :func:`section_5_2`) and :func:`digits` need nothing. The others
are read from the folder that the environment variable ``JAXMF_DATA`` names; what is not there is
fetched from its official source (extra ``data``) and kept there in a compact form. Open
``cache.py`` for how, ``parsers.py`` for the official formats.
"""

from jaxmf.datasets.baskets import groceries as groceries
from jaxmf.datasets.baskets import retail as retail
from jaxmf.datasets.baskets import t10i4d100k as t10i4d100k
from jaxmf.datasets.documents import Documents as Documents
from jaxmf.datasets.documents import kos as kos
from jaxmf.datasets.documents import nips12 as nips12
from jaxmf.datasets.documents import reuters as reuters
from jaxmf.datasets.expression import Expression as Expression
from jaxmf.datasets.expression import golub as golub
from jaxmf.datasets.generated import HiddenCauses as HiddenCauses
from jaxmf.datasets.generated import LatentFeatures as LatentFeatures
from jaxmf.datasets.generated import cambridge_bars as cambridge_bars
from jaxmf.datasets.generated import section_4_2 as section_4_2
from jaxmf.datasets.generated import section_5_2 as section_5_2
from jaxmf.datasets.images import Images as Images
from jaxmf.datasets.images import digits as digits
from jaxmf.datasets.images import mnist as mnist
from jaxmf.datasets.images import usps as usps
from jaxmf.datasets.ratings import Ratings as Ratings
from jaxmf.datasets.ratings import movielens_1m as movielens_1m
from jaxmf.datasets.ratings import movielens_100k as movielens_100k
