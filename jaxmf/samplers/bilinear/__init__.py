"""Moves of X ~ f(U W Vᵀ) with binary U and V: weights summed out or kept, whole rows, plaid."""
