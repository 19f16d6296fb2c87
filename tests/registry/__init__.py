"""Tests of `jaxmf.registry`."""
