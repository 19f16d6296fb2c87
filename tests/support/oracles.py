"""The linear-Gaussian feature model written out naively in NumPy: exact posteriors of tiny data.

Nothing of the library's likelihoods or priors is used here, only its list of classes.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

from jaxmf.testing import enumerate_features


class Posterior(NamedTuple):
    """All classes (or labelled matrices) and their posterior.

    z (C, N, K) bool, bias column included; probability (C,); log_evidence; left_out, prior mass of
    the classes that are not listed.
    """

    z: np.ndarray
    probability: np.ndarray
    log_evidence: float
    left_out: float
    bias: bool

    @property
    def num_features(self):
        return self.z[:, :, int(self.bias) :].any(axis=1).sum(axis=1)

    @property
    def shared(self):
        """(C, N, N): the matrices ZZ', bias column left out."""
        z = self.z[:, :, int(self.bias) :].astype(float)
        return z @ z.swapaxes(1, 2)

    def expectations(self, *, max_features=4):
        """What label-free statistics of a chain must average to."""
        count = self.num_features
        upper = np.triu_indices(self.z.shape[1])
        return {
            "probability of K": np.array(
                [self.probability[count == k].sum() for k in range(max_features + 1)]
            ),
            "shared": np.einsum("c,cnm->nm", self.probability, self.shared)[upper],
        }


def log_prior_of_classes(classes, *, alpha, concentration=1.0):
    """Equation 2 and its two-parameter form, from the counts of histories."""
    num_rows = classes.histories.shape[1]
    ones = classes.histories.sum(axis=1)
    rate = sum(concentration / (concentration + row) for row in range(num_rows))
    return (
        classes.num_features * np.log(alpha * concentration)
        - alpha * rate
        + classes.counts @ betaln(ones, num_rows - ones + concentration)
        - gammaln(classes.counts + 1).sum(axis=1)
    )


def log_likelihood(z, x, *, noise_scale, feature_scale, observed=None):
    """log p(x | z) (C,), each column a Gaussian with covariance of its observed rows."""
    z = z.astype(float)
    covariance = noise_scale**2 * np.eye(x.shape[0]) + feature_scale**2 * z @ z.swapaxes(1, 2)
    total = np.zeros(len(z))
    for column in range(x.shape[1]):
        rows = np.arange(len(x)) if observed is None else np.flatnonzero(observed[:, column])
        block = covariance[:, rows[:, None], rows]
        values = np.broadcast_to(x[rows, column], (len(z), len(rows)))
        solved = np.linalg.solve(block, values[..., None])[..., 0]
        total -= 0.5 * (
            np.linalg.slogdet(block)[1]
            + (values * solved).sum(axis=1)
            + len(rows) * np.log(2 * np.pi)
        )
    return total


def posterior_of_classes(
    x,
    *,
    max_features,
    alpha,
    noise_scale,
    feature_scale,
    concentration=1.0,
    bias=False,
    observed=None,
):
    """The posterior under the Indian buffet process, at fixed hyperparameters."""
    classes = enumerate_features(len(x), max_features)
    z = classes.z
    if bias:
        z = np.concatenate([np.ones((*z.shape[:2], 1), bool), z], axis=2)
    log_joint = log_prior_of_classes(classes, alpha=alpha, concentration=concentration)
    log_joint = log_joint + log_likelihood(
        z, x, noise_scale=noise_scale, feature_scale=feature_scale, observed=observed
    )
    log_evidence = logsumexp(log_joint)
    return Posterior(
        z=z,
        probability=np.exp(log_joint - log_evidence),
        log_evidence=float(log_evidence),
        left_out=classes.mass_left_out(alpha, concentration),
        bias=bias,
    )


def all_matrices(num_rows, num_features):
    """(2^(NK), N, K) bool."""
    bits = itertools.product([False, True], repeat=num_rows * num_features)
    return np.array(list(bits)).reshape(-1, num_rows, num_features)


def posterior_of_matrices(
    x, *, num_features, alpha, noise_scale, feature_scale, concentration=1.0, observed=None
):
    """The posterior under the finite model, over labelled matrices."""
    z = all_matrices(len(x), num_features)
    counts = z.sum(axis=1)
    pseudo_count = alpha * concentration / num_features
    log_joint = (
        betaln(counts + pseudo_count, len(x) - counts + concentration)
        - betaln(pseudo_count, concentration)
    ).sum(axis=1)
    log_joint = log_joint + log_likelihood(
        z, x, noise_scale=noise_scale, feature_scale=feature_scale, observed=observed
    )
    log_evidence = logsumexp(log_joint)
    return Posterior(
        z=z,
        probability=np.exp(log_joint - log_evidence),
        log_evidence=float(log_evidence),
        left_out=0.0,
        bias=False,
    )


def draw_missing(rng, z, x, *, noise_scale, feature_scale, observed):
    """x (C, N, D) with missing cells drawn given z (C, N, K) and the observed cells."""
    z = z.astype(float)
    covariance = noise_scale**2 * np.eye(len(x)) + feature_scale**2 * z @ z.swapaxes(1, 2)
    full = np.broadcast_to(x, (len(z), *x.shape)).copy()
    for column in range(x.shape[1]):
        seen = np.flatnonzero(observed[:, column])
        missing = np.flatnonzero(~observed[:, column])
        if not len(missing):
            continue
        across = covariance[:, missing[:, None], seen]
        gain = across @ np.linalg.inv(covariance[:, seen[:, None], seen])
        mean = gain @ x[seen, column]
        spread = covariance[:, missing[:, None], missing] - gain @ across.swapaxes(1, 2)
        normals = rng.standard_normal((len(z), len(missing), 1))
        full[:, missing, column] = mean + (np.linalg.cholesky(spread) @ normals)[..., 0]
    return full
