"""What a run gives back. Open ``posterior.py`` first: the class every method returns.

``records.py`` has what it answers with, ``prediction.py`` mixes predictions over draws,
``ranking.py`` finds the best columns of a row,
``assemble.py`` makes a posterior from a finished run and goes on with one, ``saving.py`` writes and
reads folders.
"""

from jaxmf.posterior.posterior import Posterior as Posterior
from jaxmf.posterior.prediction import Prediction as Prediction
from jaxmf.posterior.records import Features as Features
from jaxmf.posterior.records import Meta as Meta
from jaxmf.posterior.records import NumFeatures as NumFeatures
from jaxmf.posterior.saving import load as load
