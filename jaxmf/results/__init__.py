"""What the verbs return. Open ``posterior.py`` first: draws and the questions of `jaxmf.posterior`.

``loading.py`` reads folders that a posterior was saved to, ``comparison.py`` orders several.
"""

from jaxmf.results.loading import load as load
from jaxmf.results.posterior import Posterior as Posterior
