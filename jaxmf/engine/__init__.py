"""The engine: one host loop that drives every algorithm. Read `algorithm.py` first, then `run.py`.

The package stands on `jaxmf.types` alone and knows no model.
"""

from jaxmf.engine.algorithm import Algorithm as Algorithm
from jaxmf.engine.algorithm import Info as Info
from jaxmf.engine.algorithm import algorithm as algorithm
from jaxmf.engine.algorithm import repeat as repeat
from jaxmf.engine.algorithm import sequence as sequence
