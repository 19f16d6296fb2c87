"""Priors of binary features and of partitions, and of their hyperparameters.

Open `features.py` first: the Indian buffet process and the finite beta-Bernoulli model.
`hyper.py` says what a hyperparameter is: a number or a numpyro distribution.
"""
