"""The names of the registry and where each stands."""

from .encoding import decode_model as decode_model
from .encoding import encode_model as encode_model
from .encoding import feature_arrays as feature_arrays
from .entries import ENTRIES as ENTRIES
from .entries import all_entries as all_entries
from .entries import entry_of as entry_of
from .entries import get as get
from .entry import Entry as Entry
from .entry import Setting as Setting
from .entry import annealing_settings as annealing_settings
from .entry import check_method as check_method
from .entry import method_settings as method_settings
from .entry import model_settings as model_settings
from .entry import read_options as read_options
from .registration import check_draws as check_draws
from .registration import register as register
