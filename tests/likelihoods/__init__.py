"""Tests of `jaxmf.likelihoods`."""
