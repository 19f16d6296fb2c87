"""Bayesian probabilistic matrix factorisation with side information."""

from jaxmf.models.bpmf.bpmf import BPMF as BPMF
from jaxmf.models.bpmf.state import BPMFState as BPMFState
