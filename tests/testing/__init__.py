"""Tests of `jaxmf.testing`."""
