"""Settings as text and as JSON: numbers, numpyro distributions, priors and functions of jaxmf.

Three directions meet here: the command line reads ``Gamma(1, 1)`` without evaluating code
(`parse`), a saved run keeps its model without pickle (`encode`, `decode`), and tables show a
setting in the words it was written in (`describe`).
"""

from jaxmf.settings.json_form import decode as decode
from jaxmf.settings.json_form import decode_seed as decode_seed
from jaxmf.settings.json_form import encode as encode
from jaxmf.settings.json_form import encode_seed as encode_seed
from jaxmf.settings.names import is_distribution as is_distribution
from jaxmf.settings.names import is_prior as is_prior
from jaxmf.settings.text import describe as describe
from jaxmf.settings.text import parse as parse
