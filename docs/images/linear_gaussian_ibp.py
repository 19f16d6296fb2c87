"""Draws the README's picture: the images of section 4.2 and what the library finds in them.

Run it as `python docs/images/linear_gaussian_ibp.py`; the picture lands beside it.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpyro.distributions as dist

import jaxmf as mf

mpl.use("Agg")
import matplotlib.pyplot as plt

SHOWN = (3, 14, 27, 38, 52, 61)


def main() -> None:
    """Fit, draw, save beside this file."""
    images = mf.datasets.section_4_2(0)
    values = np.array(images.x)
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    model = mf.LinearGaussianIBP(
        alpha=dist.Gamma(1.0, 1.0), noise_scale=dist.Gamma(2.0, 4.0), feature_scale=1.0
    )
    post = mf.sample(model, values, num_warmup=200, num_samples=200, num_chains=2, seed=0)
    print(post.summary())
    rows = np.asarray(SHOWN)
    lines = [
        ("hidden images", images.y),
        ("observed, a tenth missing", values[rows]),
        ("features found", post.features().mean[:6]),
        ("reconstructed", post.reconstruction(rows)),
    ]
    figure, axes = plt.subplots(len(lines), 6, figsize=(6.2, 4.6), squeeze=False)
    colours = mpl.colormaps["RdBu_r"].copy()
    colours.set_bad("#c9ced4")
    for line, (title, pictures) in zip(axes, lines, strict=True):
        for place in line:
            place.set_axis_off()
        for place, picture in zip(line, pictures, strict=False):
            cells = np.ma.masked_invalid(np.reshape(picture, images.image_shape))
            place.imshow(cells, cmap=colours, vmin=-2, vmax=2, interpolation="nearest")
        line[0].set_title(title, loc="left", fontsize=9)
    figure.tight_layout(pad=0.6, h_pad=0.8)
    path = Path(__file__).with_suffix(".png")
    figure.savefig(path, dpi=110)
    print(path.name)


if __name__ == "__main__":
    main()
