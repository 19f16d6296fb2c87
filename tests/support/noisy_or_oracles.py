"""The noisy-OR feature model written out naively in NumPy: exact posteriors of tiny data.

p(X | Z) with Y summed out costs 2^N, whatever the number of causes: with A the zeros of a column
and B its ones,

    P(x | Z) = sum over S in B of (-1)^|S| (1 - leak)^|A + S| prod_k (1 - p + p (1 - efficacy)^c_k),

c_k being the number of rows of A + S that have cause k. Nothing of the library's likelihoods or
priors is used here, only its list of classes.
"""

import itertools

import numpy as np
from scipy.special import betaln, logsumexp

from jaxmf.testing import enumerate_features
from tests.support.oracles import Posterior, all_matrices, log_prior_of_classes


def column_probability(z, x, observed, *, cause_probability, efficacy, leak, fixed=None):
    """P(observed cells of a column | Z), (C,); `fixed` (C, K), -1 where y_k is summed out.

    Where y_k is fixed, its own probability is a factor too.
    """
    if fixed is None:
        fixed = np.full((len(z), z.shape[2]), -1)
    zeros = np.flatnonzero(observed & (x == 0))
    ones = np.flatnonzero(observed & (x == 1))
    total = np.zeros(len(z))
    for size in range(len(ones) + 1):
        for some in itertools.combinations(ones, size):
            rows = np.concatenate([zeros, some]).astype(int)
            on = cause_probability * (1 - efficacy) ** z[:, rows].sum(axis=1)
            off = np.full_like(on, 1 - cause_probability)
            factor = np.where(fixed == 1, on, np.where(fixed == 0, off, on + off))
            total += (-1.0) ** size * (1 - leak) ** len(rows) * factor.prod(axis=1)
    return total


def log_likelihood(z, x, observed, **parameters):
    """log p(observed cells | Z), (C,), Y summed out."""
    columns = [
        column_probability(z, x[:, d], observed[:, d], **parameters) for d in range(x.shape[1])
    ]
    with np.errstate(divide="ignore"):  # without a leak some matrices are impossible
        return np.log(np.maximum(columns, 0)).sum(axis=0)


def posterior_of_classes(x, observed, *, max_features, alpha, concentration=1.0, **parameters):
    """The posterior of Z under the Indian buffet process, at fixed hyperparameters."""
    classes = enumerate_features(len(x), max_features)
    log_joint = log_prior_of_classes(classes, alpha=alpha, concentration=concentration)
    log_joint = log_joint + log_likelihood(classes.z, x, observed, **parameters)
    log_evidence = logsumexp(log_joint)
    return Posterior(
        z=classes.z,
        probability=np.exp(log_joint - log_evidence),
        log_evidence=float(log_evidence),
        left_out=classes.mass_left_out(alpha, concentration),
        bias=False,
    )


def posterior_of_matrices(x, observed, *, num_features, alpha, concentration=1.0, **parameters):
    """The posterior of Z under the finite model, over labelled matrices."""
    z = all_matrices(len(x), num_features)
    counts = z.sum(axis=1)
    pseudo_count = alpha * concentration / num_features
    log_joint = (
        betaln(counts + pseudo_count, len(x) - counts + concentration)
        - betaln(pseudo_count, concentration)
    ).sum(axis=1)
    log_joint = log_joint + log_likelihood(z, x, observed, **parameters)
    log_evidence = logsumexp(log_joint)
    return Posterior(z, np.exp(log_joint - log_evidence), float(log_evidence), 0.0, False)


def expected_activity(z, x, observed, **parameters):
    """P(y_kd = 1 | Z, X), (C, K, D)."""
    result = np.zeros((*z.shape[::2], x.shape[1]))
    for d, k in np.ndindex(x.shape[1], z.shape[2]):
        fixed = np.full((len(z), z.shape[2]), -1)
        whole = column_probability(z, x[:, d], observed[:, d], **parameters)
        fixed[:, k] = 1
        active = column_probability(z, x[:, d], observed[:, d], **parameters, fixed=fixed)
        result[:, k, d] = active / whole
    return result


def draw_activity(rng, z, x, observed, **parameters):
    """Y (C, K, D) bool drawn given Z (C, N, K) and the observed cells, cause by cause."""
    y = np.zeros((*z.shape[::2], x.shape[1]), bool)
    for d in range(x.shape[1]):
        fixed = np.full((len(z), z.shape[2]), -1)
        for k in range(z.shape[2]):
            chance = []
            for value in (0, 1):
                fixed[:, k] = value
                chance.append(
                    column_probability(z, x[:, d], observed[:, d], **parameters, fixed=fixed)
                )
            y[:, k, d] = rng.random(len(z)) * (chance[0] + chance[1]) < chance[1]
            fixed[:, k] = y[:, k, d]
    return y


def log_likelihood_given_activity(z, y, x, observed, *, efficacy, leak, **_):
    """log p(observed cells | Z, Y) (C,), equation 8."""
    eta = np.einsum("cnk,ckd->cnd", z.astype(float), y.astype(float))
    zero = (1 - leak) * (1 - efficacy) ** eta
    return np.where(observed, np.log(np.where(x == 1, 1 - zero, zero)), 0).sum(axis=(1, 2))
