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
NUM_DIGITS = 300


class Images(NamedTuple):
    """Images as rows, and what is believed of them.

    Args:
        values: (N, D).
        shape: (height, width).
        model: the model they are fitted with.
        words: what they are.
    """

    values: np.ndarray
    shape: tuple[int, int]
    model: LinearGaussianIBP
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
        images.model,
        data,
        num_warmup=150,
        num_samples=100,
        num_chains=2,
        seed=seed,
        progress=progress,
    )
    _say("")
    _say(str(posterior))
    if np.nanmax(posterior.summary().values[:, diagnostics.CHAIN_COLUMNS.index("R-hat")]) > 1.1:
        _say(
            "The chains ended at different sets of features (R-hat above 1.1), as they do on real\n"
            "images in a minute; predictions average over them. Longer runs and more chains help."
        )
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


def digits() -> Images | None:
    """Handwritten digits, 8 x 8, that come with scikit-learn; None without it.

    What counts as noise is said, not learned: grey levels have no noise of their own, and a model
    free to choose would explain every last stroke by features.
    """
    import numpyro.distributions as dist

    try:
        bundled = datasets.digits()
    except ImportError:
        return None
    model = LinearGaussianIBP(
        alpha=dist.Gamma(1.0, 1.0), noise_scale=0.2, feature_scale=0.5, bias=True
    )
    words = f"{NUM_DIGITS} handwritten digits of 8 x 8 cells"
    return Images(bundled.train[:NUM_DIGITS] / 16.0, bundled.image_shape, model, words)


def generated_images(seed: int) -> Images:
    """The images of Wood and Griffiths, section 4.2: sums of four 6 x 6 features, with noise."""
    import numpyro.distributions as dist

    made = datasets.section_4_2(seed)
    model = LinearGaussianIBP(alpha=dist.Gamma(1.0, 1.0), noise_scale=0.5, feature_scale=1.0)
    return Images(made.x, made.image_shape, model, "100 generated images of 6 x 6 cells")


def _say(words: str) -> None:
    print(words)  # noqa: T201
