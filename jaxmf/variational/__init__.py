"""Variational updates and analytic solutions, as functions of arrays."""
