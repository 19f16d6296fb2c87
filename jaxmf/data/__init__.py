"""Data containers: validation and missing data live here and nowhere else.

Open ``dense.py`` first: the other containers have the same shape. ``checks.py`` holds the checks,
``names.py`` the ids.
"""

from jaxmf.data.dense import Dense as Dense
