"""Tests in folders as those of the package; `support` is what several of them share, `project` is
about words, imports, pages and benchmarks."""

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # where the runs themselves are short
# Where they are long: 6 to 8 CPU s of compiling instead of 22 at level 3, for runs as fast.
LONG_RUNS = {"xla_backend_optimization_level": 1}
