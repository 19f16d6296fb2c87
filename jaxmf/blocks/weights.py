"""Probabilities of the groups of every batch, drawn given the groups of all items."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from jaxmf.priors.hdp import HDP
from jaxmf.priors.partitions import Dirichlet, DirichletProcess, PitmanYor
from jaxmf.special import loggammas
from jaxmf.types import Array, Key


def sample_log_weights(
    key: Key, law: Any, counts: Array, hyperparameters: dict[str, Array]
) -> Array:
    """Draws log probabilities of the groups of every batch from their conditional.

    Of a growing prior those of the groups in use; what is left to a hundred per cent is that of all
    others together:

        Dirichlet            Dirichlet(n_g1 + a_1, ..., n_gK + a_K)
        DirichletProcess     Dirichlet(n_g1, ..., n_gK, alpha)
        PitmanYor            Dirichlet(n_g1 - d, ..., n_gK - d, alpha + d K_g)
        HDP                  Dirichlet(n_g1 + alpha tau_1, ..., n_gK + alpha tau_K, alpha tau_rest)

    Args:
        key: typed PRNG key.
        law: a prior of partitions.
        counts: (G, K) int32.
        hyperparameters: its hyperparameters.

    Returns:
        (G, K) float, -inf where a group is not in use.

    Raises:
        TypeError: another prior, whose conditional is not known.

    Source: Teh, Jordan, Beal & Blei (2006), section 5.2; Pitman (1996), Some developments of the
    Blackwell-MacQueen urn scheme, for the second and third.
    """
    shapes, rest = _shapes(law, counts, hyperparameters)
    groups_key, rest_key = jax.random.split(key)
    in_use = shapes > 0
    # groups first: more slots leave the draws of the others as they are
    logs = loggammas(groups_key, jnp.where(in_use, shapes, 1).T).T
    logs = jnp.where(in_use, logs, -jnp.inf)
    if rest is None:
        return jax.nn.log_softmax(logs, axis=1)
    log_rest = loggammas(rest_key, jnp.broadcast_to(rest, counts.shape[:1]))
    return logs - jnp.logaddexp(logsumexp(logs, axis=1), log_rest)[:, None]


def _shapes(
    law: Any, counts: Array, hyperparameters: dict[str, Array]
) -> tuple[Array, Array | None]:
    """The parameters of the Dirichlet distributions: of groups (G, K), 0 if not in use, and of the rest."""
    concentration = hyperparameters["concentration"]
    tiny = jnp.finfo(concentration.dtype).tiny
    if isinstance(law, Dirichlet):
        return counts + concentration, None
    if isinstance(law, HDP):
        in_use = hyperparameters["weights"] > 0
        pseudo = jnp.maximum(concentration * hyperparameters["weights"], tiny)
        rest = jnp.maximum(concentration * hyperparameters["rest"], tiny)
        return jnp.where(in_use, counts + pseudo, 0), rest
    if not isinstance(law, DirichletProcess | PitmanYor):
        raise TypeError(
            "parallel sweeps draw probabilities of the groups of Dirichlet, DirichletProcess, "
            f"PitmanYor and HDP; those of a {type(law).__name__} are not known. Use "
            "sweep='sequential'"
        )
    discount = (
        hyperparameters["discount"] if isinstance(law, PitmanYor) else jnp.zeros_like(concentration)
    )
    in_use = counts > 0
    rest = concentration + discount * jnp.sum(in_use, axis=1)
    return jnp.where(in_use, counts - discount, 0), rest
