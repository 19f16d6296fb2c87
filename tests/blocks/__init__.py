"""Tests of `jaxmf.blocks`."""
