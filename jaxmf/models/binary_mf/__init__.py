"""Binary matrix factorisation: X ~ f(U W V') with binary features of rows and of columns."""

from jaxmf.models.binary_mf.binary_mf import BinaryMF as BinaryMF
from jaxmf.models.binary_mf.state import BinaryMFState as BinaryMFState
