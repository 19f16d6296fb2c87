"""Transition kernels and filters on arrays; they know no model."""
