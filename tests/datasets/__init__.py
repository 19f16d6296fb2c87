"""Tests of `jaxmf.datasets`."""
