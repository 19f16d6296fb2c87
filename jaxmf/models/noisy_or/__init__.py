"""The noisy-OR Indian buffet process; open `noisy_or_ibp.py` first."""

from jaxmf.models.noisy_or.noisy_or_ibp import NoisyOrIBP as NoisyOrIBP
