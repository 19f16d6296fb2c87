"""Tests of `jaxmf.engine`."""
