"""Tests of `jaxmf.plot`."""
