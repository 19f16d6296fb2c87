"""Probabilities of the groups of every batch, drawn given the groups of all items."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf._kernels.special import loggammas
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.types import Array, Key


def sample_log_weights(
    keys: Key, distribution: PartitionPrior, counts: Array, hyperparameters: dict[str, Array]
) -> Array:
    """Draws log probabilities of the groups of every batch from their conditional.

    Of a growing prior those of the groups in use; what is left to a hundred per cent is that of all
    others together:

        Dirichlet            Dirichlet(n_g1 + a_1, ..., n_gK + a_K)
        DirichletProcess     Dirichlet(n_g1, ..., n_gK, alpha)
        PitmanYor            Dirichlet(n_g1 - d, ..., n_gK - d, alpha + d K_g)
        HDP                  Dirichlet(n_g1 + alpha tau_1, ..., n_gK + alpha tau_K, alpha tau_rest)

    Args:
        keys: one; or (R,), one for each of R sets of batches, whose draws are those of its key.
        counts: (G, K) int32; or (R, G, K).
    Returns:
        (G, K) float, -inf where a group is not in use; or (R, G, K).
    Raises:
        TypeError: the prior has no `weight_shapes`.

    Source: Teh, Jordan, Beal & Blei (2006), section 5.2; Pitman (1996), Some developments of the
    Blackwell-MacQueen urn scheme, for the second and third.
    """
    num_batches, num_groups = counts.shape[-2:]
    shapes, rest = distribution.weight_shapes(counts.reshape(-1, num_groups), hyperparameters)
    split = jax.vmap(jax.random.split)(keys.ravel())
    in_use = shapes > 0
    # groups first: more slots leave the draws of the others as they are
    by_group = jnp.where(in_use, shapes, 1).reshape(-1, num_batches, num_groups).swapaxes(1, 2)
    logs = loggammas(split[:, 0], by_group).swapaxes(1, 2).reshape(shapes.shape)
    logs = jnp.where(in_use, logs, -jnp.inf)
    if rest is None:
        return jax.nn.log_softmax(logs, axis=1).reshape(counts.shape)
    rest = jnp.broadcast_to(rest, shapes.shape[:1]).reshape(-1, num_batches)
    log_rest = loggammas(split[:, 1], rest).reshape(-1)
    logs -= jnp.logaddexp(logsumexp(logs, axis=1), log_rest)[:, None]
    return logs.reshape(counts.shape)
