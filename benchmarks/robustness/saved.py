"""A small set of saved runs and checkpoints of several models, shared by the parts about files."""

from __future__ import annotations

import hashlib
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmf as mf
from jaxmf import registry, settings
from jaxmf.samplers import resampling

SECONDS = 60  # what takes longer hangs
_SAMPLE = {"num_warmup": 2, "num_samples": 3, "num_chains": 2, "progress": False}
_FILTER = {"num_particles": 8, "resample_fn": resampling.systematic, "progress": False}
_FIT = {"num_epochs": 3, "progress": False}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear-gaussian-ibp": ("sample", _SAMPLE),
    "bpmf": ("sample", _SAMPLE),
    "lda": ("sample", _SAMPLE),
    "flexible-mixture": ("sample", _SAMPLE),
    "noisy-or-ibp": ("particle_filter", _FILTER),
    "sparse-binary": ("variational", _FIT),
}
QUICK_MODELS = ("linear-gaussian-ibp", "lda")


@dataclass(frozen=True)
class Saved:
    """A folder and how it is read.

    Args:
        name: model and kind, such as ``lda/checkpoint``.
        folder: where it lies.
        read: reads the folder, as a user would; returns all there is to compare.
        posterior: what the untouched run gave.
        other: files of the same run with another seed, by name.
        contents: what `read` returns of the untouched folder.
        files: the bytes of the untouched folder.
    """

    name: str
    folder: Path
    read: Callable[[], dict[str, bytes]]
    posterior: mf.Posterior
    other: dict[str, bytes]
    contents: dict[str, bytes]
    files: dict[str, bytes]

    def restore(self) -> None:
        """The folder as it was."""
        for path in self.folder.iterdir():
            if path.is_symlink() or not path.is_file() or path.name not in self.files:
                path.unlink()
        for name, content in self.files.items():
            (self.folder / name).write_bytes(content)


def saved_runs(root: Path, names: Iterator[str] | tuple[str, ...] = tuple(MODELS)) -> list[Saved]:
    """Runs and checkpoints of the models of these names, made in a folder."""
    found = []
    for name in names:
        run, checkpoint, other = (root / name / part for part in ("run", "checkpoint", "other"))
        posterior = fit(name, checkpoint)
        posterior.save(run)
        fit(name, other / "checkpoint", seed=1).save(other / "run")
        for kind, folder, read in (
            ("run", run, lambda run=run: posterior_contents(mf.load(run))),
            (
                "checkpoint",
                checkpoint,
                lambda name=name, folder=checkpoint: resumed_contents(name, folder),
            ),
        ):
            files = read_files(folder)
            others = matched(files, read_files(other / kind))
            found.append(Saved(f"{name}/{kind}", folder, read, posterior, others, read(), files))
    return found


def fit(name: str, checkpoint: Path, *, seed: int = 0, resume: bool = False) -> mf.Posterior:
    """The run of one of the models, with a checkpoint a chunk."""
    method, options = MODELS[name]
    model, data = registry.get(name).example()
    return mf.fit(
        model,
        data,
        method=method,
        seed=seed,
        checkpoint=checkpoint,
        checkpoint_seconds=0,
        resume=resume,
        **options,
    )


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def matched(files: dict[str, bytes], others: dict[str, bytes]) -> dict[str, bytes]:
    """The files of another run under the names of this one: the part before the first dash."""
    kinds = {name.partition("-")[0]: content for name, content in others.items()}
    return {
        name: others.get(name, kinds.get(name.partition("-")[0], content))
        for name, content in files.items()
    }


def posterior_contents(posterior: mf.Posterior) -> dict[str, bytes]:
    """Everything that a posterior says, as bytes by name."""
    facts: dict[str, Any] = {
        f.name: settings.encode(getattr(posterior.meta, f.name), name=f.name)
        for f in fields(posterior.meta)
        if f.name not in ("seed", "wall_seconds")
    }
    facts["seed"] = settings.encode_seed(posterior.meta.seed)
    facts["model"] = registry.encode_model(posterior.model)
    facts["data"] = posterior.data.fingerprint()
    facts["evidence"] = posterior.evidence
    trees: dict[str, Any] = {
        "draws": posterior.draws,
        "averages": posterior.averages,
        "trace": posterior.trace,
        "weights": posterior.particle_log_weights,
    }
    if posterior.run is not None:
        trees["state"] = posterior.run.state
        for name in ("num_steps", "num_draws", "num_warmup", "complete", "thin", "capacity"):
            facts[name] = getattr(posterior.run, name)
    return {name: repr(value).encode() for name, value in facts.items()} | array_bytes(trees)


def resumed_contents(name: str, checkpoint: Path) -> dict[str, bytes]:
    """What a run says that is continued from its checkpoint, which is finished."""
    contents = posterior_contents(fit(name, checkpoint, resume=True))
    del contents["seconds"]  # those of reading come on top
    return contents


def array_bytes(trees: dict[str, Any]) -> dict[str, bytes]:
    """Dtype, shape and digest of every array of some trees, by path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(trees)
    return {
        jax.tree_util.keystr(path): (
            f"{np.asarray(leaf).dtype} {np.shape(leaf)} ".encode()
            + hashlib.sha256(np.ascontiguousarray(np.asarray(leaf)).tobytes()).digest()
        )
        for path, leaf in leaves
    }


def outcome(saved: Saved) -> tuple[str, str]:
    """How a folder is read: same, silent, refused, foreign or hang; and the error or difference.

    ``same`` is what the untouched folder gives, ``silent`` anything else without an error;
    ``refused`` is a ValueError or FileNotFoundError that names a file or the folder.
    """
    try:
        with warnings.catch_warnings(), time_limit(SECONDS):
            warnings.simplefilter("ignore")  # such as that so short a run has not converged
            there = saved.read()
    except TimeoutError as error:
        return "hang", str(error)
    except Exception as error:  # every kind is what is asked about
        words = f"{type(error).__name__}: {error}"
        is_ours = isinstance(error, (ValueError, FileNotFoundError))
        return ("refused" if is_ours and saved.folder.name in str(error) else "foreign"), words
    differing = [
        name
        for name in sorted(there.keys() | saved.contents.keys())
        if there.get(name) != saved.contents.get(name)
    ]
    return ("silent" if differing else "same"), ", ".join(differing)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError in the main thread once so many seconds have passed; POSIX only."""
    if os.name != "posix":
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
