"""Main tasks of seven users, by jaxmf and by what they use today.

``python -m benchmarks.tasks.NAME`` runs one of them.
Every side is a function that reads the files of `prepare` and returns its measures of quality. It
is run in a process of its own, with its imports, and its lines are counted as they stand.
"""
