"""Tests of `jaxmf.posterior`."""
