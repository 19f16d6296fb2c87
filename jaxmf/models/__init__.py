"""The named systems: one file a system, each a thin assembly of priors, likelihoods and samplers."""
