"""Tests of `jaxmf.variational_bayes`."""
