"""The linear-Gaussian Indian buffet process; open `model.py` first."""

from jaxmf.models.linear_gaussian.model import LinearGaussianIBP as LinearGaussianIBP
