"""Tests; `network_checks`, `oracles` and their like are what several of them share."""

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # where the runs themselves are short
FULL_COMPILE = {"xla_backend_optimization_level": 3}  # where they are long, whatever XLA_FLAGS says
