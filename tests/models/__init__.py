"""Tests of `jaxmf.models`."""
