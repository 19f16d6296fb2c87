"""Benchmarks: ``python -m benchmarks NAME`` is the one way to measure.

Open `harness.py` for how a ratio is taken, then the file of a benchmark: `ibp.py`.
"""
