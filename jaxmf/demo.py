"""The main job on small images: hidden features found, hidden cells predicted, a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmf import api, datasets, diagnostics
from jaxmf.data import Dense
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.report import report, write_notes

HELD_OUT_SHARE = 0.05
NUM_DIGITS = 500


class Images(NamedTuple):
    """Images as rows.

    Args:
        values: (N, D).
        shape: (height, width).
        words: what they are.
    """

    values: np.ndarray
    shape: tuple[int, int]
    words: str


def run(out: str | Path, *, seed: int = 0, progress: Any = None) -> Path:
    """Fit the linear-Gaussian model to small images with some cells hidden.

    Args:
        out: folder of the run and its report.
        seed: of all random choices.
        progress: as in `jaxmf.sample`.
    Returns:
        Path of the report.
    """
    folder = Path(out)
    images = digits() or generated_images(seed)
    hidden = np.random.default_rng(seed).random(images.values.shape) < HELD_OUT_SHARE
    data = Dense.from_array(np.where(hidden, np.nan, images.values))
    _say(f"{images.words}; {hidden.sum():,} of {hidden.size:,} cells hidden from the model.")
    posterior = api.sample(
        model_for(images),
        data,
        num_warmup=200,
        num_samples=200,
        num_chains=2,
        seed=seed,
        progress=progress,
    )
    _say("")
    _say(str(posterior))
    _say(f"\n{posterior.num_features()}")
    _say(str(diagnostics.held_out_error(posterior, images.values)))
    posterior.save(folder)
    write_notes(folder, image_shape=images.shape, truth=images.values)
    return report(
        posterior,
        folder / "report.html",
        image_shape=images.shape,
        truth=images.values,
        title=f"Hidden features of {images.words}",
    )


def model_for(images: Images) -> LinearGaussianIBP:
    """The model of the demo, everything but its form left to the data."""
    import numpyro.distributions as dist

    return LinearGaussianIBP(
        alpha=dist.Gamma(1.0, 1.0),
        noise_scale=dist.Gamma(2.0, 4.0),
        feature_scale=dist.Gamma(2.0, 2.0),
        bias=True,
    )


def digits() -> Images | None:
    """Handwritten digits, 8 x 8, that come with scikit-learn; None without it."""
    try:
        bundled = datasets.digits()
    except ImportError:
        return None
    values = bundled.train[:NUM_DIGITS] / 16.0
    words = f"{NUM_DIGITS} handwritten digits of 8 x 8 cells"
    return Images(values=values, shape=bundled.image_shape, words=words)


def generated_images(seed: int) -> Images:
    """The images of Wood and Griffiths, section 4.2: sums of four 6 x 6 features, with noise."""
    made = datasets.section_4_2(seed)
    return Images(
        values=made.x, shape=made.image_shape, words="100 generated images of 6 x 6 cells"
    )


def _say(words: str) -> None:
    print(words)  # noqa: T201
