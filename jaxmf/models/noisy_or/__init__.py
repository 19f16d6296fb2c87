"""The noisy-OR Indian buffet process; open `model.py` first."""

from jaxmf.models.noisy_or.model import NoisyOrIBP as NoisyOrIBP
