"""How rows choose parts, and what is believed about the numbers that govern it.

Open `features.py` first: the Indian buffet process and the finite beta-Bernoulli model.
`hyper.py` says what a hyperparameter is: a number or a numpyro distribution.
"""
