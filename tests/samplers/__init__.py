"""Tests of `jaxmf.samplers`."""
