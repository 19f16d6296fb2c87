"""The bilinear model X = U W V' + noise written out naively in NumPy, W summed out cell by cell.

Nothing of the library's likelihoods or priors is used here, only its list of classes.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, logsumexp

from jaxmf.testing import enumerate_features
from tests.support.oracles import all_matrices, log_prior_of_classes


class Side(NamedTuple):
    """Labelled matrices or classes (C, N, K) bool with their log prior (C,)."""

    z: np.ndarray
    log_prior: np.ndarray
    left_out: float = 0.0


def process_side(num_rows, max_features, *, alpha, concentration=1.0, num_fixed=0):
    """The classes of the Indian buffet process, with always-on columns in front."""
    classes = enumerate_features(num_rows, max_features)
    fixed = np.ones((len(classes.z), num_rows, num_fixed), bool)
    return Side(
        z=np.concatenate([fixed, classes.z], axis=2),
        log_prior=log_prior_of_classes(classes, alpha=alpha, concentration=concentration),
        left_out=classes.mass_left_out(alpha, concentration),
    )


def finite_side(num_rows, num_features, *, alpha, concentration=1.0):
    """All labelled matrices of the finite model."""
    z = all_matrices(num_rows, num_features)
    counts, pseudo = z.sum(axis=1), alpha * concentration / num_features
    log_prior = betaln(counts + pseudo, num_rows - counts + concentration)
    return Side(z, (log_prior - betaln(pseudo, concentration)).sum(axis=1))


def cell_distributions(u, v, *, noise_scale, weight_scale, weight_mean=0.0):
    """Mean (..., IJ) and covariance (..., IJ, IJ) of the cells, in the order of x.reshape(-1)."""
    u, v = np.asarray(u, float), np.asarray(v, float)
    num_cells = u.shape[-2] * v.shape[-2]
    centre = np.broadcast_to(weight_mean, (u.shape[-1], v.shape[-1]))
    mean = u @ centre @ np.swapaxes(v, -1, -2)
    shared = np.einsum(
        "...ab,...cd->...acbd", u @ np.swapaxes(u, -1, -2), v @ np.swapaxes(v, -1, -2)
    )
    batch = mean.shape[:-2]
    covariance = weight_scale**2 * shared.reshape(*batch, num_cells, num_cells)
    return mean.reshape(*batch, num_cells), covariance + noise_scale**2 * np.eye(num_cells)


def plaid_cell_distributions(u, v, *, noise_scale, weight_scale, weight_mean=0.0):
    """`cell_distributions` with a diagonal W, whose prior mean is a number or (K,)."""
    u, v = np.asarray(u, float), np.asarray(v, float)
    design = u[..., :, None, :] * v[..., None, :, :]
    design = design.reshape(*design.shape[:-3], -1, design.shape[-1])
    centre = np.broadcast_to(weight_mean, design.shape[-1:])
    covariance = weight_scale**2 * design @ np.swapaxes(design, -1, -2)
    return design @ centre, covariance + noise_scale**2 * np.eye(design.shape[-2])


def log_likelihood(u, v, x, *, observed=None, distribution=cell_distributions, **settings):
    """log p(observed cells | U, V) (...), W and missing cells summed out."""
    mean, covariance = distribution(u, v, **settings)
    seen = np.arange(x.size) if observed is None else np.flatnonzero(observed)
    block = covariance[..., seen[:, None], seen]
    error = x.reshape(-1)[seen] - mean[..., seen]
    half = np.linalg.solve(np.linalg.cholesky(block), error[..., None])[..., 0]
    return -0.5 * (np.linalg.slogdet(2 * np.pi * block)[1] + (half**2).sum(axis=-1))


class Joint(NamedTuple):
    """The posterior over pairs of sides: probability (A, B)."""

    u: Side
    v: Side
    probability: np.ndarray

    @property
    def left_out(self):
        return self.u.left_out + self.v.left_out

    def draw(self, rng, num_draws):
        """Draws of pairs u (num_draws, I, K), v (num_draws, J, L)."""
        flat = rng.choice(self.probability.size, num_draws, p=self.probability.reshape(-1))
        rows, columns = np.unravel_index(flat, self.probability.shape)
        return self.u.z[rows], self.v.z[columns]

    def expectations(self, measure):
        """Means of what `measure` (z (C, N, K) -> name -> (C, ...)) says of either side."""
        found = {}
        weights = {"u": self.probability.sum(axis=1), "v": self.probability.sum(axis=0)}
        for name, weight in weights.items():
            for what, values in measure(getattr(self, name).z).items():
                found[f"{name}: {what}"] = np.tensordot(weight, values, axes=1)
        return found


def joint_posterior(u, v, x, *, observed=None, **settings):
    """p(U, V | observed cells) over all pairs of two sides."""
    log_joint = np.array(
        [log_likelihood(one, v.z, x, observed=observed, **settings) for one in u.z]
    )
    log_joint += u.log_prior[:, None] + v.log_prior
    return Joint(u, v, np.exp(log_joint - logsumexp(log_joint)))


def draw_missing(rng, u, v, x, *, observed, distribution=cell_distributions, **settings):
    """x (C, I, J) with missing cells drawn given u (C, I, K), v (C, J, L) and the observed ones."""
    mean, covariance = distribution(u, v, **settings)
    seen, missing = np.flatnonzero(observed), np.flatnonzero(~observed)
    across = covariance[:, missing[:, None], seen]
    gain = across @ np.linalg.inv(covariance[:, seen[:, None], seen])
    error = x.reshape(-1)[seen] - mean[:, seen]
    centre = mean[:, missing] + (gain @ error[..., None])[..., 0]
    spread = covariance[:, missing[:, None], missing] - gain @ across.swapaxes(1, 2)
    normals = rng.standard_normal((len(u), len(missing), 1))
    full = np.broadcast_to(x.reshape(-1), (len(u), x.size)).copy()
    full[:, missing] = centre + (np.linalg.cholesky(spread) @ normals)[..., 0]
    return full.reshape(len(u), *x.shape)
