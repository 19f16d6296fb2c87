"""The engine: one host loop that drives every algorithm. Read `algorithm.py` first, then `run.py`.

The package stands on types, arguments and programs, and knows no model and no data.
"""

from jaxmf.engine.algorithm import Algorithm as Algorithm
from jaxmf.engine.algorithm import GrowthError as GrowthError
from jaxmf.engine.algorithm import GrowthWarning as GrowthWarning
from jaxmf.engine.algorithm import Info as Info
from jaxmf.engine.algorithm import Limit as Limit
from jaxmf.engine.algorithm import algorithm as algorithm
from jaxmf.engine.algorithm import as_partial as as_partial
from jaxmf.engine.algorithm import merge_overflow as merge_overflow
from jaxmf.engine.algorithm import repeat as repeat
from jaxmf.engine.algorithm import sequence as sequence
from jaxmf.engine.algorithm import short_of as short_of
from jaxmf.engine.chain_kernel import ChainKernel as ChainKernel
from jaxmf.engine.chain_kernel import ChainState as ChainState
from jaxmf.engine.chain_kernel import chain_kernel as chain_kernel
from jaxmf.engine.executables import lower_level as lower_level
from jaxmf.engine.interrupt import Interrupts as Interrupts
from jaxmf.engine.lock import LockedError as LockedError
from jaxmf.engine.progress import ProgressReport as ProgressReport
from jaxmf.engine.result import NonFiniteError as NonFiniteError
from jaxmf.engine.result import Run as Run
from jaxmf.engine.run import as_key as as_key
from jaxmf.engine.run import run as run
from jaxmf.engine.storage import CheckpointWarning as CheckpointWarning
from jaxmf.engine.storage import load_run as load_run
from jaxmf.engine.supervisor import SlowStepWarning as SlowStepWarning
