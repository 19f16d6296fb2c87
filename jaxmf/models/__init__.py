"""The named systems: each a thin assembly of priors, likelihoods and samplers."""
