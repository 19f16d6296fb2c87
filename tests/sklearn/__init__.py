"""Tests of `jaxmf.sklearn`."""
