"""The list of models: read by the verbs, the command line, the compliance tests and the docs.

An `Entry` says what a model is called, which methods it has and what a tiny problem for it looks
like: `entries.py` has all of them, `examples.py` the tiny problems, `entry.py` what follows from
one entry alone.
"""

from jaxmf.registry.entries import ENTRIES as ENTRIES
from jaxmf.registry.entries import decode_model as decode_model
from jaxmf.registry.entries import encode_model as encode_model
from jaxmf.registry.entries import entry_of as entry_of
from jaxmf.registry.entries import feature_arrays as feature_arrays
from jaxmf.registry.entries import get as get
from jaxmf.registry.entry import Entry as Entry
from jaxmf.registry.entry import Setting as Setting
from jaxmf.registry.entry import check_data as check_data
from jaxmf.registry.entry import check_method as check_method
from jaxmf.registry.entry import method_settings as method_settings
from jaxmf.registry.entry import model_settings as model_settings
from jaxmf.registry.entry import read_options as read_options
