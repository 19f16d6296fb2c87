"""The linear-Gaussian Indian buffet process; open `linear_gaussian_ibp.py` first."""

from jaxmf.models.linear_gaussian.linear_gaussian_ibp import LinearGaussianIBP as LinearGaussianIBP
