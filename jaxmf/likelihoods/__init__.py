"""Likelihoods: sufficient statistics with add, remove, log predictive and log marginal."""
