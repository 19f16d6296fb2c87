"""The likelihoods whose expected cost under Gaussian scores variational Bayes knows."""

from jaxmf.likelihoods.cells.bernoulli import Bernoulli
from jaxmf.likelihoods.cells.gaussian import Gaussian

Likelihood = Gaussian | Bernoulli
