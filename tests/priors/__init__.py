"""Tests of `jaxmf.priors`."""
