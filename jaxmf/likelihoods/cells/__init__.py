"""Likelihoods of a cell, shared by every model of matrices: one object, one file each."""
