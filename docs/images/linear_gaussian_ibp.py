"""Draws the README's picture: the images of section 4.2 and what the library finds in them.

Run it as `python docs/images/linear_gaussian_ibp.py`; the picture lands beside it.
"""

from pathlib import Path

import numpy as np
import numpyro.distributions as dist

import jaxmf as mf
from jaxmf.plot import png
from jaxmf.plot.style import SIGNED, bare, colours, figure_of

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
    rows, found = np.asarray(SHOWN), post.features().mean
    beside = [found[np.argmax(found @ image)] for image in images.y.reshape(4, -1)]
    lines = [
        ("hidden images", images.y),
        ("observed, a tenth missing", values[rows]),
        ("features found, in their order", beside),
        ("reconstructed", post.reconstruction(rows)),
    ]
    figure, panels = figure_of(len(lines), 6, width=6.2, height=4.6)
    for line, (title, pictures) in zip(np.reshape(panels, (-1, 6)), lines, strict=True):
        for panel in line[len(pictures) :]:
            panel.set_axis_off()
        for panel, picture in zip(line, pictures, strict=False):
            bare(panel)
            cells = np.reshape(picture, images.image_shape)
            panel.imshow(cells, cmap=colours(SIGNED), vmin=-2, vmax=2, interpolation="nearest")
        line[0].set_title(title, loc="left", fontsize=9)
    path = Path(__file__).with_suffix(".png")
    path.write_bytes(png(figure, dots_per_inch=110))
    print(path.name)


if __name__ == "__main__":
    main()
