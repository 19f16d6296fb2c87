"""Runs before the first cell of every page: no progress bars in the pages, small sharp pictures."""

import warnings

import matplotlib_inline.backend_inline
from IPython import get_ipython

from jaxmf.engine import progress

# of a progress bar that a dependency would draw, and no page shows
warnings.filterwarnings("ignore", message="IProgress not found")
progress._is_watched = lambda: False
matplotlib_inline.backend_inline.set_matplotlib_formats("svg")
get_ipython().run_line_magic("precision", "3")
