"""The list of models: read by the verbs, the command line, the compliance tests and the docs.

An `Entry` says what a model is called, which methods it has and what a tiny problem for it looks
like: `entries.py` has all of them, `examples.py` the tiny problems, `entry.py` what follows from
one entry alone, `encoding.py` models as JSON. The names stand in ``__init__.pyi`` and are imported
when they are first used.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
