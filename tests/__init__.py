"""Tests in folders as those of the package; `support` is what several of them share, `project` is
about words, imports, pages and benchmarks."""

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # where the runs themselves are short
FULL_COMPILE = {"xla_backend_optimization_level": 3}  # where they are long, whatever XLA_FLAGS says
