"""Draws the README's picture of ratings: what a user is recommended, and how sure that is.

Run it as `python docs/images/ratings.py`; the picture lands beside it.
"""

from pathlib import Path

import numpy as np

import jaxmf as mf
from jaxmf.plot import png
from jaxmf.plot.style import GRID, SIGNED, figure_of

STARS = (1, 2, 3, 4, 5)
COLOURS = (*SIGNED[:2:-1], GRID, *SIGNED[1::-1])  # orange for few stars, blue for many
USER, NUM_USERS, NUM_FILMS = 7, 60, 30


def main() -> None:
    """Make ratings up as the README does, fit, draw, save beside this file."""
    random = np.random.default_rng(0)
    cells = random.choice(NUM_USERS * NUM_FILMS, 900, replace=False)
    liking = random.normal(size=(NUM_USERS, 1)) @ random.normal(size=(1, NUM_FILMS))
    expected = 3 + liking
    stars = np.clip(np.round(expected.ravel()[cells] + 0.4 * random.normal(size=900)), 1, 5)
    ratings = mf.Entries(cells // NUM_FILMS, cells % NUM_FILMS, stars, shape=(NUM_USERS, NUM_FILMS))
    model = mf.BPMF(1, likelihood=mf.Ordinal(STARS))
    post = mf.sample(model, ratings, num_warmup=1000, num_samples=1000, num_chains=2, seed=0)
    unseen = np.setdiff1d(np.arange(NUM_FILMS), cells[cells // NUM_FILMS == USER] % NUM_FILMS)
    probabilities = post.probabilities((np.full(unseen.size, USER), unseen))
    order = np.argsort(probabilities @ np.asarray(STARS))[::-1]
    figure, (axis,) = figure_of(1, 1, width=6.2, height=2.9)
    left = np.zeros(unseen.size)
    names = [f"film {film}" for film in unseen[order]]
    for star, colour in zip(STARS, COLOURS, strict=True):
        width = probabilities[order, star - 1]
        axis.bar(names, width, bottom=left, color=colour, width=0.85, label=str(star))
        left = left + width
    truth = np.clip(np.round(expected[USER, unseen[order]]), 1, 5).astype(int)
    for place, star in enumerate(truth):
        axis.text(place, 1.02, str(star), ha="center", fontsize=7)
    axis.set_ylim(0, 1.1)
    axis.set_ylabel("probability")
    axis.tick_params(axis="x", rotation=90, labelsize=7)
    axis.legend(title="stars", ncols=1, frameon=False, bbox_to_anchor=(1, 1), fontsize=8)
    path = Path(__file__).with_suffix(".png")
    path.write_bytes(png(figure, dots_per_inch=110))
    print(path.name)


if __name__ == "__main__":
    main()
