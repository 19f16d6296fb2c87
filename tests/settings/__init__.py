"""Tests of `jaxmf.settings`."""
