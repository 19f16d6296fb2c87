"""Binary data with hidden causes: section 5.2 of Wood & Griffiths."""

from typing import NamedTuple

import jax
import numpy as np

from jaxmf.arguments import check_count, check_number
from jaxmf.types import Seed


class HiddenCauses(NamedTuple):
    """Data x from a noisy-OR network with the truth.

    Attributes:
        x: (N, D) float, zeros and ones, an observed variable a row.
        z: (N, K) bool, which variables a cause acts on.
        y: (K, D) bool, in which columns a cause is active.
    """

    x: np.ndarray
    z: np.ndarray
    y: np.ndarray


def section_5_2(
    seed: Seed,
    *,
    num_rows: int = 6,
    num_features: int = 4,
    num_columns: int = 250,
    alpha: float = 3.0,
    cause_probability: float = 0.1,
    efficacy: float = 0.9,
    leak: float = 0.01,
) -> HiddenCauses:
    """The data of section 5.2 of Wood & Griffiths (2006).

    The Indian buffet process is run again and again until Z has the wanted number of causes;
    y_kd ~ Bernoulli(cause_probability), P(x_nd = 1) = 1 - (1 - leak) (1 - efficacy)^(z_n y_d).

    Args:
        seed: int or typed key.
        num_rows: N.
        num_features: K.
        num_columns: D.
        alpha: mass of the process.
        cause_probability, efficacy, leak: p, lambda and epsilon of the paper.
    Returns:
        x (N, D), z (N, K) and y (K, D).
    Raises:
        ValueError: sizes below 1, settings out of range, or a Z of that width never came.
    Example:
        >>> causes = section_5_2(0)
        >>> causes.x.shape, causes.z.shape, causes.y.shape
        ((6, 250), (6, 4), (4, 250))
    """
    for name, size in (("num_rows", num_rows), ("num_columns", num_columns)):
        check_count(name, size)
    shares = {"cause_probability": cause_probability, "efficacy": efficacy, "leak": leak}
    for name, value in shares.items():
        check_number(name, value, least=0, most=1)
    if not isinstance(seed, (int, np.integer)):
        seed = np.asarray(jax.random.key_data(seed)).tolist()
    generator = np.random.default_rng(seed)
    for _ in range(10_000):
        z = _buffet(generator, num_rows, alpha)
        if z.shape[1] == num_features:
            break
    else:
        raise ValueError(
            f"num_features: no Z with {num_features} causes in 10,000 runs at alpha {alpha}; about "
            f"{alpha * sum(1 / (row + 1) for row in range(num_rows)):.0f} are usual."
        )
    y = generator.random((num_features, num_columns)) < cause_probability
    chance = 1 - (1 - leak) * (1 - efficacy) ** (z.astype(float) @ y)
    x = (generator.random(chance.shape) < chance).astype(np.float32)
    return HiddenCauses(x, z, y)


def _buffet(generator: np.random.Generator, num_rows: int, alpha: float) -> np.ndarray:
    """One run of the Indian buffet process: (N, K) bool."""
    z = np.zeros((num_rows, 0), bool)
    for row in range(num_rows):
        z[row] = generator.random(z.shape[1]) < z[:row].sum(axis=0) / (row + 1)
        new = generator.poisson(alpha / (row + 1))
        z = np.pad(z, ((0, 0), (0, new)))
        z[row, z.shape[1] - new :] = True
    return z
