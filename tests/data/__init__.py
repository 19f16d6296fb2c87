"""Tests of `jaxmf.data`."""
