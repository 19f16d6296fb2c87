"""Gibbs draws of real factors of the observed cells of a matrix."""
