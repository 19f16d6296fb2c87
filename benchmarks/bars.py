"""Figures 2 and 3 of Meeds et al. (2006): bars of which some lack their bottom half.

200 images of 8 x 8. V holds the 16 horizontal and vertical bars, U comes from an Indian buffet
process, W from a normal distribution; 1 / theta = 1 / phi = 2, known to the model, which infers U,
V and W.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from benchmarks.records import Paper, bit_strings

SIDE, NUM_ROWS, NUM_HIDDEN = 8, 200, 12
ALPHA, NUM_SLOTS = 1.5, 24
SCALE = 2**0.5
NUM_CHAINS = 4
RUN = {"num_warmup": 2000, "num_samples": 300}


def made(num_rows: int, side: int) -> tuple[np.ndarray, ...]:
    """X (N, side^2), the same without noise, and the true W V' (K, side^2) and V."""
    grid = np.zeros((side, side, 2 * side), bool)
    for pixel in range(side):
        grid[pixel, :, pixel] = True
        grid[:, pixel, side + pixel] = True
    v = grid.reshape(side * side, 2 * side)
    u, _ = mf.IndianBuffet(ALPHA).sample(jax.random.key(3), num_rows, NUM_SLOTS)
    u = np.asarray(u)[:, np.asarray(u).any(axis=0)]
    generator = np.random.default_rng(0)
    basis = generator.normal(scale=SCALE, size=(u.shape[1], 2 * side)) @ v.T
    clean = u @ basis
    return clean + generator.normal(scale=SCALE, size=clean.shape), clean, basis, v


def error(guess: np.ndarray, clean: np.ndarray) -> float:
    """Root mean square error of the hidden cells without their noise."""
    half = clean.shape[1] // 2
    return float(np.sqrt(np.mean((guess - clean[:NUM_HIDDEN])[:, half:] ** 2)))


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Both figures, printed, and written to `json`."""
    num_rows, side = (60, 4) if quick else (NUM_ROWS, SIDE)
    num_chains = 2 if quick else NUM_CHAINS
    steps = {"num_warmup": 30, "num_samples": 20} if quick else RUN
    about = {"rows": num_rows, "columns": side**2, "rows_with_missing_halves": NUM_HIDDEN,
             **steps, "chains": num_chains, "features_at_most": [12, 2 * side]}  # fmt: skip
    paper = Paper("bars", about, quick=quick, json=json)
    noisy, clean, basis, v = made(num_rows, side)
    x, half = noisy.copy(), side * (side // 2)
    x[:NUM_HIDDEN, half:] = np.nan
    model = mf.BinaryMF(
        row_prior=mf.BetaBernoulli(ALPHA, 1.0, 12),
        column_prior=mf.BetaBernoulli(4.0, 1.0, 2 * side),
        likelihood=mf.Gaussian(SCALE),
        weight_scale=SCALE,
    )
    posterior = mf.sample(
        model, x, weights="explicit", num_chains=num_chains, seed=0, progress=False, **steps
    )
    rebuilt = posterior.reconstruction(range(NUM_HIDDEN))
    apart = ((x[:NUM_HIDDEN, None, :half] - x[None, NUM_HIDDEN:, :half]) ** 2).sum(axis=2)
    nearest = NUM_HIDDEN + apart.argmin(axis=1)
    neighbour = clean[nearest]
    guesses = {
        "binary matrix factorisation": rebuilt,
        "nearest neighbour": noisy[nearest],
        "nearest neighbour without its noise, which nobody sees": neighbour,
        "column means": np.broadcast_to(np.nanmean(x, axis=0), rebuilt.shape),
    }
    errors = {name: error(guess, clean) for name, guess in guesses.items()}
    chains = [
        error(np.einsum("sik,skl,sjl->ij", u[:, :NUM_HIDDEN], w, v, optimize=True) / len(u), clean)
        for u, w, v in zip(
            *(posterior.draws[name].astype(float) for name in ("z", "weights", "v")), strict=True
        )
    ]
    draw = posterior.reference_draw()
    rows = np.argsort(-draw["z"].sum(axis=0), kind="stable")
    rows = rows[draw["z"].any(axis=0)[rows]]
    pictures = {
        "noisy": noisy[:NUM_HIDDEN], "clean": clean[:NUM_HIDDEN], "rebuilt": rebuilt,
        "neighbour": neighbour, "true_basis": basis,
        "basis": posterior.features().mean,
    }  # fmt: skip
    paper.save(
        errors=errors,
        errors_of_chains=chains,
        figures={name: np.round(value, 1).tolist() for name, value in pictures.items()}
        | {"true_v": bit_strings(v.T), "v": bit_strings(draw["v"][:, draw["v"].any(axis=0)].T)},
    )
    words = "root mean square error of hidden cells without their noise"
    verdict = [f"{name}: {value:.2f} {words}" for name, value in errors.items()]
    one_by_one = ", ".join(f"{value:.2f}" for value in chains)
    return paper.end(
        [*verdict, f"chains one by one: {one_by_one}; they stay in modes of their own"]
    )
