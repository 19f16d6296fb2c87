"""Images made of binary features: section 4.2 of Wood & Griffiths, and the Cambridge bars."""

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
