"""Families of the values of a block: conjugate, so that a group's parameters are summed out."""
