"""The main job on small images: hidden features found, hidden cells predicted, a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxmf import api, datasets, diagnostics
from jaxmf.data import Dense
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.report import report, write_notes

HELD_OUT_SHARE = 0.05


def run(out: str | Path, *, seed: int = 0, progress: bool | None = None) -> Path:
    """Fit the linear-Gaussian model to the images of Wood and Griffiths, section 4.2.

    They are sums of four 6 x 6 features with noise; some cells are hidden from the model.

    Args:
        out: folder of the run and its report.
        seed: of all random choices.
        progress: as in `jaxmf.sample`.
    Returns:
        Path of the report.
    """
    import numpyro.distributions as dist

    folder = Path(out)
    images = datasets.section_4_2(seed)
    values = np.asarray(images.x)
    hidden = np.random.default_rng(seed).random(values.shape) < HELD_OUT_SHARE
    data = Dense.from_array(np.where(hidden, np.nan, values))
    words = f"{len(values)} generated images of 6 x 6 cells"
    print(
        f"{words}, each a sum of some of {len(images.y)} features;\n"
        f"{hidden.sum():,} of {hidden.size:,} cells hidden from the model."
    )
    model = LinearGaussianIBP(alpha=dist.Gamma(1.0, 1.0), noise_scale=0.5, feature_scale=1.0)
    posterior = api.sample(
        model,
        data,
        num_warmup=300,
        num_samples=200,
        num_chains=4,
        seed=seed,
        progress=progress,
    )
    print(f"\n{posterior}\n\n{posterior.num_features()}")
    print(diagnostics.held_out_error(posterior, values))
    posterior.save(folder)
    write_notes(folder, image_shape=images.image_shape, truth=values)
    return report(
        posterior,
        folder / "report.html",
        image_shape=images.image_shape,
        truth=values,
        title=f"Hidden features of {words}",
    )
