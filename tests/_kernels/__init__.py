"""Tests of `jaxmf._kernels`."""
