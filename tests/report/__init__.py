"""Tests of `jaxmf.report`."""
