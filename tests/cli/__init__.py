"""Tests of `jaxmf.cli`."""
