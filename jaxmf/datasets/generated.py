"""Data made of binary features: sections 4.2 and 5.2 of Wood & Griffiths, the Cambridge bars."""

from typing import NamedTuple

import jax
import numpy as np

from jaxmf.arguments import check_count, check_number
from jaxmf.datasets.cache import Recipe, Source, read
from jaxmf.types import Seed

_SHAPES = """
.#....  ...###  ......  ......
###...  ...#.#  ......  ......
.#....  ...###  ......  ......
......  ......  #.....  ...###
......  ......  ##....  ....#.
......  ......  ###...  ....#.
"""


class LatentFeatures(NamedTuple):
    """Data x = z y + noise with the truth.

    Attributes:
        x: (N, D) float, the noisy images, one a row.
        z: (N, K) bool, which image has which feature.
        y: (K, D) float, the features.
        image_shape: (height, width), D = height x width.
    """

    x: np.ndarray
    z: np.ndarray
    y: np.ndarray
    image_shape: tuple[int, int] = (6, 6)


def feature_images() -> np.ndarray:
    """(4, 36) float, the four 6 x 6 binary features of Griffiths & Ghahramani."""
    rows = [line.split() for line in _SHAPES.split("\n") if line]
    pixels = [[[c == "#" for c in row[k]] for row in rows] for k in range(4)]
    return np.asarray(pixels, float).reshape(4, 36)


def section_4_2(seed: Seed, *, num_rows: int = 100, noise_scale: float = 0.5) -> LatentFeatures:
    """The images of section 4.2 of Wood & Griffiths (2007).

    z_ik ~ Bernoulli(1/2), x_i ~ N(z_i y, noise_scale² I), y four 6 x 6 binary images.

    Args:
        seed: int or typed key.
        num_rows: N.
        noise_scale: standard deviation of the noise, σ_X in the paper.
    Returns:
        x (N, 36), z (N, 4) and y (4, 36).
    Raises:
        ValueError: no rows, or a noise that is negative or not finite.
    Example:
        >>> images = section_4_2(0)
        >>> images.x.shape, images.z.shape, images.y.shape
        ((100, 36), (100, 4), (4, 36))
    """
    check_count("num_rows", num_rows)
    check_number("noise_scale", noise_scale, least=0)
    key = jax.random.key(seed) if isinstance(seed, (int, np.integer)) else seed
    z_key, noise_key = jax.random.split(key)
    y = feature_images()
    z = np.asarray(jax.random.bernoulli(z_key, 0.5, (num_rows, len(y))))
    noise = np.asarray(jax.random.normal(noise_key, (num_rows, y.shape[1])))
    x = z @ y + noise_scale * noise
    return LatentFeatures(x.astype(noise.dtype), z, y.astype(noise.dtype))


_BARS = Recipe(
    "bars",
    "bars.npz",
    sources=(
        Source("bars.npz", instructions="jaxmf.datasets.section_4_2(seed) makes data of its kind."),
    ),
)


def cambridge_bars() -> LatentFeatures:
    """The Cambridge bars: 1000 noisy images (noise 0.2) of four binary 6 x 6 features.

    Returns:
        x (1000, 36), shifted to mean 0 as published, z (1000, 4) and y (4, 36).
    Raises:
        FileNotFoundError: it is not in the folder of data sets; it has no official source.
    """
    arrays = read(_BARS).arrays
    x = arrays["data"]
    # The published file lists more rows of features than images; the first ones belong to them.
    z = arrays["features"][: len(x)].astype(bool)
    return LatentFeatures(x, z, arrays["latent"].reshape(4, 36).astype(x.dtype))


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
